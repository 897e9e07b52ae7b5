// words MODE: a small CUDA program that ends as MODE says, for the words that profilers have for it.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <signal.h>
#include <unistd.h>
#include <vector>

template <typename T> __global__ void scale_rows(T* x, T by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
namespace deep { namespace inner {
template <int N> __global__ void add_many(float* x, const float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) for (int k = 0; k < N; ++k) x[i] += y[i];
}
} }
__global__ void out_of_bounds(float* x) { x[(1ll << 40) + threadIdx.x] = 1; }
__global__ void for_ever(volatile int* stop) { while (!*stop) {} }

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "ranges";
  if (!std::strcmp(mode, "nogpu")) return 0;
  const int n = 1 << 20;
  float *x, *y, *host;
  cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4);
  cudaMallocHost(&host, n * 4);
  std::vector<float> pageable(n);
  cudaStream_t side; cudaStreamCreate(&side);
  if (!std::strcmp(mode, "nokernel")) { cudaMemset(x, 0, n * 4); cudaDeviceSynchronize(); return 0; }
  nvtxDomainHandle_t own = nvtxDomainCreateA("own");
  for (int step = 0; step < 6; ++step) {
    nvtxRangePushA("step");
    nvtxRangePushA("input");
    cudaMemcpy(y, pageable.data(), n * 4, cudaMemcpyHostToDevice);
    cudaMemcpyAsync(y, host, n * 4, cudaMemcpyHostToDevice, side);
    nvtxRangePop();
    nvtxRangePushA("forward");
    scale_rows<float><<<n / 256, 256>>>(x, 1.5f, n);
    scale_rows<double><<<n / 512, 256>>>(reinterpret_cast<double*>(x), 1.5, n / 2);
    nvtxRangePop();
    nvtxRangeId_t back = nvtxRangeStartA("back/ward [1]");
    deep::inner::add_many<3><<<n / 128, 128>>>(x, y, n);
    deep::inner::add_many<7><<<n / 128, 128, 0, side>>>(y, x, n);
    nvtxRangeEnd(back);
    nvtxEventAttributes_t with = {};
    with.version = NVTX_VERSION; with.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    with.messageType = NVTX_MESSAGE_TYPE_ASCII; with.message.ascii = "update";
    nvtxDomainRangePushEx(own, &with);
    scale_rows<float><<<n / 256, 256>>>(x, 0.5f, n);
    nvtxDomainRangePop(own);
    cudaMemcpy(pageable.data(), x, 4, cudaMemcpyDeviceToHost);
    cudaDeviceSynchronize();
    nvtxRangePop();
  }
  if (!std::strcmp(mode, "status3")) { std::puts("the data set is not there"); return 3; }
  if (!std::strcmp(mode, "abort")) std::abort();
  if (!std::strcmp(mode, "kill")) kill(getpid(), 9);
  if (!std::strcmp(mode, "bounds")) {
    out_of_bounds<<<1, 32>>>(x);
    const auto status = cudaDeviceSynchronize();
    std::printf("cuda: %s\n", cudaGetErrorString(status));
    return status != cudaSuccess;
  }
  if (!std::strcmp(mode, "fork")) {
    if (fork() == 0) { execl(argv[0], argv[0], "ranges", nullptr); }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (!std::strcmp(mode, "memory")) {
    std::vector<void*> all; void* p;
    while (cudaMalloc(&p, 256ull << 20) == cudaSuccess) all.push_back(p);
    scale_rows<float><<<(200 << 20) / 256, 256>>>(static_cast<float*>(all[0]), 2.f, 60 << 20);
    std::printf("cuda: %s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  }
  return 0;
}
