//! The feature `bytes`: values of that crate are weighed by themselves.

use bytes::{Bytes, BytesMut};
use weir::{EvictableCache, Weigh};

#[test]
fn bytes_are_weighed_by_themselves() {
    let cache = EvictableCache::<String, Bytes>::builder().build().unwrap();
    let body = cache.insert("/".into(), vec![0; 1 << 20].into()).map_err(drop).unwrap();
    assert!((1 << 20..(1 << 20) + 8192).contains(&body.weight()), "{}", body.weight());
    let none = EvictableCache::<u64, Option<Bytes>>::builder().build().unwrap();
    assert!(none.insert(1, None).map_err(drop).unwrap().weight() < 100);
}

#[test]
fn bytes_are_weighed_as_a_part_of_a_value() {
    let parts = vec![Bytes::from_static(b"of the program's text"), Bytes::from(vec![1; 5000])];
    assert!(parts.heap_bytes() > 5000);
    assert!((7u16, BytesMut::with_capacity(3000)).heap_bytes() >= 3000);
}
