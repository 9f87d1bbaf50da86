//! Any history of a cache on any machine: every object is where it should be, and every count is right.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Take(usize, usize),
    TakeBatch(usize, usize),
    Give(usize, usize),
    GiveBatch(usize, usize),
    Replace(usize, usize),
    Cpu(usize),
    Node(usize),
    Calm(u64),
    Pressure(Level),
    Trim,
    Finalize,
    Reserve(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..4;
    prop_oneof![
        6 => (which.clone(), 1usize..400).prop_map(|(c, n)| Step::Take(c, n)),
        3 => (which.clone(), 1usize..400).prop_map(|(c, n)| Step::TakeBatch(c, n)),
        6 => (which.clone(), 1usize..500).prop_map(|(c, n)| Step::Give(c, n)),
        3 => (which.clone(), 1usize..500).prop_map(|(c, n)| Step::GiveBatch(c, n)),
        1 => (which.clone(), 16usize..20_000).prop_map(|(c, size)| Step::Replace(c, size)),
        4 => (0usize..4).prop_map(Step::Cpu),
        1 => (0usize..3).prop_map(Step::Node),
        3 => (0u64..1000).prop_map(Step::Calm),
        2 => Just(Step::Pressure(Level::Some)),
        2 => Just(Step::Pressure(Level::Severe)),
        1 => Just(Step::Trim),
        1 => Just(Step::Finalize),
        1 => (which, 0usize..300).prop_map(|(c, n)| Step::Reserve(c, n)),
    ]
}

/// Caches and what is held of them.
struct Shelf {
    heap: Box<Heap<Fake>>,
    hooks: Box<Hooks>,
    caches: Vec<(CacheId, Vec<*mut u8>)>,
    may_fail: bool,
}

impl Shelf {
    fn spec(&self, which: usize, size: usize) -> Spec<'static> {
        match which {
            0 => constructed(&self.hooks, size),
            1 => Spec { limit: 700, ..spec(size) },
            2 => Spec { flags: Flags { no_reclaim: true, ..Flags::default() }, ..spec(size) },
            _ => spec(size),
        }
    }

    fn new(fake: Fake, buckets: bool) -> Self {
        let heap = Box::new(Heap::new(fake));
        heap.prepare();
        if !buckets {
            use_up_buckets(&heap);
        }
        let mut shelf = Self { heap, hooks: Box::default(), caches: Vec::new(), may_fail: false };
        for (which, size) in [64, 300, 2000, 9000].into_iter().enumerate() {
            let id = shelf.heap.user_caches().make(&shelf.spec(which, size)).unwrap();
            shelf.caches.push((id, Vec::new()));
        }
        shelf
    }

    fn took(&mut self, which: usize, object: *mut u8) {
        if object.is_null() {
            assert!(self.may_fail || which == 1 && self.caches[1].1.len() == 700);
            return;
        }
        if which == 0 {
            assert_constructed(&[object]);
        }
        self.caches[which].1.push(object);
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Take(which, n) => {
                for _ in 0..n {
                    let object = self.heap.user_caches().alloc(self.caches[which].0);
                    self.took(which, object);
                }
            }
            Step::TakeBatch(which, n) => {
                let mut out = vec![std::ptr::null_mut(); n];
                let got = self.heap.user_caches().alloc_batch(self.caches[which].0, &mut out);
                assert!(got == n || self.may_fail || which == 1 && self.caches[1].1.len() + got == 700);
                out[..got].iter().for_each(|&object| self.took(which, object));
            }
            Step::Give(which, n) => {
                let (id, held) = &mut self.caches[which];
                let n = n.min(held.len());
                let objects = held.drain(..n).collect();
                give(&self.heap, *id, objects);
            }
            Step::GiveBatch(which, n) => {
                let (id, held) = &mut self.caches[which];
                let n = n.min(held.len());
                let objects: Vec<_> = held.drain(..n).collect();
                // SAFETY: the shelf held them and has forgotten them.
                unsafe { self.heap.user_caches().free_batch(*id, &objects) };
            }
            Step::Replace(which, size) => {
                let (id, held) = &self.caches[which];
                let out = if held.is_empty() { Ok(()) } else { Err(Busy(held.len())) };
                assert_eq!(destroy(&self.heap, *id), out);
                if out.is_ok() {
                    self.caches[which].0 = self.heap.user_caches().make(&self.spec(which, size)).unwrap();
                }
            }
            Step::Cpu(cpu) => run_on(cpu),
            Step::Node(node) => run_on_node(node),
            Step::Calm(ms) => {
                self.heap.platform().pass_ms(ms);
                self.heap.reclaim().balance_calm();
            }
            Step::Pressure(level) => _ = self.heap.reclaim().balance_pressure(level, Cause::Pressure),
            Step::Trim => _ = self.heap.purge(),
            Step::Finalize => _ = self.heap.user_caches().run_finalizers(),
            Step::Reserve(which, n) => {
                let set = self.heap.user_caches().set_reserve(self.caches[which].0, n);
                assert!(set.is_ok() || self.may_fail);
            }
        }
    }

    fn check(&self) {
        let audit = self.heap.audit().unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_eq!(audit.live_objects, self.caches.iter().map(|(_, held)| held.len()).sum::<usize>());
        assert_eq!(self.heap.platform().take_misuses(), []);
        for (id, held) in &self.caches {
            let stats = self.heap.user_caches().stats(*id);
            assert_eq!(stats.used, held.len(), "{stats}");
            let distinct: BTreeSet<_> = held.iter().collect();
            assert_eq!(distinct.len(), held.len());
            assert!(stats.bucket[1] <= stats.bucket[0] && stats.bucket[0] <= stats.bucket[2], "{stats}");
        }
        assert_constructed(&self.caches[0].1);
        assert!(self.hooks.finis.load(Relaxed) <= self.hooks.inits.load(Relaxed));
    }

    fn finish(mut self) {
        self.heap.platform().fail_nothing();
        for (id, held) in std::mem::take(&mut self.caches) {
            give(&self.heap, id, held);
            assert_eq!(destroy(&self.heap, id), Ok(()));
        }
        self.heap.purge();
        assert_eq!(self.heap.audit().unwrap().slab_pages, 0);
        assert_eq!(self.hooks.finis.load(Relaxed), self.hooks.inits.load(Relaxed));
    }
}

/// Few enough cases for every run; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 48 };
    ProptestConfig { cases, max_shrink_iters: 2000, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_keeps_every_object_and_every_count(
        lockless in any::<bool>(),
        buckets in any::<bool>(),
        nodes in prop_oneof![Just(1usize), Just(3)],
        background in any::<bool>(),
        steps in prop::collection::vec(step(), 1..100),
        refused in prop_oneof![3 => Just(0u64), 1 => any::<u64>()],
    ) {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        fake.node_count.store(nodes, Relaxed);
        fake.tunables().background.set(background.into());
        let mut shelf = Shelf::new(fake, buckets);
        shelf.may_fail = refused != 0;
        shelf.heap.platform().fail(Call::MapAt, refused);
        shelf.heap.platform().fail(Call::Map, refused.rotate_left(7));
        for step in &steps {
            shelf.apply(step);
            shelf.check();
        }
        shelf.finish();
    }
}
