//! What runs that were killed (SIGKILL, a lack of memory) left on the machine: processes, mounts, loop devices, swap
//! files, cgroups, files and folders. A run clears what belongs to numbers under which no process lives any more.
//!
//! If such a number was given to another process meanwhile, what it names stays until that one has ended.

use crate::harness::{cgroup, owner, swap};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where runs make files and cgroups. Swap files, mounts and loop devices are found by the kernel's own lists.
struct Places {
    /// Files and folders.
    folders: Vec<PathBuf>,
    /// Mount points of the memory controller.
    cgroups: Vec<PathBuf>,
}

impl Places {
    fn of_this_machine() -> Places {
        let mut folders = vec![std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
        folders.dedup();
        Places { folders, cgroups: cgroup::ROOTS.map(PathBuf::from).to_vec() }
    }
}

/// Clears what killed runs left, and says in one line what that was. Errors are no reason not to run: what cannot be
/// removed is named.
pub fn clear() {
    let is_gone = |run: u32| run != std::process::id() && !Path::new("/proc").join(run.to_string()).exists();
    let cleared = clear_of(&Places::of_this_machine(), &is_gone);
    if !cleared.is_empty() {
        eprintln!("weir-lab: cleared what killed runs left: {}", cleared.join(", "));
    }
}

/// Users first, then what they use. What was removed, or could not be, a text each.
fn clear_of(places: &Places, is_gone: &dyn Fn(u32) -> bool) -> Vec<String> {
    let is_left = |path: &str| owner::of_path(path).is_some_and(is_gone);
    let mut cleared = Vec::new();
    kill_processes(is_gone, &mut cleared);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The last one may lie in one before it.
    for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|point| is_left(point)) {
        let name = CString::new(point).unwrap_or_default();
        // SAFETY: a C string. Detached at once, and gone when its last user is.
        let refused = unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) } != 0;
        note(&mut cleared, "mount", point, refused);
    }
    detach_loops(&is_left, &mut cleared);
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for file in swaps.lines().filter_map(|line| line.split(' ').next()).filter(|file| is_left(file)) {
        let removed = swap::remove(Path::new(file));
        note(&mut cleared, "swap file", file, !removed);
    }
    for group in places.cgroups.iter().flat_map(|root| left_in(root, is_gone)) {
        let removed = cgroup::remove(&group);
        note(&mut cleared, "cgroup", &group.display().to_string(), !removed);
    }
    for path in places.folders.iter().flat_map(|folder| left_in(folder, is_gone)) {
        let is_folder = path.is_dir() && !path.is_symlink();
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        let kind = if is_folder { "folder" } else { "file" };
        note(&mut cleared, kind, &path.display().to_string(), removed.is_err());
    }
    cleared
}

fn note(cleared: &mut Vec<String>, kind: &str, name: &str, refused: bool) {
    let end = if refused { " (it stays: removing it was refused)" } else { "" };
    cleared.push(format!("{kind} {name}{end}"));
}

/// What lies in a folder under a name of a run that is gone.
fn left_in(folder: &Path, is_gone: &dyn Fn(u32) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|entry| entry.file_name().to_str().and_then(owner::of_name).is_some_and(is_gone));
    left.map(|entry| entry.path()).collect()
}

