/*
 * weir.hpp: weir.h in the manner of C++17, header only. Link with -lweir.
 *
 *   weir::object_cache<T>    objects of one type, made by arguments and owned by a std::unique_ptr
 *   weir::memory_resource    for containers of std::pmr: nodes of one size from an object cache, the rest from the heap
 *   weir::allocator<T>       for other containers: single objects from a cache of T's, arrays from the heap
 *   weir::relocate           moves an object to where others are, if its page would be free without few
 *   weir::page_pool          pages for I/O, owned by a std::unique_ptr
 *   weir::shrinker           a cache of the program's own that gives way when memory is short
 *   weir::pressure_listener  is told of memory pressure, and of its end
 *
 * Errors: std::bad_alloc where there is no memory, std::system_error with errno's value for all else. The header weir.h says
 * what each call may refuse, and what native_handle() may be used for. In a program that is built without exceptions
 * (-fno-exceptions) an error is said on standard error, and the program aborts. It may be built without RTTI (-fno-rtti).
 */
#ifndef WEIR_HPP
#define WEIR_HPP

#if __cplusplus < 201703L
#error "weir.hpp needs C++17"
#endif

#include <weir.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace weir {

namespace detail {

[[noreturn]] inline void fail(const char *function) {
    const int why = errno;
#ifdef __cpp_exceptions
    if (why == ENOMEM) throw std::bad_alloc();
    throw std::system_error(why, std::generic_category(), function);
#else
    std::fprintf(stderr, "weir: %s: %s\n", function, std::generic_category().message(why).c_str());
    std::abort();
#endif
}

/* An array of so many elements cannot be. */
[[noreturn]] inline void fail_length() {
#ifdef __cpp_exceptions
    throw std::bad_array_new_length();
#else
    errno = ENOMEM;
    fail("weir::allocator");
#endif
}

inline void check(int result, const char *function) {
    if (result != 0) fail(function);
}

template <class Pointer>
Pointer checked(Pointer pointer, const char *function) {
    if (pointer == nullptr) fail(function);
    return pointer;
}

/* A function that has to be there: an empty one would be found when memory is short, and not before. */
template <class Function>
Function needed(Function function, const char *of) {
    if (!function) {
        errno = EINVAL;
        fail(of);
    }
    return function;
}

inline void *heap_allocate(std::size_t bytes, std::size_t align) {
    if (align <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return ::operator new(bytes);
    return ::operator new(bytes, std::align_val_t(align));
}

inline void heap_free(void *block, std::size_t align) noexcept {
    if (align <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return ::operator delete(block);
    ::operator delete(block, std::align_val_t(align));
}

/* The alignments that weir_cache_create() takes. */
constexpr std::size_t max_cache_align = 4096;

template <class T>
constexpr bool fits_cache = sizeof(T) <= WEIR_CACHE_MAX_OBJECT && alignof(T) <= max_cache_align;

/* Destroys a cache, unless objects are in use: then it stays for them. */
struct cache_end {
    void operator()(weir_cache *cache) const noexcept { weir_cache_destroy(cache); }
};
using cache_owner = std::unique_ptr<weir_cache, cache_end>;

/* Frees an object of a cache in which nothing was made. */
struct place_end {
    weir_cache *cache;
    void operator()(void *place) const noexcept { weir_cache_free(cache, place); }
};

inline weir_cache *make_cache(const char *name, std::size_t size, std::size_t align, unsigned flags) {
    weir_cache *cache = weir_cache_create(name, size, align, nullptr, nullptr, nullptr, nullptr, flags);
    return checked(cache, "weir_cache_create");
}

inline struct weir_cache_stats cache_stats(weir_cache *cache) {
    struct weir_cache_stats stats;
    check(::weir_cache_stats(cache, &stats, sizeof stats), "weir_cache_stats");
    return stats;
}

} // namespace detail

/*
 * Moves an object that `new` made, by its move constructor, to a page with more objects, if its own would be free without few
 * (weir_should_move()). Returns where the object is then: `object` itself, unless it moved. To be called by who can change all
 * pointers to it. What it returns is deleted as `object` would have been.
 */
template <class T>
[[nodiscard]] T *relocate(T *object) noexcept {
    static_assert(std::is_nothrow_move_constructible_v<T>, "a move that throws would leave two halves");
    static_assert(!std::is_polymorphic_v<T> || std::is_final_v<T>, "an object of a derived class would be cut");
    void *place = weir_should_move(object) != 0 ? weir_alloc_to_move(object) : nullptr;
    if (place == nullptr) return object;
    T *moved = ::new (place) T(std::move(*object));
    object->~T();
    weir_free_moved(object);
    return moved;
}

/*
 * Objects of one type. Free ones are kept while they are likely to be wanted, and released when memory is short. Any thread
 * may make and destroy objects. Those that outlive the object_cache are sound: its memory then stays until the process ends.
 */
template <class T>
class object_cache {
    static_assert(detail::fits_cache<T>, "an object is at most WEIR_CACHE_MAX_OBJECT bytes, aligned to 4096 at most");

public:
    /* Destroys an object and frees its memory. */
    struct deleter {
        weir_cache *cache = nullptr;
        void operator()(T *object) const noexcept {
            object->~T();
            weir_cache_free(cache, object);
        }
    };
    using pointer = std::unique_ptr<T, deleter>;

    /* `name` is for figures; `flags` are those of weir_cache_create(). */
    explicit object_cache(const char *name, unsigned flags = 0)
        : cache_(detail::make_cache(name, sizeof(T), alignof(T), flags)) {}

    /* An object made of these arguments. Throws what its constructor throws; then nothing is in use. */
    template <class... Arguments>
    pointer make(Arguments &&...arguments) {
        void *const got = detail::checked(weir_cache_alloc(native_handle()), "weir_cache_alloc");
        std::unique_ptr<void, detail::place_end> place(got, {native_handle()});
        T *const made = ::new (got) T(std::forward<Arguments>(arguments)...);
        place.release();
        return pointer(made, deleter{native_handle()});
    }

    /* At most `objects` in use at a time; needs WEIR_CACHE_LIMITED. */
    void set_limit(std::size_t objects) {
        detail::check(weir_cache_set_limit(native_handle(), objects), "weir_cache_set_limit");
    }
    /* Free objects that no reclaim takes; they are made at once. */
    void set_reserve(std::size_t objects) {
        detail::check(weir_cache_set_reserve(native_handle(), objects), "weir_cache_set_reserve");
    }

    struct weir_cache_stats stats() const { return detail::cache_stats(native_handle()); }
    weir_cache *native_handle() const noexcept { return cache_.get(); }

private:
    detail::cache_owner cache_;
};

/*
 * A resource for containers of std::pmr. Without arguments everything comes from the heap, which is Weir's. With a name and a
 * size there is an object cache. It serves what fits into `size` bytes at `align` (0: as without one), as the nodes of a list,
 * map or set do. The heap serves the rest. A request that is much smaller than `size` takes as much as one that fills it.
 * `flags` are those of weir_cache_create(), and hold for the object cache alone.
 */
class memory_resource final : public std::pmr::memory_resource {
public:
    memory_resource() noexcept = default;
    memory_resource(const char *name, std::size_t size, std::size_t align = 0, unsigned flags = 0)
        : size_(size), align_(align == 0 ? alignof(std::max_align_t) : align),
          cache_(detail::make_cache(name, size_, align_, flags)) {}
    /* Containers have its address. */
    memory_resource(const memory_resource &) = delete;
    memory_resource &operator=(const memory_resource &) = delete;

    /* The cache's figures; std::system_error if there is none. */
    struct weir_cache_stats stats() const { return detail::cache_stats(native_handle()); }
    /* NULL if there is none. */
    weir_cache *native_handle() const noexcept { return cache_.get(); }

private:
    bool is_cached(std::size_t bytes, std::size_t align) const noexcept {
        return cache_ != nullptr && bytes <= size_ && align <= align_;
    }

    void *do_allocate(std::size_t bytes, std::size_t align) override {
        if (!is_cached(bytes, align)) return detail::heap_allocate(bytes, align);
        return detail::checked(weir_cache_alloc(cache_.get()), "weir_cache_alloc");
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
        if (!is_cached(bytes, align)) return detail::heap_free(block, align);
        weir_cache_free(cache_.get(), block);
    }

    /* Any two without a cache are equal, where it is known what the other one is. */
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
        const auto *that = dynamic_cast<const memory_resource *>(&other);
        return that != nullptr && that->cache_ == cache_;
#else
        return this == &other;
#endif
    }

    std::size_t size_ = 0;
    std::size_t align_ = 0;
    detail::cache_owner cache_;
};

/*
 * An allocator without state: all are equal. Single objects, such as the nodes of a list, map or set, come from one object
 * cache for each T. The cache is named by typeid(T), if there is RTTI, and never destroyed. Arrays come from the heap, which is
 * Weir's.
 *
 * Where shared objects are built with -fvisibility=hidden each has a cache of its own. So have a program linked without -rdynamic
 * and a plugin that it opens with dlopen(), and with clang each plugin of RTLD_LOCAL. There a container is to be emptied where it
 * was filled: objects that go back to another cache end the process.
 */
template <class T>
class allocator {
public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    constexpr allocator() noexcept = default;
    template <class Other>
    constexpr allocator(const allocator<Other> &) noexcept {}

