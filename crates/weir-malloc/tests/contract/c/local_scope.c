/* argv[1]: a C++ library, opened with RTLD_LOCAL. Or "none": operator new fails in a program without C++. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (strcmp(argv[1], "none") == 0) {
        void *(*operator_new)(size_t) = dlsym(RTLD_DEFAULT, "_Znwm");
        CHECK(operator_new != NULL);
        free(operator_new(100));
        operator_new((size_t)PTRDIFF_MAX - 100);
        return 0;
    }
    CHECK(dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL); /* else the test would prove nothing */
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    int (*catches)(void) = dlsym(library, "catches_bad_alloc");
    CHECK(catches != NULL && catches() == 10);
    return 0;
}
