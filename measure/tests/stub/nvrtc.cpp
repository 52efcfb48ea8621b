// Stub of NVRTC: a C++ compiler compiles CUDA C for the CPU, with device.h.
//
// -DMAJOR and -DMINOR set its version. STUB_NVRTC_SMS lists the supported architectures, as in "80,90".
// STUB_FOLDER has device.h and its precompiled form, and caches compiled kernels, because tests compile the
// same ones repeatedly.
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "image.h"

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6 };

struct Program {
  std::string text, log, image;
};

static std::string variable(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value ? value : otherwise;
}

static std::string content(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

static uint64_t hash(const std::string &text) {
  uint64_t value = 0xcbf29ce484222325;
  for (unsigned char c : text) value = (value ^ c) * 0x100000001b3;
  return value;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Returns the names of all kernels. The keyword is followed by `void`, attributes, and the name with its
// parameters.
static std::vector<std::string> kernels(const std::string &text) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 7, "#define") == 0) continue;
    size_t at = line.find("__global__ "), other = line.find("__kernel ");
    if (at == std::string::npos) at = other;
    if (at == std::string::npos) continue;
    size_t start = line.find("void", at);
    if (start == std::string::npos) continue;
    for (start += 4; start < line.size();) {
      while (start < line.size() && !is_word(line[start])) ++start;
      size_t end = start;
      while (end < line.size() && is_word(line[end])) ++end;
      const std::string word = line.substr(start, end - start);
      if (word == "__launch_bounds__") {
        start = line.find(')', end);
        continue;
      }
      if (end < line.size() && line[end] == '(') names.push_back(word);
      break;
    }
  }
  return names;
}

// Returns true if threads may wait for one another: if the source has any function in which cuda_shim.h
// lets them wait.
static bool waits(const std::string &text) {
  for (const char *word : {"__syncthreads", "load_matrices", "mma_", "copy_async", "_boxes", "_arrivals", "_products"})
    if (text.find(word) != std::string::npos) return true;
  return false;
}

static std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// Returns the shared object, from the cache or newly built, and the compiler's messages; empty on failure.
static std::string built(const std::string &text, const std::vector<std::string> &names, std::string &log) {
  const std::string folder = variable("STUB_FOLDER", ".");
  char name[32];
  snprintf(name, sizeof name, "/kernels/%016llx", (unsigned long long)hash(text));
  const std::string kept = folder + name + ".so";
  std::string found = content(kept);
  if (!found.empty()) return found;

  std::ostringstream own;
  own << folder << name << "." << getpid() << "." << std::this_thread::get_id();
  const std::string path = own.str();
  std::ofstream source(path + ".cpp");
  source << "#line 1 \"kernel.cu\"\n" << replaced(text, "extern __shared__", "extern __dynamic_shared__");
  source << "\nextern \"C\" {\nextern const Entry stub_kernels[];\nconst Entry stub_kernels[] = {";
  for (const std::string &kernel : names) source << "ENTRY(" << kernel << ") ";
  source << "{}};\nconst char *stub_run(const Entry *entry, void **values, unsigned blocks, unsigned threads, unsigned shared_bytes) {\n"
         << "  return run(entry, values, blocks, threads, shared_bytes, " << waits(text) << ");\n}\n}\n";
  source.close();
  const std::string compiler = variable("CXX", "g++");
  const std::string command = "'" + compiler + "' -std=c++17 -O1 -w -fPIC -fno-gnu-unique -shared -s -include '" + folder + "/device.h' '" +
                              path + ".cpp' -o '" + path + ".so' 2>&1";
  FILE *output = popen(command.c_str(), "r");
  if (!output) return log = compiler + " does not start", "";
  char part[4096];
  for (size_t bytes; (bytes = fread(part, 1, sizeof part, output)) > 0;) log.append(part, bytes);
  const int status = pclose(output);
  unlink((path + ".cpp").c_str());
  if (status != 0) return "";
  // Rename at the end, so that other processes find either the complete file or nothing.
  rename((path + ".so").c_str(), kept.c_str());
  return content(kept);
}

extern "C" {

int nvrtcVersion(int *major, int *minor) {
  *major = MAJOR;
  *minor = MINOR;
  return SUCCESS;
}

static std::vector<int> architectures() {
  std::istringstream list(variable("STUB_NVRTC_SMS", MAJOR > 12 ? "75,80,86,89,90,100,120" : "50,60,70,75,80,86,89,90"));
  std::vector<int> all;
  for (std::string number; std::getline(list, number, ',');) all.push_back(atoi(number.c_str()));
  return all;
}
int nvrtcGetNumSupportedArchs(int *count) {
  *count = (int)architectures().size();
  return SUCCESS;
}
int nvrtcGetSupportedArchs(int *list) {
  for (int sm : architectures()) *list++ = sm;
  return SUCCESS;
}

int nvrtcCreateProgram(Program **program, const char *text, const char *, int headers, const char *const *, const char *const *) {
  if (headers) return INVALID_INPUT;
  *program = new Program{text, "", ""};
  return SUCCESS;
}
int nvrtcDestroyProgram(Program **program) {
  delete *program;
  *program = nullptr;
  return SUCCESS;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *flags) {
  uint32_t sm = 0;
  for (int i = 0; i < count; ++i) sscanf(flags[i], "--gpu-architecture=sm_%u", &sm);
  const std::vector<std::string> names = kernels(program->text);
  const std::string code = built(program->text, names, program->log);
  if (code.empty()) return COMPILATION;
  Image image = {{}, MAJOR, sm, code.size()};
  memcpy(image.magic, MAGIC, sizeof MAGIC);
  program->image = std::string((const char *)&image, sizeof image) + code;
  // Same format as `ptxas -v`, with an arbitrary number of registers.
  std::ostringstream log;
  log << "ptxas info    : 0 bytes gmem\n";
  for (const std::string &name : names)
    log << "ptxas info    : Compiling entry function '" << name << "' for 'sm_" << sm << "'\n"
        << "ptxas info    : Function properties for " << name << "\n"
        << "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        << "ptxas info    : Used " << 24 + hash(program->text) % 100 << " registers, used 1 barriers, 400 bytes cmem[0]\n";
  program->log = log.str();
  return SUCCESS;
}

int nvrtcGetProgramLogSize(Program *program, size_t *bytes) {
  *bytes = program->log.size() + 1;
  return SUCCESS;
}
int nvrtcGetProgramLog(Program *program, char *log) {
  strcpy(log, program->log.c_str());
  return SUCCESS;
}
int nvrtcGetCUBINSize(Program *program, size_t *bytes) {
  *bytes = program->image.size();
  return SUCCESS;
}
int nvrtcGetCUBIN(Program *program, char *image) {
  memcpy(image, program->image.data(), program->image.size());
  return SUCCESS;
}

}
