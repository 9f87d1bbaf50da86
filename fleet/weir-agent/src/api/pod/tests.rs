use super::*;
use serde_json::json;

const MIB: u64 = 1 << 20;

fn pod(class: &str, resources: serde_json::Value) -> Pod {
    let pod = json!({
        "metadata": {
            "name": "web-5d9f-x", "namespace": "shop", "uid": "u-1",
            "labels": {"pod-template-hash": "5d9f"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f", "uid": "r", "controller": true}
            ],
            "annotations": {
                RESIZE: "both", MERGE: "true",
                LOWERED_FROM: r#"{"app":{"request":1048576,"limit":2097152}}"#,
            },
        },
        "spec": {"containers": [{"name": "app", "resources": resources}]},
        "status": {
            "qosClass": class,
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no room"}],
            "containerStatuses": [{
                "name": "app", "containerID": "containerd://abc", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "resources": {"limits": {"memory": "64Mi"}},
            }],
        },
    });
    Pod::of(&serde_json::from_value(pod).unwrap())
}

#[test]
fn what_the_agent_goes_by_is_found() {
    let it = pod("Burstable", json!({"requests": {"memory": "32Mi", "cpu": "1"}, "limits": {"memory": "128Mi"}}));
    assert_eq!(it.owner, Some(("Deployment".into(), "web".into())));
    assert_eq!((it.resize.as_deref(), it.merge, it.is_fixed), (Some("both"), true, false));
    assert_eq!(it.lowered_from["app"].before, Held { request: Some(MIB), limit: Some(2 * MIB) });
    assert_eq!(it.obstacle.as_deref(), Some("Infeasible: no room"));
    let app = it.container("app").unwrap();
    assert_eq!(app.wanted, Held { request: Some(32 * MIB), limit: Some(128 * MIB) });
    assert_eq!(app.actual, Some(Held { request: None, limit: Some(64 * MIB) }));
    assert_eq!((app.id.as_deref(), app.restarts), (Some("abc"), false));
}

#[test]
fn a_pod_is_of_what_has_made_its_replica_set() {
    let owner = |kind: &str, name: &str, label: &str| {
        let owner = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "r", "controller": true});
        let pod = json!({"metadata": {"labels": {label: "5d9f"}, "ownerReferences": [owner]}});
        Pod::of(&serde_json::from_value(pod).unwrap()).owner.unwrap()
    };
    for (kind, name, label, expected) in [
        ("ReplicaSet", "web-5d9f", "pod-template-hash", ("Deployment", "web")),
        ("ReplicaSet", "web-5d9f", "rollouts-pod-template-hash", ("Rollout", "web")),
        ("ReplicaSet", "web-5d9f", "other", ("ReplicaSet", "web-5d9f")),
        ("StatefulSet", "web-5d9f", "pod-template-hash", ("StatefulSet", "web-5d9f")),
    ] {
        assert_eq!(owner(kind, name, label), (expected.0.to_owned(), expected.1.to_owned()), "{kind} {label}");
    }
}

#[test]
fn a_resize_keeps_the_class() {
    let limits = |request: &str| json!({"requests": {"memory": request}, "limits": {"memory": "128Mi"}});
    let holding = |class: &str, resources| {
        let it = pod(class, resources);
        it.holding(&it.containers[0], 100 * MIB - 5, 90 * MIB)
    };
    let held = |request: Option<u64>, limit: Option<u64>| {
        Some(Held { request: request.map(|mib| mib * MIB), limit: limit.map(|mib| mib * MIB) })
    };
    assert_eq!(holding("Guaranteed", limits("128Mi")), held(Some(100), Some(100)));
    // The pod's own resources make it guaranteed.
    assert_eq!(holding("Guaranteed", limits("32Mi")), held(Some(32), Some(100)));
    assert_eq!(holding("Burstable", limits("128Mi")), held(Some(90), Some(100)));
    assert_eq!(holding("Burstable", limits("32Mi")), held(Some(32), Some(100)));
    assert_eq!(holding("Burstable", json!({"requests": {"memory": "128Mi"}})), held(Some(100), None));
    // No whole MiB.
    let decimal = Some(Held { request: Some(50_000_000), limit: Some(100 * MIB) });
    assert_eq!(holding("Burstable", limits("50M")), decimal, "its request is not raised");
    // What needs the same all the time: its request would be its limit, or so once both are rounded.
    let it = pod("Burstable", limits("128Mi"));
    for usual in [100 * MIB, 100 * MIB - 9] {
        assert_eq!(it.holding(&it.containers[0], 100 * MIB - 5, usual), held(Some(99), Some(100)));
    }
    assert_eq!(holding("Burstable", json!({})), None, "another container of the pod has requests");
    assert_eq!(holding("BestEffort", json!({})), None);
}

