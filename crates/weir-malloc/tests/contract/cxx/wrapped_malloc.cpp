/* A program whose malloc puts a header before each block of the next one's, and that has no operator new. Such a malloc is no other
   allocator: `new` and `delete` go together, whether they come by the wrapper or not. */
#include "check.h"

extern "C" void *__libc_malloc(size_t);
extern "C" void __libc_free(void *);

static size_t blocks;
static const uint64_t MARK = 0x1234567890abcdef;

extern "C" void *malloc(size_t size) {
    char *block = (char *)__libc_malloc(size + 16) + 16;
    ((uint64_t *)block)[-1] = MARK ^ (uintptr_t)block;
    blocks++;
    return block;
}
extern "C" void free(void *block) {
    if (!block) return;
    CHECK(((uint64_t *)block)[-1] == (MARK ^ (uintptr_t)block));
    ((uint64_t *)block)[-1] = 0;
    __libc_free((char *)block - 16);
}
extern "C" void *calloc(size_t count, size_t size) { return memset(malloc(count * size), 0, count * size); }
extern "C" void *realloc(void *block, size_t size) {
    void *other = malloc(size); /* of what the C library allocates, which is little */
    if (block) memcpy(other, block, size), free(block);
    return other;
}

int main() {
    enum { MANY = 20000 };
    static char *made[MANY], *plain[MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            made[i] = new char[i % 3000], plain[i] = (char *)malloc(i % 2000);
            fill(made[i], i % 3000, i), fill(plain[i], i % 2000, i + 1);
        }
        for (int i = 0; i < MANY; i++) {
            CHECK(holds(made[i], i % 3000, i) && holds(plain[i], i % 2000, i + 1));
            delete[] made[i], free(plain[i]);
        }
    }
    CHECK(blocks >= 3 * MANY);
    return 0;
}
