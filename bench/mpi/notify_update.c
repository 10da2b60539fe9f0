/* Messages of MPI that bring an update, without a barrier: `barrier_update` beside notifications. */
#define WITHOUT_BARRIERS 1
#include "barrier_update.c"
