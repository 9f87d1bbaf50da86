//! A page of statistics that is brought up to date: the process measures anew where its memory is.

use crate::inspect::control::Control;
use crate::inspect::page::{Inspected, Missing, Page};
use std::time::Duration;

/// How long the process may take; its figures are those of its last measurement then.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a process tells.
pub struct Told {
    pub page: Page,
    /// The setting `idle_ms`, if it was asked for.
    pub idle_ms: Option<u64>,
    /// Why it could not be asked.
    pub silent: Option<String>,
}

/// Has the process measure where its memory is now, if it can be told to, and reads its page.
pub fn read(inspected: &Inspected) -> Result<Told, Missing> {
    let page = inspected.page()?;
    Ok(match ask(inspected, &page) {
        Ok(idle_ms) => Told { page: inspected.page()?, idle_ms, silent: None },
        Err(why) => Told { page, idle_ms: None, silent: Some(why) },
    })
}

fn ask(inspected: &Inspected, page: &Page) -> Result<Option<u64>, String> {
    // A stopped process would not answer.
    if inspected.process.stat().is_ok_and(|stat| matches!(stat.state, 'T' | 't')) {
        return Err("it is stopped".into());
    }
    let control = Control::connect_within(inspected.process.pid(), page, PATIENCE).map_err(|why| why.to_string())?;
    control.ask("report").map_err(|why| why.to_string())?;
    let idle = control.ask("get idle_ms").map_err(|why| why.to_string())?;
    Ok(idle.split_whitespace().nth(1).and_then(|number| number.parse().ok()))
}