    [[nodiscard]] T *allocate(std::size_t count) {
        if (is_cached(count)) return static_cast<T *>(detail::checked(weir_cache_alloc(cache()), "weir_cache_alloc"));
        if (count > PTRDIFF_MAX / sizeof(T)) detail::fail_length();
        return static_cast<T *>(detail::heap_allocate(count * sizeof(T), alignof(T)));
    }

    void deallocate(T *objects, std::size_t count) noexcept {
        if (!is_cached(count)) return detail::heap_free(objects, alignof(T));
        weir_cache_free(cache(), objects);
    }

    /* The cache of T's, made at the first call. */
    static weir_cache *cache() {
        static weir_cache *const cache = detail::make_cache(name(), sizeof(T), alignof(T), 0);
        return cache;
    }

private:
    static const char *name() noexcept {
#ifdef __cpp_rtti
        return typeid(T).name();
#else
        return "weir::allocator";
#endif
    }
    static constexpr bool is_cached(std::size_t count) noexcept { return detail::fits_cache<T> && count == 1; }
};

template <class T, class Other>
constexpr bool operator==(const allocator<T> &, const allocator<Other> &) noexcept {
    return true;
}
template <class T, class Other>
constexpr bool operator!=(const allocator<T> &, const allocator<Other> &) noexcept {
    return false;
}

/*
 * Pages for the I/O of a device or a queue. Each run has a share of the pool, and may outlive it: what has the last share ends the
 * pool. Runs that were given up by release() and not put back are in flight for good, and so is their pool.
 */
class page_pool {
public:
    /* Puts a run back. A std::unique_ptr keeps its share, also where it is empty, until it ends or gets another run. */
    struct deleter {
        std::shared_ptr<weir_page_pool> pool;
        void operator()(std::byte *run) const noexcept { weir_page_pool_put(pool.get(), run); }
    };
    using run = std::unique_ptr<std::byte[], deleter>;

