//! Exports and their names.

use super::complaints::Complaints;
use super::counters::Counters;
use crate::backend::{Flusher, Source, Volume};
use crate::base::Failure;
use crate::cache::BlockCache;
use crate::io::blocking;
use crate::protocol::Style;
use crate::protocol::constants::{MAX_STRING, transmission_flag as flag};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;

/// One export, as the user describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name, for clients.
    pub name: String,
    /// Where its bytes are.
    pub source: Source,
    /// Clients may not write.
    pub read_only: bool,
    /// For people; may be empty.
    pub description: String,
    /// Only clients with TLS see it.
    pub tls_only: bool,
}

/// An export.
pub struct Export {
    /// The definition that it was made from.
    pub definition: Definition,
    /// Its bytes. After a reload that changed the rest of the definition, two exports have them.
    pub volume: Arc<Volume>,
    /// The counters of it.
    pub counters: Arc<Counters>,
    /// Its failed requests, for the log.
    pub complaints: Complaints,
    /// Held by who looks at its size.
    look: Arc<Mutex<()>>,
}

/// All exports, by name.
#[derive(Default)]
pub struct Exports {
    by_name: BTreeMap<String, Arc<Export>>,
    default: Option<String>,
    /// Names and flushers of volumes that are exported no more. Clients may still write to them, and what was written may
    /// still be dirty.
    removed: Vec<(String, Weak<Flusher>)>,
}

impl Definition {
    fn check(&self) -> Result<(), Failure> {
        let is_right = |text: &str| text.len() <= MAX_STRING && !text.contains('\0');
        let message = "an export's name and description have no NUL, and at most 4096 bytes";
        let is_sound = is_right(&self.name) && is_right(&self.description);
        if is_sound { Ok(()) } else { Err(Failure::new(message)) }
    }

    /// It names the same bytes, for the same use.
    fn is_same_volume(&self, other: &Self) -> bool {
        self.name == other.name && self.read_only == other.read_only && self.source.is_same(&other.source)
    }
}

impl Export {
    fn open(definition: Definition, cache: Option<&Arc<BlockCache>>) -> Result<Self, Failure> {
        let Definition { name, source, read_only, .. } = &definition;
        let volume = source.open(*read_only, cache).map_err(Failure::because(format_args!("export '{name}'")))?;
        let (volume, counters, look) = (Arc::new(volume), Arc::default(), Arc::default());
        Ok(Self { definition, volume, counters, complaints: Complaints::default(), look })
    }

    /// The same volume, as `definition` describes it now.
    fn described(self: &Arc<Self>, definition: Definition) -> Arc<Self> {
        if self.definition == definition {
            return self.clone();
        }
        let (volume, counters, look) = (self.volume.clone(), self.counters.clone(), self.look.clone());
        Arc::new(Self { definition, volume, counters, complaints: Complaints::default(), look })
    }

    /// Finds out whether its volume has grown. Clients that come from then on may use all of it.
    pub fn look_at_size(&self) {
        match self.volume.grow() {
            Ok(Some(size)) => tracing::info!("export '{}' has grown to {size} bytes", self.definition.name),
            Ok(None) => {}
            Err(why) => tracing::warn!("export '{}': its size is not known: {why}", self.definition.name),
        }
    }

    /// Its size, as it is now. A thread finds it out, as what is below may hang: then it is one thread, and the clients of
    /// this export wait for it. Otherwise they would take all threads of their workers.
    pub async fn size_now(self: &Arc<Self>) -> u64 {
        let (export, look) = (self.clone(), self.look.clone().lock_owned().await);
        blocking(move || {
            export.look_at_size();
            // Here, as the client may have given up.
            drop(look);
        })
        .await;
        self.volume.size()
    }

    /// Flags that tell the client what this export can do. All its connections share one volume and one cache, so that
    /// a flush of one is a flush of all: `CAN_MULTI_CONN`.
    pub fn transmission_flags(&self, style: Style) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE | flag::CAN_MULTI_CONN;
        flags |= match self.volume.is_read_only() {
            true => flag::READ_ONLY,
            false => flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO,
        };
        if style == Style::Simple { flags } else { flags | flag::SEND_DF }
    }
}

impl Exports {
    /// Opens all exports. Those whose volume `before` has are taken from it, with their clients and counters.
    /// The default one is `default`, or the only one.
    pub fn open(
        definitions: Vec<Definition>,
        default: Option<String>,
        before: &Self,
        cache: Option<&Arc<BlockCache>>,
    ) -> Result<Self, Failure> {
        let mut by_name = BTreeMap::new();
        for definition in definitions {
            let name = definition.name.clone();
            definition.check()?;
            let kept = before.by_name.get(&name).filter(|export| export.definition.is_same_volume(&definition));
            let export = match kept {
                Some(export) if export.volume.is_replaced(&definition.source) => {
                    tracing::info!("export '{name}': {} is another file now", definition.source);
                    Arc::new(Export::open(definition, cache)?)
                }
                Some(export) => export.described(definition),
                None => Arc::new(Export::open(definition, cache)?),
            };
            if by_name.insert(name.clone(), export).is_some() {
                return Err(Failure::new(format!("export '{name}' is given twice")));
            }
        }
        match &default {
            Some(name) if !by_name.contains_key(name) => {
                Err(Failure::new(format!("the default export '{name}' is not among the exports")))
            }
            _ => {
                let removed = before.removed_by(&by_name);
                Ok(Self { by_name, default, removed })
            }
        }
    }

