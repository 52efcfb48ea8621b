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
LEAF tile0(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec2 a8;
  vec8 a10;
  vec2 a18;
  vec8 a20;
  vec2 a28;
  vec8 a30;
  vec2 a38;
  vec8 a40;
  vec2 a48;
  vec8 a50;
  vec2 a58;
  a0 = splat8(0.0f);
  a8 = splat2(0.0f);
  a10 = splat8(0.0f);
  a18 = splat2(0.0f);
  a20 = splat8(0.0f);
  a28 = splat2(0.0f);
  a30 = splat8(0.0f);
  a38 = splat2(0.0f);
  a40 = splat8(0.0f);
  a48 = splat2(0.0f);
  a50 = splat8(0.0f);
  a58 = splat2(0.0f);
  for (long i3 = 0; i3 < 3; ++i3) {
    for (long i4 = 0; i4 < 3; ++i4) {
      for (long i5 = 0; i5 < 2; ++i5) {
        const float x0 = p0[64*i3 + 8*i4 + 4*i5];
        const vec8 x1 = LD8(p1 + 480*i3 + 80*i4 + 40*i5);
        a0 += (x0 * x1);
        const vec2 x2 = LD2(p1 + 480*i3 + 80*i4 + 40*i5 + 8);
        a8 += (x0 * x2);
        const float x3 = p0[64*i3 + 8*i4 + 4*i5 + 8];
        a10 += (x3 * x1);
        a18 += (x3 * x2);
        const float x4 = p0[64*i3 + 8*i4 + 4*i5 + 16];
        a20 += (x4 * x1);
        a28 += (x4 * x2);
        const float x5 = p0[64*i3 + 8*i4 + 4*i5 + 64];
        a30 += (x5 * x1);
        a38 += (x5 * x2);
        const float x6 = p0[64*i3 + 8*i4 + 4*i5 + 72];
        a40 += (x6 * x1);
        a48 += (x6 * x2);
        const float x7 = p0[64*i3 + 8*i4 + 4*i5 + 80];
        a50 += (x7 * x1);
        a58 += (x7 * x2);
        const float x8 = p0[64*i3 + 8*i4 + 4*i5 + 1];
        const vec8 x9 = LD8(p1 + 480*i3 + 80*i4 + 40*i5 + 10);
        a0 += (x8 * x9);
        const vec2 x10 = LD2(p1 + 480*i3 + 80*i4 + 40*i5 + 18);
        a8 += (x8 * x10);
        const float x11 = p0[64*i3 + 8*i4 + 4*i5 + 9];
        a10 += (x11 * x9);
        a18 += (x11 * x10);
        const float x12 = p0[64*i3 + 8*i4 + 4*i5 + 17];
        a20 += (x12 * x9);
        a28 += (x12 * x10);
        const float x13 = p0[64*i3 + 8*i4 + 4*i5 + 65];
        a30 += (x13 * x9);
        a38 += (x13 * x10);
        const float x14 = p0[64*i3 + 8*i4 + 4*i5 + 73];
        a40 += (x14 * x9);
        a48 += (x14 * x10);
        const float x15 = p0[64*i3 + 8*i4 + 4*i5 + 81];
        a50 += (x15 * x9);
        a58 += (x15 * x10);
        const float x16 = p0[64*i3 + 8*i4 + 4*i5 + 2];
        const vec8 x17 = LD8(p1 + 480*i3 + 80*i4 + 40*i5 + 20);
        a0 += (x16 * x17);
        const vec2 x18 = LD2(p1 + 480*i3 + 80*i4 + 40*i5 + 28);
        a8 += (x16 * x18);
        const float x19 = p0[64*i3 + 8*i4 + 4*i5 + 10];
        a10 += (x19 * x17);
        a18 += (x19 * x18);
        const float x20 = p0[64*i3 + 8*i4 + 4*i5 + 18];
        a20 += (x20 * x17);
        a28 += (x20 * x18);
        const float x21 = p0[64*i3 + 8*i4 + 4*i5 + 66];
        a30 += (x21 * x17);
        a38 += (x21 * x18);
        const float x22 = p0[64*i3 + 8*i4 + 4*i5 + 74];
        a40 += (x22 * x17);
        a48 += (x22 * x18);
        const float x23 = p0[64*i3 + 8*i4 + 4*i5 + 82];
        a50 += (x23 * x17);
        a58 += (x23 * x18);
        const float x24 = p0[64*i3 + 8*i4 + 4*i5 + 3];
        const vec8 x25 = LD8(p1 + 480*i3 + 80*i4 + 40*i5 + 30);
        a0 += (x24 * x25);
        const vec2 x26 = LD2(p1 + 480*i3 + 80*i4 + 40*i5 + 38);
        a8 += (x24 * x26);
        const float x27 = p0[64*i3 + 8*i4 + 4*i5 + 11];
        a10 += (x27 * x25);
        a18 += (x27 * x26);
        const float x28 = p0[64*i3 + 8*i4 + 4*i5 + 19];
        a20 += (x28 * x25);
        a28 += (x28 * x26);
        const float x29 = p0[64*i3 + 8*i4 + 4*i5 + 67];
        a30 += (x29 * x25);
        a38 += (x29 * x26);
        const float x30 = p0[64*i3 + 8*i4 + 4*i5 + 75];
        a40 += (x30 * x25);
        a48 += (x30 * x26);
        const float x31 = p0[64*i3 + 8*i4 + 4*i5 + 83];
        a50 += (x31 * x25);
        a58 += (x31 * x26);
      }
    }
  }
  const vec8 x32 = a0;
  p2[0 + 0] = x32[0];
  p2[0 + 36] = x32[1];
  p2[0 + 72] = x32[2];
  p2[0 + 108] = x32[3];
  p2[0 + 144] = x32[4];
  p2[0 + 180] = x32[5];
  p2[0 + 216] = x32[6];
  p2[0 + 252] = x32[7];
  const vec2 x33 = a8;
  p2[288 + 0] = x33[0];
  p2[288 + 36] = x33[1];
  const vec8 x34 = a10;
  p2[1 + 0] = x34[0];
  p2[1 + 36] = x34[1];
  p2[1 + 72] = x34[2];
  p2[1 + 108] = x34[3];
  p2[1 + 144] = x34[4];
  p2[1 + 180] = x34[5];
  p2[1 + 216] = x34[6];
  p2[1 + 252] = x34[7];
  const vec2 x35 = a18;
  p2[289 + 0] = x35[0];
  p2[289 + 36] = x35[1];
  const vec8 x36 = a20;
  p2[2 + 0] = x36[0];
  p2[2 + 36] = x36[1];
  p2[2 + 72] = x36[2];
  p2[2 + 108] = x36[3];
  p2[2 + 144] = x36[4];
  p2[2 + 180] = x36[5];
  p2[2 + 216] = x36[6];
  p2[2 + 252] = x36[7];
  const vec2 x37 = a28;
  p2[290 + 0] = x37[0];
  p2[290 + 36] = x37[1];
  const vec8 x38 = a30;
  p2[6 + 0] = x38[0];
  p2[6 + 36] = x38[1];
  p2[6 + 72] = x38[2];
  p2[6 + 108] = x38[3];
  p2[6 + 144] = x38[4];
  p2[6 + 180] = x38[5];
  p2[6 + 216] = x38[6];
  p2[6 + 252] = x38[7];
  const vec2 x39 = a38;
  p2[294 + 0] = x39[0];
  p2[294 + 36] = x39[1];
  const vec8 x40 = a40;
  p2[7 + 0] = x40[0];
  p2[7 + 36] = x40[1];
  p2[7 + 72] = x40[2];
  p2[7 + 108] = x40[3];
  p2[7 + 144] = x40[4];
  p2[7 + 180] = x40[5];
  p2[7 + 216] = x40[6];
  p2[7 + 252] = x40[7];
  const vec2 x41 = a48;
  p2[295 + 0] = x41[0];
  p2[295 + 36] = x41[1];
  const vec8 x42 = a50;
  p2[8 + 0] = x42[0];
  p2[8 + 36] = x42[1];
  p2[8 + 72] = x42[2];
  p2[8 + 108] = x42[3];
  p2[8 + 144] = x42[4];
  p2[8 + 180] = x42[5];
  p2[8 + 216] = x42[6];
  p2[8 + 252] = x42[7];
  const vec2 x43 = a58;
  p2[296 + 0] = x43[0];
  p2[296 + 36] = x43[1];
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec2 a8;
  vec8 a10;
  vec2 a18;
  vec8 a20;
  vec2 a28;
  vec8 a30;
  vec2 a38;
  vec8 a40;
  vec2 a48;
  vec8 a50;
  vec2 a58;
  a0 = ((vec8){p0[0 + 0], p0[0 + 36], p0[0 + 72], p0[0 + 108], p0[0 + 144], p0[0 + 180], p0[0 + 216], p0[0 + 252]});
  a8 = ((vec2){p0[288 + 0], p0[288 + 36]});
  a10 = ((vec8){p0[1 + 0], p0[1 + 36], p0[1 + 72], p0[1 + 108], p0[1 + 144], p0[1 + 180], p0[1 + 216], p0[1 + 252]});
  a18 = ((vec2){p0[289 + 0], p0[289 + 36]});
  a20 = ((vec8){p0[2 + 0], p0[2 + 36], p0[2 + 72], p0[2 + 108], p0[2 + 144], p0[2 + 180], p0[2 + 216], p0[2 + 252]});
  a28 = ((vec2){p0[290 + 0], p0[290 + 36]});
  a30 = ((vec8){p0[6 + 0], p0[6 + 36], p0[6 + 72], p0[6 + 108], p0[6 + 144], p0[6 + 180], p0[6 + 216], p0[6 + 252]});
  a38 = ((vec2){p0[294 + 0], p0[294 + 36]});
  a40 = ((vec8){p0[7 + 0], p0[7 + 36], p0[7 + 72], p0[7 + 108], p0[7 + 144], p0[7 + 180], p0[7 + 216], p0[7 + 252]});
  a48 = ((vec2){p0[295 + 0], p0[295 + 36]});
  a50 = ((vec8){p0[8 + 0], p0[8 + 36], p0[8 + 72], p0[8 + 108], p0[8 + 144], p0[8 + 180], p0[8 + 216], p0[8 + 252]});
  a58 = ((vec2){p0[296 + 0], p0[296 + 36]});
  for (long i3 = 0; i3 < 3; ++i3) {
    for (long i4 = 0; i4 < 3; ++i4) {
      for (long i5 = 0; i5 < 2; ++i5) {
        const float x0 = p1[64*i3 + 8*i4 + 4*i5];
        const vec8 x1 = LD8(p2 + 480*i3 + 80*i4 + 40*i5);
        a0 += (x0 * x1);
        const vec2 x2 = LD2(p2 + 480*i3 + 80*i4 + 40*i5 + 8);
        a8 += (x0 * x2);
        const float x3 = p1[64*i3 + 8*i4 + 4*i5 + 8];
        a10 += (x3 * x1);
        a18 += (x3 * x2);
        const float x4 = p1[64*i3 + 8*i4 + 4*i5 + 16];
        a20 += (x4 * x1);
        a28 += (x4 * x2);
        const float x5 = p1[64*i3 + 8*i4 + 4*i5 + 64];
        a30 += (x5 * x1);
        a38 += (x5 * x2);
        const float x6 = p1[64*i3 + 8*i4 + 4*i5 + 72];
        a40 += (x6 * x1);
        a48 += (x6 * x2);
        const float x7 = p1[64*i3 + 8*i4 + 4*i5 + 80];
        a50 += (x7 * x1);
        a58 += (x7 * x2);
        const float x8 = p1[64*i3 + 8*i4 + 4*i5 + 1];
        const vec8 x9 = LD8(p2 + 480*i3 + 80*i4 + 40*i5 + 10);
        a0 += (x8 * x9);
        const vec2 x10 = LD2(p2 + 480*i3 + 80*i4 + 40*i5 + 18);
        a8 += (x8 * x10);
        const float x11 = p1[64*i3 + 8*i4 + 4*i5 + 9];
        a10 += (x11 * x9);
        a18 += (x11 * x10);
        const float x12 = p1[64*i3 + 8*i4 + 4*i5 + 17];
        a20 += (x12 * x9);
        a28 += (x12 * x10);
        const float x13 = p1[64*i3 + 8*i4 + 4*i5 + 65];
        a30 += (x13 * x9);
        a38 += (x13 * x10);
        const float x14 = p1[64*i3 + 8*i4 + 4*i5 + 73];
        a40 += (x14 * x9);
        a48 += (x14 * x10);
        const float x15 = p1[64*i3 + 8*i4 + 4*i5 + 81];
        a50 += (x15 * x9);
        a58 += (x15 * x10);
        const float x16 = p1[64*i3 + 8*i4 + 4*i5 + 2];
        const vec8 x17 = LD8(p2 + 480*i3 + 80*i4 + 40*i5 + 20);
        a0 += (x16 * x17);
        const vec2 x18 = LD2(p2 + 480*i3 + 80*i4 + 40*i5 + 28);
        a8 += (x16 * x18);
        const float x19 = p1[64*i3 + 8*i4 + 4*i5 + 10];
        a10 += (x19 * x17);
        a18 += (x19 * x18);
        const float x20 = p1[64*i3 + 8*i4 + 4*i5 + 18];
        a20 += (x20 * x17);
        a28 += (x20 * x18);
        const float x21 = p1[64*i3 + 8*i4 + 4*i5 + 66];
        a30 += (x21 * x17);
        a38 += (x21 * x18);
        const float x22 = p1[64*i3 + 8*i4 + 4*i5 + 74];
        a40 += (x22 * x17);
        a48 += (x22 * x18);
        const float x23 = p1[64*i3 + 8*i4 + 4*i5 + 82];
        a50 += (x23 * x17);
        a58 += (x23 * x18);
        const float x24 = p1[64*i3 + 8*i4 + 4*i5 + 3];
        const vec8 x25 = LD8(p2 + 480*i3 + 80*i4 + 40*i5 + 30);
        a0 += (x24 * x25);
        const vec2 x26 = LD2(p2 + 480*i3 + 80*i4 + 40*i5 + 38);
        a8 += (x24 * x26);
        const float x27 = p1[64*i3 + 8*i4 + 4*i5 + 11];
        a10 += (x27 * x25);
        a18 += (x27 * x26);
        const float x28 = p1[64*i3 + 8*i4 + 4*i5 + 19];
        a20 += (x28 * x25);
        a28 += (x28 * x26);
        const float x29 = p1[64*i3 + 8*i4 + 4*i5 + 67];
        a30 += (x29 * x25);
        a38 += (x29 * x26);
        const float x30 = p1[64*i3 + 8*i4 + 4*i5 + 75];
        a40 += (x30 * x25);
        a48 += (x30 * x26);
        const float x31 = p1[64*i3 + 8*i4 + 4*i5 + 83];
        a50 += (x31 * x25);
        a58 += (x31 * x26);
      }
    }
  }
  const vec8 x32 = a0;
  p0[0 + 0] = x32[0];
  p0[0 + 36] = x32[1];
  p0[0 + 72] = x32[2];
  p0[0 + 108] = x32[3];
  p0[0 + 144] = x32[4];
  p0[0 + 180] = x32[5];
  p0[0 + 216] = x32[6];
  p0[0 + 252] = x32[7];
  const vec2 x33 = a8;
  p0[288 + 0] = x33[0];
  p0[288 + 36] = x33[1];
  const vec8 x34 = a10;
  p0[1 + 0] = x34[0];
  p0[1 + 36] = x34[1];
  p0[1 + 72] = x34[2];
  p0[1 + 108] = x34[3];
  p0[1 + 144] = x34[4];
  p0[1 + 180] = x34[5];
  p0[1 + 216] = x34[6];
  p0[1 + 252] = x34[7];
  const vec2 x35 = a18;
  p0[289 + 0] = x35[0];
  p0[289 + 36] = x35[1];
  const vec8 x36 = a20;
  p0[2 + 0] = x36[0];
  p0[2 + 36] = x36[1];
  p0[2 + 72] = x36[2];
  p0[2 + 108] = x36[3];
  p0[2 + 144] = x36[4];
  p0[2 + 180] = x36[5];
  p0[2 + 216] = x36[6];
  p0[2 + 252] = x36[7];
  const vec2 x37 = a28;
  p0[290 + 0] = x37[0];
  p0[290 + 36] = x37[1];
  const vec8 x38 = a30;
  p0[6 + 0] = x38[0];
  p0[6 + 36] = x38[1];
  p0[6 + 72] = x38[2];
  p0[6 + 108] = x38[3];
  p0[6 + 144] = x38[4];
  p0[6 + 180] = x38[5];
  p0[6 + 216] = x38[6];
  p0[6 + 252] = x38[7];
  const vec2 x39 = a38;
  p0[294 + 0] = x39[0];
  p0[294 + 36] = x39[1];
  const vec8 x40 = a40;
  p0[7 + 0] = x40[0];
  p0[7 + 36] = x40[1];
  p0[7 + 72] = x40[2];
  p0[7 + 108] = x40[3];
  p0[7 + 144] = x40[4];
  p0[7 + 180] = x40[5];
  p0[7 + 216] = x40[6];
  p0[7 + 252] = x40[7];
  const vec2 x41 = a48;
  p0[295 + 0] = x41[0];
  p0[295 + 36] = x41[1];
  const vec8 x42 = a50;
  p0[8 + 0] = x42[0];
  p0[8 + 36] = x42[1];
  p0[8 + 72] = x42[2];
  p0[8 + 108] = x42[3];
  p0[8 + 144] = x42[4];
  p0[8 + 180] = x42[5];
  p0[8 + 216] = x42[6];
  p0[8 + 252] = x42[7];
  const vec2 x43 = a58;
  p0[296 + 0] = x43[0];
  p0[296 + 36] = x43[1];
}
void autotune_pack_weight(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v0 = r % 1; r /= 1;
    for (long v1 = 0; v1 < 3; ++v1) {
      for (long v2 = 0; v2 < 2; ++v2) {
        for (long v3 = 0; v3 < 3; ++v3) {
          for (long v4 = 0; v4 < 8; ++v4) {
            ST8(b3 + 480*v1 + 240*v2 + 80*v3 + 10*v4, ((vec8){b1[3*v1 + 72*v2 + v3 + 9*v4 + 0], b1[3*v1 + 72*v2 + v3 + 9*v4 + 144], b1[3*v1 + 72*v2 + v3 + 9*v4 + 288], b1[3*v1 + 72*v2 + v3 + 9*v4 + 432], b1[3*v1 + 72*v2 + v3 + 9*v4 + 576], b1[3*v1 + 72*v2 + v3 + 9*v4 + 720], b1[3*v1 + 72*v2 + v3 + 9*v4 + 864], b1[3*v1 + 72*v2 + v3 + 9*v4 + 1008]}));
            ST2(b3 + 480*v1 + 240*v2 + 80*v3 + 10*v4 + 8, ((vec2){b1[3*v1 + 72*v2 + v3 + 9*v4 + 1152 + 0], b1[3*v1 + 72*v2 + v3 + 9*v4 + 1152 + 144]}));
          }
        }
      }
    }
  }
}
void autotune_compute(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = (float *)(local + 0);
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v6 = r % 1; r /= 1;
    ST8(b4 + 0, splat8(0.0f));
    for (long v8 = 0; v8 < 6; ++v8) {
      ST8(b4 + 8*v8 + 8, splat8(0.0f));
    }
    ST8(b4 + 56, splat8(0.0f));
    for (long v11 = 0; v11 < 5; ++v11) {
      ST8(b4 + 64*v11 + 64, splat8(0.0f));
    }
    for (long v13 = 0; v13 < 5; ++v13) {
      for (long v14 = 0; v14 < 6; ++v14) {
        ST8(b4 + 64*v13 + 8*v14 + 72, ((vec8){b0[6*v13 + v14 + 0], b0[6*v13 + v14 + 36], b0[6*v13 + v14 + 72], b0[6*v13 + v14 + 108], b0[6*v13 + v14 + 144], b0[6*v13 + v14 + 180], b0[6*v13 + v14 + 216], b0[6*v13 + v14 + 252]}));
      }
    }
    for (long v16 = 0; v16 < 5; ++v16) {
      ST8(b4 + 64*v16 + 120, splat8(0.0f));
    }
    for (long v18 = 0; v18 < 2; ++v18) {
      for (long v19 = 0; v19 < 2; ++v19) {
        tile0(b4 + 128*v18 + 24*v19, b3 + 0, b2 + 12*v18 + 3*v19);
      }
    }
    ST8(b4 + 0, splat8(0.0f));
    for (long v34 = 0; v34 < 6; ++v34) {
      ST8(b4 + 8*v34 + 8, splat8(0.0f));
    }
    ST8(b4 + 56, splat8(0.0f));
    for (long v37 = 0; v37 < 5; ++v37) {
      ST8(b4 + 64*v37 + 64, splat8(0.0f));
    }
    for (long v39 = 0; v39 < 5; ++v39) {
      for (long v40 = 0; v40 < 6; ++v40) {
        ST8(b4 + 64*v39 + 8*v40 + 72, ((vec8){b0[6*v39 + v40 + 288 + 0], b0[6*v39 + v40 + 288 + 36], b0[6*v39 + v40 + 288 + 72], b0[6*v39 + v40 + 288 + 108], b0[6*v39 + v40 + 288 + 144], b0[6*v39 + v40 + 288 + 180], b0[6*v39 + v40 + 288 + 216], b0[6*v39 + v40 + 288 + 252]}));
      }
    }
    for (long v42 = 0; v42 < 5; ++v42) {
      ST8(b4 + 64*v42 + 120, splat8(0.0f));
    }
    for (long v44 = 0; v44 < 2; ++v44) {
      for (long v45 = 0; v45 < 2; ++v45) {
        tile1(b2 + 12*v44 + 3*v45, b4 + 128*v44 + 24*v45, b3 + 240);
      }
    }
    for (long v59 = 0; v59 < 3; ++v59) {
      ST8(b4 + 64*v59, splat8(0.0f));
    }
    for (long v61 = 0; v61 < 3; ++v61) {
      for (long v62 = 0; v62 < 6; ++v62) {
        ST8(b4 + 64*v61 + 8*v62 + 8, ((vec8){b0[6*v61 + v62 + 18 + 0], b0[6*v61 + v62 + 18 + 36], b0[6*v61 + v62 + 18 + 72], b0[6*v61 + v62 + 18 + 108], b0[6*v61 + v62 + 18 + 144], b0[6*v61 + v62 + 18 + 180], b0[6*v61 + v62 + 18 + 216], b0[6*v61 + v62 + 18 + 252]}));
      }
    }
    for (long v64 = 0; v64 < 3; ++v64) {
      ST8(b4 + 64*v64 + 56, splat8(0.0f));
    }
    ST8(b4 + 192, splat8(0.0f));
    for (long v67 = 0; v67 < 6; ++v67) {
      ST8(b4 + 8*v67 + 200, splat8(0.0f));
    }
    ST8(b4 + 248, splat8(0.0f));
    for (long v70 = 0; v70 < 2; ++v70) {
      tile0(b4 + 24*v70, b3 + 0, b2 + 3*v70 + 24);
    }
    for (long v84 = 0; v84 < 3; ++v84) {
      ST8(b4 + 64*v84, splat8(0.0f));
    }
    for (long v86 = 0; v86 < 3; ++v86) {
      for (long v87 = 0; v87 < 6; ++v87) {
        ST8(b4 + 64*v86 + 8*v87 + 8, ((vec8){b0[6*v86 + v87 + 306 + 0], b0[6*v86 + v87 + 306 + 36], b0[6*v86 + v87 + 306 + 72], b0[6*v86 + v87 + 306 + 108], b0[6*v86 + v87 + 306 + 144], b0[6*v86 + v87 + 306 + 180], b0[6*v86 + v87 + 306 + 216], b0[6*v86 + v87 + 306 + 252]}));
      }
    }
    for (long v89 = 0; v89 < 3; ++v89) {
      ST8(b4 + 64*v89 + 56, splat8(0.0f));
    }
    ST8(b4 + 192, splat8(0.0f));
    for (long v92 = 0; v92 < 6; ++v92) {
      ST8(b4 + 8*v92 + 200, splat8(0.0f));
    }
    ST8(b4 + 248, splat8(0.0f));
    for (long v95 = 0; v95 < 2; ++v95) {
      tile1(b2 + 3*v95 + 24, b4 + 24*v95, b3 + 240);
    }
  }
}
