/* Candidate: four warpgroups, tiles of 64 keys, lazy maximum, polynomial

   flags: -DGROUPS=4 -DTILE_KEYS=64 -DTURNS=0 -DLAZY_POWERS=8 -DPOLY_EVERY=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
