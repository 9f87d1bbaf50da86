//! The caches that are compared, under one trait: values by number. Some have room for a number of bytes or entries, Weir's
//! also has none.

use anyhow::{Result, bail};
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cache, as programs use it.
pub trait Cache<V>: Sync {
    fn get(&self, key: u64) -> Option<V>;
    fn insert(&self, key: u64, value: V);
    /// Bytes that it holds, by the weights of its entries.
    fn held(&self) -> u64;
    /// Holds it to another size, where it can be moved.
    #[allow(dead_code, reason = "the experiment hitrate moves none")]
    fn resize(&self, _bytes: u64) {}
    /// The value, which is loaded if it is not there.
    #[allow(dead_code, reason = "the experiment hitrate asks by the other two")]
    fn get_or_load(&self, key: u64, load: &mut dyn FnMut() -> V) -> V
    where
        V: Clone,
    {
        self.get(key).unwrap_or_else(|| {
            let value = load();
            self.insert(key, value.clone());
            value
        })
    }
}

/// The weight of a value.
pub type Weigh<V> = fn(&V) -> usize;

/// The hash function of all of them, so that none is ahead by it.
#[derive(Clone, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        let x = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

type Hash = BuildHasherDefault<KeyHasher>;

/// The names of the caches. `moka` holds more than its size until its maintenance runs; `moka held` runs it after each insertion.
/// There are also `weir bytes`, `foyer`, and `moka-shrinker`, which becomes smaller under pressure.
pub const KINDS: [&str; 7] = ["weir", "quick_cache", "foyer s3fifo", "foyer lfu", "lru", "moka held", "moka"];

/// Makes a cache of room for `most`, of entries that weigh `typical`. Without a size, Weir's has what memory there is.
pub fn make<V>(kind: &str, most: Option<u64>, typical: u64, weigh: Weigh<V>) -> Result<Box<dyn Cache<V>>>
where
    V: Clone + Send + Sync + 'static,
    Weir<V>: Cache<V>,
{
    let size = most.unwrap_or(0);
    let entries = size / typical;
    let shards = if entries < 4096 { 1 } else { 8 };
    Ok(match kind {
        "weir" | "weir bytes" => {
            let mut builder = weir::EvictableCache::builder().name("values").weigher(move |_, value: &V| weigh(value));
            if kind == "weir bytes" {
                builder = builder.favour(weir::Favour::Bytes);
            }
            if let Some(most) = most {
                builder = builder.min_bytes(most as usize).max_bytes(most as usize).shards(shards);
            }
            Box::new(Weir(builder.hasher(Hash::default()).build()?))
        }
        "moka" | "moka held" | "moka-shrinker" => {
            let builder = moka::sync::Cache::builder().max_capacity(size);
            let builder = builder.weigher(move |_, value: &V| weigh(value) as u32);
            let cache = builder.build_with_hasher(Hash::default());
            if kind == "moka-shrinker" {
                let shrinker = weir::Shrinker::builder("values").register(Moka(cache.clone(), weigh, false))?;
                std::mem::forget(shrinker); // For as long as the program runs.
            }
            Box::new(Moka(cache, weigh, kind == "moka held"))
        }
        "quick_cache" => {
            let (lifecycle, hash) = (quick_cache::sync::DefaultLifecycle::default(), Hash::default());
            let cache = quick_cache::sync::Cache::with(entries as usize, size, Weight(weigh), hash, lifecycle);
            Box::new(Quick(cache))
        }
        "foyer" | "foyer s3fifo" | "foyer lfu" => {
            let mut builder = foyer_memory::CacheBuilder::new(size as usize);
            if kind != "foyer" {
                let s3fifo = kind == "foyer s3fifo";
                builder = builder.with_shards(shards).with_eviction_config(match s3fifo {
                    true => foyer_memory::EvictionConfig::from(foyer_memory::S3FifoConfig::default()),
                    false => foyer_memory::LfuConfig::default().into(),
                });
            }
            let builder = builder.with_weighter(move |_: &u64, value: &V| weigh(value));
            Box::new(Foyer(builder.with_hash_builder(Hash::default()).build()))
        }
        "lru" => {
            let entries = NonZero::new(entries as usize).unwrap_or(NonZero::<usize>::MIN);
            Box::new(Lru(Mutex::new(lru::LruCache::with_hasher(entries, Hash::default()))))
        }
        _ => bail!("no cache is called '{kind}': {}, foyer", KINDS.join(", ")),
    })
}

