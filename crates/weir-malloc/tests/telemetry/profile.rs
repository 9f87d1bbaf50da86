//! The heap profile of a C program, read from the file that it leaves: known bytes by known stacks.

use crate::common::{Kind, LIMITED, Mode, compile, describe, foreign, run};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Live objects and bytes, allocated objects and bytes.
type Counts = [u64; 4];

/// The profile, by the innermost function of the program's that a stack has a name for.
struct Profile {
    sums: Counts,
    by_function: BTreeMap<String, Counts>,
}

/// The functions of a program that has no debugging information read: each name's range.
fn functions(program: &Path) -> Option<Vec<(u64, u64, String)>> {
    let Ok(output) = Command::new("nm").arg("-S").arg(program).output() else {
        weir_testing::skip!("no nm; Debian has it in binutils");
        return None;
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let range = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [begin, len, _, name] = words[..] else { return None };
        Some((hex(begin)?, hex(begin)? + hex(len)?, name.to_owned()))
    };
    Some(lines.lines().filter_map(range).collect())
}

fn counts(text: &str) -> Counts {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let numbers: Vec<u64> = numbers.map(|number| number.parse().expect("a count")).collect();
    numbers.try_into().expect("four counts")
}

impl Profile {
    fn read(file: &Path, program: &Path) -> Option<Self> {
        let functions = functions(program)?;
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (stacks, maps) = text.split_once("\nMAPPED_LIBRARIES:\n").expect("both parts");
        let mut lines = stacks.lines();
        let first = lines.next().and_then(|line| line.strip_prefix("heap profile: ")).expect("the first line");
        let (sums, form) = first.split_once(" @ ").expect("a form");
        assert_eq!(form, "heap_v2/1");
        let name = program.file_name().and_then(|name| name.to_str()).expect("a name");
        let base = maps.lines().find(|line| line.ends_with(name)).expect("the program is mapped");
        let base = u64::from_str_radix(&base[..base.find('-').expect("a range")], 16).expect("an address");
        let mut profile = Self { sums: counts(sums), by_function: BTreeMap::new() };
        let mut sums = [0; 4];
        for line in lines {
            let (of, frames) = line.split_once(" @").expect("frames");
            let of = counts(of);
            let named = frames.split_whitespace().find_map(|frame| {
                let address = u64::from_str_radix(frame.strip_prefix("0x")?, 16).ok()?.checked_sub(base + 1)?;
                functions
                    .iter()
                    .find(|(begin, end, name)| (*begin..*end).contains(&address) && name.starts_with("make_"))
            });
            let name = named.map_or("", |(_, _, name)| name).to_owned();
            let entry = profile.by_function.entry(name).or_default();
            for i in 0..4 {
                entry[i] += of[i];
                sums[i] += of[i];
            }
        }
        assert_eq!(profile.sums, sums, "the first line has the sums");
        Some(profile)
    }

    fn of(&self, function: &str) -> Counts {
        self.by_function.get(function).copied().unwrap_or_default()
    }
}

/// Runs the program's part `what` and gives the files that it and its children left, in the order of their process ids. Samples
/// take what time they take.
fn profiles(what: &str, mode: Mode, mean: &str) -> Option<(PathBuf, Vec<PathBuf>)> {
    profiles_at(what, mode, mean, "0")
}

/// Runs the program's part `what` as [`profiles`] does, where samples may take so many per cent of a thread's time.
fn profiles_at(what: &str, mode: Mode, mean: &str, percent: &str) -> Option<(PathBuf, Vec<PathBuf>)> {
    if foreign() {
        weir_testing::skip!("{what}: the profile is Weir's");
        return None;
    }
    let program = compile(Kind::C, "profile.c")?;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("profile-{}-{what}-{mode:?}-{mean}-{percent}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory can be written");
    let mut extra = vec![("WEIR_PROFILE", directory.join("heap").into_os_string())];
    extra.push(("WEIR_PROFILE_PERCENT", OsString::from(percent)));
    if !mean.is_empty() {
        extra.push(("WEIR_PROFILE_BYTES", OsString::from(mean)));
    }
    let output = run(&program, &[what], mode, &extra);
    assert!(output.status.success() && output.stderr.is_empty(), "{what}: {}", describe(&output));
    let entries = fs::read_dir(&directory).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    // The program is a child of `timeout` and `sh`, which are not preloaded.
    files.sort_by_key(|file| file.extension().and_then(|pid| pid.to_str()?.parse::<u32>().ok()));
    Some((program, files))
}

/// A mean of a byte samples each block of 40 bytes and more.
#[test]
fn each_kind_of_allocation_is_counted_to_the_byte() {
    for mode in [Mode::Plain, Mode::NoRseq, LIMITED] {
        let Some((program, files)) = profiles("kinds", mode, "1") else { return };
        let [file] = &files[..] else { panic!("{files:?}") };
        let Some(profile) = Profile::read(file, &program) else { return };
        assert_eq!(profile.of("make_malloc"), [32, 32_000, 64, 64_000], "{mode:?}");
        assert_eq!(profile.of("make_calloc"), [32, 96_000, 64, 192_000], "{mode:?}");
        assert_eq!(profile.of("make_aligned"), [32, 640_000, 64, 1_280_000], "{mode:?}");
        assert_eq!(profile.of("make_posix"), [32, 22_400, 64, 44_800], "{mode:?}");
        assert_eq!(profile.of("make_large"), [2, 10 << 20, 4, 20 << 20], "{mode:?}");
        assert_eq!(profile.of("make_first"), [0, 0, 64, 32_000], "{mode:?}");
        assert_eq!(profile.of("make_again"), [32, 1_280_000, 64, 1_280_000 + 32 * 480], "{mode:?}");
        assert_eq!(profile.of("make_freed"), [0, 0, 64, 64 * 2000 + 63 * 32], "{mode:?}");
    }
}

