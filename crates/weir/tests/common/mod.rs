//! Code that has several tests ignore stalls of the machine.

/// Stalls of the machine that these tests run on are no pressure. Under pressure no cache grows and pools are emptied,
/// and the tests say themselves when there is some.
extern "C" fn ignore_stalls() {
    for name in ["psi_some_us", "psi_full_us"] {
        weir::settings::set(name, "10000000").expect("a setting");
    }
}

// SAFETY: the loader calls what this section holds, functions without arguments, once, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = ignore_stalls;
