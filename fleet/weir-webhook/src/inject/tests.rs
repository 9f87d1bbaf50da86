//! Many pods.

use json_patch::patch;
use k8s_openapi::api::core::v1::{Container, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::library::{Library, MOUNT, PRELOAD, VOLUME, Way};
use super::*;

fn library(way: Way) -> Library {
    Library { image: "weir:1".to_owned(), pull_policy: "IfNotPresent".to_owned(), way, run_as_user: Some(65534) }
}

fn typed(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// The pod as it is made, and what became of it.
fn made(pod: &Value, namespace_asks: bool, way: Way) -> (Value, Outcome, String) {
    let mutation = mutate(&typed(pod), namespace_asks, &library(way));
    let mut made = pod.clone();
    patch(&mut made, &mutation.patch).unwrap();
    (made, mutation.outcome, mutation.explanation.unwrap_or_default())
}

fn pod(labels: Value, annotations: Value, containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {"containers": containers},
    })
}

fn asking(containers: Value) -> Value {
    pod(json!({LABEL: "true"}), json!({}), containers)
}

fn env<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array()?;
    variables.iter().rev().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[test]
fn a_pod_gets_a_volume_an_init_container_and_a_preload() {
    let (made, outcome, explanation) = made(&asking(json!([{"name": "a", "image": "i"}])), false, Way::InitContainer);
    assert_eq!((outcome, explanation.as_str()), (Outcome::Injected, "preloaded in a"));
    assert_eq!(made["metadata"]["annotations"][EXPLANATION], explanation);
    let spec = &made["spec"];
    assert_eq!(spec["volumes"], json!([{"name": VOLUME, "emptyDir": {"sizeLimit": "16Mi"}}]));
    let mount = json!([{"name": VOLUME, "mountPath": MOUNT, "readOnly": true}]);
    let env = json!([{"name": "LD_PRELOAD", "value": PRELOAD}]);
    assert_eq!(spec["containers"], json!([{"name": "a", "image": "i", "env": env, "volumeMounts": mount}]));
    let init = &spec["initContainers"][0];
    assert_eq!(init["command"], json!(["cp", "-Rf", "/library", MOUNT]));
    assert_eq!(init["securityContext"]["runAsUser"], 65534);
    assert_eq!(init["securityContext"]["runAsNonRoot"], true);
    assert_eq!(init["resources"], json!({}));
    // No field of it is lost on the way to an API server's types.
    let typed: Container = serde_json::from_value(init.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *init);
}

#[test]
fn an_image_volume_needs_no_init_container() {
    let (made, ..) = made(&asking(json!([{"name": "a"}])), false, Way::ImageVolume);
    let volume = json!([{"name": VOLUME, "image": {"reference": "weir:1", "pullPolicy": "IfNotPresent"}}]);
    assert_eq!(made["spec"]["volumes"], volume);
    assert_eq!(made["spec"].get("initContainers"), None);
    assert_eq!(env(&made["spec"]["containers"][0], "LD_PRELOAD"), Some(PRELOAD));
}

#[test]
fn the_pods_label_wins_over_its_namespaces() {
    for (label, namespace_asks, expected) in [
        (json!({}), false, Outcome::Unchanged),
        (json!({}), true, Outcome::Injected),
        (json!({LABEL: "false"}), true, Outcome::Unchanged),
        (json!({LABEL: "yes"}), true, Outcome::Unchanged),
        (json!({LABEL: "true"}), false, Outcome::Injected),
    ] {
        let pod = pod(label.clone(), json!({}), json!([{"name": "a"}]));
        assert_eq!(made(&pod, namespace_asks, Way::InitContainer).1, expected, "{label} {namespace_asks}");
    }
}

