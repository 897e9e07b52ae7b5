/* Candidate: wgmma with three stages.

   flags: -DSTAGES=3   arch: 90a
*/
#include "wgmma_two_warpgroups.cu"
