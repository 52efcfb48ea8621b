struct __align__(64) TensorMap {
  unsigned long long words[16];
};
static __device__ __forceinline__ void begin_arrivals(unsigned long long *arrivals, int slots, unsigned long long *releases, int warps) {
  // The mbarriers follow whole boxes, so their address is a multiple of 1024 if shared memory is aligned as boxes require. Assembly
  // hides the address from the compiler, which would take the declared alignment for granted and remove the check.
  unsigned start;
  asm volatile("mov.u32 %0, %1;" : "=r"(start) : "r"(in_shared(arrivals)));
  if (start % 1024 != 0) __trap();
  if (threadIdx.x == 0) {
    for (int i = 0; i < slots; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(in_shared(arrivals + i)) : "memory");
      if (warps > 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(in_shared(releases + i)), "r"(warps) : "memory");
    }
    // Makes the mbarriers visible to other threads, and to the copy engine.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
static __device__ __forceinline__ bool has_passed(unsigned arrival, int parity) {
  int passed;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(arrival), "r"(parity)
               : "memory");
  return passed;
}
// With AUTOTUNE_CHECKED, a wait of more than 2^28 clocks (0.15 s at 1.8 GHz) traps.
static __device__ __forceinline__ void await_boxes(unsigned long long *arrivals, int slots, int &awaited, int until) {
  #pragma unroll 1
  for (; awaited < until; ++awaited) {
    const unsigned arrival = in_shared(arrivals + awaited % slots);
    const int parity = awaited / slots & 1;
#ifdef AUTOTUNE_CHECKED
    const long long start = clock64();
#endif
    while (!has_passed(arrival, parity)) {
#ifdef AUTOTUNE_CHECKED
      if (clock64() - start > 1ll << 28) __trap();
#endif
    }
  }
}