    /// What is removed when others are exported in the place of these, and what was before and is in use still.
    fn removed_by(&self, others: &BTreeMap<String, Arc<Export>>) -> Vec<(String, Weak<Flusher>)> {
        let is_kept = |name: &String, volume| others.get(name).is_some_and(|other| Arc::ptr_eq(&other.volume, volume));
        let gone = self.by_name.iter().filter(|(name, export)| !is_kept(name, &export.volume));
        let gone = gone.filter_map(|(name, export)| Some((name.clone(), Arc::downgrade(export.volume.flusher()?))));
        let before = self.removed.iter().filter(|(_, flusher)| flusher.strong_count() > 0).cloned();
        before.chain(gone).collect()
    }

    /// What the server's end has to flush, by the names of exports: also what is exported no more, as long as a client or a
    /// dirty block has it.
    pub fn flushers(&self) -> Vec<(String, Arc<Flusher>)> {
        let removed = self.removed.iter().filter_map(|(name, flusher)| Some((name.clone(), flusher.upgrade()?)));
        let now =
            self.by_name.iter().filter_map(|(name, export)| Some((name.clone(), export.volume.flusher()?.clone())));
        now.chain(removed).collect()
    }

    /// The export that a client names. An empty name is the default's, if no export has it.
    pub fn find(&self, name: &str) -> Option<&Arc<Export>> {
        let default = || match &self.default {
            _ if !name.is_empty() => None,
            Some(default) => self.by_name.get(default),
            None if self.by_name.len() == 1 => self.by_name.values().next(),
            None => None,
        };
        self.by_name.get(name).or_else(default)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.by_name.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::testing::run;
    use futures_util::FutureExt;

    fn memory(name: &str) -> Definition {
        Definition {
            name: name.into(),
            source: Source::Memory("1M".parse().expect("a size")),
            read_only: false,
            description: String::new(),
            tls_only: false,
        }
    }

    fn open(names: &[&str], default: Option<&str>, before: &Exports) -> Result<Exports, Failure> {
        Exports::open(names.iter().map(|name| memory(name)).collect(), default.map(Into::into), before, None)
    }

    fn found(exports: &Exports, name: &str) -> Option<String> {
        exports.find(name).map(|export| export.definition.name.clone())
    }

    #[test]
    fn an_empty_name_is_the_defaults() {
        let none = Exports::default();
        let one = open(&["a"], None, &none).expect("memory");
        assert_eq!(found(&one, ""), Some("a".into()));
        assert_eq!(found(&one, "b"), None);
        let two = open(&["a", "b"], None, &none).expect("memory");
        assert_eq!(found(&two, ""), None);
        assert_eq!(found(&open(&["a", "b"], Some("b"), &none).expect("memory"), ""), Some("b".into()));
        assert!(open(&["a"], Some("c"), &none).is_err());
        assert!(open(&["a", "a"], None, &none).is_err());
    }

    #[test]
    fn one_thread_at_a_time_looks_at_a_size() {
        run(async {
            let exports = open(&["a", "b"], None, &Exports::default()).expect("memory");
            let [a, b] = ["a", "b"].map(|name| exports.find(name).expect("it is there"));
            // As if a look at one of them hung.
            let hung = a.look.clone().lock_owned().await;
            let mut waits = Box::pin(a.size_now());
            assert!(waits.as_mut().now_or_never().is_none());
            assert_eq!(b.size_now().await, 1 << 20);
            drop(hung);
            assert_eq!(waits.await, 1 << 20);
        });
    }

    #[test]
    fn a_new_description_leaves_the_volume_as_it_is() {
        let before = open(&["a"], None, &Exports::default()).expect("memory");
        let reopen = |change: fn(&mut Definition)| {
            let mut definition = memory("a");
            change(&mut definition);
            let after = Exports::open(vec![definition], None, &before, None).expect("memory");
            let (old, new) = (before.find("a").expect("a"), after.find("a").expect("a"));
            assert_eq!(Arc::ptr_eq(&old.counters, &new.counters), Arc::ptr_eq(&old.volume, &new.volume));
            (Arc::ptr_eq(&old.volume, &new.volume), new.definition.description.clone(), new.definition.tls_only)
        };
        assert_eq!(reopen(|definition| definition.description = "new".into()), (true, "new".into(), false));
        assert_eq!(reopen(|definition| definition.tls_only = true), (true, "".into(), true));
        assert!(!reopen(|definition| definition.read_only = true).0);
        assert!(!reopen(|definition| definition.source = Source::Memory("2M".parse().expect("a size"))).0);
    }

    #[test]
    fn what_would_be_made_leaves_a_volume_that_is_there_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let with = |create: &str, before: &Exports| {
            let source = Source::Path { path: folder.path().join("disk"), create: create.parse().ok() };
            Exports::open(vec![Definition { source, ..memory("a") }], None, before, None).expect("a file")
        };
        let volume = |exports: &Exports| exports.find("a").expect("a").volume.clone();
        let first = with("1M", &Exports::default());
        let second = with("2M", &first);
        assert!(Arc::ptr_eq(&volume(&first), &volume(&second)));
        assert!(Arc::ptr_eq(&volume(&first), &volume(&with("", &second))));
    }
}
