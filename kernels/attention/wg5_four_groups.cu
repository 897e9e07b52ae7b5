/* Candidate: four warpgroups, tiles of 64 keys

   flags: -DGROUPS=4 -DTILE_KEYS=64 -DTURNS=0   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
