//! Evictable caches: what always holds, against a model and under threads; each kind of event by itself.

mod counted;
mod hostile;
mod model;
#[cfg(plain)]
mod plain;
mod sleeping;
#[cfg(not(plain))]
mod statistics;
mod threads;
mod walks;

mod eviction {
    #[cfg(not(plain))]
    mod gather;
    mod hot;
    mod pressure;
    #[cfg(not(plain))]
    pub mod reclaim;
    mod scan;
    #[cfg(not(plain))]
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
    mod overtaken;
    mod tasks;
    mod upsert;
}
