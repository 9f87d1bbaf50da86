//! Who may use what, in every crate: the table of docs/design/layers.md, held against the sources.
//!
//! Every path that a file writes out is an arrow to the file that it names. Paths count in code and in macros: `use
//! crate::…`, `super::…`, a child module's name. An arrow to a folder that the table does not allow fails, and so does a
//! circle of files. What only tests use does not count.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file of a crate: its module (`[]` is the root) and its tokens.
struct File {
    module: Vec<String>,
    tokens: Vec<TokenTree>,
}

/// The files of one program or library, by module.
type Files = BTreeMap<Vec<String>, PathBuf>;

/// The files that each file uses.
type Arrows = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// The sources of a program or library from its root file on, tests left out.
fn read_crate(root: &Path) -> (Files, Vec<File>) {
    let (mut paths, mut files) = (Files::new(), Vec::new());
    let mut waiting = vec![(root.to_path_buf(), Vec::new(), root.parent().expect("a folder").to_path_buf())];
    while let Some((path, module, children)) = waiting.pop() {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let stream: TokenStream = text.parse().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let tokens = without_tests(stream);
        for name in declared(&tokens) {
            let below = children.join(&name);
            let places = [children.join(format!("{name}.rs")), below.join("mod.rs")];
            if let Some(file) = places.into_iter().find(|place| place.exists()) {
                let child: Vec<String> = module.iter().cloned().chain([name]).collect();
                waiting.push((file, child, below));
            }
        }
        paths.insert(module.clone(), path);
        files.push(File { module, tokens });
    }
    (paths, files)
}

/// The tokens of a file without the items behind a `#[cfg(test)]`.
fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_attribute = matches!(&token, TokenTree::Punct(p) if p.as_char() == '#');
        let is_test = |next: &TokenTree| matches!(next, TokenTree::Group(g) if is_test_attribute(&g.stream()));
        if !is_attribute || !tokens.peek().is_some_and(is_test) {
            out.push(token);
            continue;
        }
        // The item ends with its body, or with a semicolon.
        for token in tokens.by_ref() {
            match &token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                _ => {}
            }
        }
    }
    out
}

/// `cfg(test)` and `cfg(all(test, …))`, also `cfg(all(test, not(loom)))`.
fn is_test_attribute(attribute: &TokenStream) -> bool {
    let text = attribute.to_string();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    words.first() == Some(&"cfg") && words.contains(&"test") && !words.windows(2).any(|pair| pair == ["not", "test"])
}

/// The modules that a file declares: `mod name;`.
fn declared(tokens: &[TokenTree]) -> Vec<String> {
    let name = |three: &[TokenTree]| match three {
        [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(end)]
            if word == "mod" && end.as_char() == ';' =>
        {
            Some(name.to_string())
        }
        _ => None,
    };
    tokens.windows(3).filter_map(name).collect()
}

/// Every path of a file that begins with `crate`, `super`, `self` or a child module, from the crate's root.
fn named(file: &File, children: &BTreeSet<String>) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    collect(&file.tokens, &mut |segments| {
        let mut base = match segments[0].as_str() {
            "crate" => Vec::new(),
            "self" | "super" => file.module.clone(),
            name if children.contains(name) => file.module.clone(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                name => base.push(name.to_string()),
            }
        }
        out.push(base);
    });
    out
}

/// Calls `found` with each path in `tokens`; a tree of a `use` is as many paths as it has leaves.
fn collect(tokens: &[TokenTree], found: &mut impl FnMut(&[String])) {
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            TokenTree::Ident(_) => read_path(tokens, at, &[], found),
            TokenTree::Group(group) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                // `pub(in crate::a)` says who may use the item, and uses nothing.
                if !matches!(inner.first(), Some(TokenTree::Ident(word)) if word == "in") {
                    collect(&inner, found);
                }
                at + 1
            }
            _ => at + 1,
        }
    }
}

/// Reads the path that begins at `at`, after `before`; returns where it ends.
fn read_path(tokens: &[TokenTree], mut at: usize, before: &[String], found: &mut impl FnMut(&[String])) -> usize {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    let (mut segments, mut is_path) = (before.to_vec(), !before.is_empty());
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        segments.push(name.to_string());
        at += 1;
        if !is_colon(at) || !is_colon(at + 1) {
            break;
        }
        (at, is_path) = (at + 2, true);
        if let Some(TokenTree::Group(group)) = tokens.get(at)
            && group.delimiter() == Delimiter::Brace
        {
            let tree: Vec<TokenTree> = group.stream().into_iter().collect();
            let mut leaf = 0;
            while leaf < tree.len() {
                let is_name = matches!(tree[leaf], TokenTree::Ident(_));
                leaf = if is_name { read_path(&tree, leaf, &segments, found) } else { leaf + 1 };
            }
            return at + 1;
        }
    }
    // `pub(super)` names nothing.
    if is_path {
        found(&segments);
    }
    at
}

/// The files of a program or library, and the arrows between them.
fn arrows(root: &Path) -> (Files, Arrows) {
    let (paths, files) = read_crate(root);
    let mut out = Arrows::new();
    for file in &files {
        let depth = file.module.len();
        let is_child = |module: &&Vec<String>| module.len() == depth + 1 && module[..depth] == file.module[..];
        let children = paths.keys().filter(is_child).map(|module| module[depth].clone()).collect();
        let mut uses = BTreeSet::new();
        for mut path in named(file, &children) {
            while !paths.contains_key(&path) {
                path.pop();
            }
            if path != file.module {
                uses.insert(path);
            }
        }
        out.insert(file.module.clone(), uses);
    }
    (paths, out)
}

