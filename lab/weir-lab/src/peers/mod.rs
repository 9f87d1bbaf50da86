//! The allocators that are compared, how each is found, and how to get it.

pub mod build;
use procfs::process::{MMapPath, Process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An allocator that is there: a name and what to preload for it.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// As in `--peers` and in tables.
    pub name: String,
    /// The shared object to preload; none for the C library's own malloc.
    pub preload: Option<PathBuf>,
    /// Which version this is.
    pub version: String,
    /// Variables of the environment that its authors require.
    pub env: &'static [(&'static str, &'static str)],
}

/// The name under which Weir itself runs.
pub const WEIR: &str = "weir";

/// Where a peer comes from.
pub enum Source {
    /// The C library: nothing is preloaded.
    Libc,
    /// A Debian package and the file in it, below the library directories.
    Debian { package: &'static str, file: &'static str },
    /// A crate, built by `weir-lab peers`.
    Crate(&'static build::Recipe),
}

/// A peer: what it is called and where it comes from.
pub struct Peer {
    /// As in `--peers`.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
}

/// All peers, in the order of the tables.
pub const PEERS: &[Peer] = &[
    Peer { name: "glibc", source: Source::Libc },
    debian("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    Peer { name: "jemalloc-crate", source: Source::Crate(&build::JEMALLOC) },
    debian("gperftools", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    Peer { name: "tcmalloc", source: Source::Crate(&build::TCMALLOC) },
    debian("mimalloc2", "libmimalloc2.0", "libmimalloc.so.2"),
    Peer { name: "mimalloc2-crate", source: Source::Crate(&build::MIMALLOC2) },
    Peer { name: "mimalloc3", source: Source::Crate(&build::MIMALLOC3) },
    Peer { name: "snmalloc", source: Source::Crate(&build::SNMALLOC) },
    Peer { name: "rpmalloc", source: Source::Crate(&build::RPMALLOC) },
    debian("scudo", "libclang-rt-22-dev", "libclang_rt.scudo_standalone-x86_64.so"),
];

/// Peers that cannot be had here, and why.
pub const OUT_OF_REACH: &[(&str, &str)] =
    &[("ferroc", "its crate (1.0.0-pre.3) does not build with a stable compiler")];

/// Where Debian's packages put shared objects.
const LIBRARY_DIRS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/llvm-22/lib/clang/22/lib/linux", "/usr/lib"];

const fn debian(name: &'static str, package: &'static str, file: &'static str) -> Peer {
    Peer { name, source: Source::Debian { package, file } }
}

impl Peer {
    /// The peer as it is on this machine, or how to get it.
    pub fn find(&self) -> Result<Allocator, String> {
        let mut env: &[_] = &[];
        let (preload, version) = match &self.source {
            Source::Libc => (None, libc_version()),
            Source::Debian { package, file } => {
                let found = LIBRARY_DIRS.iter().map(|dir| Path::new(dir).join(file)).find(|path| path.exists());
                let path = found.ok_or_else(|| format!("apt-get install {package}"))?;
                (Some(path), format!("{} (Debian)", package_version(package)))
            }
            Source::Crate(recipe) => {
                let path = recipe.output();
                if !path.exists() {
                    return Err(format!("weir-lab peers {}", self.name));
                }
                env = recipe.env;
                (Some(path), format!("{} ({} {})", recipe.carries, recipe.package, recipe.version))
            }
        };
        Ok(Allocator { name: self.name.into(), preload, version, env })
    }
}

/// Weir's own library: the one given, `$WEIR_LIB`, or beside this program.
pub fn weir(asked: Option<&Path>) -> Result<Allocator, String> {
    let named = asked.map(Path::to_path_buf).or_else(|| std::env::var_os("WEIR_LIB").map(PathBuf::from));
    let path = match named {
        Some(path) => path.canonicalize().map_err(|why| format!("cannot preload {}: {why}", path.display()))?,
        None => beside_this_program()?,
    };
    Ok(Allocator {
        name: WEIR.into(),
        preload: Some(path),
        version: format!("{} (this tree)", env!("CARGO_PKG_VERSION")),
        env: &[],
    })
}

fn beside_this_program() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let library = Some(program.with_file_name("libweir.so")).filter(|path| path.exists());
    library.ok_or_else(|| "cargo build --release -p weir-malloc, or --weir PATH, or $WEIR_LIB".into())
}

/// The allocators of one run: Weir if it is there, and the peers named, or all that are there.
/// What was not named and is not installed is reported on standard error and left out.
pub fn choose(asked: &[String], weir_path: Option<&Path>) -> Result<Vec<Allocator>, String> {
    let all: Vec<(&str, Result<Allocator, String>)> =
        std::iter::once((WEIR, weir(weir_path))).chain(PEERS.iter().map(|peer| (peer.name, peer.find()))).collect();
    if let Some(unknown) = asked.iter().find(|name| all.iter().all(|(known, _)| known != name)) {
        return Err(format!("no peer is called '{unknown}': see `weir-lab list`"));
    }
    let mut chosen = Vec::new();
    for (name, found) in all {
        let by_name = asked.iter().any(|asked| asked == name) || (name == WEIR && weir_path.is_some());
        match found {
            Ok(allocator) if asked.is_empty() || by_name || name == WEIR => chosen.push(allocator),
            Err(how) if by_name => return Err(format!("{name} is not here: {how}")),
            Err(how) if asked.is_empty() || name == WEIR => eprintln!("left out {name}: {how}"),
            _ => {}
        }
    }
    Ok(chosen)
}

/// The shared object of the C library itself, for programs that link another malloc of their own.
pub fn libc_object() -> Result<PathBuf, String> {
    let maps = Process::myself().and_then(|process| process.maps()).map_err(|why| why.to_string())?;
    let is_libc = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.so"));
    let files =
        maps.into_iter().filter_map(|map| if let MMapPath::Path(path) = map.pathname { Some(path) } else { None });
    files.into_iter().find(is_libc).ok_or_else(|| "this program is not linked with glibc".into())
}

fn libc_version() -> String {
    // SAFETY: returns a static C string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

/// A Debian package's version, or `?` where there is no dpkg.
pub fn package_version(package: &str) -> String {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}\n", package]).output();
    let answer = asked.ok().filter(|output| output.status.success());
    let text = answer.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_string()
}
