// Stub of the CUDA driver with one device, which is the CPU. It runs kernels built by the NVRTC stub,
// synchronously and in order.
//
// The linker's version script selects the functions that the library exports. Environment variables configure
// the device and its faults. STUB_CUDA_FAULT is "function:nth:code": the function may be * for any, and an nth
// of 3+ means the third and every later call. Two options may follow:
// - ":sticky": all later calls fail, too, as after an illegal access;
// - ":once=FILE": the fault occurs only in the process that creates the file.
// STUB_CUDA_FREE is the number of free bytes of device memory.
// STUB_CUDA_TRACE names a file to which every call appends a line.
#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

#include "faults.h"
#include "image.h"
#include "results.h"

static std::recursive_mutex lock;
// Sticky error of the context.
static int broken;

// Starts every call: traces it and returns the error with which it fails, if any.
static int enter(const char *function) {
  static Fault fault;
  static const std::string trace = variable("STUB_CUDA_TRACE", "");
  if (!trace.empty()) std::ofstream(trace, std::ios::app) << getpid() << " " << function << "\n";
  if (fault.strikes(function)) {
    while (fault.code < 0) pause();
    if (fault.sticky) broken = fault.code;
    return fault.code;
  }
  return broken;
}
#define ENTER                                          \
  std::lock_guard<std::recursive_mutex> locked(lock);  \
  if (const int failed = enter(__func__)) return failed;

struct Context {};
static Context context;
static thread_local Context *bound;
#define IN_CONTEXT \
  ENTER            \
  if (!bound) return INVALID_CONTEXT;

typedef std::function<int()> Operation;
typedef std::vector<Operation> Graph;

struct Stream {
  bool captures = false, is_valid = false;
  Graph graph;
};
struct Event {
  bool timed = true, recorded = false;
  // Stream in whose capture the event was recorded.
  Stream *captured = nullptr;
  double ms = 0;
};
struct Function {
  const Entry *entry;
  Run *run;
  int shared_bytes;
};
struct Module {
  void *library = nullptr;
  std::map<std::string, Function> functions;
};

// The default stream cannot be captured.
static Stream default_stream;
static int captures;
static Stream *stream_of(void *stream) { return stream ? (Stream *)stream : &default_stream; }

// Returns the error of a call that is not allowed during a capture, and invalidates the stream's capture.
static int unsafe_while_capturing(Stream *stream = nullptr) {
  if (captures == 0) return SUCCESS;
  if (stream && stream->captures) stream->is_valid = false;
  return !stream || stream->captures ? CAPTURE_UNSUPPORTED : SUCCESS;
}

// Executes the operation, or adds it to the graph that the stream captures.
static int submit(void *handle, Operation operation) {
  Stream *stream = stream_of(handle);
  if (!stream->captures) return operation();
  if (!stream->is_valid) return CAPTURE_INVALIDATED;
  stream->graph.push_back(std::move(operation));
  return SUCCESS;
}

// Sizes of allocations by their addresses.
static std::map<uintptr_t, size_t> memory;
static size_t memory_bytes;
static bool is_within(uintptr_t at, size_t bytes) {
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}
static int allocate(uintptr_t *at, size_t bytes) {
  if (bytes == 0) return INVALID_VALUE;
  const size_t most = (size_t)number("STUB_CUDA_MEMORY_MIB", 4096) << 20;
  void *found = nullptr;
  if (bytes > most || memory_bytes + bytes > most || posix_memalign(&found, 256, bytes)) return OUT_OF_MEMORY;
  memory[(uintptr_t)found] = bytes;
  memory_bytes += bytes;
  *at = (uintptr_t)found;
  return SUCCESS;
}
static int release(uintptr_t at) {
  auto found = memory.find(at);
  if (found == memory.end()) return INVALID_VALUE;
  memory_bytes -= found->second;
  memory.erase(found);
  free((void *)at);
  return SUCCESS;
}

static thread_local sigjmp_buf out_of_kernel;
static void leave_kernel(int) { siglongjmp(out_of_kernel, 1); }

