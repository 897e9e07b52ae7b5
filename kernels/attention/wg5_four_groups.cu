/* Candidate: four warpgroups, tiles of 64 keys

   flags: -DGROUPS=4   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
