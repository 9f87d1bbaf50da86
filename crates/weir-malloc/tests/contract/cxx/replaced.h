// A program's own operator new and delete: a header before each block says which pair made it.
#pragma once
#include "check.h"
#include <new>

static const std::size_t header = 64, too_much = 1 << 20;

enum pair { PLAIN = 1, ARRAY, PLAIN_ALIGNED, ARRAY_ALIGNED, PAIRS };

// Calls of each pair, and which alignment came last.
static std::size_t made[PAIRS], gone[PAIRS], last_align;

// The exception that the next new too large throws.
static void (*thrown)() = [] { throw std::bad_alloc(); };

static void *make(pair which, std::size_t size, std::size_t align) {
    if (size > too_much) thrown();
    std::size_t front = align > header ? align : header;
    char *block = (char *)aligned_alloc(align, (front + size + align - 1) / align * align);
    CHECK(block != nullptr);
    std::size_t *words = (std::size_t *)(block + front);
    words[-1] = 0x0123456789abcdef + which, words[-2] = (std::size_t)block;
    made[which]++, last_align = align;
    return words;
}

static void unmake(pair which, void *block, std::size_t align) {
    if (!block) return;
    std::size_t *words = (std::size_t *)block;
    CHECK(words[-1] == 0x0123456789abcdef + which);
    words[-1] = 0;
    gone[which]++, last_align = align;
    free((void *)words[-2]);
}

// One call of `form`, an expression, which the pair must see, and no other.
#define SEEN(counts, which, align, form)                                        \
    do {                                                                        \
        std::size_t before[PAIRS];                                              \
        memcpy(before, counts, sizeof before);                                  \
        before[which]++, last_align = 0;                                        \
        form;                                                                   \
        CHECK(memcmp(before, counts, sizeof before) == 0 && last_align == align); \
    } while (0)

// A nothrow form of a program's own throwing one: null, and the exception has ended, whatever it was.
template <class Allocate> static void null_whatever_is_thrown(Allocate allocate) {
    static int alive;
    struct Other {
        Other() { alive++; }
        Other(const Other &) { alive++; }
        ~Other() { alive--; }
    };
    void (*const all[])() = {[] { throw std::bad_alloc(); }, [] { throw 7; }, [] { throw Other(); }};
    void (*usual)() = thrown;
    for (auto each : all) {
        thrown = each;
        for (int i = 0; i < 100; i++) CHECK(allocate() == nullptr);
        try {
            throw Other();
        } catch (const Other &) {
            CHECK(allocate() == nullptr && alive == 1);
        }
    }
    thrown = usual;
    CHECK(alive == 0 && !std::current_exception());
}

// A throwing form: what the program's own throws comes through.
template <class Allocate> static void throws(Allocate allocate) {
    for (int i = 0; i < 100; i++) {
        int caught = 0;
        try {
            allocate();
        } catch (const std::bad_alloc &) {
            caught++;
        }
        CHECK(caught == 1);
    }
}
