//! What is changed of a pod: its resources, and the annotation that says what they were.

use super::pod::{Held, LOWERED_FROM, Noted, Pod};
use crate::policy::quantity::text;
use k8s_openapi::api::core::v1;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The API answers within this time, or is taken to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// One that fails later than this keeps who asks waiting.
const SLOW: Duration = Duration::from_secs(1);

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API has refused it: nothing was changed.
    Refused(String),
    /// No answer came: it may have been made.
    Unknown(String),
    /// The object is another by now than the one that the change goes by: nothing was changed.
    Conflict(String),
}

/// Changes what containers hold, by name. A rehearsal says whether the API would take it, and changes nothing.
pub async fn resize(client: &Client, pod: &Pod, to: &[(&str, Held)], is_rehearsal: bool) -> Result<(), Failure> {
    let memory = |bytes: Option<u64>| bytes.map_or(json!({}), |bytes| json!({"memory": text(bytes)}));
    let resources = |to: &Held| json!({"requests": memory(to.request), "limits": memory(to.limit)});
    let containers: Vec<Value> =
        to.iter().map(|(name, to)| json!({"name": name, "resources": resources(to)})).collect();
    let change = json!({"metadata": {}, "spec": {"containers": containers}});
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = Patch::Strategic(of_this(pod, change));
    let how = PatchParams { dry_run: is_rehearsal, ..PatchParams::default() };
    answered(api.patch_subresource("resize", &pod.name, &how, &patch)).await
}

/// Writes down what containers held. The pod as it is then.
pub async fn note(client: &Client, pod: &Pod, held: &BTreeMap<String, Noted>) -> Result<Pod, Failure> {
    let json = serde_json::to_string(held).map_err(|why| Failure::Refused(why.to_string()))?;
    let change = json!({"metadata": {"annotations": {LOWERED_FROM: json}}});
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = Patch::Merge(of_this(pod, change));
    answer(api.patch(&pod.name, &PatchParams::default(), &patch)).await.map(|it| Pod::of(&it))
}

/// The pod as the API has it now. None: there is none of its name, or another one.
pub async fn now(client: &Client, pod: &Pod) -> Result<Option<Pod>, Failure> {
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    // A list: that may be had with the rights that a watch takes.
    let named = ListParams::default().fields(&format!("metadata.name={}", pod.name));
    let listed = answer(api.list(&named)).await?;
    Ok(listed.items.iter().map(Pod::of).find(|it| it.uid == pod.uid))
}

/// The change of this pod as it was when it was looked at: the API refuses another UID, which a later pod of its name has, and an
/// older version.
fn of_this(pod: &Pod, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(pod.uid);
    change["metadata"]["resourceVersion"] = json!(pod.version);
    change
}

/// That a request was answered well, within the bound.
pub async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<(), Failure> {
    answer(request).await.map(drop)
}

/// Whether a request that was begun then, and was not answered well, took so long that no further one should be made for now.
pub fn is_slow(begun: Instant) -> bool {
    begun.elapsed() >= SLOW
}

/// The answer to a request, within the bound.
async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(why))) if why.code == 409 => {
            Err(Failure::Conflict(format!("{} {}", why.code, why.message)))
        }
        // Of a server in trouble it is not known what it did.
        Ok(Err(kube::Error::Api(why))) if why.code < 500 => {
            Err(Failure::Refused(format!("{} {}", why.code, why.message)))
        }
        Ok(Err(why)) => Err(Failure::Unknown(why.to_string())),
        Err(_) => Err(Failure::Unknown(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}
