// A function with a frame of BYTES bytes, for tests/unwind.rs: two builds of it differ in that alone.
typedef void (*callback)(void);

static volatile char sink;

void enter(callback f) {
    volatile char local[BYTES];
    local[0] = 1;
    f();
    sink += local[0];
}
