//! `weir.h`'s object caches and evictable caches, as a C++ program sees them.

use crate::common::{Kind, Mode, compile, describe, ended_by, foreign, run};

const SIGABRT: i32 = 6;

/// An exception that went on would leave an object that nobody has, or entries that stay pinned.
#[test]
fn an_exception_out_of_a_callback_is_named_and_ends_the_process() {
    let Some(program) = compile(Kind::Cxx, "cache_throws.cpp") else { return };
    let of_objects = ["ctor", "dtor", "init", "fini"].map(|which| (which, "the cache thrower"));
    for (which, cache) in of_objects.into_iter().chain([("on_evict", "an evictable cache")]) {
        let output = run(&program, &[which], Mode::Plain, &[("WEIR_ABORT_ON_MISUSE", "0".into())]);
        if foreign() {
            return weir_testing::skip!("{which}: the messages are Weir's");
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let named = format!("weir: an exception left the {which} of {cache}: none may");
        assert!(message.contains(&named), "{which}: {}", describe(&output));
        assert!(ended_by(&output, SIGABRT), "{which}: {}", describe(&output));
        assert!(!message.contains("caught") && !message.contains("survived"), "{which}: {}", describe(&output));
    }
}
