// What libnvrtc's stub makes and libcuda's loads in place of machine code: this, and a shared object behind it.
#include <cstdint>

static const char MAGIC[8] = "autostb";

struct Image {
  char magic[8];
  // Of the compiler.
  uint32_t major;
  // Compute capability times ten.
  uint32_t sm;
  uint64_t bytes;
};

// As device.h declares it.
struct Entry {
  const char *name;
  void (*kernel)(void **values);
  unsigned parameters;
  const unsigned *bytes;
};
typedef const char *Run(const Entry *entry, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes);
