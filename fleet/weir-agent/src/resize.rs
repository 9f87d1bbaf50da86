//! A container's memory is changed while it runs.
//!
//! Lowering: the API says whether it would take it; what it held is noted at the pod; its processes give memory back, and hold back
//! more; then the API is asked, and the kubelet waited for. What is refused, or not done in time, is taken back; so is what the
//! container has outgrown before it is done, as the limit would get it killed. The agent may be killed between any two steps.
//! What it asked of processes ends with it, and a request of its own that the kubelet has not carried out is found at the pod
//! by [`Resizer::settle`].

use crate::api::patch::{self, Failure};
use crate::api::pod::{Container, Held, Noted, Pod};
use crate::api::pods::Pods;
use crate::machine::groups::beside;
use kube::Client;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_cli::shrink::{self, Given};
use weir_policy::limits::Past;

/// How long processes may take to give.
const GIVING: Duration = Duration::from_secs(20);
/// How long the kubelet may take: it looks at its pods when they change, and at all of them once a minute.
const KUBELET: Duration = Duration::from_secs(90);
/// How often a change is tried whose pod changes meanwhile: its kubelet writes to it as well.
const TRIES: usize = 5;
/// What is said of a container that holds neither what it did nor what was asked for.
pub(crate) const ANOTHER: &str = "changed by another";
/// Between two looks at what the container uses, while the kubelet is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone)]
pub struct Resizer {
    /// The API.
    pub client: Client,
    /// The pods as they are.
    pub pods: Arc<Pods>,
    /// How long the kubelet may take.
    pub patience: Duration,
}

/// A change of a container.
#[derive(Clone, Debug)]
pub struct Change {
    /// The pod's UID.
    pub uid: String,
    /// The container's name.
    pub container: String,
    /// The directory of its cgroup.
    pub directory: PathBuf,
    /// What it holds: one of these. What else it may hold another has set, and that stays.
    pub from: Vec<Held>,
    /// What it should hold.
    pub to: Held,
    /// What the next agent is to know of it.
    pub past: Past,
}

impl Change {
    /// Of a container that may have no group now: nobody has to give anything for it.
    pub fn of(pod: &Pod, container: &Container, to: Held) -> Self {
        let from = vec![container.wanted];
        let past = pod.past(container).unwrap_or_default();
        Self { uid: pod.uid.clone(), container: container.name.clone(), directory: PathBuf::new(), from, to, past }
    }
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds less.
    Lowered,
    /// The API has taken more.
    Raised,
    /// The API has taken another request.
    Requested,
    /// The API has taken more, and the kubelet has no room for it yet. A limit that waited for a request waits no longer.
    Deferred(String),
    /// Its processes did not give enough: nothing was changed.
    NotGiven(String),
    /// The API has refused, or another has changed it meanwhile, whose change stays.
    Refused(String),
    /// The kubelet could not do it, or nobody knows whether it did: it is asked for what was there before.
    TakenBack(String),
    /// The API does not answer. What it may have taken is settled when it does.
    Unknown(String),
    /// The pod is gone.
    Gone,
}

impl Outcome {
    /// All names, for metrics.
    pub const NAMES: [&str; 9] =
        ["lowered", "raised", "requested", "deferred", "not_given", "refused", "taken_back", "unknown", "gone"];

    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Lowered => 0,
            Self::Raised => 1,
            Self::Requested => 2,
            Self::Deferred(_) => 3,
            Self::NotGiven(_) => 4,
            Self::Refused(_) => 5,
            Self::TakenBack(_) => 6,
            Self::Unknown(_) => 7,
            Self::Gone => 8,
        }]
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lowered => f.write_str("lowered"),
            Self::Raised => f.write_str("raised"),
            Self::Requested => f.write_str("asks for that now"),
            Self::Deferred(why) => write!(f, "deferred by the kubelet: {why}"),
            Self::NotGiven(why) => write!(f, "not lowered: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::TakenBack(why) => write!(f, "taken back: {why}"),
            Self::Unknown(why) => write!(f, "the API does not answer ({why}): settled when it does"),
            Self::Gone => f.write_str("the pod is gone"),
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(why) | Failure::Conflict(why) => Self::Refused(why),
            Failure::Unknown(why) => Self::Unknown(why),
        }
    }
}

impl Resizer {
    /// With the usual patience.
    pub fn new(client: Client, pods: Arc<Pods>) -> Self {
        Self { client, pods, patience: KUBELET }
    }

    /// Lowers what a container holds.
    pub async fn lower(&self, change: &Change) -> Outcome {
        let Some(pod) = self.pods.get(&change.uid) else { return Outcome::Gone };
        // A limit range or a policy may refuse it. Nobody has to give anything for that.
        if let Err(why) = self.replace(&pod, change, How::Rehearsed).await {
            return why.into();
        }
        let (pod, before) = match self.note(&pod, change, Asked::Limit).await {
            Ok(noted) => noted,
            Err(why) => return why.into(),
        };
        // Its pod's limit falls by as much. A request alone is a figure for the scheduler, for which no process gives anything.
        let most = change.to.limit.map(|limit| limit.saturating_sub(beside(&change.directory)));
        let given = match most {
            Some(most) => match give(change.directory.clone(), most).await {
                Ok(given) => Some(given),
                Err(why) => return Outcome::NotGiven(why),
            },
            None => None,
        };
        let outcome = self.set(&pod, change, before, most).await;
        // Held until the limit is there, or is not to come.
        drop(given);
        outcome
    }

