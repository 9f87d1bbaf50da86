// One block, for memory_probes.rs, between a place where a debugger stops and the end.
#include "check.h"

__attribute__((noinline)) void ready(void) {
    __asm__ volatile("");
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    ready();
    void *block = malloc(1000);
    printf("the block: %p\n", block);
    free(block);
    return 0;
}
