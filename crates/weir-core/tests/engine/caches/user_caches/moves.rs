//! Caches with a move callback: objects leave sparse slabs where the program lets them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;

/// What a program knows of its objects, and how it answers.
struct Program {
    heap: Box<Heap<Fake>>,
    id: CacheId,
    size: usize,
    table: Mutex<BTreeMap<usize, u64>>,
    /// Whether object `number` may be moved.
    answer: fn(&Program, u64) -> bool,
    asked: AtomicUsize,
    unknown: AtomicUsize,
    moved: AtomicUsize,
    random: AtomicUsize,
    /// How far a test has come.
    stage: AtomicUsize,
}

unsafe extern "C" fn moves(from: *mut u8, to: *mut u8, size: usize, program: *mut u8) -> bool {
    // SAFETY: the test's own, which lives longer than its cache.
    let program = unsafe { &*program.cast::<Program>() };
    assert!(size >= program.size && from != to);
    program.asked.fetch_add(1, Relaxed);
    let number = program.table.lock().unwrap().get(&(from as usize)).copied();
    let Some(number) = number else {
        program.unknown.fetch_add(1, Relaxed);
        return false;
    };
    if !(program.answer)(program, number) {
        return false;
    }
    let mut table = program.table.lock().unwrap();
    if table.remove(&(from as usize)).is_none() {
        return false;
    }
    // SAFETY: `from` is an object of the program's, and `to` a place of the same size.
    unsafe { to.copy_from_nonoverlapping(from, size) };
    assert_eq!(table.insert(to as usize, number), None, "the place was another object's");
    program.moved.fetch_add(1, Relaxed);
    true
}

impl Program {
    fn new(heap: Box<Heap<Fake>>, size: usize, answer: fn(&Program, u64) -> bool) -> Box<Self> {
        let id = heap.user_caches().make(&spec(size)).unwrap();
        let zero = || AtomicUsize::new(0);
        let random = AtomicUsize::new(88_172_645_463_325_252);
        let (asked, unknown, moved, stage, table) = (zero(), zero(), zero(), zero(), Mutex::default());
        let program = Box::new(Self { heap, id, size, table, answer, asked, unknown, moved, random, stage });
        assert!(program.set_move());
        program
    }

    fn wait_for(&self, stage: usize) {
        while self.stage.load(SeqCst) < stage {
            std::thread::yield_now();
        }
    }

    fn set_move(&self) -> bool {
        // SAFETY: the program lives longer than its cache, which the callback does not destroy.
        unsafe { self.heap.user_caches().set_move(self.id, moves, std::ptr::from_ref(self).cast_mut().cast()) }
    }

    fn random(&self) -> usize {
        let mut random = self.random.load(Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Relaxed);
        random
    }

    fn alloc(&self, count: usize) {
        for object in take(&self.heap, self.id, count) {
            let number = self.random() as u64;
            for at in [0, self.size - 8] {
                // SAFETY: the object is the program's, and as long.
                unsafe { object.add(at).cast::<u64>().write(number) };
            }
            assert_eq!(self.table.lock().unwrap().insert(object as usize, number), None);
        }
    }

    fn free(&self, object: usize) {
        assert!(self.table.lock().unwrap().remove(&object).is_some());
        give(&self.heap, self.id, vec![object as *mut u8]);
    }

    fn objects(&self) -> Vec<usize> {
        self.table.lock().unwrap().keys().copied().collect()
    }

    /// Frees all objects but one in `keep`, at random.
    fn thin(&self, keep: usize) {
        self.objects().into_iter().filter(|_| !self.random().is_multiple_of(keep)).for_each(|object| self.free(object));
    }

    fn check(&self) {
        for (&object, &number) in self.table.lock().unwrap().iter() {
            for at in [0, self.size - 8] {
                // SAFETY: as in `alloc`.
                assert_eq!(unsafe { (object as *const u8).add(at).cast::<u64>().read() }, number);
            }
        }
        assert_eq!(self.heap.platform().take_misuses(), []);
    }

    /// Windows pass, and what reclaim wishes is done; returns how many objects moved.
    fn rest(&self) -> usize {
        let moves = (0..20).map(|_| {
            calm(&self.heap);
            self.heap.user_caches().run_moves()
        });
        let moved = moves.sum();
        self.check();
        moved
    }

    /// The number of calls until now, of which the program forgets.
    fn take_asked(&self) -> usize {
        self.asked.swap(0, Relaxed)
    }

    /// Bytes that are live, and the objects' memory beside them.
    fn live_and_resident(&self) -> (usize, usize) {
        let usage = self.heap.figures().usage();
        (usage.live, usage.resident() - usage.metadata)
    }

