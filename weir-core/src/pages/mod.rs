//! Pages: nodes with their zones, the windows of address space that these lie in, and the release of what is free. Pages
//! never reclaim: where none is left they say so ([`Short`]), and the caller decides.

mod charge;
pub(crate) mod class_totals;
pub(crate) mod cool;
pub mod descriptions;
mod hard_limit;
mod heap_pages;
mod huge_advice;
pub mod node;
pub mod page_set;
pub mod pageblock;
pub(crate) mod releaser;
pub mod report;
pub mod reporter;
mod run_word;
mod short;
mod sync;
pub mod usage;
pub mod user_zone;
mod user_zone_calls;
pub mod window;
pub mod zone;
pub mod zone_figures;

pub use hard_limit::Hold;
pub use heap_pages::Pages;
pub use short::Short;
