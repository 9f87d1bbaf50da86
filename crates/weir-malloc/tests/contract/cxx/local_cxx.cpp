// A C++ library that a C program opens into a scope of its own: std::bad_alloc must still come.
#include <cstdint>
#include <new>
#include <string>

extern "C" int catches_bad_alloc() {
    int caught = 0;
    for (int i = 0; i < 10; i++) {
        try {
            operator delete(operator new(std::size_t(PTRDIFF_MAX) - 100));
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    static int handled;
    std::set_new_handler([] {
        if (++handled == 4) std::set_new_handler(nullptr);
    });
    if (operator new(std::size_t(PTRDIFF_MAX) - 100, std::nothrow)) return -1;
    if (handled != 4) return -2;
    // Null without an exception in between, which nobody could end here.
    const std::size_t much = std::size_t(PTRDIFF_MAX) - 100;
    const std::align_val_t align{64};
    if (operator new[](much, std::nothrow) || operator new(much, align, std::nothrow)) return -3;
    return operator new[](much, align, std::nothrow) ? -4 : caught;
}
