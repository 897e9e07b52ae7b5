/* Rows of a matrix on their way to shared memory, and how to wait for them.

   Tiles in flight, for a ring of STAGES slots:

     before the loop   copy tiles 0 … STAGES-2, one commit each
     at tile t         cp_async_wait<STAGES - 2>()     tile t is here
                       __syncthreads()                 for everybody, and slot (t-1) % STAGES is free
                       copy tile t+STAGES-1 into it, if there is one; commit in any case
                       use tile t

   The commit past the last tile closes an empty group. Without it the newest group would be the
   last tile itself, and "all but the newest" would no longer wait for it.
*/
#pragma once
#include "tile.cuh"

// Rows first … first+ROWS-1 of a matrix of `length` rows that lie `pitch` elements apart; zeros from
// `length` on. `thread` is this thread's number among the THREADS that share the work.
template <int THREADS, class T, int ROWS, int COLS, template <int> class L>
__device__ __forceinline__ void copy_rows(Tile<T, ROWS, COLS, L>& tile, const T* from, int first,
                                          int length, int thread, int pitch = COLS) {
  constexpr int CHUNK = Tile<T, ROWS, COLS, L>::CHUNK, CHUNKS = COLS / CHUNK, ALL = ROWS * CHUNKS;
#pragma unroll
  for (int j = 0; j < ceil_div(ALL, THREADS); ++j) {
    int i = thread + j * THREADS, row = i / CHUNKS, col = i % CHUNKS * CHUNK;
    if (ALL % THREADS != 0 && i >= ALL) break;
    bool valid = first + row < length;
    size_t source = valid ? static_cast<size_t>(first + row) * pitch + col : 0;
    cp_async<16, Cache::L2_ONLY>(tile.at(row, col), from + source, valid);
  }
}
