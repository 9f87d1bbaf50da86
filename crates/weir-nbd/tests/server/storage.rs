//! Things below an export: files, block devices, full disks, and files that shrink.

use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, pattern};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A folder with a file `disk` of this size, all of it a hole.
pub fn sparse(size: u64) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    File::create(folder.path().join("disk")).and_then(|file| file.set_len(size)).expect("a file");
    folder
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn a_file_is_written_in_place_and_gives_its_blocks_back() {
    for engine in engines() {
        let server = Server::start_in(sparse(4 << 20), &["--export", "d=disk", "--io", engine]);
        let mut client = server.extended("d");
        let data = pattern(5, 1 << 20);
        assert_eq!(client.error(WRITE, 0, 1 << 20, 1 << 20, &data), 0);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        let file = File::open(server.path("disk")).expect("the file");
        let mut found = vec![0; 1 << 20];
        file.read_exact_at(&mut found, 1 << 20).expect("its data");
        assert!(found == data);
        assert!(file.metadata().expect("the file").blocks() >= 2048);
        assert_eq!(client.status(0, 0, 4 << 20), [(1 << 20, 3), (1 << 20, 0), (2 << 20, 3)]);
        assert_eq!(client.error(TRIM, FUA, 1 << 20, 1 << 20, b""), 0);
        assert!(file.metadata().expect("the file").blocks() < 100, "the trimmed blocks are free");
        assert_eq!(client.read(0, 1 << 20, 1 << 20), vec![0; 1 << 20]);
        // Zeroes with storage behind them.
        assert_eq!(client.error(ZEROES, NO_HOLE, 0, 1 << 20, b""), 0);
        assert!(file.metadata().expect("the file").blocks() >= 2048);
        server.stop();
    }
}

/// Where the server's descriptors of files whose name contains `name` stand: a look for data or holes moves them.
fn positions(server: &Server, name: &str) -> Vec<String> {
    let folder = format!("/proc/{}", server.pid());
    let all = std::fs::read_dir(format!("{folder}/fd")).expect("descriptors").map(|entry| entry.expect("an entry"));
    let is_its = |path: &Path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(name));
    all.filter(|entry| is_its(&entry.path()))
        .map(|entry| {
            let info = format!("{folder}/fdinfo/{}", entry.file_name().to_string_lossy());
            let info = std::fs::read_to_string(info).expect("a descriptor");
            info.lines().next().expect("its position").to_string()
        })
        .collect()
}

#[test]
fn what_is_known_to_be_data_is_not_looked_for() {
    for engine in engines() {
        // The server has written it itself.
        let server = Server::start(&["--export", "m=memory:4M", "--io", engine]);
        let mut client = server.structured("m");
        let data = pattern(5, 1 << 20);
        assert_eq!(client.error(WRITE, 0, 1 << 20, 1 << 20, &data), 0);
        assert!(client.read(0, 1 << 20, 1 << 20) == data);
        assert_eq!(positions(&server, "memfd:weir-nbd"), ["pos:\t0"]);
        assert!(client.read(0, 0, 1 << 20) == vec![0; 1 << 20]);
        assert_eq!(positions(&server, "memfd:weir-nbd"), ["pos:\t1048576"], "what is not known is asked about");
        server.stop();
        // A trim makes one hole, and all else stays known.
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("disk"), pattern(6, 4 << 20)).expect("a file");
        File::open(folder.path().join("disk")).and_then(|file| file.sync_all()).expect("it has its blocks");
        let server = Server::start_in(folder, &["--export", "d=disk", "--io", engine]);
        let mut client = server.structured("d");
        assert_eq!(client.error(TRIM, 0, 0, 4096, b""), 0);
        assert!(client.read(0, 1 << 20, 1 << 20) == pattern(6, 4 << 20)[1 << 20..2 << 20]);
        assert_eq!(positions(&server, "/disk"), ["pos:\t0"]);
        assert_eq!(
            client.chunks(READ, 0, 0, 1 << 20, b"").iter().map(|chunk| chunk.kind).collect::<Vec<_>>(),
            [HOLE, DATA]
        );
        server.stop();
    }
}