pub struct Weir<V: Send + Sync + 'static>(weir::EvictableCache<u64, V, Hash>);

impl Cache<u64> for Weir<u64> {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get_copied(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        drop(self.0.insert(key, value));
    }

    fn held(&self) -> u64 {
        self.0.bytes() as u64
    }
}

impl<const N: usize> Cache<[u8; N]> for Weir<[u8; N]> {
    fn get(&self, key: u64) -> Option<[u8; N]> {
        self.0.get_copied(&key)
    }

    fn insert(&self, key: u64, value: [u8; N]) {
        drop(self.0.insert(key, value));
    }

    fn held(&self) -> u64 {
        self.0.bytes() as u64
    }
}

impl Cache<Arc<[u8]>> for Weir<Arc<[u8]>> {
    fn get(&self, key: u64) -> Option<Arc<[u8]>> {
        self.0.get(&key).map(|entry| Arc::clone(&entry))
    }

    fn insert(&self, key: u64, value: Arc<[u8]>) {
        drop(self.0.insert(key, value));
    }

    fn get_or_load(&self, key: u64, load: &mut dyn FnMut() -> Arc<[u8]>) -> Arc<[u8]> {
        Arc::clone(&self.0.get_or_insert_with(key, load))
    }

    fn held(&self) -> u64 {
        self.0.bytes() as u64
    }
}

/// The cache, what its values weigh, and whether it is held to its size.
struct Moka<V>(moka::sync::Cache<u64, V, Hash>, Weigh<V>, bool);

impl<V: Clone + Send + Sync + 'static> Cache<V> for Moka<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, value);
        if self.2 {
            self.0.run_pending_tasks();
        }
    }

    fn held(&self) -> u64 {
        self.0.iter().map(|(_, value)| (self.1)(&value) as u64).sum() // What it counts itself is behind.
    }
}

/// Moka has no call that evicts: what is come upon first goes.
impl<V: Clone + Send + Sync + 'static> weir::Shrink for Moka<V> {
    fn count(&self) -> usize {
        self.0.weighted_size() as usize
    }

    fn scan(&self, bytes: usize, _: weir::ScanReason) -> usize {
        let (before, mut left) = (self.count(), bytes as isize);
        let first = self.0.iter().take_while(|(_, value)| (left > 0, left -= (self.1)(value) as isize).0);
        first.for_each(|(key, _)| self.0.invalidate(&*key));
        self.0.run_pending_tasks();
        before.saturating_sub(self.count())
    }
}

#[derive(Clone)]
struct Weight<V>(Weigh<V>);

impl<V: Clone> quick_cache::Weighter<u64, V> for Weight<V> {
    fn weight(&self, _: &u64, value: &V) -> u64 {
        (self.0)(value) as u64
    }
}

struct Quick<V: Clone>(quick_cache::sync::Cache<u64, V, Weight<V>, Hash>);

impl<V: Clone + Send + Sync> Cache<V> for Quick<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, value);
    }

    fn held(&self) -> u64 {
        self.0.weight()
    }

    fn resize(&self, bytes: u64) {
        self.0.set_capacity(bytes);
    }
}

struct Foyer<V: Send + Sync + 'static>(foyer_memory::Cache<u64, V, Hash>);

impl<V: Clone + Send + Sync + 'static> Cache<V> for Foyer<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key).map(|entry| entry.value().clone())
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, value);
    }

    fn held(&self) -> u64 {
        self.0.usage() as u64
    }

    fn resize(&self, bytes: u64) {
        let _ = self.0.resize(bytes as usize); // It refuses sizes below one byte a shard alone.
    }
}

/// One list with a lock, of entries that all weigh as much.
struct Lru<V>(Mutex<lru::LruCache<u64, V, Hash>>);

impl<V> Lru<V> {
    fn lock(&self) -> MutexGuard<'_, lru::LruCache<u64, V, Hash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Clone + Send> Cache<V> for Lru<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.lock().get(&key).cloned()
    }

    fn insert(&self, key: u64, value: V) {
        self.lock().put(key, value);
    }

    fn held(&self) -> u64 {
        self.lock().len() as u64
    }
}
