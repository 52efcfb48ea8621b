// Runs generated CUDA C on the CPU, for checking: every thread is a fibre, and what takes assembly on a GPU is emulated.
//
// Nothing is done before it must be: the warps run one after the other, each as far as it gets without the others, forwards or
// backwards; a copy that may be under way destroys what it will overwrite at once and arrives when it is awaited, and warp groups
// multiply no earlier than they await that. Shared memory begins as numbers that are none. So a barrier that is missing, or a slot
// that is used at the wrong time, shows in the result.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class To, class From>
static To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static float from_f16(unsigned x) { return bits<_Float16>((uint16_t)x); }
static unsigned to_f16(float x) { return bits<uint16_t>((_Float16)x); }
static float from_bf16(unsigned x) { return __uint_as_float(x << 16); }
static unsigned to_bf16(float x) {
  const unsigned word = __float_as_uint(x);
  return x != x ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
static unsigned to_tf32(unsigned x) { return (x & 0x7f800000) == 0x7f800000 ? x : (x + 0x1000) & ~0x1fffu; }
static float power_of_two(float x) { return exp2f(x); }
// The larger number; NaN of both kinds only if both are. C libraries return NaN for signalling ones.
static float larger(float a, float b) { return a < b || a != a ? b : a; }
#define fmaxf larger
static unsigned pair(unsigned low, unsigned high) { return low | high << 16; }
static unsigned pair_f16(float low, float high) { return pair(to_f16(low), to_f16(high)); }
static unsigned pair_bf16(float low, float high) { return pair(to_bf16(low), to_bf16(high)); }

struct Copy {
  char *to;
  char value[16];
  int bytes;
};

struct Product {
  float *sums;
  const char *rows, *columns;
};

// An mbarrier: arrivals that are missing from its phase, and copies that the phase waits for, too.
struct Arrival {
  int count, missing;
  unsigned phase;
  std::vector<Copy> copies;
  // Ends the phase if all have arrived; the copies do at the latest now.
  bool passes(unsigned parity) {
    if ((phase & 1) == parity && missing == 0) end();
    return (phase & 1) != parity;
  }
  void end() {
    for (const Copy &copy : copies) memcpy(copy.to, copy.value, copy.bytes);
    copies.clear();
    missing = count;
    ++phase;
  }
};

enum State { READY, AT_WARP, AT_ARRIVAL, AT_BARRIER, DONE };

struct Fibre {
  ucontext_t context;
  struct { unsigned x; } index;
  State state;
  // What it hands to the operation of its warp.
  void *operands[3];
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  std::vector<Product> products;
  std::deque<std::vector<Product>> product_groups;
  // The phase that it awaits.
  Arrival *awaits;
  unsigned parity;
};

static struct { unsigned x; } blockIdx;
static std::vector<Fibre> fibres;
static Fibre *current;
static ucontext_t scheduler;
static char failure[256];
static void (*warp_operation)(Fibre *lanes);
#define threadIdx (current->index)

static void fail(const char *what) {
  if (!*failure) snprintf(failure, sizeof failure, "block %u, thread %u: %s", blockIdx.x, current->index.x, what);
}

static void wait(State state) {
  Fibre *self = current;
  self->state = state;
  swapcontext(&self->context, &scheduler);
}

static void __syncthreads() { wait(AT_BARRIER); }

// The last lane of a team to come by does the work of all.
static void together(void (*operation)(Fibre *), void *x, void *y, void *z, int team = 32) {
  current->operands[0] = x;
  current->operands[1] = y;
  current->operands[2] = z;
  Fibre *lanes = &fibres[current->index.x / team * team];
  for (int lane = 0; lane < team; ++lane)
    if (&lanes[lane] != current && lanes[lane].state == AT_WARP && warp_operation != operation)
      return fail("lanes of a warp do different things");
  warp_operation = operation;
  for (int lane = 0; lane < team; ++lane)
    if (&lanes[lane] != current && lanes[lane].state != AT_WARP) return wait(AT_WARP);
  operation(lanes);
  for (int lane = 0; lane < team; ++lane) lanes[lane].state = READY;
}

template <bool TRANSPOSED>
static void load_four(Fibre *lanes) {
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int lane = 0; lane < 32; ++lane) {
      auto row = [&](int number) { return (const uint16_t *)lanes[8 * matrix + number].operands[1]; };
      const int group = lane / 4, place = 2 * (lane % 4);
      const unsigned low = TRANSPOSED ? row(place)[group] : row(group)[place];
      const unsigned high = TRANSPOSED ? row(place + 1)[group] : row(group)[place + 1];
      ((unsigned *)lanes[lane].operands[0])[matrix] = pair(low, high);
    }
}
typedef const char *SharedAddress;
static SharedAddress in_shared(const void *at) { return (const char *)at; }
template <typename T>
static const T *kept(const T *at) {
  return at;
}
static void load_matrices(unsigned *to, SharedAddress from) {
  if ((uintptr_t)from % 16) fail("a row of a matrix that is not aligned");
  together(load_four<false>, to, (void *)from, nullptr);
}
static void load_matrices_transposed(unsigned *to, SharedAddress from) {
  if ((uintptr_t)from % 16) fail("a row of a matrix that is not aligned");
  together(load_four<true>, to, (void *)from, nullptr);
}

