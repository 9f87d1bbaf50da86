//! The slot of the cache of unwind rules (`profile/unwind/rule_slot.rs`), its own source, on a model checker's atomics.
//! Two threads that keep rules in it and one that looks never make a rule of two halves.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;

mod os {
    pub use weir_models::sync;
}

#[path = "../../../weir-linux/src/profile/unwind/rule_slot.rs"]
mod rule_slot;

use rule_slot::RuleSlot;

/// Rules of two addresses, and their tags.
const KEPT: [(u64, u64); 2] = [(0x0123_4567_89ab_cdef, 0x5555_1111), (0xfeed_0000_0000_0007, 0x9999_2222)];

fn two_keep(look: fn(&RuleSlot)) {
    loom::model(move || {
        let slot = Arc::new(RuleSlot::new());
        let writers = KEPT.map(|(rule, tag)| {
            let slot = slot.clone();
            thread::spawn(move || slot.set(rule, tag))
        });
        look(&slot);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // What the two left may be a half of each, which is no rule, and stays none.
        look(&slot);
    });
}

#[test]
fn who_finds_the_tag_of_an_address_has_its_rule() {
    two_keep(|slot| {
        let (rule, tag) = slot.get();
        for (right, of) in KEPT {
            assert!(tag != of || rule == right, "{rule:x} with the tag of {right:x}");
        }
        assert!(tag != 0 || rule == 0, "{rule:x} with the tag of an empty slot");
    });
}

/// With the bare tag in the second word.
#[test]
fn a_bare_tag_is_found_to_be_wrong() {
    weir_models::must_fail("with the tag of", || {
        two_keep(|slot| {
            let (rule, mixed) = slot.get();
            // What `get` undid is done again with the writer's rule, as if the tag had been stored as it is.
            for (right, of) in KEPT {
                let bare = mixed ^ rule == of ^ right;
                assert!(!bare || rule == right, "{rule:x} with the tag of {right:x}");
            }
        });
    });
}
