/* A library that allocates when it is loaded and unloaded, and has thread-local storage big enough to be allocated. */
#include "check.h"

static void *blocks[100];
static __thread char room[20000];

__attribute__((constructor)) static void load(void) {
    for (int i = 0; i < 100; i++) fill(blocks[i] = malloc(i * 50 + 1), i * 50 + 1, i);
}
__attribute__((destructor)) static void unload(void) {
    for (int i = 0; i < 100; i++) CHECK(holds(blocks[i], i * 50 + 1, i)), free(blocks[i]);
    free(calloc(1, 100000));
}
void *plugin_make(int size) {
    memset(room, size, sizeof room);
    return malloc(size + room[size % 20000] % 1);
}
