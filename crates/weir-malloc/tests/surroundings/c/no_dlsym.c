/* Takes `dlsym` from the process, as programs have none that do not load glibc's libdl, where that is a library of its own. */
#include <stddef.h>
void *dlsym(void *handle, const char *name) { return NULL; }
