//! Work of the node balancer's thread: it looks, runs, dozes and sleeps, one bounded step at a time.
//!
//! # A run
//!
//! The boosts are noted. Priority 12: a pass over the zones that the request can use and that are not balanced, the highest
//! first. The predicate is looked at before each pass and between zones, so that a zone which another one spares the work loses
//! nothing. A pass that scanned less than it wanted, or reclaimed nothing, lowers the priority; at 1 the run is over. Not so
//! where as much was evicted as is missing, and lies in another allocator's memory: that has been told to release it. Once twice
//! as much was reclaimed as the order asks for (`compact_gap`) of a zone that lacks it, the order falls to 0. Then a contiguous
//! block is missing, which more of the same does not bring. For 100 ms requests of such orders count as of order 0 then. Else
//! each of many that come while memory is short would cost a small zone as much. A balanced node that outside pressure has
//! boosted gets a gentle run. As much as the boost is reclaimed, without write-back and not below priority 10. At the end only
//! what the run began with is taken off the boosts.
//!
//! # Congestion
//!
//! A lower priority takes more of what is in use and clean. That is the wrong answer where dirty blocks are on their way to
//! storage. So below priority 10 a run waits for 100 ms each time, while the write-back of a zone that it scanned lags behind. It
//! goes on at once when that has caught up, and at the severe level it waits for nothing. Waiting is bounded: the priority falls
//! all the same.
//!
//! # Giving up
//!
//! A run that reclaimed nothing from a zone is a failure of that zone. After 16 the zone is hopeless, and no reason to wake or to
//! stay awake. It stays so until it is balanced again, however that came about. But what stood in the way may be gone, and a
//! program that allocates nothing asks for nothing. So the balancer tries it once more after a second, and after twice as long each
//! time that fails, up to 64 s. A run that brings something leaves the zone one failure. Runs for a boost do not count.
//!
//! # Others
//!
//! Where other processes live below the same limit, each hears of the shortage, and each would give all that is missing. So a run
//! takes of NORMAL only the part that is this process's ([`crate::policy::victim_order`]), dozes for 20 ms, and looks again. Where
//! most of it is missing still, others do not give theirs, and the next run takes all. Not so where the others gave a quarter of
//! their part meanwhile, by their own pages: more was taken, and they are at it. For half a second after a severe event every run
//! takes all. The level itself lasts as long as milder events come, and these are no reason to give what others have cheaper.
//!
//! # Sleep
//!
//! Before it sleeps it sees to order 0 of all zones, clears their congested flags and lets throttled allocations go. First it
//! dozes for 100 ms, then looks again; only then it sleeps until it is woken. After a run that failed it dozes even if a
//! request came meanwhile: it would do no better.

use core::sync::atomic::Ordering::Release;

use super::node_balancer::{DOZE_NS, NodeBalancer, OTHERS_NS, WRITE_BACK_NS};
use super::node_balancer::{Node, Part, Scanned, ZONES, ZoneScan};
use super::request::Request;
use crate::base::time::Time;
use crate::base::units::Pages;
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::policy::scan_priority::{BATCH, FIRST, FIRST_CONGESTED, LAST, LAST_BOOSTED};
use crate::policy::watermarks::{self, Policy, Zone, is_balanced, is_eligible};

/// The balancer's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step, at once.
    Again,
    /// Another step at this time (ns), or when it is woken.
    At(Time),
    /// Nothing until it is woken.
    Asleep,
}

/// State that the balancer's thread keeps for itself between two steps.
#[derive(Debug, Default)]
pub struct Turn {
    phase: Phase,
    /// Request that is not yet seen to.
    request: Request,
    /// The order that a run gave up last, and until when requests of it, and of smaller ones, count as of order 0, ns.
    given_up: (u32, Time),
    /// Of what NORMAL lacked when the last run began, what that run left to others; `None`: it took all.
    left: Option<Left>,
    /// Before this time its share of the CPU is used up, ns.
    pause_until: Time,
    /// When its time was last counted: since then it has been awake.
    awake_since: Option<Time>,
}

/// What a run left to others.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// Pages that were missing.
    lacked: Pages,
    /// The own part, and what the others had given until then.
    part: Part,
}

