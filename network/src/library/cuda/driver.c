/* Library of a network for CUDA devices, by autotune. It needs nothing but the CUDA driver, which is
 * loaded when the first workspace is initialised. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

/* Launches, code and constants of the network: words, then pieces that the words refer to by their offset. */
__asm__(".section .rodata\n.balign 64\nautotune_network_data:\n.incbin \"@DATA@\"\n.previous\n");
extern const uint64_t data[] __asm__("autotune_network_data");
#define BYTES(offset) ((const char *)data + (offset))

enum { OK, NO_WORKSPACE, NO_DRIVER, NO_DEVICE, NO_MEMORY, NOT_INITIALISED, NO_TENSOR, DRIVER_FAILED, FAULTS };
static const char *const messages[FAULTS] = {@MESSAGES@};

/* Positions of numbers in the data. */
enum { MAJOR = 1, MINOR, MODULES, BUFFERS, ARENA, PACKING, LAUNCHES, INPUTS, OUTPUTS, HEAD = 16 };
enum { PIECE_WORDS = 2, BUFFER_WORDS = 4, TENSOR_WORDS = 8 };

typedef uint64_t Pointer;
typedef struct { _Alignas(128) uint64_t words[16]; } Map;

/* Functions of the driver. */
#define FUNCTIONS(OF) \
  OF(cuInit, (unsigned)) OF(cuDeviceGetCount, (int *)) OF(cuDeviceGet, (int *, int)) \
  OF(cuDeviceGetAttribute, (int *, int, int)) OF(cuDevicePrimaryCtxRetain, (void **, int)) \
  OF(cuDevicePrimaryCtxRelease_v2, (int)) OF(cuCtxGetCurrent, (void **)) OF(cuCtxSetCurrent, (void *)) \
  OF(cuModuleLoadData, (void **, const void *)) OF(cuModuleUnload, (void *)) \
  OF(cuModuleGetFunction, (void **, void *, const char *)) OF(cuFuncSetAttribute, (void *, int, int)) \
  OF(cuMemAlloc_v2, (Pointer *, size_t)) OF(cuMemFree_v2, (Pointer)) \
  OF(cuMemcpyHtoDAsync_v2, (Pointer, const void *, size_t, void *)) \
  OF(cuMemcpyDtoHAsync_v2, (void *, Pointer, size_t, void *)) \
  OF(cuMemsetD32Async, (Pointer, unsigned, size_t, void *)) OF(cuStreamCreate, (void **, unsigned)) \
  OF(cuStreamDestroy_v2, (void *)) OF(cuStreamSynchronize, (void *)) OF(cuStreamBeginCapture_v2, (void *, int)) \
  OF(cuStreamEndCapture, (void *, void **)) OF(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
  OF(cuGraphDestroy, (void *)) OF(cuGraphExecDestroy, (void *)) OF(cuGraphLaunch, (void *, void *)) \
  OF(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, \
                      void **))
#define DECLARE(name, arguments) static int(*name) arguments;
FUNCTIONS(DECLARE)
/* Only kernels for compute capability 9.0 and later need this function. */
static int (*cuTensorMapEncodeTiled)(Map *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,
                                     const unsigned *, int, int, int, int);

/* Returns the result for a code of the driver. */
static int result(int code) {
  switch (code) {
    case 0: return OK;
    case 2: return NO_MEMORY;
    /* No device; an invalid image, no code for the device, an invalid or too new version. */
    case 100: case 200: case 209: case 218: case 222: return NO_DEVICE;
    default: return DRIVER_FAILED;
  }
}
#define TRY(call)                           \
  do {                                      \
    const int failed_ = result(call);       \
    if (failed_) return failed_;            \
  } while (0)

