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
static inline unsigned bits1(float x) { union { float f; unsigned u; } v; v.f = x; return v.u; }
static inline float of_bits1(unsigned x) { union { float f; unsigned u; } v; v.u = x; return v.f; }
static inline float min1(float a, float b) { return b < a ? b : a; }
static inline float maximum1(float a, float b) { return b == b ? max1(a, b) : b; }
static inline float minimum1(float a, float b) { return b == b ? min1(a, b) : b; }
static inline float sqrt1(float a) { return __builtin_sqrtf(a); }
static inline float floor1(float a) { return __builtin_floorf(a); }
static inline float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float select1(int holds, float a, float b) { return holds ? a : b; }
static inline float f_scale1(float x0, float x1) {
  const float s4 = fma1(x1, 0.5f, 12582912.0f);
  const float s5 = (s4 - 12582912.0f);
  const float s6 = (x1 - s5);
  const float s7 = (s6 + 12582912.0f);
  const float s8 = of_bits1(bits1(s4) << 23);
  const float s10 = of_bits1(bits1(s8) + bits1(1.0f));
  const float s11 = of_bits1(bits1(s7) << 23);
  const float s12 = of_bits1(bits1(s11) + bits1(1.0f));
  const float s13 = (x0 * s10);
  const float s14 = (s13 * s12);
  return s14;
}
typedef unsigned w2 __attribute__((vector_size(8)));
#define bits2(x) ((w2)(x))
#define of_bits2(x) ((vec2)(x))
static inline vec2 select2(i2 m, vec2 a, vec2 b) { return (vec2)(((i2)a & m) | ((i2)b & ~m)); }
static inline vec2 min2(vec2 a, vec2 b) { return select2(b < a, b, a); }
static inline vec2 maximum2(vec2 a, vec2 b) { return select2(b == b, max2(a, b), b); }
static inline vec2 minimum2(vec2 a, vec2 b) { return select2(b == b, min2(a, b), b); }
static inline vec2 sqrt2(vec2 a) { vec2 r; for (int i = 0; i < 2; ++i) r[i] = __builtin_sqrtf(a[i]); return r; }
static inline vec2 floor2(vec2 a) { vec2 r; for (int i = 0; i < 2; ++i) r[i] = __builtin_floorf(a[i]); return r; }
static inline vec2 fma2(vec2 a, vec2 b, vec2 c) {
  vec2 r; for (int i = 0; i < 2; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r;
}
static inline vec2 f_scale2(vec2 x0, vec2 x1) {
  const vec2 s4 = fma2(x1, splat2(0.5f), splat2(12582912.0f));
  const vec2 s5 = (s4 - splat2(12582912.0f));
  const vec2 s6 = (x1 - s5);
  const vec2 s7 = (s6 + splat2(12582912.0f));
  const vec2 s8 = of_bits2(bits2(s4) << 23);
  const vec2 s10 = of_bits2(bits2(s8) + bits2(splat2(1.0f)));
  const vec2 s11 = of_bits2(bits2(s7) << 23);
  const vec2 s12 = of_bits2(bits2(s11) + bits2(splat2(1.0f)));
  const vec2 s13 = (x0 * s10);
  const vec2 s14 = (s13 * s12);
  return s14;
}
typedef unsigned w4 __attribute__((vector_size(16)));
#define bits4(x) ((w4)(x))
#define of_bits4(x) ((vec4)(x))
static inline vec4 select4(i4 m, vec4 a, vec4 b) { return (vec4)(((i4)a & m) | ((i4)b & ~m)); }
static inline vec4 min4(vec4 a, vec4 b) { return select4(b < a, b, a); }
static inline vec4 maximum4(vec4 a, vec4 b) { return select4(b == b, max4(a, b), b); }
static inline vec4 minimum4(vec4 a, vec4 b) { return select4(b == b, min4(a, b), b); }
static inline vec4 sqrt4(vec4 a) { vec4 r; for (int i = 0; i < 4; ++i) r[i] = __builtin_sqrtf(a[i]); return r; }
static inline vec4 floor4(vec4 a) { vec4 r; for (int i = 0; i < 4; ++i) r[i] = __builtin_floorf(a[i]); return r; }
static inline vec4 fma4(vec4 a, vec4 b, vec4 c) {
#ifdef __FMA__
  return __builtin_ia32_vfmaddps(a, b, c);
#endif
  vec4 r; for (int i = 0; i < 4; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r;
}
static inline vec4 f_scale4(vec4 x0, vec4 x1) {
  const vec4 s4 = fma4(x1, splat4(0.5f), splat4(12582912.0f));
  const vec4 s5 = (s4 - splat4(12582912.0f));
  const vec4 s6 = (x1 - s5);
  const vec4 s7 = (s6 + splat4(12582912.0f));
  const vec4 s8 = of_bits4(bits4(s4) << 23);
  const vec4 s10 = of_bits4(bits4(s8) + bits4(splat4(1.0f)));
  const vec4 s11 = of_bits4(bits4(s7) << 23);
  const vec4 s12 = of_bits4(bits4(s11) + bits4(splat4(1.0f)));
  const vec4 s13 = (x0 * s10);
  const vec4 s14 = (s13 * s12);
  return s14;
}
typedef unsigned w8 __attribute__((vector_size(32)));
#define bits8(x) ((w8)(x))
#define of_bits8(x) ((vec8)(x))
static inline vec8 select8(i8 m, vec8 a, vec8 b) { return (vec8)(((i8)a & m) | ((i8)b & ~m)); }
static inline vec8 min8(vec8 a, vec8 b) { return select8(b < a, b, a); }
static inline vec8 maximum8(vec8 a, vec8 b) { return select8(b == b, max8(a, b), b); }
static inline vec8 minimum8(vec8 a, vec8 b) { return select8(b == b, min8(a, b), b); }
static inline vec8 sqrt8(vec8 a) { vec8 r; for (int i = 0; i < 8; ++i) r[i] = __builtin_sqrtf(a[i]); return r; }
static inline vec8 floor8(vec8 a) { vec8 r; for (int i = 0; i < 8; ++i) r[i] = __builtin_floorf(a[i]); return r; }
static inline vec8 fma8(vec8 a, vec8 b, vec8 c) {
#ifdef __FMA__
  return __builtin_ia32_vfmaddps256(a, b, c);
#endif
  vec8 r; for (int i = 0; i < 8; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r;
}
static inline vec8 f_scale8(vec8 x0, vec8 x1) {
  const vec8 s4 = fma8(x1, splat8(0.5f), splat8(12582912.0f));
  const vec8 s5 = (s4 - splat8(12582912.0f));
  const vec8 s6 = (x1 - s5);
  const vec8 s7 = (s6 + splat8(12582912.0f));
  const vec8 s8 = of_bits8(bits8(s4) << 23);
  const vec8 s10 = of_bits8(bits8(s8) + bits8(splat8(1.0f)));
  const vec8 s11 = of_bits8(bits8(s7) << 23);
  const vec8 s12 = of_bits8(bits8(s11) + bits8(splat8(1.0f)));
  const vec8 s13 = (x0 * s10);
  const vec8 s14 = (s13 * s12);
  return s14;
}
LEAF tile0(float *restrict p0, float *restrict p1) {
  vec8 a0;
  a0 = splat8((-__builtin_inff()));
  const vec8 x0 = LD8(p0 + 0);
  a0 = maximum8(x0, a0);
  const vec8 x1 = LD8(p0 + 15);
  a0 = maximum8(x1, a0);
  ST8(p1 + 0, a0);
}
LEAF tile1(float *restrict p0, float *restrict p1) {
  vec4 a0;
  vec2 a4;
  float a6;
  a0 = splat4((-__builtin_inff()));
  a4 = splat2((-__builtin_inff()));
  a6 = (-__builtin_inff());
  const vec4 x0 = LD4(p0 + 0);
  a0 = maximum4(x0, a0);
  const vec2 x1 = LD2(p0 + 4);
  a4 = maximum2(x1, a4);
  const float x2 = p0[6];
  a6 = maximum1(x2, a6);
  const vec4 x3 = LD4(p0 + 15);
  a0 = maximum4(x3, a0);
  const vec2 x4 = LD2(p0 + 19);
  a4 = maximum2(x4, a4);
  const float x5 = p0[21];
  a6 = maximum1(x5, a6);
  ST4(p1 + 0, a0);
  ST2(p1 + 4, a4);
  p1[6] = a6;
}
LEAF tile2(float *restrict p0, float *restrict p1) {
  float a0;
  a0 = (-__builtin_inff());
  const float x0 = p0[0];
  a0 = maximum1(x0, a0);
  const float x1 = p0[1];
  a0 = maximum1(x1, a0);
  p1[0] = a0;
}
LEAF tile3(float *restrict p0, float *restrict p1) {
  vec4 a0;
  vec2 a4;
  a0 = splat4((-__builtin_inff()));
  a4 = splat2((-__builtin_inff()));
  const vec4 x0 = ((vec4){p0[0 + 0], p0[0 + 2], p0[0 + 4], p0[0 + 6]});
  a0 = maximum4(x0, a0);
  const vec2 x1 = ((vec2){p0[8 + 0], p0[8 + 2]});
  a4 = maximum2(x1, a4);
  const vec4 x2 = ((vec4){p0[1 + 0], p0[1 + 2], p0[1 + 4], p0[1 + 6]});
  a0 = maximum4(x2, a0);
  const vec2 x3 = ((vec2){p0[9 + 0], p0[9 + 2]});
  a4 = maximum2(x3, a4);
  const vec4 x4 = ((vec4){p0[2 + 0], p0[2 + 2], p0[2 + 4], p0[2 + 6]});
  a0 = maximum4(x4, a0);
  const vec2 x5 = ((vec2){p0[10 + 0], p0[10 + 2]});
  a4 = maximum2(x5, a4);
  ST4(p1 + 0, a0);
  ST2(p1 + 4, a4);
}
LEAF tile4(float *restrict p0, float *restrict p1) {
  vec8 a0;
  vec8 a8;
  a0 = splat8((-__builtin_inff()));
  a8 = splat8((-__builtin_inff()));
  const vec8 x0 = LD8(p0 + 0);
  a0 = maximum8(x0, a0);
  const vec8 x1 = LD8(p0 + 30);
  a8 = maximum8(x1, a8);
  const vec8 x2 = LD8(p0 + 15);
  a0 = maximum8(x2, a0);
  const vec8 x3 = LD8(p0 + 45);
  a8 = maximum8(x3, a8);
  a0 = maximum8(x1, a0);
  const vec8 x4 = LD8(p0 + 60);
  a8 = maximum8(x4, a8);
  ST8(p1 + 0, a0);
  ST8(p1 + 15, a8);
}
LEAF tile5(float *restrict p0, float *restrict p1) {
  vec4 a0;
  vec2 a4;
  float a6;
  vec4 a7;
  vec2 a11;
  float a13;
  a0 = splat4((-__builtin_inff()));
  a4 = splat2((-__builtin_inff()));
  a6 = (-__builtin_inff());
  a7 = splat4((-__builtin_inff()));
  a11 = splat2((-__builtin_inff()));
  a13 = (-__builtin_inff());
  const vec4 x0 = LD4(p0 + 0);
  a0 = maximum4(x0, a0);
  const vec2 x1 = LD2(p0 + 4);
  a4 = maximum2(x1, a4);
  const float x2 = p0[6];
  a6 = maximum1(x2, a6);
  const vec4 x3 = LD4(p0 + 30);
  a7 = maximum4(x3, a7);
  const vec2 x4 = LD2(p0 + 34);
  a11 = maximum2(x4, a11);
  const float x5 = p0[36];
  a13 = maximum1(x5, a13);
  const vec4 x6 = LD4(p0 + 15);
  a0 = maximum4(x6, a0);
  const vec2 x7 = LD2(p0 + 19);
  a4 = maximum2(x7, a4);
  const float x8 = p0[21];
  a6 = maximum1(x8, a6);
  const vec4 x9 = LD4(p0 + 45);
  a7 = maximum4(x9, a7);
  const vec2 x10 = LD2(p0 + 49);
  a11 = maximum2(x10, a11);
  const float x11 = p0[51];
  a13 = maximum1(x11, a13);
  a0 = maximum4(x3, a0);
  a4 = maximum2(x4, a4);
  a6 = maximum1(x5, a6);
  const vec4 x12 = LD4(p0 + 60);
  a7 = maximum4(x12, a7);
  const vec2 x13 = LD2(p0 + 64);
  a11 = maximum2(x13, a11);
  const float x14 = p0[66];
  a13 = maximum1(x14, a13);
  ST4(p1 + 0, a0);
  ST2(p1 + 4, a4);
  p1[6] = a6;
  ST4(p1 + 15, a7);
  ST2(p1 + 19, a11);
  p1[21] = a13;
}
LEAF tile6(float *restrict p0, float *restrict p1) {
  float a0;
  float a1;
  a0 = (-__builtin_inff());
  a1 = (-__builtin_inff());
  const float x0 = p0[0];
  a0 = maximum1(x0, a0);
  const float x1 = p0[15];
  a1 = maximum1(x1, a1);
  const float x2 = p0[1];
  a0 = maximum1(x2, a0);
  const float x3 = p0[16];
  a1 = maximum1(x3, a1);
  p1[0] = a0;
  p1[8] = a1;
}
LEAF tile7(float *restrict p0, float *restrict p1) {
  vec4 a0;
  vec2 a4;
  vec4 a6;
  vec2 a10;
  a0 = splat4((-__builtin_inff()));
  a4 = splat2((-__builtin_inff()));
  a6 = splat4((-__builtin_inff()));
  a10 = splat2((-__builtin_inff()));
  const vec4 x0 = ((vec4){p0[0 + 0], p0[0 + 2], p0[0 + 4], p0[0 + 6]});
  a0 = maximum4(x0, a0);
  const vec2 x1 = ((vec2){p0[8 + 0], p0[8 + 2]});
  a4 = maximum2(x1, a4);
  const vec4 x2 = ((vec4){p0[15 + 0], p0[15 + 2], p0[15 + 4], p0[15 + 6]});
  a6 = maximum4(x2, a6);
  const vec2 x3 = ((vec2){p0[23 + 0], p0[23 + 2]});
  a10 = maximum2(x3, a10);
  const vec4 x4 = ((vec4){p0[1 + 0], p0[1 + 2], p0[1 + 4], p0[1 + 6]});
  a0 = maximum4(x4, a0);
  const vec2 x5 = ((vec2){p0[9 + 0], p0[9 + 2]});
  a4 = maximum2(x5, a4);
  const vec4 x6 = ((vec4){p0[16 + 0], p0[16 + 2], p0[16 + 4], p0[16 + 6]});
  a6 = maximum4(x6, a6);
  const vec2 x7 = ((vec2){p0[24 + 0], p0[24 + 2]});
  a10 = maximum2(x7, a10);
  const vec4 x8 = ((vec4){p0[2 + 0], p0[2 + 2], p0[2 + 4], p0[2 + 6]});
  a0 = maximum4(x8, a0);
  const vec2 x9 = ((vec2){p0[10 + 0], p0[10 + 2]});
  a4 = maximum2(x9, a4);
  const vec4 x10 = ((vec4){p0[17 + 0], p0[17 + 2], p0[17 + 4], p0[17 + 6]});
  a6 = maximum4(x10, a6);
  const vec2 x11 = ((vec2){p0[25 + 0], p0[25 + 2]});
  a10 = maximum2(x11, a10);
  ST4(p1 + 0, a0);
  ST2(p1 + 4, a4);
  ST4(p1 + 8, a6);
  ST2(p1 + 12, a10);
}
void autotune_main(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b7 = (float *)(local + 0);
  float *const b2 = (float *)(local + 128);
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 2 ? end : 2); ++t) {
    long r = t - 0;
    const long v1 = r % 2; r /= 2;
    tile0(b0 + 105*v1, b2 + 0);
    tile1(b0 + 105*v1 + 8, b2 + 8);
    tile2(b2 + 0, b1 + 32*v1);
    tile3(b2 + 1, b1 + 32*v1 + 1);
    tile2(b2 + 13, b1 + 32*v1 + 7);
    tile4(b0 + 105*v1 + 15, b7 + 0);
    tile5(b0 + 105*v1 + 23, b7 + 8);
    tile6(b7 + 0, b1 + 32*v1 + 8);
    tile7(b7 + 1, b1 + 32*v1 + 9);
    tile6(b7 + 13, b1 + 32*v1 + 15);
    tile0(b0 + 105*v1 + 75, b2 + 0);
    tile1(b0 + 105*v1 + 83, b2 + 8);
    tile2(b2 + 0, b1 + 32*v1 + 24);
    tile3(b2 + 1, b1 + 32*v1 + 25);
    tile2(b2 + 13, b1 + 32*v1 + 31);
  }
}
