//! A process that is asked: it measures anew where its memory is, and tells its settings.

use super::control::Control;
use super::page::{Inspected, Missing, Page};
use crate::figures::idle_window::IdleWindow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The answer of a process.
pub struct Told {
    pub page: Page,
    /// The process's settings now; none: it could not be asked.
    pub settings: BTreeMap<String, u64>,
    /// Why it could not be asked.
    pub silent: Option<String>,
}

impl Told {
    /// For how long idle memory is kept now, if the setting is told.
    pub fn window(&self) -> Option<IdleWindow> {
        self.settings.get("idle_ms").map(|&idle_ms| IdleWindow::of(idle_ms, &self.page))
    }
}

/// Has the process measure where its memory is now, if it can be told to in so much time, and reads its page.
pub fn read(inspected: &Inspected, patience: Duration) -> Result<Told, Missing> {
    let page = inspected.page()?;
    let ask = || {
        let control = channel(inspected, &page, patience)?;
        let answer = |request: &str| control.ask(request).map_err(|why| why.to_string());
        answer("report").and_then(|_| answer("get"))
    };
    Ok(match ask() {
        Ok(lines) => {
            let settings = lines.lines().filter_map(figure).collect();
            Told { page: inspected.page()?, settings, silent: None }
        }
        Err(why) => Told { page, settings: BTreeMap::new(), silent: Some(why) },
    })
}

/// The channel of a process that is not stopped: that one would not answer.
pub fn channel(inspected: &Inspected, page: &Page, patience: Duration) -> Result<Control, String> {
    if inspected.process.stat().is_ok_and(|stat| matches!(stat.state, 'T' | 't')) {
        return Err("it is stopped".into());
    }
    Control::connect_within(inspected.process.pid(), page, patience).map_err(|why| why.to_string())
}

/// The name and the number of a line such as `limit 67108864 bytes`.
pub fn figure(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
