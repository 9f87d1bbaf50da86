//! A QEMU guest that runs one of our load programs: its standard input and output are the program's.

mod initramfs;
pub mod kernel;

use crate::harness::child::{beside, run_system};
use crate::harness::machine::owner::{self, OwnFile};
use crate::peers::Allocator;
use anyhow::{Context, Result};
pub use initramfs::Initramfs;
use kernel::GuestKernel;
use std::path::{Path, PathBuf};
use std::process::Command;

const EMULATOR: &str = "qemu-system-x86_64";

/// A kernel, and what it boots into.
pub struct Image {
    kernel: PathBuf,
    initramfs: OwnFile,
}

/// The machine that a guest is given.
#[derive(Clone, Copy)]
pub struct Machine {
    pub mib: u64,
    /// Whether its balloon reports free pages.
    pub reporting: bool,
    /// MiB of translated code.
    pub translations: u64,
}

/// The emulator's name and version, and the kernel that is here.
pub fn find() -> Result<(String, GuestKernel)> {
    let told = run_system(EMULATOR, &["--version"]).context("apt-get install qemu-system-x86")?;
    let emulator = told.lines().next().unwrap_or(EMULATOR).split(" (").next().unwrap_or_default().to_string();
    let kernel = kernel::find()?;
    println!("Guests: {emulator}, software emulation, Linux {}.\n", kernel.release);
    Ok((emulator, kernel))
}

impl Image {
    /// A load program as the first process, the allocator beside it, and what is added.
    pub fn build(
        kernel: &GuestKernel,
        allocator: &Allocator,
        add: impl FnOnce(&mut Initramfs) -> Result<()>,
    ) -> Result<Image> {
        let mut image = Initramfs::new();
        add(&mut image)?;
        image.copy_with_libraries(&beside("weir-lab-load")?, Path::new("/init"))?;
        let mut environment = String::new();
        if let Some(object) = &allocator.preload {
            image.copy_with_libraries(object, Path::new("/preload.so"))?;
            environment.push_str("LD_PRELOAD=/preload.so\n");
        }
        allocator.env.iter().for_each(|(name, value)| environment += &format!("{name}={value}\n"));
        image.file(Path::new("/environment"), environment.as_bytes());
        for (number, module) in kernel.modules.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            image.copy(module, &Path::new("/modules").join(format!("{number}-{name}")))?;
        }
        let initramfs = owner::file(&std::env::temp_dir(), ".initramfs");
        std::fs::write(&initramfs.path, image.finish())?;
        Ok(Image { kernel: kernel.image.clone(), initramfs })
    }

    /// A guest that runs a load program with these words.
    pub fn command(&self, machine: Machine, words: &str) -> Command {
        let on = if machine.reporting { "on" } else { "off" };
        let accelerator = format!("tcg,tb-size={}", machine.translations);
        let mut command = Command::new(EMULATOR);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-smp", "1"]);
        // Without five levels of page tables, which no kernel needs here and which cost an emulator time.
        command.args(["-M", "pc", "-accel", &accelerator, "-cpu", "max,la57=off", "-m", &machine.mib.to_string()]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs.path);
        command.args(["-append", &format!("quiet panic=-1 console=ttyS1 -- guest-init {words}")]);
        command.args(["-serial", "stdio", "-chardev", "file,id=console,path=/dev/stderr,append=on"]);
        command.args(["-serial", "chardev:console"]);
        command.args(["-device", &format!("virtio-balloon-pci,free-page-reporting={on}")]);
        command
    }
}
