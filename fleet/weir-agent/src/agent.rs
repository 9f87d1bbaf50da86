//! The agent: it looks, decides and acts, again and again.

use crate::api::patch::is_slow;
use crate::api::pod::{Container, Held, Pod, RESIZE};
use crate::api::pods::Pods;
use crate::hands::{Done, Hands};
use crate::machine::look::Looked;
use crate::metrics::{Metrics, Row};
use crate::options::{Options, Resize};
use crate::policy::quantity;
use crate::recommend::{Measured, Recommender};
use crate::resize::{ANOTHER, Change, Outcome, Resizer};
use anyhow::{Context, Result};
use kube::Client;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use weir_cli::printable_line;
use weir_policy::limits::{Rules, Sample, Watched, Wish};

/// See the module.
pub struct Agent {
    options: Options,
    rules: Rules,
    /// Time that was watched, up to the last look: a pause of this process, or of its machine, is none of it.
    watched_for: Duration,
    looked_at: Instant,
    /// None while a thread has them.
    hands: Option<Hands>,
    /// By the path of the group.
    watched: HashMap<PathBuf, Watched>,
    api: Option<Api>,
    /// What is served.
    pub metrics: Metrics,
    /// Lines that were said, and are not said again.
    said: HashSet<String>,
    /// What was deferred at the last look.
    deferred: HashSet<Named>,
    /// When requests were last to be given back, or refused.
    waiting: HashMap<Named, Instant>,
    /// UIDs of pods of which a request was changed at this look.
    requested: HashSet<String>,
    /// Whether the API left a request without an answer at this look. Nothing more is asked then: each request might take as long.
    is_silent: bool,
    /// UIDs of pods of which it did so, until a look at which it did not. They are left out meanwhile: the others have their turn.
    unanswered: HashSet<String>,
}

/// The UID of a pod, and the name of a container.
type Named = (String, String);

/// The API, and what is done there.
struct Api {
    pods: Arc<Pods>,
    resizer: Resizer,
    recommender: Option<Recommender>,
    lowering: Option<Lowering>,
}

/// A container that is being lowered: one at a time.
struct Lowering {
    change: Change,
    /// The change in words.
    what: String,
    task: JoinHandle<Outcome>,
}

/// Where a container is in the API.
type Seats<'a> = HashMap<&'a str, (&'a Arc<Pod>, &'a Container)>;

