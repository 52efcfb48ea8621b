#define LEAF static __attribute__((noinline)) void
static inline float max1(float a, float b) { return a < b ? b : a; }
typedef float vec2 __attribute__((vector_size(8)));
typedef int i2 __attribute__((vector_size(8)));
typedef float u2 __attribute__((vector_size(8), aligned(4), may_alias));
#define LD2(p) ((vec2)*(const u2 *)(p))
#define ST2(p, x) (*(u2 *)(p) = (u2)(x))
static inline vec2 splat2(float x) { return (vec2){x, x}; }
static inline vec2 max2(vec2 a, vec2 b) { i2 m = a < b; return (vec2)(((i2)b & m) | ((i2)a & ~m)); }
typedef float vec4 __attribute__((vector_size(16)));
typedef int i4 __attribute__((vector_size(16)));
typedef float u4 __attribute__((vector_size(16), aligned(4), may_alias));
#define LD4(p) ((vec4)*(const u4 *)(p))
#define ST4(p, x) (*(u4 *)(p) = (u4)(x))
static inline vec4 splat4(float x) { return (vec4){x, x, x, x}; }
static inline vec4 max4(vec4 a, vec4 b) { i4 m = a < b; return (vec4)(((i4)b & m) | ((i4)a & ~m)); }
typedef float vec8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
typedef float u8 __attribute__((vector_size(32), aligned(4), may_alias));
#define LD8(p) ((vec8)*(const u8 *)(p))
#define ST8(p, x) (*(u8 *)(p) = (u8)(x))
static inline vec8 splat8(float x) { return (vec8){x, x, x, x, x, x, x, x}; }
static inline vec8 max8(vec8 a, vec8 b) { i8 m = a < b; return (vec8)(((i8)b & m) | ((i8)a & ~m)); }
LEAF tile0(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec8 a8;
  vec8 a16;
  vec8 a24;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  for (long i2 = 0; i2 < 2; ++i2) {
    const vec8 x0 = LD8(p0 + 40*i2);
    const vec8 x1 = LD8(p1 + 24*i2);
    a8 += (x0 * x1);
    const vec8 x2 = LD8(p0 + 40*i2 + 8);
    a16 += (x2 * x1);
    const vec8 x3 = LD8(p0 + 40*i2 + 16);
    a24 += (x3 * x1);
    const vec8 x4 = LD8(p1 + 24*i2 + 8);
    a0 += (x0 * x4);
    a8 += (x2 * x4);
    a16 += (x3 * x4);
    const vec8 x5 = LD8(p0 + 40*i2 + 24);
    a24 += (x5 * x4);
    const vec8 x6 = LD8(p1 + 24*i2 + 16);
    a0 += (x2 * x6);
    a8 += (x3 * x6);
    a16 += (x5 * x6);
    const vec8 x7 = LD8(p0 + 40*i2 + 32);
    a24 += (x7 * x6);
  }
  const vec8 x8 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x8), splat8(0.0f)));
  ST8(p3 + 8, max8((a8 + x8), splat8(0.0f)));
  ST8(p3 + 16, max8((a16 + x8), splat8(0.0f)));
  ST8(p3 + 24, max8((a24 + x8), splat8(0.0f)));
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  a0 = splat8(0.0f);
  for (long i1 = 0; i1 < 2; ++i1) {
    for (long i2 = 0; i2 < 2; ++i2) {
      const vec8 x0 = LD8(p0 + 40*i1 + 8*i2);
      const vec8 x1 = LD8(p1 + 24*i1 + 8*i2);
      a0 += (x0 * x1);
    }
  }
  const vec8 x2 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x2), splat8(0.0f)));
}
LEAF tile2(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec8 a8;
  vec8 a16;
  vec8 a24;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  for (long i2 = 0; i2 < 3; ++i2) {
    const vec8 x0 = LD8(p0 + 40*i2);
    const vec8 x1 = LD8(p1 + 24*i2);
    a8 += (x0 * x1);
    const vec8 x2 = LD8(p0 + 40*i2 + 8);
    a16 += (x2 * x1);
    const vec8 x3 = LD8(p0 + 40*i2 + 16);
    a24 += (x3 * x1);
    const vec8 x4 = LD8(p1 + 24*i2 + 8);
    a0 += (x0 * x4);
    a8 += (x2 * x4);
    a16 += (x3 * x4);
    const vec8 x5 = LD8(p0 + 40*i2 + 24);
    a24 += (x5 * x4);
    const vec8 x6 = LD8(p1 + 24*i2 + 16);
    a0 += (x2 * x6);
    a8 += (x3 * x6);
    a16 += (x5 * x6);
    const vec8 x7 = LD8(p0 + 40*i2 + 32);
    a24 += (x7 * x6);
  }
  const vec8 x8 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x8), splat8(0.0f)));
  ST8(p3 + 8, max8((a8 + x8), splat8(0.0f)));
  ST8(p3 + 16, max8((a16 + x8), splat8(0.0f)));
  ST8(p3 + 24, max8((a24 + x8), splat8(0.0f)));
}
LEAF tile3(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  a0 = splat8(0.0f);
  for (long i1 = 0; i1 < 3; ++i1) {
    for (long i2 = 0; i2 < 2; ++i2) {
      const vec8 x0 = LD8(p0 + 40*i1 + 8*i2);
      const vec8 x1 = LD8(p1 + 24*i1 + 8*i2);
      a0 += (x0 * x1);
    }
  }
  const vec8 x2 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x2), splat8(0.0f)));
}
LEAF tile4(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec4 a8;
  vec8 a12;
  vec4 a20;
  vec8 a24;
  vec4 a32;
  vec8 a36;
  vec4 a44;
  vec8 a48;
  vec4 a56;
  a0 = splat8(0.0f);
  a8 = splat4(0.0f);
  a12 = splat8(0.0f);
  a20 = splat4(0.0f);
  a24 = splat8(0.0f);
  a32 = splat4(0.0f);
  a36 = splat8(0.0f);
  a44 = splat4(0.0f);
  a48 = splat8(0.0f);
  a56 = splat4(0.0f);
  for (long i2 = 0; i2 < 2; ++i2) {
    const float x0 = p0[4*i2];
    const vec8 x1 = LD8(p1 + 48*i2);
    a0 += (x0 * x1);
    const vec4 x2 = LD4(p1 + 48*i2 + 8);
    a8 += (x0 * x2);
    const float x3 = p0[4*i2 + 8];
    a12 += (x3 * x1);
    a20 += (x3 * x2);
    const float x4 = p0[4*i2 + 16];
    a24 += (x4 * x1);
    a32 += (x4 * x2);
    const float x5 = p0[4*i2 + 24];
    a36 += (x5 * x1);
    a44 += (x5 * x2);
    const float x6 = p0[4*i2 + 32];
    a48 += (x6 * x1);
    a56 += (x6 * x2);
    const float x7 = p0[4*i2 + 1];
    const vec8 x8 = LD8(p1 + 48*i2 + 12);
    a0 += (x7 * x8);
    const vec4 x9 = LD4(p1 + 48*i2 + 20);
    a8 += (x7 * x9);
    const float x10 = p0[4*i2 + 9];
    a12 += (x10 * x8);
    a20 += (x10 * x9);
    const float x11 = p0[4*i2 + 17];
    a24 += (x11 * x8);
    a32 += (x11 * x9);
    const float x12 = p0[4*i2 + 25];
    a36 += (x12 * x8);
    a44 += (x12 * x9);
    const float x13 = p0[4*i2 + 33];
    a48 += (x13 * x8);
    a56 += (x13 * x9);
    const float x14 = p0[4*i2 + 2];
    const vec8 x15 = LD8(p1 + 48*i2 + 24);
    a0 += (x14 * x15);
    const vec4 x16 = LD4(p1 + 48*i2 + 32);
    a8 += (x14 * x16);
    const float x17 = p0[4*i2 + 10];
    a12 += (x17 * x15);
    a20 += (x17 * x16);
    const float x18 = p0[4*i2 + 18];
    a24 += (x18 * x15);
    a32 += (x18 * x16);
    const float x19 = p0[4*i2 + 26];
    a36 += (x19 * x15);
    a44 += (x19 * x16);
    const float x20 = p0[4*i2 + 34];
    a48 += (x20 * x15);
    a56 += (x20 * x16);
    const float x21 = p0[4*i2 + 3];
    const vec8 x22 = LD8(p1 + 48*i2 + 36);
    a0 += (x21 * x22);
    const vec4 x23 = LD4(p1 + 48*i2 + 44);
    a8 += (x21 * x23);
    const float x24 = p0[4*i2 + 11];
    a12 += (x24 * x22);
    a20 += (x24 * x23);
    const float x25 = p0[4*i2 + 19];
    a24 += (x25 * x22);
    a32 += (x25 * x23);
    const float x26 = p0[4*i2 + 27];
    a36 += (x26 * x22);
    a44 += (x26 * x23);
    const float x27 = p0[4*i2 + 35];
    a48 += (x27 * x22);
    a56 += (x27 * x23);
  }
  const vec8 x28 = a0;
  p2[0 + 0] = x28[0];
  p2[0 + 30] = x28[1];
  p2[0 + 60] = x28[2];
  p2[0 + 90] = x28[3];
  p2[0 + 120] = x28[4];
  p2[0 + 150] = x28[5];
  p2[0 + 180] = x28[6];
  p2[0 + 210] = x28[7];
  const vec4 x29 = a8;
  p2[240 + 0] = x29[0];
  p2[240 + 30] = x29[1];
  p2[240 + 60] = x29[2];
  p2[240 + 90] = x29[3];
  const vec8 x30 = a12;
  p2[1 + 0] = x30[0];
  p2[1 + 30] = x30[1];
  p2[1 + 60] = x30[2];
  p2[1 + 90] = x30[3];
  p2[1 + 120] = x30[4];
  p2[1 + 150] = x30[5];
  p2[1 + 180] = x30[6];
  p2[1 + 210] = x30[7];
  const vec4 x31 = a20;
  p2[241 + 0] = x31[0];
  p2[241 + 30] = x31[1];
  p2[241 + 60] = x31[2];
  p2[241 + 90] = x31[3];
  const vec8 x32 = a24;
  p2[2 + 0] = x32[0];
  p2[2 + 30] = x32[1];
  p2[2 + 60] = x32[2];
  p2[2 + 90] = x32[3];
  p2[2 + 120] = x32[4];
  p2[2 + 150] = x32[5];
  p2[2 + 180] = x32[6];
  p2[2 + 210] = x32[7];
  const vec4 x33 = a32;
  p2[242 + 0] = x33[0];
  p2[242 + 30] = x33[1];
  p2[242 + 60] = x33[2];
  p2[242 + 90] = x33[3];
  const vec8 x34 = a36;
  p2[3 + 0] = x34[0];
  p2[3 + 30] = x34[1];
  p2[3 + 60] = x34[2];
  p2[3 + 90] = x34[3];
  p2[3 + 120] = x34[4];
  p2[3 + 150] = x34[5];
  p2[3 + 180] = x34[6];
  p2[3 + 210] = x34[7];
  const vec4 x35 = a44;
  p2[243 + 0] = x35[0];
  p2[243 + 30] = x35[1];
  p2[243 + 60] = x35[2];
  p2[243 + 90] = x35[3];
  const vec8 x36 = a48;
  p2[4 + 0] = x36[0];
  p2[4 + 30] = x36[1];
  p2[4 + 60] = x36[2];
  p2[4 + 90] = x36[3];
  p2[4 + 120] = x36[4];
  p2[4 + 150] = x36[5];
  p2[4 + 180] = x36[6];
  p2[4 + 210] = x36[7];
  const vec4 x37 = a56;
  p2[244 + 0] = x37[0];
  p2[244 + 30] = x37[1];
  p2[244 + 60] = x37[2];
  p2[244 + 90] = x37[3];
}
LEAF tile5(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec4 a8;
  vec8 a12;
  vec4 a20;
  vec8 a24;
  vec4 a32;
  vec8 a36;
  vec4 a44;
  vec8 a48;
  vec4 a56;
  a0 = ((vec8){p0[0 + 0], p0[0 + 30], p0[0 + 60], p0[0 + 90], p0[0 + 120], p0[0 + 150], p0[0 + 180], p0[0 + 210]});
  a8 = ((vec4){p0[240 + 0], p0[240 + 30], p0[240 + 60], p0[240 + 90]});
  a12 = ((vec8){p0[1 + 0], p0[1 + 30], p0[1 + 60], p0[1 + 90], p0[1 + 120], p0[1 + 150], p0[1 + 180], p0[1 + 210]});
  a20 = ((vec4){p0[241 + 0], p0[241 + 30], p0[241 + 60], p0[241 + 90]});
  a24 = ((vec8){p0[2 + 0], p0[2 + 30], p0[2 + 60], p0[2 + 90], p0[2 + 120], p0[2 + 150], p0[2 + 180], p0[2 + 210]});
  a32 = ((vec4){p0[242 + 0], p0[242 + 30], p0[242 + 60], p0[242 + 90]});
  a36 = ((vec8){p0[3 + 0], p0[3 + 30], p0[3 + 60], p0[3 + 90], p0[3 + 120], p0[3 + 150], p0[3 + 180], p0[3 + 210]});
  a44 = ((vec4){p0[243 + 0], p0[243 + 30], p0[243 + 60], p0[243 + 90]});
  a48 = ((vec8){p0[4 + 0], p0[4 + 30], p0[4 + 60], p0[4 + 90], p0[4 + 120], p0[4 + 150], p0[4 + 180], p0[4 + 210]});
  a56 = ((vec4){p0[244 + 0], p0[244 + 30], p0[244 + 60], p0[244 + 90]});
  for (long i2 = 0; i2 < 2; ++i2) {
    const float x0 = p1[4*i2];
    const vec8 x1 = LD8(p2 + 48*i2);
    a0 += (x0 * x1);
    const vec4 x2 = LD4(p2 + 48*i2 + 8);
    a8 += (x0 * x2);
    const float x3 = p1[4*i2 + 8];
    a12 += (x3 * x1);
    a20 += (x3 * x2);
    const float x4 = p1[4*i2 + 16];
    a24 += (x4 * x1);
    a32 += (x4 * x2);
    const float x5 = p1[4*i2 + 24];
    a36 += (x5 * x1);
    a44 += (x5 * x2);
    const float x6 = p1[4*i2 + 32];
    a48 += (x6 * x1);
    a56 += (x6 * x2);
    const float x7 = p1[4*i2 + 1];
    const vec8 x8 = LD8(p2 + 48*i2 + 12);
    a0 += (x7 * x8);
    const vec4 x9 = LD4(p2 + 48*i2 + 20);
    a8 += (x7 * x9);
    const float x10 = p1[4*i2 + 9];
    a12 += (x10 * x8);
    a20 += (x10 * x9);
    const float x11 = p1[4*i2 + 17];
    a24 += (x11 * x8);
    a32 += (x11 * x9);
    const float x12 = p1[4*i2 + 25];
    a36 += (x12 * x8);
    a44 += (x12 * x9);
    const float x13 = p1[4*i2 + 33];
    a48 += (x13 * x8);
    a56 += (x13 * x9);
    const float x14 = p1[4*i2 + 2];
    const vec8 x15 = LD8(p2 + 48*i2 + 24);
    a0 += (x14 * x15);
    const vec4 x16 = LD4(p2 + 48*i2 + 32);
    a8 += (x14 * x16);
    const float x17 = p1[4*i2 + 10];
    a12 += (x17 * x15);
    a20 += (x17 * x16);
    const float x18 = p1[4*i2 + 18];
    a24 += (x18 * x15);
    a32 += (x18 * x16);
    const float x19 = p1[4*i2 + 26];
    a36 += (x19 * x15);
    a44 += (x19 * x16);
    const float x20 = p1[4*i2 + 34];
    a48 += (x20 * x15);
    a56 += (x20 * x16);
    const float x21 = p1[4*i2 + 3];
    const vec8 x22 = LD8(p2 + 48*i2 + 36);
    a0 += (x21 * x22);
    const vec4 x23 = LD4(p2 + 48*i2 + 44);
    a8 += (x21 * x23);
    const float x24 = p1[4*i2 + 11];
    a12 += (x24 * x22);
    a20 += (x24 * x23);
    const float x25 = p1[4*i2 + 19];
    a24 += (x25 * x22);
    a32 += (x25 * x23);
    const float x26 = p1[4*i2 + 27];
    a36 += (x26 * x22);
    a44 += (x26 * x23);
    const float x27 = p1[4*i2 + 35];
    a48 += (x27 * x22);
    a56 += (x27 * x23);
  }
  const vec8 x28 = LD8(p3 + 0);
  const vec8 x29 = (a0 + x28);
  p0[0 + 0] = x29[0];
  p0[0 + 30] = x29[1];
  p0[0 + 60] = x29[2];
  p0[0 + 90] = x29[3];
  p0[0 + 120] = x29[4];
  p0[0 + 150] = x29[5];
  p0[0 + 180] = x29[6];
  p0[0 + 210] = x29[7];
  const vec4 x30 = LD4(p3 + 8);
  const vec4 x31 = (a8 + x30);
  p0[240 + 0] = x31[0];
  p0[240 + 30] = x31[1];
  p0[240 + 60] = x31[2];
  p0[240 + 90] = x31[3];
  const vec8 x32 = (a12 + x28);
  p0[1 + 0] = x32[0];
  p0[1 + 30] = x32[1];
  p0[1 + 60] = x32[2];
  p0[1 + 90] = x32[3];
  p0[1 + 120] = x32[4];
  p0[1 + 150] = x32[5];
  p0[1 + 180] = x32[6];
  p0[1 + 210] = x32[7];
  const vec4 x33 = (a20 + x30);
  p0[241 + 0] = x33[0];
  p0[241 + 30] = x33[1];
  p0[241 + 60] = x33[2];
  p0[241 + 90] = x33[3];
  const vec8 x34 = (a24 + x28);
  p0[2 + 0] = x34[0];
  p0[2 + 30] = x34[1];
  p0[2 + 60] = x34[2];
  p0[2 + 90] = x34[3];
  p0[2 + 120] = x34[4];
  p0[2 + 150] = x34[5];
  p0[2 + 180] = x34[6];
  p0[2 + 210] = x34[7];
  const vec4 x35 = (a32 + x30);
  p0[242 + 0] = x35[0];
  p0[242 + 30] = x35[1];
  p0[242 + 60] = x35[2];
  p0[242 + 90] = x35[3];
  const vec8 x36 = (a36 + x28);
  p0[3 + 0] = x36[0];
  p0[3 + 30] = x36[1];
  p0[3 + 60] = x36[2];
  p0[3 + 90] = x36[3];
  p0[3 + 120] = x36[4];
  p0[3 + 150] = x36[5];
  p0[3 + 180] = x36[6];
  p0[3 + 210] = x36[7];
  const vec4 x37 = (a44 + x30);
  p0[243 + 0] = x37[0];
  p0[243 + 30] = x37[1];
  p0[243 + 60] = x37[2];
  p0[243 + 90] = x37[3];
  const vec8 x38 = (a48 + x28);
  p0[4 + 0] = x38[0];
  p0[4 + 30] = x38[1];
  p0[4 + 60] = x38[2];
  p0[4 + 90] = x38[3];
  p0[4 + 120] = x38[4];
  p0[4 + 150] = x38[5];
  p0[4 + 180] = x38[6];
  p0[4 + 210] = x38[7];
  const vec4 x39 = (a56 + x30);
  p0[244 + 0] = x39[0];
  p0[244 + 30] = x39[1];
  p0[244 + 60] = x39[2];
  p0[244 + 90] = x39[3];
}
void autotune_pack_depthwise(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = buffers[4];
  float *const b5 = buffers[5];
  float *const b7 = buffers[7];
  float *const b8 = buffers[8];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 2 ? end : 2); ++t) {
    long r = t - 0;
    const long v0 = r % 2; r /= 2;
    for (long v1 = 0; v1 < 3; ++v1) {
      for (long v2 = 0; v2 < 3; ++v2) {
        ST8(b7 + 72*v0 + 24*v1 + 8*v2, ((vec8){b1[72*v0 + 3*v1 + v2 + 0], b1[72*v0 + 3*v1 + v2 + 9], b1[72*v0 + 3*v1 + v2 + 18], b1[72*v0 + 3*v1 + v2 + 27], b1[72*v0 + 3*v1 + v2 + 36], b1[72*v0 + 3*v1 + v2 + 45], b1[72*v0 + 3*v1 + v2 + 54], b1[72*v0 + 3*v1 + v2 + 63]}));
      }
    }
  }
}
void autotune_pack_pointwise(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = buffers[4];
  float *const b5 = buffers[5];
  float *const b7 = buffers[7];
  float *const b8 = buffers[8];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v4 = r % 1; r /= 1;
    for (long v5 = 0; v5 < 2; ++v5) {
      for (long v6 = 0; v6 < 8; ++v6) {
        ST8(b8 + 96*v5 + 12*v6, ((vec8){b3[8*v5 + v6 + 0], b3[8*v5 + v6 + 16], b3[8*v5 + v6 + 32], b3[8*v5 + v6 + 48], b3[8*v5 + v6 + 64], b3[8*v5 + v6 + 80], b3[8*v5 + v6 + 96], b3[8*v5 + v6 + 112]}));
        ST4(b8 + 96*v5 + 12*v6 + 8, ((vec4){b3[8*v5 + v6 + 128 + 0], b3[8*v5 + v6 + 128 + 16], b3[8*v5 + v6 + 128 + 32], b3[8*v5 + v6 + 128 + 48]}));
      }
    }
  }
}
void autotune_compute(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = buffers[4];
  float *const b5 = buffers[5];
  float *const b7 = buffers[7];
  float *const b8 = buffers[8];
  float *const b6 = (float *)(local + 0);
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v8 = r % 1; r /= 1;
    tile0(b0 + 0, b7 + 24, b2 + 0, b6 + 0);
    tile1(b0 + 24, b7 + 24, b2 + 0, b6 + 32);
    tile2(b0 + 0, b7 + 0, b2 + 0, b6 + 40);
    tile3(b0 + 24, b7 + 0, b2 + 0, b6 + 72);
    for (long v41 = 0; v41 < 2; ++v41) {
      tile4(b6 + 40*v41, b8 + 0, b5 + 5*v41);
    }
    tile0(b0 + 240, b7 + 96, b2 + 8, b6 + 0);
    tile1(b0 + 264, b7 + 96, b2 + 8, b6 + 32);
    tile2(b0 + 240, b7 + 72, b2 + 8, b6 + 40);
    tile3(b0 + 264, b7 + 72, b2 + 8, b6 + 72);
    for (long v82 = 0; v82 < 2; ++v82) {
      tile5(b5 + 5*v82, b6 + 40*v82, b8 + 96, b4 + 0);
    }
  }
  for (long t = begin > 1 ? begin : 1; t < (end < 2 ? end : 2); ++t) {
    long r = t - 1;
    const long v91 = r % 1; r /= 1;
    for (long v92 = 0; v92 < 2; ++v92) {
      tile2(b0 + 40*v92 + 40, b7 + 0, b2 + 0, b6 + 40*v92);
      tile3(b0 + 40*v92 + 64, b7 + 0, b2 + 0, b6 + 40*v92 + 32);
    }
    for (long v109 = 0; v109 < 2; ++v109) {
      tile4(b6 + 40*v109, b8 + 0, b5 + 5*v109 + 10);
    }
    for (long v118 = 0; v118 < 2; ++v118) {
      tile2(b0 + 40*v118 + 280, b7 + 72, b2 + 8, b6 + 40*v118);
      tile3(b0 + 40*v118 + 304, b7 + 72, b2 + 8, b6 + 40*v118 + 32);
    }
    for (long v135 = 0; v135 < 2; ++v135) {
      tile5(b5 + 5*v135 + 10, b6 + 40*v135, b8 + 96, b4 + 0);
    }
  }
  for (long t = begin > 2 ? begin : 2; t < (end < 3 ? end : 3); ++t) {
    long r = t - 2;
    const long v144 = r % 1; r /= 1;
    tile2(b0 + 120, b7 + 0, b2 + 0, b6 + 0);
    tile3(b0 + 144, b7 + 0, b2 + 0, b6 + 32);
    tile0(b0 + 160, b7 + 0, b2 + 0, b6 + 40);
    tile1(b0 + 184, b7 + 0, b2 + 0, b6 + 72);
    for (long v177 = 0; v177 < 2; ++v177) {
      tile4(b6 + 40*v177, b8 + 0, b5 + 5*v177 + 20);
    }
    tile2(b0 + 360, b7 + 72, b2 + 8, b6 + 0);
    tile3(b0 + 384, b7 + 72, b2 + 8, b6 + 32);
    tile0(b0 + 400, b7 + 72, b2 + 8, b6 + 40);
    tile1(b0 + 424, b7 + 72, b2 + 8, b6 + 72);
    for (long v218 = 0; v218 < 2; ++v218) {
      tile5(b5 + 5*v218 + 20, b6 + 40*v218, b8 + 96, b4 + 0);
    }
  }
}