    /* `name` is for figures; `flags` is 0 or WEIR_PAGE_POOL_TENDED. */
    explicit page_pool(const char *name, unsigned flags = 0)
        : pool_(detail::checked(weir_page_pool_create(name, flags), "weir_page_pool_create"), end{}) {}
    page_pool(page_pool &&) noexcept = default;
    page_pool &operator=(page_pool &&) noexcept = default;

    /* A run of at least `pages` pages of 4,096 bytes, whose contents are undefined. */
    run get(std::size_t pages) {
        void *got = detail::checked(weir_page_pool_get(native_handle(), pages), "weir_page_pool_get");
        return run(static_cast<std::byte *>(got), deleter{pool_});
    }

    struct weir_page_pool_stats stats() const {
        struct weir_page_pool_stats stats;
        detail::check(::weir_page_pool_stats(native_handle(), &stats, sizeof stats), "weir_page_pool_stats");
        return stats;
    }
    weir_page_pool *native_handle() const noexcept { return pool_.get(); }

private:
    /* Destroys a pool, unless runs are in flight for good: then it stays for them. */
    struct end {
        void operator()(weir_page_pool *pool) const noexcept { weir_page_pool_destroy(pool); }
    };
    std::shared_ptr<weir_page_pool> pool_;
};

namespace detail {

/*
 * The function objects behind a registration. Weir holds their address. A call holds them by a share of its own, as they may
 * end inside it: a callback may destroy what it belongs to.
 */
template <class Functions>
class registration {
public:
    explicit registration(Functions functions) : shared_(std::make_shared<state>(std::move(functions))) {}
    registration(registration &&other) noexcept
        : shared_(std::move(other.shared_)), callback_(std::exchange(other.callback_, nullptr)) {}
    registration &operator=(registration &&other) noexcept {
        registration old(std::move(other));
        std::swap(shared_, old.shared_);
        std::swap(callback_, old.callback_);
        return *this;
    }
    ~registration() { weir_unregister(callback_); }

