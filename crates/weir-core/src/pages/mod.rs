//! Pages: nodes with their zones, the windows of address space that these lie in, and the release of what is free. Pages
//! never reclaim: where none is left they say so ([`Short`]), and the caller decides.

pub mod figures;
mod hard_limit;
mod heap_pages;
pub(crate) mod node;
#[doc(hidden)]
pub mod page_set;
pub mod pageblock;
pub mod report;
mod request;
pub mod user_zone;
pub mod window;
#[doc(hidden)]
pub mod zone;

pub use hard_limit::Hold;
pub use heap_pages::HeapPages;
pub use request::Short;
