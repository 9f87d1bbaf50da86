//! `weir ctl`: a running process's settings, and what it is told to release.

use crate::base::failure::Failure;
use crate::base::output;
use crate::command_line::{CtlAction, CtlOptions};
use crate::inspect::control::Control;
use crate::inspect::page::Inspected;

/// Carries the action out and prints the answer.
pub fn ctl(options: &CtlOptions) -> Result<i32, Failure> {
    let pid = options.pid;
    let page = Inspected::new(pid).and_then(|it| it.page());
    let page = page.map_err(|why| Failure::of_weir(format!("process {pid}: {why}")))?;
    let control = Control::connect(pid, &page)?;
    let request = match &options.action {
        CtlAction::Get { name: None } => "get".to_owned(),
        CtlAction::Get { name: Some(name) } => format!("get {name}"),
        CtlAction::Set { name, value } => format!("set {name} {value}"),
        CtlAction::Trim => "trim".to_owned(),
        CtlAction::Drain => "drain".to_owned(),
        CtlAction::Report => "report".to_owned(),
    };
    output::print(&control.ask(&request)?).map(|()| 0)
}
