/* Candidate: four warpgroups, tiles of 64 keys, lazy maximum, polynomial

   flags: -DGROUPS=4 -DPOLY_EVERY=8 -DLAZY_POWERS=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