// PTX ISA, "Matrix Fragments for mma.m16n8k8" and "for mma.m16n8k16": the k-th value of a row or column of an operand whose
// registers hold `PER_WORD` values each. A half of an instruction's steps is 4 words.
template <int PER_WORD, float (*VALUE)(unsigned)>
static float element(Fibre *lanes, int operand, int line, int k, int registers_of_half) {
  const int word = k / PER_WORD, half = word / 4;
  const unsigned *held = (unsigned *)lanes[line % 8 * 4 + word % 4].operands[operand];
  const unsigned found = held[line / 8 + half * registers_of_half];
  return VALUE(PER_WORD == 1 ? found : found >> 16 * (k % PER_WORD) & 0xffff);
}
template <int PER_WORD, float (*VALUE)(unsigned)>
static void multiply(Fibre *lanes) {
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float *sum = (float *)lanes[row % 8 * 4 + column / 2].operands[0] + row / 8 * 2 + column % 2;
      for (int k = 0; k < 8 * PER_WORD; ++k)
        *sum += element<PER_WORD, VALUE>(lanes, 1, row, k, 2) * element<PER_WORD, VALUE>(lanes, 2, column, k, 1);
    }
}
static void mma_f16(float *sums, unsigned *a, unsigned *b) { together(multiply<2, from_f16>, sums, a, b); }
static void mma_bf16(float *sums, unsigned *a, unsigned *b) { together(multiply<2, from_bf16>, sums, a, b); }
static float from_tf32(unsigned x) { return __uint_as_float(x & ~0x1fffu); }
static void mma_tf32(float *sums, unsigned *a, unsigned *b) { together(multiply<1, from_tf32>, sums, a, b); }

static bool is_clear(unsigned word, unsigned bits) { return (word & bits) == 0; }
template <typename T>
static const T *ahead(const T *from, int distance) {
  return from + distance;
}
template <int BYTES>
static void copy_async(void *to, const void *from, bool there) {
  if ((uintptr_t)to % BYTES || (there && (uintptr_t)from % BYTES)) fail("a copy that is not aligned");
  Copy copy = {(char *)to, {}, BYTES};
  if (there) memcpy(copy.value, from, BYTES);
  memset(to, 0xff, BYTES);
  current->open.push_back(copy);
}
static void end_group() {
  current->groups.push_back(std::move(current->open));
  current->open.clear();
}
template <int BUT>
static void await_copies() {
  for (; current->groups.size() > BUT; current->groups.pop_front())
    for (const Copy &copy : current->groups.front()) memcpy(copy.to, copy.value, copy.bytes);
}

