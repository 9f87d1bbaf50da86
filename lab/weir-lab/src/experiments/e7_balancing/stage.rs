//! All that is real: the server and the consumer in a memory cgroup; the server's export as a file (nbdfuse), as a block
//! device (loop) and as a file system (ext4). Each thing is removed when the stage goes, however the experiment ends, in the
//! opposite order.

use super::setting::Size;
use crate::harness::block_device::BlockDevice;
use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{KilledOnDrop, load_program, wait_until};
use crate::harness::nbd_servers::weir_nbd;
use crate::harness::owner;
use crate::harness::phases::PhasedProgram;
use crate::harness::programs::run;
use crate::harness::restore::{RestoreGuard, on_end};
use crate::harness::stats_page::StatsPage;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder and the disk's file, for all runs.
pub struct Ground {
    folder: PathBuf,
    _guard: RestoreGuard,
}

impl Ground {
    /// Makes the folder and a disk of `bytes`, all of them written, so that no run has to allocate blocks below.
    pub fn make(at: &Path, bytes: u64) -> Result<Ground, String> {
        let folder = at.join(owner::name("-e7"));
        let undo = folder.clone();
        let guard = on_end(move || drop(fs::remove_dir_all(undo)));
        let told = |why: std::io::Error| format!("cannot make the disk in {}: {why}", folder.display());
        for part in ["fuse", "mnt"] {
            fs::create_dir_all(folder.join(part)).map_err(told)?;
        }
        let mut disk = File::create(folder.join("disk")).map_err(told)?;
        let zeroes = vec![0; 1 << 20];
        for _ in 0..bytes >> 20 {
            disk.write_all(&zeroes).map_err(told)?;
        }
        disk.sync_all().map_err(told)?;
        Ok(Ground { folder, _guard: guard })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// One run's. Fields are dropped in their order.
pub struct Stage<'a> {
    /// Programs that use the file system run in here: its limit keeps the kernel's cache of it small.
    pub client: Cgroup,
    _consumer: PhasedProgram,
    _mounted: RestoreGuard,
    _device: BlockDevice,
    server: KilledOnDrop,
    /// The server and the consumer.
    _shared: Cgroup,
    page: StatsPage,
    ground: &'a Ground,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

impl<'a> Stage<'a> {
    /// Sets everything up under a policy.
    pub fn make(ground: &'a Ground, size: &Size, policy: u64) -> Result<Stage<'a>, String> {
        let shared = Cgroup::make("e7-shared", size.limit)?;
        let page = StatsPage::make()?;
        let server = start_server(ground, &shared, &page, policy)?;
        let uri = format!("nbd+unix:///disk?socket={}", ground.at("socket").display());
        let device = BlockDevice::make(&ground.at("fuse"), &uri)?;
        run("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &device.name])?;
        let mounted = mount(ground, &device.name)?;
        let consumer = start_consumer(size, &shared)?;
        let client = Cgroup::make("e7-client", size.client_limit)?;
        Ok(Stage {
            client,
            _consumer: consumer,
            _mounted: mounted,
            _device: device,
            server,
            _shared: shared,
            page,
            ground,
        })
    }

    /// Where the file system is.
    pub fn folder(&self) -> PathBuf {
        self.ground.at("mnt")
    }

    /// The server's counters.
    pub fn page(&self) -> &StatsPage {
        &self.page
    }

    /// What the server says of its cache.
    pub fn cache(&mut self) -> Result<serde_json::Value, String> {
        if let Ok(Some(status)) = self.server.0.try_wait() {
            return Err(format!("the server did not survive: {status}"));
        }
        let control = self.ground.at("control");
        let output = Command::new(weir_nbd()?).args(["stat", "--json", "--control", text(&control)]).output();
        let output = output.map_err(|why| format!("cannot run weir-nbd stat: {why}"))?;
        let said: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|why| format!("weir-nbd stat: {why}"))?;
        Ok(said["cache"].clone())
    }
}

fn start_server(ground: &Ground, cgroup: &Cgroup, page: &StatsPage, policy: u64) -> Result<KilledOnDrop, String> {
    let (socket, disk) = (ground.at("socket"), ground.at("disk"));
    let _ = fs::remove_file(&socket);
    let mut command = Command::new(weir_nbd()?);
    command.args(["serve", "--cache", "auto", "--log", "warn", "--control", text(&ground.at("control"))]);
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    command.arg("--export").arg(format!("disk={}", disk.display()));
    command.env("WEIR_BALANCE_POLICY", policy.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    page.name_to(&mut command);
    enter(&mut command, cgroup);
    let mut server = KilledOnDrop::start(command, "weir-nbd")?;
    wait_until("the server", &mut server, || UnixStream::connect(&socket).is_ok())?;
    Ok(server)
}

fn mount(ground: &Ground, device: &str) -> Result<RestoreGuard, String> {
    let folder = ground.at("mnt");
    let undo = folder.clone();
    let guard = on_end(move || {
        if run("umount", &[text(&undo)]).is_err() {
            let _ = run("umount", &["-l", text(&undo)]);
        }
    });
    run("mount", &["-t", "ext4", "-o", "noatime", device, text(&folder)])?;
    Ok(guard)
}

fn start_consumer(size: &Size, cgroup: &Cgroup) -> Result<PhasedProgram, String> {
    let mut command = Command::new(load_program()?);
    command.args(["scan", &format!("bytes={}", size.segment), "block=1048576"]);
    command.arg(format!("pause_us={}", size.pause_us));
    PhasedProgram::start("the consumer", command, Some(cgroup))
}
