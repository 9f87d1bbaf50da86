//! The total work of two: a program with a cache, and a neighbour whose demand swings between 10 and 90 % of the limit. Both are
//! in one cgroup. Weir's evictable cache, which has no size, against caches whose size is fixed, and caches whose size the program
//! moves by the kernel's pressure.
//!
//! The program serves values of 16 KiB by Zipf 0.9, three times the limit of them; a miss reads the disk (O_DIRECT). Work of
//! both: the mean of each one's work as a share of what it did beside Weir's cache. Swap is the machine's. Root. --only takes
//! weir, moka, quick_cache, foyer, each also with its size in percent of the limit (moka-25), quick_cache-psi, foyer-psi, and
//! on-weir for peers on Weir's malloc.

use crate::harness::prelude::*;
use std::io::{BufWriter, Write};

const WEIR: &str = "weir";
const PEERS: [&str; 3] = ["moka", "quick_cache", "foyer"];
/// In percent of the limit; the least fits beside the neighbour's peak.
const SIZES: [u64; 4] = [5, 25, 50, 75];
const ON_WEIR: &str = "on-weir";
const BLOCK: u64 = 16 << 10;

/// Caches with a size that the program moves by the kernel's pressure (`cache_load/psi.rs`).
const FOLLOWING: [&str; 2] = ["quick_cache-psi", "foyer-psi"];

/// A cache, and its size in percent of the limit. Weir's has none, and a following one moves its own below the limit.
#[derive(Clone, Copy, PartialEq)]
struct Subject(&'static str, Option<u64>);

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.map_or(Ok(()), |percent| write!(f, "-{percent}"))
    }
}

fn subjects(only: &[String]) -> Result<Vec<Subject>> {
    let peers = PEERS.into_iter().flat_map(|kind| SIZES.map(|percent| Subject(kind, Some(percent))));
    let following = FOLLOWING.map(|kind| Subject(kind, None));
    let mut all: Vec<Subject> = std::iter::once(Subject(WEIR, None)).chain(following).chain(peers).collect();
    let named: Vec<&String> = only.iter().filter(|word| *word != ON_WEIR).collect();
    let is_named = |subject: &Subject, word: &String| word == subject.0 || *word == subject.to_string();
    if let Some(unknown) = named.iter().find(|word| !all.iter().any(|subject| is_named(subject, word))) {
        bail!("no cache is called '{unknown}'");
    }
    all.retain(|subject| named.is_empty() || named.iter().any(|word| is_named(subject, word)));
    Ok(all)
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let subjects = subjects(&lab.args.only)?;
    let on_weir = lab.args.only.iter().any(|word| word == ON_WEIR);
    let _lock = machine::lock()?;
    let (seconds, limit) = (lab.args.seconds.unwrap_or(lab.pick(600, 6)), lab.pick(512u64 << 20, 64 << 20));
    drop(Cgroup::make("trial", limit)?);
    let _swap = swap::make(&lab.args.swap_dir, limit * 2)?;
    let file = owner::file(&lab.args.swap_dir, ".blocks");
    let blocks = limit * 3 / BLOCK;
    make_file(&file.path, blocks)?;
    lab.args.subject = WEIR.into();
    let measures = vec![
        more("requests/s"),
        more("hits, %"),
        told("cached at least, MiB").mib(),
        told("at most").mib(),
        more("neighbour, MiB/s"),
        less("swapped in, MiB").mib(),
        less("swapped out, MiB").mib(),
        less("killed"),
    ];
    let case = format!("a cgroup of {} MiB, with as much swap, for {seconds} s", limit >> 20);
    let grid = lab.by_case(measures, &[case], &subjects, |_, subject| {
        let program = if on_weir || subject.0 == WEIR { "weir-lab-cache-weir" } else { "weir-lab-cache" };
        one(*subject, beside(program)?.as_path(), limit, seconds, (&file.path, blocks))
    });
    let Some(weir) = grid.subject(WEIR) else { return Ok(()) };
    if grid.sample(0, weir, 7).max() > 0.0 && !lab.args.quick {
        lab.fail("programs did not come to their end beside Weir's cache");
    }
    let total = |subject: usize| -> Sample {
        let [requests, neighbour] = [0, 4].map(|of| (&grid.sample(0, subject, of).0, grid.sample(0, weir, of).mean()));
        let both = requests.0.iter().zip(neighbour.0);
        both.map(|(served, swung)| 50.0 * (served / requests.1 + swung / neighbour.1)).collect()
    };
    for (at, name) in grid.subjects.iter().enumerate() {
        println!(
            "- work of both, {name}: {} %; {WEIR}'s against it: {}",
            total(at).spread(short),
            student(&total(weir), &total(at))
        );
    }
    Ok(())
}

/// Each block begins with its number.
fn make_file(path: &Path, blocks: u64) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create_new(path)?);
    let mut content = vec![0x5a; BLOCK as usize];
    for number in 0..blocks {
        content[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&content)?;
    }
    Ok(file.into_inner()?.sync_all()?)
}

fn one(subject: Subject, program: &Path, limit: u64, seconds: u32, (file, blocks): (&Path, u64)) -> Result<Vec<f64>> {
    let cgroup = Cgroup::make("two", limit)?;
    cgroup.limit_swap(limit, limit)?;
    let (ms, size) = (u64::from(seconds) * 1000, limit / 100 * subject.1.unwrap_or(100));
    let mut worker = Command::new(program);
    worker.args(["worker", &format!("cache={}", subject.0), &format!("bytes={size}"), &format!("block={BLOCK}")]);
    worker.args([format!("blocks={blocks}"), format!("file={}", file.display()), format!("ms={ms}")]);
    let [least, most] = [10, 90].map(|percent| limit / 100 * percent);
    let swing = plain_load(&format!("swing least={least} most={most} period={} ms={ms}", (ms / 10).max(3000)))?;
    let before = swapped()?;
    let worker = Program::start("the program with a cache", worker, Some(&cgroup))?;
    let neighbour = Program::start("the neighbour", swing, Some(&cgroup))?;
    let ((served, first), (swung, second)) = (worker.rest()?, neighbour.rest()?);
    let after = swapped()?;
    let last = |lines: &[Value], key: &str| lines.last().and_then(|line| line[key].as_f64()).unwrap_or(0.0);
    let late: Sample = served[served.len() / 2..].iter().filter_map(|line| line["cached"].as_f64()).collect();
    let (requests, seconds) = (last(&served, "requests"), f64::from(seconds));
    Ok(vec![
        requests / seconds,
        100.0 * last(&served, "hits") / requests,
        late.min(),
        late.max(),
        last(&swung, "work") / seconds,
        after[0] - before[0],
        after[1] - before[1],
        [first, second].iter().filter(|ended| !ended.success()).count() as f64,
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn caches_are_named_by_kind_and_size() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|word| word.to_string()).collect();
            super::subjects(&only).map(|all| all.iter().map(|subject| subject.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), 15);
        assert_eq!(names(&["weir", "moka-25", "on-weir"]).unwrap(), ["weir", "moka-25"]);
        assert!(names(&["lru"]).is_err());
    }
}
