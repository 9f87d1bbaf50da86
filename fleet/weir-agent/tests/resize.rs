//! Limits are changed against an API that refuses, hangs and vanishes: no pod's limit is lost, whatever it does.

mod fake;
mod lowered;
use fake::{Answer, BOUND, Fake, Kubelet, MIB, WEB, WhenKnown};
use lowered::Lowered;
use std::path::Path;
use std::time::Duration;
use weir_agent::api::pod::{Held, LOWERED_FROM, Noted, Pod};
use weir_agent::api::pods::Pods;
use weir_agent::resize::{Change, Outcome, Resizer};
use weir_policy::limits::Past;

/// A group without processes that uses little, as one of version 2.
fn group(charged: u64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in
        [("memory.max", "max".into()), ("memory.current", charged.to_string()), ("cgroup.procs", String::new())]
    {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

const BEFORE: Held = Held { request: Some(64 * MIB), limit: Some(256 * MIB) };
const TO: Held = Held { request: Some(32 * MIB), limit: Some(100 * MIB) };
/// What the agent knows of the container.
const PAST: Past = Past { raises: 3, growth: 5 * MIB };
/// What is noted of the first change, from one to the other.
const FIRST: Noted =
    Noted { before: BEFORE, was: BEFORE.limit, asked: TO.limit, requested: TO.request, kept: None, past: PAST };

struct Case {
    fake: Fake,
    resizer: Resizer,
    change: Change,
    _group: tempfile::TempDir,
}

impl Case {
    async fn new(charged: u64) -> Self {
        let fake = Fake::with(WEB, fake::pod("Burstable", "256Mi", ["a", "b"]));
        let group = group(charged);
        let resizer = Resizer { patience: BOUND, ..Resizer::new(fake.client(), fake.pods().await) };
        let (directory, from) = (group.path().to_owned(), vec![BEFORE]);
        let change = Change { uid: "uid-1".into(), container: "app".into(), directory, from, to: TO, past: PAST };
        Self { fake, resizer, change, _group: group }
    }

    /// The next change goes by what the container holds now, once the watch has told it.
    async fn goes_on(&mut self) {
        let wanted = self.held().0;
        let is_told = |pod: &Pod| (pod.containers[0].wanted == wanted).then_some(());
        self.resizer.pods.when("uid-1", BOUND, is_told).await.unwrap();
        self.change.from = vec![wanted];
    }

    fn answers(&self, answers: &[Answer]) {
        self.fake.state().answers.extend(answers);
    }

    async fn lower(&self) -> Outcome {
        self.resizer.lower(&self.change).await
    }

    fn held(&self) -> (Held, Option<Held>) {
        let pod = self.fake.pod();
        (pod.containers[0].wanted, pod.containers[0].actual)
    }

    fn noted(&self) -> Option<Noted> {
        self.fake.pod().lowered_from.get("app").copied()
    }
}

#[tokio::test]
async fn a_limit_is_lowered_after_it_was_noted_and_raised_to_what_it_was() {
    let mut case = Case::new(50 * MIB).await;
    assert_eq!(case.lower().await, Outcome::Lowered);
    assert_eq!((case.held(), case.fake.changed()), ((TO, Some(TO)), vec![String::new(), "/resize".into()]));
    assert_eq!(case.noted(), Some(FIRST));
    assert_eq!(case.fake.pod().containers[1].wanted, BEFORE, "the other container is as it was");
    // Again: what was there first stays noted.
    case.goes_on().await;
    case.change.to = Held { limit: Some(80 * MIB), ..TO };
    assert_eq!(case.lower().await, Outcome::Lowered);
    assert_eq!(case.noted(), Some(Noted { was: TO.limit, asked: Some(80 * MIB), kept: TO.request, ..FIRST }));
    case.goes_on().await;
    case.change.to = BEFORE;
    assert_eq!(case.resizer.raise(&case.change).await, Outcome::Raised);
    assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
}

/// Its pod's limit falls with its own, and more is charged to the pod than to its containers.
#[tokio::test]
async fn a_limit_is_not_lowered_to_what_its_pod_has_no_room_for() {
    for (beside, expected) in [(40 * MIB, "lowered"), (60 * MIB, "not_given")] {
        let mut case = Case::new(50 * MIB).await;
        let pod = case.change.directory.join("kubepods/podu");
        let own = pod.join("a".repeat(64));
        std::fs::create_dir_all(&own).unwrap();
        for (directory, charged) in [(&pod, 50 * MIB + beside), (&own, 50 * MIB)] {
            let files = [("memory.max", BEFORE.limit.unwrap()), ("memory.current", charged)];
            for (name, bytes) in files {
                std::fs::write(directory.join(name), bytes.to_string()).unwrap();
            }
            std::fs::write(directory.join("cgroup.procs"), "").unwrap();
        }
        case.change.directory = own;
        assert_eq!(case.lower().await.name(), expected);
    }
}

#[tokio::test]
async fn a_request_is_changed_without_asking_anybody_for_memory() {
    // More is charged than the limit would be lowered to: that does not matter.
    let mut case = Case::new(250 * MIB).await;
    for mib in [32, 100] {
        case.goes_on().await;
        case.change.to = Held { request: Some(mib * MIB), ..BEFORE };
        assert_eq!(case.resizer.request(&case.change).await, Outcome::Requested);
        assert_eq!(case.held().0, case.change.to);
        assert_eq!(
            case.noted(),
            Some(Noted { before: BEFORE, was: BEFORE.limit, asked: BEFORE.limit, past: PAST, ..Noted::default() })
        );
        // Noted once.
        case.change.past.growth += 1;
    }
    assert_eq!(case.fake.changed(), ["", "/resize", "/resize"], "what was there first is noted once");
    case.goes_on().await;
    case.change.to = BEFORE;
    case.answers(&[Answer::Refused(422)]);
    assert!(matches!(case.resizer.request(&case.change).await, Outcome::Refused(_)));
    assert_eq!(case.held().0.request, Some(100 * MIB));
}

#[tokio::test]
async fn what_another_has_set_is_not_overwritten_by_more() {
    for is_request in [true, false] {
        let mut case = Case::new(50 * MIB).await;
        assert_eq!(case.lower().await, Outcome::Lowered);
        case.goes_on().await;
        // The watch has not told it.
        case.fake.state().another_changes("90Mi");
        let outcome = if is_request {
            case.change.to = Held { request: Some(40 * MIB), ..TO };
            case.resizer.request(&case.change).await
        } else {
            case.change.to = BEFORE;
            case.resizer.raise(&case.change).await
        };
        assert_eq!(outcome, Outcome::Refused("changed by another".into()));
        assert_eq!(case.held().0, Held { limit: Some(90 * MIB), ..TO });
    }
    // What changes the pod and not what the container holds is no matter.
    let mut case = Case::new(50 * MIB).await;
    assert_eq!(case.lower().await, Outcome::Lowered);
    case.goes_on().await;
    case.fake.state().unseen(|pod| pod["status"]["message"] = "x".into());
    case.change.to = BEFORE;
    assert_eq!(case.resizer.raise(&case.change).await, Outcome::Raised);
    assert_eq!(case.held().0, BEFORE);
}

#[tokio::test]
async fn what_was_noted_of_another_container_is_not_lost_where_the_watch_is_late() {
    let case = Case::new(50 * MIB).await;
    let json = serde_json::json!({"side": FIRST}).to_string();
    case.fake.state().unseen(|pod| pod["metadata"]["annotations"] = serde_json::json!({LOWERED_FROM: json}));
    assert_eq!(case.lower().await, Outcome::Lowered);
    assert_eq!(case.fake.pod().lowered_from.get("side"), Some(&FIRST));
    assert_eq!(case.noted().map(|noted| noted.before), Some(BEFORE));
}

#[tokio::test]
async fn a_raise_is_known_also_after_the_request_was_given_back() {
    let mut case = Case::new(50 * MIB).await;
    assert_eq!(case.lower().await, Outcome::Lowered);
    case.goes_on().await;
    case.change.to = Held { limit: BEFORE.limit, ..TO };
    assert_eq!(case.resizer.raise(&case.change).await, Outcome::Raised);
    let past = |case: &Case| case.fake.pod().past(&case.fake.pod().containers[0]);
    let raised = Some(Past { raises: PAST.raises + 1, ..PAST });
    assert_eq!(past(&case), raised);
    case.goes_on().await;
    case.change.to = BEFORE;
    assert_eq!(case.resizer.request(&case.change).await, Outcome::Requested);
    assert_eq!((past(&case), case.noted().map(|noted| noted.past)), (raised, raised));
}

/// Such as for a quota.
#[tokio::test]
async fn a_request_that_the_api_refuses_is_not_asked_for_at_each_look() {
    let mut case = Lowered::new(&["--request-window", "10m"]);
    case.until("pods are known", |it| it.agent.metrics.text().contains("weir_agent_api_up 1.0\n")).await;
    let pod = case.fake.pod();
    let to = Held { request: Some(64 * MIB), ..TO };
    let changes = [0, 1].map(|nth| Change::of(&pod, &pod.containers[nth], to));
    case.fake.state().answers.extend([Answer::Refused(403); 2]);
    for change in [&changes[0], &changes[0], &changes[1]] {
        case.agent.request(change.clone(), Path::new(""), &pod).await;
    }
    assert_eq!(case.fake.state().answers.len(), 0, "the other container's is another");
    assert!(case.agent.metrics.text().contains("outcome=\"refused\"} 2\n"), "{}", case.agent.metrics.text());
    assert_eq!(case.fake.changed(), Vec::<String>::new());
}

/// A LimitRange refuses falls alone.
#[tokio::test]
async fn a_refused_fall_keeps_no_rise_of_the_request_waiting() {
    let mut case = Lowered::new(&["--request-window", "10m"]);
    case.until("pods are known", |it| it.agent.metrics.text().contains("weir_agent_api_up 1.0\n")).await;
    let pod = case.fake.pod();
    case.fake.state().answers.push_back(Answer::Refused(403));
    for request in [16 * MIB, 64 * MIB] {
        let to = Held { request: Some(request), ..TO };
        case.agent.request(Change::of(&pod, &pod.containers[0], to), Path::new(""), &pod).await;
    }
    let metrics = case.agent.metrics.text();
    assert!(metrics.contains("outcome=\"refused\"} 1\n") && !case.fake.changed().is_empty(), "{metrics}");
}

/// The kubelet makes all of a pod's changes or none.
#[tokio::test]
async fn a_limit_is_lowered_beside_a_request_that_waits_for_room() {
    let mut case = Case::new(50 * MIB).await;
    // The agent has raised the other's limit again, and its request as well, for which there is no room.
    let noted = Noted { was: TO.limit, asked: BEFORE.limit, ..FIRST };
    let json = serde_json::json!({"side": noted}).to_string();
    case.fake.state().unseen(|pod| {
        pod["metadata"]["annotations"] = serde_json::json!({LOWERED_FROM: json});
        pod["status"]["containerStatuses"][1]["resources"]["requests"]["memory"] = "32Mi".into();
        pod["status"]["conditions"] = serde_json::json!([
            {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room"}]);
    });
    case.fake.state().kubelet = Kubelet::Full;
    case.resizer.pods = case.fake.pods().await;
    assert!(!case.resizer.pods.get("uid-1").unwrap().is_stuck());
    assert_eq!(case.lower().await, Outcome::Lowered);
    assert_eq!(case.held(), (TO, Some(TO)));
    let free = Held { request: TO.request, ..BEFORE };
    let side = case.fake.pod().containers[1].clone();
    assert_eq!((side.wanted, side.actual), (free, Some(free)), "its request is withdrawn");
}

#[tokio::test]
async fn where_too_little_is_given_nothing_is_changed() {
    let case = Case::new(150 * MIB).await;
    let outcome = case.lower().await;
    assert!(matches!(&outcome, Outcome::NotGiven(why) if why.contains("the group has no process")), "{outcome:?}");
    assert_eq!((case.held(), case.fake.changed().len()), ((BEFORE, Some(BEFORE)), 1));
}

#[tokio::test]
async fn a_request_is_given_back_though_a_later_lowering_came_to_nothing() {
    let mut case = Case::new(50 * MIB).await;
    assert_eq!(case.lower().await, Outcome::Lowered);
    std::fs::write(case.change.directory.join("memory.current"), (90 * MIB).to_string()).unwrap();
    for mib in [80, 70] {
        case.goes_on().await;
        case.change.to = Held { request: Some(20 * MIB), limit: Some(mib * MIB) };
        let outcome = case.lower().await;
        assert!(matches!(outcome, Outcome::NotGiven(_)), "{outcome:?}");
        assert_eq!(case.held().0, TO);
    }
    // As the agent raises it: the limit first.
    case.goes_on().await;
    case.change.to = Held { limit: BEFORE.limit, ..TO };
    assert_eq!(case.resizer.raise(&case.change).await, Outcome::Raised);
    let given_back = |pod: Pod| pod.given_back(&pod.containers[0]);
    assert_eq!(given_back(case.fake.pod()), Some(BEFORE));
    // Not a request of another's.
    case.fake.state().unseen(|pod| pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "40Mi".into());
    assert_eq!(given_back(case.fake.pod()), None);
}

/// Such as a limit range whose least is more.
#[tokio::test]
async fn what_the_api_would_refuse_nobody_gives_memory_for() {
    // It uses more than it is to have: who is asked cannot give that.
    let case = Case::new(150 * MIB).await;
    case.fake.state().rehearsed = Some(403);
    assert_eq!(case.lower().await, Outcome::Refused("403 refused by the test".into()));
    assert_eq!((case.held(), case.fake.changed()), ((BEFORE, Some(BEFORE)), vec![]), "nothing is noted either");
}

#[tokio::test]
async fn what_the_api_refuses_changes_nothing() {
    for code in [403, 422] {
        for answers in [&[Answer::Refused(code)][..], &[Answer::Well, Answer::Refused(code)]] {
            let case = Case::new(50 * MIB).await;
            case.answers(answers);
            let outcome = case.lower().await;
            let why = format!("{code} refused by the test");
            assert_eq!(outcome, Outcome::Refused(why), "{answers:?}");
            assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
            // The next time it works.
            assert_eq!(case.lower().await, Outcome::Lowered);
        }
    }
}

#[tokio::test]
async fn what_changes_a_pod_and_not_what_is_wanted_is_no_matter() {
    let case = Case::new(50 * MIB).await;
    case.answers(&[Answer::Well, Answer::Refused(409)]);
    assert_eq!(case.lower().await, Outcome::Lowered, "it is tried again");
    // Until it was tried often enough.
    let case = Case::new(50 * MIB).await;
    case.answers(&[Answer::Well]);
    case.answers(&[Answer::Refused(409); 6]);
    assert_eq!(case.lower().await, Outcome::Refused("409 refused by the test".into()));
    assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
}

#[tokio::test]
async fn what_another_changes_while_memory_is_given_stays() {
    let case = Case::new(50 * MIB).await;
    case.fake.state().another_changes("512Mi");
    assert_eq!(case.lower().await, Outcome::Refused("changed by another".into()));
    assert_eq!(case.held().0.limit, Some(512 * MIB));
}

#[tokio::test]
async fn what_another_changes_while_the_kubelet_is_waited_for_stays() {
    for is_told in [true, false] {
        let mut case = Case::new(50 * MIB).await;
        case.resizer.patience = Duration::from_secs(1);
        case.fake.state().kubelet = Kubelet::Silent;
        let changes = async {
            while !case.fake.changed().contains(&"/resize".into()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            case.fake.state().another_changes("512Mi");
            if is_told {
                case.fake.is_ready(1, true);
            }
        };
        let (outcome, ()) = tokio::join!(case.lower(), changes);
        assert_eq!(outcome, Outcome::Refused("changed by another".into()));
        assert_eq!(case.held().0.limit, Some(512 * MIB));
    }
}

#[tokio::test]
async fn what_the_kubelet_refuses_is_taken_back() {
    let case = Case::new(50 * MIB).await;
    case.fake.state().kubelet = Kubelet::Refuses;
    let outcome = case.lower().await;
    assert!(matches!(&outcome, Outcome::TakenBack(why) if why.contains("below its usage")), "{outcome:?}");
    assert_eq!((case.held(), case.fake.changed().len()), ((BEFORE, Some(BEFORE)), 3));
}

#[tokio::test]
async fn what_the_kubelet_does_not_do_in_time_is_taken_back() {
    let mut case = Case::new(50 * MIB).await;
    case.resizer.patience = Duration::from_millis(50);
    case.fake.state().kubelet = Kubelet::Silent;
    let outcome = case.lower().await;
    assert!(matches!(&outcome, Outcome::TakenBack(why) if why.contains("has not done it")), "{outcome:?}");
    assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
}

/// A kubelet takes its time, and goes by what was used some time before.
#[tokio::test]
async fn what_a_container_outgrows_before_the_kubelet_does_it_is_taken_back() {
    let case = Case::new(50 * MIB).await;
    case.fake.state().kubelet = Kubelet::Silent;
    let grows = async {
        while !case.fake.changed().contains(&"/resize".into()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::write(case.change.directory.join("memory.current"), (101 * MIB).to_string()).unwrap();
    };
    let (outcome, ()) = tokio::join!(case.lower(), grows);
    assert_eq!(outcome, Outcome::TakenBack("it uses 105906176 bytes meanwhile".into()));
    assert_eq!(case.held().0, BEFORE);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_no_limit_that_is_lost() {
    // The request arrived, and was carried out; it is taken back as nobody knows.
    let case = Case::new(50 * MIB).await;
    case.answers(&[Answer::Well, Answer::MadeAndVanishes]);
    assert!(matches!(case.lower().await, Outcome::TakenBack(_)));
    assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
    // It arrived, was not carried out, and the API is gone: it is settled when the API is back.
    let case = Case::new(50 * MIB).await;
    case.fake.state().kubelet = Kubelet::Silent;
    case.answers(&[Answer::Well, Answer::MadeAndVanishes, Answer::Vanishes]);
    assert!(matches!(case.lower().await, Outcome::Unknown(_)));
    assert_eq!(case.held(), (TO, Some(BEFORE)));
    case.resizer.pods.when("uid-1", BOUND, |pod| (pod.containers[0].wanted == TO).then_some(())).await.unwrap();
    let pod = case.resizer.pods.get("uid-1").unwrap();
    assert!(matches!(case.resizer.settle(&pod).await, Some(Outcome::TakenBack(_))));
    assert_eq!(case.held(), (BEFORE, Some(BEFORE)));
}

#[tokio::test]
async fn an_agent_that_is_killed_between_any_two_steps_leaves_nothing_that_the_next_one_does_not_find() {
    use Answer::{Hangs, MadeAndHangs, Well};
    for is_silent in [false, true] {
        for answers in [&[Hangs][..], &[MadeAndHangs], &[Well, Hangs], &[Well, MadeAndHangs]] {
            let case = Case::new(50 * MIB).await;
            if is_silent {
                case.fake.state().kubelet = Kubelet::Silent;
            }
            case.answers(answers);
            let (resizer, change) = (case.resizer.clone(), case.change.clone());
            let lowering = tokio::spawn(async move { resizer.lower(&change).await });
            let reached = async {
                while !case.fake.state().answers.is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(BOUND, reached).await.unwrap();
            lowering.abort();
            let _ = lowering.await;
            // Another agent, which knows nothing but what the API says.
            let pods = Pods::of_node(case.fake.client(), "n1");
            pods.when_known("uid-1").await;
            let next = Resizer::new(case.fake.client(), std::sync::Arc::new(pods));
            let _ = next.settle(&next.pods.get("uid-1").unwrap()).await;
            let (wanted, actual) = case.held();
            assert_eq!(Some(wanted), actual, "{answers:?}: what is wanted is what is");
            assert!([BEFORE, TO].contains(&wanted), "{wanted:?}");
            let noted = case.noted().map(|noted| noted.before);
            assert!(wanted == BEFORE || noted == Some(BEFORE), "{answers:?}: what it was is known: {noted:?}");
        }
    }
}

#[tokio::test]
async fn what_somebody_else_asked_for_is_not_taken_back() {
    let mut case = Case::new(50 * MIB).await;
    assert_eq!(case.lower().await, Outcome::Lowered);
    case.fake.state().kubelet = Kubelet::Silent;
    case.goes_on().await;
    let mut theirs = case.change.clone();
    theirs.to.limit = Some(90 * MIB);
    assert_eq!(case.resizer.raise(&theirs).await, Outcome::Raised, "by the same call, but not noted");
    let is_known = |pod: &Pod| (pod.containers[0].wanted == theirs.to).then_some(());
    case.resizer.pods.when("uid-1", BOUND, is_known).await.unwrap();
    assert_eq!(case.resizer.settle(&case.fake.pod()).await, None);
    assert_eq!(case.held().0.limit, Some(90 * MIB));
}

/// A look takes its time. What ends meanwhile was on its way when the look began.
#[tokio::test]
async fn a_lowering_that_ends_during_a_look_is_not_taken_back() {
    let case = Case::new(50 * MIB).await;
    case.fake.state().kubelet = Kubelet::Silent;
    let looks = async {
        let is_asked = |pod: &Pod| (pod.containers[0].wanted == TO).then(|| pod.clone());
        let seen = case.resizer.pods.when("uid-1", BOUND, is_asked).await.unwrap();
        case.fake.is_made(0);
        seen
    };
    let (outcome, seen) = tokio::join!(case.lower(), looks);
    assert_eq!(outcome, Outcome::Lowered);
    assert_eq!(seen.containers[0].actual, Some(BEFORE), "it was on its way");
    assert_eq!(case.resizer.settle(&seen).await, None);
    assert_eq!(case.held(), (TO, Some(TO)));
}

#[tokio::test]
async fn pods_stay_known_while_the_api_is_gone() {
    let fake = Fake::with(WEB, fake::pod("Burstable", "256Mi", ["a", "b"]));
    let pods = fake.pods().await;
    fake.state().is_up = false;
    fake.state().forget_watchers();
    let told = async {
        while pods.trouble().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, told).await.unwrap();
    assert_eq!(pods.all().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_keeps_the_agent_waiting_for_pods_is_told() {
    let fake = Fake::with(WEB, fake::pod("Burstable", "256Mi", ["a", "b"]));
    fake.state().hanging = Some(0);
    let pods = Pods::of_node(fake.client(), "n1");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(pods.trouble().as_deref(), Some("pods are not to be had from the API: no answer for 5 s"));
    // One that has answered once, and keeps it waiting for the next list.
    fake.state().hanging = None;
    let pods = fake.pods().await;
    assert!(pods.is_up());
    (fake.state().is_up, fake.state().hanging) = (false, Some(0));
    fake.state().forget_watchers();
    tokio::time::sleep(Duration::from_secs(60)).await;
    fake.state().is_up = true;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fake.state().hanging > Some(0) && !pods.is_up(), "{:?}", pods.trouble());
}

#[tokio::test]
async fn an_api_that_has_never_answered_is_not_up() {
    let is_up = |it: &Lowered, up: u8| it.agent.metrics.text().contains(&format!("weir_agent_api_up {up}.0\n"));
    let mut case = Lowered::new(&[]);
    case.fake.state().hanging = Some(0);
    case.until("it is asked", |it| it.fake.state().hanging > Some(0)).await;
    case.agent.round().await.unwrap();
    assert!(is_up(&case, 0), "{}", case.agent.metrics.text());
    // One that answers is.
    let mut case = Lowered::new(&[]);
    case.until("it is up", |it| is_up(it, 1)).await;
}