#[test]
fn a_volume_that_grew_is_seen_by_the_next_client_and_at_a_reload() {
    for engine in engines() {
        for cache in [&[][..], &["--cache", "4M"]] {
            let server = Server::start_in(sparse(10_000), &[&["--export", "d=disk", "--io", engine], cache].concat());
            let mut early = server.structured("d");
            let disk = File::options().write(true).open(server.path("disk")).expect("the file");
            disk.set_len(1 << 20).expect("longer");
            assert_eq!(early.error(READ, 0, 10_000, 512, b""), EINVAL, "a session keeps the size that it was told");
            let mut late = server.structured("d");
            assert_eq!(late.error(WRITE, 0, 9000, 5000, &pattern(3, 5000)), 0);
            assert_eq!(late.read(0, 9000, 5000), pattern(3, 5000));
            assert_eq!(early.read(0, 9000, 1000), pattern(3, 5000)[..1000]);
            assert_eq!(server.stat()["exports"][0]["size_bytes"], 1 << 20);
            disk.set_len(2 << 20).expect("longer");
            server.signal(libc::SIGHUP);
            crate::support::eventually("it is seen", || server.stat()["exports"][0]["size_bytes"] == 2 << 20);
            server.stop();
        }
    }
}

#[test]
fn a_file_in_the_place_of_another_is_seen_at_a_reload() {
    for cache in ["", "cache = '4M'\nwrite-back = true\n"] {
        let (folder, config) = (sparse(4096), format!("{cache}[[export]]\nname = 'd'\npath = 'disk'\n"));
        std::fs::write(folder.path().join("config"), config).expect("a file");
        let server = Server::start_in(folder, &["--config", "config"]);
        let reload = |times| {
            server.signal(libc::SIGHUP);
            crate::support::eventually("it is read again", || server.log().matches("was read again").count() == times);
        };
        let mut early = server.structured("d");
        std::fs::write(server.path("new"), [7; 8192]).expect("a file");
        std::fs::rename(server.path("disk"), server.path("old")).expect("its name");
        reload(1);
        assert_eq!(server.structured("d").error(WRITE, 0, 0, 3, b"old"), 0, "where nothing is it stays what it was");
        std::fs::rename(server.path("new"), server.path("disk")).expect("its name");
        reload(2);
        let mut late = server.structured("d");
        assert_eq!(late.read(0, 4096, 4096), [7; 4096]);
        assert_eq!((late.error(WRITE, 0, 0, 3, b"new"), early.error(WRITE, 0, 3, 3, b"est")), (0, 0));
        assert_eq!((late.error(FLUSH, 0, 0, 0, b""), early.error(FLUSH, 0, 0, 0, b"")), (0, 0));
        let begins = |name| std::fs::read(server.path(name)).expect("the file")[..6].to_vec();
        assert_eq!((begins("disk"), begins("old")), (b"new\x07\x07\x07".to_vec(), b"oldest".to_vec()));
        server.stop();
    }
}

#[test]
fn a_file_that_shrinks_is_an_io_error_and_recovers() {
    for engine in engines() {
        let server = Server::start_in(sparse(4 << 20), &["--export", "d=disk", "--io", engine]);
        let mut client = server.structured("d");
        let disk = File::options().write(true).open(server.path("disk")).expect("the file");
        disk.set_len(1 << 20).expect("shorter");
        let chunks = client.chunks(READ, 0, (1 << 20) - 512, 1024, b"");
        assert_eq!((chunks[0].kind, chunks[0].error()), (ERROR_OFFSET, Some(EIO)));
        let payload = &chunks[0].payload;
        assert_eq!(payload[payload.len() - 8..], (1u64 << 20).to_be_bytes(), "where it ends");
        // A long read, which looks for holes first, is no other.
        assert_eq!(client.error(TRIM, 0, 0, 512, b""), 0);
        assert_eq!(client.error(READ, 0, 0, 4 << 20, b""), EIO);
        assert_eq!(client.read(0, 0, 1 << 20), vec![0; 1 << 20]);
        assert_eq!(server.simple("d").simple(READ, 0, 2 << 20, 512, b""), EIO);
        assert_eq!(client.error(CACHE, 0, 2 << 20, 512, b""), 0);
        // A write makes it longer again.
        assert_eq!(client.error(WRITE, 0, (4 << 20) - 4, 4, b"tail"), 0);
        assert_eq!(client.read(0, (4 << 20) - 4, 4), b"tail");
        server.stop();
    }
}

