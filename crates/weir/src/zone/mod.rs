//! Zones of the program's own: memory of a kind that `malloc` does not give, handed out in runs of pages.
//!
//! Free memory of a zone is released as the heap's is: in calm times what is above the last window's peak, under pressure all.
//!
//! | zone | memory | how free memory is released |
//! |---|---|---|
//! | [`Zone::anonymous`] | private, as the heap's | `MADV_DONTNEED` |
//! | [`Zone::from_memfd`] | a memfd or a file on tmpfs, shared with every process that maps it | holes punched into the file |
//! | the same of `MFD_HUGETLB` or on hugetlbfs | the same in huge pages of 2 MiB | the same, whole huge pages only |
//! | [`Zone::hugetlb`] | huge pages of 2 MiB from the system's pool | `MADV_DONTNEED`, whole huge pages only |
//! | [`Zone::locked`] | `mlock`ed: no page fault, no swap | never |
//!
//! A zone can be the first of a list, of which the heap is the next. That is for memory that is dear and not enough for all
//! ([`Zone::alloc_first`], [`EvictableCacheBuilder::zone_first`](crate::EvictableCacheBuilder::zone_first)).
//!
//! All sizes, offsets and figures are bytes.
//!
//! In a forked child:
//!
//! - A zone with a memfd is the parent's ([`Zone::is_foreign`]): nothing is handed out or released there.
//! - So is a zone in huge pages of the pool. Its memory is not there at all: a copy of each page that the parent writes to would
//!   take a second huge page, and end the parent where the pool is used up.
//! - An evictable cache whose entries lie in such a zone is empty. Guards of its entries pin nothing: they may be dropped.
//! - A locked zone is a copy of the parent's that is not locked.
//!
//! ```
//! use weir::zone::Zone;
//!
//! // 16 MiB for I/O buffers, a part of which is in use at a time.
//! let zone = Zone::anonymous(16 << 20)?;
//! let mut buffer = zone.alloc(64 << 10).ok_or("the zone is full")?;
//! assert_eq!((buffer.append(b"hello"), buffer.filled()), (5, &b"hello"[..]));
//! assert_eq!(zone.usage().used_bytes, 64 << 10);
//! drop(buffer);
//! weir::heap::trim();
//! assert_eq!((zone.usage().used_bytes, zone.usage().idle_bytes), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backing;
mod errors;
mod geometry;
mod hollow;
mod pages;
mod run;

pub use errors::{OfflineError, OsError, ZoneError};
pub use geometry::{BLOCK, MAX_RUN};
pub use pages::{Zone, ZoneUsage};
pub use run::Pages;
