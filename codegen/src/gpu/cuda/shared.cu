// Address in shared memory, in bytes.
typedef unsigned SharedAddress;
static __device__ __forceinline__ SharedAddress in_shared(const void *at) { return (SharedAddress)__cvta_generic_to_shared(at); }
// Keeps an address in registers: the compiler would compute it again in each iteration of a loop.
static __device__ __forceinline__ SharedAddress kept(SharedAddress at) {
  asm volatile("" : "+r"(at));
  return at;
}
template <typename T>
static __device__ __forceinline__ const T *kept(const T *at) {
  asm volatile("" : "+l"(at));
  return at;
}
