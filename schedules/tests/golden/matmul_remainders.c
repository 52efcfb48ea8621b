LEAF tile0(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  vec8 a16;
  vec8 a24;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  a16 = splat8(0.0f);
  a24 = splat8(0.0f);
  const float x0 = p0[0];
  const vec8 x1 = LD8(p1 + 0);
  a0 += (x0 * x1);
  const vec8 x2 = LD8(p1 + 8);
  a8 += (x0 * x2);
  const float x3 = p0[6];
  a16 += (x3 * x1);
  a24 += (x3 * x2);
  const float x4 = p0[1];
  const vec8 x5 = LD8(p1 + 16);
  a0 += (x4 * x5);
  const vec8 x6 = LD8(p1 + 24);
  a8 += (x4 * x6);
  const float x7 = p0[7];
  a16 += (x7 * x5);
  a24 += (x7 * x6);
  const float x8 = p0[2];
  const vec8 x9 = LD8(p1 + 32);
  a0 += (x8 * x9);
  const vec8 x10 = LD8(p1 + 40);
  a8 += (x8 * x10);
  const float x11 = p0[8];
  a16 += (x11 * x9);
  a24 += (x11 * x10);
  const float x12 = p0[3];
  const vec8 x13 = LD8(p1 + 48);
  a0 += (x12 * x13);
  const vec8 x14 = LD8(p1 + 56);
  a8 += (x12 * x14);
  const float x15 = p0[9];
  a16 += (x15 * x13);
  a24 += (x15 * x14);
  const float x16 = p0[4];
  const vec8 x17 = LD8(p1 + 64);
  a0 += (x16 * x17);
  const vec8 x18 = LD8(p1 + 72);
  a8 += (x16 * x18);
  const float x19 = p0[10];
  a16 += (x19 * x17);
  a24 += (x19 * x18);
  const float x20 = p0[5];
  const vec8 x21 = LD8(p1 + 80);
  a0 += (x20 * x21);
  const vec8 x22 = LD8(p1 + 88);
  a8 += (x20 * x22);
  const float x23 = p0[11];
  a16 += (x23 * x21);
  a24 += (x23 * x22);
  ST8(p2 + 0, a0);
  ST8(p2 + 8, a8);
  ST8(p2 + 19, a16);
  ST8(p2 + 27, a24);
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  const float x0 = p0[0];
  const vec8 x1 = LD8(p1 + 0);
  a0 += (x0 * x1);
  const vec8 x2 = LD8(p1 + 8);
  a8 += (x0 * x2);
  const float x3 = p0[1];
  const vec8 x4 = LD8(p1 + 16);
  a0 += (x3 * x4);
  const vec8 x5 = LD8(p1 + 24);
  a8 += (x3 * x5);
  const float x6 = p0[2];
  const vec8 x7 = LD8(p1 + 32);
  a0 += (x6 * x7);
  const vec8 x8 = LD8(p1 + 40);
  a8 += (x6 * x8);
  const float x9 = p0[3];
  const vec8 x10 = LD8(p1 + 48);
  a0 += (x9 * x10);
  const vec8 x11 = LD8(p1 + 56);
  a8 += (x9 * x11);
  const float x12 = p0[4];
  const vec8 x13 = LD8(p1 + 64);
  a0 += (x12 * x13);
  const vec8 x14 = LD8(p1 + 72);
  a8 += (x12 * x14);
  const float x15 = p0[5];
  const vec8 x16 = LD8(p1 + 80);
  a0 += (x15 * x16);
  const vec8 x17 = LD8(p1 + 88);
  a8 += (x15 * x17);
  ST8(p2 + 0, a0);
  ST8(p2 + 8, a8);
}
LEAF tile2(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec2 a0;
  float a2;
  vec2 a3;
  float a5;
  a0 = splat2(0.0f);
  a2 = 0.0f;
  a3 = splat2(0.0f);
  a5 = 0.0f;
  const float x0 = p0[0];
  const vec2 x1 = LD2(p1 + 0);
  a0 += (x0 * x1);
  const float x2 = p1[2];
  a2 += (x0 * x2);
  const float x3 = p0[6];
  a3 += (x3 * x1);
  a5 += (x3 * x2);
  const float x4 = p0[1];
  const vec2 x5 = LD2(p1 + 16);
  a0 += (x4 * x5);
  const float x6 = p1[18];
  a2 += (x4 * x6);
  const float x7 = p0[7];
  a3 += (x7 * x5);
  a5 += (x7 * x6);
  const float x8 = p0[2];
  const vec2 x9 = LD2(p1 + 32);
  a0 += (x8 * x9);
  const float x10 = p1[34];
  a2 += (x8 * x10);
  const float x11 = p0[8];
  a3 += (x11 * x9);
  a5 += (x11 * x10);
  const float x12 = p0[3];
  const vec2 x13 = LD2(p1 + 48);
  a0 += (x12 * x13);
  const float x14 = p1[50];
  a2 += (x12 * x14);
  const float x15 = p0[9];
  a3 += (x15 * x13);
  a5 += (x15 * x14);
  const float x16 = p0[4];
  const vec2 x17 = LD2(p1 + 64);
  a0 += (x16 * x17);
  const float x18 = p1[66];
  a2 += (x16 * x18);
  const float x19 = p0[10];
  a3 += (x19 * x17);
  a5 += (x19 * x18);
  const float x20 = p0[5];
  const vec2 x21 = LD2(p1 + 80);
  a0 += (x20 * x21);
  const float x22 = p1[82];
  a2 += (x20 * x22);
  const float x23 = p0[11];
  a3 += (x23 * x21);
  a5 += (x23 * x22);
  ST2(p2 + 0, a0);
  p2[2] = a2;
  ST2(p2 + 19, a3);
  p2[21] = a5;
}
LEAF tile3(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec2 a0;
  float a2;
  a0 = splat2(0.0f);
  a2 = 0.0f;
  const float x0 = p0[0];
  const vec2 x1 = LD2(p1 + 0);
  a0 += (x0 * x1);
  const float x2 = p1[2];
  a2 += (x0 * x2);
  const float x3 = p0[1];
  const vec2 x4 = LD2(p1 + 16);
  a0 += (x3 * x4);
  const float x5 = p1[18];
  a2 += (x3 * x5);
  const float x6 = p0[2];
  const vec2 x7 = LD2(p1 + 32);
  a0 += (x6 * x7);
  const float x8 = p1[34];
  a2 += (x6 * x8);
  const float x9 = p0[3];
  const vec2 x10 = LD2(p1 + 48);
  a0 += (x9 * x10);
  const float x11 = p1[50];
  a2 += (x9 * x11);
  const float x12 = p0[4];
  const vec2 x13 = LD2(p1 + 64);
  a0 += (x12 * x13);
  const float x14 = p1[66];
  a2 += (x12 * x14);
  const float x15 = p0[5];
  const vec2 x16 = LD2(p1 + 80);
  a0 += (x15 * x16);
  const float x17 = p1[82];
  a2 += (x15 * x17);
  ST2(p2 + 0, a0);
  p2[2] = a2;
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
    for (long v1 = 0; v1 < 6; ++v1) {
      ST8(b3 + 96*v0 + 16*v1, LD8(b1 + 16*v0 + 19*v1));
      ST8(b3 + 96*v0 + 16*v1 + 8, LD8(b1 + 16*v0 + 19*v1 + 8));
    }
  }
  for (long t = begin > 1 ? begin : 1; t < (end < 2 ? end : 2); ++t) {
    long r = t - 1;
    const long v3 = r % 1; r /= 1;
    for (long v4 = 0; v4 < 6; ++v4) {
      ST2(b3 + 96*v3 + 16*v4 + 96, LD2(b1 + 16*v3 + 19*v4 + 16));
      b3[96*v3 + 16*v4 + 98] = b1[16*v3 + 19*v4 + 18];
    }
  }
}
void autotune_compute(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  float *const b3 = buffers[3];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v6 = r % 1; r /= 1;
    for (long v7 = 0; v7 < 2; ++v7) {
      tile0(b0 + 12*v7, b3 + 0, b2 + 38*v7);
    }
    tile1(b0 + 24, b3 + 0, b2 + 76);
  }
  for (long t = begin > 1 ? begin : 1; t < (end < 2 ? end : 2); ++t) {
    long r = t - 1;
    const long v24 = r % 1; r /= 1;
    for (long v25 = 0; v25 < 2; ++v25) {
      tile2(b0 + 12*v25, b3 + 96, b2 + 38*v25 + 16);
    }
    tile3(b0 + 24, b3 + 96, b2 + 92);
  }
}
