//! The allocators that are compared, how each is found, and how to get it.

pub mod build;

use anyhow::{Context, Result, bail};
use procfs::process::{MMapPath, Process};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An allocator that is here.
#[derive(Clone, Debug)]
pub struct Allocator {
    pub name: String,
    /// The object to preload; none for the C library's own.
    pub preload: Option<PathBuf>,
    pub version: String,
    /// Variables that it asks for.
    pub env: &'static [(&'static str, &'static str)],
}

impl Display for Allocator {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Allocator {
    /// The C library's, of a program whose allocator is not measured.
    pub fn none() -> Allocator {
        Allocator { name: "none".into(), preload: None, version: String::new(), env: &[] }
    }

    /// This allocator under another name and in another setting.
    pub fn with(&self, name: String, env: &'static [(&'static str, &'static str)]) -> Allocator {
        Allocator { name, env, ..self.clone() }
    }
}

pub const WEIR: &str = "weir";

/// A peer of Debian's: its name, package, and file.
const DEBIAN: [(&str, &str, &str); 4] = [
    ("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    ("gperftools", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    ("mimalloc2", "libmimalloc2.0", "libmimalloc.so.2"),
    ("scudo", "libclang-rt-22-dev", "libclang_rt.scudo_standalone-x86_64.so"),
];

/// Peers that cannot be had, and why.
pub const OUT_OF_REACH: &[(&str, &str)] =
    &[("ferroc", "its crate (1.0.0-pre.3) does not build with a stable compiler")];

const LIBRARY_DIRS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/llvm-22/lib/clang/22/lib/linux", "/usr/lib"];

/// Every allocator by its name, as it is here, or how to get it. Weir is first.
pub fn all(weir_path: Option<&Path>) -> Vec<(&'static str, Result<Allocator>)> {
    let of_crate = |recipe: &build::Recipe| {
        let path = Some(recipe.output()).filter(|path| path.exists());
        let path = path.with_context(|| format!("weir-lab peers {}", recipe.name))?;
        let version = format!("{} ({} {})", recipe.carries, recipe.package, recipe.version);
        Ok(Allocator { name: recipe.name.into(), preload: Some(path), version, env: recipe.env })
    };
    let debian = DEBIAN.iter().map(|row| (row.0, of_debian(*row)));
    let crates = build::RECIPES.iter().map(|recipe| (recipe.name, of_crate(recipe)));
    [(WEIR, weir(weir_path)), ("glibc", Ok(glibc()))].into_iter().chain(debian).chain(crates).collect()
}

fn of_debian((name, package, file): (&str, &str, &str)) -> Result<Allocator> {
    let found = LIBRARY_DIRS.iter().map(|dir| Path::new(dir).join(file)).find(|path| path.exists());
    let path = found.with_context(|| format!("apt-get install {package}"))?;
    let version = format!("{} (Debian)", package_version(package));
    Ok(Allocator { name: name.into(), preload: Some(path), version, env: &[] })
}

fn glibc() -> Allocator {
    // SAFETY: the C library's constant text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Allocator { name: "glibc".into(), version: version.to_string_lossy().into_owned(), ..Allocator::none() }
}

fn weir(asked: Option<&Path>) -> Result<Allocator> {
    let named = asked.map(Path::to_path_buf).or_else(|| std::env::var_os("WEIR_LIB").map(PathBuf::from));
    let beside = std::env::current_exe()?.with_file_name("libweir.so");
    let path = named.unwrap_or(beside).canonicalize();
    let path = path.context("cargo build --release -p weir-malloc, or --weir PATH, or $WEIR_LIB")?;
    let version = format!("{} (this tree)", env!("CARGO_PKG_VERSION"));
    Ok(Allocator { name: WEIR.into(), preload: Some(path), version, env: &[] })
}

/// Weir, and those asked for, or all that are here. An error is one that is asked for and not here.
pub fn choose(asked: &[String], weir_path: Option<&Path>) -> Result<Vec<Allocator>> {
    let all = all(weir_path);
    if let Some(unknown) = asked.iter().find(|name| all.iter().all(|(known, _)| known != name)) {
        bail!("no peer is called '{unknown}': see `weir-lab list`");
    }
    let mut chosen = Vec::new();
    for (name, found) in all {
        let by_name = asked.iter().any(|asked| asked == name) || (name == WEIR && weir_path.is_some());
        match found {
            Ok(allocator) if asked.is_empty() || by_name || name == WEIR => chosen.push(allocator),
            Err(how) if by_name => return Err(how.context(format!("{name} is not here"))),
            Err(how) if asked.is_empty() || name == WEIR => eprintln!("left out {name}: {how:#}"),
            _ => {}
        }
    }
    Ok(chosen)
}

/// With the C library's own object preloaded where nothing is: for programs that bring another allocator along.
pub fn with_glibc_by_name(mut allocators: Vec<Allocator>) -> Result<Vec<Allocator>> {
    let name = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.so"));
    let files = Process::myself()?.maps()?.into_iter().filter_map(|map| match map.pathname {
        MMapPath::Path(path) => Some(path),
        _ => None,
    });
    let libc = files.into_iter().find(name).context("this program is not linked with glibc")?;
    for glibc in allocators.iter_mut().filter(|allocator| allocator.preload.is_none()) {
        glibc.preload = Some(libc.clone());
    }
    Ok(allocators)
}

/// The version of an installed package.
pub fn package_version(package: &str) -> String {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}\n", package]).output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_string()
}
