//! Evictable caches: what always holds, against a model and under threads; each kind of event by itself.

mod compute;
mod counted;
mod hostile;
mod model;
mod pressure;
mod reclaim;
mod removal;
mod scan;
mod statistics;
mod threads;
mod write_back;

/// Stalls of the machine that these tests run on are no pressure: under it no cache grows, and the tests say themselves
/// when there is some.
extern "C" fn ignore_stalls() {
    for name in ["psi_some_us", "psi_full_us"] {
        weir::settings::set(name, "10000000").expect("a setting");
    }
}

// SAFETY: the loader calls what this section holds, functions without arguments, once, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = ignore_stalls;
