//! Processes are looked at again and again by a program.

use crate::subject::{Subject, is_in_state};
use weir_cli::survey::Survey;
use weir_testing::wait_until;

#[test]
fn processes_are_found_read_again_and_gone() {
    let (Some(mut small), Some(mut large)) = (Subject::new(&[]), Subject::new(&[])) else { return };
    assert_eq!((large.tell("hold 40"), small.tell("hold 0")), ("done".into(), "done".into()));
    let (small_pid, large_pid) = (small.pid() as i32, large.pid() as i32);
    let mut survey = Survey::default();
    let found = survey.look();
    assert!(found.processes[&large_pid].memory.resident_bytes > 40 << 20, "{found:?}");
    assert!(found.processes.contains_key(&small_pid), "{found:?}");
    assert!(!found.processes.contains_key(&(std::process::id() as i32)), "this one has no Weir");
    // By where its page was; one that came since is searched.
    assert_eq!(large.tell("hold 40"), "done");
    let Some(late) = Subject::new(&[]) else { return };
    let found = survey.look();
    assert!(found.processes[&large_pid].memory.resident_bytes > 80 << 20, "{found:?}");
    assert!(found.processes[&large_pid].command.starts_with("subject-"), "{found:?}");
    assert!(found.processes.contains_key(&(late.pid() as i32)), "{found:?}");
    // Its main thread ends: it is the same process still.
    assert_eq!(large.tell("leave"), "done");
    wait_until("the main thread's end", || is_in_state(large.pid(), 'Z'));
    for _ in 0..2 {
        let found = survey.look();
        assert!(found.processes[&large_pid].memory.resident_bytes > 80 << 20, "{found:?}");
    }
    small.kill();
    let found = survey.look();
    assert!(!found.processes.contains_key(&small_pid) && found.processes.contains_key(&large_pid), "{found:?}");
}
