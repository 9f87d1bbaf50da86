//! Page pools: pages that a device or a queue keeps between its requests, and gives up for a while when memory is
//! short.
//!
//! A pool starts from zero. A get takes what is idle in the pool, and otherwise pages of the heap's zones; a put leaves
//! the pages idle in the pool. Idle pages go back to the zones, from which reclaim releases them:
//!
//! | when | idle pages left |
//! |---|---|
//! | the last run in flight was put back (the requests are done) | `max_idle_pages` |
//! | 100 ms after the pool came to have more than that, with runs in flight | `max_idle_pages` |
//! | a calm window ends | `max_idle_pages` |
//! | a *squeeze window* is open: for `squeeze_ms` after the last pressure event, each of which extends it | none |
//! | an allocation is refused memory, `hard_limit` is met, or the program calls `malloc_trim` | none |
//!
//! Runs in flight are never touched, however silent their queue: only a put makes a run idle.
//!
//! | file | what it is |
//! |---|---|
//! | [`squeeze`] | the squeeze window: what a pressure event changes, and how owners sleep and wake |
//! | [`visits`] | how a pool leaves the list while other threads look at it |
//! | [`idle`] | the idle runs of a pool |
//! | [`page_pool`] | a pool: its settings and figures |
//! | [`page_pools`] | the pools of a heap, and the time at which they are tended next |
//! | [`traffic`] | get and put; idle runs go back to the zones |
//! | [`reclaimer`] | what reclaim asks |
//!
//! # Who frees
//!
//! A pressure event frees nothing and takes no lock. It moves the window, raises the generation and wakes. The *owner*
//! of a pool frees: Weir's balancer, which hears the event itself, or a thread of the program's for pools made with
//! [`page_pool::PoolSpec::is_tended`]. A put in the window frees too: what it leaves would otherwise stay until the
//! window's end. Whatever a put or an owner gives to the zones in a window the balancer releases, in one go.
//!
//! # The protocol
//!
//! Four things meet: a put, a pressure event, the owner, and the end of the pool. The idle runs are behind the pool's
//! lock, the list of pools behind its own. Without a lock are the window and the generation (`squeeze.rs`) and the
//! count of visitors (`visits.rs`).
//!
//! - **Put against squeeze.** A put adds its runs under the lock, and looks at the window after that. The owner reads
//!   the generation, and takes the idle runs under the lock after that. The interleaving that this excludes: a put
//!   looks at the window, which is closed. An event opens it, and the owner finds no idle run. Then the put adds its
//!   run, which stays idle in the window. If the put has the lock first, the owner finds the run. If the owner has it
//!   first, the put sees the window that the owner was told of.
//! - **Sleep against squeeze.** An owner that sleeps counts itself, then compares the generation with the one that it
//!   tended last, in the kernel at last. The event raises the generation, then looks for sleepers. The interleaving
//!   that this excludes: the owner sees no event, an event sees no sleeper, the owner sleeps through the window. An
//!   owner that comes late, when the window has passed, finds another generation than the last one and squeezes all the
//!   same.
//! - **Destroy against visit.** A visitor counts itself in the pool under the lock of the list. The pool leaves the
//!   list under that lock before its owner waits until no visitor is counted. A visitor that leaves touches the list's
//!   words alone after it is no longer counted. The interleaving that this excludes: the balancer has found a pool; its
//!   owner frees the pool's memory; the balancer takes its lock.
//!
//! The model is `crates/weir-models/tests/pages/page_pools.rs`.

pub(crate) mod idle;
pub mod page_pool;
pub(crate) mod page_pools;
pub(crate) mod reclaimer;
pub(crate) mod squeeze;
pub(crate) mod traffic;
pub(crate) mod visits;

use crate::platform::{event_count, sync, wait};
