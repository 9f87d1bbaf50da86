//! The documents hold together: the book has every page, and each link within the project leads somewhere.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").to_path_buf()
}

/// A page: where it lies below the project, its links, and the names by which its headings are found.
struct Page {
    path: PathBuf,
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Self {
        let mut page = Self { path: path.into(), links: Vec::new(), anchors: BTreeSet::new() };
        let mut heading = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into())
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take().as_deref().map(anchor)),
                Event::Text(words) | Event::Code(words) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&words));
                }
                _ => {}
            }
        }
        page
    }

    /// Its links that lead nowhere. Where the target is a page, it is among `pages`.
    fn broken(&self, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
        let folder = self.path.parent().expect("a folder");
        let leads = |link: &str| {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { self.path.clone() } else { plain(&folder.join(file)) };
            let has = |anchor| pages.get(&target).is_some_and(|page| page.anchors.contains(anchor));
            root().join(&target).exists() && anchor.is_none_or(has)
        };
        let within = self.links.iter().filter(|link| !link.contains("://"));
        within.filter(|link| !leads(link)).map(|link| format!("{}: {link}", self.path.display())).collect()
    }
}

/// The name of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// All pages of the folders in which people look, below the project.
fn pages() -> BTreeMap<PathBuf, Page> {
    let mut folders = [
        "",
        "docs",
        "docs/design",
        "docs/results",
        "fleet",
        "fleet/chart/weir",
        "fleet/weir-agent",
        "fleet/weir-webhook",
        "lab",
        "lab/results",
        "lab/weir-guest",
        "lab/weir-lab",
        "node",
        "python",
    ]
    .map(PathBuf::from)
    .to_vec();
    let crates = std::fs::read_dir(root().join("crates")).expect("the crates");
    folders.extend(crates.map(|entry| Path::new("crates").join(entry.expect("an entry").file_name())));
    let mut pages = BTreeMap::new();
    for folder in folders {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder") {
            let path = folder.join(entry.expect("an entry").file_name());
            if path.extension().is_some_and(|is| is == "md") {
                pages.insert(path.clone(), Page::read(&path));
            }
        }
    }
    pages
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let pages = pages();
    assert!(pages.values().map(|page| page.links.len()).sum::<usize>() > 100, "the links are not found");
    let broken: Vec<_> = pages.values().flat_map(|page| page.broken(&pages)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let pages = pages();
    let text = "[](DEPLOY.md#docker) [](DEPLOY.md#no-such) [](NOWHERE.md) [](../README.md) [](../NOWHERE.md) [](#a-heading)\n\
                `[](CODE.md)`\n\n    [](CODE.md)\n\n# Another heading: `x` & C++\n";
    let page = Page::parse(Path::new("docs/TEST.md"), text);
    assert!(page.anchors.contains("another-heading-x--c"), "{:?}", page.anchors);
    let wrong = ["DEPLOY.md#no-such", "NOWHERE.md", "../NOWHERE.md", "#a-heading"];
    assert_eq!(page.broken(&pages), wrong.map(|link| format!("docs/TEST.md: {link}")));
}

#[test]
fn the_book_has_every_page_once() {
    let pages = pages();
    let summary = Path::new("docs/SUMMARY.md");
    let mut listed: Vec<_> = pages[summary].links.iter().map(|link| Path::new("docs").join(link)).collect();
    listed.sort_unstable();
    let there: Vec<_> = pages.keys().filter(|path| path.starts_with("docs") && *path != summary).cloned().collect();
    assert_eq!(listed, there);
}