impl Left {
    /// Whether the others do not give their part, where `lacks` pages are missing now and they have given `given`. What is missing
    /// may be as much as before because more was taken meanwhile. So who has given a quarter of it is at it.
    fn is_left(&self, lacks: Pages, given: Pages) -> bool {
        let is_missing = lacks >= self.lacked * 3 / 4;
        is_missing && given.saturating_sub(self.part.given) < (self.lacked - self.part.own) / 4
    }
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Asleep,
    /// As asleep, but a hopeless zone is tried again then.
    GivenUp {
        until: Time,
    },
    Running(Run),
    Dozing {
        until: Time,
        /// The run before it brought nothing: a request does not cut it short.
        has_failed: bool,
    },
}

/// Progress of a run.
#[derive(Debug)]
struct Run {
    request: Request,
    priority: u32,
    /// The boosts as it began.
    boosts: [Pages; ZONES],
    /// Pages that are still to be reclaimed for them; none in a run for a node that is not balanced.
    boost_left: Pages,
    /// The run is for a boost, up to its end.
    is_boosted: bool,
    reclaimed: [Pages; ZONES],
    /// Pages of NORMAL that are still to be reclaimed, of the part that is this process's. Beyond any count: no other has a part.
    part: Pages,
    /// Zones that were scanned.
    tried: [bool; ZONES],
    /// Until then it waits for write-back that lags behind, ns.
    write_back_until: Time,
}

impl NodeBalancer {
    /// Does one bounded piece of work, if there is any.
    pub fn step(&self, node: &impl Node, turn: &mut Turn) -> Next {
        let is_asked = self.requests.is_pending();
        match &turn.phase {
            Phase::Asleep if !is_asked => return Next::Asleep,
            &Phase::GivenUp { until } if !is_asked && node.now() < until => return Next::At(until),
            &Phase::Dozing { until, has_failed } if (has_failed || !is_asked) && node.now() < until => {
                return Next::At(until);
            }
            Phase::Running(_) if !node.is_severe() && node.now() < turn.pause_until => {
                return Next::At(turn.pause_until);
            }
            Phase::Running(run) if self.waits_for_write_back(node, run) => return Next::At(run.write_back_until),
            _ => {}
        }
        let (began, cpu) = (node.now(), node.cpu_time());
        let awake_since = turn.awake_since.replace(began).unwrap_or(began);
        let next = match core::mem::take(&mut turn.phase) {
            Phase::Running(run) => self.pass(node, turn, run),
            dozing_or_asleep => self.look(node, turn, matches!(dozing_or_asleep, Phase::Dozing { .. })),
        };
        let (now, used) = (node.now(), node.cpu_time().saturating_sub(cpu));
        node.note_awake(now.since(awake_since), used);
        turn.awake_since = if turn.is_asleep() { None } else { Some(now) };
        if !node.is_severe() {
            // What an earlier step used is paid for as well, though its run may be over.
            let percent = node.cpu_percent().clamp(1, 100);
            turn.pause_until = turn.pause_until.max(now) + used * (100 - percent) / percent;
        }
        next
    }

    /// Looks after a wake-up or a doze: takes the requests, and begins a run or goes (back) to sleep.
    fn look(&self, node: &impl Node, turn: &mut Turn, has_dozed: bool) -> Next {
        turn.request = turn.request.merged(self.take_requests(node, turn));
        let zones = self.view(node);
        match self.work(node, &zones, turn.request) {
            Some(request) => {
                turn.phase = Phase::Running(self.begin(node, turn, request));
                Next::Again
            }
            None => self.sleep(node, turn, has_dozed, false),
        }
    }

    /// Takes what was requested.
    fn take_requests(&self, node: &impl Node, turn: &Turn) -> Request {
        let (request, (most, until)) = (self.requests.take(), turn.given_up);
        if node.now() < until { lowered(request, |order, _| order <= most) } else { request }
    }

    /// A run for `request` begins.
    fn begin(&self, node: &impl Node, turn: &mut Turn, request: Request) -> Run {
        let zones = self.view(node);
        let boosts = zones.map(|zone| zone.boost);
        let lacks = watermarks::shortfall(&node.zones(), ZoneList::Normal as usize, 0, ZoneList::Normal);
        let takes_all = lacks.is_zero() || node.is_urgent();
        let part = if takes_all { Part { own: lacks, ..Part::default() } } else { node.part(lacks) };
        let is_left = turn.left.is_some_and(|left| left.is_left(lacks, part.given));
        let is_part = part.own < lacks && !is_left;
        turn.left = is_part.then_some(Left { lacked: lacks, part });
        Run {
            request,
            priority: FIRST,
            boosts,
            boost_left: boosts.into_iter().sum(),
            is_boosted: true,
            reclaimed: [Pages::ZERO; ZONES],
            part: if is_part { part.own } else { Pages::MAX },
            tried: [false; ZONES],
            write_back_until: Time::ZERO,
        }
    }

