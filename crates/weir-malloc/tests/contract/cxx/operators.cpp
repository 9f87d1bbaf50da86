// C++: every form of new and delete, std::bad_alloc, new-handlers, thread_local destructors, containers.
#include "check.h"
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unwind.h>
#include <vector>

static const std::size_t too_big = PTRDIFF_MAX - 100;

// Where unused results go: the compiler may drop an allocation whose result is not used.
static void *volatile sink;

static void forms() {
    for (std::size_t size = 0; size < 40000; size += 1 + size / 5) {
        void *p[8] = {operator new(size), operator new[](size), operator new(size, std::nothrow),
                      operator new[](size, std::nothrow), operator new(size, std::align_val_t(64)),
                      operator new[](size, std::align_val_t(4096)),
                      operator new(size, std::align_val_t(32), std::nothrow),
                      operator new[](size, std::align_val_t(128), std::nothrow)};
        for (int i = 0; i < 8; i++) {
            CHECK(p[i] && aligned(p[i], 16));
            for (int j = 0; j < i; j++) CHECK(p[i] != p[j]);
            fill(p[i], size, i);
        }
        CHECK(aligned(p[4], 64) && aligned(p[5], 4096) && aligned(p[6], 32) && aligned(p[7], 128));
        for (int i = 0; i < 8; i++) CHECK(holds(p[i], size, i));
        operator delete(p[0]), operator delete[](p[1]);
        operator delete(p[2], std::nothrow), operator delete[](p[3], std::nothrow);
        operator delete(p[4], std::align_val_t(64)), operator delete[](p[5], std::align_val_t(4096));
        operator delete(p[6], std::align_val_t(32), std::nothrow);
        operator delete[](p[7], std::align_val_t(128), std::nothrow);
        operator delete(operator new(size), size), operator delete[](operator new[](size), size);
        operator delete(operator new(size, std::align_val_t(64)), size, std::align_val_t(64));
        operator delete[](operator new[](size, std::align_val_t(64)), size, std::align_val_t(64));
    }
    operator delete(nullptr), operator delete[](nullptr), operator delete(nullptr, std::size_t(5));
}

template <class Allocate> static void throws_bad_alloc(Allocate allocate) {
    // Objects in the frames between must be destroyed on the way.
    struct Witness {
        int &count;
        ~Witness() { count++; }
    };
    int unwound = 0, caught = 0;
    for (int i = 0; i < 100; i++) {
        try {
            Witness witness{unwound};
            allocate();
            CHECK(!"reached");
        } catch (const std::bad_alloc &error) {
            CHECK(error.what() != nullptr);
            caught++;
        }
    }
    CHECK(caught == 100 && unwound == 100);
}

static void failures() {
    throws_bad_alloc([] { sink = operator new(too_big); });
    throws_bad_alloc([] { sink = operator new[](too_big); });
    throws_bad_alloc([] { sink = operator new(too_big, std::align_val_t(64)); });
    throws_bad_alloc([] { sink = operator new[](too_big, std::align_val_t(64)); });
    throws_bad_alloc([] { sink = operator new(std::size_t(-1)); });
    if (is_weir()) // libstdc++ 12 rounds this size up to zero, and succeeds
        throws_bad_alloc([] { sink = operator new(std::size_t(-1), std::align_val_t(4096)); });
    throws_bad_alloc([] { std::string text; text.reserve(text.max_size() - 1); });
    CHECK(!operator new(too_big, std::nothrow) && !operator new[](too_big, std::nothrow));
    CHECK(!operator new(too_big, std::align_val_t(64), std::nothrow));
    CHECK(!operator new[](too_big, std::align_val_t(64), std::nothrow));
    std::thread([] { throws_bad_alloc([] { sink = operator new(too_big); }); }).join();
}

static std::atomic<int> handled;

static void wrong_alignments() {
    if (!is_weir()) return; // libstdc++ before 13 rounds some of them up
    handled = 0;
    std::set_new_handler([] { handled++; });
    throws_bad_alloc([] { sink = operator new(64, std::align_val_t(48)); });
    throws_bad_alloc([] { sink = operator new[](64, std::align_val_t(0)); });
    CHECK(!operator new(64, std::align_val_t(48), std::nothrow));
    CHECK(handled == 0);
    std::set_new_handler(nullptr);
}

