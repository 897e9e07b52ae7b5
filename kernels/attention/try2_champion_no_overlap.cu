/* Candidate: champion that waits for the kernel before.

   flags: -DOVERLAP=0   arch: 90a
*/
#include "champion_wgmma_split_keys.cu"
