/* Candidate: wgmma with three warpgroups that multiply.

   flags: -DTURNS=0 -DGROUPS=3   arch: 90a
*/
#include "wgmma_two_warpgroups.cu"
