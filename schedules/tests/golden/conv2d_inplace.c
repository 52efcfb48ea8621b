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
  vec8 a32;
  vec8 a40;
  vec8 a48;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  a32 = splat8(0.0f);
  a40 = splat8(0.0f);
  a48 = splat8(0.0f);
  for (long i2 = 0; i2 < 2; ++i2) {
    for (long i3 = 0; i3 < 2; ++i3) {
      const float x0 = p0[56*i2 + 4*i3];
      const vec8 x1 = LD8(p1 + 192*i2 + 32*i3);
      a8 += (x0 * x1);
      const float x2 = p0[56*i2 + 4*i3 + 8];
      a16 += (x2 * x1);
      const float x3 = p0[56*i2 + 4*i3 + 16];
      a24 += (x3 * x1);
      const float x4 = p0[56*i2 + 4*i3 + 24];
      a32 += (x4 * x1);
      const float x5 = p0[56*i2 + 4*i3 + 32];
      a40 += (x5 * x1);
      const float x6 = p0[56*i2 + 4*i3 + 40];
      a48 += (x6 * x1);
      const float x7 = p0[56*i2 + 4*i3 + 1];
      const vec8 x8 = LD8(p1 + 192*i2 + 32*i3 + 8);
      a8 += (x7 * x8);
      const float x9 = p0[56*i2 + 4*i3 + 9];
      a16 += (x9 * x8);
      const float x10 = p0[56*i2 + 4*i3 + 17];
      a24 += (x10 * x8);
      const float x11 = p0[56*i2 + 4*i3 + 25];
      a32 += (x11 * x8);
      const float x12 = p0[56*i2 + 4*i3 + 33];
      a40 += (x12 * x8);
      const float x13 = p0[56*i2 + 4*i3 + 41];
      a48 += (x13 * x8);
      const float x14 = p0[56*i2 + 4*i3 + 2];
      const vec8 x15 = LD8(p1 + 192*i2 + 32*i3 + 16);
      a8 += (x14 * x15);
      const float x16 = p0[56*i2 + 4*i3 + 10];
      a16 += (x16 * x15);
      const float x17 = p0[56*i2 + 4*i3 + 18];
      a24 += (x17 * x15);
      const float x18 = p0[56*i2 + 4*i3 + 26];
      a32 += (x18 * x15);
      const float x19 = p0[56*i2 + 4*i3 + 34];
      a40 += (x19 * x15);
      const float x20 = p0[56*i2 + 4*i3 + 42];
      a48 += (x20 * x15);
      const float x21 = p0[56*i2 + 4*i3 + 3];
      const vec8 x22 = LD8(p1 + 192*i2 + 32*i3 + 24);
      a8 += (x21 * x22);
      const float x23 = p0[56*i2 + 4*i3 + 11];
      a16 += (x23 * x22);
      const float x24 = p0[56*i2 + 4*i3 + 19];
      a24 += (x24 * x22);
      const float x25 = p0[56*i2 + 4*i3 + 27];
      a32 += (x25 * x22);
      const float x26 = p0[56*i2 + 4*i3 + 35];
      a40 += (x26 * x22);
      const float x27 = p0[56*i2 + 4*i3 + 43];
      a48 += (x27 * x22);
    }
    for (long i7 = 0; i7 < 2; ++i7) {
      const float x28 = p0[56*i2 + 4*i7];
      const vec8 x29 = LD8(p1 + 192*i2 + 32*i7 + 64);
      a0 += (x28 * x29);
      const float x30 = p0[56*i2 + 4*i7 + 8];
      a8 += (x30 * x29);
      const float x31 = p0[56*i2 + 4*i7 + 16];
      a16 += (x31 * x29);
      const float x32 = p0[56*i2 + 4*i7 + 24];
      a24 += (x32 * x29);
      const float x33 = p0[56*i2 + 4*i7 + 32];
      a32 += (x33 * x29);
      const float x34 = p0[56*i2 + 4*i7 + 40];
      a40 += (x34 * x29);
      const float x35 = p0[56*i2 + 4*i7 + 48];
      a48 += (x35 * x29);
      const float x36 = p0[56*i2 + 4*i7 + 1];
      const vec8 x37 = LD8(p1 + 192*i2 + 32*i7 + 72);
      a0 += (x36 * x37);
      const float x38 = p0[56*i2 + 4*i7 + 9];
      a8 += (x38 * x37);
      const float x39 = p0[56*i2 + 4*i7 + 17];
      a16 += (x39 * x37);
      const float x40 = p0[56*i2 + 4*i7 + 25];
      a24 += (x40 * x37);
      const float x41 = p0[56*i2 + 4*i7 + 33];
      a32 += (x41 * x37);
      const float x42 = p0[56*i2 + 4*i7 + 41];
      a40 += (x42 * x37);
      const float x43 = p0[56*i2 + 4*i7 + 49];
      a48 += (x43 * x37);
      const float x44 = p0[56*i2 + 4*i7 + 2];
      const vec8 x45 = LD8(p1 + 192*i2 + 32*i7 + 80);
      a0 += (x44 * x45);
      const float x46 = p0[56*i2 + 4*i7 + 10];
      a8 += (x46 * x45);
      const float x47 = p0[56*i2 + 4*i7 + 18];
      a16 += (x47 * x45);
      const float x48 = p0[56*i2 + 4*i7 + 26];
      a24 += (x48 * x45);
      const float x49 = p0[56*i2 + 4*i7 + 34];
      a32 += (x49 * x45);
      const float x50 = p0[56*i2 + 4*i7 + 42];
      a40 += (x50 * x45);
      const float x51 = p0[56*i2 + 4*i7 + 50];
      a48 += (x51 * x45);
      const float x52 = p0[56*i2 + 4*i7 + 3];
      const vec8 x53 = LD8(p1 + 192*i2 + 32*i7 + 88);
      a0 += (x52 * x53);
      const float x54 = p0[56*i2 + 4*i7 + 11];
      a8 += (x54 * x53);
      const float x55 = p0[56*i2 + 4*i7 + 19];
      a16 += (x55 * x53);
      const float x56 = p0[56*i2 + 4*i7 + 27];
      a24 += (x56 * x53);
      const float x57 = p0[56*i2 + 4*i7 + 35];
      a32 += (x57 * x53);
      const float x58 = p0[56*i2 + 4*i7 + 43];
      a40 += (x58 * x53);
      const float x59 = p0[56*i2 + 4*i7 + 51];
      a48 += (x59 * x53);
    }
    for (long i11 = 0; i11 < 2; ++i11) {
      const float x60 = p0[56*i2 + 4*i11 + 8];
      const vec8 x61 = LD8(p1 + 192*i2 + 32*i11 + 128);
      a0 += (x60 * x61);
      const float x62 = p0[56*i2 + 4*i11 + 16];
      a8 += (x62 * x61);
      const float x63 = p0[56*i2 + 4*i11 + 24];
      a16 += (x63 * x61);
      const float x64 = p0[56*i2 + 4*i11 + 32];
      a24 += (x64 * x61);
      const float x65 = p0[56*i2 + 4*i11 + 40];
      a32 += (x65 * x61);
      const float x66 = p0[56*i2 + 4*i11 + 48];
      a40 += (x66 * x61);
      const float x67 = p0[56*i2 + 4*i11 + 9];
      const vec8 x68 = LD8(p1 + 192*i2 + 32*i11 + 136);
      a0 += (x67 * x68);
      const float x69 = p0[56*i2 + 4*i11 + 17];
      a8 += (x69 * x68);
      const float x70 = p0[56*i2 + 4*i11 + 25];
      a16 += (x70 * x68);
      const float x71 = p0[56*i2 + 4*i11 + 33];
      a24 += (x71 * x68);
      const float x72 = p0[56*i2 + 4*i11 + 41];
      a32 += (x72 * x68);
      const float x73 = p0[56*i2 + 4*i11 + 49];
      a40 += (x73 * x68);
      const float x74 = p0[56*i2 + 4*i11 + 10];
      const vec8 x75 = LD8(p1 + 192*i2 + 32*i11 + 144);
      a0 += (x74 * x75);
      const float x76 = p0[56*i2 + 4*i11 + 18];
      a8 += (x76 * x75);
      const float x77 = p0[56*i2 + 4*i11 + 26];
      a16 += (x77 * x75);
      const float x78 = p0[56*i2 + 4*i11 + 34];
      a24 += (x78 * x75);
      const float x79 = p0[56*i2 + 4*i11 + 42];
      a32 += (x79 * x75);
      const float x80 = p0[56*i2 + 4*i11 + 50];
      a40 += (x80 * x75);
      const float x81 = p0[56*i2 + 4*i11 + 11];
      const vec8 x82 = LD8(p1 + 192*i2 + 32*i11 + 152);
      a0 += (x81 * x82);
      const float x83 = p0[56*i2 + 4*i11 + 19];
      a8 += (x83 * x82);
      const float x84 = p0[56*i2 + 4*i11 + 27];
      a16 += (x84 * x82);
      const float x85 = p0[56*i2 + 4*i11 + 35];
      a24 += (x85 * x82);
      const float x86 = p0[56*i2 + 4*i11 + 43];
      a32 += (x86 * x82);
      const float x87 = p0[56*i2 + 4*i11 + 51];
      a40 += (x87 * x82);
    }
  }
  const vec8 x88 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x88), splat8(0.0f)));
  ST8(p3 + 8, max8((a8 + x88), splat8(0.0f)));
  ST8(p3 + 16, max8((a16 + x88), splat8(0.0f)));
  ST8(p3 + 24, max8((a24 + x88), splat8(0.0f)));
  ST8(p3 + 32, max8((a32 + x88), splat8(0.0f)));
  ST8(p3 + 40, max8((a40 + x88), splat8(0.0f)));
  ST8(p3 + 48, max8((a48 + x88), splat8(0.0f)));
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2, float *restrict p3) {
  vec8 a0;
  vec8 a8;
  vec8 a16;
  vec8 a24;
  vec8 a32;
  vec8 a40;
  vec8 a48;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  a32 = splat8(0.0f);
  a40 = splat8(0.0f);
  a48 = splat8(0.0f);
  for (long i2 = 0; i2 < 3; ++i2) {
    for (long i3 = 0; i3 < 2; ++i3) {
      const float x0 = p0[56*i2 + 4*i3];
      const vec8 x1 = LD8(p1 + 192*i2 + 32*i3);
      a8 += (x0 * x1);
      const float x2 = p0[56*i2 + 4*i3 + 8];
      a16 += (x2 * x1);
      const float x3 = p0[56*i2 + 4*i3 + 16];
      a24 += (x3 * x1);
      const float x4 = p0[56*i2 + 4*i3 + 24];
      a32 += (x4 * x1);
      const float x5 = p0[56*i2 + 4*i3 + 32];
      a40 += (x5 * x1);
      const float x6 = p0[56*i2 + 4*i3 + 40];
      a48 += (x6 * x1);
      const float x7 = p0[56*i2 + 4*i3 + 1];
      const vec8 x8 = LD8(p1 + 192*i2 + 32*i3 + 8);
      a8 += (x7 * x8);
      const float x9 = p0[56*i2 + 4*i3 + 9];
      a16 += (x9 * x8);
      const float x10 = p0[56*i2 + 4*i3 + 17];
      a24 += (x10 * x8);
      const float x11 = p0[56*i2 + 4*i3 + 25];
      a32 += (x11 * x8);
      const float x12 = p0[56*i2 + 4*i3 + 33];
      a40 += (x12 * x8);
      const float x13 = p0[56*i2 + 4*i3 + 41];
      a48 += (x13 * x8);
      const float x14 = p0[56*i2 + 4*i3 + 2];
      const vec8 x15 = LD8(p1 + 192*i2 + 32*i3 + 16);
      a8 += (x14 * x15);
      const float x16 = p0[56*i2 + 4*i3 + 10];
      a16 += (x16 * x15);
      const float x17 = p0[56*i2 + 4*i3 + 18];
      a24 += (x17 * x15);
      const float x18 = p0[56*i2 + 4*i3 + 26];
      a32 += (x18 * x15);
      const float x19 = p0[56*i2 + 4*i3 + 34];
      a40 += (x19 * x15);
      const float x20 = p0[56*i2 + 4*i3 + 42];
      a48 += (x20 * x15);
      const float x21 = p0[56*i2 + 4*i3 + 3];
      const vec8 x22 = LD8(p1 + 192*i2 + 32*i3 + 24);
      a8 += (x21 * x22);
      const float x23 = p0[56*i2 + 4*i3 + 11];
      a16 += (x23 * x22);
      const float x24 = p0[56*i2 + 4*i3 + 19];
      a24 += (x24 * x22);
      const float x25 = p0[56*i2 + 4*i3 + 27];
      a32 += (x25 * x22);
      const float x26 = p0[56*i2 + 4*i3 + 35];
      a40 += (x26 * x22);
      const float x27 = p0[56*i2 + 4*i3 + 43];
      a48 += (x27 * x22);
    }
    for (long i7 = 0; i7 < 2; ++i7) {
      const float x28 = p0[56*i2 + 4*i7];
      const vec8 x29 = LD8(p1 + 192*i2 + 32*i7 + 64);
      a0 += (x28 * x29);
      const float x30 = p0[56*i2 + 4*i7 + 8];
      a8 += (x30 * x29);
      const float x31 = p0[56*i2 + 4*i7 + 16];
      a16 += (x31 * x29);
      const float x32 = p0[56*i2 + 4*i7 + 24];
      a24 += (x32 * x29);
      const float x33 = p0[56*i2 + 4*i7 + 32];
      a32 += (x33 * x29);
      const float x34 = p0[56*i2 + 4*i7 + 40];
      a40 += (x34 * x29);
      const float x35 = p0[56*i2 + 4*i7 + 48];
      a48 += (x35 * x29);
      const float x36 = p0[56*i2 + 4*i7 + 1];
      const vec8 x37 = LD8(p1 + 192*i2 + 32*i7 + 72);
      a0 += (x36 * x37);
      const float x38 = p0[56*i2 + 4*i7 + 9];
      a8 += (x38 * x37);
      const float x39 = p0[56*i2 + 4*i7 + 17];
      a16 += (x39 * x37);
      const float x40 = p0[56*i2 + 4*i7 + 25];
      a24 += (x40 * x37);
      const float x41 = p0[56*i2 + 4*i7 + 33];
      a32 += (x41 * x37);
      const float x42 = p0[56*i2 + 4*i7 + 41];
      a40 += (x42 * x37);
      const float x43 = p0[56*i2 + 4*i7 + 49];
      a48 += (x43 * x37);
      const float x44 = p0[56*i2 + 4*i7 + 2];
      const vec8 x45 = LD8(p1 + 192*i2 + 32*i7 + 80);
      a0 += (x44 * x45);
      const float x46 = p0[56*i2 + 4*i7 + 10];
      a8 += (x46 * x45);
      const float x47 = p0[56*i2 + 4*i7 + 18];
      a16 += (x47 * x45);
      const float x48 = p0[56*i2 + 4*i7 + 26];
      a24 += (x48 * x45);
      const float x49 = p0[56*i2 + 4*i7 + 34];
      a32 += (x49 * x45);
      const float x50 = p0[56*i2 + 4*i7 + 42];
      a40 += (x50 * x45);
      const float x51 = p0[56*i2 + 4*i7 + 50];
      a48 += (x51 * x45);
      const float x52 = p0[56*i2 + 4*i7 + 3];
      const vec8 x53 = LD8(p1 + 192*i2 + 32*i7 + 88);
      a0 += (x52 * x53);
      const float x54 = p0[56*i2 + 4*i7 + 11];
      a8 += (x54 * x53);
      const float x55 = p0[56*i2 + 4*i7 + 19];
      a16 += (x55 * x53);
      const float x56 = p0[56*i2 + 4*i7 + 27];
      a24 += (x56 * x53);
      const float x57 = p0[56*i2 + 4*i7 + 35];
      a32 += (x57 * x53);
      const float x58 = p0[56*i2 + 4*i7 + 43];
      a40 += (x58 * x53);
      const float x59 = p0[56*i2 + 4*i7 + 51];
      a48 += (x59 * x53);
    }
    for (long i11 = 0; i11 < 2; ++i11) {
      const float x60 = p0[56*i2 + 4*i11 + 8];
      const vec8 x61 = LD8(p1 + 192*i2 + 32*i11 + 128);
      a0 += (x60 * x61);
      const float x62 = p0[56*i2 + 4*i11 + 16];
      a8 += (x62 * x61);
      const float x63 = p0[56*i2 + 4*i11 + 24];
      a16 += (x63 * x61);
      const float x64 = p0[56*i2 + 4*i11 + 32];
      a24 += (x64 * x61);
      const float x65 = p0[56*i2 + 4*i11 + 40];
      a32 += (x65 * x61);
      const float x66 = p0[56*i2 + 4*i11 + 48];
      a40 += (x66 * x61);
      const float x67 = p0[56*i2 + 4*i11 + 9];
      const vec8 x68 = LD8(p1 + 192*i2 + 32*i11 + 136);
      a0 += (x67 * x68);
      const float x69 = p0[56*i2 + 4*i11 + 17];
      a8 += (x69 * x68);
      const float x70 = p0[56*i2 + 4*i11 + 25];
      a16 += (x70 * x68);
      const float x71 = p0[56*i2 + 4*i11 + 33];
      a24 += (x71 * x68);
      const float x72 = p0[56*i2 + 4*i11 + 41];
      a32 += (x72 * x68);
      const float x73 = p0[56*i2 + 4*i11 + 49];
      a40 += (x73 * x68);
      const float x74 = p0[56*i2 + 4*i11 + 10];
      const vec8 x75 = LD8(p1 + 192*i2 + 32*i11 + 144);
      a0 += (x74 * x75);
      const float x76 = p0[56*i2 + 4*i11 + 18];
      a8 += (x76 * x75);
      const float x77 = p0[56*i2 + 4*i11 + 26];
      a16 += (x77 * x75);
      const float x78 = p0[56*i2 + 4*i11 + 34];
      a24 += (x78 * x75);
      const float x79 = p0[56*i2 + 4*i11 + 42];
      a32 += (x79 * x75);
      const float x80 = p0[56*i2 + 4*i11 + 50];
      a40 += (x80 * x75);
      const float x81 = p0[56*i2 + 4*i11 + 11];
      const vec8 x82 = LD8(p1 + 192*i2 + 32*i11 + 152);
      a0 += (x81 * x82);
      const float x83 = p0[56*i2 + 4*i11 + 19];
      a8 += (x83 * x82);
      const float x84 = p0[56*i2 + 4*i11 + 27];
      a16 += (x84 * x82);
      const float x85 = p0[56*i2 + 4*i11 + 35];
      a24 += (x85 * x82);
      const float x86 = p0[56*i2 + 4*i11 + 43];
      a32 += (x86 * x82);
      const float x87 = p0[56*i2 + 4*i11 + 51];
      a40 += (x87 * x82);
    }
  }
  const vec8 x88 = LD8(p2 + 0);
  ST8(p3 + 0, max8((a0 + x88), splat8(0.0f)));
  ST8(p3 + 8, max8((a8 + x88), splat8(0.0f)));
  ST8(p3 + 16, max8((a16 + x88), splat8(0.0f)));
  ST8(p3 + 24, max8((a24 + x88), splat8(0.0f)));
  ST8(p3 + 32, max8((a32 + x88), splat8(0.0f)));
  ST8(p3 + 40, max8((a40 + x88), splat8(0.0f)));
  ST8(p3 + 48, max8((a48 + x88), splat8(0.0f)));
}
void autotune_pack_weight(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  float *const b4 = buffers[4];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v0 = r % 1; r /= 1;
    for (long v1 = 0; v1 < 3; ++v1) {
      for (long v2 = 0; v2 < 3; ++v2) {
        for (long v3 = 0; v3 < 8; ++v3) {
          ST8(b4 + 192*v1 + 64*v2 + 8*v3, ((vec8){b1[3*v1 + v2 + 9*v3 + 0], b1[3*v1 + v2 + 9*v3 + 72], b1[3*v1 + v2 + 9*v3 + 144], b1[3*v1 + v2 + 9*v3 + 216], b1[3*v1 + v2 + 9*v3 + 288], b1[3*v1 + v2 + 9*v3 + 360], b1[3*v1 + v2 + 9*v3 + 432], b1[3*v1 + v2 + 9*v3 + 504]}));
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
  float *const b4 = buffers[4];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v5 = r % 1; r /= 1;
    tile0(b0 + 0, b4 + 192, b2 + 0, b3 + 0);
    for (long v23 = 0; v23 < 3; ++v23) {
      tile1(b0 + 56*v23, b4 + 0, b2 + 0, b3 + 56*v23 + 56);
    }
    tile0(b0 + 168, b4 + 0, b2 + 0, b3 + 224);
  }
}
