//! Where `libweir.so` is.

use crate::base::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where it may be, from the directory of the `weir` binary: as installed, as cargo names it, as in distributions.
const PLACES: [&str; 4] = ["libweir.so", "libweir_malloc.so", "../lib/libweir.so", "../lib/weir/libweir.so"];

/// Finds the library: `WEIR_LIB`, or near the binary.
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
    Ok(path)
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
    let found = PLACES.iter().map(|place| dir.join(place)).find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        Failure::of_weir(format!(
            "library missing: no libweir.so in {} or its ../lib: build it with `cargo build --release -p weir-malloc` \
             or set WEIR_LIB to its path",
            dir.display()
        ))
    })
}

/// The value for `LD_PRELOAD`: Weir first, so that its malloc wins, then what was there.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let separator = |b: &u8| b" :".contains(b);
    let theirs = existing.map(OsStrExt::as_bytes).unwrap_or_default().split(separator);
    for entry in theirs.filter(|e| !e.is_empty() && *e != library.as_os_str().as_bytes()) {
        value.push(":");
        value.push(OsStr::from_bytes(entry));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_comes_first_and_the_others_stay() {
        let with = |existing: &str| preload(Path::new("/l/libweir.so"), Some(OsStr::new(existing)));
        assert_eq!(preload(Path::new("/l/libweir.so"), None), "/l/libweir.so");
        assert_eq!(with(""), "/l/libweir.so");
        assert_eq!(with("/a.so /b.so:c.so"), "/l/libweir.so:/a.so:/b.so:c.so");
        assert_eq!(with("/a.so:/l/libweir.so"), "/l/libweir.so:/a.so");
    }
}
