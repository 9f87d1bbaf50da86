//! A QEMU guest that runs one of our load programs: its standard input and output are the program's.

mod initramfs;
pub mod kernel;

use crate::harness::child::load_program;
use crate::harness::owner;
use crate::harness::restore::{RestoreGuard, on_end};
use crate::peers::Allocator;
pub use initramfs::Initramfs;
use kernel::GuestKernel;
use std::path::{Path, PathBuf};
use std::process::Command;

const EMULATOR: &str = "qemu-system-x86_64";

/// What all guests of one allocator boot from.
pub struct Image {
    kernel: PathBuf,
    initramfs: PathBuf,
    _guard: RestoreGuard,
}

/// What a guest runs on.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Memory, MiB.
    pub mib: u64,
    /// Whether its balloon reports free pages.
    pub reporting: bool,
    /// Room for translated code in the emulator, MiB: more is faster, less where the emulator's own memory is measured.
    pub translations: u64,
}

/// Whether guests can be run here, or what is missing.
pub fn emulator() -> Result<String, String> {
    let told = Command::new(EMULATOR).arg("--version").output();
    let told = told.map_err(|_| format!("{EMULATOR} is not here: apt-get install qemu-system-x86"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    Ok(text.lines().next().unwrap_or(EMULATOR).split(" (").next().unwrap_or_default().to_string())
}

impl Image {
    /// Builds an initial file system that holds the load program, the allocator and what both need.
    pub fn build(kernel: &GuestKernel, allocator: &Allocator, env: &[(&str, &str)]) -> Result<Image, String> {
        Image::build_with(kernel, allocator, env, |_| Ok(()))
    }

    /// The same, and whatever `add` adds.
    pub fn build_with(
        kernel: &GuestKernel,
        allocator: &Allocator,
        env: &[(&str, &str)],
        add: impl FnOnce(&mut Initramfs) -> Result<(), String>,
    ) -> Result<Image, String> {
        let mut image = Initramfs::new();
        add(&mut image)?;
        image.copy_with_libraries(&load_program()?, Path::new("/init"))?;
        let mut environment = String::new();
        if let Some(object) = &allocator.preload {
            image.copy_with_libraries(object, Path::new("/preload.so"))?;
            environment.push_str("LD_PRELOAD=/preload.so\n");
        }
        for (name, value) in allocator.env.iter().chain(env) {
            environment.push_str(&format!("{name}={value}\n"));
        }
        image.file(Path::new("/environment"), environment.as_bytes());
        for (number, module) in kernel.modules.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            image.copy(module, &Path::new("/modules").join(format!("{number}-{name}")))?;
        }
        let path = std::env::temp_dir().join(owner::name(".initramfs"));
        let undo = path.clone();
        let guard = on_end(move || drop(std::fs::remove_file(undo)));
        std::fs::write(&path, image.finish()).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
        Ok(Image { kernel: kernel.image.clone(), initramfs: path, _guard: guard })
    }

    /// The command of one guest whose program gets the arguments `words`. Software emulation: no guest needs more of the
    /// machine than a process. What its kernel complains of goes to standard error.
    pub fn command(&self, machine: Machine, words: &[String]) -> Command {
        let on = if machine.reporting { "on" } else { "off" };
        let accelerator = format!("tcg,tb-size={}", machine.translations);
        let mut command = Command::new(EMULATOR);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-smp", "1"]);
        command.args(["-M", "pc", "-accel", &accelerator, "-cpu", "max,la57=off"]);
        command.args(["-m", &machine.mib.to_string()]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        command.args(["-append", &format!("quiet panic=-1 console=ttyS1 -- guest-init {}", words.join(" "))]);
        // Opened to append: standard error may be a file that others write to as well.
        command.args(["-serial", "stdio", "-chardev", "file,id=console,path=/dev/stderr,append=on"]);
        command.args(["-serial", "chardev:console"]);
        command.args(["-device", &format!("virtio-balloon-pci,free-page-reporting={on}")]);
        command
    }
}

/// Gives a guest a disk, which it sees as `/dev/vda`: a file of this machine.
pub fn add_disk(command: &mut Command, file: &Path) {
    command.arg("-drive").arg(format!("file={},if=virtio,format=raw", file.display()));
}

/// Lets the guest's clock count its instructions, one a nanosecond, and skip what it sleeps: times are then the same
/// whatever else this machine does.
pub fn count_instructions(command: &mut Command) {
    command.args(["-icount", "shift=0,sleep=off", "-rtc", "clock=vm"]);
}