/// Namespaces, pods and containers by the container's ID, those included that are not changed.
type Names<'a> = HashMap<&'a str, (&'a str, &'a str, &'a str)>;

/// A request that is not given back, as its node has no room, or that the API refuses, is asked for again after this time.
const AGAIN: Duration = Duration::from_secs(300);

/// A group that is not seen for so many looks is forgotten, and what was seen of it. A process that cannot be read once, as its
/// machine is busy, is looked for again after eight.
const UNSEEN: u32 = 16;

/// The part of a window that counts of the time between two looks at most, or two periods. The agent may have been paused, or a
/// look have hung: nothing was seen meanwhile.
const BETWEEN: u32 = 16;

/// Lines that are remembered.
const MOST_SAID: usize = 1000;

/// Says a line. A part of it may be a process's own name.
fn say(line: &str) {
    eprintln!("weir-agent: {}", printable_line(line));
}

impl Agent {
    /// With a client, if it is to go by the API.
    pub fn new(options: Options, client: Option<Client>) -> Result<Self> {
        let rules = options.rules();
        let node = options.node.clone();
        let api = client.zip(node).map(|(client, node)| {
            let pods = Arc::new(Pods::of_node(client.clone(), &node));
            let recommends = options.recommend && !options.dry_run;
            Api {
                resizer: Resizer::new(client.clone(), pods.clone()),
                recommender: recommends.then(|| Recommender::of_node(client, &node, options.window)),
                pods,
                lowering: None,
            }
        });
        Ok(Self {
            rules,
            watched_for: Duration::ZERO,
            looked_at: Instant::now(),
            hands: Some(Hands::new(&options)?),
            watched: HashMap::new(),
            api,
            metrics: Metrics::default(),
            said: HashSet::new(),
            deferred: HashSet::new(),
            waiting: HashMap::new(),
            requested: HashSet::new(),
            is_silent: false,
            unanswered: HashSet::new(),
            options,
        })
    }

    /// One look, and what follows from it.
    pub async fn round(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_silent) {
            self.unanswered.clear();
        }
        let pods = self.api.as_ref().map_or(Vec::new(), |api| api.pods.all());
        let Done { look, took, relieving, said } = self.work(&pods).await?;
        self.note_time();
        said.iter().for_each(|line| self.say_once(line));
        let (seats, names) = (seats_of(&pods), names_of(&pods));
        let (unreadable, why) = look.unreadable;
        if let Some(why) = why {
            self.say_once(&format!("processes with Weir that cannot be read: {why}"));
        }
        let rows: Vec<Row> = look.groups.into_iter().map(|looked| self.row(looked, &seats, &names)).collect();
        let (now, gone) = (self.watched_for, self.options.period.saturating_mul(UNSEEN));
        self.watched.retain(|_, watched| now.saturating_sub(watched.last()) < gone);
        let resize = self.options.resize;
        for pod in pods.iter().filter(|pod| resize.denies(pod.resize.as_deref())) {
            self.say_once(&format!(
                "{}/{}: its annotation {RESIZE} changes nothing: --resize is off",
                pod.namespace, pod.name
            ));
        }
        self.resize(&rows).await;
        // Before the pods are listed nothing is known of them: what this node has said would be taken back.
        let recommendations = if pods.is_empty() || self.is_silent { 0 } else { self.recommend(&rows, &seats).await };
        if let Some(why) = self.api.as_ref().and_then(|api| api.pods.trouble()) {
            self.say_once(&why);
        }
        let is_api_up = self.api.as_ref().map(|api| api.pods.is_up());
        let mut state = self.metrics.state();
        (state.rows, state.look_seconds, state.unreadable, state.relieving) =
            (rows, took.as_secs_f64(), unreadable, relieving);
        (state.looks, state.recommendations) = (state.looks + 1, state.recommendations + recommendations);
        state.is_api_up = is_api_up;
        Ok(())
    }

    async fn work(&mut self, pods: &[Arc<Pod>]) -> Result<Done> {
        let ids = |pod: &Arc<Pod>| -> Vec<String> {
            pod.containers.iter().filter_map(|it| it.id.clone()).chain(pod.others.keys().cloned()).collect()
        };
        let merging: HashSet<String> = pods.iter().filter(|pod| pod.merge).flat_map(ids).collect();
        let mut hands = self.hands.take().context("the last look has not ended")?;
        let (hands, done) = tokio::task::spawn_blocking(move || {
            let done = hands.work(&merging);
            (hands, done)
        })
        .await?;
        self.hands = Some(hands);
        Ok(done)
    }

    /// Notes the time since the look before. Of a long one only a part counts: a pause of a window is no window that was calm.
    fn note_time(&mut self) {
        let shortest = self.rules.requests.unwrap_or(self.rules.window).min(self.rules.window);
        let most = (shortest / BETWEEN).max(self.options.period.saturating_mul(2));
        let now = Instant::now();
        self.watched_for += (now - self.looked_at).min(most);
        self.looked_at = now;
    }

    /// Notes a look at a group.
    fn row(&mut self, looked: Looked, seats: &Seats<'_>, names: &Names<'_>) -> Row {
        let now = self.watched_for;
        let seat = seat(&looked, seats);
        let watched = self.watched.entry(looked.group.path.clone()).or_insert_with(|| Watched::new(&self.rules, now));
        let most = seat.and_then(|(_, container)| container.wanted.most());
        watched.note(
            now,
            Sample {
                needed: looked.needed(),
                charged: looked.charge.charged,
                held: looked.charge.limit.or(most),
                stall: looked.charge.stall.unwrap_or(0.0),
            },
        );
        let place = looked.group.place.as_ref();
        let named = place.and_then(|place| names.get(place.container.as_str()).copied());
        let (namespace, pod, container) = named.unwrap_or_default();
        Row {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            recommended: watched.recommended(&self.rules),
            looked,
        }
    }

    /// Ends what was begun, settles what another agent left, raises what is short, and lowers the one that has most to spare.
    async fn resize(&mut self, rows: &[Row]) {
        self.end_lowering().await;
        // As they are by now: the look took its time, and a lowering may have ended meanwhile.
        let pods = &self.api.as_ref().map_or(Vec::new(), |api| api.pods.all());
        let seats = &seats_of(pods);
        self.requested.clear();
        self.waiting.retain(|_, at| at.elapsed() < AGAIN);
        // Where nothing is changed there may be no right to take back either.
        if !self.options.dry_run && self.options.resize != Resize::Off {
            self.settle(pods).await;
            self.unblock(pods).await;
        }
        self.restore(pods).await;
        self.give_back(pods).await;
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
    fn wish(&self, path: &Path, pod: &Pod, container: &Container, may_lower: bool) -> Option<(Wish, Held)> {
        let resize = self.options.resize.of(pod.resize.as_deref());
        let held = container.wanted.most().filter(|_| resize != Resize::Off)?;
        let before = pod.before(container);
        let most_before = before.most()?;
        let (watched, may_exceed) = (self.watched.get(path)?, resize == Resize::Both);
        // A request that goes by its own window.
        let request = pod.request_of(container).filter(|_| self.rules.requests.is_some());
        // Not what is not ready yet; nor again what was killed for memory, until it has ended for another reason. Where the kubelet
        // would not do it, nobody is asked for memory.
        let may_lower = may_lower && container.is_ready && !container.was_killed && !pod.is_stuck();
        let wish = match watched.wish(&self.rules, held, request, most_before, may_exceed)? {
            Wish::Lower(_) if !may_lower => watched.wish_request(&self.rules, held, request?)?,
            wish => wish,
        };
        let to = match wish {
            Wish::Raise(to) => pod.raising(container, to)?,
            Wish::Lower(to) => pod.holding(container, to, watched.asks(&self.rules, to)?)?,
            Wish::Request(to) => {
                let most = before.request.filter(|_| !may_exceed).unwrap_or(u64::MAX);
                pod.asking(container, to, most)?
            }
        };
        // Whole MiB may be no less.
        (to != container.wanted && !container.restarts && !pod.is_fixed).then_some((wish, to))
    }

    /// Raises what was killed below a limit that was lowered. It may have no process now, so it is in no row.
    async fn restore(&mut self, pods: &[Arc<Pod>]) {
        let resize = self.options.resize;
        for pod in pods.iter().filter(|pod| resize.of(pod.resize.as_deref()) != Resize::Off) {
            for (container, to) in pod.containers.iter().filter_map(|it| Some((it, pod.restored(it)?))) {
                self.raise(Change::of(pod, container, to), Path::new(""), pod).await;
            }
        }
    }

    /// Raises requests again whose limits are back. Those with a window of their own go by that.
    async fn give_back(&mut self, pods: &[Arc<Pod>]) {
        let (resize, has_window) = (self.options.resize, self.rules.requests.is_some());
        // The kubelet makes all of a pod's changes or none: a request that waits for room would hold a lowering up.
        let lowering = self.api.as_ref().and_then(|api| api.lowering.as_ref()).map(|it| it.change.uid.clone());
        let may_change =
            |pod: &&Arc<Pod>| resize.of(pod.resize.as_deref()) != Resize::Off && lowering.as_ref() != Some(&pod.uid);
        for pod in pods.iter().filter(|_| !has_window).filter(may_change) {
            for (container, to) in pod.containers.iter().filter_map(|it| Some((it, pod.given_back(it)?))) {
                let named = (pod.uid.clone(), container.name.clone());
                if self.waiting.contains_key(&named) || !self.may_ask(&pod.uid) {
                    continue;
                }
                self.request(Change::of(pod, container, to), Path::new(""), pod).await;
                self.waiting.insert(named, Instant::now());
            }
        }
    }

    /// Says once what the kubelet has no room for, and withdraws requests that keep limits from being raised.
    async fn unblock(&mut self, pods: &[Arc<Pod>]) {
        let resize = self.options.resize;
        let mut deferred = HashSet::new();
        for pod in pods.iter().filter(|pod| resize.of(pod.resize.as_deref()) != Resize::Off) {
            for (container, to) in pod.deferred() {
                let Some(api) = &self.api else { return };
                let named = (pod.uid.clone(), container.name.clone());
                let (is_changed, is_known) = (to != container.wanted, self.deferred.contains(&named));
                if is_changed && !self.may_ask(&pod.uid) {
                    continue;
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

    async fn raise(&mut self, mut change: Change, path: &Path, pod: &Pod) {
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

    async fn end_lowering(&mut self) {
        let Some(api) = &mut self.api else { return };
        let Some(Lowering { what, task, .. }) = api.lowering.take_if(|it| it.task.is_finished()) else { return };
        let outcome = task.await.unwrap_or_else(|why| Outcome::Unknown(why.to_string()));
        self.metrics.count(&outcome);
        say(&format!("{what}: {outcome}"));
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
    fn may_ask(&self, uid: &str) -> bool {
        !self.is_silent && !self.unanswered.contains(uid)
    }

    /// Counts what came of a change of this pod, which was begun then.
    fn count(&mut self, outcome: &Outcome, uid: &str, begun: Instant) {
        self.metrics.count(outcome);
        if matches!(outcome, Outcome::Unknown(_)) && is_slow(begun) {
            self.is_silent = true;
            self.unanswered.insert(uid.to_owned());
        }
    }

    /// The number of statuses written.
    async fn recommend(&mut self, rows: &[Row], seats: &Seats<'_>) -> u64 {
        let Some(recommender) = self.api.as_ref().and_then(|api| api.recommender.as_ref()) else { return 0 };
        let mut of_pods = BTreeMap::new();
        for row in rows {
            let Some((pod, container)) = seat(&row.looked, seats) else { continue };
            let Some((owner, recommended)) = pod.owner.clone().zip(row.recommended) else { continue };
            let new = || (pod.namespace.clone(), owner, BTreeMap::new());
            let is_known = self.watched.get(&row.looked.group.path).is_some_and(Watched::is_known);
            let measured = Measured { recommended, is_known };
            of_pods.entry(&pod.uid).or_insert_with(new).2.insert(container.name.clone(), measured);
        }
        let of_pods: Vec<_> = of_pods.into_values().collect();
        let (written, refused) = recommender.publish(&of_pods).await;
        for why in refused {
            self.say_once(&format!("a recommendation cannot be written: {why:?}"));
        }
        written as u64
    }

    /// Says a line that was not said lately.
    fn say_once(&mut self, line: &str) {
        if self.said.len() == MOST_SAID {
            self.said.clear();
        }
        if self.said.insert(line.to_owned()) {
            say(line);
        }
    }
}

fn seats_of(pods: &[Arc<Pod>]) -> Seats<'_> {
    let all = pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it)));
    all.filter_map(|(pod, it)| Some((it.id.as_deref()?, (pod, it)))).collect()
}

fn names_of(pods: &[Arc<Pod>]) -> Names<'_> {
    let mut names = Names::new();
    for pod in pods {
        let own = pod.containers.iter().filter_map(|it| Some((it.id.as_deref()?, it.name.as_str())));
        let all = own.chain(pod.others.iter().map(|(id, name)| (id.as_str(), name.as_str())));
        names.extend(all.map(|(id, name)| (id, (pod.namespace.as_str(), pod.name.as_str(), name))));
    }
    names
}

fn seat<'a>(looked: &Looked, seats: &Seats<'a>) -> Option<(&'a Arc<Pod>, &'a Container)> {
    seats.get(looked.group.place.as_ref()?.container.as_str()).copied()
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::client::Body;
    use std::io;

    const GROUP: &str = "group";

    /// One without groups, processes and an API.
    fn alone(more: &[&str]) -> (Agent, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
        let options = "weir-agent --node n1 --resize down --window 10m --period 1s --cgroup-root".split(' ');
        let options = Options::parse_from(options.chain(root.path().to_str()).chain(more.iter().copied()));
        let refuses = |_: http::Request<Body>| async {
            Err::<http::Response<Full<Bytes>>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        };
        let mut agent = Agent::new(options, Some(Client::new(tower::service_fn(refuses), "default"))).unwrap();
        agent.watched.insert(GROUP.into(), Watched::new(&agent.rules, Duration::ZERO));
        (agent, root)
    }

    #[tokio::test]
    async fn a_raise_that_was_not_made_makes_no_lowering_wait() {
        let (mut agent, _root) = alone(&[]);
        let held = Held { request: None, limit: Some(1000 << 20) };
        let container = Container { name: "app".into(), wanted: held, ..Container::default() };
        let pod = Pod { uid: "u".into(), containers: vec![container], ..Pod::default() };
        for _ in 0..3 {
            agent.raise(Change::of(&pod, &pod.containers[0], held), Path::new(GROUP), &pod).await;
        }
        assert!(agent.metrics.text().contains("outcome=\"gone\"} 3"));
        let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
        let sample = Sample { needed: 10 << 20, charged: 10 << 20, held: held.limit, stall: 0.0 };
        for second in [0, 600] {
            watched.note(Duration::from_secs(second), sample);
        }
        let wish = watched.wish(&agent.rules, 1000 << 20, None, 1000 << 20, false);
        assert!(matches!(wish, Some(Wish::Lower(_))), "{wish:?}");
    }

    #[tokio::test]
    async fn a_request_follows_its_window_where_the_limit_may_not_be_lowered() {
        let (mut agent, _root) = alone(&["--request-window", "2m"]);
        let held = Held { request: Some(100 << 20), limit: Some(1000 << 20) };
        let ready = Container { name: "app".into(), wanted: held, is_ready: true, ..Container::default() };
        let killed = Container { was_killed: true, ..ready.clone() };
        let pod = Pod { class: "Burstable".into(), ..Pod::default() };
        let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
        for second in [0, 600] {
            let sample = Sample { needed: 20 << 20, charged: 20 << 20, held: held.limit, stall: 0.0 };
            watched.note(Duration::from_secs(second), sample);
        }
        let wish = |container: &Container, may_lower| agent.wish(Path::new(GROUP), &pod, container, may_lower);
        assert!(matches!(wish(&ready, true), Some((Wish::Lower(_), _))), "{:?}", wish(&ready, true));
        let request = Some((Wish::Request(32 << 20), Held { request: Some(32 << 20), ..held }));
        assert_eq!([wish(&ready, false), wish(&killed, true)], [request, request]);
    }

    #[tokio::test]
    async fn where_the_api_does_not_answer_of_one_pod_the_others_have_their_turn() {
        let (mut agent, _root) = alone(&[]);
        let asks = |agent: &Agent| ["one", "other"].map(|uid| agent.may_ask(uid));
        let unknown = Outcome::Unknown(String::new());
        agent.count(&unknown, "one", Instant::now());
        assert_eq!(asks(&agent), [true, true], "it failed at once");
        agent.count(&unknown, "one", Instant::now() - Duration::from_secs(10));
        assert_eq!(asks(&agent), [false, false]);
        agent.round().await.unwrap();
        assert_eq!(asks(&agent), [false, true]);
        agent.round().await.unwrap();
        assert_eq!(asks(&agent), [true, true]);
    }

    #[tokio::test]
    async fn a_pause_is_no_window_that_was_calm() {
        let (mut agent, _root) = alone(&["--request-window", "8m"]);
        let sample = Sample { needed: 10 << 20, charged: 10 << 20, held: Some(1000 << 20), stall: 0.0 };
        let mut look_after = |seconds| {
            agent.looked_at -= Duration::from_secs(seconds);
            agent.note_time();
            let (now, rules) = (agent.watched_for, agent.rules);
            let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
            watched.note(now, sample);
            (watched.is_known(), watched.wish(&rules, 1000 << 20, Some(1000 << 20), 1000 << 20, false))
        };
        assert_eq!(look_after(0), (false, None));
        assert_eq!(look_after(3600), (false, None), "paused for six windows");
        for _ in 0..19 {
            look_after(30);
        }
        let (is_known, wish) = look_after(30);
        assert!(is_known && matches!(wish, Some(Wish::Lower(_))), "watched for a window: {wish:?}");
    }

    #[tokio::test]
    async fn a_group_that_is_not_seen_once_is_not_forgotten() {
        let (mut agent, _root) = alone(&[]);
        agent.round().await.unwrap();
        assert_eq!(agent.watched.len(), 1);
        agent.looked_at -= Duration::from_secs(60);
        agent.round().await.unwrap();
        assert_eq!(agent.watched.len(), 0);
    }
}
