//! Evictable caches: what always holds, against a model and under threads; each kind of event by itself.

mod counted;
mod hostile;
mod model;
mod statistics;
mod threads;
mod walks;

mod eviction {
    mod hot;
    mod pressure;
    pub mod reclaim;
    mod scan;
    mod weight;
}

mod lifetime {
    mod expiry;
    mod owned;
    mod removal;
}

mod loads {
    mod bytes;
    mod compute;
    mod not_kept;
    mod tasks;
    mod upsert;
}