#[test]
fn what_is_preloaded_already_stays_behind_weir() {
    for (value, expected) in [
        (json!("/usr/lib/libjemalloc.so.2"), Some(format!("{PRELOAD}:/usr/lib/libjemalloc.so.2"))),
        (json!("a.so b.so:c.so"), Some(format!("{PRELOAD}:a.so b.so:c.so"))),
        (json!("$(OTHER)"), Some(format!("{PRELOAD}:$(OTHER)"))),
        (json!(""), Some(PRELOAD.to_owned())),
        (json!(PRELOAD), Some(PRELOAD.to_owned())),
        (json!(format!("a.so:{PRELOAD}")), Some(format!("a.so:{PRELOAD}"))),
    ] {
        let pod = asking(json!([{"name": "a", "env": [{"name": "LD_PRELOAD", "value": value}]}]));
        let (made, ..) = made(&pod, false, Way::InitContainer);
        assert_eq!(env(&made["spec"]["containers"][0], "LD_PRELOAD"), expected.as_deref());
    }
    // The last of two counts. A variable without a value has none.
    let twice = json!([{"name": "LD_PRELOAD", "value": "a"}, {"name": "x"}, {"name": "LD_PRELOAD"}]);
    let (made, ..) = made(&asking(json!([{"name": "a", "env": twice}])), false, Way::InitContainer);
    assert_eq!(made["spec"]["containers"][0]["env"][0]["value"], "a");
    assert_eq!(made["spec"]["containers"][0]["env"][2]["value"], PRELOAD);
}

