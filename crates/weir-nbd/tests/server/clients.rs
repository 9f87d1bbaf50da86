//! Clients that others wrote: libnbd's tools, QEMU's, fio. What is not installed is skipped, and said.

use crate::support::server::Server;
use crate::support::{engines, has, pattern};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs a program to its good end, and returns what it prints.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    let output = command.arg("100").arg(program).args(arguments).current_dir(folder).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A folder with `disk`, 16 MiB of a hole, and `data`, as much of noise with two holes.
fn disks() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = std::fs::File::create(folder.path().join("disk")).expect("a file");
    disk.set_len(16 << 20).expect("a length");
    let mut data = pattern(21, 16 << 20);
    data[1 << 20..3 << 20].fill(0);
    data[9 << 20..10 << 20].fill(0);
    std::fs::write(folder.path().join("data"), data).expect("a file");
    folder
}

/// The options of a server of `d`: by each way of I/O, without a cache, with one, and with one that writes back.
fn ways() -> Vec<Vec<&'static str>> {
    let caches: [&[&str]; 3] = [&[], &["--cache", "4M"], &["--cache", "4M", "--write-back"]];
    let with = |engine| caches.map(|cache| [&["--export", "d=disk", "--io", engine], cache].concat());
    engines().into_iter().flat_map(with).collect()
}

fn is_same(server: &Server) {
    let read = |name| std::fs::read(server.path(name)).expect("a file");
    assert!(read("disk") == read("data"));
}

#[test]
fn nbdinfo_understands_all_that_it_is_told() {
    if !has("nbdinfo") {
        return;
    }
    let server = Server::start_in(disks(), &["--export", "d=disk", "--read-only-export", "r=data"]);
    let folder = server.folder.path();
    let info: serde_json::Value =
        serde_json::from_str(&run(folder, "nbdinfo", &["--json", "--list", &server.uri("")])).expect("JSON");
    assert_eq!((&info["protocol"], &info["structured"]), (&"newstyle-fixed".into(), &true.into()));
    let (d, r) = (&info["exports"][0], &info["exports"][1]);
    assert_eq!((&d["export-name"], &d["export-size"]), (&"d".into(), &(16 << 20).into()));
    let can = ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"];
    can.iter().for_each(|what| assert_eq!(d[format!("can_{what}")], true, "{what}"));
    assert_eq!((&r["is_read_only"], &r["can_trim"]), (&true.into(), &false.into()));
    assert_eq!((&d["block_size_minimum"], &d["block_size_maximum"]), (&1.into(), &(32 << 20).into()));
    let map = run(folder, "nbdinfo", &["--map", &server.uri("d")]);
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "16777216", "3", "hole,zero"]);
    server.stop();
}

#[test]
fn nbdcopy_copies_both_ways() {
    if !has("nbdcopy") {
        return;
    }
    for options in ways() {
        let server = Server::start_in(disks(), &options);
        let (folder, uri) = (server.folder.path(), server.uri("d"));
        run(folder, "nbdcopy", &["--flush", "data", &uri]);
        is_same(&server);
        run(folder, "nbdcopy", &[&uri, "back"]);
        assert!(
            std::fs::read(server.path("back")).expect("a file") == std::fs::read(server.path("data")).expect("a file")
        );
        // Without extents, and with one request at a time.
        run(folder, "nbdcopy", &["--no-extents", "--synchronous", &uri, "back"]);
        assert!(
            std::fs::read(server.path("back")).expect("a file") == std::fs::read(server.path("data")).expect("a file")
        );
        server.stop();
    }
}

#[test]
#[ignore = "nightly: needs nbdkit, and qemu-nbd of qemu-utils"]
fn nbdcopy_copies_to_and_from_other_servers() {
    if !has("nbdcopy") || !has("nbdkit") || !has("qemu-nbd") {
        return;
    }
    let server = Server::start_in(disks(), &["--export", "d=disk", "--export", "e=memory:16M"]);
    let folder = server.folder.path();
    std::fs::write(server.path("other"), vec![1; 16 << 20]).expect("a file");
    run(folder, "nbdcopy", &["--", "[", "nbdkit", "--exit-with-parent", "file", "data", "]", &server.uri("d")]);
    is_same(&server);
    run(folder, "nbdcopy", &["--", &server.uri("d"), "[", "qemu-nbd", "-f", "raw", "other", "]"]);
    assert!(
        std::fs::read(server.path("other")).expect("a file") == std::fs::read(server.path("data")).expect("a file")
    );
    run(folder, "nbdcopy", &[&server.uri("d"), &server.uri("e")]);
    run(folder, "nbdcopy", &[&server.uri("e"), "back"]);
    assert!(std::fs::read(server.path("back")).expect("a file") == std::fs::read(server.path("data")).expect("a file"));
    server.stop();
}