#[test]
fn a_write_to_a_part_of_a_block_makes_a_file_that_has_shrunk_longer_again() {
    for engine in engines() {
        for cache in [&[][..], &["--cache", "4M"], &["--cache", "4M", "--write-back"]] {
            let options = [&["--export", "d=disk", "--io", engine], cache].concat();
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::write(folder.path().join("disk"), vec![7; 4 << 20]).expect("a file");
            let server = Server::start_in(folder, &options);
            let mut client = server.structured("d");
            // It ends inside of a block.
            let (end, path) = ((1 << 20) + 3, server.path("disk"));
            File::options().write(true).open(&path).and_then(|disk| disk.set_len(end as u64)).expect("shorter");
            assert_eq!(client.error(WRITE, FUA, end as u64 + 2, 7, b"written"), 0, "{options:?}");
            assert_eq!(client.error(WRITE, 0, (4 << 20) - 4, 4, b"tail"), 0, "{options:?}");
            assert_eq!(client.read(0, end as u64 - 1, 12), b"\x07\0\0written\0\0", "{options:?}");
            assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
            drop(client);
            let mut expected = vec![0; 4 << 20];
            expected[..end].fill(7);
            expected[end + 2..end + 9].copy_from_slice(b"written");
            expected[(4 << 20) - 4..].copy_from_slice(b"tail");
            // Its name goes with the server.
            let mut disk = File::open(&path).expect("the file");
            server.stop();
            let mut found = Vec::new();
            disk.read_to_end(&mut found).expect("the file");
            assert!(found == expected, "{options:?}");
        }
    }
}

#[test]
fn zeroes_make_a_file_that_has_shrunk_longer_again() {
    for engine in engines() {
        for cache in [&[][..], &["--cache", "4M"], &["--cache", "4M", "--write-back"]] {
            let options = [&["--export", "d=disk", "--io", engine], cache].concat();
            let server = Server::start_in(sparse(4 << 20), &options);
            let mut client = server.structured("d");
            let disk = File::options().write(true).open(server.path("disk")).expect("the file");
            let end = (2 << 20) + 65536;
            for flags in [0, NO_HOLE, FUA] {
                disk.set_len(1 << 20).expect("shorter");
                assert_eq!(client.error(ZEROES, flags, 2 << 20, 65536, b""), 0);
                assert_eq!(client.read(0, 2 << 20, 65536), vec![0; 65536], "{options:?}, {flags}");
                assert_eq!(disk.metadata().expect("the file").len(), end, "as after a write");
            }
            assert_eq!(client.error(READ, 0, end, 512, b""), EIO);
            // Zeroes inside a file leave its length.
            assert_eq!(client.error(ZEROES, 0, 0, 65536, b""), 0);
            assert_eq!(disk.metadata().expect("the file").len(), end);
            server.stop();
        }
    }
}

