//! The caches that are compared.

use super::outcome::Run;

/// One cache, of one size, in a program on one malloc.
pub struct Subject {
    /// As in the table.
    pub label: String,
    /// The cache's name.
    pub kind: &'static str,
    /// Its size as a share of the limit, %; none of Weir's.
    pub percent: Option<u64>,
    /// The program that has it.
    pub program: &'static str,
    /// What was measured.
    pub runs: Vec<Run>,
}

/// Weir's cache has no size, and its program Weir as its allocator.
pub const WEIR: &str = "weir";
const PEERS: [&str; 3] = ["moka", "quick_cache", "foyer"];
const SIZES: [u64; 3] = [25, 50, 75];
/// The peers on Weir's malloc run only if that is asked for: it doubles the time.
const ON_WEIR: &str = "on-weir";

/// Those that `--only` names: caches by name, of one size by name and per cent, and `on-weir` for the peers' caches on
/// Weir's malloc instead of the C library's. All on the C library's if it names none.
pub fn subjects(only: &[String]) -> Result<Vec<Subject>, String> {
    let on_weir = only.iter().any(|word| word == ON_WEIR);
    let (program, suffix) = if on_weir { ("weir-lab-cache-weir", ", Weir's malloc") } else { ("weir-lab-cache", "") };
    let peer = |kind: &'static str, percent: u64| Subject {
        label: format!("{kind}, {percent} %{suffix}"),
        kind,
        percent: Some(percent),
        program,
        runs: Vec::new(),
    };
    let weir =
        Subject { label: WEIR.into(), kind: WEIR, percent: None, program: "weir-lab-cache-weir", runs: Vec::new() };
    let peers = PEERS.into_iter().flat_map(|kind| SIZES.map(|percent| peer(kind, percent)));
    let all: Vec<Subject> = std::iter::once(weir).chain(peers).collect();
    let named: Vec<&String> = only.iter().filter(|word| *word != ON_WEIR).collect();
    let is_named = |subject: &Subject, word: &str| word == subject.kind || word == subject.name();
    if let Some(unknown) = named.iter().find(|word| !all.iter().any(|subject| is_named(subject, word))) {
        return Err(format!(
            "no cache is called '{unknown}': {WEIR}, {}, each also as NAME-25, {ON_WEIR}",
            PEERS.join(", ")
        ));
    }
    Ok(all.into_iter().filter(|subject| named.is_empty() || named.iter().any(|word| is_named(subject, word))).collect())
}

impl Subject {
    /// As in `--only`.
    fn name(&self) -> String {
        self.percent.map_or(self.kind.into(), |percent| format!("{}-{percent}", self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(only: &[&str]) -> Vec<String> {
        let only: Vec<String> = only.iter().map(|word| word.to_string()).collect();
        subjects(&only).unwrap().into_iter().map(|subject| subject.label).collect()
    }

    #[test]
    fn caches_are_named_by_kind_and_size() {
        assert_eq!(labels(&[]).len(), 10);
        assert_eq!(labels(&["weir", "moka-25"]), ["weir", "moka, 25 %"]);
        assert_eq!(labels(&["foyer", "on-weir"])[0], "foyer, 25 %, Weir's malloc");
        assert!(subjects(&["lru".into()]).is_err());
    }
}
