// Image that the NVRTC stub produces and the driver stub loads instead of machine code: this header, followed
// by a shared object.
#include <cstdint>

static const char MAGIC[8] = "autostb";

struct Image {
  char magic[8];
  // Major version of the compiler.
  uint32_t major;
  // Compute capability times ten.
  uint32_t sm;
  uint64_t bytes;
};

// Must match the declaration in device.h.
struct Entry {
  const char *name;
  void (*kernel)(void **values);
  unsigned parameters;
  const unsigned *bytes;
};
typedef const char *Run(const Entry *entry, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes);