    /// Raises what a container holds.
    pub async fn raise(&self, change: &Change) -> Outcome {
        let Some(pod) = self.pods.get(&change.uid) else { return Outcome::Gone };
        let Some(container) = pod.container(&change.container) else { return Outcome::Gone };
        // Above what it was: else that would be forgotten.
        let done = if change.to.most() > pod.before(container).most().max(container.wanted.most()) {
            self.note_and_replace(&pod, change, Asked::Limit).await
        } else {
            self.replace(&pod, change, How::Made).await
        };
        done.map_or_else(Outcome::from, |()| Outcome::Raised)
    }

    /// Changes what a container asks for. Its limit stays, and so nobody has to give anything.
    pub async fn request(&self, change: &Change) -> Outcome {
        let Some(pod) = self.pods.get(&change.uid) else { return Outcome::Gone };
        self.note_and_replace(&pod, change, Asked::Request).await.map_or_else(Outcome::from, |()| Outcome::Requested)
    }

    /// Takes back what an agent asked for that did not live to see it done. Nobody holds memory back for it any more.
    pub async fn settle(&self, pod: &Pod) -> Option<Outcome> {
        // As it is now: what was on its way when the caller looked may have been done since.
        let pod = self.pods.get(&pod.uid)?;
        let (container, actual) = pod.containers.iter().find_map(|container| {
            let (wanted, actual) = (container.wanted, container.actual?);
            let is_ours = pod.lowered_from.get(&container.name)?.asked == wanted.most();
            (is_ours && wanted.limit.is_some() && wanted.limit < actual.limit).then_some((container, actual))
        })?;
        let why = pod.obstacle.clone().unwrap_or_else(|| "it was not done".into());
        let change = Change::of(&pod, container, container.wanted);
        Some(self.take_back(&pod, &change, actual, why).await)
    }

    async fn note_and_replace(&self, pod: &Pod, change: &Change, asked: Asked) -> Result<(), Failure> {
        let (pod, _) = self.note(pod, change, asked).await?;
        self.replace(&pod, change, How::Made).await
    }

    /// Notes what it held first, what it holds, and what is asked for now. The pod as it is then, and what the container holds.
    async fn note(&self, pod: &Pod, change: &Change, asked: Asked) -> Result<(Pod, Held), Failure> {
        let (mut pod, mut tries) = (pod.clone(), 0);
        loop {
            let container = change.applies(&pod)?;
            let (wanted, before, was) = (container.wanted, pod.before(container), container.wanted.most());
            let known = pod.lowered_from.get(&change.container);
            let given = known.map_or([None; 2], |it| [it.requested, it.kept]);
            // What a request of a window was is not noted: that would be another call for each. Nor is what is known by then, but
            // for a raise since the last note: this one is of the limit that it led to.
            let ([requested, kept], past) = match asked {
                // This change may come to nothing, and what one before it asked for stays.
                Asked::Limit => {
                    let kept = wanted.request.filter(|_| given.contains(&wanted.request));
                    ([change.to.request, kept], change.past)
                }
                Asked::Request => (given, pod.past(container).unwrap_or(change.past)),
            };
            let noted = Noted { before, was, asked: change.to.most(), requested, kept, past };
            if known == Some(&noted) {
                return Ok((pod, wanted));
            }
            // Of all containers that the pod has now: what the watch has told may lack what was noted of another just before.
            let mut all = pod.lowered_from.clone();
            all.insert(change.container.clone(), noted);
            match patch::note(&self.client, &pod, &all).await {
                Ok(pod) => return Ok((pod, wanted)),
                Err(why) => pod = self.again(&pod, why, &mut tries).await?,
            }
        }
    }

    async fn set(&self, pod: &Pod, change: &Change, before: Held, most: Option<u64>) -> Outcome {
        let name = &change.container;
        match self.replace(pod, change, How::Made).await {
            Ok(()) => {}
            Err(Failure::Refused(why) | Failure::Conflict(why)) => return Outcome::Refused(why),
            Err(Failure::Unknown(why)) => return self.take_back(pod, change, before, why).await,
        }
        let known = pod.obstacle.as_ref();
        let done = self.pods.when(&pod.uid, self.patience, |pod| {
            let container = pod.container(name)?;
            if ![before, change.to].contains(&container.wanted) {
                return Some(Err(ANOTHER.to_owned()));
            }
            if container.actual.is_some_and(|actual| actual.most() == change.to.most()) {
                return Some(Ok(()));
            }
            // What it said before was of something else, of which an older kubelet does not say so.
            pod.obstacle.clone().filter(|why| container.wanted == change.to && Some(why) != known).map(Err)
        });
        let done = tokio::select! {
            done = done => done,
            used = outgrown(change, most) => {
                return self.take_back(pod, change, before, format!("it uses {used} bytes meanwhile")).await;
            }
        };
        match done {
            Some(Ok(())) => Outcome::Lowered,
            Some(Err(why)) => self.take_back(pod, change, before, why).await,
            None if self.pods.get(&pod.uid).is_none() => Outcome::Gone,
            None => {
                let why = format!("the kubelet has not done it within {} s", self.patience.as_secs());
                self.take_back(pod, change, before, why).await
            }
        }
    }