#[test]
fn containers_that_cannot_have_it_are_left_with_the_reason() {
    let from = json!({"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
    let containers = json!([
        {"name": "good"},
        {"name": "from", "env": [from]},
        {"name": "own", "env": [{"name": "LD_PRELOAD", "value": "/opt/weir/libweir.so.0"}]},
        {"name": "mount", "volumeMounts": [{"name": "v", "mountPath": "/weir/"}]},
        {"name": "below", "volumeMounts": [{"name": "v", "mountPath": "/weir/data"}]},
        {"name": "device", "volumeDevices": [{"name": "v", "devicePath": "/weir"}]},
        {"name": "near", "volumeMounts": [{"name": "v", "mountPath": "/weirdo"}]},
    ]);
    let (made, outcome, explanation) = made(&asking(containers.clone()), false, Way::InitContainer);
    assert_eq!(outcome, Outcome::Injected);
    for index in 1..6 {
        assert_eq!(made["spec"]["containers"][index], containers[index]);
    }
    assert_eq!(
        explanation,
        "preloaded in good, near; \
         left: from (its LD_PRELOAD comes from valueFrom, to which nothing can be added); \
         own (it preloads a Weir of its own); \
         mount (it mounts a volume of its own at /weir); below (it mounts a volume of its own at /weir); \
         device (it has a block device at /weir)"
    );
}

#[test]
fn a_pod_of_as_many_containers_as_may_be_is_well_the_second_time() {
    let containers: Vec<Value> = (0..MOST_CONTAINERS).map(|nth| json!({"name": format!("c{nth}")})).collect();
    let (once, outcome, explanation) = made(&asking(json!(containers)), false, Way::InitContainer);
    assert!(outcome == Outcome::Injected && explanation.ends_with(" ...") && explanation.len() == LONGEST);
    let (twice, outcome, _) = made(&once, false, Way::InitContainer);
    assert_eq!((outcome, twice == once), (Outcome::Unchanged, true));
}

#[test]
fn an_explanation_is_as_long_as_the_api_takes() {
    assert_eq!(cut("short".to_owned()), "short");
    for length in [LONGEST - 3, LONGEST, LONGEST + 1, 4 * LONGEST] {
        let (line, wide) = ("x".repeat(length), "\u{e9}".repeat(length));
        assert!(cut(line.clone()).len() <= LONGEST && cut(wide).len() <= LONGEST);
        assert_eq!(cut(line.clone()) == line, length <= LONGEST);
    }
    assert!(cut("x".repeat(2000)).ends_with("x ..."));
}

#[test]
fn annotations_are_added_where_there_is_room() {
    let ours = EXPLANATION.len() + "preloaded in a".len() + EVICTABLE.len() + VOLUME.len();
    for (bytes, has_room) in [(ANNOTATIONS - ours, true), (ANNOTATIONS - ours + 1, false)] {
        let pod = pod(json!({LABEL: "true"}), json!({"name": "x".repeat(bytes - 4)}), json!([{"name": "a"}]));
        let (made_once, outcome, _) = made(&pod, false, Way::InitContainer);
        let annotations = typed(&made_once).metadata.annotations.unwrap();
        assert_eq!((outcome, annotations.len()), (Outcome::Injected, if has_room { 3 } else { 1 }));
        assert!(annotations.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= ANNOTATIONS);
        assert_eq!(made(&made_once, false, Way::InitContainer).1, Outcome::Unchanged);
    }
}

#[test]
fn pods_that_cannot_have_it_get_an_explanation_alone() {
    let base = asking(json!([{"name": "a"}]));
    for (path, value, reason) in [
        ("/os", json!({"name": "windows"}), "it is not for Linux"),
        ("/nodeSelector", json!({"kubernetes.io/os": "windows"}), "it is not for Linux"),
        ("/volumes", json!([{"name": VOLUME, "hostPath": {"path": "/x"}}]), "it has a volume weir-library of its own"),
        ("/initContainers", json!([{"name": VOLUME}]), "it has a container weir-library of its own"),
        ("/containers", json!([{"name": VOLUME}]), "it has a container weir-library of its own"),
        ("/containers", json!(vec![json!({"name": "a"}); 501]), "it has more than 500 containers"),
        (
            "/containers",
            json!([{"name": "a", "env": [{"name": "LD_PRELOAD", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}]),
            "a (its LD_PRELOAD comes from valueFrom, to which nothing can be added)",
        ),
    ] {
        let mut pod = base.clone();
        pod["spec"][&path[1..]] = value;
        let (made, outcome, explanation) = made(&pod, false, Way::InitContainer);
        assert_eq!((outcome, explanation), (Outcome::Left, format!("left as it is: {reason}")));
        assert_eq!(made["spec"], pod["spec"]);
    }
    let mirror = pod(json!({LABEL: "true"}), json!({"kubernetes.io/config.mirror": "x"}), json!([{"name": "a"}]));
    assert_eq!(made(&mirror, true, Way::InitContainer), (mirror.clone(), Outcome::Unchanged, String::new()));
}

#[test]
fn a_pod_s_system_is_told_by_all_that_chooses_it() {
    let on = |terms: Value| {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let term = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let windows = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
    let (os, zone) = ("kubernetes.io/os", term("zone", "In", &["a"]));
    let of_windows = term(os, "In", &["windows"]);
    let wished = json!({"weight": 1, "preference": of_windows});
    for (spec, is_linux) in [
        (json!({}), true),
        (json!({"os": {"name": "linux"}, "nodeSelector": {os: "windows"}}), true),
        (json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}), false),
        (json!({"nodeSelector": {"beta.kubernetes.io/os": "linux", os: "linux"}}), true),
        (on(json!([of_windows])), false),
        (on(json!([term("beta.kubernetes.io/os", "NotIn", &["linux"])])), false),
        (on(json!([term(os, "NotIn", &["windows"])])), true),
        (on(json!([term(os, "In", &["linux", "windows"])])), true),
        (on(json!([term(os, "Exists", &[])])), true),
        // One of the terms is enough.
        (on(json!([of_windows, zone])), true),
        (on(json!([of_windows, of_windows])), false),
        (on(json!([{"matchExpressions": [zone["matchExpressions"][0], of_windows["matchExpressions"][0]]}])), false),
        // A wish is no condition.
        (json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wished]}}}), true),
        (json!({"securityContext": windows}), false),
        (json!({"securityContext": {"windowsOptions": {}}}), true),
        (json!({"securityContext": windows, "nodeSelector": {os: "linux"}}), true),
        (json!({"containers": [{"name": "a"}, {"name": "b", "securityContext": windows}]}), false),
        (json!({"initContainers": [{"name": "i", "securityContext": windows}]}), false),
    ] {
        let mut pod = asking(json!([{"name": "a"}]));
        spec.as_object().unwrap().iter().for_each(|(field, value)| pod["spec"][field] = value.clone());
        let (_, outcome, explanation) = made(&pod, false, Way::InitContainer);
        assert_eq!(outcome == Outcome::Injected, is_linux, "{spec}: {explanation}");
        assert!(is_linux || explanation == "left as it is: it is not for Linux", "{spec}: {explanation}");
    }
}

#[test]
fn python_is_told_where_asked_and_not_yet_told() {
    let containers = json!([{"name": "a"}, {"name": "b", "env": [{"name": "PYTHONMALLOC", "value": "debug"}]}]);
    let asking = pod(json!({LABEL: "true"}), json!({PYTHON_MALLOC: "true"}), containers.clone());
    let (made_asking, ..) = made(&asking, false, Way::InitContainer);
    assert_eq!(env(&made_asking["spec"]["containers"][0], "PYTHONMALLOC"), Some("malloc"));
    assert_eq!(env(&made_asking["spec"]["containers"][1], "PYTHONMALLOC"), Some("debug"));
    let (not_asking, ..) = made(&super::tests::asking(containers), false, Way::InitContainer);
    assert_eq!(env(&not_asking["spec"]["containers"][0], "PYTHONMALLOC"), None);
}

