template <int REGISTERS>
static __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
template <int REGISTERS>
static __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
static __device__ __forceinline__ void release_boxes(unsigned long long *releases, int slots, int &released, int until) {
  #pragma unroll 1
  for (; released < until; ++released)
    if (threadIdx.x % 32 == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(in_shared(releases + released % slots)) : "memory");
}
