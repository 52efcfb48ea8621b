// What CUDA C finds on the stub of a CUDA device: every kernel that libnvrtc's stub compiles begins with this.
//
// The engine, which runs threads as fibres and emulates what generated kernels take assembly for, is that of cuda_shim.h. Here is what
// other kernels use beside it, and what libcuda's stub calls to run one.
#include "cuda_shim.h"

#include <cmath>
#include <type_traits>

// Kernels have the names that they are looked up by. An array in shared memory is one for all threads, as blocks run one after the
// other; libnvrtc's stub writes `extern __shared__` as `extern __dynamic_shared__`.
#undef __global__
#define __global__
#undef __shared__
#define __shared__ static
#define __dynamic_shared__
#define __restrict__ __restrict

// The most that a block of an H100 has.
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
// A call of the library's takes many times as long as a product and a sum.
static float multiply_add(float a, float b, float c) { return a * b + c; }
#define fmaf multiply_add
static size_t __cvta_generic_to_shared(const void *at) { return (size_t)at; }
static void __threadfence() {}
static void __trap() { fail("a trap"); }

// Assembly that nobody checks the result of takes time and does nothing: one thread of a warp group spends some for each letter of it.
static volatile unsigned spent;
static void instruction(unsigned letters) {
  if (threadIdx.x % 128 == 0)
    for (unsigned i = 0; i < 2 * letters; ++i) spent = i;
}
#define asm
#define volatile(...) instruction(sizeof #__VA_ARGS__)

// A kernel by its name, with the sizes of its parameters; the last has none.
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

// Runs threads that never wait, without fibres.
static void run_alone(Kernel kernel, void **values, unsigned blocks, unsigned threads) {
  *failure = 0;
  fibres = std::vector<Fibre>(1);
  current = &fibres[0];
  bool begun = false;
  getcontext(&scheduler);
  // One that waits all the same comes out here.
  if (*(volatile bool *)&begun) return fail("a thread waits in a kernel that seemed to have no barrier");
  *(volatile bool *)&begun = true;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (current->index.x = 0; current->index.x < threads; ++current->index.x) kernel(values);
}

// What is wrong, or null.
static const char *run(const Entry *entry, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes, bool waits) {
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  if (waits) return run_grid(entry->kernel, values, blocks, threads, shared, shared_bytes, false);
  run_alone(entry->kernel, values, blocks, threads);
  return *failure ? failure : nullptr;
}
