//! Recommendations reach the status of autoscalers, from several nodes.

mod fake;
use fake::{Answer, BOUND, Fake, MIB};
use serde_json::{Value, json};
use std::time::Duration;
use weir_agent::recommend::{Measured, OfPod, Recommender};
use weir_policy::limits::Recommendation;

const WEB: &str = "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers/web";

fn scaler() -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "recommenders": [{"name": "weir"}],
        },
    })
}

/// A pod that should get so many MiB, which was just started, or was watched for a window.
fn pod_of(mib: u64, is_known: bool) -> (String, (String, String), OfPod) {
    let recommended = Recommendation { lower: 10 * MIB, target: mib * MIB, upper: 900 * MIB };
    let measured = Measured { recommended, is_known };
    ("shop".into(), ("Deployment".into(), "web".into()), [("app".to_owned(), measured)].into())
}

fn pod(mib: u64) -> (String, (String, String), OfPod) {
    pod_of(mib, true)
}

const WINDOW: Duration = Duration::from_secs(3600);

fn recommender(fake: &Fake, node: &str) -> Recommender {
    Recommender::of_node(fake.client(), node, WINDOW)
}

fn target(fake: &Fake) -> u64 {
    let recommended = &fake.object(WEB)["status"]["recommendation"]["containerRecommendations"][0];
    recommended["target"]["memory"].as_str().unwrap().parse::<u64>().unwrap() / MIB
}

/// What a node says of itself in an annotation.
fn said(at: i64, known: i64, mib: u64) -> String {
    json!({"at": at, "containers": {"app": [1, mib * MIB, 900 * MIB]}, "known": {"app": known}}).to_string()
}

/// With these annotations.
fn saying(annotations: Value) -> Fake {
    let mut scaler = scaler();
    scaler["metadata"]["annotations"] = annotations;
    Fake::with(WEB, scaler)
}

