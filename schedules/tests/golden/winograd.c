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
  const vec8 x0 = ((vec8){p0[0 + 0], p0[0 + 144], p0[0 + 288], p0[0 + 432], p0[0 + 576], p0[0 + 720], p0[0 + 864], p0[0 + 1008]});
  ST8(p1 + 0, (-1.0f * x0));
  const vec8 x1 = ((vec8){p0[3 + 0], p0[3 + 144], p0[3 + 288], p0[3 + 432], p0[3 + 576], p0[3 + 720], p0[3 + 864], p0[3 + 1008]});
  const vec8 x2 = ((vec8){p0[6 + 0], p0[6 + 144], p0[6 + 288], p0[6 + 432], p0[6 + 576], p0[6 + 720], p0[6 + 864], p0[6 + 1008]});
  ST8(p1 + 32, (((0.5f * x0) + (0.5f * x1)) + (0.5f * x2)));
  ST8(p1 + 64, (((0.5f * x0) + (-0.5f * x1)) + (0.5f * x2)));
  ST8(p1 + 96, x2);
  const vec8 x3 = ((vec8){p0[1 + 0], p0[1 + 144], p0[1 + 288], p0[1 + 432], p0[1 + 576], p0[1 + 720], p0[1 + 864], p0[1 + 1008]});
  ST8(p1 + 8, (-1.0f * x3));
  const vec8 x4 = ((vec8){p0[4 + 0], p0[4 + 144], p0[4 + 288], p0[4 + 432], p0[4 + 576], p0[4 + 720], p0[4 + 864], p0[4 + 1008]});
  const vec8 x5 = ((vec8){p0[7 + 0], p0[7 + 144], p0[7 + 288], p0[7 + 432], p0[7 + 576], p0[7 + 720], p0[7 + 864], p0[7 + 1008]});
  ST8(p1 + 40, (((0.5f * x3) + (0.5f * x4)) + (0.5f * x5)));
  ST8(p1 + 72, (((0.5f * x3) + (-0.5f * x4)) + (0.5f * x5)));
  ST8(p1 + 104, x5);
  const vec8 x6 = ((vec8){p0[2 + 0], p0[2 + 144], p0[2 + 288], p0[2 + 432], p0[2 + 576], p0[2 + 720], p0[2 + 864], p0[2 + 1008]});
  ST8(p1 + 16, (-1.0f * x6));
  const vec8 x7 = ((vec8){p0[5 + 0], p0[5 + 144], p0[5 + 288], p0[5 + 432], p0[5 + 576], p0[5 + 720], p0[5 + 864], p0[5 + 1008]});
  const vec8 x8 = ((vec8){p0[8 + 0], p0[8 + 144], p0[8 + 288], p0[8 + 432], p0[8 + 576], p0[8 + 720], p0[8 + 864], p0[8 + 1008]});
  ST8(p1 + 48, (((0.5f * x6) + (0.5f * x7)) + (0.5f * x8)));
  ST8(p1 + 80, (((0.5f * x6) + (-0.5f * x7)) + (0.5f * x8)));
  ST8(p1 + 112, x8);
  ST8(p2 + 0, (-1.0f * LD8(p1 + 0)));
  ST8(p2 + 512, (((0.5f * LD8(p1 + 0)) + (0.5f * LD8(p1 + 8))) + (0.5f * LD8(p1 + 16))));
  ST8(p2 + 1024, (((0.5f * LD8(p1 + 0)) + (-0.5f * LD8(p1 + 8))) + (0.5f * LD8(p1 + 16))));
  ST8(p2 + 1536, LD8(p1 + 16));
  ST8(p2 + 2048, (-1.0f * LD8(p1 + 32)));
  ST8(p2 + 2560, (((0.5f * LD8(p1 + 32)) + (0.5f * LD8(p1 + 40))) + (0.5f * LD8(p1 + 48))));
  ST8(p2 + 3072, (((0.5f * LD8(p1 + 32)) + (-0.5f * LD8(p1 + 40))) + (0.5f * LD8(p1 + 48))));
  ST8(p2 + 3584, LD8(p1 + 48));
  ST8(p2 + 4096, (-1.0f * LD8(p1 + 64)));
  ST8(p2 + 4608, (((0.5f * LD8(p1 + 64)) + (0.5f * LD8(p1 + 72))) + (0.5f * LD8(p1 + 80))));
  ST8(p2 + 5120, (((0.5f * LD8(p1 + 64)) + (-0.5f * LD8(p1 + 72))) + (0.5f * LD8(p1 + 80))));
  ST8(p2 + 5632, LD8(p1 + 80));
  ST8(p2 + 6144, (-1.0f * LD8(p1 + 96)));
  ST8(p2 + 6656, (((0.5f * LD8(p1 + 96)) + (0.5f * LD8(p1 + 104))) + (0.5f * LD8(p1 + 112))));
  ST8(p2 + 7168, (((0.5f * LD8(p1 + 96)) + (-0.5f * LD8(p1 + 104))) + (0.5f * LD8(p1 + 112))));
  ST8(p2 + 7680, LD8(p1 + 112));
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  ST8(p1 + 0, x0);
  const vec8 x1 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x1));
  ST8(p1 + 64, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + 40);
  ST8(p1 + 96, (x2 + (-1.0f * x1)));
  const vec8 x3 = LD8(p0 + 8);
  ST8(p1 + 8, x3);
  const vec8 x4 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x4));
  ST8(p1 + 72, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + 48);
  ST8(p1 + 104, (x5 + (-1.0f * x4)));
  const vec8 x6 = LD8(p0 + 16);
  ST8(p1 + 16, x6);
  const vec8 x7 = LD8(p0 + -24);
  ST8(p1 + 48, (x6 + x7));
  ST8(p1 + 80, (x6 + (-1.0f * x7)));
  const vec8 x8 = LD8(p0 + 56);
  ST8(p1 + 112, (x8 + (-1.0f * x7)));
  ST8(p2 + 0, LD8(p1 + 8));
  ST8(p2 + 48, (LD8(p1 + 8) + LD8(p1 + 0)));
  ST8(p2 + 96, (LD8(p1 + 8) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 144, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 192, LD8(p1 + 40));
  ST8(p2 + 240, (LD8(p1 + 40) + LD8(p1 + 32)));
  ST8(p2 + 288, (LD8(p1 + 40) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 336, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 384, LD8(p1 + 72));
  ST8(p2 + 432, (LD8(p1 + 72) + LD8(p1 + 64)));
  ST8(p2 + 480, (LD8(p1 + 72) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 528, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 576, LD8(p1 + 104));
  ST8(p2 + 624, (LD8(p1 + 104) + LD8(p1 + 96)));
  ST8(p2 + 672, (LD8(p1 + 104) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 720, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
}
LEAF tile2(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  ST8(p1 + 0, x0);
  const vec8 x1 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x1));
  ST8(p1 + 64, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + 40);
  ST8(p1 + 96, (x2 + (-1.0f * x1)));
  const vec8 x3 = LD8(p0 + 8);
  ST8(p1 + 8, x3);
  const vec8 x4 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x4));
  ST8(p1 + 72, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + 48);
  ST8(p1 + 104, (x5 + (-1.0f * x4)));
  const vec8 x6 = LD8(p0 + 16);
  ST8(p1 + 16, x6);
  const vec8 x7 = LD8(p0 + -24);
  ST8(p1 + 48, (x6 + x7));
  ST8(p1 + 80, (x6 + (-1.0f * x7)));
  const vec8 x8 = LD8(p0 + 56);
  ST8(p1 + 112, (x8 + (-1.0f * x7)));
  const vec8 x9 = LD8(p0 + 24);
  ST8(p1 + 24, x9);
  const vec8 x10 = LD8(p0 + -16);
  ST8(p1 + 56, (x9 + x10));
  ST8(p1 + 88, (x9 + (-1.0f * x10)));
  const vec8 x11 = LD8(p0 + 64);
  ST8(p1 + 120, (x11 + (-1.0f * x10)));
  ST8(p2 + 0, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 48, (LD8(p1 + 16) + LD8(p1 + 8)));
  ST8(p2 + 96, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 144, (LD8(p1 + 24) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 192, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 240, (LD8(p1 + 48) + LD8(p1 + 40)));
  ST8(p2 + 288, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 336, (LD8(p1 + 56) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 384, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 432, (LD8(p1 + 80) + LD8(p1 + 72)));
  ST8(p2 + 480, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 528, (LD8(p1 + 88) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 576, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 624, (LD8(p1 + 112) + LD8(p1 + 104)));
  ST8(p2 + 672, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 104))));
  ST8(p2 + 720, (LD8(p1 + 120) + (-1.0f * LD8(p1 + 104))));
}
LEAF tile3(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  ST8(p1 + 0, x0);
  const vec8 x1 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x1));
  ST8(p1 + 64, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + 40);
  ST8(p1 + 96, (x2 + (-1.0f * x1)));
  const vec8 x3 = LD8(p0 + 8);
  ST8(p1 + 8, x3);
  const vec8 x4 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x4));
  ST8(p1 + 72, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + 48);
  ST8(p1 + 104, (x5 + (-1.0f * x4)));
  ST8(p2 + 0, (-1.0f * LD8(p1 + 0)));
  ST8(p2 + 48, LD8(p1 + 8));
  ST8(p2 + 96, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 144, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 192, (-1.0f * LD8(p1 + 32)));
  ST8(p2 + 240, LD8(p1 + 40));
  ST8(p2 + 288, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 336, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 384, (-1.0f * LD8(p1 + 64)));
  ST8(p2 + 432, LD8(p1 + 72));
  ST8(p2 + 480, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 528, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 576, (-1.0f * LD8(p1 + 96)));
  ST8(p2 + 624, LD8(p1 + 104));
  ST8(p2 + 672, (-1.0f * LD8(p1 + 104)));
  ST8(p2 + 720, (-1.0f * LD8(p1 + 104)));
}
LEAF tile4(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  vec8 a16;
  vec8 a24;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  for (long i3 = 0; i3 < 2; ++i3) {
    for (long i4 = 0; i4 < 4; ++i4) {
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i3 + 32*i4) + 4096), 0, 2);
      const float x0 = p1[24*i3 + 2*i4];
      const vec8 x1 = LD8(p0 + 128*i3 + 32*i4);
      a0 += (x0 * x1);
      const vec8 x2 = LD8(p0 + 128*i3 + 32*i4 + 8);
      a8 += (x0 * x2);
      const float x3 = p1[24*i3 + 2*i4 + 8];
      a16 += (x3 * x1);
      a24 += (x3 * x2);
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i3 + 32*i4 + 16) + 4096), 0, 2);
      const float x4 = p1[24*i3 + 2*i4 + 1];
      const vec8 x5 = LD8(p0 + 128*i3 + 32*i4 + 16);
      a0 += (x4 * x5);
      const vec8 x6 = LD8(p0 + 128*i3 + 32*i4 + 24);
      a8 += (x4 * x6);
      const float x7 = p1[24*i3 + 2*i4 + 9];
      a16 += (x7 * x5);
      a24 += (x7 * x6);
    }
  }
  ST8(p2 + 0, a0);
  ST8(p2 + 408, a8);
  ST8(p2 + 136, a16);
  ST8(p2 + 544, a24);
}
LEAF tile5(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  for (long i2 = 0; i2 < 2; ++i2) {
    for (long i3 = 0; i3 < 4; ++i3) {
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i2 + 32*i3) + 4096), 0, 2);
      const float x0 = p1[24*i2 + 2*i3];
      const vec8 x1 = LD8(p0 + 128*i2 + 32*i3);
      a0 += (x0 * x1);
      const vec8 x2 = LD8(p0 + 128*i2 + 32*i3 + 8);
      a8 += (x0 * x2);
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i2 + 32*i3 + 16) + 4096), 0, 2);
      const float x3 = p1[24*i2 + 2*i3 + 1];
      const vec8 x4 = LD8(p0 + 128*i2 + 32*i3 + 16);
      a0 += (x3 * x4);
      const vec8 x5 = LD8(p0 + 128*i2 + 32*i3 + 24);
      a8 += (x3 * x5);
    }
  }
  ST8(p2 + 0, a0);
  ST8(p2 + 408, a8);
}
LEAF tile6(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  for (long i2 = 0; i2 < 2; ++i2) {
    for (long i3 = 0; i3 < 4; ++i3) {
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i2 + 32*i3) + 4096), 0, 2);
      const float x0 = p1[24*i2 + 2*i3];
      const vec8 x1 = LD8(p0 + 128*i2 + 32*i3);
      a0 += (x0 * x1);
      const float x2 = p1[24*i2 + 2*i3 + 8];
      a8 += (x2 * x1);
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i2 + 32*i3 + 16) + 4096), 0, 2);
      const float x3 = p1[24*i2 + 2*i3 + 1];
      const vec8 x4 = LD8(p0 + 128*i2 + 32*i3 + 16);
      a0 += (x3 * x4);
      const float x5 = p1[24*i2 + 2*i3 + 9];
      a8 += (x5 * x4);
    }
  }
  ST8(p2 + 0, a0);
  ST8(p2 + 136, a8);
}
LEAF tile7(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  a0 = splat8(0.0f);
  for (long i1 = 0; i1 < 2; ++i1) {
    for (long i2 = 0; i2 < 4; ++i2) {
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i1 + 32*i2) + 4096), 0, 2);
      const float x0 = p1[24*i1 + 2*i2];
      const vec8 x1 = LD8(p0 + 128*i1 + 32*i2);
      a0 += (x0 * x1);
      __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 128*i1 + 32*i2 + 16) + 4096), 0, 2);
      const float x2 = p1[24*i1 + 2*i2 + 1];
      const vec8 x3 = LD8(p0 + 128*i1 + 32*i2 + 16);
      a0 += (x2 * x3);
    }
  }
  ST8(p2 + 0, a0);
}
LEAF tile8(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec8 a8;
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + 32);
  a0 = (x0 + x1);
  a8 = (x0 + (-1.0f * x1));
  const vec8 x2 = LD8(p0 + -32);
  ST8(p1 + 0, (x2 + a0));
  const vec8 x3 = LD8(p0 + 64);
  ST8(p1 + 32, (a8 + x3));
  const vec8 x4 = LD8(p0 + 8);
  const vec8 x5 = LD8(p0 + 40);
  a0 = (x4 + x5);
  a8 = (x4 + (-1.0f * x5));
  const vec8 x6 = LD8(p0 + -24);
  ST8(p1 + 8, (x6 + a0));
  const vec8 x7 = LD8(p0 + 72);
  ST8(p1 + 40, (a8 + x7));
  const vec8 x8 = LD8(p0 + 16);
  const vec8 x9 = LD8(p0 + 48);
  a0 = (x8 + x9);
  a8 = (x8 + (-1.0f * x9));
  const vec8 x10 = LD8(p0 + -16);
  ST8(p1 + 16, (x10 + a0));
  const vec8 x11 = LD8(p0 + 80);
  ST8(p1 + 48, (a8 + x11));
  const vec8 x12 = LD8(p0 + 24);
  const vec8 x13 = LD8(p0 + 56);
  a0 = (x12 + x13);
  a8 = (x12 + (-1.0f * x13));
  const vec8 x14 = LD8(p0 + -8);
  ST8(p1 + 24, (x14 + a0));
  const vec8 x15 = LD8(p0 + 88);
  ST8(p1 + 56, (a8 + x15));
  a0 = (LD8(p1 + 8) + LD8(p1 + 16));
  a8 = (LD8(p1 + 8) + (-1.0f * LD8(p1 + 16)));
  const vec8 x16 = LD8(p2 + 0);
  ST8(p3 + 0, max8(((LD8(p1 + 0) + a0) + x16), splat8(0.0f)));
  ST8(p3 + 8, max8(((a8 + LD8(p1 + 24)) + x16), splat8(0.0f)));
  a0 = (LD8(p1 + 40) + LD8(p1 + 48));
  a8 = (LD8(p1 + 40) + (-1.0f * LD8(p1 + 48)));
  ST8(p3 + 40, max8(((LD8(p1 + 32) + a0) + x16), splat8(0.0f)));
  ST8(p3 + 48, max8(((a8 + LD8(p1 + 56)) + x16), splat8(0.0f)));
}
LEAF tile9(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec8 a8;
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + 32);
  a0 = (x0 + x1);
  a8 = (x0 + (-1.0f * x1));
  const vec8 x2 = LD8(p0 + -32);
  ST8(p1 + 0, (x2 + a0));
  const vec8 x3 = LD8(p0 + 64);
  ST8(p1 + 32, (a8 + x3));
  const vec8 x4 = LD8(p0 + 8);
  const vec8 x5 = LD8(p0 + 40);
  a0 = (x4 + x5);
  a8 = (x4 + (-1.0f * x5));
  const vec8 x6 = LD8(p0 + -24);
  ST8(p1 + 8, (x6 + a0));
  const vec8 x7 = LD8(p0 + 72);
  ST8(p1 + 40, (a8 + x7));
  const vec8 x8 = LD8(p0 + 16);
  const vec8 x9 = LD8(p0 + 48);
  a0 = (x8 + x9);
  a8 = (x8 + (-1.0f * x9));
  const vec8 x10 = LD8(p0 + -16);
  ST8(p1 + 16, (x10 + a0));
  const vec8 x11 = LD8(p0 + 80);
  ST8(p1 + 48, (a8 + x11));
  const vec8 x12 = LD8(p0 + 24);
  const vec8 x13 = LD8(p0 + 56);
  a0 = (x12 + x13);
  a8 = (x12 + (-1.0f * x13));
  const vec8 x14 = LD8(p0 + -8);
  ST8(p1 + 24, (x14 + a0));
  const vec8 x15 = LD8(p0 + 88);
  ST8(p1 + 56, (a8 + x15));
  a0 = (LD8(p1 + 8) + LD8(p1 + 16));
  const vec8 x16 = LD8(p2 + 0);
  ST8(p3 + 0, max8(((LD8(p1 + 0) + a0) + x16), splat8(0.0f)));
  a0 = (LD8(p1 + 40) + LD8(p1 + 48));
  ST8(p3 + 40, max8(((LD8(p1 + 32) + a0) + x16), splat8(0.0f)));
}
LEAF tile10(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  const vec8 x3 = LD8(p0 + 40);
  ST8(p1 + 96, (x3 + (-1.0f * x2)));
  const vec8 x4 = LD8(p0 + 8);
  const vec8 x5 = LD8(p0 + -72);
  ST8(p1 + 8, (x4 + (-1.0f * x5)));
  const vec8 x6 = LD8(p0 + -32);
  ST8(p1 + 40, (x4 + x6));
  ST8(p1 + 72, (x4 + (-1.0f * x6)));
  const vec8 x7 = LD8(p0 + 48);
  ST8(p1 + 104, (x7 + (-1.0f * x6)));
  const vec8 x8 = LD8(p0 + 16);
  const vec8 x9 = LD8(p0 + -64);
  ST8(p1 + 16, (x8 + (-1.0f * x9)));
  const vec8 x10 = LD8(p0 + -24);
  ST8(p1 + 48, (x8 + x10));
  ST8(p1 + 80, (x8 + (-1.0f * x10)));
  const vec8 x11 = LD8(p0 + 56);
  ST8(p1 + 112, (x11 + (-1.0f * x10)));
  ST8(p2 + 0, LD8(p1 + 8));
  ST8(p2 + 48, (LD8(p1 + 8) + LD8(p1 + 0)));
  ST8(p2 + 96, (LD8(p1 + 8) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 144, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 192, LD8(p1 + 40));
  ST8(p2 + 240, (LD8(p1 + 40) + LD8(p1 + 32)));
  ST8(p2 + 288, (LD8(p1 + 40) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 336, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 384, LD8(p1 + 72));
  ST8(p2 + 432, (LD8(p1 + 72) + LD8(p1 + 64)));
  ST8(p2 + 480, (LD8(p1 + 72) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 528, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 576, LD8(p1 + 104));
  ST8(p2 + 624, (LD8(p1 + 104) + LD8(p1 + 96)));
  ST8(p2 + 672, (LD8(p1 + 104) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 720, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
}
LEAF tile11(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  const vec8 x3 = LD8(p0 + 40);
  ST8(p1 + 96, (x3 + (-1.0f * x2)));
  const vec8 x4 = LD8(p0 + 8);
  const vec8 x5 = LD8(p0 + -72);
  ST8(p1 + 8, (x4 + (-1.0f * x5)));
  const vec8 x6 = LD8(p0 + -32);
  ST8(p1 + 40, (x4 + x6));
  ST8(p1 + 72, (x4 + (-1.0f * x6)));
  const vec8 x7 = LD8(p0 + 48);
  ST8(p1 + 104, (x7 + (-1.0f * x6)));
  const vec8 x8 = LD8(p0 + 16);
  const vec8 x9 = LD8(p0 + -64);
  ST8(p1 + 16, (x8 + (-1.0f * x9)));
  const vec8 x10 = LD8(p0 + -24);
  ST8(p1 + 48, (x8 + x10));
  ST8(p1 + 80, (x8 + (-1.0f * x10)));
  const vec8 x11 = LD8(p0 + 56);
  ST8(p1 + 112, (x11 + (-1.0f * x10)));
  const vec8 x12 = LD8(p0 + 24);
  const vec8 x13 = LD8(p0 + -56);
  ST8(p1 + 24, (x12 + (-1.0f * x13)));
  const vec8 x14 = LD8(p0 + -16);
  ST8(p1 + 56, (x12 + x14));
  ST8(p1 + 88, (x12 + (-1.0f * x14)));
  const vec8 x15 = LD8(p0 + 64);
  ST8(p1 + 120, (x15 + (-1.0f * x14)));
  ST8(p2 + 0, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 48, (LD8(p1 + 16) + LD8(p1 + 8)));
  ST8(p2 + 96, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 144, (LD8(p1 + 24) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 192, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 240, (LD8(p1 + 48) + LD8(p1 + 40)));
  ST8(p2 + 288, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 336, (LD8(p1 + 56) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 384, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 432, (LD8(p1 + 80) + LD8(p1 + 72)));
  ST8(p2 + 480, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 528, (LD8(p1 + 88) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 576, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 624, (LD8(p1 + 112) + LD8(p1 + 104)));
  ST8(p2 + 672, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 104))));
  ST8(p2 + 720, (LD8(p1 + 120) + (-1.0f * LD8(p1 + 104))));
}
LEAF tile12(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  const vec8 x3 = LD8(p0 + 40);
  ST8(p1 + 96, (x3 + (-1.0f * x2)));
  const vec8 x4 = LD8(p0 + 8);
  const vec8 x5 = LD8(p0 + -72);
  ST8(p1 + 8, (x4 + (-1.0f * x5)));
  const vec8 x6 = LD8(p0 + -32);
  ST8(p1 + 40, (x4 + x6));
  ST8(p1 + 72, (x4 + (-1.0f * x6)));
  const vec8 x7 = LD8(p0 + 48);
  ST8(p1 + 104, (x7 + (-1.0f * x6)));
  ST8(p2 + 0, (-1.0f * LD8(p1 + 0)));
  ST8(p2 + 48, LD8(p1 + 8));
  ST8(p2 + 96, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 144, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 192, (-1.0f * LD8(p1 + 32)));
  ST8(p2 + 240, LD8(p1 + 40));
  ST8(p2 + 288, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 336, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 384, (-1.0f * LD8(p1 + 64)));
  ST8(p2 + 432, LD8(p1 + 72));
  ST8(p2 + 480, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 528, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 576, (-1.0f * LD8(p1 + 96)));
  ST8(p2 + 624, LD8(p1 + 104));
  ST8(p2 + 672, (-1.0f * LD8(p1 + 104)));
  ST8(p2 + 720, (-1.0f * LD8(p1 + 104)));
}
LEAF tile13(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  ST8(p1 + 96, (-1.0f * x2));
  const vec8 x3 = LD8(p0 + 8);
  const vec8 x4 = LD8(p0 + -72);
  ST8(p1 + 8, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x5));
  ST8(p1 + 72, (x3 + (-1.0f * x5)));
  ST8(p1 + 104, (-1.0f * x5));
  const vec8 x6 = LD8(p0 + 16);
  const vec8 x7 = LD8(p0 + -64);
  ST8(p1 + 16, (x6 + (-1.0f * x7)));
  const vec8 x8 = LD8(p0 + -24);
  ST8(p1 + 48, (x6 + x8));
  ST8(p1 + 80, (x6 + (-1.0f * x8)));
  ST8(p1 + 112, (-1.0f * x8));
  ST8(p2 + 0, LD8(p1 + 8));
  ST8(p2 + 48, (LD8(p1 + 8) + LD8(p1 + 0)));
  ST8(p2 + 96, (LD8(p1 + 8) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 144, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 192, LD8(p1 + 40));
  ST8(p2 + 240, (LD8(p1 + 40) + LD8(p1 + 32)));
  ST8(p2 + 288, (LD8(p1 + 40) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 336, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 384, LD8(p1 + 72));
  ST8(p2 + 432, (LD8(p1 + 72) + LD8(p1 + 64)));
  ST8(p2 + 480, (LD8(p1 + 72) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 528, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 576, LD8(p1 + 104));
  ST8(p2 + 624, (LD8(p1 + 104) + LD8(p1 + 96)));
  ST8(p2 + 672, (LD8(p1 + 104) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 720, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
}
LEAF tile14(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  ST8(p1 + 96, (-1.0f * x2));
  const vec8 x3 = LD8(p0 + 8);
  const vec8 x4 = LD8(p0 + -72);
  ST8(p1 + 8, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x5));
  ST8(p1 + 72, (x3 + (-1.0f * x5)));
  ST8(p1 + 104, (-1.0f * x5));
  const vec8 x6 = LD8(p0 + 16);
  const vec8 x7 = LD8(p0 + -64);
  ST8(p1 + 16, (x6 + (-1.0f * x7)));
  const vec8 x8 = LD8(p0 + -24);
  ST8(p1 + 48, (x6 + x8));
  ST8(p1 + 80, (x6 + (-1.0f * x8)));
  ST8(p1 + 112, (-1.0f * x8));
  const vec8 x9 = LD8(p0 + 24);
  const vec8 x10 = LD8(p0 + -56);
  ST8(p1 + 24, (x9 + (-1.0f * x10)));
  const vec8 x11 = LD8(p0 + -16);
  ST8(p1 + 56, (x9 + x11));
  ST8(p1 + 88, (x9 + (-1.0f * x11)));
  ST8(p1 + 120, (-1.0f * x11));
  ST8(p2 + 0, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 0))));
  ST8(p2 + 48, (LD8(p1 + 16) + LD8(p1 + 8)));
  ST8(p2 + 96, (LD8(p1 + 16) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 144, (LD8(p1 + 24) + (-1.0f * LD8(p1 + 8))));
  ST8(p2 + 192, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 32))));
  ST8(p2 + 240, (LD8(p1 + 48) + LD8(p1 + 40)));
  ST8(p2 + 288, (LD8(p1 + 48) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 336, (LD8(p1 + 56) + (-1.0f * LD8(p1 + 40))));
  ST8(p2 + 384, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 64))));
  ST8(p2 + 432, (LD8(p1 + 80) + LD8(p1 + 72)));
  ST8(p2 + 480, (LD8(p1 + 80) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 528, (LD8(p1 + 88) + (-1.0f * LD8(p1 + 72))));
  ST8(p2 + 576, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 96))));
  ST8(p2 + 624, (LD8(p1 + 112) + LD8(p1 + 104)));
  ST8(p2 + 672, (LD8(p1 + 112) + (-1.0f * LD8(p1 + 104))));
  ST8(p2 + 720, (LD8(p1 + 120) + (-1.0f * LD8(p1 + 104))));
}
LEAF tile15(float *restrict p0, float *restrict p1, float *restrict p2) {
  const vec8 x0 = LD8(p0 + 0);
  const vec8 x1 = LD8(p0 + -80);
  ST8(p1 + 0, (x0 + (-1.0f * x1)));
  const vec8 x2 = LD8(p0 + -40);
  ST8(p1 + 32, (x0 + x2));
  ST8(p1 + 64, (x0 + (-1.0f * x2)));
  ST8(p1 + 96, (-1.0f * x2));
  const vec8 x3 = LD8(p0 + 8);
  const vec8 x4 = LD8(p0 + -72);
  ST8(p1 + 8, (x3 + (-1.0f * x4)));
  const vec8 x5 = LD8(p0 + -32);
  ST8(p1 + 40, (x3 + x5));
  ST8(p1 + 72, (x3 + (-1.0f * x5)));
  ST8(p1 + 104, (-1.0f * x5));
  ST8(p2 + 0, (-1.0f * LD8(p1 + 0)));
  ST8(p2 + 48, LD8(p1 + 8));
  ST8(p2 + 96, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 144, (-1.0f * LD8(p1 + 8)));
  ST8(p2 + 192, (-1.0f * LD8(p1 + 32)));
  ST8(p2 + 240, LD8(p1 + 40));
  ST8(p2 + 288, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 336, (-1.0f * LD8(p1 + 40)));
  ST8(p2 + 384, (-1.0f * LD8(p1 + 64)));
  ST8(p2 + 432, LD8(p1 + 72));
  ST8(p2 + 480, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 528, (-1.0f * LD8(p1 + 72)));
  ST8(p2 + 576, (-1.0f * LD8(p1 + 96)));
  ST8(p2 + 624, LD8(p1 + 104));
  ST8(p2 + 672, (-1.0f * LD8(p1 + 104)));
  ST8(p2 + 720, (-1.0f * LD8(p1 + 104)));
}
void autotune_transform_weight(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b6 = buffers[6];
  float *const b7 = (float *)(local + 0);
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 16 ? end : 16); ++t) {
    long r = t - 0;
    const long v2 = r % 8; r /= 8;
    const long v1 = r % 2; r /= 2;
    const long v0 = r % 1; r /= 1;
    for (long v3 = 0; v3 < 2; ++v3) {
      tile0(b1 + 2304*v0 + 72*v1 + 9*v2 + 1152*v3, b7 + 0, b6 + 256*v0 + 128*v1 + 16*v2 + 8*v3);
    }
  }
  for (long t = begin > 16 ? begin : 16; t < (end < 32 ? end : 32); ++t) {
    long r = t - 16;
    const long v10 = r % 8; r /= 8;
    const long v9 = r % 2; r /= 2;
    const long v8 = r % 1; r /= 1;
    tile0(b1 + 2304*v8 + 72*v9 + 9*v10 + 2304, b7 + 0, b6 + 256*v8 + 128*v9 + 16*v10 + 256);
  }
}
void autotune_compute(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b6 = buffers[6];
  float *const b5 = (float *)(local + 0);
  float *const b4 = (float *)(local + 4928);
  float *const b12 = (float *)(local + 8000);
  float *const b14 = (float *)(local + 8512);
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v15 = r % 1; r /= 1;
    for (long v64 = 0; v64 < 2; ++v64) {
      tile1(b0 + 240*v64 + 40, b14 + 8, b4 + 24*v64);
    }
    for (long v69 = 0; v69 < 2; ++v69) {
      tile2(b0 + 240*v69 + 48, b14 + 0, b4 + 24*v69 + 8);
    }
    for (long v74 = 0; v74 < 2; ++v74) {
      tile3(b0 + 240*v74 + 64, b14 + 0, b4 + 24*v74 + 16);
    }
    for (long v16 = 0; v16 < 16; ++v16) {
      tile4(b6 + 512*v16, b4 + 48*v16, b5 + 8*v16);
      tile5(b6 + 512*v16, b4 + 48*v16 + 16, b5 + 8*v16 + 272);
      tile6(b6 + 512*v16 + 256, b4 + 48*v16, b5 + 8*v16 + 816);
      tile7(b6 + 512*v16 + 256, b4 + 48*v16 + 16, b5 + 8*v16 + 1088);
    }
    for (long v53 = 0; v53 < 3; ++v53) {
      for (long v54 = 0; v54 < 2; ++v54) {
        tile8(b5 + 408*v53 + 136*v54 + 32, b12 + 0, b2 + 8*v53, b3 + 240*v53 + 16*v54);
      }
    }
    for (long v59 = 0; v59 < 3; ++v59) {
      tile9(b5 + 408*v59 + 304, b12 + 0, b2 + 8*v59, b3 + 240*v59 + 32);
    }
  }
  for (long t = begin > 1 ? begin : 1; t < (end < 2 ? end : 2); ++t) {
    long r = t - 1;
    const long v79 = r % 1; r /= 1;
    for (long v128 = 0; v128 < 2; ++v128) {
      tile10(b0 + 240*v128 + 120, b14 + 8, b4 + 24*v128);
    }
    for (long v133 = 0; v133 < 2; ++v133) {
      tile11(b0 + 240*v133 + 128, b14 + 0, b4 + 24*v133 + 8);
    }
    for (long v138 = 0; v138 < 2; ++v138) {
      tile12(b0 + 240*v138 + 144, b14 + 0, b4 + 24*v138 + 16);
    }
    for (long v80 = 0; v80 < 16; ++v80) {
      tile4(b6 + 512*v80, b4 + 48*v80, b5 + 8*v80);
      tile5(b6 + 512*v80, b4 + 48*v80 + 16, b5 + 8*v80 + 272);
      tile6(b6 + 512*v80 + 256, b4 + 48*v80, b5 + 8*v80 + 816);
      tile7(b6 + 512*v80 + 256, b4 + 48*v80 + 16, b5 + 8*v80 + 1088);
    }
    for (long v117 = 0; v117 < 3; ++v117) {
      for (long v118 = 0; v118 < 2; ++v118) {
        tile8(b5 + 408*v117 + 136*v118 + 32, b12 + 0, b2 + 8*v117, b3 + 240*v117 + 16*v118 + 80);
      }
    }
    for (long v123 = 0; v123 < 3; ++v123) {
      tile9(b5 + 408*v123 + 304, b12 + 0, b2 + 8*v123, b3 + 240*v123 + 112);
    }
  }
  for (long t = begin > 2 ? begin : 2; t < (end < 3 ? end : 3); ++t) {
    long r = t - 2;
    const long v143 = r % 1; r /= 1;
    for (long v192 = 0; v192 < 2; ++v192) {
      tile13(b0 + 240*v192 + 200, b14 + 8, b4 + 24*v192);
    }
    for (long v197 = 0; v197 < 2; ++v197) {
      tile14(b0 + 240*v197 + 208, b14 + 0, b4 + 24*v197 + 8);
    }
    for (long v202 = 0; v202 < 2; ++v202) {
      tile15(b0 + 240*v202 + 224, b14 + 0, b4 + 24*v202 + 16);
    }
    for (long v144 = 0; v144 < 16; ++v144) {
      tile4(b6 + 512*v144, b4 + 48*v144, b5 + 8*v144);
      tile5(b6 + 512*v144, b4 + 48*v144 + 16, b5 + 8*v144 + 272);
      tile6(b6 + 512*v144 + 256, b4 + 48*v144, b5 + 8*v144 + 816);
      tile7(b6 + 512*v144 + 256, b4 + 48*v144 + 16, b5 + 8*v144 + 1088);
    }
    for (long v181 = 0; v181 < 3; ++v181) {
      for (long v182 = 0; v182 < 2; ++v182) {
        tile8(b5 + 408*v181 + 136*v182 + 32, b12 + 0, b2 + 8*v181, b3 + 240*v181 + 16*v182 + 160);
      }
    }
    for (long v187 = 0; v187 < 3; ++v187) {
      tile9(b5 + 408*v187 + 304, b12 + 0, b2 + 8*v187, b3 + 240*v187 + 192);
    }
  }
}