// Runs a grid. A fault of the kernel becomes the sticky error of the context.
static int run_grid(const Function &function, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes) {
  static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  // A kernel may have exhausted its stack, so the signal handler needs one of its own.
  static std::vector<char> stack(64 << 10);
  stack_t own = {}, former;
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  sigaltstack(&own, &former);
  struct sigaction caught = {}, kept[5];
  caught.sa_handler = leave_kernel;
  caught.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 5; ++i) sigaction(SIGNALS[i], &caught, &kept[i]);

  if (sigsetjmp(out_of_kernel, 1)) {
    broken = ILLEGAL_ADDRESS;
  } else if (const char *wrong = function.run(function.entry, values, blocks, threads, shared_bytes)) {
    fprintf(stderr, "stub of a CUDA device: %s: %s\n", function.entry->name, wrong);
    broken = LAUNCH_FAILED;
  }
  for (int i = 0; i < 5; ++i) sigaction(SIGNALS[i], &kept[i], nullptr);
  sigaltstack(&former, nullptr);
  return SUCCESS;
}

extern "C" {

int cuGetErrorName(int code, const char **name) {
  for (const auto &result : RESULTS)
    if (result.code == code) return *name = result.name, SUCCESS;
  return INVALID_VALUE;
}
int cuGetErrorString(int code, const char **words) {
  for (const auto &result : RESULTS)
    if (result.code == code) return *words = result.words, SUCCESS;
  return INVALID_VALUE;
}

// Functions of the device and its context.

int cuDriverGetVersion(int *version) {
  ENTER
  *version = number("STUB_CUDA_VERSION", 12040);
  return SUCCESS;
}
static int device_count() { return number("STUB_CUDA_DEVICES", 1); }
int cuInit(unsigned) {
  ENTER
  return device_count() ? SUCCESS : NO_DEVICE;
}
int cuDeviceGetCount(int *count) {
  ENTER
  *count = device_count();
  return SUCCESS;
}
int cuDeviceGet(int *device, int ordinal) {
  ENTER
  if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}
int cuDeviceGetName(char *name, int bytes, int) {
  ENTER
  snprintf(name, bytes, "%s", variable("STUB_CUDA_NAME", "Stub of an H100").c_str());
  return SUCCESS;
}
static int most_shared_bytes() { return number("STUB_CUDA_SHARED_KIB", 227) << 10; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
  ENTER
  const int sm = number("STUB_CUDA_SM", 90);
  switch (attribute) {
    case 1: *value = 1024; break;                                   // MAX_THREADS_PER_BLOCK
    case 8: *value = 48 << 10; break;                               // MAX_SHARED_MEMORY_PER_BLOCK
    case 10: *value = 32; break;                                    // WARP_SIZE
    case 12: case 82: *value = 64 << 10; break;                     // MAX_REGISTERS_PER_BLOCK, _PER_MULTIPROCESSOR
    case 16: *value = number("STUB_CUDA_MULTIPROCESSORS", 2); break;
    case 38: *value = number("STUB_CUDA_L2_KIB", 1024) << 10; break;
    case 39: *value = 2048; break;                                  // MAX_THREADS_PER_MULTIPROCESSOR
    case 75: *value = sm / 10; break;                               // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = sm % 10; break;                               // COMPUTE_CAPABILITY_MINOR
    case 81: *value = most_shared_bytes() + 1024; break;            // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    case 97: *value = most_shared_bytes(); break;                   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    case 115: *value = 1; break;                                    // MEMORY_POOLS_SUPPORTED
    default: *value = 0;
  }
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(Context **found, int) {
  ENTER
  *found = &context;
  return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  ENTER
  return SUCCESS;
}
int cuCtxGetCurrent(Context **found) {
  ENTER
  *found = bound;
  return SUCCESS;
}
int cuCtxSetCurrent(Context *now) {
  ENTER
  bound = now;
  return SUCCESS;
}
int cuCtxSynchronize() {
  IN_CONTEXT
  return SUCCESS;
}

// Functions of streams, events and graphs.

int cuStreamCreate(Stream **stream, unsigned) {
  IN_CONTEXT
  *stream = new Stream;
  return SUCCESS;
}
int cuStreamDestroy_v2(Stream *stream) {
  IN_CONTEXT
  if (stream->captures) --captures;
  delete stream;
  return SUCCESS;
}
int cuStreamSynchronize(Stream *stream) {
  IN_CONTEXT
  return unsafe_while_capturing(stream_of(stream));
}
int cuStreamBeginCapture_v2(Stream *stream, int) {
  IN_CONTEXT
  if (!stream) return CAPTURE_UNSUPPORTED;
  if (stream->captures) return INVALID_VALUE;
  *stream = Stream();
  stream->captures = stream->is_valid = true;
  ++captures;
  return SUCCESS;
}
int cuStreamEndCapture(Stream *stream, Graph **graph) {
  std::lock_guard<std::recursive_mutex> ending(lock);
  // The capture ends even if this call fails.
  const bool captured = stream && stream->captures;
  if (captured) {
    stream->captures = false;
    --captures;
  }
  *graph = nullptr;
  IN_CONTEXT
  if (!captured) return CAPTURE_UNMATCHED;
  if (!stream->is_valid) return CAPTURE_INVALIDATED;
  *graph = new Graph(std::move(stream->graph));
  return SUCCESS;
}
int cuGraphInstantiateWithFlags(Graph **instance, Graph *graph, unsigned long long) {
  IN_CONTEXT
  *instance = new Graph(*graph);
  return SUCCESS;
}
int cuGraphUpload(Graph *, Stream *) {
  IN_CONTEXT
  return SUCCESS;
}
int cuGraphLaunch(Graph *instance, Stream *stream) {
  IN_CONTEXT
  return submit(stream, [instance]() -> int {
    for (const Operation &operation : *instance)
      if (const int failed = broken ? broken : operation()) return failed;
    return SUCCESS;
  });
}
int cuGraphExecDestroy(Graph *instance) {
  IN_CONTEXT
  delete instance;
  return SUCCESS;
}
int cuGraphDestroy(Graph *graph) {
  IN_CONTEXT
  delete graph;
  return SUCCESS;
}

int cuEventCreate(Event **event, unsigned flags) {
  IN_CONTEXT
  *event = new Event;
  (*event)->timed = !(flags & 2);
  return SUCCESS;
}
int cuEventDestroy_v2(Event *event) {
  IN_CONTEXT
  delete event;
  return SUCCESS;
}
int cuEventRecord(Event *event, Stream *handle) {
  IN_CONTEXT
  Stream *stream = stream_of(handle);
  event->recorded = true;
  event->captured = stream->captures ? stream : nullptr;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->ms = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return SUCCESS;
}
int cuEventSynchronize(Event *event) {
  IN_CONTEXT
  return event->captured && event->captured->captures ? CAPTURE_UNSUPPORTED : SUCCESS;
}
int cuEventElapsedTime(float *ms, Event *start, Event *end) {
  IN_CONTEXT
  for (Event *event : {start, end})
    if (!event->timed || !event->recorded || event->captured) return INVALID_HANDLE;
  *ms = (float)(end->ms - start->ms);
  return SUCCESS;
}

// Functions of memory.

int cuMemAlloc_v2(uintptr_t *at, size_t bytes) {
  IN_CONTEXT
  if (const int failed = unsafe_while_capturing()) return failed;
  return allocate(at, bytes);
}
int cuMemAllocAsync(uintptr_t *at, size_t bytes, Stream *stream) {
  IN_CONTEXT
  if (const int failed = unsafe_while_capturing(stream_of(stream))) return failed;
  return allocate(at, bytes);
}
int cuMemGetInfo_v2(size_t *free, size_t *all) {
  IN_CONTEXT
  *all = (size_t)80 << 30;
  *free = std::stoull(variable("STUB_CUDA_FREE", "80000000000"));
  return SUCCESS;
}
int cuMemFree_v2(uintptr_t at) {
  IN_CONTEXT
  if (const int failed = unsafe_while_capturing()) return failed;
  return release(at);
}
int cuMemFreeAsync(uintptr_t at, Stream *stream) {
  IN_CONTEXT
  if (const int failed = unsafe_while_capturing(stream_of(stream))) return failed;
  return release(at);
}
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t bytes, Stream *stream) {
  IN_CONTEXT
  if (!is_within(to, bytes)) return INVALID_VALUE;
  return submit(stream, [=] { return memcpy((void *)to, from, bytes), SUCCESS; });
}
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t bytes, Stream *stream) {
  IN_CONTEXT
  if (!is_within(from, bytes)) return INVALID_VALUE;
  return submit(stream, [=] { return memcpy(to, (void *)from, bytes), SUCCESS; });
}
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream *stream) {
  IN_CONTEXT
  if (!is_within(to, bytes) || !is_within(from, bytes)) return INVALID_VALUE;
  return submit(stream, [=] { return memmove((void *)to, (void *)from, bytes), SUCCESS; });
}
int cuMemsetD32Async(uintptr_t to, unsigned value, size_t count, Stream *stream) {
  IN_CONTEXT
  if (!is_within(to, 4 * count)) return INVALID_VALUE;
  return submit(stream, [=] { return std::fill_n((unsigned *)to, count, value), SUCCESS; });
}

