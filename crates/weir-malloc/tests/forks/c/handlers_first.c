/* A library that registers fork handlers before Weir does: its prepare handler comes after Weir's, and takes a lock under
   which other threads allocate. */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int forking;
int is_forking(void) { return forking; }
void take_lock(void) { pthread_mutex_lock(&lock); }
void give_lock(void) { pthread_mutex_unlock(&lock); }
static void prepare(void) { forking = 1, take_lock(); }
static void after(void) { forking = 0, give_lock(); }
__attribute__((constructor)) static void first(void) { pthread_atfork(prepare, after, after); }