#[test]
fn a_sidecar_that_came_later_is_added_by_the_second_call() {
    let (mut pod, ..) = made(&asking(json!([{"name": "a"}])), false, Way::InitContainer);
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "proxy"}));
    let init = pod["spec"]["initContainers"].as_array_mut().unwrap();
    init.insert(0, json!({"name": "early"}));
    init.push(json!({"name": "late", "restartPolicy": "Always"}));
    let (made, outcome, explanation) = made(&pod, false, Way::InitContainer);
    assert_eq!(outcome, Outcome::Injected);
    assert_eq!(explanation, "preloaded in late, a, proxy; left: early (it starts before the library is there)");
    assert_eq!(made["spec"]["initContainers"].as_array().unwrap().len(), 3);
    assert_eq!(made["spec"]["initContainers"][0], json!({"name": "early"}));
    assert_eq!(env(&made["spec"]["initContainers"][2], "LD_PRELOAD"), Some(PRELOAD));
    assert_eq!(env(&made["spec"]["containers"][1], "LD_PRELOAD"), Some(PRELOAD));
}

#[test]
fn a_node_is_not_kept_because_of_the_volume() {
    for (before, after) in [
        (json!({}), "weir-library"),
        (json!({EVICTABLE: ""}), "weir-library"),
        (json!({EVICTABLE: "a,b"}), "a,b,weir-library"),
        (json!({EVICTABLE: "weir-library,a"}), "weir-library,a"),
    ] {
        let pod = pod(json!({LABEL: "true"}), before, json!([{"name": "a"}]));
        assert_eq!(made(&pod, false, Way::InitContainer).0["metadata"]["annotations"][EVICTABLE], after);
    }
    let (with_image, ..) = made(&asking(json!([{"name": "a"}])), false, Way::ImageVolume);
    assert_eq!(with_image["metadata"]["annotations"].get(EVICTABLE), None);
}

#[test]
fn a_guaranteed_pod_stays_guaranteed() {
    let resources = json!({"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "2", "memory": "1Gi"}});
    let (made, ..) = made(&asking(json!([{"name": "a", "resources": resources}])), false, Way::InitContainer);
    let most = json!({"cpu": "50m", "memory": "32Mi"});
    assert_eq!(made["spec"]["initContainers"][0]["resources"], json!({"limits": most, "requests": most}));
}

/// Kubernetes counts the largest init container as long as the pod lives: it must not stand for what its containers had once.
#[test]
fn what_copies_the_library_asks_for_no_more_than_that_takes() {
    for (asked, expected) in [
        (json!({"limits": {"memory": "20Mi", "cpu": "0.01"}}), json!({"limits": {"memory": "20Mi", "cpu": "0.01"}})),
        (
            json!({"limits": {"memory": "33554432", "cpu": "50m"}}),
            json!({"limits": {"memory": "33554432", "cpu": "50m"}}),
        ),
        (
            json!({"requests": {"memory": "16Mi", "cpu": "0.1"}, "limits": {"memory": "33M", "ephemeral-storage": "1Gi"}}),
            json!({"requests": {"memory": "16Mi", "cpu": "50m"}, "limits": {"memory": "33M", "ephemeral-storage": "1Gi"}}),
        ),
        (json!({"limits": {"memory": "34M"}}), json!({"limits": {"memory": "32Mi"}})),
        // What is no quantity is for the API server to refuse.
        (json!({"limits": {"memory": "much"}}), json!({"limits": {"memory": "much"}})),
    ] {
        let (made, ..) = made(&asking(json!([{"name": "a", "resources": asked}])), false, Way::InitContainer);
        assert_eq!(made["spec"]["initContainers"][0]["resources"], expected);
    }
}

fn variable() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(json!({"value": ""})),
        Just(json!({"value": "/a.so /b.so"})),
        Just(json!({"value": PRELOAD})),
        Just(json!({"value": "/x/libweir.so.0"})),
        Just(json!({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})),
        Just(json!({})),
    ];
    (prop::sample::select(vec!["LD_PRELOAD", "PYTHONMALLOC", "PATH"]), value).prop_map(|(name, mut variable)| {
        variable["name"] = json!(name);
        variable
    })
}

