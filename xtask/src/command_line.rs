//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::{Component, Path, PathBuf};

/// Tasks of the Weir project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build Weir, and install its programs, libraries, headers, files for pkg-config and CMake, man pages, completions and
    /// licences
    Install(InstallOptions),
    /// Remove what `install` put down, and nothing else
    Uninstall(Place),
}

/// Where Weir is, or is to be.
#[derive(Debug, Args)]
pub struct Place {
    /// The directory of bin, lib, include and share
    #[arg(long, value_name = "DIR", default_value = "/usr/local", value_parser = parse_prefix)]
    pub prefix: PathBuf,
    /// A directory that stands for /: for packages, whose files are moved there later
    #[arg(long, value_name = "DIR")]
    pub destdir: Option<PathBuf>,
}

impl Place {
    /// Where the file goes that is to be at `path` (absolute) in the end.
    pub fn real(&self, path: &Path) -> PathBuf {
        let root = self.destdir.as_deref().unwrap_or(Path::new("/"));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Options of `install`.
#[derive(Debug, Args)]
pub struct InstallOptions {
    #[command(flatten)]
    pub place: Place,
    /// The library's directory, below the prefix (Debian: lib/x86_64-linux-gnu)
    #[arg(long, value_name = "DIR", default_value = "lib", value_parser = parse_libdir)]
    pub libdir: PathBuf,
    /// Install what is built already
    #[arg(long)]
    pub no_build: bool,
    /// The profile of Cargo's to build with
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,
    /// Another machine, by Cargo's name; Cargo's variables for it say its linker, and the runner of its programs
    #[arg(long, value_name = "TRIPLE")]
    pub target: Option<String>,
}

/// `LD_PRELOAD` separates paths by blanks and colons, and has no way to quote them.
fn parse_prefix(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    match () {
        () if !path.is_absolute() || !path.components().all(plain) => Err("write an absolute path without ..".into()),
        () if text.contains([' ', ':', '\n']) => Err("LD_PRELOAD cannot hold a path with a blank or a colon".into()),
        () => Ok(path.components().collect()),
    }
}

fn parse_libdir(text: &str) -> Result<PathBuf, String> {
    let path = parse_prefix(&format!("/{text}"))?;
    let below = path.strip_prefix("/").map_err(|why| why.to_string())?;
    if text.starts_with('/') || below.as_os_str().is_empty() {
        return Err("write a path below the prefix".into());
    }
    Ok(below.into())
}