    /// Asks for what was there before a change, as long as it is asked for that or for what it was changed to.
    async fn take_back(&self, pod: &Pod, change: &Change, before: Held, why: String) -> Outcome {
        let back = Change { from: vec![change.to, before], to: before, ..change.clone() };
        // Where it is not known any more, the API says so.
        let pod = self.pods.get(&pod.uid).map_or_else(|| pod.clone(), |pod| (*pod).clone());
        match self.replace(&pod, &back, How::Made).await {
            Ok(()) => Outcome::TakenBack(why),
            Err(Failure::Refused(again) | Failure::Conflict(again)) if again == ANOTHER => Outcome::Refused(again),
            Err(Failure::Refused(again) | Failure::Conflict(again) | Failure::Unknown(again)) => {
                Outcome::Unknown(format!("{why}; {again}"))
            }
        }
    }

    /// Changes what a container holds. With its limit go requests of the agent's that wait for room: the kubelet makes all of a pod's
    /// changes or none.
    async fn replace(&self, pod: &Pod, change: &Change, how: How) -> Result<(), Failure> {
        let (mut pod, mut tries) = (pod.clone(), 0);
        loop {
            let is_of_limit = change.applies(&pod)?.wanted.limit != change.to.limit;
            let waiting = pod.without_waiting(&change.container).filter(|_| is_of_limit);
            let all: Vec<(&str, Held)> = [(change.container.as_str(), change.to)].into_iter().chain(waiting).collect();
            match patch::resize(&self.client, &pod, &all, how == How::Rehearsed).await {
                Ok(()) => return Ok(()),
                Err(why) => pod = self.again(&pod, why, &mut tries).await?,
            }
            // By an earlier change of the same look, of which the watch had not told yet.
            if pod.container(&change.container).is_some_and(|it| it.wanted == change.to) {
                return Ok(());
            }
        }
    }

    /// The pod as it is now, where it was another than the one that a change went by, so that it is to be tried again.
    async fn again(&self, pod: &Pod, why: Failure, tries: &mut usize) -> Result<Pod, Failure> {
        match why {
            Failure::Conflict(why) if *tries < TRIES => {
                *tries += 1;
                // What the watch has told may be older than the change that was in the way.
                patch::now(&self.client, pod).await?.ok_or(Failure::Refused(why))
            }
            why => Err(why),
        }
    }
}

/// Whether a change is made, or the API says alone whether it would take it.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Made,
    Rehearsed,
}

/// What of a container is asked for.
#[derive(Clone, Copy)]
enum Asked {
    Limit,
    Request,
}

impl Change {
    /// The container of the pod, if it holds what the change is from.
    fn applies<'a>(&self, pod: &'a Pod) -> Result<&'a Container, Failure> {
        let container = pod.container(&self.container).filter(|it| self.from.contains(&it.wanted));
        container.ok_or_else(|| Failure::Refused(ANOTHER.into()))
    }
}

/// Ends once a container uses the most that it may, with the bytes that it uses. A request alone is outgrown never.
async fn outgrown(change: &Change, most: Option<u64>) -> u64 {
    let Some(most) = most else { return std::future::pending().await };
    loop {
        match shrink::used(&change.directory) {
            Ok(used) if used >= most => return used,
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Whether what was begun is still wanted: not once this is dropped.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Has the processes of a group give memory until it uses less than `to`, and hold it back as long as the answer lives. Who
/// waits for it no longer ends it: the thread that asks them looks each 10 ms.
async fn give(directory: PathBuf, to: u64) -> Result<Given, String> {
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let is_wanted = wanted.0.clone();
    let giving =
        tokio::task::spawn_blocking(move || shrink::give(&directory, to, GIVING, || is_wanted.load(Ordering::Relaxed)));
    let given = giving.await.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
    let outcome = &given.outcome;
    // The kubelet compares all that is charged, file pages too.
    let missing = outcome.missing_bytes.max((outcome.charged_bytes + 1).saturating_sub(to));
    match (missing, outcome.processes.first()) {
        (0, _) => Ok(given),
        (missing, None) => Err(format!("{missing} bytes are missing, and the group has no process")),
        (missing, Some(most)) => Err(format!(
            "{missing} bytes are missing; {} ({}) holds most, {} bytes",
            most.command, most.pid, most.resident_bytes
        )),
    }
}
