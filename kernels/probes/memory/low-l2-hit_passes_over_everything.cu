/* Four passes over 256 MiB, one after the other.

   By the time a pass ends, its beginning has left the L2: each pass comes from DRAM again. The L2
   could have served three of four reads, had the passes been made over one piece after another.

   bound: memory      limiter: dram      cause: dram-bandwidth
   also: low-l2-hit
   declares: declared_bytes=269516800
   twin: yes          output: finite
   relieves: all four passes over 8 MiB before the next 8 MiB, each from another SM
*/
#include "../probe.cuh"

constexpr unsigned kTotal = 1u << 24, kPiece = kTwin ? 1u << 19 : kTotal;  // in float4

__global__ void __launch_bounds__(512) low_l2_hit(const float4* in, float* out) {
  float sum = 0.0f;
  const unsigned step = thread_count();
  for (unsigned piece = 0; piece < kTotal; piece += kPiece)
    for (unsigned pass = 0; pass < 4; ++pass)
      for (unsigned i = thread_slot(); i < kPiece; i += 2 * step) {
        // A shift by a third of the piece puts the next pass over a line on another SM's L1.
        const unsigned shift = pass * (kPiece / 3);
        const float4 a = __ldcg(in + piece + ((i + shift) & (kPiece - 1)));
        const unsigned next = (i + step + shift) & (kPiece - 1);
        const float4 b = i + step < kPiece ? __ldcg(in + piece + next) : float4{};
        sum += (a.x + a.y + a.z + a.w) + (b.x + b.y + b.z + b.w);
      }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, low_l2_hit, 4 * sm_count(), 512, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
