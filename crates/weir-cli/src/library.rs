//! Where `libweir.so` is.

use crate::base::failure::Failure;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// An installed library has the major version in its name, as the loader looks for it.
macro_rules! installed {
    ($directory:literal) => {
        concat!($directory, "/libweir.so.", env!("CARGO_PKG_VERSION_MAJOR"))
    };
}

/// Debian's directory of the architecture.
const DEBIAN: &str = if cfg!(target_arch = "aarch64") {
    installed!("../lib/aarch64-linux-gnu")
} else {
    installed!("../lib/x86_64-linux-gnu")
};

/// Where it may be, from the directory of the `weir` binary:
/// - as Cargo names it, in the build tree;
/// - where `cargo xtask install` puts it;
/// - in Debian's directory;
/// - in that of Fedora and SUSE.
const PLACES: [&str; 4] = ["libweir.so", installed!("../lib"), DEBIAN, installed!("../lib64")];

/// Finds the library, which the loader can preload: `WEIR_LIB`, or near the binary.
pub fn find() -> Result<PathBuf, Failure> {
    let path = match std::env::var_os("WEIR_LIB").filter(|v| !v.is_empty()) {
        Some(named) => check_named(PathBuf::from(named))?,
        None => near_binary()?,
    };
    if path.as_os_str().as_bytes().iter().any(|b| b" :".contains(b)) {
        return Err(Failure::of_weir(format!(
            "{}: LD_PRELOAD cannot hold a path with a blank or a colon: copy the library elsewhere and set WEIR_LIB",
            path.display()
        )));
    }
    can_be_loaded(&path).map_err(|why| {
        Failure::of_weir(format!(
            "{}: the loader cannot map it ({why}): make it readable, or copy it to a file system without noexec and set WEIR_LIB",
            path.display()
        ))
    })?;
    Ok(path)
}

/// Maps the file's first page as the loader maps its code.
fn can_be_loaded(path: &Path) -> std::io::Result<()> {
    const LEN: usize = 4096;
    let file = File::open(path)?;
    // SAFETY: a new mapping at no fixed address, of which nothing is read or run; it is unmapped before its address leaves this
    // function.
    unsafe {
        let at = mmap(null_mut(), LEN, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0)?;
        Ok(munmap(at, LEN)?)
    }
}

fn check_named(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).ok().filter(|p| p.is_file()).ok_or_else(|| {
        Failure::of_weir(format!(
            "library missing: WEIR_LIB names {}, which is no file: correct or unset it",
            path.display()
        ))
    })
}

fn near_binary() -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe()
        .map_err(|e| Failure::of_weir(format!("cannot tell where the weir binary is ({e}): set WEIR_LIB")))?;
    let dir = binary.parent().unwrap_or(Path::new("/"));
    near(dir).ok_or_else(|| {
        Failure::of_weir(format!(
            "library missing: no {} seen from {}: install it with `cargo xtask install`, build it with `cargo build \
             --release -p weir-malloc`, or set WEIR_LIB to its path",
            PLACES.join(", "),
            dir.display()
        ))
    })
}

fn near(dir: &Path) -> Option<PathBuf> {
    PLACES.iter().map(|place| dir.join(place)).find_map(|path| path.canonicalize().ok())
}

/// The value for `LD_PRELOAD`: Weir first, so that its malloc wins, then what was there. Another Weir among that would never be
/// called, and be counted as a process of its own.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let separator = |b: &u8| b" :".contains(b);
    let theirs = existing.map(OsStrExt::as_bytes).unwrap_or_default().split(separator);
    let is_weir =
        |entry: &[u8]| entry.rsplit(|&b| b == b'/').next().is_some_and(|name| name.starts_with(b"libweir.so"));
    for entry in theirs.filter(|e| !e.is_empty() && *e != library.as_os_str().as_bytes() && !is_weir(e)) {
        value.push(":");
        value.push(OsStr::from_bytes(entry));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_the_build_tree_and_where_it_is_installed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let bin = root.join("bin");
        std::fs::create_dir(&bin).unwrap();
        assert_eq!(near(&bin), None);
        // From the last place to the first: an earlier one wins. Names without the version are for linking.
        let debian = format!("lib/{}-linux-gnu/libweir.so.0", std::env::consts::ARCH);
        for place in ["lib64/libweir.so.0", &debian, "lib/libweir.so.0", "bin/libweir.so"] {
            let path = root.join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path.with_file_name("libweir.so"), "").unwrap();
            std::fs::write(&path, "").unwrap();
            assert_eq!(near(&bin), Some(path));
        }
    }

    #[test]
    fn weir_comes_first_and_the_others_stay() {
        let with = |existing: &str| preload(Path::new("/l/libweir.so"), Some(OsStr::new(existing)));
        assert_eq!(preload(Path::new("/l/libweir.so"), None), "/l/libweir.so");
        assert_eq!(with(""), "/l/libweir.so");
        assert_eq!(with("/a.so /b.so:c.so"), "/l/libweir.so:/a.so:/b.so:c.so");
        assert_eq!(with("/a.so:/l/libweir.so"), "/l/libweir.so:/a.so");
        assert_eq!(with("/usr/lib/libweir.so.0:/a.so libweir.so.0"), "/l/libweir.so:/a.so", "one Weir alone");
        assert_eq!(with("/libweir.so/a.so"), "/l/libweir.so:/libweir.so/a.so");
    }

    #[test]
    fn a_library_that_cannot_be_mapped_is_none() {
        assert!(can_be_loaded(&std::env::current_exe().unwrap()).is_ok());
        assert!(can_be_loaded(Path::new("/no/such")).is_err());
        // A file that the kernel writes as it is read has no pages to map.
        assert!(can_be_loaded(Path::new("/proc/self/status")).is_err());
    }
}