static void handlers() {
    wrong_alignments();
    // Called again and again until it gives up: the standard's loop.
    std::set_new_handler([] {
        if (++handled == 5) std::set_new_handler(nullptr);
    });
    throws_bad_alloc([] {
        if (handled < 5) CHECK(std::get_new_handler() != nullptr);
        sink = operator new(too_big);
    });
    CHECK(handled == 5);
    handled = 0;
    std::set_new_handler([] {
        if (++handled == 3) std::set_new_handler(nullptr);
    });
    CHECK(operator new(too_big, std::nothrow) == nullptr && handled == 3);
    // A handler may throw, also something of its own that derives from bad_alloc.
    struct Mine : std::bad_alloc {};
    std::set_new_handler([] { throw Mine(); });
    int mine = 0;
    try {
        sink = operator new(too_big);
    } catch (const Mine &) {
        mine++;
    }
    try {
        sink = operator new[](too_big, std::align_val_t(256));
    } catch (const Mine &) {
        mine++;
    }
    CHECK(mine == 2);
    // Nothrow is nothrow: null, and the exception has ended, whatever it was.
    static int alive;
    struct Other {
        Other() { alive++; }
        Other(const Other &) { alive++; }
        ~Other() { alive--; }
    };
    void (*throwing[])() = {[] { throw Mine(); }, [] { throw 7; }, [] { throw Other(); }};
    for (auto handler : throwing) {
        std::set_new_handler(handler);
        for (int i = 0; i < 100; i++) {
            CHECK(!operator new(too_big, std::nothrow) && !operator new[](too_big, std::nothrow));
            CHECK(!operator new(too_big, std::align_val_t(64), std::nothrow));
            CHECK(!operator new[](too_big, std::align_val_t(64), std::nothrow));
        }
        // Inside another exception's handler too.
        try {
            throw Other();
        } catch (const Other &) {
            CHECK(!operator new(too_big, std::nothrow) && alive == 1);
        }
    }
    CHECK(alive == 0 && std::uncaught_exceptions() == 0 && !std::current_exception());
    std::set_new_handler(nullptr);
}

struct Ward {
    std::vector<std::string> strings;
    ~Ward() {
        for (int i = 0; i < 50; i++) strings.push_back(std::string(i * 10, 'x'));
        for (auto &text : strings) CHECK(text.size() % 10 == 0);
    }
};
static thread_local Ward ward;

static void containers() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++)
        threads.emplace_back([t] {
            std::map<int, std::shared_ptr<std::string>> map;
            for (int i = 0; i < 20000; i++) {
                map[i * 7919 % 1000] = std::make_shared<std::string>(i % 300, char('a' + t));
                if (i % 3 == 0) map.erase(i % 1000);
            }
            for (auto &[key, text] : map)
                for (char c : *text) CHECK(c == 'a' + t);
            ward.strings.push_back("destroyed when the thread ends");
        });
    for (auto &thread : threads) thread.join();
    struct alignas(512) Wide { char bytes[700]; };
    std::vector<std::unique_ptr<Wide>> wide;
    for (int i = 0; i < 300; i++) {
        wide.push_back(std::make_unique<Wide>());
        CHECK(aligned(wide.back().get(), 512));
    }
}

static std::vector<std::string> global(1000, "made before main, destroyed after it");

// How many functions of the allocator a throw from a new-handler passes through.
static int frames;
static _Unwind_Reason_Code count_frame(_Unwind_Context *context, void *base) {
    Dl_info info;
    void *at = (void *)_Unwind_GetIP(context);
    if (dladdr(at, &info) && info.dli_fbase == base) frames++;
    return _URC_NO_REASON;
}

static void below_a_throw() {
    std::set_new_handler([] {
        Dl_info info;
        CHECK(dladdr(dlsym(RTLD_DEFAULT, "_Znwm"), &info) != 0);
        _Unwind_Backtrace(count_frame, info.dli_fbase);
        throw std::bad_alloc();
    });
    try {
        sink = operator new(too_big);
        CHECK(!"reached");
    } catch (const std::bad_alloc &) {
    }
    std::set_new_handler(nullptr);
    printf("%d frames\n", frames);
}

int main() {
    below_a_throw();
    forms();
    failures();
    handlers();
    containers();
    global.push_back("more");
    return 0;
}
