/* Candidate: multicast that shares nothing.

   flags: -DCLUSTER=1   arch: 90a
*/
#include "multicast_cluster_of_four.cu"
