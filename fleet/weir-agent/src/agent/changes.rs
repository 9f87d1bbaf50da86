//! What is changed of pods after a look: it is settled, given back, raised and lowered here.

use super::{AGAIN, Agent, Infeasible, Lowering, OUTSIZED, Seats, sample, say, seat, seats_of};
use crate::api::patch::is_slow;
use crate::api::pod::{Container, Held, Pod, is_infeasible};
use crate::machine::look::Looked;
use crate::metrics::Row;
use crate::options::Resize;
use crate::policy::quantity;
use crate::resize::{ANOTHER, Change, Outcome};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weir_policy::limits::{Watched, Wish};

/// A container is not raised by less where its node cannot hold what it should get.
const LEAST_RAISE: u64 = 16 << 20;

impl Agent {
    /// Ends what was begun, settles what another agent left, raises what is short, and lowers the one that has most to spare.
    pub(super) async fn resize(&mut self, rows: &[Row], unread: &[Looked]) {
        self.end_lowering().await;
        // As they are by now: the look took its time, and a lowering may have ended meanwhile.
        let pods = &self.api.as_ref().map_or(Vec::new(), |api| api.pods.all());
        let seats = &seats_of(pods);
        self.requested.clear();
        self.waiting.retain(|_, at| at.elapsed() < AGAIN);
        self.infeasible.retain(|(uid, _), _| pods.iter().any(|pod| pod.uid == *uid));
        self.outsized.retain(|(uid, _), (_, at)| at.elapsed() < OUTSIZED && pods.iter().any(|pod| pod.uid == *uid));
        // Where nothing is changed there may be no right to take back either.
        if !self.options.dry_run && self.options.resize != Resize::Off {
            self.settle(pods).await;
            self.unblock(pods).await;
        }
        self.restore(pods).await;
        self.give_back(pods).await;
        self.raise_unread(unread, seats).await;
        // One at a time.
        let may_lower = self.api.as_ref().is_some_and(|api| api.lowering.is_none());
        let mut lowers = Vec::new();
        for row in rows {
            let Some((pod, container)) = seat(&row.looked, seats) else { continue };
            let path = row.looked.group.path.as_path();
            if let Some(watched) = self.watched.get_mut(path) {
                watched.recall(pod.past(container).unwrap_or_default());
            }
            let Some((wish, to)) = self.wish(path, pod, container, may_lower) else { continue };
            let change = self.change(path, pod, container, to);
            match wish {
                Wish::Raise(_) => self.raise(change, path, pod).await,
                Wish::Request(_) => self.request(change, path, pod).await,
                Wish::Lower(_) => {
                    let saved = container.wanted.most().unwrap_or(0).saturating_sub(to.most().unwrap_or(0));
                    lowers.push((saved, change, path, pod, container));
                }
            }
        }
        lowers.sort_by_key(|(saved, ..)| std::cmp::Reverse(*saved));
        let mut lowers = lowers.into_iter();
        let Some((_, lower, first, ..)) = lowers.next() else { return };
        // The limits of the others wait. So do requests of its own pod: the kubelet makes all of a pod's changes or none.
        for (.., path, pod, container) in lowers.filter(|(_, change, ..)| change.uid != lower.uid) {
            if let Some((Wish::Request(_), to)) = self.wish(path, pod, container, false) {
                self.request(self.change(path, pod, container, to), path, pod).await;
            }
        }
        // Whether there is room for a request of its pod is known at the next look.
        if !self.requested.contains(&lower.uid) {
            self.lower(lower, first);
        }
    }

    /// A change of a container that has a group.
    fn change(&self, path: &Path, pod: &Pod, container: &Container, to: Held) -> Change {
        let directory = self.hands.as_ref().map_or_else(PathBuf::new, |hands| hands.directory(path));
        let change = Change::of(pod, container, to);
        let past = self.watched.get(path).map_or(change.past, Watched::past);
        Change { directory, past, ..change }
    }