#[test]
fn sampling_is_switched_while_the_program_runs() {
    for mode in [Mode::Plain, Mode::NoRseq] {
        let Some((program, files)) = profiles("switched", mode, "1K") else { return };
        let Some(profile) = Profile::read(&files[0], &program) else { return };
        assert_eq!(profile.of("make_malloc"), [8, 8000, 16, 16_000], "{mode:?}");
    }
}

#[test]
fn a_forked_child_has_a_file_of_its_own() {
    let Some((program, files)) = profiles("forked", Mode::Plain, "1") else { return };
    let [parent, child] = &files[..] else { panic!("{files:?}") };
    let (Some(parent), Some(child)) = (Profile::read(parent, &program), Profile::read(child, &program)) else { return };
    assert_eq!((parent.of("make_malloc"), parent.of("make_aligned")), ([8, 8000, 8, 8000], [0; 4]));
    assert_eq!((child.of("make_malloc"), child.of("make_aligned")), ([4, 4000, 8, 8000], [16, 320_000, 16, 320_000]));
    assert_eq!((parent.of("make_large")[0], child.of("make_large")[0]), (1, 0));
}

#[test]
fn ten_thousand_threads_are_counted() {
    let Some((program, files)) = profiles("threads", Mode::Plain, "1") else { return };
    let Some(profile) = Profile::read(&files[0], &program) else { return };
    assert_eq!(profile.of("make_malloc"), [0, 0, 10_000, 10_000_000]);
}

/// 64 million bytes at a mean of 16 KiB are some 3900 samples: the deviation is 1.6 % of them, and the bound six of it.
#[test]
fn estimates_are_near_the_truth() {
    for mode in [Mode::Plain, Mode::NoRseq] {
        let Some((program, files)) = profiles("many", mode, "16K") else { return };
        let Some(profile) = Profile::read(&files[0], &program) else { return };
        let [.., objects, bytes] = profile.of("make_malloc");
        assert!(objects.abs_diff(64_000) < 6400 && bytes.abs_diff(64_000_000) < 6_400_000, "{objects}, {bytes}");
    }
}

/// Samples of a program that does nothing but allocate are farther apart, and count for as much more. Some 20 samples or more
/// count for 64,000 allocations together.
#[test]
fn samples_that_are_farther_apart_count_for_more() {
    let Some((program, files)) = profiles_at("many", Mode::Plain, "16K", "1") else { return };
    let Some(profile) = Profile::read(&files[0], &program) else { return };
    let [.., objects, bytes] = profile.of("make_malloc");
    assert!((8_000..256_000).contains(&objects) && (8_000_000..256_000_000).contains(&bytes), "{objects}, {bytes}");
}

/// With a name and no mean there is the recommended mean, of 512 KiB. A block of 5 MiB is missed once in 22000 times, and two
/// that are live are not both missed.
#[test]
fn a_name_alone_switches_it_on() {
    let Some((program, files)) = profiles("kinds", Mode::Plain, "") else { return };
    let Some(profile) = Profile::read(&files[0], &program) else { return };
    let [objects, bytes, ..] = profile.of("make_large");
    assert!((1..=3).contains(&objects) && (4 << 20..16 << 20).contains(&bytes), "{objects}, {bytes}");
}

/// The file is a new one of the owner's alone. What had its name before is not written to, and nothing waits for a reader.
#[test]
fn what_has_the_name_of_the_file_before_loses_it() {
    for what in ["taken", "fifo"] {
        let Some((program, files)) = profiles(what, Mode::Plain, "1") else { return };
        let (file, others) = files.split_last().expect("a file");
        let metadata = fs::symlink_metadata(file).expect("it is there");
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600, "{what}: {metadata:?}");
        let Some(profile) = Profile::read(file, &program) else { return };
        assert_eq!(profile.of("make_malloc"), [1, 1000, 1, 1000], "{what}");
        let kept: Vec<_> = others.iter().map(|other| fs::read_to_string(other).expect("it is there")).collect();
        assert_eq!(kept, if what == "taken" { vec!["kept"] } else { vec![] }, "{what}");
    }
}

/// Runs a part of the program with this name for its profile.
fn run_named(what: &str, name: &str) -> Option<Output> {
    if foreign() {
        weir_testing::skip!("the profile is Weir's");
        return None;
    }
    let program = compile(Kind::C, "profile.c")?;
    Some(run(&program, &[what], Mode::Plain, &[("WEIR_PROFILE", name.into())]))
}

#[test]
fn a_file_that_cannot_be_written_is_named_once_and_the_program_ends_as_it_would() {
    let too_long = "/x".repeat(600);
    let growing = format!("{}/profile-{}-no-file", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    for (what, name) in [("switched", "/nonexistent/directory/heap"), ("switched", &too_long), ("no-file", &growing)] {
        let Some(output) = run_named(what, name) else { return };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}", describe(&output));
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("weir: the heap profile is not written to /") && said.contains("WEIR_PROFILE"),
            "{said}"
        );
    }
}
