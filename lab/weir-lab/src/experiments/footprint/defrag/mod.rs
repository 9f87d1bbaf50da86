//! redis-server's own active defragmentation after 15 of 16 keys were deleted at random: by the advice of `weir_should_move`, and
//! by that of the jemalloc that comes with redis. `src/experiments/footprint/defrag/build` makes a server for each.
//!
//! Looks are that long after the last key was deleted. CPU: the server's, from then to
//! the last look. Then all keys that are left are read, and the experiment fails where one is lost. Defragmentation has redis'
//! defaults, but begins at 1 MiB of waste.

use super::redis_keys::{KEEP, check, fill, thin};
use crate::harness::prelude::*;
use weir_lab::common::resp;

const START_LIMIT: Duration = Duration::from_secs(10);
/// Servers that `build` makes, and what the rows are called.
const SERVERS: [(&str, &str); 2] = [(WEIR, "redis-server-weir"), ("redis' jemalloc", "redis-server-jemalloc")];

pub fn run(lab: &mut Lab) -> Result<()> {
    let missing: Vec<String> =
        SERVERS.iter().filter_map(|(_, server)| beside(server).err()).map(|why| why.to_string()).collect();
    if !missing.is_empty() {
        lab.skips(
            "all of it",
            vec!["the servers are not built: lab/weir-lab/src/experiments/footprint/defrag/build".into()],
        );
        return Ok(());
    }
    let (keys, looks) = lab.pick((500_000, vec![1.0, 10.0, 60.0]), (100_000, vec![1.0, 10.0]));
    let mut rows = Vec::new();
    for (name, _) in SERVERS {
        let allocator = if name == WEIR { lab.weir()? } else { Allocator::none() };
        rows.extend(["off", "on"].map(|defrag| allocator.with(format!("{name}, {defrag}"), &[])));
    }
    let measures = [less("resident, full, MiB").mib(), told("values left, MiB").mib()].into_iter();
    let after = looks.iter().map(|seconds| less(format!("{seconds} s after, MiB")).mib());
    let measures = measures.chain(after).chain([less("CPU, s")]).collect();
    let case = format!("{keys} keys, of which one in {KEEP} is left");
    lab.by_case(measures, &[case], &rows, |_, allocator| {
        let (name, defrag) = allocator.name.rsplit_once(", ").context("a row")?;
        let (_, server) = SERVERS.iter().find(|row| row.0 == name).context("a server")?;
        let folder = Folder::make(&std::env::temp_dir(), "defrag")?;
        let socket = folder.at("socket");
        let server = KilledOnDrop::start(self::server(server, defrag, allocator, &socket)?, server)?;
        let mut client = Client::connect(&socket, START_LIMIT)?;
        let values = fill(&mut client, keys)?;
        let full = memory(server.pid())?.rss;
        let left = thin(&mut client, keys)?;
        let live: usize = left.iter().map(|&key| values[key]).sum();
        let (end, cpu) = (Instant::now(), cpu_seconds(server.pid())?);
        let mut figures = vec![full, live as f64];
        for &seconds in &looks {
            sleep_until(end, seconds);
            figures.push(memory(server.pid())?.rss);
        }
        figures.push(cpu_seconds(server.pid())? - cpu);
        check(&mut client, &left, &values)?;
        Ok(figures)
    });
    Ok(())
}

fn server(name: &str, defrag: &str, allocator: &Allocator, socket: &Path) -> Result<Command> {
    let mut command = under(beside(name)?, allocator);
    command.args(["--activedefrag", if defrag == "on" { "yes" } else { "no" }, "--active-defrag-ignore-bytes", "1mb"]);
    command.args(resp::SERVER).arg(socket).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}
