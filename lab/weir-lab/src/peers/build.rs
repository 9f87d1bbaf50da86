//! Builds a peer from the crate that carries its sources into a shared object to preload.
//!
//! The crate compiles a static archive; that archive alone is linked into the object, with the malloc family as
//! linker aliases of the peer's own functions. So a peer runs as its authors' code, without a Rust shim in between.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How one crate becomes one shared object.
pub struct Recipe {
    /// The peer's name, and its directory's.
    pub name: &'static str,
    /// The crate.
    pub package: &'static str,
    /// Its version, pinned.
    pub version: &'static str,
    /// What version of the allocator it carries.
    pub carries: &'static str,
    features: &'static [&'static str],
    /// The archive, below the build script's output directory.
    archive: &'static str,
    /// Compiler flags that a preloaded malloc needs and the crate's own build lacks.
    flags: &'static str,
    /// `symbol=function` aliases, where the archive's functions have names of their own.
    aliases: &'static [&'static str],
    /// Variables of the environment that its authors require when it runs.
    pub env: &'static [(&'static str, &'static str)],
    /// Programs that the build calls.
    tools: &'static [(&'static str, &'static str)],
}

/// jemalloc's newest release. It has no C++ operators here; sized delete is C23's sized free.
pub const JEMALLOC: Recipe = Recipe {
    name: "jemalloc-crate",
    package: "tikv-jemalloc-sys",
    version: "0.7.1",
    carries: "5.3.1",
    features: &["unprefixed_malloc_on_supported_platforms"],
    archive: "lib/libjemalloc_pic.a",
    flags: "",
    aliases: &["_ZdlPvm=free_sized"],
    env: &[],
    tools: &[("c++", "g++"), ("make", "make")],
};

/// mimalloc 3, from the crate that carries the newest one; its own overrides are complete.
pub const MIMALLOC3: Recipe = Recipe {
    name: "mimalloc3",
    package: "libmimalloc-sys2",
    version: "0.1.65",
    carries: "3.6.0",
    features: &["override", "v3"],
    archive: "build/libmimalloc.a",
    flags: "",
    aliases: &[],
    env: &[],
    tools: &[("c++", "g++"), ("cmake", "cmake")],
};

/// mimalloc 2, from the same crate.
pub const MIMALLOC2: Recipe =
    Recipe { name: "mimalloc2-crate", carries: "2.5.2", features: &["override"], ..MIMALLOC3 };

/// snmalloc. Operator new is its malloc (it returns null where C++ would throw).
pub const SNMALLOC: Recipe = Recipe {
    name: "snmalloc",
    package: "snmalloc-sys",
    version: "0.7.6",
    carries: "0.7.6",
    features: &["libc-api"],
    archive: "build/libsnmallocshim-rust.a",
    flags: "",
    aliases: &[
        "malloc=sn_malloc",
        "free=sn_free",
        "calloc=sn_calloc",
        "realloc=sn_realloc",
        "aligned_alloc=sn_aligned_alloc",
        "memalign=sn_memalign",
        "posix_memalign=sn_posix_memalign",
        "valloc=sn_valloc",
        "pvalloc=sn_pvalloc",
        "malloc_usable_size=sn_malloc_usable_size",
        "cfree=sn_cfree",
        "free_sized=sn_free_sized",
        "free_aligned_sized=sn_free_aligned_sized",
        "_Znwm=sn_malloc",
        "_Znam=sn_malloc",
        "_ZdlPv=sn_free",
        "_ZdaPv=sn_free",
        "_ZdlPvm=sn_free_sized",
        "_ZdaPvm=sn_free_sized",
    ],
    env: &[],
    tools: &[("c++", "g++"), ("cmake", "cmake")],
};

/// rpmalloc. `ENABLE_OVERRIDE` is what its own build of a preloadable object sets; the crate has no feature for it.
pub const RPMALLOC: Recipe = Recipe {
    name: "rpmalloc",
    package: "rpmalloc-sys",
    version: "0.2.3",
    carries: "1.4.4-dev b097fd0",
    features: &["preload"],
    archive: "librpmalloc.a",
    flags: "-DENABLE_OVERRIDE=1",
    aliases: &[],
    env: &[],
    tools: &[("c++", "g++")],
};

/// Google's tcmalloc, with per-CPU caches by restartable sequences. It cannot share glibc's registration for them: unless
/// glibc is told to leave it alone, it quietly falls back to caches a thread (twice as slow on pair64).
pub const TCMALLOC: Recipe = Recipe {
    name: "tcmalloc",
    package: "libtcmalloc-sys",
    version: "0.1.14",
    carries: "2025-06",
    features: &[],
    archive: "libtcmalloc.a",
    flags: "-ftls-model=initial-exec",
    aliases: &[
        "malloc=TCMallocInternalMalloc",
        "free=TCMallocInternalFree",
        "calloc=TCMallocInternalCalloc",
        "realloc=TCMallocInternalRealloc",
        "reallocarray=TCMallocInternalReallocArray",
        "aligned_alloc=TCMallocInternalAlignedAlloc",
        "memalign=TCMallocInternalMemalign",
        "posix_memalign=TCMallocInternalPosixMemalign",
        "valloc=TCMallocInternalValloc",
        "pvalloc=TCMallocInternalPvalloc",
        "malloc_usable_size=TCMallocInternalMallocSize",
        "malloc_trim=TCMallocInternalMallocTrim",
        "_Znwm=TCMallocInternalNew",
        "_Znam=TCMallocInternalNewArray",
        "_ZdlPv=TCMallocInternalDelete",
        "_ZdaPv=TCMallocInternalDeleteArray",
        "_ZdlPvm=TCMallocInternalDeleteSized",
        "_ZdaPvm=TCMallocInternalDeleteArraySized",
    ],
    env: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
    tools: &[("c++", "g++")],
};

