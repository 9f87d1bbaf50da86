//! A live container shrinks below its peak: programs that have peaked and idle get a limit of 1.2 times what they have in use.
//! They run in a guest with cgroup v2 whose clock counts its instructions, one a nanosecond.
//!
//! Data of 8 MiB stay. The peak is three times as much besides, and replaces one record of the data with each hundred of its
//! own. In use: charged to the group once the data is loaded, before the first peak. `max`: memory.max is written; `high then
//! max`: memory.high, and memory.max once no more has been charged for 10 ms (refused: not within 5 s). `asked`, on Weir alone:
//! by `weir shrink`, which lies beside the library. `before the peak`: a container that never had more, for comparison.
//!
//! A round passes without a kill and without swap, if the limit holds within 1 s and requests take at most 5 % longer. A cache that
//! is asked needs 80 % of the throughput that it has where it never had more. --only redis,python,cache

use crate::guest::kernel::GuestKernel;
use crate::guest::{self, Image, Initramfs, Machine};
use crate::harness::prelude::*;

const DATA: u64 = 8;
const GUEST: u64 = 256;
const SOON: f64 = 1.0;
const SLOWER: f64 = 1.0 / 0.95;
/// The case that others are compared with.
const BEFORE: &str = "max, before the peak";
/// The part of such a cache's throughput that one has at least that was asked for what it holds.
const LEAST_OF_BEFORE: f64 = 0.8;
/// How those cases' names begin.
const ASKED: &str = "asked";

pub fn run(lab: &mut Lab) -> Result<()> {
    let (rounds, programs) = (lab.args.rounds, lab.chosen(&["redis", "python", "cache"])?);
    let (_, kernel) = guest::find()?;
    let disk = swap::make_for_guest(GUEST << 20)?;
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for program in programs {
        for allocator in with_glibc_by_name(lab.allocators.clone())? {
            eprintln!("e12, {program}: {allocator}");
            let command = if allocator.name == WEIR { Some(lab.weir_command()?) } else { None };
            let told = guest(program, &allocator, command, rounds, &kernel, &disk.path);
            let told = match told {
                Ok(told) if !told.is_empty() => told,
                other => {
                    let why = other.map_or_else(|why| format!("{why:#}"), |_| "the guest said nothing".into());
                    println!("{program} on {allocator} failed: {why}\n");
                    if allocator.name == WEIR {
                        lab.fail(format!("{program}: {why}"));
                    }
                    continue;
                }
            };
            let mut cases: Vec<&str> = told.iter().filter_map(|round| round["case"].as_str()).collect();
            cases.dedup();
            cases.truncate(cases.len() / rounds.max(1) as usize);
            for case in cases {
                let of: Vec<&Value> = told.iter().filter(|round| round["case"] == case).collect();
                of.iter().filter_map(|round| round["why"].as_str()).for_each(|why| eprintln!("{case}: {why}"));
                let slowest = slowest(program, case, &told);
                let passed = of.iter().filter(|round| has_passed(round, slowest)).count();
                if allocator.name == WEIR && passed < of.len() && case != BEFORE {
                    lab.fail(format!("{program}, {case}: {passed} of {} rounds", of.len()));
                }
                rows.push(
                    [program, case, &allocator.name].map(String::from).into_iter().chain(cells(&of, passed)).collect(),
                );
            }
            results.push(json!({ "program": program, "allocator": allocator.name, "rounds": told }));
        }
    }
    let head = "program|limit lowered|allocator|in use, MiB|peak|held when lowered|done, ms|killed|refused|swapped, MiB|\
                throughput after, %|passed";
    println!("{}", table(head.split('|'), rows));
    lab.note("rounds", results.into());
    Ok(())
}

fn cells(rounds: &[&Value], passed: usize) -> Vec<String> {
    let sample = |key: &str| rounds.iter().filter_map(|round| round[key].as_f64()).collect::<Sample>();
    let throughput: Sample = rounds.iter().filter_map(|round| Some(100.0 / slower(round)?)).collect();
    let killed = rounds.iter().filter(|round| round["kills"] != 0).count();
    let refused = rounds.iter().filter(|round| is_refused(round)).count();
    vec![
        mib(sample("in_use").median()),
        mib(sample("peak").max()),
        sample("held").spread(mib),
        sample("done_s").spread(|seconds| short(seconds * 1e3)),
        killed.to_string(),
        refused.to_string(),
        sample("swapped_pages").spread(|pages| mib(pages * PAGE)),
        throughput.spread(short),
        format!("{passed} of {}", rounds.len()),
    ]
}