fn some_container(names: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let mounts = prop::sample::select(vec!["/weir", "/weir/x", "/data", "/"])
        .prop_map(|path| json!({"name": "v", "mountPath": path}));
    (
        prop::sample::select(names),
        prop::option::of(prop::collection::vec(variable(), 0..4)),
        prop::option::of(prop::collection::vec(mounts, 0..3)),
        prop::option::of(Just(json!({"limits": {"memory": "64Mi", "a/b": "1"}}))),
        any::<bool>(),
    )
        .prop_map(|(name, env, mounts, resources, unknown)| {
            let mut container = json!({"name": name, "image": "i"});
            if unknown {
                container["fieldOfTomorrow"] = json!({"a": [1]});
            }
            for (field, value) in
                [("env", env.map(Value::from)), ("volumeMounts", mounts.map(Value::from)), ("resources", resources)]
            {
                if let Some(value) = value {
                    container[field] = value;
                }
            }
            container
        })
}

fn some_pod() -> impl Strategy<Value = Value> {
    let label = prop::option::of(prop::sample::select(vec!["true", "false", ""]));
    let containers = prop::collection::vec(some_container(vec!["a", "b", "weir-library"]), 0..4);
    let init = prop::option::of(prop::collection::vec(some_container(vec!["c", "d", "e", "weir-library"]), 0..4));
    let volumes = prop::option::of(prop::collection::vec(
        prop::sample::select(vec![
            json!({"name": "v", "emptyDir": {}}),
            json!({"name": VOLUME, "emptyDir": {}}),
            json!({"name": VOLUME, "hostPath": {"path": "/"}}),
            json!({"name": VOLUME, "image": {"reference": "weir:0"}}),
        ]),
        0..2,
    ));
    let python = prop::option::of(any::<bool>());
    (label, containers, init, volumes, python).prop_map(|(label, containers, init, volumes, python)| {
        let mut pod = json!({"metadata": {}, "spec": {"containers": containers, "fieldOfTomorrow": true}});
        if let Some(label) = label {
            pod["metadata"]["labels"] = json!({LABEL: label});
        }
        if let Some(python) = python {
            pod["metadata"]["annotations"] = json!({PYTHON_MALLOC: python.to_string()});
        }
        for (field, value) in [("initContainers", init.map(Value::from)), ("volumes", volumes.map(Value::from))] {
            if let Some(value) = value {
                pod["spec"][field] = value;
            }
        }
        pod
    })
}

/// Whether `after` is `before` with additions: members, elements, and libraries before others in LD_PRELOAD.
fn only_added(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let preload = before.get("name") == Some(&json!("LD_PRELOAD")) && !before.contains_key("mountPath");
            before.iter().all(|(name, value)| match after.get(name) {
                Some(now) if preload && name == "value" => {
                    now.as_str().zip(value.as_str()).is_some_and(|(now, value)| now.ends_with(value))
                }
                Some(now) => only_added(value, now),
                None => false,
            })
        }
        // In the order in which they were.
        (Value::Array(before), Value::Array(after)) => {
            let mut rest = after.iter();
            before.iter().all(|value| rest.any(|now| only_added(value, now)))
        }
        _ => before == after,
    }
}

proptest! {
    #[test]
    fn a_second_call_does_nothing(pod in some_pod(), namespace_asks: bool, image: bool, image_later: bool) {
        let way = |image| if image { Way::ImageVolume } else { Way::InitContainer };
        let (once, ..) = made(&pod, namespace_asks, way(image));
        let (twice, outcome, _) = made(&once, namespace_asks, way(image_later));
        prop_assert_eq!(outcome, Outcome::Unchanged);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn nothing_of_a_pod_is_taken_away(pod in some_pod(), namespace_asks: bool) {
        let (made, ..) = made(&pod, namespace_asks, Way::InitContainer);
        prop_assert!(only_added(&pod, &made), "{} {}", pod, made);
    }

    #[test]
    fn who_preloads_has_the_volume(pod in some_pod(), namespace_asks: bool) {
        let (made, outcome, _) = made(&pod, namespace_asks, Way::InitContainer);
        if outcome == Outcome::Injected {
            let spec = typed(&made).spec.unwrap();
            prop_assert_eq!(spec.volumes.iter().flatten().filter(|volume| volume.name == VOLUME).count(), 1);
        }
    }
}
