// Environment variables that configure the device and its faults.
#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <vector>

static std::string variable(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value ? value : otherwise;
}
static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

// Fault to inject, from STUB_CUDA_FAULT. With the code -1, the call never returns.
struct Fault {
  std::string function, once;
  int nth = 0, code = 0, calls = 0;
  bool sticky = false, later_too = false;
  Fault() {
    std::string text = variable("STUB_CUDA_FAULT", "");
    std::vector<std::string> parts;
    for (size_t at = 0; !text.empty() && at <= text.size();) {
      const size_t end = std::min(text.find(':', at), text.size());
      parts.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    if (parts.size() < 3) return;
    function = parts[0];
    nth = atoi(parts[1].c_str());
    later_too = parts[1].find('+') != std::string::npos;
    code = atoi(parts[2].c_str());
    for (size_t i = 3; i < parts.size(); ++i) {
      sticky = sticky || parts[i] == "sticky";
      if (parts[i].compare(0, 5, "once=") == 0) once = parts[i].substr(5);
    }
  }
  bool strikes(const char *called) {
    if (nth == 0 || (function != "*" && function != called) || ++calls < nth) return false;
    if (calls > nth && !later_too) return false;
    return once.empty() || open(once.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0;
  }
};