#[test]
fn requests_that_fail_do_not_fill_the_log() {
    let (began, server) = (std::time::Instant::now(), Server::start_in(sparse(1 << 20), &["--export", "d=disk"]));
    let mut client = server.structured("d");
    File::options().write(true).open(server.path("disk")).and_then(|file| file.set_len(0)).expect("shorter");
    for _ in 0..300 {
        assert_eq!(client.error(READ, 0, 0, 512, b""), EIO);
    }
    let told = server.log().lines().filter(|line| line.contains("WARN") && line.contains("failed")).count() as u64;
    assert!((1..=1 + began.elapsed().as_secs()).contains(&told), "{told} lines");
    assert_eq!(server.stat()["exports"][0]["errors"], 300);
    server.stop();
}

#[test]
fn a_full_disk_is_told_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("UTF-8");
    if let Err(why) = run("mount", &["-t", "tmpfs", "-o", "size=1M", "none", at]) {
        return weir_testing::skip!("no file system can be mounted: {why}");
    }
    let unmounted = Unmount(at.into());
    for engine in engines() {
        let disk = folder.path().join("disk");
        File::create(&disk).and_then(|file| file.set_len(4 << 20)).expect("a sparse file");
        let export = format!("d={}", disk.display());
        let server = Server::start(&["--export", &export, "--io", engine]);
        let mut client = server.structured("d");
        assert_eq!(client.error(WRITE, 0, 0, 2 << 20, &vec![1; 2 << 20]), ENOSPC);
        assert_eq!(client.error(ZEROES, NO_HOLE, 0, 4 << 20, b""), ENOSPC);
        // Space that is given back can be used.
        assert_eq!(client.error(TRIM, 0, 0, 4 << 20, b""), 0);
        assert_eq!(client.error(WRITE, 0, 0, 1 << 19, &vec![2; 1 << 19]), 0);
        assert_eq!(client.read(0, 0, 1 << 19), vec![2; 1 << 19]);
        server.stop();
        std::fs::remove_file(&disk).expect("the file");
    }
    drop(unmounted);
}

struct Unmount(String);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.0]);
    }
}

#[test]
fn a_file_above_the_limit_of_file_sizes_is_a_full_disk() {
    use std::os::unix::process::CommandExt;
    for engine in engines() {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: between fork and exec, the call only changes the child's limit.
        let low = |command: &mut Command| unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        };
        let server = Server::spawn(sparse(4 << 20), &["--export", "d=disk", "--io", engine], low);
        let mut client = server.structured("d");
        assert_eq!(
            client.error(WRITE, 0, 2 << 20, 512, &[1; 512]),
            ENOSPC,
            "EFBIG, and SIGXFSZ did not end the server"
        );
        assert_eq!(client.error(WRITE, 0, 0, 512, &[1; 512]), 0);
        server.stop();
    }
}

/// A loop device over `file`; `None`, and a line, where there can be none.
fn loop_device(file: &Path) -> Option<LoopDevice> {
    let made = run("losetup", &["--find", "--show", file.to_str().expect("UTF-8")]);
    match made {
        Ok(device) if Path::new(&device).exists() => Some(LoopDevice(device)),
        Ok(device) => {
            drop(LoopDevice(device));
            weir_testing::skip!("loop devices have no nodes here");
            None
        }
        Err(why) => {
            weir_testing::skip!("no loop device: {why}");
            None
        }
    }
}

struct LoopDevice(String);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

#[test]
fn a_block_device_is_read_written_zeroed_and_trimmed() {
    for engine in engines() {
        for cache in [&[][..], &["--cache", "4M"], &["--cache", "4M", "--write-back"]] {
            let folder = sparse(4 << 20);
            let Some(device) = loop_device(&folder.path().join("disk")) else { return };
            let export = format!("d={}", device.0);
            let server = Server::start(&[&["--export", &export, "--io", engine], cache].concat());
            let mut client = server.structured("d");
            let data = pattern(7, 100_000);
            assert_eq!(client.error(WRITE, FUA, 1000, 100_000, &data), 0);
            assert_eq!(client.read(0, 1000, 100_000), data);
            // Parts of sectors at both ends, and inside a single one.
            let mut expected = data.clone();
            for (offset, length) in [(1001usize, 5000usize), (7000, 3), (9000, 513), (10_240, 512)] {
                assert_eq!(client.error(ZEROES, 0, offset as u64, length as u64, b""), 0);
                expected[offset - 1000..offset - 1000 + length].fill(0);
            }
            assert_eq!(client.read(0, 1000, 100_000), expected);
            assert_eq!(client.error(ZEROES, NO_HOLE, 20_000, 5000, b""), 0);
            expected[19_000..24_000].fill(0);
            assert_eq!(client.error(TRIM, 0, 51_201, 10_000, b""), 0);
            assert_eq!(client.read(0, 1000, 50_201), expected[..50_201], "what is around the trimmed range stays");
            assert_eq!(client.read(0, 61_201, 30_000), expected[60_201..90_201]);
            assert_eq!(server.extended("d").status(0, 0, 4 << 20), [(4 << 20, 0)]);
            assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
            server.stop();
        }
    }
}

