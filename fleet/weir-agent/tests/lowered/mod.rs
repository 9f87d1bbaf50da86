//! What an agent finds that another one has lowered.

use super::fake::{self, Answer, BOUND, Fake, Kubelet, MIB, WEB};
use super::{BEFORE, FIRST, TO};
use serde_json::json;
use std::time::Duration;
use weir_agent::agent::Agent;
use weir_agent::api::pod::{Held, LOWERED_FROM, Noted, RESIZE};
use weir_agent::options::Options;

/// The containers' IDs.
const APP: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SIDE: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

#[tokio::test]
async fn what_was_killed_below_a_lowered_limit_gets_what_it_had_though_it_has_no_process() {
    // A request of its own window stays.
    for (more, expected) in [(&[][..], BEFORE), (&["--request-window", "10m"], Held { limit: BEFORE.limit, ..TO })] {
        let mut case = Lowered::new(more);
        case.fake.is_killed(0);
        case.until("it is restored", |it| it.fake.pod().containers[0].wanted == expected).await;
        assert_eq!(case.fake.pod().containers[1].wanted, TO, "the other was not killed");
    }
}

#[tokio::test]
async fn an_api_that_does_not_answer_is_asked_once_a_look() {
    let mut case = Lowered::new(&[]);
    [0, 1].iter().for_each(|&nth| case.fake.is_killed(nth));
    case.fake.state().answers.extend([Answer::Hangs; 2]);
    case.until("it is asked", |it| it.fake.state().answers.len() < 2).await;
    assert_eq!(case.fake.state().answers.len(), 1, "of two that were killed");
    case.fake.state().answers.clear();
    case.until("both are restored", |it| it.fake.pod().containers.iter().all(|it| it.wanted.limit == BEFORE.limit))
        .await;
}

/// The kubelet makes all of a pod's changes or none.
#[tokio::test]
async fn a_limit_is_raised_where_the_node_has_no_room_for_the_request() {
    let mut case = Lowered::new(&[]);
    case.fake.state().kubelet = Kubelet::Full;
    let has = |it: &Lowered, nth: usize| it.fake.pod().containers[nth].actual.unwrap();
    let free = Held { limit: BEFORE.limit, ..TO };
    case.fake.is_killed(0);
    case.until("it has its limit", |it| has(it, 0) == free).await;
    // Then its request is asked for, and waits.
    case.until("it is told", |it| it.agent.metrics.text().contains("outcome=\"deferred\"} 1\n")).await;
    assert_eq!((case.fake.pod().containers[0].wanted, has(&case, 0)), (BEFORE, free));
    // So does the other's limit, until that request is withdrawn.
    case.fake.is_killed(1);
    case.until("the other has its limit", |it| has(it, 1) == free).await;
}

/// The agent with `off` has no right to do so.
#[tokio::test]
async fn a_pod_that_is_set_to_off_gets_what_it_had() {
    let mut case = Lowered::new(&[]);
    case.fake.state().unseen(|pod| pod["metadata"]["annotations"][RESIZE] = "off".into());
    case.until("it is given back", |it| it.fake.pod().containers.iter().all(|it| it.wanted == BEFORE)).await;
    let changes = case.fake.changed().len();
    for _ in 0..3 {
        case.agent.round().await.unwrap();
    }
    assert_eq!(case.fake.changed().len(), changes);
}

/// Such as what runs on another release's Weir.
#[tokio::test]
async fn what_cannot_be_read_is_raised_before_the_kernel_kills() {
    let mut case = Lowered::new(&[]);
    case.charge(50 * MIB);
    case.until("pods are known", |it| it.agent.metrics.text().contains("weir_agent_api_up 1.0\n")).await;
    case.agent.round().await.unwrap();
    assert_eq!(case.fake.changed(), Vec::<String>::new(), "it is far from its limit");
    case.charge(96 * MIB);
    case.until("it is raised", |it| it.fake.pod().containers[0].wanted.limit == BEFORE.limit).await;
    assert_eq!(case.fake.pod().containers[1].wanted, TO);
    assert!(!case.agent.metrics.text().contains("container_needed_bytes{"), "it has no figures");
}

