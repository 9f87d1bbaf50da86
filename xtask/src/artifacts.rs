//! The files that are installed, as Cargo builds them.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that are installed. They are built at once: as with `cargo build` of the workspace's default members, the
/// library's dependencies have the features that the command wants of them, and nothing is built a second time.
const PACKAGES: [&str; 3] = ["weir-malloc", "weir-cli", "weir-nbd"];

/// The files that Cargo builds with one profile.
pub struct Artifacts {
    /// The workspace.
    pub sources: PathBuf,
    target: PathBuf,
    profile: String,
    triple: String,
    /// They are another machine's than this program.
    is_foreign: bool,
}

impl Artifacts {
    /// Finds the files of the target directory in which this program was built, for this machine or `triple`.
    pub fn new(profile: &str, triple: Option<&str>) -> Result<Self> {
        let this = std::env::current_exe().context("cannot tell where this program is")?;
        let target = this.ancestors().nth(2).context("this program is in no target directory")?.to_path_buf();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?.to_path_buf();
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let own = format!("{}-unknown-linux-{libc}", std::env::consts::ARCH);
        let triple = triple.unwrap_or(&own).to_owned();
        Ok(Self { sources, target, profile: profile.to_owned(), is_foreign: triple != own, triple })
    }

    /// Builds them.
    pub fn build(&self) -> Result<()> {
        let mut build = self.cargo("build");
        if self.is_foreign {
            build.args(["--target", &self.triple]);
        }
        finish(build.args(PACKAGES.iter().flat_map(|name| ["--package", name])))?;
        // Static programs want other references to libc (`weir_linux::os::symbol`). The flag is for the target alone, not for
        // programs that the build itself runs, so the target is named.
        let mut archive = self.cargo("rustc");
        archive.args(["--target", &self.triple, "--package", "weir-malloc", "--lib", "--crate-type", "staticlib"]);
        let (name, flags) = with_flag("-Ctarget-feature=+crt-static", |name| std::env::var(name).ok());
        finish(archive.env(name, flags))
    }

    fn cargo(&self, task: &str) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.sources).args([task, "--locked", "--profile", &self.profile, "--target-dir"]);
        cargo.arg(&self.target);
        // What cargo told this program of itself would make build scripts that read it (ring's) run again, here and in the next build.
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            cargo.env_remove(name);
        }
        cargo
    }

    /// The file that was built under this name.
    pub fn built(&self, name: &str) -> Result<PathBuf> {
        let place = if self.is_foreign { self.target.join(&self.triple) } else { self.target.clone() };
        self.built_in(&place, name)
    }

    /// A command that runs a program that was built. Another machine's runs by what Cargo's variable names.
    pub fn runs(&self, program: &Path) -> Command {
        let triple = self.triple.to_uppercase().replace('-', "_");
        let runner = std::env::var(format!("CARGO_TARGET_{triple}_RUNNER")).unwrap_or_default();
        let mut words = runner.split_whitespace();
        match words.next().filter(|_| self.is_foreign) {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// The archive for static programs.
    pub fn archive(&self) -> Result<PathBuf> {
        self.built_in(&self.target.join(&self.triple), "libweir.a")
    }

    fn built_in(&self, target: &Path, name: &str) -> Result<PathBuf> {
        let folder = if self.profile == "dev" { "debug" } else { &self.profile };
        let path = target.join(folder).join(name);
        ensure!(path.is_file(), "{} is not built: leave out --no-build", path.display());
        Ok(path)
    }

    /// A file of the sources.
    pub fn source(&self, name: &str) -> PathBuf {
        self.sources.join(name)
    }
}

fn finish(cargo: &mut Command) -> Result<()> {
    ensure!(cargo.status().context("cannot start cargo")?.success(), "the build failed");
    Ok(())
}

/// The variable by which cargo takes flags for rustc, and what it holds with one more. Cargo reads `RUSTFLAGS` only where
/// `CARGO_ENCODED_RUSTFLAGS`, whose flags have a unit separator between them, is not set.
fn with_flag(flag: &str, variable: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    let encoded = "CARGO_ENCODED_RUSTFLAGS";
    let (name, separator, flags) = match variable(encoded) {
        Some(flags) => (encoded, '\x1f', flags),
        None => ("RUSTFLAGS", ' ', variable("RUSTFLAGS").unwrap_or_default()),
    };
    (name, if flags.is_empty() { flag.to_owned() } else { format!("{flags}{separator}{flag}") })
}

#[cfg(test)]
mod tests {
    use super::with_flag;

    #[test]
    fn a_flag_is_added_to_the_variable_that_cargo_reads() {
        let with = |set: &[(&str, &str)]| {
            with_flag("-Cx=1", |name| set.iter().find(|(set, _)| *set == name).map(|(_, flags)| (*flags).to_owned()))
        };
        assert_eq!(with(&[]), ("RUSTFLAGS", "-Cx=1".to_owned()));
        assert_eq!(with(&[("RUSTFLAGS", "-g")]), ("RUSTFLAGS", "-g -Cx=1".to_owned()));
        let encoded = with(&[("RUSTFLAGS", "-g"), ("CARGO_ENCODED_RUSTFLAGS", "--cfg\x1floom")]);
        assert_eq!(encoded, ("CARGO_ENCODED_RUSTFLAGS", "--cfg\x1floom\x1f-Cx=1".to_owned()));
    }
}
