// What weir.hpp promises. It is built against the installed files, by each compiler and standard that there is.
#include <weir.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                         \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (0)

namespace {

template <class Exception, class Call>
bool throws(Call call) {
    try {
        call();
    } catch (const Exception &) {
        return true;
    }
    return false;
}

// A bound that only a program that hangs comes to.
template <class Condition>
bool waited_for(Condition condition) {
    for (int i = 0; i < 300'000; i++) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

// Pressure begins and ends with a limit far below what is in use.
void limit(std::uint64_t bytes) { CHECK(weir_ctl("limit", nullptr, nullptr, &bytes, sizeof bytes) == 0); }

struct alignas(64) Request {
    static inline int alive = 0;
    std::string path;
    int number;
    Request(std::string path, int number) : path(std::move(path)), number(number) {
        if (number < 0) throw std::invalid_argument("number");
        alive++;
    }
    ~Request() { alive--; }
    Request(const Request &) = delete;
};

void object_caches() {
    weir::object_cache<Request>::pointer last;
    {
        weir::object_cache<Request> cache("requests", WEIR_CACHE_LIMITED);
        CHECK(std::string(cache.stats().name) == "requests" && cache.stats().size >= sizeof(Request));
        auto first = cache.make("/", 1);
        CHECK(first->path == "/" && first->number == 1);
        CHECK(reinterpret_cast<std::uintptr_t>(first.get()) % alignof(Request) == 0);
        CHECK(throws<std::invalid_argument>([&] { cache.make("/", -1); }));
        CHECK(cache.stats().used == 1 && Request::alive == 1);
        cache.set_limit(2);
        last = cache.make("/last", 2);
        CHECK(throws<std::bad_alloc>([&] { cache.make("/", 3); }));
        first.reset();
        CHECK(cache.stats().used == 1 && Request::alive == 1);
        cache.set_limit(WEIR_CACHE_NO_LIMIT);
        cache.set_reserve(100);
        CHECK(cache.stats().reserve == 100);
        weir::object_cache<Request> moved(std::move(cache));
        CHECK(moved.stats().used == 1);
    }
    // It outlives its cache.
    CHECK(last->path == "/last");
    last.reset();
    CHECK(Request::alive == 0);
    weir::object_cache<int> unlimited("unlimited");
    CHECK(throws<std::system_error>([&] { unlimited.set_limit(1); }));
    CHECK(throws<std::system_error>([] { weir::object_cache<int>("wrong flags", 1u << 31); }));
}

// Containers have its address.
static_assert(!std::is_copy_constructible_v<weir::memory_resource> && !std::is_move_constructible_v<weir::memory_resource>);
static_assert(!std::is_copy_assignable_v<weir::memory_resource> && !std::is_move_assignable_v<weir::memory_resource>);

void memory_resources() {
    weir::memory_resource heap, other_heap, nodes("nodes", 64);
    CHECK(heap == other_heap && !(heap == nodes) && nodes == nodes && !(nodes == *std::pmr::new_delete_resource()));
    CHECK(throws<std::system_error>([&] { heap.stats(); }));
    {
        std::pmr::list<int> list(&nodes);
        for (int i = 0; i < 1000; i++) list.push_back(i);
        CHECK(nodes.stats().used == 1000);
        // What does not fit is the heap's.
        std::pmr::vector<int> vector(1000, 7, &nodes);
        void *aligned = nodes.allocate(64, 4096);
        CHECK(nodes.stats().used == 1000 && reinterpret_cast<std::uintptr_t>(aligned) % 4096 == 0);
        nodes.deallocate(aligned, 64, 4096);
        std::pmr::map<std::pmr::string, int> map(&heap);
        map["a string that is longer than what fits into the object itself"] = 1;
        list.clear();
        CHECK(nodes.stats().used == 0 && vector[999] == 7 && map.size() == 1);
        weir::memory_resource any("any alignment", 64, 0);
        const std::pmr::list<int> others({1, 2, 3}, &any);
        CHECK(any.stats().used == 3);
        weir::memory_resource keys("keys", 64, 0, WEIR_CACHE_NO_MERGE);
        const std::pmr::list<int> secrets({1, 2, 3}, &keys);
        CHECK(keys.stats().used == 3);
    }
    CHECK(throws<std::system_error>([] { weir::memory_resource("too large", WEIR_CACHE_MAX_OBJECT + 1); }));
    CHECK(throws<std::system_error>([] { weir::memory_resource("no power of two", 64, 48); }));
    CHECK(throws<std::system_error>([] { weir::memory_resource("no such flag", 64, 0, 1u << 31); }));
}

std::size_t used_of_caches_with(const char *text) {
    std::size_t used = 0;
    for (struct weir_cache_stats stats = {}; weir_cache_next(&stats, sizeof stats) == 1;)
        if (std::strstr(stats.name, text)) used += stats.used;
    return used;
}

struct Marked {
    int value;
    bool operator<(const Marked &other) const { return value < other.value; }
};
struct Huge {
    char bytes[WEIR_CACHE_MAX_OBJECT + 1];
};

void allocators() {
    {
        std::set<Marked, std::less<Marked>, weir::allocator<Marked>> set;
        for (int i = 0; i < 1000; i++) set.insert({i});
        CHECK(used_of_caches_with("_node") == 1000);
        auto copy = set;
        CHECK(used_of_caches_with("_node") == 2000);
        set = std::move(copy);
        CHECK(used_of_caches_with("_node") == 1000 && set.size() == 1000);
    }
    CHECK(used_of_caches_with("_node") == 0);
    std::vector<int, weir::allocator<int>> vector;
    for (int i = 0; i < 100'000; i++) vector.push_back(i);
    CHECK(vector[99'999] == 99'999);
    const auto shared = std::allocate_shared<std::string>(weir::allocator<std::string>(), "shared");
    const auto array = std::map<int, Huge, std::less<int>, weir::allocator<std::pair<const int, Huge>>>{{1, {}}};
    CHECK(*shared == "shared" && array.size() == 1);
    CHECK(weir::allocator<int>() == weir::allocator<long>() && !(weir::allocator<int>() != weir::allocator<long>()));
    CHECK(throws<std::bad_array_new_length>([] { (void)weir::allocator<long>().allocate(SIZE_MAX / 4); }));
    // Freed on another thread.
    auto list = std::make_unique<std::list<Marked, weir::allocator<Marked>>>(1000);
    std::thread([&] { list.reset(); }).join();
    CHECK(used_of_caches_with("_node") == 0);
}

std::uint64_t live_bytes() {
    std::uint64_t bytes = 0;
    std::size_t size = sizeof bytes;
    CHECK(weir_ctl("stats.live_bytes", &bytes, &size, nullptr, 0) == 0);
    return bytes;
}

void page_pools() {
    weir::page_pool::run last;
    {
        weir::page_pool pool("disk");
        auto run = pool.get(3);
        CHECK(reinterpret_cast<std::uintptr_t>(run.get()) % 4096 == 0);
        run[3 * 4096 - 1] = std::byte{1};
        CHECK(pool.stats().in_flight_pages >= 3);
        run.reset();
        CHECK(pool.stats().in_flight_pages == 0 && pool.stats().gets == 1);
        CHECK(throws<std::system_error>([&] { pool.get(0); }));
        last = pool.get(1);
    }
    last[0] = std::byte{2}; // it outlives its pool
    last.reset();
    // What has the last share ends the pool, on any thread.
    const auto ends = [] {
        auto pool = std::make_unique<weir::page_pool>("ends");
        std::thread other([run = pool->get(1)]() mutable { run.reset(); });
        pool.reset();
        other.join();
        auto run = weir::page_pool("ends first").get(1);
        CHECK(run);
    };
    ends();
    const std::uint64_t before = live_bytes();
    for (int round = 0; round < 1'000; round++) ends();
    CHECK(live_bytes() < before + 100'000);
    weir::page_pool pool("moved"), moved(std::move(pool));
    weir_page_pool *const handle = moved.native_handle();
    last = moved.get(1);
    moved = weir::page_pool("another");
    CHECK(last.get_deleter().pool.get() == handle && moved.native_handle() != handle);
}

// Something to free, so that the limit is exceeded.
struct Entries {
    std::mutex lock;
    std::vector<std::unique_ptr<char[]>> blocks;
    static constexpr std::size_t size = 4000;
    Entries() {
        for (int i = 0; i < 10'000; i++) {
            blocks.emplace_back(new char[size]);
            std::memset(blocks.back().get(), 1, size);
        }
    }
    std::size_t bytes() {
        std::lock_guard guard(lock);
        return blocks.size() * size;
    }
    std::size_t free(std::size_t bytes) {
        std::lock_guard guard(lock);
        std::size_t freed = 0;
        for (; freed < bytes && !blocks.empty(); freed += size) blocks.pop_back();
        return freed;
    }
};

void shrinkers() {
    Entries entries;
    std::atomic<int> scans{0}, relieved{0}, throwing{0}, ended{0};
    weir::shrinker::options options;
    options.relieved = [&] { relieved++; };
    std::optional<weir::shrinker> plain;
    plain.emplace("entries", [&] { return entries.bytes(); },
                  [&](std::size_t bytes, int reason) {
                      CHECK(reason >= WEIR_SCAN_PRESSURE);
                      scans++;
                      return entries.free(bytes);
                  },
                  options);
    weir::shrinker bad("bad", [] { return std::size_t(100) << 20; },
                       [&](std::size_t, int) -> std::size_t {
                           throwing++;
                           throw std::runtime_error("no such entry");
                       });
    // One that ends itself inside its call: what the lambda holds, a second share, lives until it has returned.
    std::optional<weir::shrinker> once;
    auto held = std::make_shared<int>(7);
    once.emplace("once", [] { return std::size_t(100) << 20; },
                 [&once, &ended, held](std::size_t, int) {
                     once.reset();
                     CHECK(*held == 7 && held.use_count() == 2);
                     ended++;
                     return std::size_t(0);
                 });
    limit(1 << 20);
    CHECK(waited_for([&] { return scans > 3 && throwing > 0 && ended > 0; }));
    CHECK(waited_for([&] { return entries.bytes() < 10'000 * Entries::size; }));
    limit(0);
    CHECK(waited_for([&] { return relieved > 0; }));
    CHECK(plain->stats().calls > 0 && plain->stats().freed_bytes > 0 && !plain->stats().is_disabled);
    CHECK(bad.stats().is_disabled && throwing == 1 && ended == 1);
    weir::shrinker moved(std::move(*plain));
    plain.reset();
    CHECK(moved.stats().calls > 0);
    CHECK(throws<std::system_error>([] { weir::shrinker("empty", {}, [](std::size_t, int) { return WEIR_SCAN_STOP; }); }));
    CHECK(throws<std::system_error>([] { weir::shrinker("empty", [] { return std::size_t(0); }, {}); }));
    CHECK(throws<std::system_error>([&] {
        weir::shrinker::options wrong;
        wrong.thread = 99;
        weir::shrinker("wrong", [] { return std::size_t(0); }, [](std::size_t, int) { return WEIR_SCAN_STOP; }, wrong);
    }));
    CHECK(waited_for([&] { return held.use_count() == 1; }));
}

void relocation() {
    std::vector<std::string *> all;
    for (int i = 0; i < 20'000; i++) all.push_back(new std::string(std::to_string(i)));
    std::vector<std::pair<int, std::string *>> few;
    for (int i = 0; i < 20'000; i++) {
        if (i % 16 == 0) few.emplace_back(i, all[i]);
        else delete all[i];
    }
    std::size_t moved = 0;
    for (auto &[number, text] : few) {
        std::string *const now = weir::relocate(text);
        moved += now != text;
        text = now;
    }
    CHECK(moved > few.size() / 2);
    for (auto &[number, text] : few) {
        CHECK(*text == std::to_string(number));
        delete text;
    }
    std::string here = "not from new";
    CHECK(weir::relocate(&here) == &here && here == "not from new");
}

void pressure() {
    std::atomic<unsigned> worst{0}, relief{0};
    std::atomic<int> thrown{0};
    const Entries entries;
    const weir::pressure_listener listener(WEIR_PRESSURE_SOME, [&](const weir_pressure_event &event) {
        if (event.level == WEIR_PRESSURE_NONE) relief++;
        if (event.level > worst) worst = event.level;
    });
    const weir::pressure_listener bad(WEIR_PRESSURE_SOME, [&](const weir_pressure_event &) {
        thrown++;
        throw 7;
    });
    limit(1 << 20);
    CHECK(waited_for([&] { return worst >= WEIR_PRESSURE_SOME && thrown > 0; }));
    limit(0);
    CHECK(waited_for([&] { return relief > 0; }));
    CHECK(thrown == 1);
    CHECK(throws<std::system_error>([] { weir::pressure_listener(WEIR_PRESSURE_SOME, {}); }));
    CHECK(throws<std::system_error>([] { weir::pressure_listener(99, [](const weir_pressure_event &) {}); }));
}

} // namespace

int second_unit();

int main() {
    std::uint64_t ms = 100;
    CHECK(weir_ctl("relief_ms", nullptr, nullptr, &ms, sizeof ms) == 0);
    object_caches();
    memory_resources();
    allocators();
    page_pools();
    shrinkers();
    relocation();
    pressure();
    CHECK(second_unit() == 0);
    std::puts("all passed");
}
