//! Pages merged by the kernel under a program that reads, writes, frees and forks.

use crate::common::{Kind, Mode, compile, foreign, run, succeeded};
use std::fs;

/// The kernel's same-page merging, on and fast as long as this lives.
struct Ksm {
    before: Vec<(String, String)>,
    _alone: weir_testing::Lock,
}

impl Ksm {
    /// `None`: it cannot be switched on, or would bring nothing, which is said.
    fn on() -> Option<Self> {
        let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if huge.is_ok_and(|mode| mode.contains("[always]")) {
            weir_testing::skip!("pages of huge pages are not merged, and this system has them everywhere");
            return None;
        }
        let alone = weir_testing::lock("same-page merging");
        let files = ["run", "pages_to_scan"].map(|name| format!("/sys/kernel/mm/ksm/{name}"));
        let before = files.into_iter().map(|file| Some((file.clone(), fs::read_to_string(file).ok()?)));
        let Some(before) = before.collect::<Option<Vec<_>>>() else {
            weir_testing::skip!("this kernel merges no pages");
            return None;
        };
        let ksm = Self { before, _alone: alone };
        let set = |i: usize, value: &str| fs::write(&ksm.before[i].0, value);
        if let Err(why) = set(1, "2000").and_then(|()| set(0, "1")) {
            weir_testing::skip!("only root switches merging on: {why}");
            return None;
        }
        Some(ksm)
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        for (file, value) in &self.before {
            let _ = fs::write(file, value.trim());
        }
    }
}

#[test]
fn sparse_pages_are_merged_and_no_object_changes() {
    if foreign() {
        return;
    }
    let Some(program) = compile(Kind::C, "merging.c") else { return };
    let Some(_ksm) = Ksm::on() else { return };
    for setting in ["1", "2"] {
        let extra = [("WEIR_MERGE", setting.into())];
        succeeded(&format!("merging.c with WEIR_MERGE={setting}"), &run(&program, &[], Mode::Plain, &extra));
    }
}

#[test]
fn pages_that_a_child_has_too_are_left_alone() {
    if foreign() {
        return;
    }
    let Some(program) = compile(Kind::C, "merging_forks.c") else { return };
    let Some(_ksm) = Ksm::on() else { return };
    succeeded("merging_forks.c", &run(&program, &[], Mode::Plain, &[("WEIR_MERGE", "1".into())]));
}
