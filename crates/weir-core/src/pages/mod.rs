//! Pages: nodes with their zones, the windows of address space that these lie in, and the release of what is free. Pages
//! never reclaim: where none is left they say so ([`Short`]), and the caller decides.

mod charge;
pub(crate) mod class_totals;
pub(crate) mod cool;
pub(crate) mod descriptions;
mod hard_limit;
mod heap_pages;
mod huge_advice;
pub(crate) mod node;
#[doc(hidden)]
pub mod page_set;
pub mod pageblock;
pub(crate) mod releaser;
pub mod report;
pub(crate) mod reporter;
mod run_word;
mod short;
mod sync;
#[doc(hidden)]
pub mod unchecked;
mod unmapped;
pub(crate) mod usage;
pub mod user_zone;
mod user_zone_calls;
pub mod window;
#[doc(hidden)]
pub mod zone;
pub mod zone_figures;

pub use hard_limit::Hold;
pub use heap_pages::Pages;
pub use short::Short;
