//! The fake as the engine sees it: the traits of a platform.

use super::*;
use weir_core::base::time::{Nanos, Time};
use weir_core::base::units::{Class, Order};
use weir_core::platform::lock::RankTurn;

impl Host for Fake {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        let fails = self.fails(Call::Release);
        self.check_release(runs);
        locked(&self.released).push(runs.to_vec());
        self.run_hook(&self.hook);
        // A failing call still does a part of its work.
        let taken = if fails { runs.len() / 2 } else { runs.len() };
        let pinned = locked(&self.pinned).clone();
        let free = |run: &&Run| !pinned.iter().any(|&pin| overlap(pin, **run));
        let taken = runs[..taken].iter().take_while(free).count();
        let lazy = calm && self.tunables.report_lazily.get() != 0;
        if !lazy {
            runs[..taken].iter().for_each(|&run| memory::wipe(run));
        }
        locked(&self.in_flight).retain(|run| !runs.contains(run));
        locked(&self.collapsed).retain(|&huge| !runs[..taken].iter().any(|&run| overlap(huge, run)));
        let contents = if lazy { Contents::Undefined } else { Contents::Zero };
        Released { runs: taken, contents, error: if taken < runs.len() { 22 } else { 0 } }
    }

    fn release_unit(&self) -> usize {
        self.unit
    }
}

impl Memory for Fake {
    fn window(&self, len: usize, align: Order, reach: Reach) -> Result<Run, Refused> {
        if self.fails(Call::Window) {
            return Err(REFUSED);
        }
        // The engine asks for a heap's window in terabytes and for its arrays' in what they need. Below 4 GiB is room for
        // those of many tests at a time.
        let len = match reach {
            Reach::Low32 => len.min(self.window / 4),
            _ if len > self.window * 4 => self.window,
            _ => len,
        };
        let window = locked(&self.memory).reserve(len, align.pages().length(), reach);
        locked(&self.windows).extend(window);
        let unit = if self.unit == PAGEBLOCK { PAGE } else { self.unit };
        let skipped = if reach == Reach::Any { (self.skipped * PAGE).next_multiple_of(unit) } else { 0 };
        window.map(|Run { addr, len }| Run { addr: addr + skipped, len: len - skipped }).ok_or(REFUSED)
    }

