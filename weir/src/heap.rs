//! The process's heap: what `malloc` and `GlobalAlloc` stand on. (Interface first; the engine follows.)
