/* Candidate: wgmma without turns.

   flags: -DTURNS=0   arch: 90a
*/
#include "wgmma_two_warpgroups.cu"
