//! The caches that are compared, under one trait: byte strings by number.

use std::sync::Arc;

/// A cache.
pub trait Cache {
    /// Reads the value of a key, if it is there.
    fn read(&self, key: u64, reader: &mut dyn FnMut(&[u8])) -> bool;
    /// Puts in a value whose key is not there.
    fn insert(&self, key: u64, value: Box<[u8]>);
    /// Bytes of the values that are held, about.
    fn bytes(&self) -> u64;
}

/// A cache of that kind, of at most so many bytes of values; Weir's has no size.
pub fn make(kind: &str, bytes: u64) -> Result<Box<dyn Cache>, String> {
    match kind {
        "weir" => Weir::new().map(|cache| Box::new(cache) as Box<dyn Cache>),
        "moka" => Ok(Box::new(Moka::new(bytes))),
        "quick_cache" => Ok(Box::new(Quick::new(bytes))),
        "foyer" => Ok(Box::new(Foyer::new(bytes))),
        _ => Err(format!("no cache is called '{kind}': weir, moka, quick_cache, foyer")),
    }
}

/// What an entry costs beside its value, about: all caches weigh alike.
const ENTRY: usize = 64;
/// What quick_cache is told to expect of an entry.
const TYPICAL: u64 = 4096;

struct Weir(weir::EvictableCache<u64, Box<[u8]>>);

impl Weir {
    fn new() -> Result<Weir, String> {
        let builder =
            weir::EvictableCache::<u64, Box<[u8]>>::builder().name("values").weigher(|_, value| value.len() + ENTRY);
        builder.build().map(Weir).map_err(|why| why.to_string())
    }
}

impl Cache for Weir {
    fn read(&self, key: u64, reader: &mut dyn FnMut(&[u8])) -> bool {
        let entry = self.0.get(&key);
        if let Some(entry) = &entry {
            reader(entry);
        }
        entry.is_some()
    }

    fn insert(&self, key: u64, value: Box<[u8]>) {
        // A value that is refused, as memory is short, is computed again when it is wanted again.
        drop(self.0.insert(key, value));
    }

    fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }
}

struct Moka(moka::sync::Cache<u64, Arc<[u8]>>);

impl Moka {
    fn new(bytes: u64) -> Moka {
        let builder = moka::sync::Cache::builder().max_capacity(bytes);
        Moka(builder.weigher(|_, value: &Arc<[u8]>| (value.len() + ENTRY) as u32).build())
    }
}

impl Cache for Moka {
    fn read(&self, key: u64, reader: &mut dyn FnMut(&[u8])) -> bool {
        self.0.get(&key).as_deref().map(reader).is_some()
    }

    fn insert(&self, key: u64, value: Box<[u8]>) {
        self.0.insert(key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.weighted_size()
    }
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<u64, Arc<[u8]>> for Weight {
    fn weight(&self, _: &u64, value: &Arc<[u8]>) -> u64 {
        (value.len() + ENTRY) as u64
    }
}

struct Quick(quick_cache::sync::Cache<u64, Arc<[u8]>, Weight>);

impl Quick {
    fn new(bytes: u64) -> Quick {
        Quick(quick_cache::sync::Cache::with_weighter((bytes / TYPICAL) as usize, bytes, Weight))
    }
}

impl Cache for Quick {
    fn read(&self, key: u64, reader: &mut dyn FnMut(&[u8])) -> bool {
        self.0.get(&key).as_deref().map(reader).is_some()
    }

    fn insert(&self, key: u64, value: Box<[u8]>) {
        self.0.insert(key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

struct Foyer(foyer_memory::Cache<u64, Arc<[u8]>>);

impl Foyer {
    fn new(bytes: u64) -> Foyer {
        let builder = foyer_memory::CacheBuilder::new(bytes as usize);
        Foyer(builder.with_weighter(|_: &u64, value: &Arc<[u8]>| value.len() + ENTRY).build())
    }
}

impl Cache for Foyer {
    fn read(&self, key: u64, reader: &mut dyn FnMut(&[u8])) -> bool {
        let entry = self.0.get(&key);
        if let Some(entry) = &entry {
            reader(entry.value());
        }
        entry.is_some()
    }

    fn insert(&self, key: u64, value: Box<[u8]>) {
        self.0.insert(key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.usage() as u64
    }
}
