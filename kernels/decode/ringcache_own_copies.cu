/* Keys and values on their way to shared memory while earlier ones are multiplied.

   A warp of splitkv asks for 16 KiB, waits, multiplies, and asks again: while it multiplies it asks for
   nothing, and at the end of a split those that came last wait for a whole step. Here each lane copies
   its own chunks (cp.async: no register holds them) of the next steps into a ring of its own, 8 KiB a warp
   and step, and reads them back itself: nobody else does, so nothing is waited for but the copies.

   What came: 94.4 us after 68.0. DRAM is read once, as promised, but L2 gives the SMs 403 MB instead of
   269 and is what binds, 84 % after 59: profkit names uncoalesced-access at the copies of K, 1.47x (1.23 to
   1.63). Lanes with one row of K have 64 bytes of it an instruction, those with one of V 128; K comes
   twice, V once: such a copy seems to move whole lines past L1, and the other half is thrown away. K
   would have to be copied by lanes that share rows, for each other.

   after: earlymerge      arch: 90+      case: 16k-8
   moves: inst_global_load<0.2x dram_read~1x
   budget: regs=255 smem=227K spills=0 stack=0
   tune: STAGES=2,3
*/
#include "early.cuh"

#ifndef STAGES
#define STAGES 3
#endif

namespace ringcache {

using namespace early;

// What the lanes of a warp hold of KEYS keys.
template <int D>
struct Slot {
  static constexpr int KEYS = 2048 / D, TILES = KEYS / 16;  // 4 KiB of K and as much of V
  Chunk k[TILES][2][D / 32][32], v[TILES][4][D / 64][32];
};

template <int D>
struct Shared {
  Slot<D> ring[WARPS][STAGES];
  Part<D> parts[WARPS];
};

// grouped::Warp, whose chunks come through shared memory.
template <int D>
class Warp {
  static constexpr int KEYS = Slot<D>::KEYS, TILES = Slot<D>::TILES;
  const Decode& c;
  Slot<D> (&ring)[STAGES];
  const int sequence, key_head, lane, g, t;
  Chunk q[D / 32];
  float out[D / 16][4] = {};  // (d, heads 2t and 2t+1)
  float max = -INFINITY, sum = 0.0f;  // of head g

 public:
  static constexpr int STEP = WARPS * KEYS;  // keys of a block at a time

  __device__ __forceinline__ Warp(const Decode& c, Slot<D> (&ring)[STAGES], int sequence, int key_head)
      : c(c), ring(ring), sequence(sequence), key_head(key_head), lane(threadIdx.x % 32), g(lane / 4),
        t(lane % 4) {
    const int group = c.group();
    const half* mine = c.q + (static_cast<size_t>(sequence) * c.heads + key_head * group + g) * D;
#pragma unroll
    for (int j = 0; j < D / 32; ++j)
      q[j] = g < group ? reinterpret_cast<const Chunk*>(mine)[4 * j + t] : Chunk{};
  }

  // Keys first … end-1, in steps of the whole block.
  __device__ __forceinline__ void attend(int first, int end) {
    first += threadIdx.x / 32 * KEYS;
    for (int s = 0; s < STAGES - 1; ++s) fetch(ring[s], first + s * STEP, end);
    for (int slot = 0; first < end; first += STEP, slot = (slot + 1) % STAGES) {
      fetch(ring[(slot + STAGES - 1) % STAGES], first + (STAGES - 1) * STEP, end);
      cp_async_wait<STAGES - 1>();
      multiply(ring[slot], first, end);
    }
  }

  __device__ __forceinline__ void leave(Part<D>& part) {
    leave_part(part, max, sum, out, g, t);
  }

 private:
  // Sixteen keys lie in one page: a tile begins at a multiple of 16, and so does a page.
  __device__ __forceinline__ void fetch(Slot<D>& slot, int first, int end) {
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      const int key = first + 16 * n;
      if (key >= end) break;
      const size_t row = c.at(sequence, key_head, key) * D;
      const auto *keys = reinterpret_cast<const Chunk*>(c.k + row),
                 *values = reinterpret_cast<const Chunk*>(c.v + row);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool valid = key + 8 * i + g < end;
        const int mine = valid ? (8 * i + g) * (D / 8) : 0;
#pragma unroll
        for (int j = 0; j < D / 32; ++j)
          cp_async<16, Cache::L2_ONLY>(&slot.k[n][i][j][lane], keys + mine + 4 * j + t, valid);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = i / 2 * 8 + 2 * t + i % 2;
        const bool valid = key + at < end;
#pragma unroll
        for (int j = 0; j < D / 64; ++j)
          cp_async<16, Cache::L2_ONLY>(&slot.v[n][i][j][lane],
                                       values + (valid ? at : 0) * (D / 8) + 8 * j + g, valid);
      }
    }
    cp_async_commit();  // an empty group past the last key
  }

  __device__ __forceinline__ void multiply(const Slot<D>& slot, int first, int end) {
    float s[2 * TILES][4];
#pragma unroll
    for (int n = 0; n < 2 * TILES; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
      if (first + 8 * n >= end) continue;  // nothing was copied there
#pragma unroll
      for (int j = 0; j < D / 32; ++j) {
        const Chunk k = slot.k[n / 2][n % 2][j][lane];
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t left[4] = {q[j].word[i], 0, q[j].word[i + 1], 0};
          mma(s[n], left, k.word[i], k.word[i + 1]);
        }
      }
    }
    float higher = max;
#pragma unroll
    for (int n = 0; n < 2 * TILES; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[n][i] = first + 8 * n + 2 * t + i < end ? s[n][i] * c.factor : -INFINITY;
        higher = fmaxf(higher, s[n][i]);
      }
    weigh<D>(s, higher, max, sum, out, t);
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      if (first + 16 * n >= end) continue;
      const uint32_t p[2] = {pack_halves(s[2 * n][0], s[2 * n][1]),
                             pack_halves(s[2 * n + 1][0], s[2 * n + 1][1])};
#pragma unroll
      for (int j = 0; j < D / 64; ++j) {
        Chunk v[4];
#pragma unroll
        for (int key = 0; key < 4; ++key) v[key] = slot.v[n][key][j][lane];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t a = v[0].word[i], b = v[1].word[i], e = v[2].word[i], f = v[3].word[i];
          const uint32_t left[4] = {(a & 0xffffu) | b << 16, a >> 16 | (b & 0xffff0000u),
                                    (e & 0xffffu) | f << 16, e >> 16 | (f & 0xffff0000u)};
          mma(out[4 * j + i], left, p[0], p[1]);
        }
      }
    }
  }
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) split_ring(Decode c, Part<D>* space) {
  auto& m = shared_memory<Shared<D>>();
  let_next_kernel_start();
  const Share share(c);
  Warp<D> warp(c, m.ring[threadIdx.x / 32], blockIdx.z, blockIdx.y);
  warp.attend(share.first, share.end);
  warp.leave(m.parts[threadIdx.x / 32]);
  __syncthreads();
  leave_block<D>(c, m.parts, space);
}

}  // namespace ringcache

extern "C" int profkit_launch(const ProfkitArgs* args) {
  using namespace ringcache;
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    return start<split_ring<D>, D, ringcache::Warp<D>::STEP>(c, sizeof(Shared<D>), args->stream);
  });
}
