/* Candidate: wgmma with three warpgroups that multiply.

   flags: -DGROUPS=2   arch: 90a
*/
#include "wgmma_two_warpgroups.cu"