    /// One pass of a run.
    fn pass(&self, node: &impl Node, turn: &mut Turn, mut run: Run) -> Next {
        let zones = self.view(node);
        let balanced = is_request_balanced(&zones, run.request, node.policy());
        if !balanced && (run.is_boosted || !run.boost_left.is_zero()) {
            // What the node lacks is reclaimed as any other shortage; its marks stay boosted meanwhile.
            (run.boost_left, run.is_boosted) = (Pages::ZERO, false);
        }
        if balanced && run.boost_left.is_zero() {
            return self.end(node, turn, run);
        }
        let is_gentle = run.is_boosted && !node.is_severe();
        let (wanted, got) = self.scan_zones(node, &mut run, zones, is_gentle);
        if !got.reclaimed.is_zero() {
            node.release_throttled();
        }
        if run.is_boosted {
            run.boost_left = run.boost_left.saturating_sub(got.reclaimed);
        }
        let zones = self.view(node);
        if !is_request_balanced(&zones, run.request, node.policy()) {
            // The order's pages are free in a zone that lacks it, and no block came of it. What a balanced zone gave says nothing.
            let has_tried = |order, list| {
                let lacks = |&zone: &usize| {
                    is_eligible(&zones, zone, order, list) && !watermarks::is_zone_balanced(&zones, zone, order, list)
                };
                let is_tried = |zone: usize| run.reclaimed[zone] >= Pages::of_order(order) * 2;
                let mut lacking = (0..ZONES).filter(lacks).filter(|&zone| self.is_worth(node, zone));
                order > 0 && lacking.any(is_tried)
            };
            let given_up = run.request.parts().filter(|&(order, list)| has_tried(order, ZoneList::ALL[list]));
            if let Some(order) = given_up.map(|(order, _)| order).max() {
                turn.given_up = (order, node.now() + DOZE_NS);
                run.request = lowered(run.request, has_tried);
            }
        }
        // Below: a run that was severe as it began, and is gentle since there was relief.
        let is_last = run.priority <= if is_gentle { LAST_BOOSTED } else { LAST };
        // What was evicted into another allocator's memory is on its way. While that is as much as is missing, more of what is in
        // use would go in vain.
        let falls = got.elsewhere < wanted && (got.scanned < wanted || got.reclaimed.is_zero());
        if wanted.is_zero() || is_gentle && got.reclaimed.is_zero() && is_last || falls && is_last && !is_gentle {
            return self.end(node, turn, run);
        }
        if falls && !is_last {
            run.priority -= 1;
            if run.priority < FIRST_CONGESTED && self.is_any_congested(&run.tried) {
                run.write_back_until = node.now() + WRITE_BACK_NS;
            }
        }
        turn.phase = Phase::Running(run);
        Next::Again
    }

    /// Whether a run waits for write-back, which lags behind still.
    fn waits_for_write_back(&self, node: &impl Node, run: &Run) -> bool {
        !node.is_severe() && node.now() < run.write_back_until && self.is_any_congested(&run.tried)
    }

    /// Scans the zones that lack memory, the highest first, as long as they do; what was wanted of them, and what it came to.
    fn scan_zones(
        &self,
        node: &impl Node,
        run: &mut Run,
        mut zones: [Zone; ZONES],
        is_gentle: bool,
    ) -> (Pages, Scanned) {
        let (mut wanted, mut all) = (Pages::ZERO, Scanned::default());
        for zone in (0..ZONES).rev() {
            if !wanted.is_zero() {
                zones = self.view(node);
            }
            if !self.is_worth(node, zone) {
                continue;
            }
            let (lacks, order) = if run.is_boosted {
                (run.boosts[zone].min(run.boost_left), 0)
            } else {
                let (lacks, order) = lack(&zones, zone, run.request, node.policy());
                (if zone == ZoneClass::Normal as usize { lacks.min(run.part) } else { lacks }, order)
            };
            if lacks.is_zero() {
                continue;
            }
            let pages = lacks.max(BATCH);
            let got = node.scan(&ZoneScan { zone, order, pages, priority: run.priority, is_short: !is_gentle });
            wanted += pages;
            all = Scanned {
                scanned: all.scanned + got.scanned,
                reclaimed: all.reclaimed + got.reclaimed,
                elsewhere: all.elsewhere + got.elsewhere,
            };
            // What lies elsewhere is no failure, though it may not show yet.
            run.reclaimed[zone] += got.reclaimed.max(got.elsewhere);
            if zone == ZoneClass::Normal as usize {
                run.part = run.part.saturating_sub(got.reclaimed.max(got.elsewhere));
            }
            run.tried[zone] = true;
        }
        (wanted, all)
    }

