//! Recommendations reach the status of autoscalers, from several nodes.

mod fake;
use fake::{Answer, BOUND, Fake, MIB};
use serde_json::{Value, json};
use std::time::Duration;
use weir_agent::recommend::{OfPod, Recommender};
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

/// A pod that should get so many MiB.
fn pod(mib: u64) -> (String, (String, String), OfPod) {
    let it = Recommendation { lower: 10 * MIB, target: mib * MIB, upper: 900 * MIB };
    ("shop".into(), ("Deployment".into(), "web".into()), [("app".to_owned(), it)].into())
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
    let first = Recommender::of_node(fake.client(), "n1");
    assert_eq!(publish(&first, &[pod(100), pod(120)]).await, 1);
    let target = |fake: &Fake| {
        fake.object(WEB)["status"]["recommendation"]["containerRecommendations"][0]["target"]["memory"].clone()
    };
    assert_eq!(target(&fake), (120 * MIB).to_string());
    // Another node says more; the first one hears it by its watch.
    let second = Recommender::of_node(fake.client(), "n2");
    let said = async {
        while fake.object(WEB)["metadata"]["annotations"]["needs.weir.dev/n2"].is_null() {
            assert_eq!(second.publish(&[pod(300)]).await.0, 0, "the first node writes");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, said).await.unwrap();
    assert_eq!(publish(&first, &[pod(120)]).await, 1);
    assert_eq!(target(&fake), (300 * MIB).to_string());
    assert_eq!(fake.object(WEB)["status"]["conditions"][0]["type"], "RecommendationProvided");
}

/// Nodes come and go, and an object may have so many annotations and no more.
#[tokio::test]
async fn what_nodes_said_that_are_gone_is_removed() {
    let mut scaler = scaler();
    let said = |at: i64| json!({"at": at, "containers": {"app": [1, 900 * MIB, 900 * MIB]}}).to_string();
    let now = jiff::Timestamp::now().as_second();
    scaler["metadata"]["annotations"] = json!({
        "needs.weir.dev/a-gone": said(5), "needs.weir.dev/b-ahead": said(i64::MAX), "needs.weir.dev/there": said(now), "own": "x",
    });
    let fake = Fake::with(WEB, scaler);
    let first = Recommender::of_node(fake.client(), "n1");
    assert_eq!(publish(&first, &[pod(100)]).await, 1);
    let object = fake.object(WEB);
    let names: Vec<&String> = object["metadata"]["annotations"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["needs.weir.dev/n1", "needs.weir.dev/there", "own"]);
}

#[tokio::test]
async fn what_is_refused_is_told_and_tried_again() {
    let fake = Fake::with(WEB, scaler());
    let recommender = Recommender::of_node(fake.client(), "n1");
    fake.state().answers.push_back(Answer::Refused(403));
    assert_eq!(publish(&recommender, &[pod(100)]).await, 0);
    assert_eq!(publish(&recommender, &[pod(100)]).await, 1);
}
