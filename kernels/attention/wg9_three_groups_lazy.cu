/* Candidate: three warpgroups that take turns, lazy maximum

   flags: -DLAZY_POWERS=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
