// Runs one emulated variant on launches that a file describes, one a line, and keeps the outputs:
// scale causal size[6] stride[6] inputs outputs, then a name and its bytes for each of them. A line
// EMU_... is a setting of those that follow.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "variant.cuh"

namespace {

struct Memory {  // of the exact size, so that AddressSanitizer sees one byte too many
  std::string name;
  size_t bytes;
  char* data;
};

Memory memory(std::istream& words) {
  Memory m;
  words >> m.name >> m.bytes;
  void* data = nullptr;
  if (posix_memalign(&data, 16, m.bytes)) std::exit(2);
  m.data = static_cast<char*>(data);
  return m;
}

bool run(const std::string& line) {
  std::istringstream words(line);
  ProfkitArgs args = {};
  int inputs = 0, outputs = 0;
  words >> args.scale >> args.causal;
  for (long long& n : args.size) words >> n;
  for (long long& n : args.stride) words >> n;
  words >> inputs >> outputs;
  std::vector<Memory> given, made;
  for (int i = 0; i < inputs; ++i) {
    given.push_back(memory(words));
    std::ifstream(given[i].name, std::ios::binary).read(given[i].data, given[i].bytes);
    args.in[i] = given[i].data;
  }
  for (int i = 0; i < outputs; ++i) {
    made.push_back(memory(words));
    std::memset(made[i].data, 0xff, made[i].bytes);
    args.out[i] = made[i].data;
  }
  int error = words.fail() ? cudaErrorInvalidValue : profkit_launch(&args);
  bool kept = true;
  for (Memory& m : given) {
    std::vector<char> before(m.bytes);
    std::ifstream(m.name, std::ios::binary).read(before.data(), m.bytes);
    kept &= !std::memcmp(before.data(), m.data, m.bytes);
    std::free(m.data);
  }
  for (Memory& m : made) {
    std::ofstream(m.name, std::ios::binary).write(m.data, m.bytes);
    std::free(m.data);
  }
  printf("launch error=%d inputs=%s\n", error, kept ? "kept" : "overwritten");
  return kept;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream launches(argv[1]);
  bool right = true;
  for (std::string line; std::getline(launches, line);)
    if (!emu::take_setting(line.c_str())) right &= run(line);
  return right ? 0 : 1;
}
