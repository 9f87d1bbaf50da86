//! Wrong calls of `weir.h`: what can be refused is refused with `errno`, the rest is named and ends the process.
//! Nothing is obeyed, nothing passes unseen, and no dtor is called with what is not an object.

use crate::common::{Kind, Mode, compile, describe, ended_by, foreign, run};
use crate::passing;

const SIGABRT: i32 = 6;

passing! {
    refused_with_errno: "refused.c";
    what_is_right_is_not_named: "wrong_object.c", "right";
}

/// The process must abort, and its last words name the address, what is wrong with it, and what to do. Where the
/// setting says so they are said, and the call is ignored.
fn is_named(which: &str, words: &[&str]) {
    let Some(program) = compile(Kind::C, "wrong_object.c") else { return };
    if foreign() {
        weir_testing::skip!("{which}: the functions are Weir's");
        return;
    }
    for mode in [Mode::Plain, Mode::NoRseq] {
        let output = run(&program, &[which], mode, &[]);
        check_message(which, &output, words);
        assert!(ended_by(&output, SIGABRT), "{which} in mode {mode:?}: {}", describe(&output));

        let output = run(&program, &[which], mode, &[("WEIR_ABORT_ON_MISUSE", "0".into())]);
        check_message(which, &output, words);
        assert!(output.status.success(), "{which} in mode {mode:?}, ignored: {}", describe(&output));
    }
}

fn check_message(which: &str, output: &std::process::Output, words: &[&str]) {
    let (address, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for word in words.iter().chain(&["weir: ", address.trim()]) {
        assert!(!word.is_empty() && message.contains(word), "{which}: no {word:?} in: {}", describe(output));
    }
}

macro_rules! named {
    ($($test:ident: $which:literal, $words:expr;)*) => {$(
        #[test]
        fn $test() {
            is_named($which, &$words);
        }
    )*};
}

named! {
    freed_by_free: "freed", ["free() of an object of a cache", "weir_cache_free()"];
    freed_by_free_under_a_limit: "freed-limited", ["free() of an object of a cache"];
    freed_by_free_and_found_by_a_batch: "freed-in-a-batch", ["free() of an object of a cache"];
    freed_by_free_and_finalized: "freed-and-finalized", ["free() of an object of a cache"];
    freed_by_realloc: "deleted-by-realloc", ["realloc() of an object of a cache"];
    resized: "resized", ["realloc() of an object of a cache"];
    resized_without_a_dtor: "resized-plain", ["realloc() of an object of a cache"];
    freed_twice: "twice", ["double free"];
    freed_twice_in_a_batch: "twice-in-a-batch", ["double free"];
    freed_twice_with_others_between: "twice-with-others-between", ["double free"];
    written_past_its_end: "overrun", ["past its end"];
    inside_an_object: "inside", ["no object in use begins here"];
    inside_an_object_and_unaligned: "odd", ["no object in use begins here"];
    of_another_cache: "other-cache", ["not an object of this cache"];
    of_another_cache_without_a_dtor: "other-cache-plain", ["never allocated"];
    of_malloc: "mallocs", ["not an object of this cache"];
    on_the_stack: "stack", ["not an object of this cache"];
    null_cache: "no-cache", ["the cache is NULL"];
    null_cache_of_a_batch: "no-cache-batch", ["the cache is NULL"];
    null_array: "no-array", ["the array of objects is NULL"];
    null_object_in_a_batch: "null-in-a-batch", ["NULL in the array"];
    cache_destroyed_twice: "destroyed-twice", ["not a cache"];
    cache_destroyed_before_an_allocation: "destroyed-alloc", ["not a cache"];
    cache_destroyed_before_a_free: "destroyed-free", ["not a cache"];
    cache_destroyed_before_a_batch: "destroyed-batch", ["not a cache"];
    cache_destroyed_before_a_batch_of_frees: "destroyed-free-batch", ["not a cache"];
    zone_destroyed_twice: "zone-destroyed-twice", ["not a zone"];
    evictable_cache_destroyed_twice: "evictable-destroyed-twice", ["not an evictable cache"];
    evictable_cache_destroyed_before_a_get: "evictable-destroyed-get", ["not an evictable cache"];
    queue_destroyed_twice: "queue-destroyed-twice", ["not a queue"];
    queue_destroyed_before_it_is_served: "queue-destroyed-serve", ["not a queue"];
}