// Functions of modules and kernels.

int cuModuleLoadData(Module **module, const void *data) {
  IN_CONTEXT
  Image image;
  memcpy(&image, data, sizeof image);
  if (memcmp(image.magic, MAGIC, sizeof MAGIC)) return INVALID_IMAGE;
  const uint32_t sm = number("STUB_CUDA_SM", 90);
  if (image.major > (uint32_t)number("STUB_CUDA_VERSION", 12040) / 1000) return INVALID_IMAGE;
  if (image.sm / 10 != sm / 10 || image.sm > sm) return NO_BINARY_FOR_GPU;

  // The loader identifies libraries by their paths, so each one needs a temporary path of its own.
  std::string path = variable("TMPDIR", "/tmp") + "/kernel-XXXXXX";
  const int file = mkstemp(&path[0]);
  const char *code = (const char *)data + sizeof image;
  for (uint64_t written = 0; written < image.bytes;) {
    const ssize_t now = write(file, code + written, image.bytes - written);
    if (now <= 0) return close(file), unlink(path.c_str()), OUT_OF_MEMORY;
    written += now;
  }
  close(file);
  Module found;
  found.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  if (!found.library) return fprintf(stderr, "stub of a CUDA device: %s\n", dlerror()), INVALID_IMAGE;
  Run *run = (Run *)dlsym(found.library, "stub_run");
  for (const Entry *entry = (const Entry *)dlsym(found.library, "stub_kernels"); entry->name; ++entry)
    found.functions[entry->name] = {entry, run, 48 << 10};
  *module = new Module(found);
  return SUCCESS;
}
int cuModuleUnload(Module *module) {
  IN_CONTEXT
  dlclose(module->library);
  delete module;
  return SUCCESS;
}
int cuModuleGetFunction(Function **function, Module *module, const char *name) {
  IN_CONTEXT
  auto found = module->functions.find(name);
  if (found == module->functions.end()) return NOT_FOUND;
  *function = &found->second;
  return SUCCESS;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
  IN_CONTEXT
  if (attribute != 8) return attribute == 9 ? SUCCESS : INVALID_VALUE;
  if (value < 0 || value > most_shared_bytes()) return INVALID_VALUE;
  function->shared_bytes = value;
  return SUCCESS;
}
int cuLaunchKernel(Function *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, Stream *stream, void **values, void **) {
  IN_CONTEXT
  if (blocks == 0 || threads == 0 || threads > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1) return INVALID_VALUE;
  if (shared_bytes > (unsigned)function->shared_bytes) return INVALID_VALUE;
  std::vector<std::vector<char>> kept;
  for (unsigned i = 0; i < function->entry->parameters; ++i)
    kept.emplace_back((char *)values[i], (char *)values[i] + function->entry->bytes[i]);
  return submit(stream, [=]() -> int {
    std::vector<std::vector<char>> own = kept;
    std::vector<void *> pointers;
    for (auto &value : own) pointers.push_back(value.data());
    return run_grid(*function, pointers.data(), blocks, threads, shared_bytes);
  });
}

// Must match the declaration in cuda_shim.h. The real driver's tensor map has 128 bytes.
struct TensorMap {
  uintptr_t base;
  int rows, columns, box_rows, box_columns;
};
int cuTensorMapEncodeTiled(TensorMap *map, int, unsigned rank, uintptr_t address, const uint64_t *extents, const uint64_t *row_bytes,
                           const unsigned *box, const unsigned *, int, int, int, int) {
  ENTER
  const bool is_aligned = (uintptr_t)map % 64 == 0 && address % 16 == 0 && row_bytes[0] % 16 == 0;
  if (rank != 2 || !is_aligned || box[0] > 256 || box[1] > 256 || !is_within(address, extents[1] * row_bytes[0])) return INVALID_VALUE;
  memset((void *)map, 0, 128);
  *map = {address, (int)extents[1], (int)extents[0], (int)box[1], (int)box[0]};
  return SUCCESS;
}

}
