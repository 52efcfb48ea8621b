// Device side of the CUDA stub. Every kernel that the NVRTC stub compiles includes this file first.
//
// cuda_shim.h runs threads as fibres and emulates the assembly of generated kernels. This file adds what
// other kernels use, and the function with which the driver stub runs a kernel.
#include "cuda_shim.h"

#include <cmath>
#include <type_traits>

// Kernels keep their names, by which the driver looks them up. A shared array is one static array, because
// blocks run one after another. The NVRTC stub replaces `extern __shared__` by `extern __dynamic_shared__`.
#undef __global__
#define __global__
#undef __shared__
#define __shared__ static
#define __dynamic_shared__
#define __restrict__ __restrict

// Largest shared memory of a block on an H100.
alignas(1024) static unsigned char shared[227 << 10];

struct Extent { unsigned x, y, z; };
static Extent gridDim, blockDim;

template <class Type> struct Same { typedef Type type; };
template <class Type>
static Type atomicAdd(Type *at, typename Same<Type>::type value) {
  const Type old = *at;
  *at = old + value;
  return old;
}
template <class Type>
static Type atomicMax(Type *at, typename Same<Type>::type value) {
  const Type old = *at;
  if (value > old) *at = value;
  return old;
}
template <class Type>
static Type min(Type a, typename Same<Type>::type b) { return b < a ? b : a; }
template <class Type>
static Type max(Type a, typename Same<Type>::type b) { return a < b ? b : a; }
// A call of the C library's fmaf takes many times as long as a product and a sum.
static float multiply_add(float a, float b, float c) { return a * b + c; }
#define fmaf multiply_add
static size_t __cvta_generic_to_shared(const void *at) { return (size_t)at; }
static void __threadfence() {}
static void __trap() { fail("a trap"); }

// Assembly whose result is not checked (in the ceilings' kernels) only takes time: one thread of each warp
// group spends some per character of the instruction.
static volatile unsigned spent;
static void instruction(unsigned letters) {
  if (threadIdx.x % 128 == 0)
    for (unsigned i = 0; i < 2 * letters; ++i) spent = i;
}
#define asm
#define volatile(...) instruction(sizeof #__VA_ARGS__)

// Entry of the table of kernels, with the sizes of the parameters; the last entry has no name.
struct Entry {
  const char *name;
  Kernel kernel;
  unsigned parameters;
  const unsigned *bytes;
};
template <class... Types>
struct Sizes { static constexpr unsigned bytes[] = {sizeof(Types)..., 0}; };
template <class... Types>
static constexpr unsigned parameters(void (*)(Types...)) { return sizeof...(Types); }
template <class... Types>
static constexpr const unsigned *sizes(void (*)(Types...)) { return Sizes<Types...>::bytes; }
template <class... Types, size_t... I>
static void call_values(void (*kernel)(Types...), void **values, std::index_sequence<I...>) {
  kernel(*(Types *)values[I]...);
}
template <class... Types>
static void call_values(void (*kernel)(Types...), void **values) {
  call_values(kernel, values, std::index_sequence_for<Types...>());
}
#define ENTRY(name) {#name, [](void **values) { call_values(name, values); }, parameters(name), sizes(name)},

// Runs a kernel whose threads never wait for one another, without a fibre per thread.
static void run_alone(Kernel kernel, void **values, unsigned blocks, unsigned threads) {
  *failure = 0;
  fibres = std::vector<Fibre>(1);
  current = &fibres[0];
  bool begun = false;
  getcontext(&scheduler);
  // A thread that waits nevertheless returns to the scheduler, which is here.
  if (*(volatile bool *)&begun) return fail("a thread waits in a kernel that seemed to have no barrier");
  *(volatile bool *)&begun = true;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (current->index.x = 0; current->index.x < threads; ++current->index.x) kernel(values);
}

// Runs a kernel. Returns an error message, or null.
static const char *run(const Entry *entry, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes, bool waits) {
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  if (waits) return run_grid(entry->kernel, values, blocks, threads, shared, shared_bytes, false);
  run_alone(entry->kernel, values, blocks, threads);
  return *failure ? failure : nullptr;
}
