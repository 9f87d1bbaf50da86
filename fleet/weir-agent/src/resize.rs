//! A container's memory is changed while it runs.
//!
//! Lowering: what it held is noted at the pod; its processes give memory back, and hold back more; then the API is asked, and
//! the kubelet waited for. What is refused, or not done in time, is taken back; so is what the container has outgrown before it is
//! done, as the limit would get it killed. The agent may be killed between any two steps.
//! What it asked of processes ends with it, and a request of its own that the kubelet has not carried out is found at the pod
//! by [`Resizer::settle`].

use crate::api::patch::{self, Failure};
use crate::api::pod::{Container, Held, Noted, Pod};
use crate::api::pods::Pods;
use kube::Client;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_cli::shrink::{self, Given};

/// How long processes may take to give.
const GIVING: Duration = Duration::from_secs(20);
/// How long the kubelet may take: it looks at its pods when they change, and at all of them once a minute.
const KUBELET: Duration = Duration::from_secs(90);
/// How often a change is tried whose pod changes meanwhile: its kubelet writes to it as well.
const TRIES: usize = 5;
/// What is said of a container that holds neither what it did nor what was asked for.
const ANOTHER: &str = "changed by another";
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
    /// What it should hold.
    pub to: Held,
}

impl Change {
    /// Of a container that may have no group now: nobody has to give anything for it.
    pub fn of(pod: &Pod, container: &Container, to: Held) -> Self {
        Self { uid: pod.uid.clone(), container: container.name.clone(), directory: PathBuf::new(), to }
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
        let Some(container) = pod.container(&change.container) else { return Outcome::Gone };
        if let Err(why) = self.note(&pod, container, change.to).await {
            return why.into();
        }
        // A request alone is a figure for the scheduler: nobody has to give anything for it.
        let given = match change.to.limit {
            Some(limit) => match give(change.directory.clone(), limit).await {
                Ok(given) => Some(given),
                Err(why) => return Outcome::NotGiven(why),
            },
            None => None,
        };
        let outcome = self.set(&pod, change, container.wanted).await;
        // Held until the limit is there, or is not to come.
        drop(given);
        outcome
    }

    /// Raises what a container holds.
    pub async fn raise(&self, change: &Change) -> Outcome {
        let Some(pod) = self.pods.get(&change.uid) else { return Outcome::Gone };
        let Some(container) = pod.container(&change.container) else { return Outcome::Gone };
        // Above what it was: else that would be forgotten.
        if change.to.most() > pod.before(container).most().max(container.wanted.most())
            && let Err(why) = self.note(&pod, container, change.to).await
        {
            return why.into();
        }
        match patch::resize(&self.client, &pod, &change.container, change.to).await {
            Ok(()) => Outcome::Raised,
            Err(why) => why.into(),
        }
    }

    /// Changes what a container asks for. Its limit stays, and so nobody has to give anything.
    pub async fn request(&self, change: &Change) -> Outcome {
        let Some(pod) = self.pods.get(&change.uid) else { return Outcome::Gone };
        let Some(container) = pod.container(&change.container) else { return Outcome::Gone };
        // What a request of a window was is not noted: that would be another call for each.
        let requested = pod.lowered_from.get(&change.container).and_then(|it| it.requested);
        if let Err(why) = self.note(&pod, container, Held { request: requested, ..change.to }).await {
            return why.into();
        }
        match patch::resize(&self.client, &pod, &change.container, change.to).await {
            Ok(()) => Outcome::Requested,
            Err(why) => why.into(),
        }
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
        Some(self.take_back(&pod, &Change::of(&pod, container, actual), container.wanted, why).await)
    }

    /// Notes what it held first, what it holds, and what is asked for now.
    async fn note(&self, pod: &Pod, container: &Container, to: Held) -> Result<(), Failure> {
        let mut all = pod.lowered_from.clone();
        let (before, was) = (pod.before(container), container.wanted.most());
        let noted = Noted { before, was, asked: to.most(), requested: to.request };
        all.insert(container.name.clone(), noted);
        if all == pod.lowered_from { Ok(()) } else { patch::note(&self.client, pod, &all).await }
    }

    async fn set(&self, pod: &Pod, change: &Change, before: Held) -> Outcome {
        let name = &change.container;
        let back = Change { to: before, ..change.clone() };
        match self.replace(pod, change, &[before]).await {
            Ok(()) => {}
            Err(Failure::Refused(why) | Failure::Conflict(why)) => return Outcome::Refused(why),
            Err(Failure::Unknown(why)) => return self.take_back(pod, &back, change.to, why).await,
        }
        let done = self.pods.when(&pod.uid, self.patience, |pod| {
            let container = pod.container(name)?;
            if ![before, change.to].contains(&container.wanted) {
                return Some(Err(ANOTHER.to_owned()));
            }
            if container.actual.is_some_and(|actual| actual.most() == change.to.most()) {
                return Some(Ok(()));
            }
            pod.obstacle.clone().filter(|_| container.wanted == change.to).map(Err)
        });
        let done = tokio::select! {
            done = done => done,
            used = outgrown(change) => {
                return self.take_back(pod, &back, change.to, format!("it uses {used} bytes meanwhile")).await;
            }
        };
        match done {
            Some(Ok(())) => Outcome::Lowered,
            Some(Err(why)) => self.take_back(pod, &back, change.to, why).await,
            None if self.pods.get(&pod.uid).is_none() => Outcome::Gone,
            None => {
                let why = format!("the kubelet has not done it within {} s", self.patience.as_secs());
                self.take_back(pod, &back, change.to, why).await
            }
        }
    }

    /// Asks for what was there before, as long as it is asked for that or for `asked`.
    async fn take_back(&self, pod: &Pod, back: &Change, asked: Held, why: String) -> Outcome {
        match self.replace(pod, back, &[asked, back.to]).await {
            Ok(()) => Outcome::TakenBack(why),
            Err(Failure::Refused(again) | Failure::Conflict(again)) if again == ANOTHER => Outcome::Refused(again),
            Err(Failure::Refused(again) | Failure::Conflict(again) | Failure::Unknown(again)) => {
                Outcome::Unknown(format!("{why}; {again}"))
            }
        }
    }

    /// Changes what a container holds, as long as that is one of `from`. What another asks for meanwhile stays.
    async fn replace(&self, pod: &Pod, change: &Change, from: &[Held]) -> Result<(), Failure> {
        // Where it is not known any more, the API says so.
        let mut now = self.pods.get(&pod.uid).map_or_else(|| pod.clone(), |pod| (*pod).clone());
        let mut tries = 0;
        loop {
            let wanted = now.container(&change.container).map(|it| it.wanted);
            if wanted.is_none_or(|wanted| !from.contains(&wanted)) {
                return Err(Failure::Refused(ANOTHER.into()));
            }
            match patch::resize_unchanged(&self.client, &now, &change.container, change.to).await {
                Err(Failure::Conflict(why)) if tries < TRIES => {
                    tries += 1;
                    // What the watch has told may be older than the change that was in the way.
                    now = patch::now(&self.client, &now).await?.ok_or(Failure::Refused(why))?;
                }
                answer => return answer,
            }
        }
    }
}

/// Ends once a container uses as much as its limit is to be, with the bytes that it uses. A request alone is outgrown never.
async fn outgrown(change: &Change) -> u64 {
    let Some(limit) = change.to.limit else { return std::future::pending().await };
    loop {
        match shrink::used(&change.directory) {
            Ok(used) if used >= limit => return used,
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