// Boxes of a matrix, and instructions of warp groups that read them: rows of 128 bytes, whose parts of 16 bytes are swapped
// by the three bits of the address above them.
struct TensorMap {
  const uint16_t *base;
  int rows, columns, box_rows, box_columns;
};
static std::map<const void *, Arrival> arrivals_of_block;
static char *swizzled(const void *at) {
  const uintptr_t address = (uintptr_t)at;
  return (char *)(address ^ (address >> 7 & 7) << 4);
}
static Arrival *arrival_at(const void *at) {
  auto found = arrivals_of_block.find(at);
  if (found == arrivals_of_block.end()) return fail("an arrival that has not begun"), &arrivals_of_block[at];
  return &found->second;
}
static void arrive(unsigned long long *at) {
  Arrival *arrival = arrival_at(at);
  if (arrival->missing == 0) arrival->end();
  --arrival->missing;
}
static void begin_arrivals(unsigned long long *arrivals, int slots, unsigned long long *releases, int warps) {
  if ((uintptr_t)arrivals % 1024) fail("shared memory that is not aligned");
  if (threadIdx.x == 0)
    for (int i = 0; i < slots; ++i) {
      arrivals_of_block[arrivals + i] = {1, 1};
      if (warps > 0) arrivals_of_block[releases + i] = {warps, warps};
    }
  __syncthreads();
}
static void copy_box(const TensorMap *map, void *to, int column, int row, unsigned long long *at, int bytes) {
  if ((uintptr_t)to % 1024) fail("a box that is not aligned");
  if (bytes != 2 * map->box_rows * map->box_columns) fail("a box of another size than its map's");
  Arrival *arrival = arrival_at(at);
  if (arrival->missing == 0) arrival->end();
  for (int r = 0; r < map->box_rows; ++r)
    for (int c = 0; c < map->box_columns; c += 8) {
      Copy copy = {swizzled((char *)to + 128 * r + 2 * c), {}, 16};
      for (int i = 0; i < 8; ++i)
        if (row + r < map->rows && column + c + i < map->columns)
          memcpy(copy.value + 2 * i, map->base + (long)(row + r) * map->columns + column + c + i, 2);
      memset(copy.to, 0xff, 16);
      arrival->copies.push_back(copy);
    }
}
static void end_boxes(unsigned long long *at) { arrive(at); }
static void await_boxes(unsigned long long *arrivals, int slots, int &awaited, int until) {
  for (; awaited < until; ++awaited) {
    current->awaits = arrival_at(arrivals + awaited % slots);
    current->parity = awaited / slots & 1;
    while (!current->awaits->passes(current->parity)) wait(AT_ARRIVAL);
  }
}
static void release_boxes(unsigned long long *releases, int slots, int &released, int until) {
  for (; released < until; ++released)
    if (threadIdx.x % 32 == 0) arrive(releases + released % slots);
}
template <int REGISTERS>
static void fewer_registers() {}
template <int REGISTERS>
static void more_registers() {}
static int of_warp(int number) { return number; }

// PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", for the oldest products of a warp group. They are done no earlier
// than they are awaited. The sums of a row of 8 times RUN columns lie together.
template <int COLUMNS, int RUN, float (*VALUE)(unsigned)>
static void multiply_group(Fibre *lanes) {
  auto value = [](const char *line, int number, int k) {
    return VALUE(*(const uint16_t *)swizzled(line + 128 * number + 2 * k));
  };
  for (size_t product = 0; product < lanes[0].product_groups.front().size(); ++product)
    for (int lane = 0; lane < 128; ++lane) {
      const Product &own = lanes[lane].product_groups.front()[product];
      for (int sum = 0; sum < COLUMNS / 2; ++sum) {
        const int row = lane / 32 * 16 + lane % 32 / 4 + sum / 2 % 2 * 8, column = sum / 4 * 8 + lane % 4 * 2 + sum % 2;
        const int place = (sum / 4 / RUN * 2 + sum / 2 % 2) * 2 * RUN + sum / 4 % RUN * 2 + sum % 2;
        for (int k = 0; k < 16; ++k) own.sums[place] += value(own.rows, row, k) * value(own.columns, column, k);
      }
    }
  for (int lane = 0; lane < 128; ++lane) lanes[lane].product_groups.pop_front();
}
static void (*group_operation)(Fibre *);
static unsigned long long matrix(const void *at) {
  if ((uintptr_t)at % 1024) fail("a matrix that is not aligned");
  return (uintptr_t)at / 16;
}
template <int COLUMNS, int RUN, float (*VALUE)(unsigned)>
static void group_product(float *sums, unsigned long long rows, unsigned long long columns) {
  group_operation = multiply_group<COLUMNS, RUN, VALUE>;
  current->products.push_back({sums, (const char *)(rows * 16), (const char *)(columns * 16)});
}
// Templates, so that only those are built that are called.
#define GROUP(n, run)                                                                      \
  template <int = 0>                                                                       \
  void group_f16_n##n##x##run(float *sums, unsigned long long a, unsigned long long b) {   \
    group_product<n, run, from_f16>(sums, a, b);                                           \
  }                                                                                        \
  template <int = 0>                                                                       \
  void group_bf16_n##n##x##run(float *sums, unsigned long long a, unsigned long long b) {  \
    group_product<n, run, from_bf16>(sums, a, b);                                          \
  }
