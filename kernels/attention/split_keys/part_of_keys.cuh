/* A part of the keys, slice by slice: the middle of the kernels of pair and champion.

   Text and no function: as a function its machine code is another, and not what was measured. It reads
   P's D, KEYS, SLOTS and PARTS, the shared memory m, a and maps, the block's `first` row and `head`, the
   thread's `thread`, `lane`, `group`, `row` and `part`, and how many `slices` there are. It leaves `rows`:
   sixteen a warp, which have attended to slices part, part + PARTS, … of KEYS keys. A warpgroup has
   SLOTS of its slices in shared memory, and barriers of its own: it waits for no other.
*/
  auto fetch = [&](Slabs<KEYS, D>& tile, const CUtensorMap* map, Barrier* here, int slice) {
    if (slice >= slices) return;
    barrier_expect(here, Slabs<KEYS, D>::BYTES);
    tile.fetch(map, here, slice * KEYS, head);
  };
  if (threadIdx.x == 0) {
    barrier_expect(&m.q_here, Slabs<M, D>::BYTES);
    m.q.fetch(&maps.q, &m.q_here, first, head);
  }
  if (thread == 0)
    for (int i = 0; i < SLOTS; ++i) {
      fetch(m.slot[group][i].k, &maps.k, &m.k_here[group][i], part + i * PARTS);
      fetch(m.slot[group][i].v, &maps.v, &m.v_here[group][i], part + i * PARTS);
    }
  __syncwarp();

  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();
  barrier_wait(&m.q_here, 0);
  if (folded.sign) {
    warpgroup::apply_sign(m.q, folded.sign, threadIdx.x, P::THREADS);
    __syncthreads();
  }

  int round = 0;
  for (int slice = part; slice < slices; slice += PARTS, ++round) {
    int slot = round % SLOTS, parity = round / SLOTS % 2, later = slice + SLOTS * PARTS;
    auto& tile = m.slot[group][slot];
    float s[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    barrier_wait(&m.k_here[group][slot], parity);
    wgmma_fence();
    warpgroup::start_scores<KEYS, D>(s, m.q, 0, tile.k);
    wgmma_commit();
    wgmma_wait<0>();
    hold(s);
    if (later < slices) {
      named_barrier(1 + group, 128);  // all four warps are done with K
      if (thread == 0) fetch(tile.k, &maps.k, &m.k_here[group][slot], later);
      __syncwarp();
    }
    if (flash::at_edge<KEYS>(a, first + row, slice * KEYS))
      flash::mask<KEYS>(a, s, first + row, slice * KEYS, lane);
    splitk::softmax<KEYS>(rows, s, folded.factor, round == 0);
    warpgroup::pack_probabilities<KEYS>(p, s);
    barrier_wait(&m.v_here[group][slot], parity);
    hold(rows.out);
    wgmma_fence();
    warpgroup::start_pv<KEYS, D>(rows.out, p, tile.v);
    wgmma_commit();
    wgmma_wait<0>();
    hold(rows.out);
    if (later < slices) {
      named_barrier(1 + group, 128);  // all four warps are done with V
      if (thread == 0) fetch(tile.v, &maps.v, &m.v_here[group][slot], later);
      __syncwarp();
    }
  }
