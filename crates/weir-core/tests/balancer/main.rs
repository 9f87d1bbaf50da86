//! The node balancer on made-up zones: each invariant of Linux's kswapd, and each bug that was found in it, is a test.

mod bugs;
mod fake;
mod invariants;
mod small_zone;
