/* Tiles that TMA fills.

   A box is ROWS x 64 halves of one head, written to shared memory as a Swizzled tile (TMA's 128-byte
   swizzle is the same XOR), with zeros from `length` on. So a tile of D = 128 is two slabs.
*/
#pragma once
#include "sm90.cuh"
#include "tensor_map.cuh"
#include "tile.cuh"

// ROWS x D halves as slabs of 64 columns, where TMA puts them.
template <int ROWS, int D>
struct Slabs {
  struct alignas(1024) Slab : Tile<half, ROWS, 64, Swizzled> {};  // the swizzle counts from 1 KiB
  static constexpr int BYTES = ROWS * D * 2, CHUNK = 8;
  Slab slab[D / 64];

  __device__ __forceinline__ const half* at(int row, int col) const {
    return slab[col / 64].at(row, col % 64);
  }
  // Starts the copy of rows row … row+ROWS-1 of a head, for this block or for all of a cluster.
  __device__ __forceinline__ void fetch(const CUtensorMap* map, Barrier* b, int row, int head) {
#pragma unroll
    for (int i = 0; i < D / 64; ++i) tma_load(&slab[i], map, b, 64 * i, row, head);
  }
  __device__ __forceinline__ void fetch_for(uint16_t blocks, const CUtensorMap* map, Barrier* b,
                                            int row, int head) {
#pragma unroll
    for (int i = 0; i < D / 64; ++i) tma_multicast(&slab[i], map, b, 64 * i, row, head, blocks);
  }
};
