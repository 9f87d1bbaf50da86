use super::*;
use crate::api::pod::Held;
use crate::machine::figures::Figures;
use crate::machine::groups::{Charge, Group};
use clap::Parser;
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use std::io;
use std::path::Path;
use weir_policy::limits::Wish;

const GROUP: &str = "group";

/// One without groups, processes and an API.
fn alone(more: &[&str]) -> (Agent, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
    let options = "weir-agent --node n1 --resize down --window 10m --period 1s --cgroup-root".split(' ');
    let options = Options::parse_from(options.chain(root.path().to_str()).chain(more.iter().copied()));
    let refuses = |_: http::Request<Body>| async {
        Err::<http::Response<Full<Bytes>>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
    };
    let mut agent = Agent::new(options, Some(Client::new(tower::service_fn(refuses), "default"))).unwrap();
    agent.watched.insert(GROUP.into(), Watched::new(&agent.rules, Duration::ZERO));
    (agent, root)
}

#[tokio::test]
async fn a_raise_that_was_not_made_makes_no_lowering_wait() {
    let (mut agent, _root) = alone(&[]);
    let held = Held { request: None, limit: Some(1000 << 20) };
    let container = Container { name: "app".into(), wanted: held, ..Container::default() };
    let pod = Pod { uid: "u".into(), containers: vec![container], ..Pod::default() };
    for _ in 0..3 {
        agent.raise(Change::of(&pod, &pod.containers[0], held), Path::new(GROUP), &pod).await;
    }
    assert!(agent.metrics.text().contains("outcome=\"gone\"} 3"));
    let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
    let sample = Sample { needed: 10 << 20, charged: 10 << 20, held: held.limit, stall: 0.0 };
    for second in [0, 600] {
        watched.note(Duration::from_secs(second), sample);
    }
    let wish = watched.wish(&agent.rules, 1000 << 20, None, 1000 << 20, false);
    assert!(matches!(wish, Some(Wish::Lower(_))), "{wish:?}");
}

#[tokio::test]
async fn a_request_follows_its_window_where_the_limit_may_not_be_lowered() {
    let (mut agent, _root) = alone(&["--request-window", "2m"]);
    let held = Held { request: Some(100 << 20), limit: Some(1000 << 20) };
    let ready = Container { name: "app".into(), wanted: held, is_ready: true, ..Container::default() };
    let killed = Container { was_killed: true, ..ready.clone() };
    let pod = Pod { class: "Burstable".into(), ..Pod::default() };
    let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
    for second in [0, 600] {
        let sample = Sample { needed: 20 << 20, charged: 20 << 20, held: held.limit, stall: 0.0 };
        watched.note(Duration::from_secs(second), sample);
    }
    let wish = |container: &Container, may_lower| agent.wish(Path::new(GROUP), &pod, container, may_lower);
    assert!(matches!(wish(&ready, true), Some((Wish::Lower(_), _))), "{:?}", wish(&ready, true));
    let request = Some((Wish::Request(32 << 20), Held { request: Some(32 << 20), ..held }));
    assert_eq!([wish(&ready, false), wish(&killed, true)], [request, request]);
}

