/* lanerow with loads of 16 bytes: one instruction where there were four.

   Its eights are structs of four half2, which are copied pair by pair: four LDG.E of four bytes a lane,
   each of which asks L1 for the same sectors. Here a row is read as uint4 (LDG.E.128), and what a load
   holds is taken apart in registers. Nothing else differs: the sectors that are asked for fall by four,
   and what is left are those of eight query heads, one after the other.

   profkit expected 1.51x (1.25 to 1.69) of it; what came: 318 us after 354, 1.11x. L1 falls from its
   roof, and the same warps now wait for L2, with as few loads under way as before. Loads fall to a third,
   not less: the table of pages is read for each key, four bytes at a time.

   after: lanerow      fixes: uncoalesced-access      arch: 80+
   moves: instructions<0.95x      moves-not: inst_global_load<0.3x
   budget: regs=168 smem=80K spills=0 stack=0
*/
#include "lanes.cuh"

using namespace lanes;

template <int D>
__global__ void __launch_bounds__(THREADS) wide_lanes(Decode c) {
  attend<D>(c, [](const half* row, int i) {
    Eight packed;
    *reinterpret_cast<uint4*>(&packed) = reinterpret_cast<const uint4*>(row)[i];
    return packed;
  });
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    return int{launch<wide_lanes<D>>({dim3(c.heads, c.batch), THREADS, sizeof(Shared<D>)},
                                    args->stream, c)};
  });
}
