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
