/* Runs under Weir and beside.c. argv[1]: "wrapped" if that one comes first. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2 && getpid() == 4242);
    long *mallocs = dlsym(RTLD_DEFAULT, "beside_mallocs");
    CHECK(mallocs != NULL);
    long before = *mallocs;
    for (int i = 0; i < 10000; i++) {
        void *p = malloc(i), *q = calloc(i, 2), *r = aligned_alloc(64, i);
        CHECK(p && malloc_usable_size(p) >= (size_t)i && all_zero(q, i * 2) && aligned(r, 64));
        CHECK((p = realloc(p, i + 100)));
        free(p), free(q), free(r);
    }
    if (strcmp(argv[1], "wrapped") == 0) CHECK(*mallocs - before >= 10000);
    else CHECK(*mallocs == before);
    return 0;
}
