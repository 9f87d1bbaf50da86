//! Memory that redis-server keeps after FLUSHALL of values of 16 B to 16 KiB.
//!
//! Debian's binary links the shared libjemalloc and calls malloc by its plain name, so a preloaded allocator serves it. Only the
//! purge by which it helps itself (`mallctl`) still goes to a jemalloc. It does nothing for any other allocator, and empties the
//! jemalloc rows. For glibc the C library's own object is preloaded. `(as packaged)` is the binary as it comes, purge and all.

use crate::harness::prelude::*;
use weir_lab::common::resp;

const START_LIMIT: Duration = Duration::from_secs(10);
const PIPELINE: usize = 256;

/// redis-server under an allocator, on a socket, with nothing on disk.
pub fn server(allocator: &Allocator, socket: &Path) -> Result<Command> {
    let mut command = under(find("redis-server").context("redis-server is not here")?, allocator);
    command.args(resp::SERVER).arg(socket).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

pub fn run(lab: &mut Lab) -> Result<()> {
    if lab.lacks(&[Need::Program("redis-server", "redis-server")]) {
        return Ok(());
    }
    let (bytes, looks) = lab.pick((500_000_000, vec![0.1, 1.0, 2.0, 10.0]), (64_000_000, vec![0.1, 1.0]));
    let mut rows = with_glibc_by_name(lab.allocators.clone())?;
    rows.push(Allocator::none().with("(as packaged)".into(), &[]));
    let case = format!("redis-server {}, {} MB of values", package_version("redis-server"), bytes / 1_000_000);
    let after = looks.iter().map(|seconds| less(format!("{seconds} s after, MiB")).mib());
    let measures = [less("resident, full, MiB").mib(), less("FLUSHALL, s")].into_iter().chain(after).collect();
    lab.by_case(measures, &[case], &rows, |_, allocator| {
        let folder = Folder::make(&std::env::temp_dir(), "redis")?;
        let socket = folder.at("socket");
        let server = KilledOnDrop::start(server(allocator, &socket)?, "redis-server")?;
        let mut client = Client::connect(&socket, START_LIMIT)?;
        let mut random = Random::new(0x5eed, 0);
        client.fill("key:", bytes, PIPELINE, |_| random.doublings(4, 14))?;
        let mut figures = vec![memory(server.pid())?.rss];
        let begin = Instant::now();
        client.command(&[b"FLUSHALL"])?;
        let end = Instant::now();
        figures.push((end - begin).as_secs_f64());
        for &seconds in &looks {
            sleep_until(end, seconds);
            figures.push(memory(server.pid())?.rss);
        }
        Ok(figures)
    });
    Ok(())
}
