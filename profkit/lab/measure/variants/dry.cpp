/* A CUDA runtime that launches nothing: it prints what would be launched.

   Linked with a variant's object file in place of the real runtime, so that the launcher's own code
   says grid, block, shared memory and cluster, on a machine without a GPU. Arguments: device
   attributes and kernels as `name=value`, then the problem's size, stride, scale and causal.
   Output: one line a launch, `mangled name|grid|block|dynamic shared memory|cluster`.
*/
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

struct ProfkitArgs {
  const void* in[4];
  void* out[2];
  long long size[6], stride[6];
  float scale;
  int causal;
  cudaStream_t stream;
};
extern "C" int profkit_launch(const ProfkitArgs*);

static std::map<std::string, long long>& given() {
  static std::map<std::string, long long> values;
  return values;
}
static std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> names;
  return names;
}
static long long about(const char* what) {
  auto found = given().find(what);
  return found == given().end() ? 0 : found->second;
}
static cudaError_t launched(const void* f, dim3 g, dim3 b, size_t smem, unsigned cluster) {
  std::printf("%s|%u %u %u|%u %u %u|%zu|%u\n", kernels()[f].c_str(), g.x, g.y, g.z, b.x, b.y, b.z,
              smem, cluster);
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t smem;
  void* stream;
};
static std::vector<Configuration> pushed;

extern "C" {
void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem, void* stream) {
  pushed.push_back({grid, block, smem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* smem, void* stream) {
  Configuration c = pushed.back();
  pushed.pop_back();
  *grid = c.grid, *block = c.block, *smem = c.smem, *static_cast<void**>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(void** kernel, const void* host) {
  *kernel = const_cast<void*>(host);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* f, dim3 g, dim3 b, void**, size_t smem, cudaStream_t) {
  return launched(f, g, b, smem, 1);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void**, size_t smem, cudaStream_t) {
  return launched(f, g, b, smem, 1);
}
cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 g, dim3 b, void**, size_t smem,
                                        cudaStream_t) {
  return launched(f, g, b, smem, 1);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void**) {
  unsigned cluster = 1;
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      auto d = c->attrs[i].val.clusterDim;
      cluster = d.x * d.y * d.z;
    }
  return launched(f, c->gridDim, c->blockDim, c->dynamicSmemBytes, cluster);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  *value = static_cast<int>(about(("attribute" + std::to_string(what)).c_str()));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  p->warpSize = 32;
  p->multiProcessorCount = static_cast<int>(about("attribute16"));
  p->major = static_cast<int>(about("attribute75"));
  p->minor = static_cast<int>(about("attribute76"));
  p->sharedMemPerBlockOptin = about("attribute97");
  p->sharedMemPerMultiprocessor = about("attribute81");
  p->l2CacheSize = static_cast<int>(about("attribute38"));
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
const char* cudaGetErrorName(cudaError_t) { return ""; }

// Blocks on an SM, by registers, threads and shared memory; profkit.lab.measure.cuda.resources is the same.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* f,
                                                                   int threads, size_t smem,
                                                                   unsigned) {
  const std::string name = kernels()[f];
  const long long warps = (threads + 31) / 32, regs = about(("regs:" + name).c_str());
  const long long per_warp = (regs * 32 + 255) / 256 * 256;
  const long long fits = per_warp ? 65536 / per_warp / 4 * 4 / warps : 64;
  const long long bytes = smem + about(("smem:" + name).c_str()) + about("reserved");
  const long long shared = bytes ? about("attribute81") / ((bytes + 127) / 128 * 128) : 64;
  long long most = about("blocks") < about("warps") / warps ? about("blocks") : about("warps") / warps;
  most = fits < most ? fits : most;
  *blocks = static_cast<int>(shared < most ? shared : most);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads,
                                                          size_t smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, smem, 0);
}

// Memory is an address that nobody reads.
static cudaError_t somewhere(void** p) { return *p = reinterpret_cast<void*>(1 << 20), cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t) { return somewhere(p); }
cudaError_t cudaMallocAsync(void** p, size_t, cudaStream_t) { return somewhere(p); }
cudaError_t cudaMallocFromPoolAsync(void** p, size_t, cudaMemPool_t, cudaStream_t) {
  return somewhere(p);
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  return somewhere(reinterpret_cast<void**>(pool));
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// A driver function is asked for to describe a tensor: whatever it is, it succeeds.
static int succeeds(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** f, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *f = reinterpret_cast<void*>(&succeeds);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}

int main(int argc, char** argv) {
  ProfkitArgs args = {};
  for (auto& p : args.in) p = reinterpret_cast<void*>(1 << 20);
  for (auto& p : args.out) p = reinterpret_cast<void*>(1 << 20);
  for (int i = 1; i < argc; ++i) {
    char* value = std::strrchr(argv[i], '=');
    if (!value) return 2;
    *value++ = 0;
    const char* name = argv[i];
    if (!std::strncmp(name, "size", 4)) args.size[std::atoi(name + 4)] = std::atoll(value);
    else if (!std::strncmp(name, "stride", 6)) args.stride[std::atoi(name + 6)] = std::atoll(value);
    else if (!std::strcmp(name, "scale")) args.scale = static_cast<float>(std::atof(value));
    else if (!std::strcmp(name, "causal")) args.causal = std::atoi(value);
    else given()[name] = std::atoll(value);
  }
  const int code = profkit_launch(&args);
  std::printf("code|%d\n", code);
  return 0;
}
