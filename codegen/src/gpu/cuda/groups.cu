static __device__ __forceinline__ int of_warp(int number) { return __shfl_sync(~0u, number, 0); }
static __device__ __forceinline__ unsigned long long matrix(const void *at) {
  const unsigned long long rows_of_eight = 1024 >> 4, swizzle_of_128_bytes = 1;
  return (in_shared(at) & 0x3ffff) >> 4 | 1ull << 16 | rows_of_eight << 32 | swizzle_of_128_bytes << 62;
}
static __device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int BUT>
static __device__ __forceinline__ void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUT) : "memory"); }
// Keeps the compiler from moving accesses to the sums across this point.
template <int SUMS>
static __device__ __forceinline__ void fence_sums(float (&sums)[SUMS]) {
  #pragma unroll
  for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