    fn map_at(&self, run: Run, _node: usize) -> Placed {
        // So that other threads run short meanwhile, as a rule.
        if self.is_slow.load(Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.check_unit(run);
        if self.fails(Call::MapAt) || !locked(&self.memory).allows(run) {
            return Placed::Refused;
        }
        if locked(&self.memory).map_at(run) { Placed::Done } else { Placed::Occupied }
    }

    fn unmap_at(&self, run: Run) -> bool {
        let fails = self.fails(Call::UnmapAt);
        self.run_hook(&self.unmapping);
        if !fails {
            locked(&self.memory).unmap_at(run);
        }
        !fails
    }

    fn are_mappings_counted(&self) -> bool {
        self.are_mappings_counted.load(Relaxed)
    }

    fn populates(&self) -> bool {
        self.populates.load(Relaxed)
    }

    fn map(&self, len: usize, align: Order) -> Result<usize, Refused> {
        let align = align.pages().length().max(self.unit);
        let mapped = if self.fails(Call::Map) { None } else { locked(&self.memory).map(len, align) };
        mapped.ok_or(REFUSED)
    }

    fn release_metadata(&self, runs: &[Run]) -> bool {
        let fails = self.fails(Call::Release);
        self.check_release(runs);
        self.run_hook(&self.hook);
        let keeps = self.keeps_metadata.load(Relaxed);
        self.metadata_refusals.fetch_add(keeps.into(), Relaxed);
        let fails = fails || keeps;
        if !fails {
            runs.iter().for_each(|&run| memory::wipe(run));
            self.metadata_released.fetch_add(runs.iter().map(|run| run.len).sum(), Relaxed);
        }
        locked(&self.in_flight).retain(|run| !runs.contains(run));
        !fails
    }

    fn map_metadata(&self, len: usize, align: Order) -> Result<usize, Refused> {
        let mapped = if self.fails(Call::Map) {
            None
        } else {
            locked(&self.memory).map_metadata(len, align.pages().length().max(self.unit))
        };
        mapped.ok_or(REFUSED)
    }

    fn unmap(&self, run: Run) {
        self.outside_locks();
        self.check_unit(run);
        self.unmapped.fetch_add(1, Relaxed);
        locked(&self.memory).unmap(run);
    }

    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused> {
        self.check_unit(run);
        let remapped = if self.fails(Call::Remap) { None } else { locked(&self.memory).remap(run, len, self.unit) };
        remapped.ok_or(REFUSED)
    }

    fn renew(&self, run: Run, len: usize) -> Result<usize, Refused> {
        if self.fails(Call::Renew) {
            return Err(REFUSED);
        }
        if len == run.len { Ok(run.addr) } else { self.remap(run, len) }
    }

    fn advise_huge(&self, run: Run) {
        locked(&self.advised).push(run);
    }

    fn advise_small(&self, run: Run) {
        locked(&self.advised_small).push(run);
    }

    fn collapse(&self, run: Run) -> Collapse {
        self.outside_locks();
        assert!(locked(&self.memory).is_mapped(run) && run.addr.is_multiple_of(PAGEBLOCK) && run.len == PAGEBLOCK);
        locked(&self.collapse_calls).push(run);
        let (says, ms) = *locked(&self.collapses);
        self.pass_ms(ms);
        let hook = locked(&self.collapsing).take();
        if let Some(hook) = hook {
            hook();
        }
        says
    }

    fn cool(&self, runs: &[Run]) {
        self.outside_locks();
        assert!(runs.iter().all(|&run| locked(&self.memory).is_mapped(run)));
        locked(&self.cooled).extend(runs);
    }

    fn merges(&self) -> bool {
        self.merges.load(Relaxed)
    }

    fn set_mergeable(&self, run: Run, is_mergeable: bool) -> bool {
        self.outside_locks();
        assert!(run.addr.is_multiple_of(PAGE) && run.len.is_multiple_of(PAGE) && run.len > 0);
        let refused = |left: usize| left.checked_sub(1).filter(|_| !is_mergeable);
        let is_refused = self.unmerges_refused.fetch_update(Relaxed, Relaxed, refused).is_ok();
        if !is_refused {
            locked(&self.mergeable).push((run, is_mergeable));
        }
        !is_refused
    }

    fn merged_pages(&self) -> usize {
        self.merged.load(Relaxed) + self.merged_elsewhere.load(Relaxed)
    }

    fn touch_ns(&self) -> u64 {
        self.touch_ns.load(Relaxed)
    }

    fn secret(&self) -> Option<[u64; 2]> {
        let secret = self.secrets.fetch_add(1, Relaxed);
        Some([secret, !secret])
    }

    /// Every page of a block counts as touched, so that it looks filled, unless `really`; of a window, those in
    /// `collapsed`.
    fn resident(&self, run: Run) -> Option<usize> {
        self.outside_locks();
        let in_window = locked(&self.windows).iter().any(|&window| overlap(window, run));
        if !in_window {
            locked(&self.looks).push(run);
        }
        if self.really.load(Relaxed) {
            return Some(memory::resident(run));
        }
        let resident = !in_window || locked(&self.collapsed).contains(&run);
        Some(if resident { run.len / PAGE } else { 0 })
    }

    /// As it really is, whatever [`Memory::resident`] says.
    fn resident_pages(&self, run: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        self.outside_locks();
        (!self.is_blind.load(Relaxed)).then(|| memory::resident_pages(run))
    }

    /// What is really there, but the pages that the test has another process share.
    fn own_pages(&self, block: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        self.outside_locks();
        assert!(block.addr.is_multiple_of(PAGEBLOCK) && block.len == PAGEBLOCK);
        if self.is_blind.load(Relaxed) {
            return None;
        }
        let mut own = memory::resident_pages(block);
        for &page in locked(&self.shared).iter().filter(|&page| (block.addr..block.addr + PAGEBLOCK).contains(page)) {
            let place = (page - block.addr) / PAGE;
            own[place / 64] &= !(1 << (place % 64));
        }
        Some(own)
    }

    fn huge_on_touch(&self) -> bool {
        self.huge.load(Relaxed)
    }

    fn huge_on_advice(&self) -> bool {
        self.huge_on_advice.load(Relaxed)
    }

    fn set_huge_on_touch(&self, on: bool) {
        self.huge.store(on, Relaxed);
    }

    fn may_have_huge(&self) -> bool {
        self.huge_on_touch() || self.may_have_huge.load(Relaxed)
    }

    fn note_huge(&self) {
        self.may_have_huge.store(true, Relaxed);
    }

    fn populate(&self, run: Run) -> bool {
        self.outside_locks();
        assert!(locked(&self.memory).is_mapped(run));
        let ms = self.populate_ms.load(Relaxed);
        let is_done = ms < 365 * 24 * 3600 * 1000;
        if is_done {
            self.pass_ms(ms);
        }
        is_done
    }
}

impl Clock for Fake {
    fn now(&self) -> Time {
        Time(self.clock.fetch_add(self.clock_step.load(Relaxed), Relaxed))
    }

