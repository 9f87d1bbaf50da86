//! VerticalPodAutoscaler objects that name `weir` as their recommender.

use super::patch::{self, Failure};
use crate::policy::quantity;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_policy::limits::Recommendation;

/// Begins the annotation in which each node says what it needs; the node's name follows.
const NEEDS: &str = "needs.weir.dev/";
/// Characters of the name behind the slash of an annotation at most.
const NAME: usize = 63;

/// What a node says of the pods of an autoscaler that it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// When, seconds since 1970, by the node's clock.
    pub at: i64,
    /// When this agent heard it, by its own clock. As it begins to listen it knows no more than the node says.
    #[serde(skip)]
    pub heard: i64,
    /// Lower bound, target and upper bound by container, bytes: the most of all its pods.
    pub containers: BTreeMap<String, [u64; 3]>,
    /// When these were last known to be true, by container, seconds since 1970: see [`crate::recommend`].
    #[serde(default)]
    pub known: BTreeMap<String, i64>,
}

/// What the object says of a container, or of all that it does not name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Policy {
    container: String,
    is_off: bool,
    min: Option<u64>,
    max: Option<u64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoscaler {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The kind and the name of the controller whose pods it is for.
    pub target: (String, String),
    /// What nodes say, by annotation.
    pub needs: BTreeMap<String, Needs>,
    policies: Vec<Policy>,
    /// What its status recommends.
    recommended: Value,
}

/// The kind of these objects.
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
    ApiResource::from_gvk_with_plural(&kind, "verticalpodautoscalers")
}

/// The annotation of a node. A name that is too long is cut, with a hash (FNV-1a) of all of it.
pub fn annotation(node: &str) -> String {
    if node.len() <= NAME {
        return format!("{NEEDS}{node}");
    }
    let hash =
        node.bytes().fold(0xcbf29ce484222325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100000001b3));
    format!("{NEEDS}{}.{hash:016x}", &node[..NAME - 17].trim_end_matches(['.', '-']))
}

impl Autoscaler {
    /// None: it has other recommenders, or no target.
    pub fn of(object: &DynamicObject) -> Option<Self> {
        let spec = &object.data["spec"];
        let recommenders = spec["recommenders"].as_array()?;
        recommenders.iter().find(|it| it["name"] == "weir")?;
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let annotations = object.metadata.annotations.iter().flatten();
        let policies = spec["resourcePolicy"]["containerPolicies"].as_array();
        Some(Self {
            namespace: object.metadata.namespace.clone()?,
            name: object.metadata.name.clone()?,
            target: (text(&spec["targetRef"]["kind"])?, text(&spec["targetRef"]["name"])?),
            needs: annotations
                .filter(|(name, _)| name.starts_with(NEEDS))
                .filter_map(|(name, json)| Some((name.clone(), needs(json)?)))
                .collect(),
            policies: policies.into_iter().flatten().map(policy).collect(),
            recommended: object.data["status"]["recommendation"]["containerRecommendations"].clone(),
        })
    }

    /// Now that what was known of it was another. What a node has said since was heard now, however its clock goes.
    pub fn heard_at(mut self, now: i64, known: Option<&Self>) -> Self {
        let Some(known) = known else { return self };
        for (name, needs) in &mut self.needs {
            let before = known.needs.get(name).filter(|before| before.at == needs.at);
            needs.heard = before.map_or(now, |before| before.heard);
        }
        self
    }

    /// Whether it is for pods of this namespace that this controller has made: its kind and name. A CronJob's jobs are named by it
    /// and the minute.
    pub fn is_for(&self, namespace: &str, (kind, name): &(String, String)) -> bool {
        let (of, target) = &self.target;
        let minute = || name.strip_prefix(target.as_str())?.strip_prefix('-')?.parse::<u64>().ok();
        let is_of_cron = || kind == "Job" && of == "CronJob" && minute().is_some();
        self.namespace == namespace && ((kind, name) == (of, target) || is_of_cron())
    }

    /// The recommendations that its status should have.
    fn recommendations(&self, all: &BTreeMap<String, Recommendation>) -> Value {
        let of = |name: &String, it: &Recommendation| {
            let named = |name: &str| self.policies.iter().find(|policy| policy.container == name);
            let policy = named(name).or_else(|| named("*")).cloned().unwrap_or_default();
            let quantity = |bytes: u64| json!({"memory": bytes.to_string()});
            let capped = |bytes: u64| {
                let least = bytes.max(policy.min.unwrap_or(0));
                quantity(least.min(policy.max.unwrap_or(u64::MAX)))
            };
            (!policy.is_off).then(|| {
                json!({
                    "containerName": name,
                    "lowerBound": capped(it.lower),
                    "target": capped(it.target),
                    "upperBound": capped(it.upper),
                    "uncappedTarget": quantity(it.target),
                })
            })
        };
        all.iter().filter_map(|(name, it)| of(name, it)).collect()
    }

