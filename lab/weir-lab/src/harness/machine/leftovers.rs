//! Leftovers of runs that were killed (SIGKILL, a lack of memory) on the machine: processes, mounts, loop devices,
//! swap files, cgroups, files and folders. A run clears what belongs to numbers under which no process lives any
//! more.
//!
//! If such a number was given to another process meanwhile, what it names stays until that one has ended.

use crate::harness::child::run_system;
use crate::harness::machine::restore::kill;
use crate::harness::machine::{cgroup, owner, swap};
use nix::mount::{MntFlags, umount2};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Times that is looked for processes, which may start others.
const ROUNDS: u32 = 100;

/// Clears what gone runs left, and says so.
pub fn clear() {
    let is_gone = |run: u32| run != std::process::id() && !Path::new("/proc").join(run.to_string()).exists();
    let mut folders = vec![std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    folders.dedup();
    let cleared = clear_of(&folders, &cgroup::ROOTS.map(PathBuf::from), &is_gone);
    if !cleared.is_empty() {
        eprintln!("weir-lab: cleared what killed runs left: {}", cleared.join(", "));
    }
}

fn clear_of(folders: &[PathBuf], groups: &[PathBuf], is_gone: &dyn Fn(u32) -> bool) -> Vec<String> {
    let is_left = |path: &str| owner::of_path(path).is_some_and(is_gone);
    let mut cleared = Vec::new();
    let mut note = |kind: &str, name: &str, is_done: bool| {
        let end = if is_done { "" } else { " (it stays: removing it was refused)" };
        cleared.push(format!("{kind} {name}{end}"));
    };
    kill_processes(is_gone, &mut note);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|point| is_left(point)) {
        note("mount", point, umount2(point, MntFlags::MNT_DETACH).is_ok());
    }
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if is_left(backing.trim_end()) {
            let name = format!("/dev/{}", device.file_name().to_string_lossy());
            note("loop device", &name, run_system("losetup", &["--detach", &name]).is_ok());
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for file in swaps.lines().filter_map(|line| line.split(' ').next()).filter(|file| is_left(file)) {
        note("swap file", file, swap::remove(Path::new(file)));
    }
    let left_in = |folder: &PathBuf| {
        let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        paths.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_left)).collect::<Vec<_>>()
    };
    for group in groups.iter().flat_map(left_in) {
        note("cgroup", &group.display().to_string(), cgroup::remove(&group));
    }
    for path in folders.iter().flat_map(left_in) {
        let is_folder = path.is_dir() && !path.is_symlink();
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        note(if is_folder { "folder" } else { "file" }, &path.display().to_string(), removed.is_ok());
    }
    cleared
}

fn kill_processes(is_gone: &dyn Fn(u32) -> bool, note: &mut dyn FnMut(&str, &str, bool)) {
    let run_of = |pid: u32| owner::of_environment(&fs::read(format!("/proc/{pid}/environ")).ok()?);
    let mut known = Vec::new();
    for _ in 0..ROUNDS {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let left: Vec<u32> = processes.filter(|&pid| run_of(pid).is_some_and(is_gone)).collect();
        if left.is_empty() {
            return;
        }
        for pid in left {
            if !known.contains(&pid) {
                known.push(pid);
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                note("process", &format!("{pid} ({})", name.trim()), true);
            }
            kill(pid);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::child::KilledOnDrop;
    use crate::harness::machine::owner::Folder;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    fn number_of_an_ended_process() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_others_have_stays() {
        let folder = Folder::in_memory("leftovers").unwrap();
        let (files, groups) = (folder.below("files").unwrap(), folder.below("groups").unwrap());
        let (gone, own) = (number_of_an_ended_process(), std::process::id());
        for run in [gone, own] {
            fs::write(files.join(format!("weir-lab-{run}.initramfs")), "x").unwrap();
            fs::create_dir_all(files.join(format!("weir-lab-{run}-e1/inner"))).unwrap();
            fs::create_dir(groups.join(format!("weir-lab-{run}-density"))).unwrap(); // Empty, as a cgroup's own folder is.
        }
        for other in ["weir-lab.lock", "weir-lab-load"] {
            fs::write(files.join(other), "x").unwrap();
        }
        let mut sleeper =
            Command::new("sleep").arg("100").env("STARTED_BY_WEIR_LAB", gone.to_string()).spawn().unwrap();
        let mut kept = Command::new("sleep");
        kept.arg("100");
        let mut kept = KilledOnDrop::start(kept, "sleep").unwrap();
        let reaper = std::thread::spawn(move || sleeper.wait().unwrap());
        let clear = || clear_of(std::slice::from_ref(&files), std::slice::from_ref(&groups), &|run| run == gone);
        let cleared = clear();
        assert_eq!(reaper.join().unwrap().signal(), Some(libc::SIGKILL));
        kept.check("sleep").unwrap();
        assert_eq!(cleared.len(), 4, "{cleared:?}");
        assert!(cleared.iter().all(|line| !line.contains("stays")), "{cleared:?}");
        let expected =
            [&format!("weir-lab-{own}-e1"), &format!("weir-lab-{own}.initramfs"), "weir-lab-load", "weir-lab.lock"];
        assert_eq!(
            (names(&files), names(&groups)),
            (expected.map(String::from).into(), vec![format!("weir-lab-{own}-density")])
        );
        assert_eq!(clear(), Vec::<String>::new());
    }

    #[test]
    fn a_swap_file_a_mount_and_a_cgroup_in_use_go_as_well() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: root: swap files, mounts and cgroups need it");
        }
        let gone = number_of_an_ended_process();
        let folder = Path::new("/var/tmp");
        let (file, point) =
            (folder.join(format!("weir-lab-{gone}.swap")), folder.join(format!("weir-lab-{gone}-fuse")));
        fs::create_dir(&point).unwrap();
        // The folder is cleared in any case, the rest as far as this machine lets it be made.
        let mut expected = 1;
        match swap::switch_on(&file, 1 << 20) {
            Ok(()) => expected += 1,
            Err(why) => {
                eprintln!("skipped: the swap file: {why:#}");
                let _ = fs::remove_file(&file);
            }
        }
        match run_system("mount", &["-t", "tmpfs", "none", point.to_str().unwrap()]) {
            Ok(_) => expected += 1,
            Err(why) => eprintln!("skipped: the mount: {why:#}"),
        }
        let made = cgroup::root().ok().map(|(root, _)| root.join(format!("weir-lab-{gone}-density")));
        let group = made.filter(|group| fs::create_dir(group).is_ok());
        let inside = group.as_ref().map(|group| {
            let sleeper = KilledOnDrop(Command::new("sleep").arg("100").spawn().unwrap());
            fs::write(group.join("cgroup.procs"), sleeper.pid().to_string()).unwrap();
            expected += 1;
            sleeper
        });
        let reaper = std::thread::spawn(move || inside.map(|mut inside| inside.0.wait().unwrap().signal()));
        let cleared = clear_of(&[folder.to_path_buf()], &cgroup::ROOTS.map(PathBuf::from), &|run| run == gone);
        assert_eq!(cleared.len(), expected, "{cleared:?}");
        assert!(cleared.iter().all(|line| !line.contains("stays")), "{cleared:?}");
        assert!(!file.exists() && !point.exists() && group.is_none_or(|group| !group.exists()));
        assert!(reaper.join().unwrap().is_none_or(|signal| signal == Some(libc::SIGKILL)));
    }
}
