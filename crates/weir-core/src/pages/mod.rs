//! Pages: nodes with their zones, the windows of address space that these lie in, and the release of what is free. Pages
//! never reclaim: where none is left they say so ([`Short`]), and the caller decides.

mod charge;
pub(crate) mod descriptions;
pub mod figures;
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
mod request;
mod sync;
#[doc(hidden)]
pub mod unchecked;
mod unmapped;
pub mod user_zone;
mod user_zone_calls;
pub mod window;
#[doc(hidden)]
pub mod zone;

pub use hard_limit::Hold;
pub use heap_pages::HeapPages;
pub use request::Short;
