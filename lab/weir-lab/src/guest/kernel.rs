//! A kernel for guests: Debian's cloud kernel, from its package, unpacked and not installed.

use crate::peers::build::{directory, output};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "linux-image-cloud-amd64";
/// In the order in which they are loaded.
const MODULES: &str = "virtio/virtio_ring virtio/virtio virtio/virtio_pci_legacy_dev virtio/virtio_pci_modern_dev
    virtio/virtio_pci virtio/virtio_balloon block/virtio_blk";

/// A kernel that is here.
pub struct GuestKernel {
    pub image: PathBuf,
    pub modules: Vec<PathBuf>,
    pub release: String,
}

/// In `$WEIR_GUEST_KERNEL`, where it is fetched to, or of this machine.
pub fn find() -> Result<GuestKernel> {
    let named = std::env::var_os("WEIR_GUEST_KERNEL").map(PathBuf::from);
    let mut roots = named.into_iter().chain([directory().join("guest-kernel"), PathBuf::from("/")]);
    roots.find_map(|root| in_root(&root)).context("no guest kernel is here: weir-lab guest-kernel")
}

fn in_root(root: &Path) -> Option<GuestKernel> {
    let images = std::fs::read_dir(root.join("boot")).ok()?.flatten().map(|file| file.file_name());
    let images = images.filter_map(|name| Some(name.to_str()?.strip_prefix("vmlinuz-")?.to_string()));
    let release = images.filter(|release| release.contains("cloud")).max()?;
    let drivers = root.join("lib/modules").join(&release).join("kernel/drivers");
    let modules = MODULES.split_whitespace().map(|name| drivers.join(format!("{name}.ko"))).collect::<Vec<_>>();
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    modules.iter().all(|module| module.exists()).then_some(GuestKernel { image, modules, release })
}

/// Fetches a kernel, unless one is here.
pub fn fetch() -> Result<GuestKernel> {
    if let Ok(here) = find() {
        return Ok(here);
    }
    let home = directory().join("guest-kernel");
    std::fs::create_dir_all(&home)?;
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let real = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let real = real.with_context(|| format!("apt-cache does not list {PACKAGE}: run apt-get update"))?;
    output(Command::new("apt-get").args(["download", real]).current_dir(&home))?;
    let files = std::fs::read_dir(&home)?.flatten().map(|file| file.path());
    let package = files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.context("apt-get brought no package")?;
    output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&home))?;
    std::fs::remove_file(package)?;
    find()
}