#[tokio::test]
async fn what_a_kubelet_can_never_do_is_not_tried_again() {
    let (mut agent, _root) = alone(&["--request-window", "2m"]);
    let held = Held { request: Some(100 << 20), limit: Some(1000 << 20) };
    let ready = Container { name: "app".into(), wanted: held, is_ready: true, ..Container::default() };
    let of = |class: &str, held| {
        let container = Container { wanted: held, ..ready.clone() };
        Pod { uid: class.into(), class: class.into(), containers: vec![container], ..Pod::default() }
    };
    let pinned = of("Guaranteed", Held { request: held.limit, ..held });
    let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
    for second in [0, 600] {
        let sample = Sample { needed: 20 << 20, charged: 20 << 20, held: held.limit, stall: 0.0 };
        watched.note(Duration::from_secs(second), sample);
    }
    // On a node with swap the limit alone is tried next, and nothing on one that pins memory.
    let swaps = of("Burstable", held);
    for (pod, expected) in [(&swaps, &[(31, 32), (100, 101)][..]), (&pinned, &[(32, 32)])] {
        for (request, limit) in expected {
            let (wish, to) = agent.wish(Path::new(GROUP), pod, &pod.containers[0], true).unwrap();
            assert!(
                matches!(wish, Wish::Lower(_)) && to == Held { request: Some(request << 20), limit: Some(limit << 20) }
            );
            let (change, what) = (Change::of(pod, &pod.containers[0], to), String::new());
            let task = tokio::spawn(async { Outcome::TakenBack("Infeasible: by its node".into()) });
            agent.api.as_mut().unwrap().lowering = Some(Lowering { change, what, task });
            while agent.api.as_ref().unwrap().lowering.is_some() {
                agent.end_lowering().await;
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(agent.wish(Path::new(GROUP), pod, &pod.containers[0], true), None);
    }
}

#[tokio::test]
async fn of_what_a_node_can_never_hold_half_is_asked_for() {
    let (mut agent, _root) = alone(&[]);
    let held = Held { request: Some(1000 << 20), limit: Some(1000 << 20) };
    let container = Container { name: "app".into(), wanted: held, is_ready: true, ..Container::default() };
    let (class, resize) = ("Guaranteed".into(), Some("both".into()));
    let pod = Pod { class, resize, containers: vec![container], ..Pod::default() };
    let sample = Sample { needed: 960 << 20, charged: 960 << 20, held: held.limit, stall: 0.0 };
    agent.watched.get_mut(Path::new(GROUP)).unwrap().note(Duration::ZERO, sample);
    for (outsized, expected) in
        [(None, Some(1500)), (Some(1500), Some(1250)), (Some(1250), Some(1125)), (Some(1020), None)]
    {
        let noted = |mib: u64| ((String::new(), "app".to_owned()), (mib << 20, Instant::now()));
        agent.outsized.extend(outsized.map(noted));
        let to = agent.wish(Path::new(GROUP), &pod, &pod.containers[0], true).and_then(|(_, to)| to.limit);
        assert_eq!(to, expected.map(|mib: u64| mib << 20), "{outsized:?}");
    }
    let to = |agent: &Agent| agent.wish(Path::new(GROUP), &pod, &pod.containers[0], true).and_then(|(_, to)| to.limit);
    agent.outsized.values_mut().for_each(|(_, at)| *at -= OUTSIZED);
    assert_eq!(to(&agent), Some(1500 << 20), "all of it is tried again");
    // What was withdrawn for another reason waits for a while.
    agent.waiting.insert((String::new(), "app".into()), Instant::now());
    assert_eq!(to(&agent), None);
}

/// The kubelet says one thing of the whole pod.
#[tokio::test]
async fn of_a_pod_one_container_at_a_time_gets_more_room_of_its_node() {
    let (mut agent, _root) = alone(&[]);
    let held = |mib: u64| Held { request: Some(mib << 20), limit: Some(mib << 20) };
    let container = |name: &str| Container {
        name: name.into(),
        wanted: held(1000),
        actual: Some(held(1000)),
        ..Container::default()
    };
    let containers = vec![container("app"), container("side")];
    let pod = Pod { class: "Guaranteed".into(), resize: Some("both".into()), containers, ..Pod::default() };
    let sample = Sample { needed: 960 << 20, charged: 960 << 20, held: held(1000).limit, stall: 0.0 };
    agent.watched.get_mut(Path::new(GROUP)).unwrap().note(Duration::ZERO, sample);
    let raised = |agent: &Agent, pod: &Pod| agent.wish(Path::new(GROUP), pod, &pod.containers[0], true).is_some();
    assert!(raised(&agent, &pod));
    let mut waits = pod.clone();
    waits.containers[1].wanted = held(1500);
    assert!(!raised(&agent, &waits), "the other waits");
    let cpu = Pod { obstacle: Some("Infeasible: Node didn't have enough capacity: cpu".into()), ..pod.clone() };
    assert!(!raised(&agent, &cpu), "it would be in vain");
    agent.requested.insert(pod.uid.clone());
    assert!(!raised(&agent, &pod), "the other was raised at this look");
}

/// Its limit is far away, and its pod's is not.
#[test]
fn what_its_pod_has_no_room_for_beside_it_is_needed() {
    let group = Group { path: GROUP.into(), place: None, pids: Vec::new() };
    let charge = Charge { charged: 100, limit: Some(500), beside: 390, ..Charge::default() };
    let looked = Looked { group, figures: Figures::default(), charge, processes: Vec::new() };
    let sample = sample(&looked, None);
    assert_eq!((sample.needed, sample.charged, sample.held), (490, 490, Some(500)));
}

#[tokio::test]
async fn where_the_api_does_not_answer_of_one_pod_the_others_have_their_turn() {
    let (mut agent, _root) = alone(&[]);
    let asks = |agent: &Agent| ["one", "other"].map(|uid| agent.may_ask(uid));
    let unknown = Outcome::Unknown(String::new());
    agent.count(&unknown, "one", Instant::now());
    assert_eq!(asks(&agent), [true, true], "it failed at once");
    agent.count(&unknown, "one", Instant::now() - Duration::from_secs(10));
    assert_eq!(asks(&agent), [false, false]);
    agent.round().await.unwrap();
    assert_eq!(asks(&agent), [false, true]);
    agent.round().await.unwrap();
    assert_eq!(asks(&agent), [true, true]);
}

#[tokio::test]
async fn a_pause_is_no_window_that_was_calm() {
    let (mut agent, _root) = alone(&["--request-window", "8m"]);
    let sample = Sample { needed: 10 << 20, charged: 10 << 20, held: Some(1000 << 20), stall: 0.0 };
    let mut look_after = |seconds| {
        agent.looked_at -= Duration::from_secs(seconds);
        agent.note_time();
        let (now, rules) = (agent.watched_for, agent.rules);
        let watched = agent.watched.get_mut(Path::new(GROUP)).unwrap();
        watched.note(now, sample);
        (watched.is_known(), watched.wish(&rules, 1000 << 20, Some(1000 << 20), 1000 << 20, false))
    };
    assert_eq!(look_after(0), (false, None));
    assert_eq!(look_after(3600), (false, None), "paused for six windows");
    for _ in 0..19 {
        look_after(30);
    }
    let (is_known, wish) = look_after(30);
    assert!(is_known && matches!(wish, Some(Wish::Lower(_))), "watched for a window: {wish:?}");
}

#[tokio::test]
async fn a_group_that_is_not_seen_once_is_not_forgotten() {
    let (mut agent, _root) = alone(&[]);
    agent.round().await.unwrap();
    assert_eq!(agent.watched.len(), 1);
    agent.looked_at -= Duration::from_secs(60);
    agent.round().await.unwrap();
    assert_eq!(agent.watched.len(), 0);
}