/// All recipes.
pub const RECIPES: &[&Recipe] = &[&JEMALLOC, &TCMALLOC, &MIMALLOC2, &MIMALLOC3, &SNMALLOC, &RPMALLOC];

/// Where peers are built and kept: `$WEIR_PEERS_DIR`, else `peers` beside the build's profile directories.
pub fn directory() -> PathBuf {
    if let Some(dir) = std::env::var_os("WEIR_PEERS_DIR") {
        return PathBuf::from(dir);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).map(Path::to_path_buf);
    target.unwrap_or_else(|| PathBuf::from("target")).join("peers")
}

impl Recipe {
    fn home(&self) -> PathBuf {
        directory().join(format!("{}-{}", self.name, self.version))
    }

    /// The shared object, once built.
    pub fn output(&self) -> PathBuf {
        self.home().join(format!("lib{}.so", self.name))
    }

    /// Builds it, unless it is there.
    pub fn build(&self) -> Result<PathBuf, String> {
        if self.output().exists() {
            return Ok(self.output());
        }
        for (tool, package) in self.tools {
            if !on_path(tool) {
                return Err(format!("needs {tool} (apt-get install {package})"));
            }
        }
        self.write_project()?;
        let archive = self.compile()?.join(self.archive);
        if !archive.exists() {
            return Err(format!("{} built no {}", self.package, self.archive));
        }
        self.link(&archive)?;
        try_it(&self.output())
    }

    fn write_project(&self) -> Result<(), String> {
        let features = self.features.iter().map(|feature| format!("\"{feature}\"")).collect::<Vec<_>>().join(", ");
        let manifest = format!(
            "[package]\nname = \"peer-{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
             [workspace]\n\n[lib]\npath = \"lib.rs\"\n\n\
             [dependencies]\n{} = {{ version = \"={}\", features = [{features}] }}\n",
            self.name, self.package, self.version
        );
        let write = |file: &str, text: &str| {
            let path = self.home().join(file);
            std::fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
        };
        std::fs::create_dir_all(self.home()).map_err(|why| format!("cannot make {}: {why}", self.home().display()))?;
        write("Cargo.toml", &manifest)?;
        write("lib.rs", "")
    }

    /// Lets cargo build the crate; returns the output directory of its build script.
    fn compile(&self) -> Result<PathBuf, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--message-format=json", "-j2"])
            .current_dir(self.home())
            .env("CARGO_TARGET_DIR", self.home().join("target"))
            .env("CFLAGS", self.flags)
            .env("CXXFLAGS", self.flags)
            .env_remove("RUSTFLAGS")
            .stdin(Stdio::null())
            .output()
            .map_err(|why| format!("cannot run cargo: {why}"))?;
        if !output.status.success() {
            return Err(format!("cargo build of {} failed: {}", self.package, last_line(&output.stderr)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["reason"] == "build-script-executed")
            .filter(|message| message["package_id"].as_str().is_some_and(|id| id.contains(self.package)))
            .find_map(|message| message["out_dir"].as_str().map(PathBuf::from))
            .ok_or_else(|| format!("cargo named no build output of {}", self.package))
    }

    fn link(&self, archive: &Path) -> Result<(), String> {
        let output = Command::new("c++")
            .args(["-shared", "-O2", "-o"])
            .arg(self.output())
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .arg("-Wl,--no-whole-archive,-z,nodelete")
            .args(self.aliases.iter().map(|alias| format!("-Wl,--defsym={alias}")))
            .args(["-lpthread", "-ldl", "-Wl,--as-needed", "-latomic"])
            .output()
            .map_err(|why| format!("cannot run c++: {why}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("linking {} failed: {}", self.name, last_line(&output.stderr)))
    }
}

/// A shared object that cannot carry `true` is none.
fn try_it(object: &Path) -> Result<PathBuf, String> {
    let ran = Command::new("true").env("LD_PRELOAD", object).output();
    match ran {
        Ok(output) if output.status.success() && output.stderr.is_empty() => Ok(object.to_path_buf()),
        Ok(output) => {
            let _ = std::fs::remove_file(object);
            Err(format!("it does not carry `true`: {} {}", output.status, last_line(&output.stderr)))
        }
        Err(why) => Err(format!("cannot run `true`: {why}")),
    }
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_string()
}
