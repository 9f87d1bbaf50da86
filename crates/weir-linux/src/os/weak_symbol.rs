//! Symbols that may be absent: libstdc++'s when the program is C, glibc's when the libc is another.
//!
//! Stable Rust has no weak linkage, so each name gets a slot of its own in relocated read-only data: the
//! dynamic loader fills it before the first instruction of the library runs, with zero if no library defines the name.
//! No `dlsym` is needed, which may allocate.
//!
//! The linker notes the *version* of each symbol that its libc has, and the loader demands all versions that were noted,
//! of absent symbols too. So a name that glibc gave a second version (the functions of threads and of the loader, when
//! they moved into libc) is asked for by its first. What only newer releases have: `libc_symbol.rs`.
//!
//! A static program takes from an archive what somebody demands, and a weak name demands nothing. So where the program is linked
//! statically, or libc is musl, which mostly is, a name that every libc has (`in libc`) is an ordinary one. An archive has no
//! versions either.

/// Declares `fn NAME() -> Option<TYPE>`: what the symbol `"name"` stands for, if anybody has it. The type is a
/// function pointer, or `NonNull` to a variable's type. `"name" of "GLIBC_x.y"` asks for that version where libc is glibc;
/// `"name" in libc` is a name that every libc has.
///
/// ```
/// weir_linux::weak_symbol!(getpid = "getpid": extern "C" fn() -> i32);
/// weir_linux::weak_symbol!(absent = "no_such_function": extern "C" fn());
///
/// fn main() {
///     assert_eq!(getpid().unwrap()() as u32, std::process::id());
///     assert!(absent().is_none());
/// }
/// ```
#[macro_export]
macro_rules! weak_symbol {
    ($(#[$doc:meta])* $name:ident = $symbol:literal in libc $(of $version:literal)?: $type:ty) => {
        #[cfg(not(any(target_env = "musl", target_feature = "crt-static")))]
        core::arch::global_asm!(concat!(".weak ", $symbol));
        $crate::os::weak_symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol $(of $version)?: $type);
    };
    ($(#[$doc:meta])* $name:ident = $symbol:literal $(of $version:literal)?: $type:ty) => {
        core::arch::global_asm!(concat!(".weak ", $symbol));
        $crate::os::weak_symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol $(of $version)?: $type);
    };
    (@slot $(#[$doc:meta])* $name:ident = $symbol:literal of $version:literal: $type:ty) => {
        #[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), target_arch = "x86_64"))]
        core::arch::global_asm!(concat!(".symver ", $symbol, ", ", $symbol, "@", $version));
        // On arm64 the first version of all is that of the release that brought it there.
        #[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), target_arch = "aarch64"))]
        core::arch::global_asm!(concat!(".symver ", $symbol, ", ", $symbol, "@GLIBC_2.17"));
        $crate::os::weak_symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol: $type);
    };
    (@slot $(#[$doc:meta])* $name:ident = $symbol:literal: $type:ty) => {
        core::arch::global_asm!(
            ".pushsection .data.rel.ro.weir_weak,\"aw\",@progbits",
            ".balign 8",
            concat!(".hidden weir_weak_", $symbol),
            concat!(".globl weir_weak_", $symbol),
            concat!("weir_weak_", $symbol, ":"),
            concat!(".quad ", $symbol),
            ".popsection",
        );
        #[doc = concat!("What the symbol `", $symbol, "` stands for, if a library defines it.")]
        $(#[$doc])*
        #[inline]
        pub fn $name() -> Option<$type> {
            unsafe extern "C" {
                #[link_name = concat!("weir_weak_", $symbol)]
                static SLOT: Option<$type>;
            }
            // SAFETY: the slot is defined above; it holds null (`None`) or the address of what has this type by its
            // library's ABI, and nothing writes it after relocation.
            unsafe { SLOT }
        }
    };
}
pub use weak_symbol;
