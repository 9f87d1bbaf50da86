// A program that replaces the array forms of operator new and delete only: what is no array stays the library's.
#include <exception>
#include "replaced.h"

using std::align_val_t;
using std::nothrow;
using std::size_t;

void *operator new[](size_t size) { return make(ARRAY, size, 16); }
void operator delete[](void *block) noexcept { unmake(ARRAY, block, 16); }
void *operator new[](size_t size, align_val_t align) { return make(ARRAY_ALIGNED, size, size_t(align)); }
void operator delete[](void *block, align_val_t align) noexcept { unmake(ARRAY_ALIGNED, block, size_t(align)); }

static void *volatile p;

static void arrays(size_t size) {
    SEEN(made, ARRAY, 16, p = operator new[](size, nothrow));
    SEEN(gone, ARRAY, 16, operator delete[](p, nothrow));
    SEEN(made, ARRAY, 16, p = operator new[](size));
    SEEN(gone, ARRAY, 16, operator delete[](p, size));
    SEEN(made, ARRAY_ALIGNED, 256, p = operator new[](size, align_val_t(256), nothrow));
    SEEN(gone, ARRAY_ALIGNED, 256, operator delete[](p, align_val_t(256), nothrow));
    SEEN(made, ARRAY_ALIGNED, 256, p = operator new[](size, align_val_t(256)));
    SEEN(gone, ARRAY_ALIGNED, 256, operator delete[](p, size, align_val_t(256)));
}

static void others(size_t size) {
    size_t before[PAIRS];
    memcpy(before, made, sizeof before);
    p = operator new(size), operator delete(p, size);
    p = operator new(size, nothrow), operator delete(p, nothrow);
    p = operator new(size, align_val_t(64)), CHECK(aligned(p, 64)), operator delete(p, size, align_val_t(64));
    p = operator new(size, align_val_t(64), nothrow), CHECK(aligned(p, 64));
    operator delete(p, align_val_t(64), nothrow);
    CHECK(memcmp(before, made, sizeof before) == 0);
}

int main() {
    for (size_t size = 0; size < 100000; size += 1 + size / 5) arrays(size), others(size);
    null_whatever_is_thrown([] { return operator new[](too_much + 1, nothrow); });
    null_whatever_is_thrown([] { return operator new[](too_much + 1, align_val_t(64), nothrow); });
    CHECK(!operator new(PTRDIFF_MAX - 100, nothrow));
    throws([] { p = operator new(PTRDIFF_MAX - 100); });
    return 0;
}
