//! Helpers that the tests of several modules share.

pub mod fake_balloon;
