static __device__ __forceinline__ float from_bf16(unsigned bits) { return __uint_as_float(bits << 16); }
static __device__ __forceinline__ unsigned to_bf16(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
static __device__ __forceinline__ unsigned pair_bf16(float low, float high) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
