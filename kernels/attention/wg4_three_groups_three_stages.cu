/* Candidate: wgmma with three warpgroups and three stages.

   flags: -DTURNS=0 -DGROUPS=3 -DSTAGES=3   arch: 90a
*/
#include "wgmma_two_warpgroups.cu"
