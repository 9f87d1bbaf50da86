//! The agent: it looks, decides and acts, again and again.

mod changes;

use crate::api::pod::{Container, Pod, RESIZE};
use crate::api::pods::Pods;
use crate::hands::{Done, Hands};
use crate::machine::look::{Look, Looked};
use crate::metrics::{Metrics, Row};
use crate::options::Options;
use crate::recommend::{Measured, Recommender};
use crate::resize::{Change, Outcome, Resizer};
use anyhow::{Context, Result};
use kube::Client;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use weir_cli::printable_line;
use weir_policy::limits::{Rules, Sample, Watched};

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
    /// What kubelets have said that they can never do.
    infeasible: HashMap<Named, Infeasible>,
    /// What containers were raised to that their node can never hold, bytes, and when that was known.
    outsized: HashMap<Named, (u64, Instant)>,
    /// When requests were last to be given back, or refused.
    waiting: HashMap<Named, Instant>,
    /// UIDs of pods of which a request was changed at this look, or a container raised.
    requested: HashSet<String>,
    /// Whether the API left a request without an answer at this look. Nothing more is asked then: each request might take as long.
    is_silent: bool,
    /// UIDs of pods of which it did so, until a look at which it did not. They are left out meanwhile: the others have their turn.
    unanswered: HashSet<String>,
}

/// The UID of a pod, and the name of a container.
type Named = (String, String);

/// What a kubelet can never do of a container, as its node has swap, or pins memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Infeasible {
    /// Change its request: its limit is lowered alone.
    Request,
    /// Nor lower its limit.
    Both,
}

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

/// What a node can never hold is tried again after this time: other reservations of the node may have changed.
const OUTSIZED: Duration = Duration::from_secs(3600);

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
            infeasible: HashMap::new(),
            outsized: HashMap::new(),
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
        let Look { groups, unread, unreadable: (unreadable, why), .. } = look;
        if let Some(why) = why {
            self.say_once(&format!("processes with Weir that cannot be read: {why}"));
        }
        let rows: Vec<Row> = groups.into_iter().map(|looked| self.row(looked, &seats, &names)).collect();
        let (now, gone) = (self.watched_for, self.options.period.saturating_mul(UNSEEN));
        self.watched.retain(|_, watched| now.saturating_sub(watched.last()) < gone);
        let resize = self.options.resize;
        for pod in pods.iter().filter(|pod| resize.denies(pod.resize.as_deref())) {
            self.say_once(&format!(
                "{}/{}: its annotation {RESIZE} changes nothing: --resize is off",
                pod.namespace, pod.name
            ));
        }
        self.resize(&rows, &unread).await;
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
        let lowered = pods.iter().flat_map(|pod| pod.containers.iter().filter(|it| pod.is_lowered(it)));
        let lowered: HashSet<String> = lowered.filter_map(|it| it.id.clone()).collect();
        let mut hands = self.hands.take().context("the last look has not ended")?;
        let (hands, done) = tokio::task::spawn_blocking(move || {
            let done = hands.work(&merging, &lowered);
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
        watched.note(now, sample(&looked, most));
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
        let trouble = recommender.trouble();
        let refused = refused.into_iter().map(|why| format!("a recommendation cannot be written: {why:?}"));
        refused.chain(trouble).for_each(|line| self.say_once(&line));
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

/// What the policy goes by, of a container that may use so much.
fn sample(looked: &Looked, most: Option<u64>) -> Sample {
    let charge = looked.charge;
    // What its pod has no room for beside it leaves it less than its limit. That falls with its own.
    let [needed, charged] = [looked.needed(), charge.charged].map(|bytes| bytes.saturating_add(charge.beside));
    Sample { needed, charged, held: charge.limit.or(most), stall: charge.stall.unwrap_or(0.0) }
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

#[cfg(test)]
mod tests;