    /// A run is over.
    fn end(&self, node: &impl Node, turn: &mut Turn, run: Run) -> Next {
        let (now, life) = (node.now(), node.boost_life());
        self.boosts.iter().zip(run.boosts).for_each(|(boost, pages)| boost.subtract(pages, now, life));
        let mut has_failed = false;
        if !run.is_boosted {
            for zone in (0..ZONES).filter(|&zone| run.tried[zone]) {
                self.note_run(zone, !run.reclaimed[zone].is_zero(), now);
            }
            // Others are given time for their part, as memory is after a run that brought nothing.
            has_failed = run.part.is_zero() || run.reclaimed.iter().all(|pages| pages.is_zero());
        }
        // What the run made of the request is what sleep looks at: a high order that was given up is not asked for again.
        turn.request = turn.request.filter(|order, list| order == 0 || run.request.order(list) == Some(order));
        let zones = self.view(node);
        self.note_balance(&zones);
        if !has_failed {
            turn.request = turn.request.merged(self.take_requests(node, turn));
            if let Some(request) = self.work(node, &zones, turn.request) {
                turn.phase = Phase::Running(self.begin(node, turn, request));
                return Next::Again;
            }
        }
        self.sleep(node, turn, false, has_failed)
    }

    /// Goes to sleep: dozes first.
    fn sleep(&self, node: &impl Node, turn: &mut Turn, has_dozed: bool, has_failed: bool) -> Next {
        self.congested.iter().for_each(|flag| flag.store(false, Release));
        if has_failed {
            self.requests.sleep_regardless();
        } else if !self.requests.sleep() {
            // It came just now.
            turn.phase = Phase::Dozing { until: Time::ZERO, has_failed: false };
            return Next::Again;
        }
        node.release_throttled();
        if has_dozed {
            // The next shortage is another one: what is left of it says nothing of the others.
            (turn.request, turn.left) = (Request::NONE, None);
            let again = self.tries_again(node, &self.view(node));
            turn.phase = again.map_or(Phase::Asleep, |until| Phase::GivenUp { until });
            return again.map_or(Next::Asleep, Next::At);
        }
        let is_left = has_failed && turn.left.is_some();
        let until = node.now() + if is_left { OTHERS_NS } else { DOZE_NS };
        turn.phase = Phase::Dozing { until, has_failed };
        Next::At(until)
    }
}

impl Turn {
    /// Whether the balancer sleeps until it is woken, or tries a hopeless zone again.
    pub fn is_asleep(&self) -> bool {
        matches!(self.phase, Phase::Asleep | Phase::GivenUp { .. })
    }
}

/// The predicate, of all parts of a request.
fn is_request_balanced(zones: &[Zone], request: Request, policy: Policy) -> bool {
    request.parts().all(|(order, list)| is_balanced(zones, order, ZoneList::ALL[list], policy))
}

/// Pages that a zone lacks for those parts of a request that are not balanced, and the largest order among them.
fn lack(zones: &[Zone], zone: usize, request: Request, policy: Policy) -> (Pages, u32) {
    let parts = request
        .parts()
        .map(|(order, list)| (order, ZoneList::ALL[list]))
        .filter(|&(order, list)| is_eligible(zones, zone, order, list) && !is_balanced(zones, order, list, policy));
    parts.fold((Pages::ZERO, 0), |(pages, largest), (order, list)| {
        (watermarks::shortfall(zones, zone, order, list).max(pages), order.max(largest))
    })
}

/// The request with order 0 in place of the orders that `falls`.
fn lowered(request: Request, falls: impl Fn(u32, ZoneList) -> bool) -> Request {
    request.parts().fold(Request::NONE, |all, (order, list)| {
        all.merged(Request::new(if falls(order, ZoneList::ALL[list]) { 0 } else { order }, list))
    })
}
