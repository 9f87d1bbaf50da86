//! Names that may be absent: libstdc++'s when the program is C, glibc's when the libc is musl.
//!
//! Stable Rust has no weak linkage, so each name gets a slot of its own in relocated read-only data: the
//! dynamic loader fills it before the first instruction of the library runs, with zero if nobody has the name.
//! No `dlsym` is needed, which may allocate.

/// Declares `fn NAME() -> Option<extern "C" fn(..)>`, the function that symbol `"name"` stands for, if any.
macro_rules! weak {
    ($(#[$doc:meta])* $name:ident = $symbol:literal: $type:ty) => {
        core::arch::global_asm!(
            concat!(".weak ", $symbol),
            ".pushsection .data.rel.ro.weir_weak,\"aw\",@progbits",
            ".balign 8",
            concat!(".hidden weir_weak_", $symbol),
            concat!(".globl weir_weak_", $symbol),
            concat!("weir_weak_", $symbol, ":"),
            concat!(".quad ", $symbol),
            ".popsection",
        );
        $(#[$doc])*
        #[inline]
        pub fn $name() -> Option<$type> {
            unsafe extern "C" {
                #[link_name = concat!("weir_weak_", $symbol)]
                static SLOT: Option<$type>;
            }
            // SAFETY: the slot is defined above; it holds null (`None`) or the address of a function that has
            // this type by its library's ABI, and nobody writes it after relocation.
            unsafe { SLOT }
        }
    };
}
pub(crate) use weak;