    /// Says what nodes need, by annotation; none: one has no such pods any more.
    pub async fn say(&self, client: &Client, needs: &BTreeMap<&str, Option<&Needs>>) -> Result<(), Failure> {
        let text = |needs: &Option<&Needs>| needs.map(|needs| json!(needs).to_string());
        let texts: BTreeMap<&str, Option<String>> = needs.iter().map(|(name, it)| (*name, text(it))).collect();
        let change = json!({"metadata": {"annotations": texts}});
        patch::answered(self.api(client).patch(&self.name, &PatchParams::default(), &Patch::Merge(change))).await
    }

    /// Writes the recommendations into its status. False: they are there already.
    pub async fn recommend(
        &self,
        client: &Client,
        all: &BTreeMap<String, Recommendation>,
        now: jiff::Timestamp,
    ) -> Result<bool, Failure> {
        let recommendations = self.recommendations(all);
        if recommendations == self.recommended {
            return Ok(false);
        }
        let condition =
            json!({"type": "RecommendationProvided", "status": "True", "lastTransitionTime": now.to_string()});
        let status =
            json!({"conditions": [condition], "recommendation": {"containerRecommendations": recommendations}});
        let change = Patch::Merge(json!({"status": status}));
        patch::answered(self.api(client).patch_status(&self.name, &PatchParams::default(), &change))
            .await
            .map(|()| true)
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), &self.namespace, &resource())
    }
}

fn needs(json: &str) -> Option<Needs> {
    let needs: Needs = serde_json::from_str(json).ok()?;
    Some(Needs { heard: needs.at, ..needs })
}

fn policy(policy: &Value) -> Policy {
    let bytes = |bound: &Value| match &bound["memory"] {
        Value::String(text) => quantity::bytes(text),
        number => number.as_u64(),
    };
    let controlled = policy["controlledResources"].as_array();
    let leaves_memory = controlled.is_some_and(|all| all.iter().all(|resource| resource != "memory"));
    Policy {
        container: policy["containerName"].as_str().unwrap_or_default().to_owned(),
        is_off: policy["mode"] == "Off" || leaves_memory,
        min: bytes(&policy["minAllowed"]),
        max: bytes(&policy["maxAllowed"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {
                "name": "web", "namespace": "shop",
                "annotations": {"needs.weir.dev/n1": r#"{"at":5,"containers":{"app":[1,2,3]}}"#, "other": "x"},
            },
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_those_that_name_weir_count() {
        let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
        let of =
            |recommenders: Value| Autoscaler::of(&object(json!({"targetRef": target, "recommenders": recommenders})));
        assert!(of(Value::Null).is_none() && of(json!([{"name": "other"}])).is_none());
        let it = of(json!([{"name": "weir"}])).unwrap();
        assert_eq!(it.target, ("Deployment".into(), "web".into()));
        assert_eq!(it.needs["needs.weir.dev/n1"].containers["app"], [1, 2, 3]);
    }

    #[test]
    fn a_cron_jobs_pods_are_found_by_their_job() {
        let is_for = |target: (&str, &str), namespace: &str, owner: (&str, &str)| {
            let target = json!({"kind": target.0, "name": target.1});
            let it = Autoscaler::of(&object(json!({"targetRef": target, "recommenders": [{"name": "weir"}]}))).unwrap();
            it.is_for(namespace, &(owner.0.into(), owner.1.into()))
        };
        let nightly = ("CronJob", "nightly");
        assert!(is_for(nightly, "shop", ("Job", "nightly-29311200")));
        assert!(is_for(("Job", "nightly-29311200"), "shop", ("Job", "nightly-29311200")));
        for (namespace, kind, name) in [
            ("other", "Job", "nightly-29311200"),
            ("shop", "Job", "nightly-backup-29311200"),
            ("shop", "Job", "nightly-"),
            ("shop", "StatefulSet", "nightly-29311200"),
        ] {
            assert!(!is_for(nightly, namespace, (kind, name)), "{namespace} {kind} {name}");
        }
    }

    #[test]
    fn its_policy_is_honoured() {
        let spec = json!({
            "targetRef": {"kind": "Deployment", "name": "web"}, "recommenders": [{"name": "weir"}],
            "resourcePolicy": {"containerPolicies": [
                {"containerName": "app", "minAllowed": {"memory": "64Mi"}, "maxAllowed": {"memory": "128Mi", "cpu": 1}},
                {"containerName": "side", "mode": "Off"},
                {"containerName": "*", "controlledResources": ["cpu"]},
            ]},
        });
        let it = Autoscaler::of(&object(spec)).unwrap();
        let all = ["app", "side", "third"]
            .map(|name| (name.to_owned(), Recommendation { lower: 1 << 20, target: 100 << 20, upper: 900 << 20 }));
        let memory = |mib: u64| json!({"memory": (mib << 20).to_string()});
        assert_eq!(
            it.recommendations(&all.into()),
            json!([{
                "containerName": "app", "lowerBound": memory(64), "target": memory(100), "upperBound": memory(128),
                "uncappedTarget": memory(100),
            }])
        );
    }

    #[test]
    fn names_of_annotations_are_short_enough() {
        assert_eq!(annotation("node-1"), "needs.weir.dev/node-1");
        let [one, two] = ["a", "b"].map(|end| annotation(&format!("{}{end}", "x.".repeat(60))));
        assert!(one != two && one.len() <= NEEDS.len() + NAME, "{one}");
    }
}
