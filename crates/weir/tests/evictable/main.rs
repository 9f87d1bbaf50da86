//! Evictable caches: what always holds, against a model and under threads; each kind of event by itself.

mod compute;
mod counted;
mod expiry;
mod hostile;
mod hot;
mod loads;
mod model;
mod owned;
mod pressure;
mod reclaim;
mod removal;
mod scan;
mod statistics;
mod tasks;
mod threads;
mod walks;
mod weight;
