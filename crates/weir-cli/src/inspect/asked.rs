//! A process that is asked: it measures anew where its memory is, and tells its settings.

use super::control::{Control, is_stopped};
use super::page::{Inspected, Missing, Page};
use crate::around::frozen::Frozen;
use crate::figures::idle_window::IdleWindow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The answer of a process.
pub struct Told {
    pub page: Page,
    /// The process's settings now; none: it could not be asked.
    pub settings: BTreeMap<String, u64>,
    /// Bytes that merging sparse pages would release, where that was asked.
    pub mergeable: Option<u64>,
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
    read_with(inspected, patience, false)
}

/// Where `asks_more`, it also tries what merging sparse pages would release, which takes it longer.
pub fn read_with(inspected: &Inspected, patience: Duration, asks_more: bool) -> Result<Told, Missing> {
    let page = inspected.page()?;
    let ask = || -> Result<(String, Option<u64>), String> {
        let control = channel(inspected, &page, patience)?;
        let answer = |request: &str| control.ask(request).map_err(|why| why.to_string());
        let lines = answer("report").and_then(|_| answer("get"))?;
        let mergeable = if asks_more { answer("mergeable")?.lines().find_map(figure) } else { None };
        Ok((lines, mergeable.map(|(_, bytes)| bytes)))
    };
    Ok(match ask() {
        Ok((lines, mergeable)) => {
            let settings = lines.lines().filter_map(figure).collect();
            Told { page: inspected.page()?, settings, mergeable, silent: None }
        }
        Err(why) => Told { page, settings: BTreeMap::new(), mergeable: None, silent: Some(why) },
    })
}

/// The channel of a process that is neither stopped nor frozen: that one would not answer.
pub fn channel(inspected: &Inspected, page: &Page, patience: Duration) -> Result<Control, String> {
    let pid = inspected.process.pid();
    if is_stopped(pid) {
        return Err("it is stopped".into());
    }
    if let Some(frozen) = Frozen::of(pid) {
        return Err(format!("it is {frozen}"));
    }
    Control::connect_within(pid, page, patience).map_err(|why| why.to_string())
}

/// The name and the number of a line such as `limit 67108864 bytes`.
pub fn figure(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