    fn cpu_time(&self) -> Nanos {
        Nanos(self.now().0 - self.stood_still.load(Relaxed))
    }
}

impl Topology for Fake {
    fn nodes(&self) -> usize {
        let hook = locked(&self.counting).take();
        hook.into_iter().for_each(|hook| hook());
        self.node_count.load(Relaxed)
    }

    fn node(&self) -> usize {
        let hook = locked(&self.homing).take();
        hook.into_iter().for_each(|hook| hook());
        NODE.get().min(self.node_count.load(Relaxed) - 1)
    }

    fn numa_node(&self, node: usize) -> usize {
        node % self.numa_nodes.load(Relaxed)
    }
}

impl Wait for Fake {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = locked(&self.sleepers.0);
        if word.load(SeqCst) == expected {
            drop(self.sleepers.1.wait(guard));
        }
    }

    fn wait_for(&self, word: &AtomicU32, expected: u32, ns: Option<u64>) {
        self.outside_locks();
        let Some(ns) = ns else {
            let hook = locked(&self.interrupting).take();
            hook.inspect(|hook| hook());
            return self.wait(word, expected);
        };
        let hook = locked(&self.waiting).take();
        let Some(hook) = hook else {
            self.clock.fetch_add(ns, Relaxed);
            return;
        };
        std::thread::scope(|scope| scope.spawn(&hook).join().unwrap());
        *locked(&self.waiting) = Some(hook);
        if word.load(SeqCst) == expected {
            self.clock.fetch_add(ns, Relaxed);
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        let _guard = locked(&self.sleepers.0);
        self.sleepers.1.notify_all();
    }

    fn lock_turn(&self, rank: u32, lock: usize, is_taken: bool) {
        if let Some(turns) = &mut *locked(&self.turns) {
            turns.push(Turn { rank, lock, is_taken, at: std::time::Instant::now() });
        }
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        self.looks_at_ranks.fetch_add(1, Relaxed);
        Some(RANKS.with(|r| *r))
    }
}

impl Workers for Fake {
    fn freeze_evictable_caches(&self, turn: &RankTurn<'_, Self>) {
        turn.lock(&self.cache.0);
        turn.lock(&self.cache.1);
        turn.lock(&self.cache.2);
    }

