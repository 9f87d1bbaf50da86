//! `weir.h`'s page pools, as a C program sees them.

use crate::common::{Kind, Mode, compile, describe, foreign, run};
use crate::passing;

passing! {
    life: "page_pools.c", "life";
    settings: "page_pools.c", "settings";
    refused: "page_pools.c", "refused";
    squeezed: "page_pools.c", "squeezed";
    tended: "page_pools.c", "tended";
    forked: "page_pools.c", "forked";
}

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
