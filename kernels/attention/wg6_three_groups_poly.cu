/* Candidate: three warpgroups, polynomial, lazy maximum

   flags: -DGROUPS=3 -DTURNS=0 -DPOLY_EVERY=4 -DLAZY_POWERS=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
