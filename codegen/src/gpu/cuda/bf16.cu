static __device__ __forceinline__ float from_bf16(unsigned bits) { return __uint_as_float(bits << 16); }
static __device__ __forceinline__ unsigned to_bf16(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
