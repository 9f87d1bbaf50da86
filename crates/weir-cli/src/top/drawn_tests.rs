//! Screens as they are drawn.

use super::model::Model;
use super::sample::Sample;
use super::sample::example::process;
use super::{drawn, keys};
use crate::around::stall::Stall;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

fn model() -> Model {
    let mut model = Model::new(Duration::from_secs(1), false);
    let mut processes = vec![process(1, 0, "init", 4 << 20, false), process(100, 1, "redis-server", 96 << 20, true)];
    processes.extend((0..30).map(|n| process(200 + n, 100, &format!("worker{n}"), (40 - n as u64) << 20, true)));
    let stall = Stall { some: [12.5, 3.0, 0.0], full: [1.5, 0.0, 0.0] };
    let sample = Sample { processes, unknown: 0, machine: [24 << 30, 6 << 30], stall: Some(stall) };
    for grown in 0..5 {
        let mut sample = sample.clone();
        sample.processes[1].resident_bytes -= (4 - grown) * (20 << 20);
        model.take(sample);
    }
    model.select(0);
    model
}

fn press(model: &mut Model, code: KeyCode) {
    keys::press(model, KeyEvent::new(code, KeyModifiers::NONE));
}

fn screen(model: &mut Model) -> String {
    let Ok(text) = drawn(model, 80, 24);
    assert_eq!(text.lines().count(), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn everything_that_matters_fits_into_80_by_24() {
    let mut model = model();
    let text = screen(&mut model);
    for part in [
        "weir top  31 of 32 processes have Weir   machine 6.0G of 24G used",
        "pressure  machine  some 12.5 3.0 0.0 %  full 1.5 0.0 0.0 %",
        "released  idle 155M  pressure 31M  limit 0B  asked 62M",
        "RESv",
        "    100    96M    48M    24M    12M    12M   8.0M ▂▃▅▇█      redis-server",
        " redis-server (100) 96.0 MiB resident ",
        "# live 48M  . idle 24M  % fragmented 12M  m metadata 0B  = other 12M",
        "released  idle 5.0M  pressure 1.0M  limit 0B  asked 2.0M   pressure some",
        "resident set over 4 s: from 16.0 MiB to 96.0 MiB",
        "F10Quit",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains("init"), "it has no Weir:\n{text}");
}

/// An ordinary user beside root's processes.
#[test]
fn what_could_not_be_looked_into_is_told() {
    let mut model = model();
    let sample = Sample { unknown: 21, ..model.sample.clone() };
    model.take(sample);
    let text = screen(&mut model);
    assert!(text.contains("31 of 32 processes have Weir, 21 unknown   machine 6.0G of 24G used"), "{text}");
    let processes = vec![process(1, 0, "init", 4 << 20, false)];
    let sample = Sample { processes, unknown: 1, ..model.sample.clone() };
    model.take(sample);
    let text = screen(&mut model);
    assert!(text.contains("1 could not be: `weir stat` says why; root may look into all"), "{text}");
}

#[test]
fn the_table_scrolls_with_the_bar() {
    let mut model = model();
    assert!(!screen(&mut model).contains("worker29"));
    press(&mut model, KeyCode::End);
    let text = screen(&mut model);
    assert!(text.contains("worker29") && !text.contains(" 96M "), "{text}");
    press(&mut model, KeyCode::PageUp);
    press(&mut model, KeyCode::PageUp);
    assert!(!screen(&mut model).contains("worker29"));
}

#[test]
fn a_tree_shows_who_started_whom() {
    let mut model = model();
    press(&mut model, KeyCode::F(5));
    press(&mut model, KeyCode::Char('a'));
    let text = screen(&mut model);
    let line = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
    assert!(line("`- redis-server").contains(" 100 ") && line("init").contains("     -"), "{text}");
    assert!(line("worker0").contains("  `- worker0"), "{text}");
}

#[test]
fn menus_and_help_lie_over_the_table() {
    for (key, said) in [
        (KeyCode::F(1), "Help: any key ends it"),
        (KeyCode::F(6), "Sort by"),
        (KeyCode::F(9), "Steer redis-server (100)"),
        (KeyCode::F(3), "Search: _"),
        (KeyCode::F(4), "Filter: _"),
    ] {
        let mut model = model();
        press(&mut model, key);
        let text = screen(&mut model);
        assert!(text.contains(said), "{said}:\n{text}");
    }
    let mut model = model();
    press(&mut model, KeyCode::F(1));
    let text = screen(&mut model);
    assert!(keys::HELP.iter().all(|(key, what)| text.contains(key) && text.contains(what)), "{text}");
    let mut model = self::model();
    [KeyCode::F(9), KeyCode::Down, KeyCode::Enter].into_iter().for_each(|code| press(&mut model, code));
    let text = screen(&mut model);
    assert!(text.contains("drain redis-server (100)?") && text.contains("y: yes"), "{text}");
}

#[test]
fn a_part_that_was_not_measured_is_not_shown_as_nothing() {
    let mut model = model();
    let mut sample = model.sample.clone();
    sample.processes[1].weir.as_mut().unwrap().memory.measured_ns_ago = None;
    model.take(sample);
    let text = screen(&mut model);
    assert!(text.contains("    100    96M      -      -      -      -   8.0M "), "{text}");
    assert!(text.contains("not measured yet"), "{text}");
}

/// Whatever the terminal is resized to, and whatever lies over the table.
#[test]
fn every_size_can_be_drawn() {
    for width in [1, 2, 20, 200] {
        for height in [1, 3, 8, 15, 50] {
            for key in [KeyCode::F(1), KeyCode::F(4), KeyCode::F(9)] {
                let mut model = model();
                press(&mut model, key);
                let Ok(text) = drawn(&mut model, width, height);
                assert_eq!(text.lines().count(), usize::from(height));
            }
        }
    }
}

#[test]
fn an_empty_table_says_what_to_do() {
    let mut model = Model::new(Duration::from_secs(1), false);
    model.take(Sample::default());
    assert!(screen(&mut model).contains("no process with Weir was found: `weir run PROGRAM` starts one"));
    press(&mut model, KeyCode::F(4));
    press(&mut model, KeyCode::Char('x'));
    assert!(screen(&mut model).contains("no process has that in its name"));
}
