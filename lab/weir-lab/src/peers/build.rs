//! Builds a peer from the crate that carries its sources into a shared object to preload.
//!
//! The crate compiles a static archive. That archive alone is linked into the object, with the malloc family as
//! linker aliases of the peer's own functions. So a peer runs as its authors' code, without a Rust shim in between.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// How a peer is built.
pub struct Recipe {
    pub name: &'static str,
    pub package: &'static str,
    pub version: &'static str,
    /// The peer's own version.
    pub carries: &'static str,
    /// Features of the crate, in quotes.
    features: &'static str,
    /// The archive in the crate's output.
    archive: &'static str,
    /// For the C and C++ compiler.
    flags: &'static str,
    /// Names of the malloc family, each with the peer's own.
    aliases: &'static str,
    pub env: &'static [(&'static str, &'static str)],
}

const MIMALLOC: Recipe = Recipe {
    name: "mimalloc3",
    package: "libmimalloc-sys2",
    version: "0.1.65",
    carries: "3.6.0",
    features: "'override', 'v3'",
    archive: "build/libmimalloc.a",
    flags: "",
    aliases: "",
    env: &[],
};

pub const RECIPES: [Recipe; 6] = [
    Recipe {
        name: "jemalloc-crate",
        package: "tikv-jemalloc-sys",
        version: "0.7.1",
        carries: "5.3.1",
        features: "'unprefixed_malloc_on_supported_platforms'",
        archive: "lib/libjemalloc_pic.a",
        aliases: "_ZdlPvm=free_sized",
        ..MIMALLOC
    },
    Recipe {
        name: "tcmalloc",
        package: "libtcmalloc-sys",
        version: "0.1.14",
        carries: "2025-06",
        features: "",
        archive: "libtcmalloc.a",
        flags: "-ftls-model=initial-exec",
        aliases: "malloc=TCMallocInternalMalloc free=TCMallocInternalFree calloc=TCMallocInternalCalloc
            realloc=TCMallocInternalRealloc reallocarray=TCMallocInternalReallocArray
            aligned_alloc=TCMallocInternalAlignedAlloc memalign=TCMallocInternalMemalign
            posix_memalign=TCMallocInternalPosixMemalign valloc=TCMallocInternalValloc pvalloc=TCMallocInternalPvalloc
            malloc_usable_size=TCMallocInternalMallocSize malloc_trim=TCMallocInternalMallocTrim
            _Znwm=TCMallocInternalNew _Znam=TCMallocInternalNewArray
            _ZdlPv=TCMallocInternalDelete _ZdaPv=TCMallocInternalDeleteArray
            _ZdlPvm=TCMallocInternalDeleteSized _ZdaPvm=TCMallocInternalDeleteArraySized",
        // As its authors ask: else the C library has the place that its caches for each CPU need.
        env: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
    },
    Recipe { name: "mimalloc2-crate", carries: "2.5.2", features: "'override'", ..MIMALLOC },
    MIMALLOC,
    Recipe {
        name: "snmalloc",
        package: "snmalloc-sys",
        version: "0.7.6",
        carries: "0.7.6",
        features: "'libc-api'",
        archive: "build/libsnmallocshim-rust.a",
        aliases: "malloc=sn_malloc free=sn_free calloc=sn_calloc realloc=sn_realloc aligned_alloc=sn_aligned_alloc
            memalign=sn_memalign posix_memalign=sn_posix_memalign valloc=sn_valloc pvalloc=sn_pvalloc
            malloc_usable_size=sn_malloc_usable_size cfree=sn_cfree free_sized=sn_free_sized
            free_aligned_sized=sn_free_aligned_sized _Znwm=sn_malloc _Znam=sn_malloc
            _ZdlPv=sn_free _ZdaPv=sn_free _ZdlPvm=sn_free_sized _ZdaPvm=sn_free_sized",
        ..MIMALLOC
    },
    Recipe {
        name: "rpmalloc",
        package: "rpmalloc-sys",
        version: "0.2.3",
        carries: "1.4.4-dev b097fd0",
        features: "'preload'",
        archive: "librpmalloc.a",
        flags: "-DENABLE_OVERRIDE=1",
        ..MIMALLOC
    },
];

/// Where built peers are: `$WEIR_PEERS_DIR`, or `peers` in the target folder.
pub fn directory() -> PathBuf {
    let target = || std::env::current_exe().ok()?.ancestors().nth(2).map(|target| target.join("peers"));
    std::env::var_os("WEIR_PEERS_DIR").map(PathBuf::from).or_else(target).unwrap_or_else(|| "target/peers".into())
}

impl Recipe {
    fn home(&self) -> PathBuf {
        directory().join(format!("{}-{}", self.name, self.version))
    }

    /// The object to preload.
    pub fn output(&self) -> PathBuf {
        self.home().join(format!("lib{}.so", self.name))
    }

    /// Builds it, unless it is there. Needs g++, make and cmake.
    pub fn build(&self) -> Result<PathBuf> {
        if self.output().exists() {
            return Ok(self.output());
        }
        let manifest = format!(
            "[package]\nname = 'peer-{}'\nversion = '0.0.0'\nedition = '2024'\n\n[workspace]\n\n[lib]\npath = 'lib.rs'\n\n\
             [dependencies]\n{} = {{ version = '={}', features = [{}] }}\n",
            self.name, self.package, self.version, self.features
        );
        std::fs::create_dir_all(self.home())?;
        std::fs::write(self.home().join("Cargo.toml"), manifest)?;
        std::fs::write(self.home().join("lib.rs"), "")?;
        let archive = self.compile()?.join(self.archive);
        let mut link = Command::new("c++");
        link.args(["-shared", "-O2", "-o"]).arg(self.output()).arg("-Wl,--whole-archive").arg(archive);
        link.arg("-Wl,--no-whole-archive,-z,nodelete");
        link.args(self.aliases.split_whitespace().map(|alias| format!("-Wl,--defsym={alias}")));
        output(link.args(["-lpthread", "-ldl", "-Wl,--as-needed", "-latomic"]))?;
        self.try_it().inspect_err(|_| drop(std::fs::remove_file(self.output())))
    }

    /// The folder of what the crate's build script made.
    fn compile(&self) -> Result<PathBuf> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--release", "--quiet", "--message-format=json", "-j2"]).current_dir(self.home());
        cargo.env("CARGO_TARGET_DIR", self.home().join("target")).env("CFLAGS", self.flags).env("CXXFLAGS", self.flags);
        let text = output(cargo.env_remove("RUSTFLAGS"))?;
        let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let folders = messages.filter(|message| message["reason"] == "build-script-executed").filter_map(|message| {
            let is_its = message["package_id"].as_str().is_some_and(|id| id.contains(self.package));
            is_its.then(|| message["out_dir"].as_str().map(PathBuf::from)).flatten()
        });
        folders.into_iter().next().with_context(|| format!("cargo named no build output of {}", self.package))
    }

    fn try_it(&self) -> Result<PathBuf> {
        let object = self.output();
        output(Command::new("true").env("LD_PRELOAD", &object)).context("it does not carry `true`")?;
        Ok(object)
    }
}

/// Runs a command that ends well, and returns what it says.
pub fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    let complaint = String::from_utf8_lossy(&stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    ensure!(status.success(), "{name} failed: {last}");
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
