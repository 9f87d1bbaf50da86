//! The agent on this machine's cgroups and real processes, against an API of the test's own that plays the kubelet.

mod fake;
mod node;
use clap::Parser;
use fake::{BOUND, Fake, Kubelet, MIB, WEB};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_agent::agent::Agent;
use weir_agent::options::Options;

/// Looks until something is so.
async fn until(agent: &mut Agent, what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            agent.round().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, looking).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn usage_falls_before_the_limit_is_asked_for_and_what_grows_gets_its_limit_back() {
    let Some((groups, mut subjects)) = node::two_containers() else { return };
    let before = groups.used(0);
    assert!(before > 300 * MIB, "{before}");

    let fake = Fake::with(WEB, fake::pod("Burstable", "1Gi", [&groups.ids[0], &groups.ids[1]]));
    fake.is_ready(0, false);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kubelet_groups, kubelet_asked) = (groups.clone(), asked.clone());
    let kubelet = move |container: &str, limit: u64| {
        let nth = usize::from(container == "side");
        let used = kubelet_groups.used(nth);
        kubelet_asked.lock().unwrap().push((nth, used, limit));
        kubelet_groups.limit(nth, limit)
    };
    fake.state().kubelet = Kubelet::Does(Box::new(kubelet));
    let options = "weir-agent --node n1 --resize down --window 1s --cost-bar 1000 --least 256Mi".split(' ');
    let mut agent = Agent::new(Options::parse_from(options), Some(fake.client())).unwrap();
    let limit = |nth: usize| {
        let pod = fake.pod();
        pod.containers[nth].actual.and_then(|actual| actual.limit).unwrap()
    };
    // What is not ready may be loading yet, however much it has to spare.
    until(&mut agent, "the second is lowered", || limit(1) < 300 * MIB).await;
    assert_eq!(limit(0), 1024 * MIB);
    fake.is_ready(0, true);
    until(&mut agent, "both are lowered", || limit(0) < 300 * MIB && limit(1) < 300 * MIB).await;
    for &(nth, used, to) in asked.lock().unwrap().iter() {
        assert!(used < to, "container {nth} used {used} when {to} was asked for");
    }
    let text = fs::read_to_string(groups.file(0, 1)).unwrap();
    assert_eq!(text.trim().parse::<u64>().unwrap(), limit(0), "the kernel has it");
    let metrics = agent.metrics.text();
    assert!(
        metrics.contains("weir_agent_resizes_total{outcome=\"lowered\"}") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("container_memory_bytes{namespace=\"shop\",pod=\"web\",container=\"app\",state=\"live\"}"),
        "{metrics}"
    );
    println!("used {before} before; lowered to {} with {} used", limit(0), groups.used(0));

    // The second needs more: it gets what it had, before its limit stops it.
    let lowered = limit(1);
    until(&mut agent, "it is raised", || {
        // It takes 8 MiB more for a moment.
        if limit(1) == lowered && groups.used(1) + 11 * MIB < lowered {
            subjects[1].tell("hold 1");
        }
        limit(1) == 1024 * MIB
    })
    .await;
    println!("raised again with {} used", groups.used(1));
    assert_eq!(fake.pod().lowered_from["side"].before.limit, Some(1024 * MIB));
    for subject in &mut subjects {
        subject.tell("hold 1");
    }
}