/// The files that reach themselves.
fn circles(arrows: &Arrows) -> Vec<&Vec<String>> {
    let reaches_itself = |from: &&Vec<String>| {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![*from]);
        while let Some(at) = waiting.pop() {
            waiting.extend(arrows.get(at).into_iter().flatten().filter(|next| seen.insert(*next)));
        }
        seen.contains(from)
    };
    arrows.keys().filter(reaches_itself).collect()
}

/// The table: of each program or library its layers, and the layers that each may use.
type Table = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn table() -> Table {
    let text = std::fs::read_to_string(workspace().join("docs/design/layers.md")).expect("layers.md");
    let block = text.split("```layers\n").nth(1).expect("layers.md has a block of layers");
    let (mut out, mut root) = (Table::new(), String::new());
    for line in block.split("```").next().unwrap_or_default().lines() {
        let mut words = line.split_whitespace().map(|word| word.trim_end_matches('/').to_string());
        let first = words.next().expect("no empty line among the layers");
        if line.starts_with(' ') {
            out.get_mut(&root).expect("a root before its layers").insert(first, words.filter(|w| w != "-").collect());
        } else {
            root = first;
            out.entry(root.clone()).or_default();
        }
    }
    out
}

fn name(module: &[String]) -> String {
    if module.is_empty() { "the root".into() } else { module.join("::") }
}

#[test]
fn every_layer_uses_only_what_the_table_allows_and_no_files_use_each_other() {
    let mut wrong = Vec::new();
    for (root, layers) in table() {
        let (paths, arrows) = arrows(&workspace().join(&root));
        let there: BTreeSet<&String> = paths.keys().filter_map(|module| module.first()).collect();
        let circles = circles(&arrows).into_iter().map(|file| format!("{} is part of a circle", name(file)));
        let unlisted = there.iter().filter(|layer| !layers.contains_key(**layer));
        let absent = layers.keys().filter(|layer| !there.contains(layer));
        let upwards =
            arrows.iter().flat_map(|(from, uses)| uses.iter().map(move |to| (from, to))).filter(|(from, to)| {
                let Some(layer) = from.first() else { return false };
                let is_allowed = |to: &String| to == layer || layers.get(layer).is_some_and(|may| may.contains(to));
                !to.first().is_some_and(is_allowed)
            });
        let all = circles
            .chain(unlisted.map(|layer| format!("the table lacks {layer}")))
            .chain(absent.map(|layer| format!("the table has {layer}, which is not there")))
            .chain(upwards.map(|(from, to)| format!("{} uses {}", name(from), name(to))));
        wrong.extend(all.map(|what| format!("{root}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Not in the table yet, as docs/design/layers.md says.
const LATER: [&str; 1] = ["lab/weir-guest/src/image/main.rs"];

#[test]
fn the_table_names_every_program_and_library() {
    let table = table();
    let mut missing = Vec::new();
    for place in ["", "crates/", "lab/"] {
        for folder in std::fs::read_dir(workspace().join(place)).expect("a folder of crates").flatten() {
            for root in ["src/lib.rs", "src/main.rs", "src/load/main.rs", "src/image/main.rs", "src/run/main.rs"] {
                let named = format!("{place}{}/{root}", folder.file_name().to_string_lossy());
                if folder.path().join(root).exists() && !table.contains_key(&named) && !LATER.contains(&named.as_str())
                {
                    missing.push(named);
                }
            }
        }
    }
    assert!(missing.is_empty(), "docs/design/layers.md lacks {}", missing.join(", "));
}

#[test]
fn arrows_are_seen_wherever_they_are_written() {
    let text = r#"
        mod child;
        use crate::{a::{B, c::D}, e};
        pub use child::Thing;
        pub(super) fn f() { println!("{}", super::g::H); let x: crate::i::J = child::k(); }
        pub(in crate::not_seen) fn visible() {}
        #[cfg(test)]
        mod tests { use crate::not_seen::X; }
        const SEEN: usize = crate::after::TESTS;
    "#;
    let file = File { module: vec!["here".into()], tokens: without_tests(text.parse().expect("tokens")) };
    let paths: BTreeSet<String> =
        named(&file, &BTreeSet::from(["child".to_string()])).iter().map(|path| path.join("::")).collect();
    let expected = ["a::B", "a::c::D", "after::TESTS", "e", "g::H", "here::child::Thing", "here::child::k", "i::J"];
    assert_eq!(paths, expected.into_iter().map(String::from).collect());
}

#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_string()];
    let arrow = |from: &str, to: &[&str]| (module(from), to.iter().map(|to| module(to)).collect::<BTreeSet<_>>());
    let found = Arrows::from([arrow("a", &["b"]), arrow("b", &["c"]), arrow("c", &["b"]), arrow("d", &["a"])]);
    assert_eq!(circles(&found), [&module("b"), &module("c")]);
}

#[test]
fn the_files_that_answer_questions_exist() {
    let design = std::fs::read_to_string(workspace().join("docs/design.md")).expect("design.md");
    let (_, after) = design.split_once("## Where is it?").expect("the table of questions");
    let table = after.split("\n## ").next().unwrap_or_default();
    let files: Vec<&str> = table.split('`').filter(|word| word.ends_with(".rs") && word.contains("/src/")).collect();
    assert!(files.len() >= 12, "a file for each question: {files:?}");
    let missing: Vec<_> = files.into_iter().filter(|file| !workspace().join(file).is_file()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
