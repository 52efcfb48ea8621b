LEAF tile0(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  a0 = splat8(0.0f);
  a8 = splat8(0.0f);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 0) + 65536), 0, 2);
  const float x0 = p1[0];
  const vec8 x1 = LD8(p0 + 0);
  a0 += (x0 * x1);
  const float x2 = p1[4096];
  a8 += (x2 * x1);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 4096) + 65536), 0, 2);
  const float x3 = p1[1];
  const vec8 x4 = LD8(p0 + 4096);
  a0 += (x3 * x4);
  const float x5 = p1[4097];
  a8 += (x5 * x4);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 8192) + 65536), 0, 2);
  const float x6 = p1[2];
  const vec8 x7 = LD8(p0 + 8192);
  a0 += (x6 * x7);
  const float x8 = p1[4098];
  a8 += (x8 * x7);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p0 + 12288) + 65536), 0, 2);
  const float x9 = p1[3];
  const vec8 x10 = LD8(p0 + 12288);
  a0 += (x9 * x10);
  const float x11 = p1[4099];
  a8 += (x11 * x10);
  ST8(p2 + 0, a0);
  ST8(p2 + 4096, a8);
}
LEAF tile1(float *restrict p0, float *restrict p1, float *restrict p2) {
  vec8 a0;
  vec8 a8;
  a0 = LD8(p0 + 0);
  a8 = LD8(p0 + 4096);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p1 + 0) + 65536), 0, 2);
  const float x0 = p2[0];
  const vec8 x1 = LD8(p1 + 0);
  a0 += (x0 * x1);
  const float x2 = p2[4096];
  a8 += (x2 * x1);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p1 + 4096) + 65536), 0, 2);
  const float x3 = p2[1];
  const vec8 x4 = LD8(p1 + 4096);
  a0 += (x3 * x4);
  const float x5 = p2[4097];
  a8 += (x5 * x4);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p1 + 8192) + 65536), 0, 2);
  const float x6 = p2[2];
  const vec8 x7 = LD8(p1 + 8192);
  a0 += (x6 * x7);
  const float x8 = p2[4098];
  a8 += (x8 * x7);
  __builtin_prefetch((const void *)((__UINTPTR_TYPE__)(p1 + 12288) + 65536), 0, 2);
  const float x9 = p2[3];
  const vec8 x10 = LD8(p1 + 12288);
  a0 += (x9 * x10);
  const float x11 = p2[4099];
  a8 += (x11 * x10);
  ST8(p0 + 0, a0);
  ST8(p0 + 4096, a8);
}
void autotune_compute(float *const *buffers, char *local, long begin, long end) {
  float *const b0 = buffers[0];
  float *const b1 = buffers[1];
  float *const b2 = buffers[2];
  (void)local;
  for (long t = begin > 0 ? begin : 0; t < (end < 1 ? end : 1); ++t) {
    long r = t - 0;
    const long v0 = r % 1; r /= 1;
    for (long v1 = 0; v1 < 512; ++v1) {
      tile0(b1 + 8*v1, b0 + 0, b2 + 8*v1);
    }
    for (long v9 = 0; v9 < 1022; ++v9) {
      for (long v10 = 0; v10 < 512; ++v10) {
        tile1(b2 + 8*v10, b1 + 16384*v9 + 8*v10 + 16384, b0 + 4*v9 + 4);
      }
    }
    for (long v18 = 0; v18 < 512; ++v18) {
      tile1(b2 + 8*v18, b1 + 8*v18 + 16760832, b0 + 4092);
    }
  }
}
