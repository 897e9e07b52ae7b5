/* Candidate: three warpgroups that take turns, lazy maximum

   flags: -DGROUPS=3 -DLAZY_POWERS=8   arch: 90a   after: wgmma
*/
#include "wgmma_two_warpgroups.cu"
