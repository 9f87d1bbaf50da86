// The same without the aligned pair, as most programs have it.
#define UNALIGNED_ONLY
#include "replaced.cpp"