    /// What should be changed of a container, as far as its pod lets it. Where its limit may not be lowered, that is its request.
    pub(super) fn wish(&self, path: &Path, pod: &Pod, container: &Container, may_lower: bool) -> Option<(Wish, Held)> {
        let resize = self.options.resize.of(pod.resize.as_deref());
        let held = container.wanted.most().filter(|_| resize != Resize::Off)?;
        let before = pod.before(container);
        let most_before = before.most()?;
        let (watched, may_exceed) = (self.watched.get(path)?, resize == Resize::Both);
        let named = (pod.uid.clone(), container.name.clone());
        let infeasible = self.infeasible.get(&named);
        // A request that goes by its own window.
        let request = pod.request_of(container).filter(|_| self.rules.requests.is_some() && infeasible.is_none());
        // Not what is not ready yet; nor again what was killed for memory, until it has ended for another reason. Where the kubelet
        // would not do it, no process is asked for memory.
        let is_feasible = infeasible != Some(&Infeasible::Both) && !pod.is_infeasible() && !pod.is_stuck();
        let may_lower = may_lower && container.is_ready && !container.was_killed && is_feasible;
        let wish = match watched.wish(&self.rules, held, request, most_before, may_exceed)? {
            Wish::Lower(_) if !may_lower => watched.wish_request(&self.rules, held, request?)?,
            wish => wish,
        };
        let to = match wish {
            Wish::Raise(to) => pod.raising(container, self.feasible(pod, container, to, most_before)?)?,
            // A request that stays has to be below the limit.
            Wish::Lower(to) if infeasible.is_some() => {
                let least = container.wanted.request?.saturating_add(1 << 20);
                pod.holding(container, to.max(least), u64::MAX).filter(|to| to.limit < container.wanted.limit)?
            }
            Wish::Lower(to) => pod.holding(container, to, watched.asks(&self.rules, to)?)?,
            Wish::Request(to) => {
                let most = before.request.filter(|_| !may_exceed).unwrap_or(u64::MAX);
                pod.asking(container, to, most)?
            }
        };
        // Whole MiB may be no less.
        (to != container.wanted && !container.restarts && !pod.is_fixed).then_some((wish, to))
    }

    /// What a container is raised to. Where its node can never hold that, half of the way, again and again. Of a pod one at a time
    /// gets more room of its node than it had: else it would not be known which of them is too large.
    fn feasible(&self, pod: &Pod, container: &Container, to: u64, before: u64) -> Option<u64> {
        if to <= before || pod.request_of(container).is_some() {
            return Some(to);
        }
        let (named, held) = ((pod.uid.clone(), container.name.clone()), container.wanted.most()?);
        if pod.is_held_up(container) || self.requested.contains(&pod.uid) || self.waiting.contains_key(&named) {
            return None;
        }
        let outsized =
            self.outsized.get(&named).filter(|(most, at)| at.elapsed() < OUTSIZED && (held..=to).contains(most));
        let outsized = outsized.map(|(most, _)| *most);
        let to = outsized.map_or(to, |outsized| held.midpoint(outsized));
        (outsized.is_none() || to - held >= LEAST_RAISE).then_some(to)
    }

    /// Raises what was killed below a limit that was lowered, and what is lowered of a pod that is set to off. It may have no
    /// process now, so it is in no row.
    async fn restore(&mut self, pods: &[Arc<Pod>]) {
        let resize = self.options.resize;
        for pod in pods.iter().filter(|_| resize != Resize::Off) {
            let is_off = resize.of(pod.resize.as_deref()) == Resize::Off;
            for (container, to) in pod.containers.iter().filter_map(|it| Some((it, pod.restored(it, is_off)?))) {
                self.raise(Change::of(pod, container, to), Path::new(""), pod).await;
            }
        }
    }

    /// Raises what is lowered and short, though it has no figures: its Weir may be of another release, or may have ended.
    async fn raise_unread(&mut self, unread: &[Looked], seats: &Seats<'_>) {
        if self.options.resize == Resize::Off {
            return;
        }
        for looked in unread {
            // One that was read lately is read again soon: it may need less than is charged.
            let is_known = self.watched.contains_key(&looked.group.path);
            let Some((pod, container)) = seat(looked, seats).filter(|_| !is_known) else { continue };
            let Some((held, before)) = container.wanted.most().zip(pod.before(container).most()) else { continue };
            let mut watched = Watched::new(&self.rules, self.watched_for);
            watched.recall(pod.past(container).unwrap_or_default());
            watched.note(self.watched_for, sample(looked, Some(held)));
            let wish = watched.wish(&self.rules, held, None, before, false);
            if matches!(wish, Some(Wish::Raise(_)))
                && let Some(to) = pod.raising(container, before)
            {
                self.raise(Change::of(pod, container, to), Path::new(""), pod).await;
            }
        }
    }

