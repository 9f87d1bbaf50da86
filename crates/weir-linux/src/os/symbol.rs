//! Symbols that may be absent: libstdc++'s when the program is C, glibc's when the libc is another.
//!
//! Stable Rust has no weak linkage, so each name gets a slot of its own in relocated read-only data. The dynamic loader fills the
//! slot before the first instruction of the library runs, with zero if no library defines the name. No `dlsym` is needed, which
//! may allocate.
//!
//! The linker notes the *version* of each symbol that its libc has, and the loader demands all versions that were noted, of
//! absent symbols too. Some names got a second version from glibc: the functions of threads and of the loader, when they moved
//! into libc. Such a name is asked for by its first. What only newer releases have is found at run time ([`LibcSymbol`]).
//!
//! A static program takes from an archive what somebody demands, and a weak name demands nothing. So where the program is linked
//! statically, or libc is musl, which mostly is, a name that every libc has (`in libc`) is an ordinary one. An archive has no
//! versions either.

use core::ffi::{CStr, c_char};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
        $crate::os::symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol $(of $version)?: $type);
    };
    ($(#[$doc:meta])* $name:ident = $symbol:literal $(of $version:literal)?: $type:ty) => {
        core::arch::global_asm!(concat!(".weak ", $symbol));
        $crate::os::symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol $(of $version)?: $type);
    };
    (@slot $(#[$doc:meta])* $name:ident = $symbol:literal of $version:literal: $type:ty) => {
        #[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), target_arch = "x86_64"))]
        core::arch::global_asm!(concat!(".symver ", $symbol, ", ", $symbol, "@", $version));
        // On arm64 the first version of all is that of the release that brought it there.
        #[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), target_arch = "aarch64"))]
        core::arch::global_asm!(concat!(".symver ", $symbol, ", ", $symbol, "@GLIBC_2.17"));
        $crate::os::symbol::weak_symbol!(@slot $(#[$doc])* $name = $symbol: $type);
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
            // SAFETY: the slot is defined above. It holds null (`None`) or the address of what has this type by its library's
            // ABI. Nothing writes it after relocation.
            unsafe { SLOT }
        }
    };
}
pub use weak_symbol;

/// The beginning of glibc's `struct r_debug` (`link.h`).
#[repr(C)]
pub struct Loader {
    version: i32,
    first: *const Object,
}

/// The beginning of glibc's `struct link_map`.
#[repr(C)]
pub struct Object {
    base: usize,
    name: *const c_char,
    /// Pairs of a tag and a value.
    dynamic: *const [usize; 2],
    next: *const Object,
}

weak_symbol!(
    /// The loader's list for debuggers. The loader exports it, not libc, so that no version is noted.
    loader = "_r_debug": NonNull<Loader>
);

/// A symbol that libc may have: one of newer releases, found at run time in the objects that the program began with.
///
/// A weak reference is not enough: the symbol may be absent, but not its *version*. The linker notes that the library
/// needs `GLIBC_2.35`, say, and an older loader refuses to start any program with it. `dlsym` allocates. So the loader's
/// list of objects is read, and each object's table of names, up to libc: without a lock, without memory, from anywhere.
///
/// The list needs no lock as far as that. All objects up to libc are those that the program began with: they are not
/// unloaded, and what `dlopen` adds is added behind them. The first that defines a name counts, as for the loader: a
/// program may have taken over a variable of libc's (a copy relocation).
pub struct LibcSymbol {
    name: &'static CStr,
    /// The symbol's address, or one of the two constants below.
    found: AtomicUsize,
}

const NOT_LOOKED_FOR: usize = 0;
const ABSENT: usize = 1;

impl LibcSymbol {
    /// Not looked for yet.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicUsize::new(NOT_LOOKED_FOR) }
    }

    /// Where it is; `None`: no object up to libc defines it.
    pub fn address(&self) -> Option<usize> {
        let mut found = self.found.load(Relaxed);
        if found == NOT_LOOKED_FOR {
            found = look_up(self.name.to_bytes(), core::ptr::null()).unwrap_or(ABSENT);
            // Whoever else looks finds the same.
            self.found.store(found, Relaxed);
        }
        (found != ABSENT).then_some(found)
    }
}

