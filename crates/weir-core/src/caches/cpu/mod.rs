//! Per-CPU buckets: objects and runs that one CPU hands out and takes back without a lock. The folder also says how
//! many of them a bucket may hold, and how they come up from the depots and go down again.

pub(crate) mod bucket_size;
pub(crate) mod buckets;
pub(crate) mod drain;
pub(crate) mod flush;
pub(crate) mod invalid_frees;
pub(crate) mod refill;
pub(crate) mod runs;
pub(crate) mod unbucketed;
