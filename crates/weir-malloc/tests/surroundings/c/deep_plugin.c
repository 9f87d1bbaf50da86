/* Blocks that pass between a library and its program. */
#include <stdlib.h>
#include <string.h>

void take(void *block) { free(block); }
char *give(void) { return strdup("from the plugin"); }