weak_symbol!(
    /// The process's environment, in every libc. Null before libc's own initialiser has run.
    environ = "environ" in libc: NonNull<*const *const u8>
);

/// Whether the libc that [`LibcSymbol`] finds is the one that this object is linked to: `dlmopen` gives an object another one, in a
/// namespace of its own, and the list is of the first namespace.
pub fn is_own_libc() -> bool {
    static ENVIRON: LibcSymbol = LibcSymbol::new(c"environ");
    ENVIRON.address() == environ().map(|at| at.as_ptr().addr())
}

/// What `dlsym(RTLD_NEXT, name)` finds, for a process that has no `dlsym`. It is the first function of the name in the objects
/// behind the caller's, up to libc, which is always asked. `own` is the caller's `_DYNAMIC`.
pub fn next(name: &CStr, own: *const u8) -> Option<usize> {
    look_up(name.to_bytes(), own)
}

/// Whether the object of this `_DYNAMIC` is one that the program began with: its own file, or what was loaded together with it. Of
/// those that the loader lists behind libc this is not known: `false`.
pub fn is_of_the_beginning(own: *const u8) -> bool {
    objects().any(|(object, _)| core::ptr::eq(object.dynamic.cast(), own))
}

/// The first definition of a name in the objects behind the one of this `_DYNAMIC`, or in all where it is null. libc is the
/// last, and is asked wherever `own` is.
fn look_up(name: &[u8], own: *const u8) -> Option<usize> {
    let mut is_behind = own.is_null();
    for (object, is_last) in objects() {
        if is_behind || is_last {
            // SAFETY: the object is loaded.
            let names = unsafe { Names::of(object) };
            // SAFETY: its tables.
            let found = names.and_then(|names| unsafe { names.find(name) });
            if found.is_some() {
                return found;
            }
        }
        is_behind |= core::ptr::eq(object.dynamic.cast(), own);
    }
    None
}

/// The loader's list up to libc, of which the flag is set.
fn objects() -> impl Iterator<Item = (&'static Object, bool)> {
    // SAFETY: the loader's own variable of this type, which it has filled before any other code runs.
    let mut at = loader().map_or(core::ptr::null(), |loader| unsafe { loader.as_ref() }.first);
    core::iter::from_fn(move || {
        // SAFETY: null, or an object up to libc, which is never unloaded; so is the next one's.
        let object = unsafe { at.as_ref() }?;
        // SAFETY: null, or a string of the loader's.
        let is_last = !object.name.is_null() && is_libc(unsafe { CStr::from_ptr(object.name) }.to_bytes());
        at = if is_last { core::ptr::null() } else { object.next };
        Some((object, is_last))
    })
}

fn is_libc(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next() == Some(b"libc.so.6")
}

/// An entry of a table of symbols (`Elf64_Sym`).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

impl Symbol {
    /// Whether it is a function or a variable that is in the object, at its value. A function that its object chooses when it
    /// is bound (`STT_GNU_IFUNC`) has the chooser there, and a thread-local variable an offset.
    fn is_defined(&self) -> bool {
        const STT_FUNC: u8 = 2;
        self.section != 0 && self.info & 0xf <= STT_FUNC
    }
}

/// An object's table of names.
struct Names {
    base: usize,
    strings: usize,
    symbols: usize,
    /// A version of each symbol, of 16 bits; 0 where the object has no versions.
    versions: usize,
    /// GNU's table of hashes. First come four words: buckets, the first symbol in it, words of the filter, its shift. The filter,
    /// the buckets, and a word for each symbol follow.
    hashes: usize,
}

