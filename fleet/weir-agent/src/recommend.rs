//! Recommendations for VerticalPodAutoscaler objects whose `spec.recommenders` names `weir`.
//!
//! The pods of one object run on many nodes, and each agent sees its own. So each says in an annotation of the object what its
//! pods need, and the first of those that said something lately writes the status: the most of all. A node that says nothing
//! for a while does not count. All nodes watch the object: the more of them say something, the rarer each says it again. When it
//! was said goes by the clock of the agent that heard it: one node's that is wrong is no word on the others.
//!
//! A container that was just started knows nothing of the window before it, nor does an agent. So until one was watched for a
//! window, what was said before stays, for a window after it was last known to be true: a quiet hour after a rollout or a restart
//! recommends nothing to those that start next. A node without such a pod by now says it on. What a node said that is gone, the
//! first one does.

use crate::api::autoscaler::{self, Autoscaler, Needs};
use crate::api::patch::{Failure, is_slow};
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use weir_policy::limits::Recommendation;

/// What a node says is said again after this time, seconds, as long as few nodes do.
const AGAIN: u64 = 600;
/// Each further so many nodes add as much. All of them hear what each says: else traffic would grow with the cube of nodes.
const NODES: u64 = 32;
/// What a node says counts for so many times as long.
const COUNTS: u64 = 3;
/// Figures that differ by less than this part are the same.
const SAME: f64 = 0.05;

/// What a container should get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// By what was seen of it.
    pub recommended: Recommendation,
    /// Whether it was watched for a window.
    pub is_known: bool,
}

/// What the containers of one pod should get, by name.
pub type OfPod = BTreeMap<String, Measured>;
/// A namespace and a name.
type Name = (String, String);
type Known = Arc<Mutex<Objects>>;

/// What the API has said.
#[derive(Default)]
struct Objects {
    all: BTreeMap<Name, Autoscaler>,
    /// Why they are not to be had from it.
    trouble: Option<String>,
}

/// See the module.
pub struct Recommender {
    client: Client,
    annotation: String,
    /// Time over which peaks count.
    window: Duration,
    known: Known,
    /// The object at which the API left a request without an answer the last time.
    silent: Mutex<Option<Name>>,
    watching: JoinHandle<()>,
}

impl Drop for Recommender {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Recommender {
    /// Of this node.
    pub fn of_node(client: Client, node: &str, window: Duration) -> Self {
        let known = Known::default();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &autoscaler::resource());
        let watching = tokio::spawn(keep(api, known.clone()));
        Self { client, annotation: autoscaler::annotation(node), window, known, silent: Mutex::default(), watching }
    }

