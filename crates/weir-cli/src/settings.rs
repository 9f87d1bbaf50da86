//! `weir settings`: the table of tunables, from which the document is made as well.

use crate::base::failure::Failure;
use crate::base::output;
use weir::settings::{self, Setting};

/// Prints the table as Markdown.
pub fn settings() -> Result<i32, Failure> {
    output::print(&markdown()).map(|()| 0)
}

fn markdown() -> String {
    let head = "# Settings\n\nMade by `weir settings` from the one table in `crates/weir-core/src/telemetry/tunables.rs`. Each is an \
                environment variable, `WEIR_` and the name in capitals; sizes take K, M, G or T; \
                times are plain numbers in the unit (`weir ctl` also takes 5s).\n\n\
                | name | default | range | unit | what it does | where the default is from |\n|---|--:|---|---|---|---|\n";
    settings::all().map(row).fold(head.to_owned(), |text, row| text + &row)
}

fn row(setting: &Setting) -> String {
    let Setting { name, default, min, max, unit, what, source, .. } = setting;
    let max = if *max == u64::MAX { "any".to_owned() } else { max.to_string() };
    format!("| `{name}` | {default} | {min} to {max} | {unit} | {what} | {source} |\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_the_table() {
        let document = include_str!("../../../docs/SETTINGS.md");
        assert_eq!(document, super::markdown(), "make it anew: cargo run -- settings > docs/SETTINGS.md");
    }
}