#[test]
fn a_request_is_changed_below_the_limit_of_burstable_pods_alone() {
    let limits = |request: &str| json!({"requests": {"memory": request}, "limits": {"memory": "128Mi"}});
    let asking = |class: &str, resources, bytes, most| {
        let it = pod(class, resources);
        it.asking(&it.containers[0], bytes, most).map(|held| (held.request.unwrap() / MIB, held.limit.unwrap() / MIB))
    };
    assert_eq!(asking("Burstable", limits("32Mi"), 50 * MIB - 5, u64::MAX), Some((50, 128)));
    assert_eq!(asking("Burstable", limits("32Mi"), 50 * MIB, 40 * MIB), Some((40, 128)));
    assert_eq!(asking("Burstable", limits("32Mi"), 500 * MIB, u64::MAX), Some((127, 128)));
    // At most what it had, which was no whole MiB.
    let it = pod("Burstable", limits("32Mi"));
    let most = it.asking(&it.containers[0], 60 * MIB, 50_000_000);
    assert_eq!(most.and_then(|held| held.request), Some(50_000_000));
    assert_eq!(asking("Guaranteed", limits("128Mi"), 50 * MIB, u64::MAX), None);
    assert_eq!(asking("Burstable", json!({"requests": {"memory": "128Mi"}}), 50 * MIB, u64::MAX), None);
}

#[test]
fn what_it_held_before_is_known_until_somebody_else_changes_it() {
    let mut it = pod("Burstable", json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "128Mi"}}));
    let before = Held { request: Some(64 * MIB), limit: Some(512 * MIB) };
    for (ours, was, asked) in [(true, 128, 100), (true, 200, 128), (false, 200, 100)] {
        let noted = Noted { before, was: Some(was * MIB), asked: Some(asked * MIB), ..Noted::default() };
        it.lowered_from = [("app".to_owned(), noted)].into();
        let expected = if ours { before } else { it.containers[0].wanted };
        assert_eq!(it.before(&it.containers[0]), expected, "{noted:?}");
    }
    it.lowered_from.clear();
    assert_eq!(it.before(&it.containers[0]), it.containers[0].wanted);
}

