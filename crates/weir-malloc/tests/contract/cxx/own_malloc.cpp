/* A program that has malloc and its like by itself, and no operator new: `new` and `delete` go to the program's, as the C++ runtime's
   do. */
#include "check.h"

#include <new>

alignas(4096) static char memory[64 << 20];
static size_t used, blocks, frees, is_refusing;
static const uint64_t MARK = 0x1234567890abcdef;

static bool is_own(const void *block) {
    if ((uintptr_t)block - (uintptr_t)memory >= sizeof memory) return false;
    return ((const uint64_t *)block)[-1] == (MARK ^ (uintptr_t)block);
}

static void *make(size_t align, size_t size) {
    size_t front = align < 16 ? 16 : align;
    if (is_refusing || size > (8 << 20)) return nullptr;
    size_t begin = (__atomic_fetch_add(&used, front + size + front, __ATOMIC_RELAXED) + front - 1) / front * front;
    CHECK(begin + front + size <= sizeof memory);
    char *at = memory + begin + front;
    ((uint64_t *)at)[-1] = MARK ^ (uintptr_t)at, ((size_t *)at)[-2] = size;
    blocks++;
    return at;
}

extern "C" void *malloc(size_t size) { return make(16, size); }
extern "C" void *aligned_alloc(size_t align, size_t size) {
    CHECK(size % align == 0);
    return make(align, size);
}
extern "C" void *calloc(size_t count, size_t size) {
    void *block = make(16, count * size);
    return block ? memset(block, 0, count * size) : nullptr;
}
extern "C" size_t malloc_usable_size(void *block) {
    CHECK(is_own(block));
    return ((size_t *)block)[-2];
}
extern "C" void free(void *block) {
    if (!block) return;
    CHECK(is_own(block));
    ((uint64_t *)block)[-1] = 0;
    frees++;
}
extern "C" void *realloc(void *block, size_t size) {
    void *other = make(16, size);
    if (!block || !other) return other;
    size_t old = malloc_usable_size(block);
    memcpy(other, block, old < size ? old : size);
    free(block);
    return other;
}

static int handled;
static void handler() {
    if (++handled == 3) is_refusing = 0;
}

int main() {
    /* The first one may be looked at more closely. */
    ::operator delete(::operator new(1));
    struct alignas(64) Aligned { char bytes[100]; };
    for (int i = 0; i < 1000; i++) {
        size_t before = blocks;
        char *all[] = {(char *)::operator new(i), new char[i], (char *)::operator new(i, std::nothrow), new (std::nothrow) char[i]};
        CHECK(blocks == before + 4);
        for (char *block : all) {
            CHECK(is_own(block) && malloc_usable_size(block) >= (size_t)i);
            memset(block, 1, i);
        }
        Aligned *aligned[] = {new Aligned, new (std::nothrow) Aligned, new Aligned[3]};
        for (Aligned *block : aligned) CHECK(is_own(block) && (uintptr_t)block % 64 == 0);
        CHECK(blocks == before + 7);
        before = frees;
        ::operator delete(all[0]), delete[] all[1];
        free(all[2]); /* as it works under each C++ runtime */
        ::operator delete[](all[3], std::nothrow);
        delete aligned[0], delete aligned[1], delete[] aligned[2];
        delete (int *)malloc(4);
        delete (int *)nullptr;
        CHECK(frees == before + 8);
    }
    is_refusing = 1;
    CHECK(!new (std::nothrow) char[10] && !new (std::nothrow) Aligned);
    try {
        CHECK(is_own(::operator new[](10)) && false);
    } catch (std::bad_alloc &) {
        handled = 1;
    }
    CHECK(handled == 1);
    std::set_new_handler(handler);
    char *block = (char *)::operator new[](10);
    CHECK(handled == 3 && is_own(block));
    delete[] block;
    return 0;
}
