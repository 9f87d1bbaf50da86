//! Which files an installed Weir has, and where: the one list of them.

use crate::artifacts::Artifacts;
use crate::command_line::InstallOptions;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's name for the loader, which `crates/weir-malloc/build.rs` writes into it.
const LIBRARY: &str = concat!("libweir.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// The library for static programs.
const ARCHIVE: &str = "libweir.a";

/// One file of an installed Weir.
pub struct Entry {
    /// Below the prefix.
    pub path: PathBuf,
    pub content: Content,
}

pub enum Content {
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
    /// A symbolic link to a file of the same directory.
    Link(&'static str),
}

const PROGRAM: u32 = 0o755;
const PLAIN: u32 = 0o644;

/// All of them, contents included.
pub fn entries(artifacts: &Artifacts, options: &InstallOptions) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for program in ["weir", "weir-nbd"] {
        let built = artifacts.built(program)?;
        entries.push(copy(Path::new("bin").join(program), &built, PROGRAM)?);
        entries.extend(generated(program, artifacts.runs(&built))?);
    }
    let libdir = &options.libdir;
    entries.push(copy(libdir.join(LIBRARY), &artifacts.built("libweir.so")?, PLAIN)?);
    entries.push(Entry { path: libdir.join("libweir.so"), content: Content::Link(LIBRARY) });
    entries.push(copy(libdir.join(ARCHIVE), &artifacts.archive()?, PLAIN)?);
    let description = pkg_config(&options.place.prefix, libdir).into_bytes();
    entries.push(plain(libdir.join("pkgconfig/weir.pc"), description));
    for name in ["weir-config.cmake", "weir-config-version.cmake"] {
        entries.push(plain(libdir.join("cmake/weir").join(name), cmake(artifacts, name, libdir)?.into_bytes()));
    }
    for header in ["weir.h", "weir.hpp"] {
        let source = artifacts.source("crates/weir-malloc/include").join(header);
        entries.push(copy(Path::new("include").join(header), &source, PLAIN)?);
    }
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        entries.push(copy(Path::new("share/doc/weir").join(name), &artifacts.source(name), PLAIN)?);
    }
    Ok(entries)
}

fn plain(path: PathBuf, bytes: Vec<u8>) -> Entry {
    Entry { path, content: Content::File { bytes, mode: PLAIN } }
}

fn copy(path: PathBuf, from: &Path, mode: u32) -> Result<Entry> {
    let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(Entry { path, content: Content::File { bytes, mode } })
}

/// A program's man pages and completions, as it writes them.
fn generated(program: &str, mut command: Command) -> Result<Vec<Entry>> {
    let folder = tempfile::tempdir().context("no directory for temporary files")?;
    let status = command.arg("generate").arg(folder.path()).status();
    ensure!(status.is_ok_and(|status| status.success()), "{command:?} failed");
    let mut entries = Vec::new();
    let pages = folder.path().join("man1");
    for page in std::fs::read_dir(&pages).with_context(|| format!("{program} wrote no man pages"))? {
        let page = page?.path();
        let name = page.file_name().context("a page has a name")?;
        entries.push(copy(Path::new("share/man/man1").join(name), &page, PLAIN)?);
    }
    let completions = folder.path().join("completions");
    for (written, installed) in [
        (format!("{program}.bash"), format!("bash-completion/completions/{program}")),
        (format!("_{program}"), format!("zsh/site-functions/_{program}")),
        (format!("{program}.fish"), format!("fish/vendor_completions.d/{program}.fish")),
    ] {
        entries.push(copy(Path::new("share").join(installed), &completions.join(written), PLAIN)?);
    }
    Ok(entries)
}

fn pkg_config(prefix: &Path, libdir: &Path) -> String {
    format!(
        "prefix={}\n\
         libdir=${{prefix}}/{}\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: weir\n\
         Description: a memory allocator that releases idle memory under pressure\n\
         Version: {}\n\
         # Needed though the program itself may call nothing of it: its libraries do.\n\
         Libs: -L${{libdir}} -Wl,--push-state,--no-as-needed,-lweir,--pop-state\n\
         # A program that leaves malloc to libc's own functions takes it from the archive all the same.\n\
         Libs.private: -Wl,-u,malloc\n\
         Cflags: -I${{includedir}}\n",
        prefix.display(),
        libdir.display(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// A file of CMake's, of which the sources have a form with blanks.
fn cmake(artifacts: &Artifacts, name: &str, libdir: &Path) -> Result<String> {
    let form = artifacts.source("xtask/cmake").join(format!("{name}.in"));
    let text = std::fs::read_to_string(&form).with_context(|| format!("cannot read {}", form.display()))?;
    // From LIBDIR/cmake/weir up to the prefix.
    let up = vec![".."; libdir.components().count() + 2].join("/");
    Ok(text
        .replace("@UP@", &up)
        .replace("@LIBDIR@", &libdir.display().to_string())
        .replace("@LIBRARY@", LIBRARY)
        .replace("@ARCHIVE@", ARCHIVE)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR")))
}
