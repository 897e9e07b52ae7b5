/* Candidate: three warpgroups, polynomial, lazy maximum

   flags: -DPOLY_EVERY=4 -DLAZY_POWERS=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
