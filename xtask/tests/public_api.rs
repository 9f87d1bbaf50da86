//! The public items of the crate `weir`, held against a list. An item that is added, renamed or taken away by accident
//! fails here. One that is meant is a line of the list in the same change.
//!
//! `WEIR_TEST_WRITE_API=1 cargo test -p xtask --test public_api` writes the list anew.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const WRITE: &str = "WEIR_TEST_WRITE_API";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// The documentation of the crate by rustdoc. Its JSON is not stable yet: the variable lets a stable compiler write
/// it.
fn documentation() -> Value {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let status = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["rustdoc", "--quiet", "--package", "weir-memory", "--lib", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "rustdoc of the crate weir");
    let text = std::fs::read(target.join("doc/weir.json")).expect("rustdoc wrote it");
    serde_json::from_slice(&text).expect("JSON")
}

/// The items of one crate's documentation.
struct Api<'a> {
    index: &'a Value,
    items: BTreeSet<String>,
}

impl<'a> Api<'a> {
    fn get(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(id.to_string())
    }

    /// An item's kind, and what is particular to it.
    fn inner(item: &'a Value) -> (&'a str, &'a Value) {
        let inner = item["inner"].as_object().and_then(|inner| inner.iter().next()).expect("an item has a kind");
        (inner.0, inner.1)
    }

    fn ids(list: &'a Value) -> impl Iterator<Item = &'a Value> {
        list.as_array().into_iter().flatten()
    }

    fn is_public(item: &Value) -> bool {
        item["visibility"] == "public"
    }

    fn add(&mut self, item: &'a Value, path: &str) {
        let (kind, inner) = Self::inner(item);
        if kind == "use" {
            return self.add_reexport(inner, path);
        }
        let name = item["name"].as_str().unwrap_or_default();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        self.add_as(item, &path);
    }

    /// Adds what is exported under another path: in full where it is this crate's, by name where it is another's.
    fn add_reexport(&mut self, inner: &'a Value, path: &str) {
        let name = format!("{path}::{}", inner["name"].as_str().unwrap_or_default());
        assert_eq!(inner["is_glob"], false, "{name}: everything is exported, and so will be what is added");
        match self.get(&inner["id"]) {
            Some(item) => self.add_as(item, &name),
            None => _ = self.items.insert(format!("{name} (use of {})", inner["source"].as_str().unwrap_or_default())),
        }
    }

    fn add_as(&mut self, item: &'a Value, path: &str) {
        let (kind, inner) = Self::inner(item);
        self.items.insert(format!("{path} ({kind})"));
        match kind {
            "module" | "trait" => {
                for child in Self::ids(&inner["items"]).filter_map(|id| self.get(id)).collect::<Vec<_>>() {
                    if kind == "trait" || Self::is_public(child) {
                        self.add(child, path);
                    }
                }
            }
            "struct" | "enum" => {
                let fields = Self::ids(&inner["kind"]["plain"]["fields"]).chain(Self::ids(&inner["kind"]["tuple"]));
                for field in
                    fields.filter_map(|id| self.get(id)).filter(|field| Self::is_public(field)).collect::<Vec<_>>()
                {
                    self.add(field, path);
                }
                for variant in Self::ids(&inner["variants"]).filter_map(|id| self.get(id)).collect::<Vec<_>>() {
                    self.add(variant, path);
                }
                let impls = Self::ids(&inner["impls"]).filter_map(|id| self.get(id)).map(|item| &item["inner"]["impl"]);
                for block in impls.collect::<Vec<_>>() {
                    self.add_impl(block, path);
                }
            }
            "variant" => {
                for field in
                    Self::ids(&inner["kind"]["struct"]["fields"]).filter_map(|id| self.get(id)).collect::<Vec<_>>()
                {
                    self.add(field, path);
                }
            }
            _ => {}
        }
    }

    /// The methods of an impl; of a trait's impl, which trait, unless it is there for every type or by the compiler.
    fn add_impl(&mut self, block: &'a Value, path: &str) {
        if block["trait"].is_null() {
            for item in Self::ids(&block["items"]).filter_map(|id| self.get(id)).collect::<Vec<_>>() {
                if Self::is_public(item) {
                    self.add(item, path);
                }
            }
        } else if block["blanket_impl"].is_null() && block["is_synthetic"] == false {
            let name = block["trait"]["path"].as_str().unwrap_or_default();
            // Derived along with others, and of no use by itself.
            if !name.contains("StructuralPartialEq") {
                self.items.insert(format!("{path} (impl {name})"));
            }
        }
    }
}

#[test]
fn the_public_items_are_those_of_the_list() {
    let documentation = documentation();
    let mut api = Api { index: &documentation["index"], items: BTreeSet::new() };
    let root = api.get(&documentation["root"]).expect("the crate itself");
    api.add(root, "");
    let path = workspace().join("crates/weir/public-api.txt");
    let list = api.items.iter().map(|item| format!("{item}\n")).collect::<String>();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &list).expect("the list can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the list is there");
    let listed: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let added: Vec<_> = api.items.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&api.items).collect();
    assert!(
        added.is_empty() && gone.is_empty(),
        "public items of weir that are not in {0}: {added:#?}; of the list that are not public: {gone:#?}. Meant? {WRITE}=1",
        path.display()
    );
}
