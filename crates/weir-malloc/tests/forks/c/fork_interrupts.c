/* A library that registers fork handlers before Weir does: its prepare handler comes after Weir's, and raises a signal. */
#include <pthread.h>
#include <signal.h>

static void prepare(void) { raise(SIGUSR1); }
__attribute__((constructor)) static void first(void) { pthread_atfork(prepare, 0, 0); }
