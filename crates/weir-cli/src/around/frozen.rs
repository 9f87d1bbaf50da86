//! Frozen cgroups: their processes do nothing until they are thawed, and so answer nothing. In `/proc` they look as if they slept.

use super::cgroup;
use procfs::process::Process;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of a version's files.
struct Names {
    /// Whether a group is frozen, by itself or by one above it.
    state: &'static str,
    /// Its lines then.
    frozen: &'static [&'static str],
    /// 1: by itself.
    itself: &'static str,
    /// What thaws it, and by which word.
    thaw: (&'static str, &'static str),
}

const VERSIONS: [Names; 2] = [
    Names { state: "cgroup.events", frozen: &["frozen 1"], itself: "cgroup.freeze", thaw: ("cgroup.freeze", "0") },
    Names {
        state: "freezer.state",
        frozen: &["FROZEN", "FREEZING"],
        itself: "freezer.self_freezing",
        thaw: ("freezer.state", "THAWED"),
    },
];

/// A frozen group: text that goes on behind "it is".
#[derive(Debug, PartialEq, Eq)]
pub struct Frozen {
    directory: PathBuf,
    /// The word and the file that thaw it; none: a group is frozen that lies above what is seen from here.
    cure: Option<(&'static str, PathBuf)>,
}

impl Frozen {
    /// The group with which process `pid` is frozen, if it is.
    pub fn of(pid: i32) -> Option<Self> {
        let process = Process::new(pid).ok()?;
        // Where version 1 has a hierarchy for it, the one of version 2 freezes as well.
        let [v2, v1] = [cgroup::directory(&process, "", false), cgroup::directory(&process, "freezer", true)];
        [v2, v1].into_iter().zip(&VERSIONS).find_map(|(directory, names)| Self::by(&directory?, names))
    }

    fn by(directory: &Path, names: &Names) -> Option<Self> {
        let says = |group: &Path, file: &str, words: &[&str]| {
            fs::read_to_string(group.join(file)).is_ok_and(|text| text.lines().any(|line| words.contains(&line)))
        };
        // The root group has no such file.
        let mut groups = directory.ancestors().take_while(|group| group.join(names.itself).exists());
        let (file, word) = names.thaw;
        match groups.find(|group| says(group, names.itself, &["1"])) {
            Some(group) => Some(Self { directory: group.to_owned(), cure: Some((word, group.join(file))) }),
            None if says(directory, names.state, names.frozen) => {
                Some(Self { directory: directory.to_owned(), cure: None })
            }
            None => None,
        }
    }
}

impl fmt::Display for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.display();
        match &self.cure {
            Some((word, file)) => {
                write!(f, "frozen with the cgroup {directory}: `echo {word} > {}` thaws it", file.display())
            }
            None => write!(f, "frozen with a cgroup above {directory}, which is not seen from here: thaw that one"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(files: &[(&str, &str)], version: usize) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let frozen = Frozen::by(&root.path().join("a/b"), &VERSIONS[version])?;
        Some(frozen.to_string().replace(root.path().to_str().unwrap(), ""))
    }

    #[test]
    fn the_group_that_was_frozen_is_named_and_what_thaws_it() {
        let thawed = [
            ("a/cgroup.freeze", "0\n"),
            ("a/b/cgroup.freeze", "0\n"),
            ("a/b/cgroup.events", "populated 1\nfrozen 0\n"),
        ];
        assert_eq!(by(&thawed, 0), None);
        // One of its processes may not be frozen yet.
        let above = [("a/cgroup.freeze", "1\n"), ("a/b/cgroup.freeze", "0\n"), ("a/b/cgroup.events", "frozen 0\n")];
        let says = "frozen with the cgroup /a: `echo 0 > /a/cgroup.freeze` thaws it";
        assert_eq!(by(&above, 0).as_deref(), Some(says));
        let own = [("a/b/freezer.state", "FREEZING\n"), ("a/b/freezer.self_freezing", "1\n")];
        let says = "frozen with the cgroup /a/b: `echo THAWED > /a/b/freezer.state` thaws it";
        assert_eq!(by(&own, 1).as_deref(), Some(says));
        assert_eq!(by(&[("a/b/freezer.state", "THAWED\n"), ("a/b/freezer.self_freezing", "0\n")], 1), None);
    }

    #[test]
    fn of_a_group_out_of_sight_its_lowest_is_named() {
        let says = "frozen with a cgroup above /a/b, which is not seen from here: thaw that one";
        let v2 = [("a/b/cgroup.freeze", "0\n"), ("a/b/cgroup.events", "populated 1\nfrozen 1\n")];
        assert_eq!(by(&v2, 0).as_deref(), Some(says));
        let v1 = [("a/b/freezer.state", "FROZEN\n"), ("a/b/freezer.self_freezing", "0\n")];
        assert_eq!(by(&v1, 1).as_deref(), Some(says));
    }
}
