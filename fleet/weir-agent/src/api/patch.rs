//! What is changed of a pod: its resources, and the annotation that says what they were.

use super::pod::{Held, LOWERED_FROM, Noted, Pod};
use crate::policy::quantity::text;
use k8s_openapi::api::core::v1;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// The API answers within this time, or is taken to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API has refused it: nothing was changed.
    Refused(String),
    /// No answer came: it may have been made.
    Unknown(String),
}

/// Changes what a container holds.
pub async fn resize(client: &Client, pod: &Pod, container: &str, to: Held) -> Result<(), Failure> {
    let memory = |bytes: Option<u64>| bytes.map_or(json!({}), |bytes| json!({"memory": text(bytes)}));
    let resources = json!({"requests": memory(to.request), "limits": memory(to.limit)});
    let change = json!({"spec": {"containers": [{"name": container, "resources": resources}]}});
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = Patch::Strategic(of_this(pod, change));
    answered(api.patch_subresource("resize", &pod.name, &PatchParams::default(), &patch)).await
}

/// Writes down what containers held.
pub async fn note(client: &Client, pod: &Pod, held: &BTreeMap<String, Noted>) -> Result<(), Failure> {
    let json = serde_json::to_string(held).map_err(|why| Failure::Refused(why.to_string()))?;
    let change = json!({"metadata": {"annotations": {LOWERED_FROM: json}}});
    let api: Api<v1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
    answered(api.patch(&pod.name, &PatchParams::default(), &Patch::Merge(of_this(pod, change)))).await
}

/// The change of this pod and of no other that has its name by now: the API refuses a UID that is not the object's.
fn of_this(pod: &Pod, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(pod.uid);
    change
}

/// The answer to a request, within the bound.
pub async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<(), Failure> {
    match timeout(PATIENCE, request).await {
        Ok(Ok(_)) => Ok(()),
        // Of a server in trouble it is not known what it did.
        Ok(Err(kube::Error::Api(why))) if why.code < 500 => {
            Err(Failure::Refused(format!("{} {}", why.code, why.message)))
        }
        Ok(Err(why)) => Err(Failure::Unknown(why.to_string())),
        Err(_) => Err(Failure::Unknown(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}