#[test]
fn nbdsh_finds_the_rules_kept() {
    // The distribution's own: another Python that comes first on the path does not have the module.
    let python = "/usr/bin/python3";
    if !Command::new(python).args(["-c", "import nbd"]).output().is_ok_and(|output| output.status.success()) {
        return weir_testing::skip!("python3-libnbd is not installed");
    }
    for options in ways() {
        let server = Server::start_in(disks(), &options);
        let script = r#"
import errno
h.set_strict_mode(0)
def fails(error, call):
    try:
        call()
    except nbd.Error as why:
        assert why.errno == error, why
    else:
        raise AssertionError(error)
size = h.get_size()
h.pwrite(b"x" * 70000, 1000, nbd.CMD_FLAG_FUA)
assert h.pread(70000, 1000) == b"x" * 70000
fails("EINVAL", lambda: h.pread(512, size))
fails("ENOSPC", lambda: h.pwrite(b"y" * 512, size - 1))
fails("ENOSPC", lambda: h.zero(512, size))
fails("EINVAL", lambda: h.trim(512, size))
fails("EINVAL", lambda: h.flush(nbd.CMD_FLAG_DF))
h.zero(4096, 4096, nbd.CMD_FLAG_FAST_ZERO)
h.zero(100, 8192, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 4096) == bytearray(4096)
found = []
h.pread_structured(1 << 20, 0, lambda data, offset, status, error: found.append((offset, len(data), status)))
assert sum(length for _, length, _ in found) == 1 << 20, found
assert {status for _, _, status in found} == {nbd.READ_DATA, nbd.READ_HOLE}, found
h.cache(1 << 20, 0)
h.flush()
h.shutdown()
"#;
        run(server.folder.path(), python, &["-m", "nbd", "-u", &server.uri("d"), "-c", script]);
        server.stop();
    }
}

#[test]
#[ignore = "nightly: needs qemu-utils"]
fn qemu_img_and_qemu_io_use_it() {
    if !has("qemu-img") || !has("qemu-io") {
        return;
    }
    for options in ways() {
        let server = Server::start_in(disks(), &options);
        let (folder, uri) = (server.folder.path(), server.uri("d"));
        run(folder, "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "data", &uri]);
        // Written and flushed by qemu-img.
        is_same(&server);
        let same = run(folder, "qemu-img", &["compare", "-f", "raw", "-F", "raw", "data", &uri]);
        assert!(same.contains("identical"), "{same}");
        let map = run(folder, "qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
        let map: serde_json::Value = serde_json::from_str(&map).expect("JSON");
        assert!(map.as_array().expect("extents").iter().any(|extent| extent["zero"] == true), "{map}");
        let commands = ["write -P 7 1M 2M", "aio_write -P 8 4k 60k", "aio_flush", "write -z 1M 64k", "discard 2M 512k"];
        let checks = ["read -P 8 4k 60k", "read -P 0 1M 64k", "read -P 7 1114112 900000", "flush"];
        let commands: Vec<_> = commands.iter().chain(&checks).flat_map(|command| ["-c", command]).collect();
        let said = run(folder, "qemu-io", &[&["-f", "raw"][..], &commands, &[&uri]].concat());
        assert!(!said.contains("failed"), "{said}");
        server.stop();
    }
}

#[test]
#[ignore = "nightly: needs fio"]
fn fio_verifies_what_it_wrote() {
    if !has("fio") {
        return;
    }
    if !run(Path::new("/"), "fio", &["--enghelp"]).contains("nbd") {
        return weir_testing::skip!("this fio has no engine for NBD");
    }
    for options in ways() {
        let server = Server::start_in(disks(), &options);
        let uri = format!("--uri={}", server.uri("d"));
        let job = ["--name=v", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=512-64k", "--iodepth=16"];
        let more = ["--size=8M", "--verify=crc32c", "--verify_fatal=1", "--fsync=50", "--randseed=3"];
        run(server.folder.path(), "fio", &[&job[..], &more].concat());
        server.stop();
    }
}