#[test]
fn blocks_of_a_block_device_are_cached() {
    for engine in engines() {
        let folder = sparse(4 << 20);
        let Some(device) = loop_device(&folder.path().join("disk")) else { return };
        let export = format!("d={}", device.0);
        let server = Server::start(&["--export", &export, "--cache", "1M", "--io", engine]);
        let mut client = server.structured("d");
        for _ in 0..2 {
            assert_eq!(client.read(0, 0, 8192), [0; 8192]);
        }
        let stat = server.stat();
        assert_eq!((&stat["cache"]["misses"], &stat["cache"]["hits"]), (&2.into(), &2.into()));
        server.stop();
    }
}

#[test]
fn a_device_without_holes_discards() {
    let folder = sparse(4 << 20);
    let Some(device) = loop_device(&folder.path().join("disk")) else { return };
    let export = format!("d={}", device.0);
    for cache in [&[][..], &["--cache", "4M", "--write-back"]] {
        // As from a device that has a command to discard, and none for zeroes.
        let options = [&["--export", &export, "--io", "threads"], cache].concat();
        let server = Server::spawn(tempfile::tempdir().expect("a folder"), &options, |command| {
            crate::support::refuse(command, libc::SYS_fallocate, libc::EOPNOTSUPP);
        });
        let mut client = server.structured("d");
        let data = pattern(9, 1 << 20);
        assert_eq!(client.error(WRITE, FUA, 0, 1 << 20, &data), 0);
        let blocks = || std::fs::metadata(folder.path().join("disk")).expect("the file").blocks();
        assert!(blocks() >= 2048);
        // It is also on its way to the device.
        assert_eq!(client.error(WRITE, 0, 0, 1 << 20, &data), 0);
        assert_eq!(client.error(TRIM, FUA, 5000, (1 << 20) - 10_000, b""), 0);
        assert!(blocks() < 100, "{} blocks", blocks());
        assert!(
            client.read(0, 0, 5000) == data[..5000]
                && client.read(0, (1 << 20) - 5000, 5000) == data[data.len() - 5000..]
        );
        server.stop();
    }
}

#[test]
fn fast_zeroes_that_a_device_declines_lose_no_write() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        // A file there has no holes, so a loop device over it has no command for zeroes.
        if let Err(why) = run("mount", &["-t", "ramfs", "none", folder.path().to_str().expect("UTF-8")]) {
            return weir_testing::skip!("no file system can be mounted: {why}");
        }
        let _unmounted = Unmount(folder.path().display().to_string());
        let disk = folder.path().join("disk");
        std::fs::write(&disk, vec![1; 1 << 20]).expect("memory");
        let Some(device) = loop_device(&disk) else { return };
        let export = format!("d={}", device.0);
        let server = Server::start(&["--export", &export, "--io", engine]);
        let mut client = server.structured("d");
        assert_eq!(client.error(WRITE, 0, 0, 1 << 16, &[2; 1 << 16]), 0);
        assert_eq!(client.error(ZEROES, FAST_ZERO, 0, 1 << 16, b""), ENOTSUP);
        assert!(client.read(0, 0, 1 << 16) == [2; 1 << 16], "it was acknowledged");
        assert_eq!(client.error(TRIM, 0, 0, 1 << 16, b""), 0);
        assert!(client.read(0, 0, 1 << 16) == [2; 1 << 16], "the device cannot trim either");
        assert_eq!(client.error(ZEROES, 0, 0, 1 << 15, b""), 0);
        assert!(client.read(0, 0, 1 << 16) == [[0; 1 << 15], [2; 1 << 15]].concat());
        server.stop();
    }
}

