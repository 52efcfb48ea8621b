// Keeps a condition at its place: the compiler would evaluate those of all unrolled iterations before a loop.
static __device__ __forceinline__ bool is_clear(unsigned word, unsigned bits) {
  asm volatile("" : "+r"(word));
  return (word & bits) == 0;
}
// Keeps a distance in 32 bits: the compiler would add up its terms in 64.
template <typename T>
static __device__ __forceinline__ const T *ahead(const T *from, int distance) {
  asm("" : "+r"(distance));
  return from + distance;
}
template <int BYTES>
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
  const SharedAddress at = in_shared(to);
  const int bytes = there ? BYTES : 0;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int BUT>
static __device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory"); }
