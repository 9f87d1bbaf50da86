/* dlopen and dlclose in a loop while threads allocate; blocks of a library outlive it. argv[1]: the library. */
#include "check.h"

static volatile int stop;
static void *churn(void *argument) {
    while (!stop) free(malloc(100)), free(malloc(40000));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(LIFETIME);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, churn, NULL) == 0);
    void *outliving[200];
    for (int i = 0; i < 200; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | (i % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
        CHECK(library != NULL);
        void *(*make)(int) = dlsym(library, "plugin_make");
        CHECK(make != NULL && (outliving[i] = make(i * 10)));
        fill(outliving[i], i * 10, i);
        CHECK(dlsym(library, "no_such_name") == NULL && dlerror() != NULL); /* the error's text is allocated */
        CHECK(dlclose(library) == 0);
    }
    for (int i = 0; i < 200; i++) CHECK(holds(outliving[i], i * 10, i)), free(outliving[i]);
    CHECK(dlopen("/no/such/library.so", RTLD_NOW) == NULL);
    /* The allocator itself cannot be unloaded. */
    Dl_info info;
    CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0);
    void *self = dlopen(info.dli_fname, RTLD_NOW);
    if (self) dlclose(self), dlclose(self), dlclose(self);
    free(malloc(10));
    stop = 1;
    pthread_join(thread, NULL);
    return 0;
}