/// A file of a file system whose server is a process, and can be stopped.
struct Fuse {
    server: std::process::Child,
    folder: TempDir,
}

impl Fuse {
    /// `None`, and a line, where there can be none.
    fn mount() -> Option<Self> {
        if !crate::support::has("nbdfuse") || !crate::support::has("nbdkit") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        File::create(&path).expect("a file");
        let mut command = Command::new("nbdfuse");
        let server = command.arg(&path).args(["--command", "nbdkit", "-s", "memory", "1M"]).spawn().expect("it runs");
        let mut fuse = Self { server, folder };
        let mut has_ended = false;
        crate::support::eventually("it is mounted", || {
            has_ended = fuse.server.try_wait().expect("a child").is_some();
            has_ended || std::fs::metadata(&path).is_ok_and(|found| found.len() == 1 << 20)
        });
        if has_ended {
            weir_testing::skip!("no file can be mounted");
        }
        (!has_ended).then_some(fuse)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child had not ended when it was last looked at, so that its number is its own.
        assert_eq!(unsafe { libc::kill(self.server.id() as i32, signal) }, 0);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let path = self.folder.path().join("file");
        // What waits for it fails.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = run("umount", &["-l", path.to_str().expect("UTF-8")]);
    }
}

#[test]
fn an_export_that_hangs_stops_no_client_of_another() {
    for engine in engines() {
        let Some(fuse) = Fuse::mount() else { return };
        let export = format!("h={}", fuse.folder.path().join("file").display());
        let options = ["--export", &export, "--export", "d=disk", "--workers", "1", "--io", engine];
        let server = Server::start_in(sparse(1 << 20), &options);
        // It goes before the server, which could not end otherwise.
        let fuse = fuse;
        let mut hung = server.simple("h");
        fuse.signal(libc::SIGSTOP);
        for at in 0..200 {
            hung.request(READ, 0, at * 4096, 512, b"");
        }
        crate::support::eventually("they are under way", || server.stat()["exports"][1]["reads"] == 200);
        let mut other = server.structured("d");
        assert_eq!(other.error(WRITE, FUA, 512, 3, b"abc"), 0);
        assert_eq!(other.read(0, 0, 1 << 20)[512..515], *b"abc");
        fuse.signal(libc::SIGCONT);
        hung.receive(200 * (16 + 512));
        server.stop();
    }
}

#[test]
fn an_io_error_below_is_an_io_error() {
    for engine in engines() {
        let folder = sparse(4 << 20);
        let disk = folder.path().join("disk");
        let Some(device) = loop_device(&disk) else { return };
        let export = format!("d={}", device.0);
        let server = Server::start(&["--export", &export, "--io", engine]);
        let mut client = server.structured("d");
        File::options().write(true).open(&disk).and_then(|file| file.set_len(1 << 20)).expect("shorter");
        assert_eq!(client.error(READ, 0, 2 << 20, 4096, b""), EIO);
        assert_eq!(client.read(0, 0, 4096), [0; 4096]);
        assert_eq!(server.stat()["exports"][0]["errors"], 1);
        server.stop();
    }
}

