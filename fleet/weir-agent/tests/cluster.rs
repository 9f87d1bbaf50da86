//! The agent's program on a real API server, by its own account and its rights: real groups and processes on this machine, which
//! is a node. The scheduler and the controllers are the real ones as well. This test plays the kubelet.
//!
//! `.ci/fleet` runs it, with a control plane on which the chart is installed with everything switched on. Else it is skipped.

mod node;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use node::PodGroups;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const MIB: u64 = 1 << 20;
/// The bound of all waiting.
const BOUND: Duration = Duration::from_secs(180);
const NODE: &str = "this-machine";
const NAMESPACE: &str = "agent-test";

fn kubectl(arguments: &[&str], input: Option<&Value>) -> String {
    let mut command = Command::new("kubectl");
    command.env("KUBECONFIG", std::env::var_os("WEIR_TEST_KUBECONFIG").unwrap()).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.map_or(String::new(), Value::to_string).as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn create(object: &Value) {
    kubectl(&["create", "-f", "-"], Some(object));
}

/// The objects of the test, and their end.
struct Objects;

impl Objects {
    /// This machine as a node, and a deployment of one pod that runs there, with an autoscaler.
    fn create() -> Self {
        let size = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
        create(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"weir.dev/node": NODE}},
            "status": {"allocatable": size, "capacity": size},
        }));
        create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        let resources = json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}});
        let container = |name: &str| json!({"name": name, "image": "none", "resources": resources});
        let labels = json!({"app": "web"});
        create(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 0, "nodeSelector": {"weir.dev/node": NODE},
                "containers": [container("app"), container("side")],
            }}},
        }));
        create(&json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "recommenders": [{"name": "weir"}], "updatePolicy": {"updateMode": "Off"},
            },
        }));
        Self
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"], None);
        kubectl(&["delete", "node", NODE], None);
    }
}

/// The kubelet of this node, as far as the test needs one.
struct Kubelet {
    client: Client,
    groups: Arc<PodGroups>,
    /// Each change of a limit: the container, what it used, and what was asked for.
    asked: Arc<Mutex<Vec<(usize, u64, u64)>>>,
}

impl Kubelet {
    async fn run(self) {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let own = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
        loop {
            self.beat().await;
            for pod in pods.list(&own).await.unwrap() {
                if let Some(status) = self.status(&serde_json::to_value(&pod).unwrap()) {
                    let (name, change) = (pod.metadata.name.unwrap(), Patch::Strategic(json!({"status": status})));
                    pods.patch_status(&name, &PatchParams::default(), &change).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The node is ready, and lives.
    async fn beat(&self) {
        let now = jiff::Timestamp::now();
        let nodes: Api<v1::Node> = Api::all(self.client.clone());
        let ready = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": format!("{now:.0}")}]}});
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NODE},
            "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": format!("{now:.6}")}});
        leases.patch(NODE, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await.unwrap();
    }

    /// What the status of a pod should be; none: as it is.
    fn status(&self, pod: &Value) -> Option<Value> {
        let has = &pod["status"]["containerStatuses"];
        let statuses: Vec<(Value, bool)> =
            pod["spec"]["containers"].as_array().unwrap().iter().map(|it| self.container(it, has)).collect();
        let is_refused = statuses.iter().any(|(_, is_refused)| *is_refused);
        let resizing = match is_refused {
            true => json!({"type": "PodResizeInProgress", "status": "True", "reason": "Error",
                "message": "attempted to set pod memory limit below its usage"}),
            false => json!({"type": "PodResizeInProgress", "status": "False"}),
        };
        let was_refused =
            pod["status"]["conditions"].as_array().into_iter().flatten().any(|it| it["reason"] == "Error");
        let is_same = statuses.iter().all(|(status, _)| {
            let known = has.as_array().into_iter().flatten().find(|it| it["name"] == status["name"]);
            known.is_some_and(|known| known["resources"] == status["resources"])
        });
        let statuses: Vec<Value> = statuses.into_iter().map(|(status, _)| status).collect();
        (!is_same || is_refused != was_refused).then(|| {
            json!({"phase": "Running", "containerStatuses": statuses,
                "conditions": [{"type": "Ready", "status": "True"}, resizing]})
        })
    }

    /// The status of a container that is to be so, and whether its limit was refused.
    fn container(&self, spec: &Value, has: &Value) -> (Value, bool) {
        let name = spec["name"].as_str().unwrap();
        let nth = usize::from(name == "side");
        let known = has.as_array().into_iter().flatten().find(|it| it["name"] == name).map(|it| &it["resources"]);
        let (wanted, bytes) = (&spec["resources"], |resources: &Value| {
            weir_agent::policy::quantity::bytes(resources["limits"]["memory"].as_str().unwrap()).unwrap()
        });
        let to = bytes(wanted);
        let is_changed = known.is_none_or(|known| bytes(known) != to);
        if is_changed && known.is_some() {
            self.asked.lock().unwrap().push((nth, self.groups.used(nth), to));
        }
        let is_refused = is_changed && !self.groups.limit(nth, to);
        let resources = known.filter(|_| is_refused).unwrap_or(wanted);
        let status = json!({
            "name": name, "image": "none", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": format!("{:.0}", jiff::Timestamp::now())}},
            "containerID": format!("containerd://{}", self.groups.ids[nth]),
            "resources": resources, "allocatedResources": resources["requests"],
        });
        (status, is_refused)
    }
}

/// A way to the API server that can be cut.
struct Way {
    port: u16,
    is_open: watch::Sender<bool>,
}

impl Way {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_open, open) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let (server, mut open) = (server.clone(), open.clone());
                tokio::spawn(async move {
                    if !*open.borrow_and_update() {
                        return;
                    }
                    let Ok(mut to) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = open.changed() => {}
                    }
                });
            }
        });
        Self { port, is_open }
    }
}

