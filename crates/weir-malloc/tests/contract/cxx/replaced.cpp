// A program that replaces the basic forms of operator new and delete: all the other forms go through them.
#include <exception>
#include "replaced.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

using std::align_val_t;
using std::nothrow;
using std::size_t;

void *operator new(size_t size) { return make(PLAIN, size, 16); }
void operator delete(void *block) noexcept { unmake(PLAIN, block, 16); }
#ifndef UNALIGNED_ONLY
void *operator new(size_t size, align_val_t align) { return make(PLAIN_ALIGNED, size, size_t(align)); }
void operator delete(void *block, align_val_t align) noexcept { unmake(PLAIN_ALIGNED, block, size_t(align)); }
#endif

static void *volatile p;

static void forms(size_t size) {
    SEEN(made, PLAIN, 16, p = operator new(size));
    SEEN(gone, PLAIN, 16, operator delete(p, size));
    SEEN(made, PLAIN, 16, p = operator new[](size));
    SEEN(gone, PLAIN, 16, operator delete[](p, size));
    SEEN(made, PLAIN, 16, p = operator new(size, nothrow));
    SEEN(gone, PLAIN, 16, operator delete(p, nothrow));
    SEEN(made, PLAIN, 16, p = operator new[](size, nothrow));
    SEEN(gone, PLAIN, 16, operator delete[](p, nothrow));
    SEEN(made, PLAIN, 16, p = operator new[](size));
    SEEN(gone, PLAIN, 16, operator delete[](p));
}

static void aligned_forms(size_t size, size_t align) {
    align_val_t as = align_val_t(align);
#ifdef UNALIGNED_ONLY
    // These are the library's still, all of them.
    size_t before[PAIRS];
    memcpy(before, made, sizeof before);
    p = operator new(size, as), CHECK(aligned(p, align)), operator delete[](p, size, as);
    p = operator new[](size, as), CHECK(aligned(p, align)), operator delete[](p, as, nothrow);
    p = operator new(size, as, nothrow), CHECK(aligned(p, align)), operator delete(p, size, as);
    p = operator new[](size, as, nothrow), CHECK(aligned(p, align)), operator delete(p, as);
    CHECK(memcmp(before, made, sizeof before) == 0);
#else
    SEEN(made, PLAIN_ALIGNED, align, p = operator new(size, as));
    SEEN(gone, PLAIN_ALIGNED, align, operator delete(p, size, as));
    SEEN(made, PLAIN_ALIGNED, align, p = operator new[](size, as));
    SEEN(gone, PLAIN_ALIGNED, align, operator delete[](p, size, as));
    SEEN(made, PLAIN_ALIGNED, align, p = operator new(size, as, nothrow));
    SEEN(gone, PLAIN_ALIGNED, align, operator delete(p, as, nothrow));
    SEEN(made, PLAIN_ALIGNED, align, p = operator new[](size, as, nothrow));
    SEEN(gone, PLAIN_ALIGNED, align, operator delete[](p, as, nothrow));
    SEEN(made, PLAIN_ALIGNED, align, p = operator new[](size, as));
    SEEN(gone, PLAIN_ALIGNED, align, operator delete[](p, as));
#endif
}

// The same by what the compiler makes of expressions and containers.
struct Plain {
    long words[6];
    ~Plain() { CHECK(words[0] == 7); }
};

static void expressions() {
    std::vector<Plain *> all;
    for (int i = 0; i < 200; i++) {
        all.push_back(i % 2 ? new Plain : new (nothrow) Plain);
        for (long &word : all.back()->words) word = 7;
    }
    for (int i = 0; i < 200; i += 2) delete all[i];
    // Had those gone into somebody's bucket at the wrong address, these would lie over what lives.
    for (int i = 0; i < 200; i += 2) {
        all[i] = new Plain;
        for (long &word : all[i]->words) word = 7;
    }
    for (Plain *each : all) {
        for (long word : each->words) CHECK(word == 7);
        delete each;
    }
    for (int count = 1; count < 50; count++) {
        Plain *array = new Plain[count];
        for (int i = 0; i < count; i++) array[i].words[0] = 7;
        delete[] array;
    }
    struct alignas(128) Wide { char bytes[200]; };
    for (int i = 0; i < 50; i++) {
        auto one = std::make_unique<Wide>();
        auto many = std::make_unique<Wide[]>(3);
        CHECK(aligned(one.get(), 128) && aligned(many.get(), 128));
    }
    std::map<int, std::string> map;
    for (int i = 0; i < 1000; i++) map[i * 7919 % 300] += std::string(i % 100, 'x');
}

int main() {
    for (size_t size = 0; size < 100000; size += 1 + size / 5) {
        forms(size);
        for (size_t align = 16; align <= 4096; align *= 4) aligned_forms(size, align);
    }
    size_t much = too_much + 1;
    throws([=] { p = operator new(much); });
    throws([=] { p = operator new[](much); });
    null_whatever_is_thrown([=] { return operator new(much, nothrow); });
    null_whatever_is_thrown([=] { return operator new[](much, nothrow); });
#ifndef UNALIGNED_ONLY
    throws([=] { p = operator new[](much, align_val_t(64)); });
    null_whatever_is_thrown([=] { return operator new(much, align_val_t(64), nothrow); });
    null_whatever_is_thrown([=] { return operator new[](much, align_val_t(64), nothrow); });
#endif
    size_t live[PAIRS];
    for (int i = 0; i < PAIRS; i++) live[i] = made[i] - gone[i];
    expressions();
    for (int i = 0; i < PAIRS; i++) CHECK(made[i] - gone[i] == live[i]);
    return 0;
}