#[test]
fn a_file_is_made_where_the_configuration_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = "[[export]]\nname = 'new'\npath = 'made'\ncreate = '3M'\ndescription = 'made today'\n";
    std::fs::write(folder.path().join("config"), file).expect("a file");
    let server = Server::start_in(folder, &["--config", "config"]);
    let metadata = std::fs::metadata(server.path("made")).expect("the file");
    assert_eq!((metadata.len(), metadata.blocks(), metadata.mode() & 0o777), (3 << 20, 0, 0o600));
    assert_eq!(server.structured("new").error(WRITE, 0, 0, 3, b"abc"), 0);
    server.stop();
}

/// A start may end before the file has its size.
#[test]
fn an_empty_file_gets_the_size_that_the_configuration_says() {
    for (more, size) in [("create = '3M'\n", 3 << 20), ("create = '3M'\nread-only = true\n", 3 << 20), ("", 0)] {
        let folder = sparse(0);
        std::fs::write(folder.path().join("config"), format!("[[export]]\nname = 'd'\npath = 'disk'\n{more}"))
            .expect("a file");
        let server = Server::start_in(folder, &["--config", "config"]);
        assert_eq!(server.stat()["exports"][0]["size_bytes"], size, "{more}");
        assert_eq!(std::fs::metadata(server.path("disk")).expect("the file").len(), size, "{more}");
        server.stop();
    }
    // One with something in it stays.
    let folder = sparse(4096);
    std::fs::write(folder.path().join("config"), "[[export]]\nname = 'd'\npath = 'disk'\ncreate = '3M'\n")
        .expect("a file");
    let server = Server::start_in(folder, &["--config", "config"]);
    assert_eq!(server.stat()["exports"][0]["size_bytes"], 4096);
    server.stop();
}

#[test]
fn a_file_that_is_only_read_can_be_made_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = "[[export]]\nname = 'new'\npath = 'made'\ncreate = '3M'\nread-only = true\n";
    std::fs::write(folder.path().join("config"), file).expect("a file");
    let server = Server::start_in(folder, &["--config", "config"]);
    assert_eq!(server.structured("new").read(0, (3 << 20) - 512, 512), [0; 512]);
    server.stop();
}

#[test]
fn a_file_that_was_made_outlasts_a_power_cut() {
    if !crate::support::has("strace") {
        return;
    }
    let own = tempfile::tempdir().expect("a folder");
    let folder = own.path().canonicalize().expect("the folder");
    let file = "[[export]]\nname = 'new'\npath = 'made'\ncreate = '3M'\n[[export]]\nname = 'x'\npath = 'nothing'\n";
    std::fs::write(folder.join("config"), file).expect("a file");
    // The second export is not there: the server ends.
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=fsync", "-o", "calls", env!("CARGO_BIN_EXE_weir-nbd"), "serve"]);
    command.args(["--config", "config", "--listen", "unix:s", "--control", "none"]).current_dir(&folder);
    assert!(!command.output().expect("it runs").status.success());
    let calls = std::fs::read_to_string(folder.join("calls")).unwrap_or_default();
    if calls.is_empty() {
        return weir_testing::skip!("no process can be traced");
    }
    for path in [folder.join("made"), folder] {
        let is_its = |call: &str| call.contains(&format!("<{}>)", path.display())) && call.ends_with("= 0");
        assert!(calls.lines().any(is_its), "{}: {calls}", path.display());
    }
}

#[test]
fn what_cannot_be_exported_is_refused_in_one_line() {
    let folder = sparse(4096);
    let at = |name: &str| format!("x={}", folder.path().join(name).display());
    run("mkfifo", &[folder.path().join("pipe").to_str().expect("UTF-8")]).expect("a pipe");
    for (export, expected) in [
        (at("nothing"), "No such file"),
        (at(""), "neither a file nor a block device"),
        (at("pipe"), "neither a file nor a block device"),
        ("x=/dev/null".into(), "neither a file nor a block device"),
        ("x=memory:0x".into(), "is no size"),
    ] {
        let output = Server::run(&["serve", "--log", "error", "--listen", "127.0.0.1:0", "--export", &export]);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected) && said.contains("'x'") && said.lines().count() == 1, "{said}");
    }
}