/// The agent's program.
struct Agent {
    child: Child,
    said: PathBuf,
}

impl Agent {
    fn start(config: &Path, said: &Path) -> Self {
        let options = "--resize down --recommend --window 1s --period 1s --cost-bar 1000 --least 256Mi";
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-agent"));
        command.args(["--node", NODE, "--listen", "127.0.0.1:0"]).args(options.split(' ')).env("KUBECONFIG", config);
        let child = command.stderr(fs::File::create(said).unwrap()).spawn().unwrap();
        Self { child, said: said.to_owned() }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// A figure of its metrics; none: it does not serve yet.
    async fn metric(&self, name: &str) -> Option<f64> {
        let said = self.said();
        let (_, address) = said.split_once("metrics at http://")?;
        let address = address.split_once("/metrics")?.0.to_owned();
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).ok()?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            text.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok())
        })
        .await
        .unwrap()
    }

    /// It has looked so many times more.
    async fn looks(&self, more: f64) {
        let now = || async { self.metric("weir_agent_looks_total").await.unwrap_or(0.0) };
        let until = now().await + more;
        eventually("the agent looks", async || now().await >= until).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        println!("the agent said:\n{}", self.said());
    }
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("not within {} s: {what}", BOUND.as_secs()));
}

/// The limit of each container, as the status has it.
async fn limits(client: &Client) -> [u64; 2] {
    let pods: Api<v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = serde_json::to_value(pods.list(&ListParams::default()).await.unwrap().items).unwrap();
    ["app", "side"].map(|name| {
        let statuses = pods[0]["status"]["containerStatuses"].as_array();
        let status = statuses.into_iter().flatten().find(|it| it["name"] == name);
        let limit = status.and_then(|it| it["resources"]["limits"]["memory"].as_str());
        limit.and_then(weir_agent::policy::quantity::bytes).unwrap_or(0)
    })
}

/// A configuration by which the agent's account goes that way.
fn config_of_account(way: &Way) -> String {
    let token = kubectl(&["create", "token", "weir-agent", "--namespace", "weir-system", "--duration", "1h"], None);
    let config = kubectl(&["config", "view", "--raw", "--minify", "--flatten", "--output", "json"], None);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{}", way.port));
    config.to_string()
}

#[tokio::test]
async fn a_killed_and_a_partitioned_agent_harm_no_pod_and_go_on_where_they_were() {
    let Some(config) = std::env::var_os("WEIR_TEST_KUBECONFIG") else {
        return weir_testing::skip!("WEIR_TEST_KUBECONFIG names no cluster");
    };
    let Some((groups, mut subjects)) = node::two_containers() else { return };

    let config = Kubeconfig::read_from(config).unwrap();
    let server = config.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let objects = Objects::create();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kubelet = Kubelet { client: client.clone(), groups: groups.clone(), asked: asked.clone() };
    let kubelet = tokio::spawn(kubelet.run());
    eventually("the pod runs", async || limits(&client).await == [1024 * MIB; 2]).await;

    let way = Way::to(server.trim_start_matches("https://").to_owned()).await;
    let folder = tempfile::tempdir().unwrap();
    let account = folder.path().join("kubeconfig");
    fs::write(&account, config_of_account(&way)).unwrap();
    let mut agent = Agent::start(&account, &folder.path().join("first"));
    eventually("both are lowered", async || limits(&client).await.iter().all(|&it| it < 300 * MIB)).await;
    for &(nth, used, to) in asked.lock().unwrap().iter() {
        assert!(used < to, "container {nth} used {used} when {to} was asked for");
    }
    let target = || {
        let path = "{.status.recommendation.containerRecommendations[?(@.containerName==\"app\")].target.memory}";
        let output = format!("jsonpath={path}");
        let text = kubectl(&["get", "vpa", "web", "--namespace", NAMESPACE, "--output", &output], None);
        text.parse::<u64>().unwrap_or(0)
    };
    eventually("the autoscaler has a recommendation", async || target() >= 256 * MIB).await;

    // Killed: the next one neither lowers nor raises what is well as it is.
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    let before = limits(&client).await;
    drop(agent);
    let agent = Agent::start(&account, &folder.path().join("second"));
    agent.looks(10.0).await;
    assert_eq!(limits(&client).await, before);

    // Without the API: it looks on, and changes nothing.
    way.is_open.send(false).unwrap();
    eventually("the agent misses the API", async || agent.metric("weir_agent_api_up").await == Some(0.0)).await;
    agent.looks(10.0).await;
    assert_eq!(limits(&client).await, before);
    way.is_open.send(true).unwrap();
    eventually("it has the API again", async || agent.metric("weir_agent_api_up").await == Some(1.0)).await;

    // The second container needs more: it gets what it had before the first agent lowered it.
    eventually("it is raised", async || {
        // It takes 8 MiB more for a moment.
        if limits(&client).await == before && groups.used(1) + 11 * MIB < before[1] {
            subjects[1].tell("hold 1");
        }
        limits(&client).await[1] == 1024 * MIB
    })
    .await;
    println!("before {before:?}, after {:?}", limits(&client).await);
    for subject in &mut subjects {
        subject.tell("hold 1");
    }
    drop(agent);
    kubelet.abort();
    drop(objects);
}