    /// Why the API does not say which objects there are.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.known).trouble.clone()
    }

    /// Says what pods need. `pods`: the namespace, the controller and the recommendations of each. The number of statuses
    /// written, and what was refused. It ends where the API does not answer: each object might take as long. The next time goes on
    /// behind that object.
    pub async fn publish(&self, pods: &[(String, (String, String), OfPod)]) -> (usize, Vec<Failure>) {
        let (mut written, mut refused) = (0, Vec::new());
        let mut all: Vec<Autoscaler> = lock(&self.known).all.values().cloned().collect();
        let name = |object: &Autoscaler| (object.namespace.clone(), object.name.clone());
        let done = lock(&self.silent).take().map_or(0, |silent| all.partition_point(|it| name(it) <= silent));
        all.rotate_left(done);
        for mut object in all {
            let of_object = pods.iter().filter(|(namespace, owner, _)| object.is_for(namespace, owner));
            let own = most(of_object.map(|(_, _, of_pod)| of_pod.clone()));
            let begun = Instant::now();
            match self.publish_one(&mut object, own).await {
                Ok(has_written) => written += usize::from(has_written),
                Err(why) => {
                    let is_silent = matches!(why, Failure::Unknown(_)) && is_slow(begun);
                    refused.push(why);
                    if is_silent {
                        *lock(&self.silent) = Some(name(&object));
                        break;
                    }
                }
            }
        }
        (written, refused)
    }

    async fn publish_one(&self, object: &mut Autoscaler, own: OfPod) -> Result<bool, Failure> {
        let now = jiff::Timestamp::now();
        let said = object.needs.get(&self.annotation);
        let needs =
            said.into_iter().fold(measured(&own, now.as_second()), |needs, said| self.holding(needs, said, &own));
        let needs = (!needs.containers.is_empty()).then_some(needs);
        if !is_said(said, needs.as_ref(), again(object)) {
            object.say(&self.client, &[(self.annotation.as_str(), needs.as_ref())].into()).await?;
            match needs {
                Some(needs) => drop(object.needs.insert(self.annotation.clone(), needs)),
                None => drop(object.needs.remove(&self.annotation)),
            }
        }
        // A clock that was wrong may have been ahead.
        let longest = COUNTS * again(object);
        let counts = |needs: &Needs| now.as_second().abs_diff(needs.heard) < longest;
        let gone: BTreeMap<String, Needs> = object.needs.extract_if(.., |_, needs| !counts(needs)).collect();
        if object.needs.keys().next() != Some(&self.annotation) {
            return Ok(false);
        }
        if !gone.is_empty() {
            // Of nodes that come and go: an object may have 256 KiB of annotations, and takes no change beyond that.
            let needs = object.needs.remove(&self.annotation).unwrap_or_default();
            let needs = gone.values().fold(needs, |needs, gone| self.holding(needs, gone, &own));
            let removed = gone.keys().map(|name| (name.as_str(), None));
            object.say(&self.client, &removed.chain([(self.annotation.as_str(), Some(&needs))]).collect()).await?;
            object.needs.insert(self.annotation.clone(), needs);
        }
        let of_nodes = object.needs.values().map(|needs| needs.containers.iter().map(of_needs).collect());
        let all = most(of_nodes).into_iter().map(|(name, it)| (name, it.recommended)).collect();
        object.recommend(&self.client, &all, now).await
    }

    /// With what was said before, of containers that were not watched for a window.
    fn holding(&self, mut needs: Needs, said: &Needs, own: &OfPod) -> Needs {
        for (name, &[lower, target, upper]) in &said.containers {
            let known = said.known.get(name).copied().unwrap_or(said.at);
            let is_old = needs.at.abs_diff(known) >= self.window.as_secs();
            if is_old || own.get(name).is_some_and(|it| it.is_known) {
                continue;
            }
            let now = needs.containers.get(name).copied();
            let figures = match now {
                // As long as little was seen its upper bound is wide.
                Some(now) => [now[0].max(lower), now[1].max(target), now[2].max(target)],
                None => [lower, target, upper],
            };
            if now != Some(figures) {
                needs.known.insert(name.clone(), known);
                needs.containers.insert(name.clone(), figures);
            }
        }
        needs
    }
}

fn measured(own: &OfPod, at: i64) -> Needs {
    let figures = |it: &Recommendation| [it.lower, it.target, it.upper];
    Needs {
        at,
        heard: at,
        containers: own.iter().map(|(name, it)| (name.clone(), figures(&it.recommended))).collect(),
        known: own.keys().map(|name| (name.clone(), at)).collect(),
    }
}

fn of_needs((name, &[lower, target, upper]): (&String, &[u64; 3])) -> (String, Measured) {
    (name.clone(), Measured { recommended: Recommendation { lower, target, upper }, is_known: false })
}

/// The time after which a node says again what it said of an object, seconds.
fn again(object: &Autoscaler) -> u64 {
    AGAIN * (1 + object.needs.len() as u64 / NODES)
}

/// Whether what was said is still so, and was said less than `again` seconds before.
fn is_said(said: Option<&Needs>, needs: Option<&Needs>, again: u64) -> bool {
    let is_same = |one: u64, other: u64| one.abs_diff(other) as f64 <= one.max(other) as f64 * SAME;
    match (said, needs) {
        (None, None) => true,
        (Some(said), Some(needs)) => {
            let figures = |needs: &Needs| needs.containers.values().flatten().copied().collect::<Vec<_>>();
            let mut each = figures(said).into_iter().zip(figures(needs));
            needs.at.abs_diff(said.at) < again
                && said.containers.keys().eq(needs.containers.keys())
                && each.all(|(one, other)| is_same(one, other))
        }
        _ => false,
    }
}