fn slower(round: &Value) -> Option<f64> {
    Some(round["after_s"].as_f64()? / round["before_s"].as_f64()?)
}

fn is_refused(round: &Value) -> bool {
    round["done_s"].is_null() && round["kills"] == 0
}

/// How much longer requests may take. A cache that was asked gave what it held: it is compared with one that never had more.
fn slowest(program: &str, case: &str, told: &[Value]) -> f64 {
    let before: Sample = told.iter().filter(|round| round["case"] == BEFORE).filter_map(slower).collect();
    if program == "cache" && case.starts_with(ASKED) { before.median() / LEAST_OF_BEFORE } else { SLOWER }
}

fn has_passed(round: &Value, slowest: f64) -> bool {
    let is = |key: &str, most: f64| round[key].as_f64().is_some_and(|value| value <= most);
    let is_fast = slower(round).is_some_and(|ratio| ratio <= slowest);
    is("kills", 0.0) && is("swapped_pages", 0.0) && is("done_s", SOON) && is_fast
}

/// Lines that a guest says of all rounds, one each.
fn guest(
    program: &str,
    allocator: &Allocator,
    command: Option<PathBuf>,
    rounds: u32,
    kernel: &GuestKernel,
    disk: &Path,
) -> Result<Vec<Value>> {
    let mut allocator = allocator.clone();
    if program == "cache" && allocator.name == WEIR {
        allocator.preload = None; // It is in the program.
    }
    let image = Image::build(kernel, &allocator, |image| {
        if let Some(command) = &command {
            image.copy_with_libraries(command, Path::new("/weir"))?;
        }
        match program {
            "redis" => add_redis(image),
            "python" => add_python(image),
            _ => add_cache(image, command.is_some()),
        }
    })?;
    let machine = Machine { mib: GUEST, reporting: false, translations: 256 };
    let mut command = image.command(machine, &format!("live-shrink program={program} rounds={rounds} mib={DATA}"));
    command.arg("-drive").arg(format!("file={},if=virtio,format=raw", disk.display()));
    command.args(["-icount", "shift=0,sleep=off", "-rtc", "clock=vm"]);
    let finished = run_child(command, Duration::from_secs(120 + 60 * u64::from(rounds)), "the guest")?;
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("the guest said '{line}'"));
    finished.output.lines().map(parse).collect()
}

fn add_redis(image: &mut Initramfs) -> Result<()> {
    let server = find("redis-server").context("redis-server is not here: apt-get install redis-server")?;
    image.copy_with_libraries(&server, Path::new("/redis-server"))
}

/// The interpreter, and the modules that the program loads.
fn add_python(image: &mut Initramfs) -> Result<()> {
    const LIST: &str = "import sys, gc, os\nprint(sys.executable)\n\
                        [print(getattr(module, '__file__', None) or '') for module in list(sys.modules.values())]";
    let text = run_system("python3", &["-S", "-s", "-B", "-c", LIST])?;
    let files: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.is_file()).collect();
    let (interpreter, library) = files.split_first().context("python3 does not say where it is")?;
    image.copy_with_libraries(interpreter, interpreter)?;
    for file in library {
        match file.extension().is_some_and(|extension| extension == "so") {
            true => image.copy_with_libraries(file, file)?,
            false => image.copy(file, file)?,
        }
    }
    image.file(Path::new("/python"), interpreter.as_os_str().as_encoded_bytes());
    Ok(())
}

fn add_cache(image: &mut Initramfs, is_weir: bool) -> Result<()> {
    let (program, kind) = if is_weir { ("weir-lab-cache-weir", "weir") } else { ("weir-lab-cache", "quick_cache") };
    let program = beside(program)?;
    ensure!(program.exists(), "{} is not here", program.display());
    image.copy_with_libraries(&program, Path::new("/cache-server"))?;
    image.file(Path::new("/cache"), kind.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_passes_only_without_kill_and_swap_soon_and_as_fast_as_before() {
        let good = json!({ "kills": 0, "swapped_pages": 0, "done_s": 0.9, "before_s": 1.0, "after_s": 1.05 });
        assert!(has_passed(&good, SLOWER) && !is_refused(&good));
        let bad = [("kills", json!(1)), ("swapped_pages", json!(1)), ("done_s", json!(1.1)), ("done_s", json!(null))];
        for (key, value) in bad.into_iter().chain([("after_s", json!(1.06)), ("after_s", json!(null))]) {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(!has_passed(&bad, SLOWER), "{bad}");
            assert_eq!(is_refused(&bad), bad["done_s"].is_null());
        }
    }
}
