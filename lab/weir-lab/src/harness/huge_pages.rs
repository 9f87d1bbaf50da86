//! The machine's setting for transparent huge pages, changed for an experiment and put back.

use crate::harness::restore::{RestoreGuard, on_end};
use std::fs;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The chosen word of `always [madvise] never`.
pub fn found() -> Result<String, String> {
    let text = fs::read_to_string(ENABLED).map_err(|why| format!("{ENABLED}: {why}"))?;
    chosen(&text).ok_or_else(|| format!("{ENABLED} chooses nothing: {}", text.trim()))
}

fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_string())
}

/// Whether this process may change it.
fn can_be_set() -> bool {
    fs::OpenOptions::new().write(true).open(ENABLED).is_ok()
}

/// The settings that distributions ship.
pub const MODES: [&str; 2] = ["madvise", "always"];

/// Those of [`MODES`] that can be measured: both, or the present setting if it cannot be changed, which is then said.
pub fn modes() -> Result<Vec<String>, String> {
    if can_be_set() {
        return Ok(MODES.map(String::from).into());
    }
    let found = found()?;
    println!("Huge pages stay '{found}': changing the setting needs root.\n");
    Ok(vec![found])
}

/// Sets it to `word` until the guard goes.
pub fn set(word: &str) -> Result<RestoreGuard, String> {
    let before = found()?;
    let guard = on_end(move || {
        if let Err(why) = fs::write(ENABLED, &before) {
            eprintln!("weir-lab: {ENABLED} stays changed, it was '{before}': {why}");
        }
    });
    fs::write(ENABLED, word).map_err(|why| format!("cannot set {ENABLED} (needs root): {why}"))?;
    Ok(guard)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_bracketed_word_is_the_chosen_one() {
        assert_eq!(super::chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(super::chosen("always madvise never\n"), None);
    }
}
