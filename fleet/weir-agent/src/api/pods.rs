//! The pods of this node, kept up to date by a watch.

use super::pod::Pod;
use futures::StreamExt;
use k8s_openapi::api::core::v1;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Where the API did not answer, it is asked again after this time, and has as long to answer. Later it is told as silent.
const AGAIN: Duration = Duration::from_secs(5);

/// By UID.
type ByUid = BTreeMap<String, Arc<Pod>>;

/// See the module.
pub struct Pods {
    known: Arc<Known>,
    watching: JoinHandle<()>,
}

struct Known {
    pods: Mutex<ByUid>,
    /// Counts events up.
    changes: watch::Sender<u64>,
    /// What the API last said instead of pods.
    trouble: Mutex<Option<String>>,
    /// Whether it has ever said anything of them.
    has_answered: AtomicBool,
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Pods {
    /// Those of that node. Without an answer of the API there are none yet; it is asked again and again.
    pub fn of_node(client: Client, node: &str) -> Self {
        let known = Arc::new(Known {
            pods: Mutex::default(),
            changes: watch::Sender::new(0),
            trouble: Mutex::default(),
            has_answered: AtomicBool::new(false),
        });
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let watching = tokio::spawn(keep(Api::all(client), config, known.clone()));
        Self { known, watching }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        lock(&self.known.pods).values().cloned().collect()
    }

    /// The pod as it is now.
    pub fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        lock(&self.known.pods).get(uid).cloned()
    }

    /// What is wrong with the API, if anything is.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.known.trouble).clone()
    }

    /// Whether the API answers: it has done so, and nothing was wrong with it since.
    pub fn is_up(&self) -> bool {
        self.known.has_answered.load(Ordering::Relaxed) && self.trouble().is_none()
    }

    /// Waits until something can be said of a pod, for so long at most. None: it cannot be said in time, or the pod is gone.
    pub async fn when<T>(&self, uid: &str, bound: Duration, said: impl Fn(&Pod) -> Option<T>) -> Option<T> {
        let mut changes = self.known.changes.subscribe();
        let waiting = async {
            loop {
                let pod = self.get(uid)?;
                if let Some(it) = said(&pod) {
                    return Some(it);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(bound, waiting).await.ok().flatten()
    }
}

/// A lock holds nothing that a panic leaves half done.
fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(|panicked| panicked.into_inner())
}

/// Whether the API answers now.
async fn answers(api: &Api<v1::Pod>) -> bool {
    timeout(AGAIN, api.list_metadata(&ListParams::default().limit(1))).await.is_ok_and(|answer| answer.is_ok())
}

async fn keep(api: Api<v1::Pod>, config: watcher::Config, known: Arc<Known>) {
    let asked = api.clone();
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    // What a new list has: it takes the place of what is known once it is whole.
    let mut listed = ByUid::new();
    let entry = |pod: v1::Pod| {
        let pod = Pod::of(&pod);
        (pod.uid.clone(), Arc::new(pod))
    };
    // Whether pods were asked for, and not all of them are there.
    let mut is_awaited = true;
    loop {
        let is_troubled = lock(&known.trouble).is_some();
        let event = tokio::select! {
            event = events.next() => event,
            // Where a server is busy (429, 503, 504) the client asks again by itself for minutes, and says nothing.
            () = tokio::time::sleep(AGAIN), if is_awaited => {
                let silent = || format!("pods are not to be had from the API: no answer for {} s", AGAIN.as_secs());
                lock(&known.trouble).get_or_insert_with(silent);
                continue;
            }
            () = tokio::time::sleep(AGAIN), if is_troubled && !is_awaited => {
                // A watch that goes on where it was says nothing as long as no pod changes.
                if answers(&asked).await {
                    *lock(&known.trouble) = None;
                }
                continue;
            }
        };
        let Some(event) = event else { return };
        is_awaited = matches!(event, Ok(watcher::Event::Init | watcher::Event::InitApply(_)));
        if let Ok(watcher::Event::Init) = event {
            // It is about to be asked, and has said nothing yet.
            listed.clear();
            continue;
        }
        known.has_answered.fetch_or(event.is_ok(), Ordering::Relaxed);
        *lock(&known.trouble) = event.as_ref().err().map(|why| format!("pods are not to be had from the API: {why}"));
        match event {
            Ok(watcher::Event::InitApply(pod)) => listed.extend([entry(pod)]),
            Ok(watcher::Event::InitDone) => *lock(&known.pods) = std::mem::take(&mut listed),
            Ok(watcher::Event::Apply(pod)) => lock(&known.pods).extend([entry(pod)]),
            Ok(watcher::Event::Delete(pod)) => drop(lock(&known.pods).remove(&entry(pod).0)),
            Ok(watcher::Event::Init) | Err(_) => continue,
        }
        known.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}
