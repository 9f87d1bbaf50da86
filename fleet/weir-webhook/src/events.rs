//! Events on the owners of pods: what became of a pod that does not exist yet. They are told beside the answer, which never
//! waits for them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::inject::Outcome;
use crate::metrics::{Metrics, Told};

/// As many may wait. Those of one owner are told as one, so that more would say little.
const WAITING: usize = 256;
/// How long the API server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who is told, and what.
#[derive(Debug)]
pub struct Notice {
    owner: ObjectReference,
    outcome: Outcome,
    note: String,
}

impl Notice {
    /// What the owner of `pod` is to hear; nothing where no controller owns it.
    pub fn of(pod: &Pod, namespace: Option<&str>, outcome: Outcome, note: &str) -> Option<Self> {
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let owner = ObjectReference {
            api_version: Some(owner.api_version.clone()),
            kind: Some(owner.kind.clone()),
            name: Some(owner.name.clone()),
            uid: Some(owner.uid.clone()),
            namespace: namespace.map(str::to_owned),
            ..ObjectReference::default()
        };
        (outcome != Outcome::Unchanged).then(|| Self { owner, outcome, note: note.to_owned() })
    }

    fn event(&self) -> Event {
        let reason = if self.outcome == Outcome::Injected { "WeirInjected" } else { "WeirLeft" };
        Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(self.note.clone()),
            action: "Injecting".to_owned(),
            secondary: None,
        }
    }
}

/// Takes notices and writes events.
#[derive(Debug, Clone)]
pub struct Events {
    waiting: mpsc::Sender<Notice>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Writes by this client, in a task of its own.
    pub fn start(client: Client, metrics: Arc<Metrics>) -> Self {
        let (waiting, mut notices) = mpsc::channel::<Notice>(WAITING);
        let told = metrics.clone();
        tokio::spawn(async move {
            let recorder = Recorder::new(client, Reporter::from("weir-webhook"));
            while let Some(notice) = notices.recv().await {
                let event = notice.event();
                let written = tokio::time::timeout(PATIENCE, recorder.publish(&event, &notice.owner)).await;
                told.told(if matches!(written, Ok(Ok(()))) { Told::Written } else { Told::Failed });
            }
        });
        Self { waiting, metrics }
    }

    /// Takes a notice, or drops it where too many wait.
    pub fn tell(&self, notice: Notice) {
        if self.waiting.try_send(notice).is_err() {
            self.metrics.told(Told::Dropped);
        }
    }
}
