//! The audit: every page is in exactly one state, every list holds what belongs on it, every count is the sum of what
//! it counts. For tests and for a program that doubts its heap; it walks everything and changes nothing.

use super::heap_caches::Caches;
use crate::base::fault::{Fault, check};
use crate::base::run_class;
use crate::base::units::{PAGE, PageNo, Pages};
use crate::caches::geometry::{BUCKETED, UNBUCKETED};
use crate::caches::slab::{self, audit::Sum};
use crate::pages::node::ZoneKind;
use crate::pages::window::{NOTHING, heads_run};
use crate::platform::Platform;
use crate::reclaim::{Audit, Audited};

/// Sums over the pages of slabs: of each cache with buckets, and of all others together.
struct Sums {
    bucketed: [Sum; BUCKETED],
    others: Sum,
    /// Runs of each run class.
    class_runs: [usize; run_class::RUN_CLASSES],
}

impl<P: Platform> Audited for Caches<P> {
    /// Objects that a thread works on would count as held by the program, or be found missing.
    fn audit(&self, audit: &mut Audit) -> Result<(), Fault> {
        let mut sums = Sums {
            bucketed: [Sum::default(); BUCKETED],
            others: Sum::default(),
            class_runs: [0; run_class::RUN_CLASSES],
        };
        for kind in ZoneKind::ALL {
            self.audit_zones(kind, audit, &mut sums)?;
        }
        let (mut out, mut shells, mut others) = (0, 0, Sum::default());
        for number in self.table.numbers() {
            let cache = self.table.get(number);
            let g = cache.shape.get();
            // The sums are of all nodes' domains: with several, only the totals are compared.
            let mut whole = Sum::default();
            for domain in cache.domains() {
                let slabs = domain.slabs.lock(&self.pages.platform);
                whole.add(slabs.audit(&self.pages.normal, &g)?);
                drop(slabs);
                let mut objects = 0;
                let depot = domain.depot.lock(&self.pages.platform);
                shells += depot.shells();
                depot.audit(number, |addr| {
                    objects += 1;
                    check(slab::audit::is_out(&self.pages.normal, &g, addr), "an object of a depot", addr)
                })?;
                audit.depot_objects += objects;
            }
            if number < BUCKETED {
                check(whole == sums.bucketed[number], "what lists and pages say of a cache", number)?;
            } else {
                others.add(whole);
            }
            out += whole.slabs * usize::from(g.objects) - whole.free;
        }
        check(others == sums.others, "what lists and pages say of caches without buckets", UNBUCKETED)?;
        let stash = self.stash.lock(&self.pages.platform).audit();
        check(stash == Some(shells), "shells that depots have", shells)?;
        for (class, &runs) in run_class::all().zip(&sums.class_runs) {
            check(self.cpu.held(class).0 <= runs, "runs of a class", class.index())?;
        }
        self.cpu.audit(|class, addr| {
            if run_class::contains(class) {
                audit.cpu_runs += 1;
                let heads = |page| self.pages.normal.class_of(page) == class;
                let is_run = addr.is_multiple_of(PAGE) && self.pages.normal.page_of(addr).is_some_and(heads);
                return check(is_run, "a run of a bucket", addr);
            }
            audit.cpu_objects += 1;
            let g = self.table.get(class.index()).shape.get();
            check(slab::audit::is_out(&self.pages.normal, &g, addr), "an object of a bucket", addr)
        })?;
        let cached = audit.depot_objects + audit.cpu_objects;
        check(cached <= out, "objects cached twice", cached)?;
        audit.live_objects = out - cached;
        audit.runs -= audit.cpu_runs;
        let used = self.pages.gauges.page_bytes.get() as usize;
        check(used == (audit.slab_pages + audit.run_pages) * PAGE, "page_bytes", used)?;
        Ok(())
    }
}

impl<P: Platform> Caches<P> {
    fn audit_zones(&self, kind: ZoneKind, audit: &mut Audit, sums: &mut Sums) -> Result<(), Fault> {
        let (window, mut free, mut pages) = (self.pages.window(kind), Pages::ZERO, Pages::ZERO);
        for node in self.pages.nodes.iter() {
            let zone = node.zone(kind).lock(&self.pages.platform);
            let sum = zone.audit(window)?;
            free += sum.free;
            pages += zone.pages;
            audit.idle_pages += sum.idle.0;
            audit.reported_pages += (sum.free - sum.idle).0;
        }
        let top = window.pages();
        let held = self.audit_pages(kind, audit, sums)?;
        check(held + free == pages, "pages in no state", held.0)?;
        check(pages <= top, "pages of a window", pages.0)?;
        audit.hole_pages += (top - pages).0;
        Ok(())
    }

    /// Walks the pages that are not free; returns how many slabs and runs hold.
    fn audit_pages(&self, kind: ZoneKind, audit: &mut Audit, sums: &mut Sums) -> Result<Pages, Fault> {
        let window = self.pages.window(kind);
        let before = audit.slab_pages + audit.run_pages;
        let is_free = |page: PageNo| {
            // SAFETY: the page is below the top, so its pageblock's descriptor is mapped. No thread uses the heap
            // during an audit, and reports are excluded by the batch locks. So nothing changes it now.
            let block = unsafe { &*window.state(page.block()) };
            block.free.has_range(page.in_block()..page.in_block() + 1)
        };
        let mut page = PageNo(0);
        while page < window.top() {
            let class = window.class_of(page);
            let len = match class {
                NOTHING => {
                    page += Pages(1);
                    continue;
                }
                class if heads_run(class) => {
                    let len = window.run_pages(page);
                    if run_class::contains(class) {
                        sums.class_runs[run_class::place(class)] += 1;
                        let right = run_class::class_of_run(len.length()) == Some(class);
                        check(right, "the length of a run of a class", page.index())?;
                    }
                    audit.runs += 1;
                    audit.run_pages += len.0;
                    len
                }
                class => {
                    let number = self.number_of(class, page).filter(|&number| self.table.contains(number));
                    let number = number.ok_or(Fault { what: "a slab of no cache", at: page.index() })?;
                    let g = self.table.get(number).shape.get();
                    let sum = if number < BUCKETED { &mut sums.bucketed[number] } else { &mut sums.others };
                    let merged = sum.merged;
                    let first = slab::audit::audit_slab(window, &g, page, sum)?;
                    check(first == page, "a slab's first page", page.index())?;
                    audit.merged_pages += sum.merged - merged;
                    audit.slab_pages += usize::from(g.pages);
                    g.slab_pages()
                }
            };
            for p in (page.0..(page + len).0).map(PageNo) {
                check(!is_free(p), "a page both free and held", p.index())?;
                check(
                    !heads_run(class) || p == page || window.class_of(p) == NOTHING,
                    "a page of two runs",
                    p.index(),
                )?;
            }
            page += len;
        }
        Ok(Pages(audit.slab_pages + audit.run_pages - before))
    }
}
