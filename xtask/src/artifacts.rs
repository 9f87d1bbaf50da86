//! What is installed, as Cargo builds it.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that are installed, those of one call of Cargo together. The library by itself, as its tests build it:
/// beside the programs its dependencies have more features, and each of the two would be linked anew after the other.
const PACKAGES: [&[&str]; 2] = [&["weir-malloc"], &["weir-cli", "weir-nbd"]];

/// The files that Cargo builds with one profile.
pub struct Artifacts {
    /// The workspace.
    pub sources: PathBuf,
    target: PathBuf,
    profile: String,
}

impl Artifacts {
    /// Those of the target directory in which this program was built.
    pub fn new(profile: &str) -> Result<Self> {
        let this = std::env::current_exe().context("cannot tell where this program is")?;
        let target = this.ancestors().nth(2).context("this program is in no target directory")?.to_path_buf();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?.to_path_buf();
        Ok(Self { sources, target, profile: profile.to_owned() })
    }

    /// Builds them.
    pub fn build(&self) -> Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        for packages in PACKAGES {
            let mut command = Command::new(&cargo);
            command.current_dir(&self.sources).args(["build", "--locked", "--profile", &self.profile, "--target-dir"]);
            command.arg(&self.target).args(packages.iter().flat_map(|name| ["--package", name]));
            ensure!(command.status().context("cannot start cargo")?.success(), "the build failed");
        }
        Ok(())
    }

    /// The file that was built under this name.
    pub fn built(&self, name: &str) -> Result<PathBuf> {
        let folder = if self.profile == "dev" { "debug" } else { &self.profile };
        let path = self.target.join(folder).join(name);
        ensure!(path.is_file(), "{} is not built: leave out --no-build", path.display());
        Ok(path)
    }

    /// A file of the sources.
    pub fn source(&self, name: &str) -> PathBuf {
        self.sources.join(name)
    }
}