impl Names {
    /// `None`: it has no such table.
    ///
    /// # Safety
    /// The object is loaded, and stays.
    unsafe fn of(object: &Object) -> Option<Self> {
        const DT_NULL: usize = 0;
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        const DT_GNU_HASH: usize = 0x6fff_fef5;
        const DT_VERSYM: usize = 0x6fff_fff0;
        let mut names = Self { base: object.base, strings: 0, symbols: 0, versions: 0, hashes: 0 };
        let mut at = object.dynamic;
        if at.is_null() {
            return None;
        }
        loop {
            // SAFETY: the caller's promise; the array ends with `DT_NULL`.
            let [tag, value] = unsafe { at.read() };
            // Where the array is not writable (the kernel's own object), the loader left offsets in it.
            let address = if value < object.base { object.base + value } else { value };
            match tag {
                DT_NULL => break,
                DT_STRTAB => names.strings = address,
                DT_SYMTAB => names.symbols = address,
                DT_GNU_HASH => names.hashes = address,
                DT_VERSYM => names.versions = address,
                _ => {}
            }
            // SAFETY: not the last entry.
            at = unsafe { at.add(1) };
        }
        (names.strings != 0 && names.symbols != 0 && names.hashes != 0).then_some(names)
    }

    /// Whether a symbol is of the version that new programs are linked with. The others have a bit that hides them.
    fn is_default(&self, number: usize) -> bool {
        const HIDDEN: u16 = 0x8000;
        // SAFETY: the table of versions has an entry for each symbol.
        self.versions == 0 || unsafe { (self.versions as *const u16).add(number).read() } & HIDDEN == 0
    }

    /// The address of a symbol that is defined here.
    ///
    /// # Safety
    /// The tables are a loaded object's.
    unsafe fn find(&self, name: &[u8]) -> Option<usize> {
        let hash = name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        // SAFETY: words of the table, as its head says, here and below.
        let word = |index: usize| unsafe { (self.hashes as *const u32).add(index).read() };
        let [buckets, first, filter] = [0, 1, 2].map(|index| word(index) as usize);
        let (heads, chains) = (4 + 2 * filter, 4 + 2 * filter + buckets);
        let mut number = word(heads + (hash as usize).checked_rem(buckets)?) as usize;
        if number < first {
            return None;
        }
        loop {
            let other = word(chains + number - first);
            // The lowest bit marks a chain's last.
            if other | 1 == hash | 1 {
                // SAFETY: the table has a symbol of each number that it names.
                let symbol = unsafe { &*(self.symbols as *const Symbol).add(number) };
                // SAFETY: a string of the object's.
                let its = unsafe { CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char) };
                if symbol.is_defined() && its.to_bytes() == name && self.is_default(number) {
                    return Some(self.base.wrapping_add(symbol.value));
                }
            }
            if other & 1 != 0 {
                return None;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libc_has_is_found_and_what_it_has_not_is_not() {
        unsafe extern "C" {
            fn getppid() -> i32;
        }
        static FOUND: LibcSymbol = LibcSymbol::new(c"getppid");
        static MISSING: LibcSymbol = LibcSymbol::new(c"weir_no_such_symbol");
        for _ in 0..2 {
            assert_eq!(FOUND.address(), Some(getppid as *const () as usize));
            assert_eq!(MISSING.address(), None);
        }
        assert!(is_own_libc());
    }

    #[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
    #[test]
    fn the_next_function_is_libcs_wherever_the_own_object_is() {
        unsafe extern "C" {
            fn getppid() -> i32;
            #[link_name = "_DYNAMIC"]
            static OWN: u8;
        }
        let unlisted = 0u8;
        for own in [&raw const OWN, &raw const unlisted] {
            assert_eq!(next(c"getppid", own), Some(getppid as *const () as usize));
            assert_eq!(next(c"weir_no_such_symbol", own), None);
        }
    }

    /// glibc has a `memcpy` for each kind of processor, and one of an older version, which is hidden.
    #[cfg(all(target_env = "gnu", not(target_feature = "crt-static"), target_arch = "x86_64"))]
    #[test]
    fn what_is_chosen_when_it_is_bound_is_not_found() {
        assert_eq!(next(c"memcpy", core::ptr::null()), None);
    }

    #[test]
    fn libc_is_told_by_its_files_name() {
        assert!(is_libc(b"/lib/x86_64-linux-gnu/libc.so.6") && is_libc(b"libc.so.6"));
        assert!(!is_libc(b"/opt/mylibc.so.6") && !is_libc(b""));
    }
}
