//! Weight by itself: what common types own counts, what says so counts, and what says nothing has to be bounded.

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;
use weir::{EvictableCache, Refusal, Weigh, heap};

/// The weight of an entry of these in a cache that was told nothing.
fn weight<K: std::hash::Hash + Eq + Send + Sync + 'static, V: Send + Sync + 'static>(key: K, value: V) -> usize {
    let cache = EvictableCache::<K, V>::builder().build().unwrap();
    let entry = cache.insert(key, value).map_err(drop).unwrap();
    assert_eq!(cache.bytes(), entry.weight());
    entry.weight()
}

#[test]
fn common_types_are_weighed_by_themselves() {
    // 16 bytes of header, the key of 8, and what is said of the value; in blocks of their sizes' classes.
    assert_eq!(weight(1u64, 2u64), 32);
    let vector = weight(1u64, vec![0u8; 100_000]);
    assert!((100_048..101_000).contains(&vector), "{vector}");
    let mut roomy = Vec::with_capacity(100_000);
    roomy.push(1u8);
    assert_eq!(weight(1u64, roomy), vector, "what is reserved is taken");
    assert_eq!(weight("k".repeat(1000), String::new()), weight("k".repeat(1000), Vec::<u8>::new()));
    assert!(weight("k".repeat(1000), vec![String::new(), "v".repeat(2000)]) > 3000);
    let shared: Arc<[u8]> = vec![0; 5000].into();
    assert!(weight(1u8, shared.clone()) > 5016 && weight(1u8, Some(shared)) > 5016);
    assert!(weight(1u8, None::<String>) < 150);
}

#[test]
fn what_weighs_as_much_as_a_cache_may_hold_fits() {
    for most in [40_000_001, 100_000_001, usize::MAX >> 12] {
        let cache = EvictableCache::<u64, u64>::builder().shards(1).weigher(move |_, _| most);
        let cache = cache.min_bytes(most).max_bytes(most).build().unwrap();
        assert!(cache.insert(1, 1).unwrap().weight() <= most);
        assert!(cache.contains(&1));
    }
}

#[test]
fn what_says_what_it_owns_is_weighed_by_that() {
    struct Page(Vec<u8>);
    impl Weigh for Page {
        fn heap_bytes(&self) -> usize {
            self.0.heap_bytes()
        }
    }
    let cache = EvictableCache::<(u32, String), Page>::builder().weighed().build().unwrap();
    let entry = cache.insert((1, "k".repeat(100)), Page(vec![0; 3000])).map_err(drop).unwrap();
    assert!((3200..3400).contains(&entry.weight()), "{}", entry.weight());
    let nested: Vec<Option<Box<[Arc<str>]>>> = vec![None, Some(vec!["x".repeat(700).into(); 2].into())];
    assert!((1400 + 64..1700).contains(&nested.heap_bytes()), "{}", nested.heap_bytes());
    assert_eq!(([1u64; 4], Ok::<&str, u8>("borrowed"), Some(1.5f32)).heap_bytes(), 0);
}

#[test]
fn trees_and_strings_of_c_say_what_they_own() {
    assert!((1001..1100).contains(&CString::new(vec![b'c'; 1000]).unwrap().heap_bytes()));
    let numbers: BTreeMap<u32, u64> = (0..10_000).map(|key| (key * 7919 % 10_007, 0)).collect();
    assert!((12 * 10_000..4 * 12 * 10_000).contains(&numbers.heap_bytes()), "{}", numbers.heap_bytes());
    let words: BTreeSet<String> = (0..100).map(|word| format!("{word:0>1000}")).collect();
    assert!((100_000..150_000).contains(&words.heap_bytes()), "{}", words.heap_bytes());
    assert_eq!((BTreeMap::<u32, String>::new().heap_bytes(), BTreeSet::<u8>::new().heap_bytes()), (0, 0));
}