/// As on a node with swap.
#[tokio::test]
async fn a_request_that_the_kubelet_can_never_change_is_asked_for_once() {
    let mut case = Lowered::new(&[]);
    case.fake.state().kubelet = Kubelet::Swaps;
    case.fake.is_killed(0);
    let free = Held { limit: BEFORE.limit, ..TO };
    let has = |it: &Lowered| (it.fake.pod().containers[0].wanted, it.fake.pod().containers[0].actual.unwrap());
    // Its limit, then its request, which is withdrawn.
    case.until("it is withdrawn", |it| it.fake.changed().len() == 5 && has(it) == (free, free)).await;
    for _ in 0..5 {
        case.agent.round().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        (case.fake.changed(), has(&case)),
        (["/status", "/resize", "", "/resize", "/resize"].map(String::from).to_vec(), (free, free))
    );
    assert!(case.agent.metrics.text().contains("outcome=\"deferred\"} 1\n"));
}

/// As where `both` asks for more than the whole node has. No other could resize the pod, either.
#[tokio::test]
async fn a_raise_that_its_node_can_never_hold_is_taken_back() {
    let mut case = Lowered::new(&[]);
    let had = Held { request: BEFORE.limit, ..BEFORE };
    let noted = Noted { before: had, was: had.limit, asked: Some(384 * MIB), ..Noted::default() };
    let text = json!({"app": noted}).to_string();
    let resources = |memory: &str| json!({"requests": {"memory": memory}, "limits": {"memory": memory}});
    case.fake.state().unseen(|pod| {
        pod["metadata"]["annotations"][LOWERED_FROM] = text.into();
        pod["spec"]["containers"][0]["resources"] = resources("384Mi");
        pod["status"]["containerStatuses"][0]["resources"] = resources("256Mi");
        pod["status"]["qosClass"] = "Guaranteed".into();
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible",
            "message": "Node didn't have enough capacity: memory"}]);
    });
    case.until("it is taken back", |it| it.fake.pod().containers[0].wanted == had).await;
    for _ in 0..3 {
        case.agent.round().await.unwrap();
    }
    assert_eq!(case.fake.changed(), ["/resize"]);
    assert!(case.agent.metrics.text().contains("outcome=\"deferred\"} 1\n"));
}

/// A pod whose containers an agent has lowered, and the next agent, which has no group to look at.
pub struct Lowered {
    pub fake: Fake,
    pub agent: Agent,
    root: tempfile::TempDir,
}

impl Lowered {
    pub fn new(more: &[&str]) -> Self {
        let mut pod = fake::pod("Burstable", "256Mi", [APP, SIDE]);
        let low = json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "100Mi"}});
        let noted = json!({"app": FIRST, "side": FIRST}).to_string();
        pod["metadata"]["annotations"] = json!({LOWERED_FROM: noted});
        for nth in [0, 1] {
            pod["spec"]["containers"][nth]["resources"] = low.clone();
            pod["status"]["containerStatuses"][nth]["resources"] = low.clone();
        }
        let fake = Fake::with(WEB, pod);
        let root = tempfile::tempdir().unwrap(); // as of version 2, without a group
        std::fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
        let options =
            ["weir-agent", "--node", "n1", "--resize", "down", "--cgroup-root", root.path().to_str().unwrap()];
        let options = <Options as clap::Parser>::parse_from(options.iter().chain(more));
        let agent = Agent::new(options, Some(fake.client())).unwrap();
        Self { fake, agent, root }
    }

    /// Gives the first container's group a program that is not on Weir, such as one of another release, and so much charged.
    fn charge(&self, bytes: u64) {
        let group = self.root.path().join("kubepods/burstable/poduid-1").join(APP);
        std::fs::create_dir_all(&group).unwrap();
        for (name, text) in
            [("cgroup.procs", "1".into()), ("memory.max", "max".into()), ("memory.current", bytes.to_string())]
        {
            std::fs::write(group.join(name), text).unwrap();
        }
    }

    /// Looks until something is so.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let looking = async {
            while !is_so(self) {
                self.agent.round().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, looking).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"));
    }
}