    fn finish(&self) {
        self.check();
        let audit = self.heap.audit().unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_eq!(audit.live_objects, self.objects().len());
        self.objects().into_iter().for_each(|object| self.free(object));
        assert_eq!(destroy(&self.heap, self.id), Ok(()));
        self.heap.purge();
        assert_eq!(self.heap.audit().unwrap().slab_pages, 0);
        self.check();
    }
}

fn yes(_: &Program, _: u64) -> bool {
    true
}

pub fn a_sparse_cache_becomes_dense(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 256, yes);
    program.alloc((16 << 20) / 256);
    program.thin(16);
    (0..20).for_each(|_| calm(&program.heap));
    let (live, before) = program.live_and_resident();
    let moved = program.rest();
    let (_, after) = program.live_and_resident();
    println!("256 1/16: live {live}, {before} -> {after}, {moved} moved of {}", program.objects().len());
    assert!(before * 100 > live * 500, "it was not sparse: {before} for {live}");
    assert!(after * 100 <= live * 130, "{after} for {live}, {before} before");
    assert!(moved == program.moved.load(Relaxed) && moved < program.objects().len() * 2);
    assert_eq!(program.rest(), 0, "it goes on and on");
    program.finish();
}

pub fn a_program_that_always_says_no_is_asked_once(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 128, |_, _| false);
    program.alloc(50_000);
    program.thin(16);
    let before = program.objects();
    assert_eq!(program.rest(), 0);
    let asked = program.take_asked();
    // Some are asked again, as free pages inside slabs were released meanwhile.
    assert!(asked >= before.len() / 2 && asked <= before.len() * 2, "{asked} of {}", before.len());
    assert_eq!((program.rest(), program.take_asked()), (0, 0), "nothing has changed");
    // Where an object goes, its slab is asked again, and no other.
    program.free(before[before.len() / 2]);
    program.rest();
    let again = program.take_asked();
    assert!((1..1000).contains(&again), "{again}");
    assert_eq!(program.objects().len(), before.len() - 1);
    program.finish();
}

pub fn some_that_stay_hold_up_no_others(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 128, |_, number| !number.is_multiple_of(50));
    program.alloc(50_000);
    program.thin(16);
    program.rest();
    assert!(program.moved.load(Relaxed) * 4 > program.objects().len() * 3);
    program.take_asked();
    assert_eq!((program.rest(), program.take_asked()), (0, 0));
    // Nor is the thread woken for it, which would look at the whole class map each time.
    let wakes = program.heap.platform().finalizer_wakes.load(Relaxed);
    program.rest();
    assert_eq!(program.heap.platform().finalizer_wakes.load(Relaxed), wakes);
    program.finish();
}

/// A search for a target looks at the heads of the lists alone. There lie what was freed of last: slabs of one object, which
/// stays. Those behind them have eight each, all of which may move. A quarter of the slabs is full.
pub fn nearly_empty_slabs_hold_up_no_fuller_ones(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 256, |_, number| number.is_multiple_of(2));
    program.alloc((4 << 20) / 256);
    let numbers: Vec<_> = program.table.lock().unwrap().iter().map(|(&object, &number)| (object, number)).collect();
    let (first, last) = (&numbers[..numbers.len() / 2], &numbers[numbers.len() / 4 * 3..]);
    for (part, keep, rest) in [(first, 8, 0), (last, 60, 1)] {
        let all_but_one = part.chunks(keep).flat_map(|some| {
            let kept = some.iter().position(|(_, number)| number % 2 == rest);
            some.iter().enumerate().filter(move |&(i, _)| Some(i) != kept).map(|(_, &(object, _))| object)
        });
        all_but_one.for_each(|object| program.free(object));
        program.heap.purge();
    }
    let may_move = first.iter().filter(|(object, _)| program.table.lock().unwrap().contains_key(object)).count();
    program.rest();
    let (live, after) = program.live_and_resident();
    let moved = program.moved.load(Relaxed);
    println!("live {live}, {after} resident, {moved} moved of {may_move}");
    assert!(moved * 4 > may_move * 3, "{moved} of {may_move} moved");
    program.finish();
}

pub fn what_lies_in_buckets_and_depots_is_not_moved(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 256, yes);
    program.alloc(20_000);
    program.thin(16);
    program.heap.purge();
    // These are in a bucket or the depot, and not free in their slabs.
    program.alloc(3000);
    let objects = program.objects();
    objects.into_iter().filter(|_| program.random().is_multiple_of(2)).for_each(|object| program.free(object));
    program.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    program.heap.user_caches().run_moves();
    let stats = program.heap.user_caches().stats(program.id);
    assert!(stats.free_cpu + stats.free_depot == 0 || program.unknown.load(Relaxed) > 0);
    program.check();
    program.alloc(5000);
    program.rest();
    program.finish();
}

