//! `weir.h`'s object caches, as a C++ program sees them.

use crate::common::{Kind, Mode, compile, describe, ended_by, foreign, run};

const SIGABRT: i32 = 6;

/// An exception that went on would leave an object that nobody has.
#[test]
fn an_exception_out_of_a_callback_is_named_and_ends_the_process() {
    let Some(program) = compile(Kind::Cxx, "cache_throws.cpp") else { return };
    for which in ["ctor", "dtor", "init", "fini"] {
        let output = run(&program, &[which], Mode::Plain, &[("WEIR_ABORT_ON_MISUSE", "0".into())]);
        if foreign() {
            return weir_testing::skip!("{which}: the messages are Weir's");
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let named = format!("weir: an exception left the {which} of the cache thrower: none may");
        assert!(message.contains(&named), "{which}: {}", describe(&output));
        assert!(ended_by(&output, SIGABRT), "{which}: {}", describe(&output));
        assert!(!message.contains("caught") && !message.contains("survived"), "{which}: {}", describe(&output));
    }
}
