/* Opens the library ARGUMENT with RTLD_DEEPBIND and passes blocks to and fro. */
#include "check.h"

int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!library) dprintf(2, "%s\n", dlerror());
    CHECK(library);
    void (*take)(void *) = (__typeof__(take))dlsym(library, "take");
    char *(*give)(void) = (__typeof__(give))dlsym(library, "give");
    CHECK(take && give);
    for (int i = 0; i < 100; i++) {
        char *block = give();
        CHECK(strcmp(block, "from the plugin") == 0);
        free(block);
        take(malloc(100 * i + 1));
    }
    CHECK(dlclose(library) == 0);
    CHECK(dlopen("no such file", RTLD_NOW) == NULL && strstr(dlerror(), "no such file"));
    return 0;
}