pub fn the_callback_may_use_the_cache(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 192, |program, number| {
        match number % 4 {
            0 => program.alloc(3),
            // Another one, and at times this one: then there is nothing to move.
            1 => program.free(program.objects()[0]),
            2 => program.thin(200),
            _ => {}
        }
        true
    });
    program.alloc(5000);
    program.thin(8);
    program.heap.purge();
    for _ in 0..3 {
        calm(&program.heap);
        program.heap.user_caches().run_moves();
        program.check();
        program.alloc(300);
    }
    assert!(program.moved.load(Relaxed) > 0);
    program.finish();
}

pub fn it_moves_while_the_program_goes_on(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 128, |_, number| !number.is_multiple_of(7));
    for round in 0..30 {
        program.alloc(2000 + program.random() % 4000);
        let keep = 2 + program.random() % 12;
        program.thin(keep);
        if round % 3 == 0 {
            program.heap.purge();
        }
        calm(&program.heap);
        program.heap.user_caches().run_moves();
        program.check();
        program.heap.audit().unwrap_or_else(|fault| panic!("{fault:?}"));
    }
    assert!(program.moved.load(Relaxed) > 1000);
    program.finish();
}

/// Where the callback of the next test is.
const IS_IN: usize = 1;
const MAY_GO: usize = 2;
const HAS_GONE: usize = 3;

pub fn the_end_of_the_cache_waits_for_the_callback(heap: Box<Heap<Fake>>) {
    let program = Program::new(heap, 256, |program, _| {
        program.stage.store(IS_IN, SeqCst);
        program.wait_for(MAY_GO);
        program.stage.store(HAS_GONE, SeqCst);
        false
    });
    program.alloc(2000);
    program.thin(16);
    program.heap.purge();
    std::thread::scope(|scope| {
        let program = &program;
        scope.spawn(|| {
            run_on(1);
            program.heap.user_caches().run_moves()
        });
        program.wait_for(IS_IN);
        program.objects().into_iter().for_each(|object| program.free(object));
        scope.spawn(|| {
            run_on(2);
            assert_eq!(destroy(&program.heap, program.id), Ok(()));
            assert_eq!(program.stage.load(SeqCst), HAS_GONE, "the callback runs still");
        });
        program.stage.store(MAY_GO, SeqCst);
    });
    program.heap.purge();
    assert_eq!(program.heap.audit().unwrap().slab_pages, 0);
}

#[test]
fn a_callback_is_set_once_and_not_beside_init() {
    let program = Program::new(heap(), 64, yes);
    assert!(!program.set_move());
    let (heap, hooks) = (&program.heap, Hooks::default());
    let id = heap.user_caches().make(&constructed(&hooks, 64)).unwrap();
    // SAFETY: it is refused.
    assert!(!unsafe { heap.user_caches().set_move(id, moves, std::ptr::null_mut()) });
    assert_eq!(destroy(heap, id), Ok(()));
    // The next cache of the number has none.
    assert_eq!(destroy(heap, program.id), Ok(()));
    assert_eq!(heap.user_caches().make(&spec(64)), Ok(program.id));
    assert!(program.set_move());
    program.finish();
}

#[test]
fn reclaim_wishes_for_moves_only_where_they_win_something() {
    let program = Program::new(heap(), 256, yes);
    let wakes = || program.heap.platform().finalizer_wakes.swap(0, Relaxed);
    program.alloc(20_000);
    (0..5).for_each(|_| calm(&program.heap));
    assert_eq!((wakes(), program.heap.user_caches().run_moves()), (0, 0), "it is dense");
    program.thin(16);
    program.heap.user_caches().set_reserve(program.id, 19_000).unwrap();
    (0..5).for_each(|_| calm(&program.heap));
    assert_eq!((wakes(), program.heap.user_caches().run_moves()), (0, 0), "what is free is its reserve");
    program.heap.user_caches().set_reserve(program.id, 0).unwrap();
    assert_eq!(program.heap.user_caches().run_moves(), 0, "nothing was wished");
    program.heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
    assert_eq!(wakes(), 1);
    assert!(program.heap.user_caches().run_moves() > 0);
    program.finish();
    let exempt = Spec { flags: Flags { no_reclaim: true, ..Flags::default() }, ..spec(256) };
    assert_eq!(program.heap.user_caches().make(&exempt), Ok(program.id));
    assert!(program.set_move());
    program.alloc(2000);
    program.thin(16);
    (0..5).for_each(|_| calm(&program.heap));
    assert_eq!((wakes(), program.heap.user_caches().run_moves()), (0, 0), "no reclaim touches it");
    program.finish();
}
