/* Five-point stencil on 8192 x 8192 points, four points per thread.

   Each point is loaded for itself and for four neighbours, of which all but the first load come out
   of the L1 and L2: DRAM moves each point in once and out once, and that is what takes the time. L1
   traffic is high and is not the cause.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include "../probe.cuh"

constexpr int kSide = 8192;

__global__ void __launch_bounds__(256) stencil(const float* in, float* out, float w) {
  const int x = blockIdx.x % (kSide / 1024) * 1024 + threadIdx.x * 4;
  const int y = blockIdx.x / (kSide / 1024);
  const int up = max(y - 1, 0), down = min(y + 1, kSide - 1);
  const float4 here = *reinterpret_cast<const float4*>(in + y * kSide + x);
  const float4 above = *reinterpret_cast<const float4*>(in + up * kSide + x);
  const float4 below = *reinterpret_cast<const float4*>(in + down * kSide + x);
  const float left = in[y * kSide + max(x - 1, 0)], right = in[y * kSide + min(x + 4, kSide - 1)];
  *reinterpret_cast<float4*>(out + y * kSide + x) = {
      fmaf(w, left + here.y + above.x + below.x, here.x),
      fmaf(w, here.x + here.z + above.y + below.y, here.y),
      fmaf(w, here.y + here.w + above.z + below.z, here.z),
      fmaf(w, here.z + right + above.w + below.w, here.w)};
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, stencil, kSide / 1024 * kSide, 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.25f);
}
