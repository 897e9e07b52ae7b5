/* What a stand-in kernel needs of the CUDA runtime: it is a host function given to fake_launch. */
#pragma once
#include <cstddef>
typedef struct CUstream_st* cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorIllegalAddress = 700, cudaErrorNotSupported = 801 };
extern "C" void fake_launch(void* stream, const char* name, unsigned grid, unsigned block,
                            unsigned smem, void (*run)(void*), const void* what, size_t size);
extern "C" void fake_take(long nanoseconds);
extern "C" int cuStreamCreate(void** stream, unsigned flags);
extern "C" int cuCtxSynchronize();
