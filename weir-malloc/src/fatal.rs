//! Every message with which the C interface ends a process: what happened, and what to do about it.
//!
//! Messages of the heap itself (double free, pointer into the middle of a block) are the platform crate's.

/// One message. It is printed as `weir: WHAT: REMEDY`, with an address between the two where there is one.
pub struct Message {
    /// What happened.
    pub what: &'static str,
    /// What the author of the program can do.
    pub remedy: &'static str,
}

/// C++'s `operator new` failed in a process without a C++ runtime.
pub const NO_CXX_RUNTIME: Message = Message {
    what: "operator new: no memory, and no C++ runtime to throw std::bad_alloc with",
    remedy: "raise the memory limit, or link libstdc++ or libc++",
};

/// A nothrow `new` caught an exception of a new-handler, and the C++ runtime lacks the function that ends exceptions.
pub const NO_END_OF_CATCH: Message = Message {
    what: "operator new: caught an exception that cannot be ended",
    remedy: "the C++ runtime lacks __cxa_begin_catch or __cxa_end_catch: link libstdc++ or libc++",
};

/// An assumption of Weir's own code does not hold.
#[cfg(panic = "abort")]
pub const INTERNAL: Message =
    Message { what: "internal error", remedy: "this is a bug of Weir: please report it with this line" };

/// A cache function that returns nothing was given a null cache.
pub const NULL_CACHE: Message = Message {
    what: "weir_cache_free: the cache is NULL; the object",
    remedy: "pass the cache that the object is from, and look at what weir_cache_create() returned",
};

/// A null array of objects.
pub const NULL_OBJECTS: Message = Message {
    what: "weir_cache_free_batch: the array of objects is NULL; the cache",
    remedy: "pass an array of as many objects as the count says",
};

/// A null object in a batch.
pub const NULL_OBJECT: Message = Message {
    what: "weir_cache_free_batch: NULL in the array of objects, at",
    remedy: "pass objects of the cache only: unlike weir_cache_free(), batches take no NULL",
};

/// An object that is another cache's, or no cache's.
pub const OTHER_CACHE: Message = Message {
    what: "weir_cache_free: not an object of this cache",
    remedy: "pass the cache that the object is from; what malloc() gave is freed by free()",
};

/// A pointer that is not, or is no longer, a cache.
pub const NO_CACHE: Message = Message {
    what: "not a cache, or destroyed already",
    remedy: "use what weir_cache_create() returned, until weir_cache_destroy() has returned 0",
};

/// A pointer that is not, or is no longer, a zone.
pub const NO_ZONE: Message = Message {
    what: "not a zone, or destroyed already",
    remedy: "use what weir_zone_create() returned, until weir_zone_destroy() has returned 0",
};

/// An object was given to `free`, and its cache found it when it was to be handed out or finalized.
pub const FREED_WITHOUT_DTOR: Message = Message {
    what: "free() of an object of a cache with a dtor or a limit",
    remedy: "free it by weir_cache_free(): free() neither calls the dtor nor counts the object as back",
};

/// An object of a cache was freed twice.
pub const FREED_TWICE: Message = Message {
    what: "weir_cache_free: double free of a cache's object",
    remedy: "free each object once; a debugger's watchpoint on the address finds the first free",
};

/// The mark behind an object is neither of the two that it can be.
pub const NOT_HELD: Message = Message {
    what: "weir_cache_free: no object in use begins here, or something wrote past its end",
    remedy: "look for a pointer into the middle of an object, an earlier free, and writes beyond the object's size",
};

/// `realloc` of a cache's object.
pub const REALLOC_OF_OBJECT: Message = Message {
    what: "realloc() of an object of a cache",
    remedy: "objects of a cache have one size: allocate another block, copy, and weir_cache_free() the object",
};
