//! A profile as one HTML page with a flame graph, which needs nothing else: no file beside it, no network. All that comes from
//! the process is text to the page: its script makes no HTML of it.

use super::data::Profile;
use super::measure::Measure;
use super::symbols::Symbols;
use super::tree::Tree;
use crate::base::units::bytes;
use maud::{DOCTYPE, PreEscaped, html};

/// The browser loads nothing, and runs what is in the page alone.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page.
pub fn page(profile: &Profile, symbols: &Symbols, measure: Measure) -> String {
    let total = profile.total();
    let data = serde_json::to_string(&Tree::of(profile, symbols)).unwrap_or_default();
    // In a script element `<` could begin its end.
    let data = data.replace('<', "\\u003c");
    let is_first = |it: Measure| if it == measure { "true" } else { "false" };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Weir: heap profile of " (profile.subject) }
                style { (PreEscaped(include_str!("flame.css"))) }
            }
            body {
                header {
                    h1 { "Heap profile of " (profile.subject) }
                    p.faint {
                        @if profile.duration_ns > 0 { "Over " (format!("{:.1}", profile.duration_ns as f64 / 1e9)) " s. " }
                        @if profile.mean_bytes > 0 {
                            "A sample each " (bytes(profile.mean_bytes)) " on average, " (profile.samples) " in all. "
                        }
                        "Each box is a function, as wide as what was allocated in it and in what it called; above it is who called it."
                    }
                    @for note in &profile.notes { p.note { (note) } }
                    @for file in &symbols.doubtful {
                        p.note { (file) " cannot be read, or is not the file that was mapped: do not rely on its functions." }
                    }
                }
                div.bar {
                    div role="group" aria-label="What is shown" {
                        button type="button" data-measure="1" aria-pressed=(is_first(Measure::Live)) {
                            "Live: " (bytes(total.live_bytes))
                        }
                        button type="button" data-measure="2" aria-pressed=(is_first(Measure::Allocated)) {
                            "Allocated: " (bytes(total.allocated_bytes))
                        }
                    }
                    button #reset type="button" { "Show all" }
                    input #search type="search" placeholder="Search functions and files" aria-label="Search functions and files";
                    span #found role="status" {}
                }
                noscript { p.note { "The graph is drawn by a script of this page, which this browser does not run." } }
                main #graph data-growth=(if profile.has_growth { "1" } else { "" }) {}
                p #details role="status" { "Point at a box for its figures; click it to see it alone." }
                footer { "weir " (env!("CARGO_PKG_VERSION")) }
                script #data type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(include_str!("flame.js"))) }
            }
        }
    };
    page.into_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::{Figures, Stack};

    #[test]
    fn a_hostile_name_is_text_alone() {
        let profile = Profile {
            subject: "</title><script>alert(1)</script>".into(),
            stacks: vec![Stack {
                frames: vec![0x11],
                figures: Figures { live_bytes: 1, ..Figures::default() },
                grown_bytes: 0,
            }],
            ..Profile::default()
        };
        let symbols = Symbols::for_tests(&[(0x11, &[("f</script><script>alert(2)", "a.c", 1)])]);
        let page = page(&profile, &symbols, Measure::Live);
        assert!(!page.contains("<script>alert"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains(r#"["f\u003c/script>\u003cscript>alert(2)","a.c:1"]"#), "{page}");
        // It names no other place that a browser would ask.
        assert!(!page.contains("http://") && !page.contains("https://"));
    }
}