/// Guests, servers and loads, and what those started. Again and again, as they may start others meanwhile.
fn kill_processes(is_gone: &dyn Fn(u32) -> bool, cleared: &mut Vec<String>) {
    const ROUNDS: u32 = 100;
    let mut known = Vec::new();
    for _ in 0..ROUNDS {
        let left = left_processes(is_gone);
        if left.is_empty() {
            return;
        }
        for pid in left {
            if !known.contains(&pid) {
                known.push(pid);
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                cleared.push(format!("process {pid} ({})", name.trim()));
            }
            // SAFETY: a signal to a process of which the environment, just read, says that a run started it.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that has ended has no environment: it is not among them.
fn left_processes(is_gone: &dyn Fn(u32) -> bool) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let run_of = |pid: u32| owner::of_environment(&fs::read(format!("/proc/{pid}/environ")).ok()?);
    processes.filter(|&pid| run_of(pid).is_some_and(is_gone)).collect()
}

fn detach_loops(is_left: &dyn Fn(&str) -> bool, cleared: &mut Vec<String>) {
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if is_left(backing.trim_end()) {
            let name = Path::new("/dev").join(device.file_name()).display().to_string();
            let refused = crate::harness::programs::run("losetup", &["--detach", &name]).is_err();
            note(cleared, "loop device", &name, refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::folder::Folder;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// A number under which a process has lived.
    fn number_of_an_ended_process() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_others_have_stays() {
        let folder = Folder::in_memory("leftovers").unwrap();
        let (files, groups) = (folder.at("files"), folder.at("groups"));
        fs::create_dir(&files).unwrap();
        fs::create_dir(&groups).unwrap();
        let (gone, own) = (number_of_an_ended_process(), std::process::id());
        for run in [gone, own] {
            fs::write(files.join(format!("weir-lab-{run}.initramfs")), "x").unwrap();
            fs::create_dir_all(files.join(format!("weir-lab-{run}-e1/inner"))).unwrap();
            fs::create_dir(groups.join(format!("weir-lab-{run}-density"))).unwrap();
        }
        for other in ["weir-lab.lock", "weir-lab-load"] {
            fs::write(files.join(other), "x").unwrap();
        }
        let mut sleeper =
            Command::new("sleep").arg("100").env("STARTED_BY_WEIR_LAB", gone.to_string()).spawn().unwrap();
        let mut kept = Command::new("sleep");
        owner::mark(kept.arg("100"));
        let mut kept = crate::harness::child::KilledOnDrop(kept.spawn().unwrap());
        // Its environment is there once it has become `sleep`, which `spawn` waits for.
        let reaper = std::thread::spawn(move || sleeper.wait().unwrap());
        let places = Places { folders: vec![files.clone()], cgroups: vec![groups.clone()] };
        // This number alone: the machine may have leftovers of its own.
        let cleared = clear_of(&places, &|run| run == gone);
        assert_eq!(reaper.join().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(kept.0.try_wait().unwrap(), None);
        assert_eq!(cleared.len(), 4, "{cleared:?}");
        assert!(cleared.iter().all(|line| !line.contains("stays")), "{cleared:?}");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            entries.collect::<std::collections::BTreeSet<_>>()
        };
        let expected = [format!("weir-lab-{own}-e1"), format!("weir-lab-{own}.initramfs")];
        assert_eq!(
            names(&files),
            expected.into_iter().chain(["weir-lab.lock", "weir-lab-load"].map(String::from)).collect()
        );
        assert_eq!(names(&groups), [format!("weir-lab-{own}-density")].into());
        assert_eq!(clear_of(&places, &|run| run == gone), Vec::<String>::new());
    }

    #[test]
    fn a_swap_file_a_mount_and_a_cgroup_in_use_go_as_well() {
        if let Some(why) = crate::harness::programs::missing_root("swap files, mounts and cgroups") {
            return eprintln!("skipped: {why}");
        }
        let gone = number_of_an_ended_process();
        // Where swap files are made: not every file system can have them.
        let folder = Path::new("/var/tmp");
        let file = folder.join(format!("weir-lab-{gone}.swap"));
        let point = folder.join(format!("weir-lab-{gone}-fuse"));
        fs::create_dir(&point).unwrap();
        let mut expected = 1;
        match swap::switch_on(&file, 1 << 20) {
            Ok(()) => expected += 1,
            Err(why) => {
                eprintln!("skipped: the swap file: {why}");
                let _ = fs::remove_file(&file);
            }
        }
        let mounted = crate::harness::programs::run("mount", &["-t", "tmpfs", "none", point.to_str().unwrap()]);
        match mounted {
            Ok(_) => expected += 1,
            Err(why) => eprintln!("skipped: the mount: {why}"),
        }
        let is_made = cgroup::root().ok().map(|(root, _)| root.join(format!("weir-lab-{gone}-density")));
        let group = is_made.filter(|group| fs::create_dir(group).is_ok());
        let inside = group.as_ref().map(|group| {
            let sleeper = crate::harness::child::KilledOnDrop(Command::new("sleep").arg("100").spawn().unwrap());
            fs::write(group.join("cgroup.procs"), sleeper.0.id().to_string()).unwrap();
            expected += 1;
            sleeper
        });
        // Of the process inside, a group of ours says enough: it has no mark. It is waited for while the group is removed.
        let reaper = std::thread::spawn(move || inside.map(|mut inside| inside.0.wait().unwrap().signal()));
        let places = Places { folders: vec![folder.to_path_buf()], cgroups: Places::of_this_machine().cgroups };
        let cleared = clear_of(&places, &|run| run == gone);
        assert_eq!(cleared.len(), expected, "{cleared:?}");
        assert!(cleared.iter().all(|line| !line.contains("stays")), "{cleared:?}");
        assert!(!file.exists() && !point.exists() && group.is_none_or(|group| !group.exists()));
        assert!(reaper.join().unwrap().is_none_or(|signal| signal == Some(libc::SIGKILL)));
    }
}