#[test]
fn what_an_agent_knew_is_there_for_the_next_one() {
    let mut it = pod("Burstable", json!({"limits": {"memory": "128Mi"}}));
    it.lowered_from.clear();
    assert_eq!(it.past(&it.containers[0]), None, "it was never changed");
    // It holds 128 MiB: what it was lowered to, what it had before, what it was raised to above that, what another has set.
    for (before, was, asked, raises) in
        [(256, 256, 128, 2), (128, 128, 100, 3), (80, 80, 128, 3), (256, 256, 100, 2), (128, 128, 128, 2)]
    {
        let past = Past { raises: 2, growth: 7 };
        let before = Held { limit: Some(before * MIB), request: None };
        let noted = Noted { before, was: Some(was * MIB), asked: Some(asked * MIB), past, ..Noted::default() };
        it.lowered_from = [("app".to_owned(), noted)].into();
        assert_eq!(it.past(&it.containers[0]), Some(Past { raises, growth: 7 }));
    }
    // Of an agent before this one.
    let noted: Noted = serde_json::from_str(r#"{"limit": 9, "was": 9, "asked": 5}"#).expect("a note");
    assert_eq!((noted.asked, noted.past), (Some(5), Past::default()));
}

#[test]
fn what_was_killed_below_a_lowered_limit_gets_what_it_had() {
    let limits = |request: &str| json!({"requests": {"memory": request}, "limits": {"memory": "128Mi"}});
    let mut it = pod("Burstable", limits("32Mi"));
    let before = Held { request: Some(64 * MIB), limit: Some(512 * MIB) };
    let noted = |before| Noted { before, was: Some(512 * MIB), asked: Some(128 * MIB), ..Noted::default() };
    it.lowered_from = [("app".to_owned(), noted(before))].into();
    assert_eq!(it.restored(&it.containers[0], false), None, "it was not killed");
    assert_eq!(it.restored(&it.containers[0], true).and_then(|to| to.limit), before.limit, "it is off");
    it.containers[0].was_killed = true;
    let expected = Held { request: Some(32 * MIB), ..before };
    assert_eq!(it.restored(&it.containers[0], false), Some(expected), "for its request there may be no room");
    it.class = "Guaranteed".into();
    assert_eq!(it.restored(&it.containers[0], false), Some(before), "its request is its limit");
    it.class = "Burstable".into();
    it.lowered_from = [("app".to_owned(), noted(it.containers[0].wanted))].into();
    assert_eq!(it.restored(&it.containers[0], false), None, "the limit is its owner's");
    it.lowered_from.clear();
    assert_eq!(it.restored(&it.containers[0], false), None);
}

/// A container of that request and limit, in MiB, wanted and actual, of a pod that the agent has lowered.
fn raised(wanted: (u64, u64), actual: (u64, u64), obstacle: Option<&str>) -> Pod {
    let held = |(request, limit)| Held { request: Some(request * MIB), limit: Some(limit * MIB) };
    let mut it = pod("Burstable", json!({}));
    (it.containers[0].wanted, it.containers[0].actual) = (held(wanted), Some(held(actual)));
    let (was, asked, requested) = (Some(512 * MIB), Some(128 * MIB), Some(32 * MIB));
    let noted = Noted { before: held((64, 512)), was, asked, requested, ..Noted::default() };
    it.lowered_from = [("app".to_owned(), noted)].into();
    it.obstacle = obstacle.map(str::to_owned);
    it
}

#[test]
fn a_request_is_given_back_once_the_limit_is_there() {
    for (wanted, actual, expected) in [
        ((32, 512), (32, 512), Some(64)),
        ((32, 600), (32, 600), None), // another's limit
        ((32, 512), (32, 128), None),
        ((32, 128), (32, 128), None),
        ((64, 512), (32, 512), None), // asked for already
        ((40, 512), (40, 512), None), // another's request
    ] {
        let it = raised(wanted, actual, None);
        let given = it.given_back(&it.containers[0]);
        assert_eq!(given.and_then(|it| it.request), expected.map(|mib| mib * MIB), "{wanted:?} {actual:?}");
    }
}

#[test]
fn a_request_without_room_keeps_no_limit_from_being_raised() {
    for (wanted, actual, expected) in [
        ((64, 512), (32, 128), Some(32)),
        ((64, 512), (32, 512), Some(64)), // nothing waits but the request
        ((32, 512), (32, 128), Some(32)),
        ((64, 600), (32, 128), None), // another's limit
        ((32, 128), (64, 512), None), // it is lowered
    ] {
        let requests = |it: &Pod| it.deferred().first().map(|(_, to)| to.request.unwrap() / MIB);
        let deferred = raised(wanted, actual, Some("Deferred: no room"));
        assert_eq!(requests(&deferred), expected, "{wanted:?} {actual:?}");
        assert_eq!(requests(&raised(wanted, actual, None)), None, "its kubelet has not refused");
    }
    // Nor is it written again with the limit.
    let it = raised((64, 128), (32, 128), Some("Deferred: no room"));
    let expected = Held { request: Some(32 * MIB), limit: Some(512 * MIB) };
    assert_eq!(it.raising(&it.containers[0], 512 * MIB), Some(expected));
}

/// Such as on a node with swap, where no request changes.
#[test]
fn a_request_that_its_kubelet_can_never_follow_is_withdrawn() {
    let infeasible = |wanted, actual| raised(wanted, actual, Some("Infeasible: swap"));
    for (wanted, actual, expected) in [
        ((32, 512), (64, 512), Some(64)),
        ((96, 512), (64, 512), Some(64)),
        ((32, 128), (64, 512), None), // it is lowered: that is taken back as a whole
    ] {
        let it = infeasible(wanted, actual);
        let request = it.deferred().first().map(|(_, to)| to.request.unwrap() / MIB);
        assert_eq!(request, expected, "{wanted:?} {actual:?}");
    }
    let it = infeasible((32, 128), (64, 128));
    let expected = Held { request: Some(64 * MIB), limit: Some(512 * MIB) };
    assert_eq!(it.raising(&it.containers[0], 512 * MIB), Some(expected), "beside it the limit would not be raised");
    assert!(!infeasible((32, 512), (64, 512)).is_stuck());
    assert!(infeasible((32, 512), (64, 128)).is_stuck());
}

/// A guaranteed pod asks for as much as it may use, and a container without a limit for what it needs.
#[test]
fn a_raise_that_its_node_can_never_hold_is_withdrawn() {
    let held = |mib: u64| Held { request: Some(mib * MIB), limit: Some(mib * MIB) };
    let outsized = |before, wanted, actual, obstacle: &str| {
        let mut it = raised((wanted, wanted), (actual, actual), Some(obstacle));
        it.class = "Guaranteed".into();
        let noted =
            Noted { before: held(before), was: Some(actual * MIB), asked: Some(wanted * MIB), ..Noted::default() };
        it.lowered_from = [("app".to_owned(), noted)].into();
        it
    };
    for (before, wanted, actual, obstacle, expected) in [
        (100, 150, 100, "Infeasible: no room", 100),
        (100, 150, 120, "Infeasible: no room", 120), // raised before
        (100, 150, 80, "Infeasible: no room", 100),
        (100, 100, 80, "Infeasible: no room", 100), // it had that, and asks for no more
        (100, 150, 100, "Deferred: no room", 150),  // there may be room later
    ] {
        let it = outsized(before, wanted, actual, obstacle);
        let instead: Vec<Held> = it.deferred().into_iter().map(|(_, to)| to).collect();
        assert_eq!(instead, [held(expected)], "{before} {wanted} {actual} {obstacle}");
    }
    // What else its kubelet cannot do is no word on its size.
    for (obstacle, expected) in [
        ("Infeasible: Node didn't have enough capacity: memory, requested: 2, capacity: 1", true),
        ("Infeasible: Node didn't have enough capacity: cpu, requested: 2, capacity: 1", false),
        ("Infeasible: Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"", false),
        ("Deferred: Node didn't have enough resource: memory", false),
    ] {
        let mut it = outsized(100, 150, 100, obstacle);
        assert_eq!(it.is_too_large(&it.containers[0]), expected, "{obstacle}");
        let other =
            Container { name: "other".into(), wanted: held(200), actual: Some(held(100)), ..Default::default() };
        it.containers.push(other);
        assert!(!it.is_too_large(&it.containers[0]), "another asks at the same time: {obstacle}");
    }
    let it = outsized(100, 150, 100, "Infeasible: no room");
    assert!(!it.is_stuck());
    assert_eq!(it.without_waiting("other").collect::<Vec<_>>(), [("app", held(100))]);
    let mut it = outsized(100, 150, 100, "Infeasible: no room");
    it.class = "Burstable".into();
    let request = |mib: u64| Held { limit: None, ..held(mib) };
    (it.containers[0].wanted, it.containers[0].actual) = (request(150), Some(request(100)));
    assert_eq!(it.deferred().first().map(|(_, to)| *to), Some(request(100)));
}

#[test]
fn a_pod_is_stuck_where_more_waits_than_the_agent_s_requests() {
    for (wanted, actual, obstacle, expected) in [
        ((64, 512), (32, 512), Some("Deferred: no room"), false),
        ((64, 512), (32, 512), None, false),
        ((64, 600), (32, 600), Some("Deferred: no room"), true), // another's request
        ((32, 512), (32, 128), Some("Deferred: no room"), true),
        ((32, 512), (32, 512), Some("Infeasible: its CPU"), true),
    ] {
        assert_eq!(raised(wanted, actual, obstacle).is_stuck(), expected, "{wanted:?} {actual:?} {obstacle:?}");
    }
    // What waits for room of the container itself is not asked for again as it is lowered.
    let it = raised((64, 512), (32, 512), Some("Deferred: no room"));
    let held = it.holding(&it.containers[0], 100 * MIB, 90 * MIB).unwrap();
    assert_eq!(held, Held { request: Some(32 * MIB), limit: Some(100 * MIB) });
    assert_eq!(
        it.without_waiting("other").collect::<Vec<_>>(),
        [("app", Held { request: Some(32 * MIB), limit: Some(512 * MIB) })]
    );
    assert_eq!(it.without_waiting("app").count(), 0);
}

#[test]
fn containers_that_are_not_changed_are_known_by_name() {
    let status = |name: &str, id: &str| {
        json!({"name": name, "image": "", "imageID": "", "ready": true,
        "restartCount": 0, "containerID": id})
    };
    let pod = json!({"metadata": {}, "status": {
        "initContainerStatuses": [status("proxy", "containerd://abc")],
        "ephemeralContainerStatuses": [status("debug", "cri-o://def")],
    }});
    let others = Pod::of(&serde_json::from_value(pod).unwrap()).others;
    assert_eq!(others, [("abc".to_owned(), "proxy".to_owned()), ("def".to_owned(), "debug".to_owned())].into());
}

#[test]
fn a_pod_that_has_ended_is_left_alone() {
    for (phase, expected) in [("Running", false), ("Succeeded", true), ("Failed", true)] {
        let pod = json!({"metadata": {}, "status": {"phase": phase}});
        assert_eq!(Pod::of(&serde_json::from_value(pod).unwrap()).is_fixed, expected, "{phase}");
    }
}

#[test]
fn what_was_said_of_an_earlier_spec_is_no_obstacle() {
    let obstacle = |generation, observed| {
        let condition = json!({"type": "PodResizePending", "status": "True", "reason": "Deferred",
            "observedGeneration": observed});
        let pod = json!({"metadata": {"generation": generation}, "status": {"conditions": [condition]}});
        Pod::of(&serde_json::from_value(pod).unwrap()).obstacle
    };
    assert_eq!(obstacle(3, 2), None);
    assert!(obstacle(3, 3).is_some());
}

#[test]
fn how_a_container_ended_last_is_found() {
    let was_killed = |state, last_state| {
        let status = json!({"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": state, "lastState": last_state});
        container(&v1::Container::default(), Some(&serde_json::from_value(status).unwrap())).was_killed
    };
    let ended = |reason: &str| json!({"terminated": {"exitCode": 137, "reason": reason}});
    assert!(was_killed(json!({"running": {}}), ended("OOMKilled")));
    assert!(was_killed(ended("OOMKilled"), json!({})), "it waits to be started again");
    assert!(!was_killed(ended("Error"), ended("OOMKilled")), "the last end counts");
    assert!(!was_killed(json!({"running": {}}), json!({})));
}

#[test]
fn what_would_be_restarted_or_is_another_s_is_left_alone() {
    let mut it = pod("Guaranteed", json!({"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}}));
    it.containers[0].restarts = true;
    assert_eq!(it.holding(&it.containers[0], MIB, MIB), None);
    it.containers[0].restarts = false;
    it.is_fixed = true;
    assert_eq!(it.holding(&it.containers[0], MIB, MIB), None);
}
