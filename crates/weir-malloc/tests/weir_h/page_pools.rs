//! `weir.h`'s page pools, as a C program sees them.

use crate::common::{Kind, Mode, compile, describe, foreign, passes, run};
use crate::in_all_modes;

fn life(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["life"], mode);
}

fn settings(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["settings"], mode);
}

fn refused(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["refused"], mode);
}

fn squeezed(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["squeezed"], mode);
}

fn tended(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["tended"], mode);
}

fn forked(mode: Mode) {
    passes(Kind::C, "page_pools.c", &["forked"], mode);
}

in_all_modes! { life settings refused squeezed tended forked }

#[test]
fn wrong_puts_and_pools_are_named() {
    let Some(program) = compile(Kind::C, "page_pools.c") else { return };
    let cases = [
        ("twice", "double free"),
        ("inside", "middle of a block"),
        ("foreign", "never allocated"),
        ("by-free", "put it back into its pool"),
        ("destroyed", "weir_page_pool_destroy() has returned 0"),
    ];
    for (which, words) in cases {
        let output = run(&program, &[which], Mode::Plain, &[]);
        let message = String::from_utf8_lossy(&output.stderr);
        if foreign() {
            return weir_testing::skip!("{which}: the messages are Weir's");
        }
        assert!(!output.status.success() && message.contains(words), "{which}: {}", describe(&output));
        assert!(!message.contains("survived"), "{which}: {}", describe(&output));
    }
}
