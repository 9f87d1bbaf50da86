//! A kernel for guests: Debian's cloud kernel, from its package, unpacked and not installed.

use crate::peers::build::directory;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "linux-image-cloud-amd64";

/// What a guest needs to have a balloon and a disk, in the order in which they are loaded.
const MODULES: [&str; 7] = [
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci",
    "virtio/virtio_balloon",
    "block/virtio_blk",
];

/// A kernel and the modules of its balloon and its disk.
pub struct GuestKernel {
    /// The image to boot.
    pub image: PathBuf,
    /// In the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// Its release.
    pub release: String,
}

/// Where an unpacked package is looked for: `$WEIR_GUEST_KERNEL`, beside the peers, and what is installed.
fn roots() -> Vec<PathBuf> {
    let named = std::env::var_os("WEIR_GUEST_KERNEL").map(PathBuf::from);
    named.into_iter().chain([directory().join("guest-kernel"), PathBuf::from("/")]).collect()
}

/// The kernel that is here, or how to get it.
pub fn find() -> Result<GuestKernel, String> {
    roots().iter().find_map(|root| in_root(root)).ok_or_else(|| "no guest kernel is here: weir-lab guest-kernel".into())
}

fn in_root(root: &Path) -> Option<GuestKernel> {
    let images = std::fs::read_dir(root.join("boot")).ok()?.flatten().map(|file| file.file_name());
    let images = images.filter_map(|name| Some(name.to_str()?.strip_prefix("vmlinuz-")?.to_string()));
    let release = images.filter(|release| release.contains("cloud")).max()?;
    let drivers = root.join("lib/modules").join(&release).join("kernel/drivers");
    let modules = MODULES.iter().map(|name| drivers.join(format!("{name}.ko"))).collect::<Vec<_>>();
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    modules.iter().all(|module| module.exists()).then_some(GuestKernel { image, modules, release })
}

/// Downloads and unpacks it, unless it is here.
pub fn fetch() -> Result<GuestKernel, String> {
    if let Ok(here) = find() {
        return Ok(here);
    }
    let home = directory().join("guest-kernel");
    std::fs::create_dir_all(&home).map_err(|why| format!("cannot make {}: {why}", home.display()))?;
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let real = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let real = real.ok_or_else(|| format!("apt-cache does not list {PACKAGE}: run apt-get update"))?;
    output(Command::new("apt-get").args(["download", real]).current_dir(&home))?;
    let files = std::fs::read_dir(&home).map_err(|why| format!("cannot read {}: {why}", home.display()))?;
    let package = files.flatten().map(|file| file.path()).find(|path| path.extension().is_some_and(|e| e == "deb"));
    let package = package.ok_or("apt-get brought no package")?;
    output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&home))?;
    let _ = std::fs::remove_file(package);
    find()
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|why| format!("cannot run {name}: {why}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    Err(format!("{name} failed: {}", complaint.lines().last().unwrap_or("no message")))
}
