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
LEAF tile0(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3, float *restrict p4, float *restrict p5, float *restrict p6) {
  vec8 a0;
  vec2 a8;
  float a10;
  vec8 a11;
  vec2 a19;
  float a21;
  vec8 a22;
  vec2 a30;
  float a32;
  a0 = splat8(0.0f);
  a8 = splat2(0.0f);
  a10 = 0.0f;
  a11 = splat8(0.0f);
  a19 = splat2(0.0f);
  a21 = 0.0f;
  a22 = splat8(0.0f);
  a30 = splat2(0.0f);
  a32 = 0.0f;
  const float x0 = p0[0];
  const vec8 x1 = LD8(p1 + 0);
  a0 += (x0 * x1);
  const vec2 x2 = LD2(p1 + 8);
  a8 += (x0 * x2);
  const float x3 = p1[10];
  a10 += (x0 * x3);
  const float x4 = p0[4];
  a11 += (x4 * x1);
  a19 += (x4 * x2);
  a21 += (x4 * x3);
  const float x5 = p0[8];
  a22 += (x5 * x1);
  a30 += (x5 * x2);
  a32 += (x5 * x3);
  const float x6 = p0[1];
  const vec8 x7 = LD8(p1 + 11);
  a0 += (x6 * x7);
  const vec2 x8 = LD2(p1 + 19);
  a8 += (x6 * x8);
  const float x9 = p1[21];
  a10 += (x6 * x9);
  const float x10 = p0[5];
  a11 += (x10 * x7);
  a19 += (x10 * x8);
  a21 += (x10 * x9);
  const float x11 = p0[9];
  a22 += (x11 * x7);
  a30 += (x11 * x8);
  a32 += (x11 * x9);
  const float x12 = p0[2];
  const vec8 x13 = LD8(p1 + 22);
  a0 += (x12 * x13);
  const vec2 x14 = LD2(p1 + 30);
  a8 += (x12 * x14);
  const float x15 = p1[32];
  a10 += (x12 * x15);
  const float x16 = p0[6];
  a11 += (x16 * x13);
  a19 += (x16 * x14);
  a21 += (x16 * x15);
  const float x17 = p0[10];
  a22 += (x17 * x13);
  a30 += (x17 * x14);
  a32 += (x17 * x15);
  const float x18 = p0[3];
  const vec8 x19 = LD8(p1 + 33);
  a0 += (x18 * x19);
  const vec2 x20 = LD2(p1 + 41);
  a8 += (x18 * x20);
  const float x21 = p1[43];
  a10 += (x18 * x21);
  const float x22 = p0[7];
  a11 += (x22 * x19);
  a19 += (x22 * x20);
  a21 += (x22 * x21);
  const float x23 = p0[11];
  a22 += (x23 * x19);
  a30 += (x23 * x20);
  a32 += (x23 * x21);
  const vec8 x24 = LD8(p2 + 0);
  const vec8 x25 = LD8(p3 + 0);
  const vec8 x26 = LD8(p4 + 0);
  const vec8 x27 = LD8(p5 + 0);
  ST8(p6 + 0, select8((((a0 * x24) + x25) + x26) < splat8(0.0f), ((((a0 * x24) + x25) + x26) * x27), (((a0 * x24) + x25) + x26)));
  const vec2 x28 = LD2(p2 + 8);
  const vec2 x29 = LD2(p3 + 8);
  const vec2 x30 = LD2(p4 + 8);
  const vec2 x31 = LD2(p5 + 8);
  ST2(p6 + 8, select2((((a8 * x28) + x29) + x30) < splat2(0.0f), ((((a8 * x28) + x29) + x30) * x31), (((a8 * x28) + x29) + x30)));
  const float x32 = p2[10];
  const float x33 = p3[10];
  const float x34 = p4[10];
  const float x35 = p5[10];
  p6[10] = select1((((a10 * x32) + x33) + x34) < 0.0f, ((((a10 * x32) + x33) + x34) * x35), (((a10 * x32) + x33) + x34));
  const vec8 x36 = LD8(p4 + 11);
  ST8(p6 + 11, select8((((a11 * x24) + x25) + x36) < splat8(0.0f), ((((a11 * x24) + x25) + x36) * x27), (((a11 * x24) + x25) + x36)));
  const vec2 x37 = LD2(p4 + 19);
  ST2(p6 + 19, select2((((a19 * x28) + x29) + x37) < splat2(0.0f), ((((a19 * x28) + x29) + x37) * x31), (((a19 * x28) + x29) + x37)));
  const float x38 = p4[21];
  p6[21] = select1((((a21 * x32) + x33) + x38) < 0.0f, ((((a21 * x32) + x33) + x38) * x35), (((a21 * x32) + x33) + x38));
  const vec8 x39 = LD8(p4 + 22);
  ST8(p6 + 22, select8((((a22 * x24) + x25) + x39) < splat8(0.0f), ((((a22 * x24) + x25) + x39) * x27), (((a22 * x24) + x25) + x39)));
  const vec2 x40 = LD2(p4 + 30);
  ST2(p6 + 30, select2((((a30 * x28) + x29) + x40) < splat2(0.0f), ((((a30 * x28) + x29) + x40) * x31), (((a30 * x28) + x29) + x40)));
  const float x41 = p4[32];
  p6[32] = select1((((a32 * x32) + x33) + x41) < 0.0f, ((((a32 * x32) + x33) + x41) * x35), (((a32 * x32) + x33) + x41));
}
void autotune_pack_weight(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = buffers[4];
  float *const b5 = buffers[5];
  float *const b6 = buffers[6];
  float *const b7 = buffers[7];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v0 = r % 1; r /= 1;
    for (long v1 = 0; v1 < 4; ++v1) {
      ST8(b7 + 11*v1, ((vec8){b1[v1 + 0], b1[v1 + 4], b1[v1 + 8], b1[v1 + 12], b1[v1 + 16], b1[v1 + 20], b1[v1 + 24], b1[v1 + 28]}));
      ST2(b7 + 11*v1 + 8, ((vec2){b1[v1 + 32 + 0], b1[v1 + 32 + 4]}));
      b7[11*v1 + 10] = b1[v1 + 40];
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
  float *const b6 = buffers[6];
  float *const b7 = buffers[7];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v3 = r % 1; r /= 1;
    tile0(b0 + 0, b7 + 0, b2 + 0, b3 + 0, b4 + 0, b5 + 0, b6 + 0);
  }
}
