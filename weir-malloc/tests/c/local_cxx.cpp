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
    return handled == 4 ? caught : -2;
}