    /// Raises requests again whose limits are back. Those with a window of their own go by that.
    async fn give_back(&mut self, pods: &[Arc<Pod>]) {
        let (resize, has_window) = (self.options.resize, self.rules.requests.is_some());
        // The kubelet makes all of a pod's changes or none: a request that waits for room would hold a lowering up.
        let lowering = self.api.as_ref().and_then(|api| api.lowering.as_ref()).map(|it| it.change.uid.clone());
        let may_change = |pod: &&Arc<Pod>| resize != Resize::Off && lowering.as_ref() != Some(&pod.uid);
        for pod in pods.iter().filter(|_| !has_window).filter(may_change) {
            for (container, to) in pod.containers.iter().filter_map(|it| Some((it, pod.given_back(it)?))) {
                let named = (pod.uid.clone(), container.name.clone());
                let is_in_vain = self.waiting.contains_key(&named) || self.infeasible.contains_key(&named);
                if is_in_vain || !self.may_ask(&pod.uid) {
                    continue;
                }
                self.request(Change::of(pod, container, to), Path::new(""), pod).await;
                self.waiting.insert(named, Instant::now());
            }
        }
    }

    /// Says once what the kubelet has no room for. Withdraws requests that keep limits from being raised, or that it never follows.
    async fn unblock(&mut self, pods: &[Arc<Pod>]) {
        let mut deferred = HashSet::new();
        for pod in pods {
            for (container, to) in pod.deferred() {
                let Some(api) = &self.api else { return };
                let named = (pod.uid.clone(), container.name.clone());
                let (is_changed, is_known) = (to != container.wanted, self.deferred.contains(&named));
                if is_changed && !self.may_ask(&pod.uid) {
                    continue;
                }
                if is_changed && to.most() != container.wanted.most() {
                    match container.wanted.most().filter(|_| pod.is_too_large(container)) {
                        Some(most) => _ = self.outsized.insert(named.clone(), (most, Instant::now())),
                        // Else it would be asked for and withdrawn at each second look.
                        None => _ = self.waiting.insert(named.clone(), Instant::now()),
                    }
                } else if is_changed && pod.is_infeasible() {
                    self.infeasible.entry(named.clone()).or_insert(Infeasible::Request);
                }
                deferred.insert(named);
                if is_known && !is_changed {
                    continue;
                }
                let (change, begun) = (Change::of(pod, container, to), Instant::now());
                let raised = if is_changed { api.resizer.raise(&change).await } else { Outcome::Raised };
                let why = pod.obstacle.clone().unwrap_or_default();
                let outcome = if raised == Outcome::Raised { Outcome::Deferred(why) } else { raised };
                self.count(&outcome, &pod.uid, begun);
                say(&format!("{}: {outcome}", told(&change, pod)));
            }
        }
        self.deferred = deferred;
    }

    pub(super) async fn raise(&mut self, mut change: Change, path: &Path, pod: &Pod) {
        let what = told(&change, pod);
        if self.options.dry_run {
            return self.say_once(&format!("{what}: would be raised"));
        }
        if !self.may_ask(&pod.uid) {
            return;
        }
        let Some(api) = &mut self.api else { return };
        // It is lowered no more: what its processes hold back ends with it, and so does their giving.
        if let Some(lowering) =
            api.lowering.take_if(|it| (&it.change.uid, &it.change.container) == (&change.uid, &change.container))
        {
            lowering.task.abort();
            // It may have been asked for by now.
            change.from.push(lowering.change.to);
        }
        let begun = Instant::now();
        let outcome = api.resizer.raise(&change).await;
        self.count(&outcome, &pod.uid, begun);
        // One that was not made is tried again at the next look, and is one raise for all that.
        if outcome != Outcome::Raised {
            return self.say_once(&format!("{what}: {outcome}"));
        }
        self.requested.insert(change.uid);
        self.changed(path, Wish::Raise(0));
        say(&format!("{what}: {outcome}"));
    }