GROUP(16, 2) GROUP(32, 4) GROUP(48, 2) GROUP(64, 4) GROUP(80, 2) GROUP(96, 4) GROUP(112, 2) GROUP(128, 4)
GROUP(144, 2) GROUP(160, 4) GROUP(176, 2) GROUP(192, 4) GROUP(208, 2) GROUP(224, 4) GROUP(240, 2) GROUP(256, 4)
static void begin_products() {}
static void end_products() {
  current->product_groups.push_back(std::move(current->products));
  current->products.clear();
}
template <int BUT>
static void await_products() {
  while (current->product_groups.size() > BUT) together(group_operation, nullptr, nullptr, nullptr, 128);
}

template <int SUMS>
static void fence_sums(float (&)[SUMS]) {
  if (!current->products.empty() || !current->product_groups.empty()) fail("sums that products still add to");
}

typedef void (*Kernel)(void **buffers);
static Kernel running;
static void **arguments;

static void begin() {
  running(arguments);
  current->state = DONE;
  swapcontext(&current->context, &scheduler);
}

template <class Type>
struct Argument {
  static Type of(void *buffer) { return (Type)buffer; }
};
template <>
struct Argument<TensorMap> {
  static TensorMap of(void *map) { return *(TensorMap *)map; }
};
template <class... Types, size_t... I>
static void call(void (*kernel)(Types...), void **buffers, std::index_sequence<I...>) {
  kernel(Argument<Types>::of(buffers[I])...);
}
template <class... Types>
static void call(void (*kernel)(Types...), void **buffers) {
  call(kernel, buffers, std::index_sequence_for<Types...>());
}

// Runs the lanes of a warp while one of them can go on; false after a failure.
static bool run_warp(unsigned warp, bool &any) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 32 * warp; i < 32 * warp + 32 && i < fibres.size(); ++i)
      while (fibres[i].state == READY || (fibres[i].state == AT_ARRIVAL && fibres[i].awaits->passes(fibres[i].parity))) {
        fibres[i].state = READY;
        current = &fibres[i];
        any = again = true;
        swapcontext(&scheduler, &current->context);
        if (*failure) return false;
      }
  }
  return true;
}

static bool run_block(unsigned threads, bool backwards, std::vector<char> &stacks, size_t stack_bytes) {
  fibres = std::vector<Fibre>(threads);
  arrivals_of_block.clear();
  for (unsigned i = 0; i < threads; ++i) {
    Fibre &fibre = fibres[i];
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = &stacks[i * stack_bytes];
    fibre.context.uc_stack.ss_size = stack_bytes;
    fibre.context.uc_link = nullptr;
    fibre.index.x = i;
    makecontext(&fibre.context, begin, 0);
  }
  for (;;) {
    // Warp by warp, and warp group by warp group, as far as they get.
    const unsigned groups = (threads + 127) / 128;
    bool moved = false;
    for (unsigned turn = 0; turn < groups; ++turn) {
      const unsigned group = backwards ? groups - 1 - turn : turn;
      for (bool any = true; any; moved = moved || any) {
        any = false;
        for (unsigned next = 0; next < 4; ++next) {
          if (!run_warp(4 * group + (backwards ? 3 - next : next), any)) return false;
        }
      }
    }
    unsigned done = 0, waiting = 0;
    for (Fibre &fibre : fibres) {
      done += fibre.state == DONE;
      waiting += fibre.state == AT_BARRIER;
    }
    if (done == threads) return true;
    if (waiting == threads) {
      for (Fibre &fibre : fibres) fibre.state = READY;
    } else if (!moved) {
      return fail("threads wait for others that do not come"), false;
    }
  }
}

// Runs a kernel; what is wrong, or null.
static const char *run_grid(Kernel kernel, void **buffers, unsigned blocks, unsigned threads, unsigned char *shared,
                            size_t shared_bytes, bool backwards) {
  const size_t stack_bytes = 64 << 10;
  static std::vector<char> stacks;
  stacks.resize(threads * stack_bytes);
  *failure = 0;
  running = kernel;
  arguments = buffers;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    memset(shared, 0xff, shared_bytes);
    if (!run_block(threads, backwards, stacks, stack_bytes)) return failure;
  }
  return nullptr;
}
