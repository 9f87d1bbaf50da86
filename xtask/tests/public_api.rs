//! The public items of the crate `weir`, held against a list, with those that it exports of Weir's other crates. An item that is added, renamed or taken away by accident
//! fails here. One that is meant is a line of the list in the same change.
//!
//! `WEIR_TEST_WRITE_API=1 cargo test -p xtask --test public_api` writes the list anew.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const WRITE: &str = "WEIR_TEST_WRITE_API";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// The crates of which `weir` exports items: package, library.
const CRATES: [(&str, &str); 3] =
    [("weir-memory", "weir"), ("weir-linux", "weir_linux"), ("weir-memory-core", "weir_core")];

/// The documentation of a crate by rustdoc, what is hidden included. Of Weir's other crates what is private is as well, as their items
/// have the paths that they were written under then. The JSON is not stable yet: the variable lets a stable compiler write it.
fn documentation(package: &str, library: &str) -> Value {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let status = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["rustdoc", "--quiet", "--package", package, "--lib", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .arg("--document-hidden-items")
        .args((library != "weir").then_some("--document-private-items"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "rustdoc of the crate {library}");
    let text = std::fs::read(target.join(format!("doc/{library}.json"))).expect("rustdoc wrote it");
    serde_json::from_slice(&text).expect("JSON")
}

/// The items of a crate, and what it exports of others.
struct Api<'a> {
    crates: &'a BTreeMap<&'a str, Value>,
    /// The documentation of the crate that is at hand.
    home: &'a Value,
    items: BTreeSet<String>,
}

impl<'a> Api<'a> {
    fn get(&self, id: &Value) -> Option<&'a Value> {
        self.home["index"].get(id.to_string())
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

    /// The crate that an item of another one belongs to, and the item there.
    fn find(&self, id: &Value) -> Option<(&'a Value, &'a Value)> {
        let described = self.home["paths"].get(id.to_string())?;
        let home = self.crates.get(described["path"][0].as_str()?)?;
        let same = |other: &Value| ["path", "kind"].iter().all(|of| other[of] == described[of]);
        let (id, _) = home["paths"].as_object()?.iter().find(|(_, other)| other["crate_id"] == 0 && same(other))?;
        Some((home, home["index"].get(id)?))
    }

    /// Adds what is exported under another path, in full; a standard library's by name.
    fn add_reexport(&mut self, inner: &'a Value, path: &str) {
        let name = format!("{path}::{}", inner["name"].as_str().unwrap_or_default());
        assert_eq!(inner["is_glob"], false, "{name}: everything is exported, and so will be what is added");
        let own = self.get(&inner["id"]).map(|item| (self.home, item));
        match own.or_else(|| self.find(&inner["id"])) {
            Some((home, item)) => {
                let before = std::mem::replace(&mut self.home, home);
                self.add_as(item, &name);
                self.home = before;
            }
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
            if !["StructuralPartialEq", "TrivialClone"].iter().any(|derived| name.contains(derived)) {
                self.items.insert(format!("{path} (impl {name})"));
            }
        }
    }
}

#[test]
fn the_public_items_are_those_of_the_list() {
    let crates = BTreeMap::from(CRATES.map(|(package, library)| (library, documentation(package, library))));
    let weir = &crates["weir"];
    let mut api = Api { crates: &crates, home: weir, items: BTreeSet::new() };
    let root = api.get(&weir["root"]).expect("the crate itself");
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