/// The most of some, by container.
fn most(all: impl Iterator<Item = OfPod>) -> OfPod {
    all.flatten().fold(OfPod::new(), |mut most, (name, it)| {
        let known = most.entry(name).or_insert(it);
        let [one, other] = [known.recommended, it.recommended];
        let recommended = Recommendation {
            lower: one.lower.max(other.lower),
            target: one.target.max(other.target),
            upper: one.upper.max(other.upper),
        };
        // One that was watched for a window speaks for all that are as it is.
        *known = Measured { recommended, is_known: known.is_known || it.is_known };
        most
    })
}

/// A lock holds nothing that a panic leaves half done.
fn lock<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(|panicked| panicked.into_inner())
}

async fn keep(api: Api<DynamicObject>, known: Known) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let name = |object: &DynamicObject| {
        (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone().unwrap_or_default())
    };
    // What a new list has: it takes the place of what is known once it is whole.
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            // It is about to be asked, and has said nothing yet.
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            // The watch goes on where it was, which is no event. Where it cannot, that is the next error.
            Err(watcher::Error::WatchFailed(_)) => continue,
            _ => {}
        }
        let now = jiff::Timestamp::now().as_second();
        let Objects { all, trouble } = &mut *lock(&known);
        *trouble =
            event.as_ref().err().map(|why| format!("VerticalPodAutoscalers are not to be had from the API: {why}"));
        let entry = |object: &DynamicObject, all: &BTreeMap<Name, Autoscaler>| {
            let name = name(object);
            let heard = Autoscaler::of(object)?.heard_at(now, all.get(&name));
            Some((name, heard))
        };
        match event {
            Ok(watcher::Event::InitApply(object)) => listed.extend(entry(&object, all)),
            Ok(watcher::Event::InitDone) => *all = std::mem::take(&mut listed),
            Ok(watcher::Event::Apply(object)) => match entry(&object, all) {
                Some((name, it)) => drop(all.insert(name, it)),
                None => drop(all.remove(&name(&object))),
            },
            Ok(watcher::Event::Delete(object)) => drop(all.remove(&name(&object))),
            Ok(watcher::Event::Init) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(at: i64, target: u64) -> Needs {
        Needs { at, containers: [("app".to_owned(), [1, target, 900])].into(), ..Needs::default() }
    }

    #[test]
    fn it_is_said_again_when_it_has_changed_or_is_old() {
        let said = needs(1000, 100);
        let is_said = |said: Option<&Needs>, needs: Option<&Needs>| is_said(said, needs, AGAIN);
        assert!(is_said(None, None) && is_said(Some(&said), Some(&needs(1500, 104))));
        assert!(!is_said(Some(&said), Some(&needs(1600, 100))), "old");
        assert!(!is_said(Some(&needs(i64::MAX, 100)), Some(&said)), "by a clock that was ahead");
        assert!(!is_said(Some(&said), Some(&needs(1001, 110))), "changed");
        assert!(!is_said(Some(&said), None) && !is_said(None, Some(&said)));
        let other = Needs { containers: [("other".to_owned(), [1, 100, 900])].into(), ..said.clone() };
        assert!(!is_said(Some(&said), Some(&other)));
    }

    #[test]
    fn of_many_nodes_each_says_it_again_more_rarely() {
        let object = |nodes: i64| {
            let object = serde_json::json!({
                "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, "recommenders": [{"name": "weir"}]},
            });
            let mut it = Autoscaler::of(&serde_json::from_value(object).unwrap()).unwrap();
            it.needs = (0..nodes).map(|nth| (nth.to_string(), needs(nth, 100))).collect();
            it
        };
        for (nodes, expected) in [(1, false), (31, false), (32, true), (64, true)] {
            let again = again(&object(nodes));
            assert_eq!(is_said(Some(&needs(1000, 100)), Some(&needs(1601, 100)), again), expected, "{nodes} nodes");
        }
        assert_eq!(again(&object(64)), 1800);
    }

    #[test]
    fn the_most_of_all_pods_counts() {
        let of = |lower, target, upper| {
            let recommended = Recommendation { lower, target, upper };
            OfPod::from([("app".to_owned(), Measured { recommended, is_known: false })])
        };
        assert_eq!(most([of(1, 5, 6), of(2, 4, 9)].into_iter()), of(2, 5, 9));
        assert_eq!(most([].into_iter()), OfPod::new());
    }
}