    void *data() const noexcept { return shared_.get(); }
    void begin(weir_callback *callback, const char *function) { callback_ = checked(callback, function); }
    weir_callback *native_handle() const noexcept { return callback_; }

    /* Calls. What it throws is named here, and goes on to Weir, which does not call it again. */
    template <class Call>
    static auto call(void *data, Call call) {
        const auto here = static_cast<state *>(data)->shared_from_this();
#ifdef __cpp_exceptions
        try {
            return call(here->functions);
        } catch (const std::exception &error) {
            std::fprintf(stderr, "weir: the callback \"%s\" threw: %s\n", here->functions.name.c_str(), error.what());
            throw;
        }
#else
        return call(here->functions);
#endif
    }

private:
    struct state : std::enable_shared_from_this<state> {
        explicit state(Functions given) : functions(std::move(given)) {}
        Functions functions;
    };
    std::shared_ptr<state> shared_;
    weir_callback *callback_ = nullptr;
};

} // namespace detail

/*
 * A cache of the program's own that frees its entries when memory is short. The functions are called as weir.h says: on
 * Weir's thread, under no lock of Weir's, never by two threads at once. The destructor waits for a call that runs, unless it
 * is in that call. Where one throws, that is said on standard error, and the shrinker is not called any more.
 */
class shrinker {
public:
    /* As the fields of struct weir_shrinker; zero is each one's default. */
    struct options {
        std::function<void()> relieved; // pressure has ended: the cache may grow again
        std::size_t batch = 0;
        unsigned seeks = 0;
        unsigned thread = WEIR_THREAD_SHARED;
        weir_queue *queue = nullptr;
    };

    /* `count()` says how many bytes could be freed now; `scan(bytes, reason)` frees
       about so many, and returns how many, or WEIR_SCAN_STOP. */
    shrinker(const char *name, std::function<std::size_t()> count, std::function<std::size_t(std::size_t, int)> scan)
        : shrinker(name, std::move(count), std::move(scan), options()) {}
    shrinker(const char *name, std::function<std::size_t()> count, std::function<std::size_t(std::size_t, int)> scan,
             options how)
        : registration_(functions{name, detail::needed(std::move(count), "weir::shrinker"),
                                  detail::needed(std::move(scan), "weir::shrinker"), std::move(how.relieved)}) {
        weir_shrinker spec{};
        spec.name = name;
        spec.count = [](void *data) {
            return held::call(data, [](functions &of) { return of.count(); });
        };
        spec.scan = [](std::size_t bytes, int reason, void *data) {
            return held::call(data, [=](functions &of) { return of.scan(bytes, reason); });
        };
        spec.relieved = [](void *data) {
            held::call(data, [](functions &of) {
                if (of.relieved) of.relieved();
            });
        };
        spec.data = registration_.data();
        spec.batch = how.batch;
        spec.seeks = how.seeks;
        spec.thread = how.thread;
        spec.queue = how.queue;
        registration_.begin(weir_shrinker_register(&spec, sizeof spec), "weir_shrinker_register");
    }

    struct weir_callback_stats stats() const {
        struct weir_callback_stats stats;
        detail::check(::weir_callback_stats(native_handle(), &stats, sizeof stats), "weir_callback_stats");
        return stats;
    }
    weir_callback *native_handle() const noexcept { return registration_.native_handle(); }

private:
    struct functions {
        std::string name;
        std::function<std::size_t()> count;
        std::function<std::size_t(std::size_t, int)> scan;
        std::function<void()> relieved;
    };
    using held = detail::registration<functions>;
    held registration_;
};

/*
 * Calls a function with each event of memory pressure of `level` or above, and with the relief that follows. The call is on
 * Weir's thread, or on the thread that serves `queue`. The destructor and exceptions are as with weir::shrinker.
 */
class pressure_listener {
public:
    pressure_listener(unsigned level, std::function<void(const weir_pressure_event &)> function, weir_queue *queue = nullptr)
        : registration_(functions{"pressure_listener", detail::needed(std::move(function), "weir::pressure_listener")}) {
        auto *call = +[](const weir_pressure_event *event, void *data) {
            held::call(data, [=](functions &of) { of.function(*event); });
        };
        registration_.begin(weir_pressure_subscribe(level, call, registration_.data(), queue), "weir_pressure_subscribe");
    }

    weir_callback *native_handle() const noexcept { return registration_.native_handle(); }

private:
    struct functions {
        std::string name;
        std::function<void(const weir_pressure_event &)> function;
    };
    using held = detail::registration<functions>;
    held registration_;
};

} // namespace weir

#endif