    /// Asks for another request of a container, unless that has to wait.
    pub async fn request(&mut self, change: Change, path: &Path, pod: &Pod) {
        let what = told(&change, pod);
        let Some(api) = &self.api else { return };
        let named = (change.uid.clone(), change.container.clone());
        // A limit of its pod is on its way down: beside a request that waits for room it would not get there.
        let is_lowered = api.lowering.as_ref().is_some_and(|it| it.change.uid == change.uid);
        if is_lowered || self.waiting.contains_key(&named) || !self.may_ask(&pod.uid) {
            return;
        }
        self.changed(path, Wish::Request(0));
        if self.options.dry_run {
            return self.say_once(&format!("{what}: would be asked for"));
        }
        let Some(api) = &self.api else { return };
        self.requested.insert(change.uid.clone());
        let begun = Instant::now();
        // A fall has its window to wait for, and keeps no rise waiting. What another changed is known at the next look.
        let rises = change.from.iter().all(|from| change.to.request > from.request);
        let outcome = api.resizer.request(&change).await;
        self.count(&outcome, &pod.uid, begun);
        if rises && matches!(&outcome, Outcome::Refused(why) if why != ANOTHER) {
            self.waiting.insert(named, Instant::now());
        }
        say(&format!("{what}: {outcome}"));
    }

    fn lower(&mut self, change: Change, path: &Path) {
        let Some(api) = self.api.as_mut().filter(|api| api.lowering.is_none()) else { return };
        let Some(what) = api.pods.get(&change.uid).map(|pod| told(&change, &pod)) else { return };
        if self.options.dry_run {
            self.say_once(&format!("{what}: would be lowered"));
        } else {
            let (resizer, request) = (api.resizer.clone(), change.clone());
            let task = tokio::spawn(async move { resizer.lower(&request).await });
            api.lowering = Some(Lowering { change, what, task });
        }
        self.changed(path, Wish::Lower(0));
    }

    fn changed(&mut self, path: &Path, wish: Wish) {
        if let Some(watched) = self.watched.get_mut(path) {
            watched.changed(wish);
        }
    }

    pub(super) async fn end_lowering(&mut self) {
        let Some(api) = &mut self.api else { return };
        let Some(Lowering { what, task, change }) = api.lowering.take_if(|it| it.task.is_finished()) else { return };
        let outcome = task.await.unwrap_or_else(|why| Outcome::Unknown(why.to_string()));
        self.metrics.count(&outcome);
        say(&format!("{what}: {outcome}"));
        if matches!(&outcome, Outcome::TakenBack(why) if is_infeasible(why)) {
            // The limit may be feasible alone, where its request need not follow it.
            let Held { request, limit } = change.to;
            let is_kept = change.from.iter().all(|from| from.request == request);
            let is_both = is_kept || request == limit || limit.is_none();
            let infeasible = if is_both { Infeasible::Both } else { Infeasible::Request };
            self.infeasible.insert((change.uid, change.container), infeasible);
        }
    }

    async fn settle(&mut self, pods: &[Arc<Pod>]) {
        let Some(api) = &self.api else { return };
        let busy = api.lowering.as_ref().map(|lowering| lowering.change.uid.clone());
        let resizer = api.resizer.clone();
        for pod in pods.iter().filter(|pod| Some(&pod.uid) != busy.as_ref() && !pod.is_fixed) {
            let begun = Instant::now();
            if !self.may_ask(&pod.uid) {
                continue;
            }
            if let Some(outcome) = resizer.settle(pod).await {
                self.count(&outcome, &pod.uid, begun);
                say(&format!("{}/{}: {outcome}", pod.namespace, pod.name));
            }
        }
    }

    /// Whether the API is to be asked for a change of this pod at this look.
    pub(super) fn may_ask(&self, uid: &str) -> bool {
        !self.is_silent && !self.unanswered.contains(uid)
    }

    /// Counts what came of a change of this pod, which was begun then.
    pub(super) fn count(&mut self, outcome: &Outcome, uid: &str, begun: Instant) {
        self.metrics.count(outcome);
        if matches!(outcome, Outcome::Unknown(_)) && is_slow(begun) {
            self.is_silent = true;
            self.unanswered.insert(uid.to_owned());
        }
    }
}

/// A change in words.
fn told(change: &Change, pod: &Pod) -> String {
    let most = |held: Held| held.most().map_or("nothing".to_owned(), quantity::text);
    let now = pod.container(&change.container).map_or(Held::default(), |it| it.wanted);
    let request = |held: Held| held.request.map_or("nothing".to_owned(), quantity::text);
    let (from, to) = if now.most() == change.to.most() {
        (format!("request {}", request(now)), request(change.to))
    } else {
        (most(now), most(change.to))
    };
    format!("{}/{} {}, from {from} to {to}", pod.namespace, pod.name, change.container)
}