    fn wake_node_worker(&self, node: usize, _: Cause, _: bool) {
        assert!(!locked(&self.released).is_empty(), "a thread is made before anything is released");
        locked(&self.summoned).push(node);
    }

    fn wake_balancer(&self) {
        self.outside_locks();
        self.notices.fetch_add(1, Relaxed);
    }

    fn neighbours(&self, each: &mut dyn FnMut(&Stats)) -> usize {
        locked(&self.neighbours).iter().for_each(|page| each(page));
        self.more_neighbours.load(Relaxed)
    }

    fn hears_hard_limit(&self) -> bool {
        true
    }

    fn hard_limit_reached(&self, bytes: usize) -> bool {
        assert_eq!(RANKS.with(|r| r.load(Relaxed)), 0, "a program's callback under a lock");
        locked(&self.at_hard_limit).push(bytes);
        let callback = locked(&self.hard_limit_callback).take();
        callback.is_some_and(|callback| {
            let is_worth_it = callback(bytes);
            *locked(&self.hard_limit_callback) = Some(callback);
            is_worth_it
        })
    }

    fn wake_finalizer(&self) {
        self.outside_locks();
        self.finalizer_wakes.fetch_add(1, Relaxed);
    }

    fn evicted_elsewhere(&self) -> u64 {
        self.elsewhere.0.load(Relaxed)
    }

    fn process_resident(&self) -> Option<u64> {
        Some(self.elsewhere.1.load(Relaxed)).filter(|&bytes| bytes > 0)
    }
}

impl Diagnostics for Fake {
    fn invalid_free(&self, what: InvalidFree, addr: usize, _class_size: usize) {
        self.outside_locks();
        locked(&self.misuses).push((what, addr));
    }

    fn block_is_sampled(&self, block: usize, size: usize, _weight: u64) {
        locked(&self.samples).push((block, size));
    }

    fn callback_is_slow(&self, name: &[u8], _ns: u64, _has_thread: bool) {
        self.outside_locks();
        locked(&self.slow).push(String::from_utf8_lossy(name).into_owned());
    }

    fn callback_panicked(&self, name: &[u8], _is_disabled: bool) {
        self.outside_locks();
        locked(&self.panicked).push(String::from_utf8_lossy(name).into_owned());
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}

impl CpuOps for Fake {
    fn lockless(&self) -> bool {
        self.lockless
    }

    fn cpu(&self) -> usize {
        CPU.get()
    }

    unsafe fn pop(&self, table: &Table, class: Class) -> *mut u8 {
        // SAFETY: the section's lock makes the slab this thread's; a drain fences before it touches the slab.
        self.on_cpu(table, |slab| unsafe { CpuSlab::pop(slab, class) })
    }

    unsafe fn push(&self, table: &Table, class: Class, object: *mut u8) -> Pushed {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push(slab, class, object) })
    }

    unsafe fn push_batch(&self, table: &Table, class: Class, objects: &[*mut u8]) -> usize {
        // SAFETY: as in `pop`.
        self.on_cpu(table, |slab| unsafe { CpuSlab::push_batch(slab, class, objects) })
    }

    unsafe fn pop_batch(&self, table: &Table, class: Class, objects: &mut [*mut u8]) -> usize {
        self.on_cpu(table, |slab| {
            for (n, slot) in objects.iter_mut().enumerate() {
                // SAFETY: as in `pop`.
                *slot = unsafe { CpuSlab::pop(slab, class) };
                if slot.is_null() {
                    return n;
                }
            }
            objects.len()
        })
    }

    fn fence(&self) -> bool {
        self.outside_locks();
        self.fences.fetch_add(1, Relaxed);
        self.cpus.iter().for_each(|cpu| drop(locked(cpu)));
        if let Some(hook) = &*locked(&self.fencing) {
            hook();
        }
        !self.no_fence.load(Relaxed)
    }
}