/* State that all workspaces share while there is one: code and constants on the device. */
static struct {
  pthread_mutex_t lock;
  size_t users;
  void *context, **modules;
  int device, retained;
  Pointer *buffers;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct {
  void *self, *stream, *graph;
  Pointer arena;
} Workspace;

static int load_driver(void) {
  static int loaded;
  if (loaded) return OK;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return NO_DRIVER;
#define FIND(name, arguments) \
  if (!(*(void **)&name = dlsym(library, #name))) return NO_DRIVER;
  FUNCTIONS(FIND)
  *(void **)&cuTensorMapEncodeTiled = dlsym(library, "cuTensorMapEncodeTiled");
  TRY(cuInit(0));
  loaded = 1;
  return OK;
}

/* Finds the device: that of the caller's context, else the first of the compute capability. */
static int open_device(void) {
  if (!cuCtxGetCurrent(&shared.context) && shared.context) return OK;
  int count = 0;
  TRY(cuDeviceGetCount(&count));
  for (int number = 0; number < count; ++number) {
    int device, major, minor;
    TRY(cuDeviceGet(&device, number));
    TRY(cuDeviceGetAttribute(&major, 75, device));
    TRY(cuDeviceGetAttribute(&minor, 76, device));
    if ((uint64_t)major != data[MAJOR] || (uint64_t)minor < data[MINOR]) continue;
    TRY(cuDevicePrimaryCtxRetain(&shared.context, device));
    shared.device = device;
    shared.retained = 1;
    return result(cuCtxSetCurrent(shared.context));
  }
  return NO_DEVICE;
}

static Pointer address(const Workspace *workspace, uint64_t buffer, uint64_t offset) {
  return (buffer == data[ARENA] ? workspace->arena : shared.buffers[buffer]) + offset;
}

/* Starts launches; each has module, name, blocks, threads, bytes of shared memory, and number of buffers and maps;
 * then buffer and offset of each argument, and seven numbers of each tensor map. */
static int launch(const Workspace *workspace, const uint64_t *words) {
  for (uint64_t left = *words++; left > 0; --left) {
    const uint64_t *own = words, buffers = own[5], maps = own[6];
    void *function, *arguments[buffers + maps + 1];
    Pointer pointers[buffers + 1];
    Map encoded[maps + 1];
    words += 7;
    for (uint64_t i = 0; i < buffers; ++i, words += 2) {
      pointers[i] = address(workspace, words[0], words[1]);
      arguments[i] = &pointers[i];
    }
    for (uint64_t i = 0; i < maps; ++i, words += 7) {
      const unsigned box[] = {words[5], words[6]}, steps[] = {1, 1};
      const uint64_t extents[] = {words[2], words[3]};
      if (!cuTensorMapEncodeTiled) return NO_DRIVER;
      /* No interleaving, 128-byte swizzle, L2 promotion of 256 bytes, zeros beyond the edges. */
      TRY(cuTensorMapEncodeTiled(&encoded[i], words[1], 2, (void *)pointers[words[0]], extents, &words[4], box, steps, 0,
                                 3, 3, 0));
      arguments[buffers + i] = &encoded[i];
    }
    TRY(cuModuleGetFunction(&function, shared.modules[own[0]], BYTES(own[1])));
    /* Dynamic shared memory beyond 48 KB, and the preferred share of it. */
    if (own[4]) TRY(cuFuncSetAttribute(function, 8, own[4]));
    if (own[4]) TRY(cuFuncSetAttribute(function, 9, 100));
    TRY(cuLaunchKernel(function, own[2], 1, 1, own[3], 1, 1, own[4], workspace->stream, arguments, NULL));
  }
  return OK;
}

static void release_shared(void) {
  for (uint64_t i = 0; shared.buffers && i < data[BUFFERS]; ++i)
    if (shared.buffers[i]) cuMemFree_v2(shared.buffers[i]);
  for (uint64_t i = 0; shared.modules && i < data[MODULES]; ++i)
    if (shared.modules[i]) cuModuleUnload(shared.modules[i]);
  free(shared.buffers);
  free(shared.modules);
  if (shared.retained) cuDevicePrimaryCtxRelease_v2(shared.device);
  shared.buffers = NULL;
  shared.modules = NULL;
  shared.context = NULL;
  shared.retained = 0;
}

/* Loads code and constants, and packs constants. */
static int make_shared(const Workspace *workspace) {
  const uint64_t *modules = data + HEAD, *buffers = modules + PIECE_WORDS * data[MODULES];
  shared.modules = calloc(data[MODULES] + 1, sizeof *shared.modules);
  shared.buffers = calloc(data[BUFFERS] + 1, sizeof *shared.buffers);
  if (!shared.modules || !shared.buffers) return NO_MEMORY;
  for (uint64_t i = 0; i < data[MODULES]; ++i)
    TRY(cuModuleLoadData(&shared.modules[i], BYTES(modules[PIECE_WORDS * i])));
  for (uint64_t i = 0; i < data[BUFFERS]; ++i) {
    const uint64_t *own = buffers + BUFFER_WORDS * i;
    if (i == data[ARENA] || own[0] == 0) continue;
    TRY(cuMemAlloc_v2(&shared.buffers[i], own[0]));
    if (own[2]) TRY(cuMemcpyHtoDAsync_v2(shared.buffers[i], BYTES(own[1]), own[2], workspace->stream));
  }

  const int failed = launch(workspace, (const uint64_t *)BYTES(data[PACKING]));
  if (failed) return failed;
  TRY(cuStreamSynchronize(workspace->stream));
  /* What only packing reads is freed. */
  for (uint64_t i = 0; i < data[BUFFERS]; ++i)
    if (!buffers[BUFFER_WORDS * i + 3] && shared.buffers[i]) {
      cuMemFree_v2(shared.buffers[i]);
      shared.buffers[i] = 0;
    }
  return OK;
}

/* Allocates the tensors of a run, runs once, which loads the kernels, and records the launches. */
static int make_own(Workspace *workspace) {
  const uint64_t bytes = (data[HEAD + PIECE_WORDS * data[MODULES] + BUFFER_WORDS * data[ARENA]] + 3) / 4 * 4;
  const uint64_t *launches = (const uint64_t *)BYTES(data[LAUNCHES]);
  TRY(cuMemAlloc_v2(&workspace->arena, bytes));
  TRY(cuMemsetD32Async(workspace->arena, 0, bytes / 4, workspace->stream));
  const int failed = launch(workspace, launches);
  if (failed) return failed;
  TRY(cuStreamSynchronize(workspace->stream));

  /* Without a recording, every run launches the kernels one by one. */
  void *graph = NULL;
  if (cuStreamBeginCapture_v2(workspace->stream, 1)) return OK;
  const int incomplete = launch(workspace, launches);
  if (cuStreamEndCapture(workspace->stream, &graph) || !graph) return OK;
  if (!incomplete && cuGraphInstantiateWithFlags(&workspace->graph, graph, 0)) workspace->graph = NULL;
  cuGraphDestroy(graph);
  return OK;
}

static void release_own(Workspace *workspace) {
  if (workspace->graph) cuGraphExecDestroy(workspace->graph);
  if (workspace->arena) cuMemFree_v2(workspace->arena);
  if (workspace->stream) cuStreamDestroy_v2(workspace->stream);
  memset(workspace, 0, sizeof *workspace);
}

VISIBLE size_t @NAME@_workspace_bytes(void) { return sizeof(Workspace); }

VISIBLE int @NAME@_init(void *memory) {
  Workspace *workspace = memory;
  if (!workspace || (uintptr_t)workspace % 64) return NO_WORKSPACE;
  memset(workspace, 0, sizeof *workspace);
  pthread_mutex_lock(&shared.lock);
  int failed = load_driver();
  if (!failed) failed = shared.users ? result(cuCtxSetCurrent(shared.context)) : open_device();
  if (!failed) failed = result(cuStreamCreate(&workspace->stream, 1));
  if (!failed && !shared.users) failed = make_shared(workspace);
  if (!failed) failed = make_own(workspace);
  if (failed) {
    if (workspace->stream) release_own(workspace);
    if (!shared.users && shared.context) release_shared();
  } else {
    workspace->self = workspace;
    ++shared.users;
  }
  pthread_mutex_unlock(&shared.lock);
  return failed;
}

VISIBLE void @NAME@_release(void *memory) {
  Workspace *workspace = memory;
  if (!workspace || workspace->self != workspace) return;
  pthread_mutex_lock(&shared.lock);
  cuCtxSetCurrent(shared.context);
  release_own(workspace);
  if (--shared.users == 0) release_shared();
  pthread_mutex_unlock(&shared.lock);
}

/* Returns the numbers of a tensor: buffer, offset, elements, name, type, rank and place of the shape. */
static const uint64_t *tensor(int side, size_t number) {
  return number < data[side] ? (const uint64_t *)BYTES(data[side + 2]) + TENSOR_WORDS * number : NULL;
}

VISIBLE int @NAME@_run(void *memory, const float *const *inputs, float *const *outputs, void *parallel_for, void *context) {
  Workspace *workspace = memory;
  (void)parallel_for, (void)context;
  if (!workspace || (uintptr_t)workspace % 64) return NO_WORKSPACE;
  if (workspace->self != workspace) return NOT_INITIALISED;
  for (size_t i = 0; i < data[INPUTS]; ++i)
    if (!inputs || !inputs[i]) return NO_TENSOR;
  for (size_t i = 0; i < data[OUTPUTS]; ++i)
    if (!outputs || !outputs[i]) return NO_TENSOR;

  TRY(cuCtxSetCurrent(shared.context));
  for (size_t i = 0; i < data[INPUTS]; ++i) {
    const uint64_t *own = tensor(INPUTS, i);
    if (own[2])
      TRY(cuMemcpyHtoDAsync_v2(address(workspace, own[0], own[1]), inputs[i], 4 * own[2], workspace->stream));
  }
  const int failed = workspace->graph ? result(cuGraphLaunch(workspace->graph, workspace->stream))
                                      : launch(workspace, (const uint64_t *)BYTES(data[LAUNCHES]));
  if (failed) return failed;
  for (size_t i = 0; i < data[OUTPUTS]; ++i) {
    const uint64_t *own = tensor(OUTPUTS, i);
    if (own[2])
      TRY(cuMemcpyDtoHAsync_v2(outputs[i], address(workspace, own[0], own[1]), 4 * own[2], workspace->stream));
  }
  return result(cuStreamSynchronize(workspace->stream));
}

VISIBLE const char *@NAME@_error(int error) { return error >= 0 && error < FAULTS ? messages[error] : NULL; }
VISIBLE size_t @NAME@_threads(void) { return 1; }
VISIBLE const char *@NAME@_instruction_set(void) { return "@INSTRUCTIONS@"; }

#define DESCRIBE(side, SIDE) \
  VISIBLE size_t @NAME@_##side##s(void) { return data[SIDE]; } \
  VISIBLE const char *@NAME@_##side##_name(size_t i) { return tensor(SIDE, i) ? BYTES(tensor(SIDE, i)[3]) : NULL; } \
  VISIBLE const char *@NAME@_##side##_type(size_t i) { return tensor(SIDE, i) ? BYTES(tensor(SIDE, i)[4]) : NULL; } \
  VISIBLE size_t @NAME@_##side##_rank(size_t i) { return tensor(SIDE, i) ? tensor(SIDE, i)[5] : 0; } \
  VISIBLE const size_t *@NAME@_##side##_shape(size_t i) { \
    return tensor(SIDE, i) ? (const size_t *)BYTES(tensor(SIDE, i)[6]) : NULL; \
  } \
  VISIBLE size_t @NAME@_##side##_elements(size_t i) { return tensor(SIDE, i) ? tensor(SIDE, i)[2] : 0; }
DESCRIBE(input, INPUTS)
DESCRIBE(output, OUTPUTS)
