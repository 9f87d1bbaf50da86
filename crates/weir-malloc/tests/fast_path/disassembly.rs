//! What only the finished library shows. No function of the malloc family ended up calling itself, and nothing is asked of the
//! process that a malloc may not ask. What it needs of the machine's libc is no newer than the documents say.

use crate::common::{describe, foreign, library};
use std::process::Command;

/// Output of a binutils tool about the library; none if this machine has no such tool, which is said.
fn inspect(tool: &str, arguments: &[&str]) -> Option<String> {
    if foreign() {
        weir_testing::skip!("another library is under test");
        return None;
    }
    // An optimised library is another: its compiler merges functions, for one.
    let optimised = std::env::var_os("WEIR_TEST_RELEASE").map(std::path::PathBuf::from);
    let output = match Command::new(tool).args(arguments).arg(optimised.or_else(|| library().map(Into::into))?).output()
    {
        Err(error) => {
            weir_testing::skip!("no {tool} ({error}); Debian has it in binutils");
            return None;
        }
        Ok(output) => output,
    };
    assert!(output.status.success(), "{tool}: {}", describe(&output));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The compiler knows what malloc and memset mean and may make a calloc of them, which inside calloc never ends.
#[test]
fn calloc_never_calls_malloc() {
    let Some(symbols) = inspect("nm", &["-D", "--defined-only"]) else { return };
    let Some(code) = inspect("objdump", &["-d", "--no-show-raw-insn"]) else { return };
    let Some(relocations) = inspect("readelf", &["--relocs", "--wide"]) else { return };
    for name in ["malloc", "calloc"] {
        // Equal functions share an address, and the disassembler shows one name of it: compare addresses.
        let symbol = symbols.lines().find(|line| line.ends_with(&format!(" T {name}"))).expect("an exported function");
        let address = symbol.split(' ').next().unwrap_or_default().trim_start_matches('0');
        assert!(code.contains(&format!("{address}:\t")), "the disassembly has no {name} in it");
        let call = format!("call   {address} ");
        assert!(!code.contains(&call), "somebody calls {name}");
        let through_the_linker = |line: &&str| line.split_whitespace().nth(4).is_some_and(|symbol| symbol == name);
        let Some(relocation) = relocations.lines().find(through_the_linker) else { continue };
        // Only `first` loads the address of the process's first malloc. A call that the compiler made would be by this slot.
        assert_eq!(name, "malloc");
        let slot = format!("# {} ", relocation.split(' ').next().unwrap_or_default().trim_start_matches('0'));
        let by_slot = code.lines().find(|line| line.contains("call ") && line.contains(&slot));
        assert_eq!(by_slot, None);
    }
}

/// Functions of ours are called by addresses, never by names, which may be another library's. Only the operators of C++
/// go by name to the form that the standard says they call, or to a `malloc`, `aligned_alloc` and `free` of the program's own. As in
/// glibc `reallocarray` goes to `realloc` so, and `free_sized` to `free`. All these may be the program's own.
#[test]
fn only_what_may_be_the_programs_own_goes_by_name() {
    let Some(symbols) = inspect("nm", &["-D", "--defined-only"]) else { return };
    let Some(relocations) = inspect("readelf", &["--relocs", "--wide"]) else { return };
    let ours: Vec<_> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let named = relocations.lines().filter_map(|line| line.split_whitespace().nth(4));
    let mut by_name: Vec<_> = named.filter(|name| ours.contains(name)).collect();
    by_name.sort_unstable();
    by_name.dedup();
    let allowed = [
        "_ZdaPv",
        "_ZdaPvSt11align_val_t",
        "_ZdlPv",
        "_ZdlPvSt11align_val_t",
        "_Znam",
        "_ZnamSt11align_val_t",
        "_Znwm",
        "_ZnwmSt11align_val_t",
        "aligned_alloc",
        "free",
        "malloc",
        "realloc",
    ];
    assert_eq!(by_name, allowed);
}

#[test]
fn loads_at_once_and_stays() {
    let Some(dynamic) = inspect("readelf", &["--dynamic", "--wide"]) else { return };
    for wanted in ["[libweir.so.0]", "BIND_NOW", "NODELETE", "INITFIRST"] {
        assert!(dynamic.contains(wanted), "no {wanted} in:\n{dynamic}");
    }
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().all(|line| line.contains("[libc.so.6]")), "needs more than libc: {needed:?}");
}

/// Thread-local storage of any but the initial-exec model would be allocated, on first use, by the malloc that uses
/// it. Names of ours must not leak out into programs.
#[test]
fn thread_local_storage_is_static_and_no_name_is_stray() {
    let Some(symbols) = inspect("nm", &["-D"]) else { return };
    assert!(!symbols.contains("__tls_get_addr"), "thread-local storage that the loader allocates");
    let Some(relocations) = inspect("readelf", &["--relocs", "--wide"]) else { return };
    for dynamic in ["DTPMOD", "DTPOFF", "TLSDESC"] {
        assert!(!relocations.contains(dynamic), "a {dynamic} relocation");
    }
    let exported = |line: &&str| line.contains(" T ") || line.contains(" D ") || line.contains(" B ");
    let families = ["alloc", "free", "mall", "_Z", "weir_", "__posix_memalign", "posix_memalign", "memalign"];
    // What is interposed, as it changes what the process is, what is mounted, what `fork` does with its memory, or where a
    // library finds `free`; and as it copies the process.
    let changes = [
        "chroot",
        "pivot_root",
        "unshare",
        "setns",
        "umount",
        "umount2",
        "capset",
        "setgroups",
        "initgroups",
        "madvise",
        "dlopen",
        "clone",
        "_Fork",
    ];
    let ids = |name: &str| name.starts_with("set") && (name.ends_with("id") || name.ends_with("gid"));
    for line in symbols.lines().filter(exported) {
        let name = line.rsplit(' ').next().unwrap_or_default();
        let is_known = families.iter().any(|family| name.contains(family)) || changes.contains(&name) || ids(name);
        assert!(is_known, "exports {name}");
    }
}

/// The newest version of glibc whose symbols the library asks for. The loader demands it whether the symbols are weak or
/// not: with an older glibc no program starts. DEPLOY.md says the same.
const NEWEST: (u32, u32) = (2, 16);

#[test]
fn no_newer_glibc_is_needed() {
    let Some(text) = inspect("readelf", &["--version-info", "--wide"]) else { return };
    let needs = text.split_once("Version needs section").expect("a section of needs").1;
    let versions: Vec<(u32, u32)> = needs.split("GLIBC_").skip(1).map(version).collect();
    assert_eq!(versions.iter().max(), Some(&NEWEST), "{needs}");
    assert!(!needs.contains("GLIBC_PRIVATE"), "{needs}");
}

/// The first two numbers of a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(u32::MAX));
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(u32::MAX))
}
