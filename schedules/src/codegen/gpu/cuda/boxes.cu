struct __align__(64) TensorMap {
  unsigned long long words[16];
};
static __device__ __forceinline__ unsigned in_shared(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }
static __device__ __forceinline__ void begin_arrivals(unsigned long long *arrivals, int slots, unsigned long long *releases, int warps) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < slots; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(in_shared(arrivals + i)) : "memory");
      if (warps > 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(in_shared(releases + i)), "r"(warps) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}
static __device__ __forceinline__ void copy_box(const TensorMap *map, void *to, int column, int row, unsigned long long *arrival, int bytes) {
  const unsigned at = in_shared(arrival);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          in_shared(to)),
      "l"(map), "r"(column), "r"(row), "r"(at)
      : "memory");
}
static __device__ __forceinline__ void end_boxes(unsigned long long *arrival) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(in_shared(arrival)) : "memory");
}
static __device__ __forceinline__ void await_boxes(unsigned long long *arrivals, int slots, int &awaited, int until) {
  #pragma unroll 1
  for (; awaited < until; ++awaited)
    asm volatile(
        "{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }" ::"r"(
            in_shared(arrivals + awaited % slots)),
        "r"(awaited / slots & 1)
        : "memory");
}