#[test]
fn what_does_not_build_without_a_bound_keeps_one() {
    type Map = HashMap<u64, u64>;
    let cache = EvictableCache::<u64, Map>::builder().max_bytes(1 << 20).build().unwrap();
    cache.set_max_bytes(usize::MAX);
    assert_eq!(cache.stats().max_bytes, 1 << 20);
    cache.set_max_bytes(4096);
    assert_eq!(cache.stats().max_bytes, 4096);
    let part = EvictableCache::<String, Map>::builder().max_bytes(1 << 20).build().unwrap();
    part.set_max_bytes(usize::MAX);
    assert_eq!(part.stats().max_bytes, 1 << 20);
    let weighed =
        EvictableCache::<u64, Map>::builder().max_bytes(1 << 20).weigher(|_, map| 1 + map.len()).build().unwrap();
    weighed.set_max_bytes(usize::MAX);
    #[cfg(not(plain))]
    assert_eq!(weighed.stats().max_bytes, usize::MAX);
}

#[test]
fn a_weight_that_is_too_large_does_not_wrap() {
    struct All;
    impl Drop for All {
        fn drop(&mut self) {}
    }
    impl Weigh for All {
        fn heap_bytes(&self) -> usize {
            usize::MAX
        }
    }
    let most = [
        vec![All, All].heap_bytes(),
        VecDeque::from([All]).heap_bytes(),
        [All, All].heap_bytes(),
        Box::new((1u8, All)).heap_bytes(),
        Arc::new(All).heap_bytes(),
        (String::from("k"), All).heap_bytes(),
    ];
    assert_eq!(most, [usize::MAX; 6]);
    let cache = EvictableCache::<u64, Vec<All>>::builder().weighed().max_bytes(1 << 20).build().unwrap();
    let refused = cache.insert(1, vec![All]).map_err(|refused| refused.refusal);
    assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{:?}", refused.err());
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn what_owns_memory_that_nobody_weighs_does_not_build_without_a_bound() {
    type Cache = EvictableCache<u64, HashMap<u64, u64>>;
    let said = Cache::builder().build().err().unwrap().to_string();
    for part in ["HashMap", "weighed()", "weigher(|key, value| bytes)", "max_bytes()"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.contains("blocks alone"), "what a bound counts then: {said}");
    assert!(Cache::builder().max_bytes(1 << 20).build().is_ok());
    assert!(Cache::builder().weigher(|_, map| map.capacity() * 17).build().is_ok());
    assert!(
        EvictableCache::<std::collections::BTreeMap<u8, u8>, u64>::builder().build().is_err(),
        "keys own memory, too"
    );
    // Nothing to drop: nothing is owned.
    assert!(EvictableCache::<u64, [(u32, &str); 5]>::builder().build().is_ok());
}

#[test]
fn the_true_size_of_blocks_is_told() {
    for (size, align) in [(1, 1), (100, 8), (100, 64), (5000, 16), (40_000, 16), (40_000, 4096), (9 << 20, 16)] {
        let layout = Layout::from_size_align(size, align).unwrap();
        let block = heap::alloc_aligned(align, size);
        // SAFETY: allocated here, freed once, and not used afterwards.
        unsafe {
            assert_eq!(heap::block_size(layout), heap::usable_size(block), "{layout:?}");
            heap::free(block);
        }
    }
    // This program's allocator is glibc's.
    let sizes = [0, 1, 24, 25, 1000].map(|size| heap::program_block_size(Layout::from_size_align(size, 1).unwrap()));
    assert_eq!(sizes, [0, 32, 32, 48, 1008]);
}

#[test]
fn what_is_known_of_a_key_or_a_value_counts_although_the_other_is_not() {
    type Map = HashMap<u64, u64>;
    let by_key = EvictableCache::<String, Map>::builder().max_bytes(1 << 20).build().unwrap();
    assert!(by_key.insert("k".repeat(10_000), Map::new()).unwrap().weight() > 10_000);
    let by_value = EvictableCache::<Vec<Option<u8>>, Vec<u8>>::builder().max_bytes(1 << 20).build().unwrap();
    assert!(by_value.insert(vec![None], vec![0; 10_000]).unwrap().weight() > 10_000);
}