/// Publishes until a status was written, or something was refused.
async fn publish(recommender: &Recommender, pods: &[(String, (String, String), OfPod)]) -> usize {
    let published = async {
        loop {
            let (written, refused) = recommender.publish(pods).await;
            if written + refused.len() > 0 {
                return written;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, published).await.expect("the objects are listed")
}

#[tokio::test]
async fn the_first_node_writes_the_most_of_all() {
    let fake = Fake::with(WEB, scaler());
    let first = recommender(&fake, "n1");
    assert_eq!(publish(&first, &[pod(100), pod(120)]).await, 1);
    assert_eq!(target(&fake), 120);
    // Another node says more; the first one hears it by its watch.
    let second = recommender(&fake, "n2");
    let said = async {
        while fake.object(WEB)["metadata"]["annotations"]["needs.weir.dev/n2"].is_null() {
            assert_eq!(second.publish(&[pod(300)]).await.0, 0, "the first node writes");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, said).await.unwrap();
    assert_eq!(publish(&first, &[pod(120)]).await, 1);
    assert_eq!(target(&fake), 300);
    assert_eq!(fake.object(WEB)["status"]["conditions"][0]["type"], "RecommendationProvided");
}

/// Nodes come and go, and an object may have so many annotations and no more.
#[tokio::test]
async fn what_nodes_said_that_are_gone_is_removed() {
    let now = jiff::Timestamp::now().as_second();
    let fake = saying(json!({
        "needs.weir.dev/a-gone": said(5, 5, 900), "needs.weir.dev/b-ahead": said(i64::MAX, i64::MIN, 900),
        "needs.weir.dev/there": said(now, now, 900), "own": "x",
    }));
    let first = recommender(&fake, "n1");
    assert_eq!(publish(&first, &[pod(100)]).await, 1);
    let object = fake.object(WEB);
    let names: Vec<&String> = object["metadata"]["annotations"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["needs.weir.dev/n1", "needs.weir.dev/there", "own"]);
}

/// The clock of one is an hour ahead: it would take all others for gone, and they it.
#[tokio::test]
async fn a_node_whose_clock_is_wrong_counts_as_long_as_it_is_heard() {
    let now = jiff::Timestamp::now().as_second();
    let fake = saying(json!({"needs.weir.dev/there": said(now, now, 90)}));
    let first = recommender(&fake, "n1");
    assert_eq!(publish(&first, &[pod(100)]).await, 1);
    let recommends = async |mib: u64| {
        let recommended = async {
            while target(&fake) != mib {
                assert!(first.publish(&[pod(100)]).await.1.is_empty());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, recommended).await.unwrap_or_else(|_| panic!("never {mib} MiB"));
    };
    for (at, mib) in [(now + 3600, 300), (now + 4200, 400)] {
        fake.annotate(WEB, "needs.weir.dev/wrong", &said(at, at, mib));
        recommends(mib).await;
    }
    assert_eq!(fake.object(WEB)["metadata"]["annotations"].as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn that_the_objects_cannot_be_listed_is_told() {
    let fake = Fake::with(WEB, scaler());
    fake.state().is_up = false;
    let recommender = recommender(&fake, "n1");
    let is_told = async |expected: bool| {
        let told = async {
            while recommender.trouble().is_some() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, told).await.expect("it is told");
    };
    is_told(true).await;
    fake.state().is_up = true;
    is_told(false).await;
    assert_eq!(publish(&recommender, &[pod(100)]).await, 1);
}

/// It goes on where it was, and what is known stays known.
#[tokio::test]
async fn a_watch_that_breaks_is_no_trouble() {
    let fake = Fake::with(WEB, scaler());
    let recommender = recommender(&fake, "n1");
    let watches = async || {
        while fake.state().watchers() == 0 {
            assert_eq!(recommender.trouble(), None);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, watches()).await.expect("it watches");
    fake.state().break_watchers();
    tokio::time::timeout(BOUND, watches()).await.expect("it watches again");
    assert_eq!(recommender.trouble(), None);
}

/// Where many nodes say something each says it again more rarely.
#[tokio::test]
async fn of_many_nodes_what_one_said_counts_for_longer() {
    let now = jiff::Timestamp::now().as_second();
    for (nodes, expected) in [(1, 100), (63, 500)] {
        let mut annotations = json!({"needs.weir.dev/old": said(now - 1900, now - 1900, 500)});
        for nth in 0..nodes {
            annotations[format!("needs.weir.dev/there-{nth}")] = said(now, now, 90).into();
        }
        let fake = saying(annotations);
        assert_eq!(publish(&recommender(&fake, "n1"), &[pod(100)]).await, 1);
        assert_eq!(target(&fake), expected, "{nodes} nodes");
    }
}

#[tokio::test]
async fn what_is_refused_is_told_and_tried_again() {
    let fake = Fake::with(WEB, scaler());
    let recommender = recommender(&fake, "n1");
    fake.state().answers.push_back(Answer::Refused(403));
    assert_eq!(publish(&recommender, &[pod(100)]).await, 0);
    assert_eq!(publish(&recommender, &[pod(100)]).await, 1);
}

/// An agent that was restarted has seen nothing, nor has one of a pod that was just started: its quiet hour is no peak.
#[tokio::test]
async fn what_was_known_stays_until_a_window_was_seen() {
    let now = jiff::Timestamp::now().as_second();
    let of_node = |known| saying(json!({"needs.weir.dev/n1": said(now - 60, known, 500)}));
    let (fresh, quiet) = (now - 120, pod_of(20, false));
    for (known, pods, expected) in [
        (fresh, &[quiet.clone()][..], 500),
        (fresh, &[], 500), // the pod has gone to another node
        (fresh, &[pod_of(600, false)], 600),
        (fresh, &[pod(20)], 20), // it was watched for a window
        (fresh, &[quiet.clone(), pod(30)], 30),
        (now - WINDOW.as_secs() as i64, &[quiet], 20), // that was true long ago
    ] {
        let fake = of_node(known);
        assert_eq!(publish(&recommender(&fake, "n1"), pods).await, 1);
        assert_eq!(target(&fake), expected, "{known} {pods:?}");
    }
}

#[tokio::test]
async fn what_a_node_knew_that_is_gone_the_first_one_says_on() {
    let now = jiff::Timestamp::now().as_second();
    let fake = saying(json!({"needs.weir.dev/gone": said(now - 1900, now - 1900, 500)}));
    let first = recommender(&fake, "n1");
    assert_eq!(publish(&first, &[pod_of(20, false)]).await, 1);
    assert_eq!(target(&fake), 500);
    let annotations = fake.object(WEB)["metadata"]["annotations"].clone();
    let says: Value = serde_json::from_str(annotations["needs.weir.dev/n1"].as_str().unwrap()).unwrap();
    assert_eq!((annotations.as_object().unwrap().len(), says["known"]["app"].as_i64()), (1, Some(now - 1900)));
    // One that was watched for a window knows better.
    assert_eq!(publish(&first, &[pod(20)]).await, 1);
    assert_eq!(target(&fake), 20);
}
