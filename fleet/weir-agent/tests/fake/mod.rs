//! A small API of Kubernetes inside the test, with the part of the kubelet that resizes. It can refuse, hang and vanish.
#![allow(dead_code, reason = "each test file uses its part")]

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use weir_agent::api::pod::Pod;
use weir_agent::api::pods::Pods;

/// How a change is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Well,
    Refused(u16),
    /// It is made, and the answer never comes.
    MadeAndHangs,
    /// It is not made, and no answer comes.
    Hangs,
    /// It is made, and the connection breaks.
    MadeAndVanishes,
    /// The API cannot be reached.
    Vanishes,
}

/// What is wanted, and whether it is done.
type Does = Box<dyn Fn(&str, u64) -> bool + Send>;

/// What becomes of a resize that the API has taken.
pub enum Kubelet {
    Follows,
    Refuses,
    Silent,
    /// Has no room for higher requests: of a pod that asks for one it does nothing.
    Full,
    /// Is of a node with swap, where no request can be changed: of a pod that asks for another one it does nothing.
    Swaps,
    /// Does it by this.
    Does(Does),
}

pub struct State {
    /// By path, without the query.
    pub objects: BTreeMap<String, Value>,
    /// Each change that came, by path.
    pub changes: Vec<(String, Value)>,
    /// Answers to the next changes; then all are answered well.
    pub answers: VecDeque<Answer>,
    /// What rehearsals are refused with: a limit range has a word against it.
    pub rehearsed: Option<u16>,
    pub kubelet: Kubelet,
    /// Whether lists and watches are answered.
    pub is_up: bool,
    /// Lists that came and get no answer, counted; none: they are answered.
    pub hanging: Option<usize>,
    watchers: Vec<(String, UnboundedSender<io::Result<Frame<Bytes>>>)>,
    version: u64,
}

#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

type Answered = Result<Response<UnsyncBoxBody<Bytes, io::Error>>, io::Error>;

pub const WEB: &str = "/api/v1/namespaces/shop/pods/web";
pub const MIB: u64 = 1 << 20;
const GONE: fn() -> io::Error = || io::Error::from(io::ErrorKind::ConnectionReset);

/// A pod of two containers, `app` and `side`.
pub fn pod(class: &str, limit: &str, ids: [&str; 2]) -> Value {
    let request = if class == "Guaranteed" { limit } else { "64Mi" };
    let resources = json!({"requests": {"memory": request}, "limits": {"memory": limit}});
    let names = ["app", "side"];
    let statuses = [0, 1].map(|nth| {
        json!({
            "name": names[nth], "containerID": format!("containerd://{}", ids[nth]), "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "resources": resources,
        })
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-1", "annotations": {}},
        "spec": {"nodeName": "n1", "containers": names.map(|name| json!({"name": name, "resources": resources}))},
        "status": {"qosClass": class, "containerStatuses": statuses},
    })
}

impl Fake {
    pub fn with(path: &str, mut object: Value) -> Self {
        object["metadata"]["resourceVersion"] = json!("1");
        let state = State {
            objects: BTreeMap::from([(path.to_owned(), object)]),
            changes: Vec::new(),
            answers: VecDeque::new(),
            rehearsed: None,
            kubelet: Kubelet::Follows,
            is_up: true,
            hanging: None,
            watchers: Vec::new(),
            version: 1,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|panicked| panicked.into_inner())
    }

    pub fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request| fake.clone().answer(request));
        Client::new(service, "default")
    }

    /// The pods, once the first list is there.
    pub async fn pods(&self) -> Arc<Pods> {
        let pods = Arc::new(Pods::of_node(self.client(), "n1"));
        pods.when_known("uid-1").await;
        pods
    }

    pub fn object(&self, path: &str) -> Value {
        self.state().objects[path].clone()
    }

    pub fn pod(&self) -> Pod {
        Pod::of(&serde_json::from_value(self.object(WEB)).unwrap())
    }

    /// Says of a container whether it is ready.
    pub fn is_ready(&self, nth: usize, ready: bool) {
        let mut statuses = self.object(WEB)["status"]["containerStatuses"].clone();
        statuses[nth]["ready"] = json!(ready);
        self.state().change(&format!("{WEB}/status"), json!({"status": {"containerStatuses": statuses}}));
    }

    /// A container was killed for memory.
    pub fn is_killed(&self, nth: usize) {
        let mut statuses = self.object(WEB)["status"]["containerStatuses"].clone();
        statuses[nth]["state"] = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        self.state().change(&format!("{WEB}/status"), json!({"status": {"containerStatuses": statuses}}));
    }

    /// The kubelet says of a container that it has what is wanted.
    pub fn is_made(&self, nth: usize) {
        let pod = self.object(WEB);
        let mut statuses = pod["status"]["containerStatuses"].clone();
        statuses[nth]["resources"] = pod["spec"]["containers"][nth]["resources"].clone();
        self.state().change(&format!("{WEB}/status"), json!({"status": {"containerStatuses": statuses}}));
    }

    /// Another says something in an annotation.
    pub fn annotate(&self, path: &str, name: &str, text: &str) {
        self.state().change(path, json!({"metadata": {"annotations": {name: text}}}));
    }

    /// Paths of the changes that came.
    pub fn changed(&self) -> Vec<String> {
        self.state().changes.iter().map(|(path, _)| path.trim_start_matches(WEB).to_owned()).collect()
    }

    async fn answer(self, request: Request<Body>) -> Answered {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        if request.method() == http::Method::PATCH {
            let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap();
            return if query.contains("dryRun=All") {
                Ok(self.rehearse(&path, &body))
            } else {
                self.change(&path, body).await
            };
        }
        if !self.state().is_up {
            return Err(GONE());
        }
        if query.contains("watch=true") {
            return Ok(self.watch(&path));
        }
        let hangs = self.state().hanging.as_mut().map(|count| *count += 1).is_some();
        if hangs {
            return std::future::pending().await;
        }
        let state = self.state();
        let kind = path.rsplit('/').next().unwrap();
        let items: Vec<&Value> =
            state.objects.iter().filter(|(name, _)| name.contains(&format!("/{kind}/"))).map(|(_, it)| it).collect();
        let version = state.version.to_string();
        let kind =
            if kind == "pods" { ("v1", "PodList") } else { ("autoscaling.k8s.io/v1", "VerticalPodAutoscalerList") };
        let list =
            json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"resourceVersion": version}, "items": items});
        Ok(said(200, &list))
    }

    fn watch(&self, path: &str) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let (sender, receiver) = unbounded();
        self.state().watchers.push((path.rsplit('/').next().unwrap().to_owned(), sender));
        Response::new(StreamBody::new(receiver.boxed()).boxed_unsync())
    }

    fn rehearse(&self, path: &str, body: &Value) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let state = self.state();
        match state.rehearsed.or(state.is_outdated(path, body).then_some(409)) {
            Some(code) => refused(code),
            None => said(200, &state.objects[path.strip_suffix("/resize").unwrap_or(path)]),
        }
    }

    async fn change(&self, path: &str, body: Value) -> Answered {
        let answer = self.state().answers.pop_front().unwrap_or(Answer::Well);
        let is_outdated = self.state().is_outdated(path, &body);
        let answer = if is_outdated && answer == Answer::Well { Answer::Refused(409) } else { answer };
        let is_made = !is_outdated && matches!(answer, Answer::Well | Answer::MadeAndHangs | Answer::MadeAndVanishes);
        let object = is_made.then(|| self.state().change(path, body));
        match answer {
            Answer::Well => Ok(said(200, &object.unwrap())),
            Answer::Refused(code) => Ok(refused(code)),
            Answer::MadeAndHangs | Answer::Hangs => std::future::pending().await,
            Answer::MadeAndVanishes | Answer::Vanishes => Err(GONE()),
        }
    }
}

fn said(code: u16, body: &Value) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

fn refused(code: u16) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
    let why = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the test", "reason": "Invalid", "code": code});
    said(code, &why)
}

impl State {
    /// Whether a change goes by another version of its object than there is.
    fn is_outdated(&self, path: &str, body: &Value) -> bool {
        let version = &body["metadata"]["resourceVersion"];
        let name = path.strip_suffix("/resize").unwrap_or(path);
        version.as_str().is_some_and(|it| !it.is_empty())
            && self.objects[name]["metadata"]["resourceVersion"] != *version
    }

    /// Somebody else changes the limit of the pod's first container. Watchers are told later.
    pub fn another_changes(&mut self, limit: &str) {
        self.unseen(|pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!(limit));
    }

    /// Changes the pod, of which watchers are told later.
    pub fn unseen(&mut self, change: impl FnOnce(&mut Value)) {
        self.version += 1;
        let version = json!(self.version.to_string());
        let pod = self.objects.get_mut(WEB).unwrap();
        change(pod);
        pod["metadata"]["resourceVersion"] = version;
    }

    fn change(&mut self, path: &str, body: Value) -> Value {
        self.changes.push((path.to_owned(), body.clone()));
        let resized = path.strip_suffix("/resize");
        let name = resized.or(path.strip_suffix("/status")).unwrap_or(path);
        let mut object = self.objects[name].clone();
        match resized {
            Some(_) => self.resize(&mut object, &body),
            None => merge(&mut object, &body),
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(name.to_owned(), object.clone());
        let event = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
        let is_of = |kind: &str| name.contains(&format!("/{kind}/"));
        self.watchers.retain(|(kind, to)| {
            !is_of(kind) || to.unbounded_send(Ok(Frame::data(Bytes::from(event.clone())))).is_ok()
        });
        object
    }

    /// Ends all watches.
    pub fn forget_watchers(&mut self) {
        self.watchers.clear();
    }

    /// Breaks all watches, as where connections are lost.
    pub fn break_watchers(&mut self) {
        for (_, to) in self.watchers.drain(..) {
            to.unbounded_send(Err(io::ErrorKind::ConnectionReset.into())).unwrap();
        }
    }

    /// The number of watches.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    fn resize(&self, pod: &mut Value, body: &Value) {
        for change in body["spec"]["containers"].as_array().unwrap() {
            let name = change["name"].as_str().unwrap();
            let of = |list: &Value| list.as_array().unwrap().iter().position(|it| it["name"] == name).unwrap();
            let spec = of(&pod["spec"]["containers"]);
            merge(&mut pod["spec"]["containers"][spec]["resources"], &change["resources"]);
            match self.kubelet {
                Kubelet::Full => follow_unless(pod, ["Deferred", "Node didn't have enough resource: memory"], u64::gt),
                Kubelet::Swaps => follow_unless(pod, ["Infeasible", "containers with swap"], u64::ne),
                _ => self.follow(pod, name),
            }
        }
    }

    /// What other kubelets do with a change of that container.
    fn follow(&self, pod: &mut Value, name: &str) {
        let of = |list: &Value| list.as_array().unwrap().iter().position(|it| it["name"] == name).unwrap();
        let (spec, status) = (of(&pod["spec"]["containers"]), of(&pod["status"]["containerStatuses"]));
        let wanted = pod["spec"]["containers"][spec]["resources"].clone();
        let limit = wanted["limits"]["memory"].as_str().and_then(weir_agent::policy::quantity::bytes);
        let is_done = match &self.kubelet {
            Kubelet::Follows => true,
            Kubelet::Does(by) => by(name, limit.unwrap()),
            _ => pod["status"]["containerStatuses"][status]["resources"] == wanted,
        };
        let refuses = !is_done && !matches!(self.kubelet, Kubelet::Silent);
        pod["status"]["conditions"] = match refuses {
            true => json!([{"type": "PodResizeInProgress", "status": "True", "reason": "Error",
                "message": "attempted to set pod memory limit below its usage"}]),
            false => json!([]),
        };
        if is_done {
            pod["status"]["containerStatuses"][status]["resources"] = wanted;
        }
    }
}

/// What a kubelet does that cannot make some requests of what they are: all of a pod's changes or none.
fn follow_unless(pod: &mut Value, [reason, message]: [&str; 2], cannot: fn(&u64, &u64) -> bool) {
    let text = |it: &Value| it["resources"]["requests"]["memory"].as_str().unwrap().to_owned();
    let of = |it: &Value| weir_agent::policy::quantity::bytes(&text(it)).unwrap();
    let wanted = pod["spec"]["containers"].as_array().unwrap().clone();
    let statuses = pod["status"]["containerStatuses"].as_array_mut().unwrap();
    let is_pending = wanted.iter().zip(&*statuses).any(|(wanted, has)| cannot(&of(wanted), &of(has)));
    if !is_pending {
        statuses.iter_mut().zip(wanted).for_each(|(has, wanted)| has["resources"] = wanted["resources"].clone());
    }
    pod["status"]["conditions"] = match is_pending {
        true => json!([{"type": "PodResizePending", "status": "True", "reason": reason, "message": message}]),
        false => json!([]),
    };
}

/// A merge patch (RFC 7386).
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else { return *object = change.clone() };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in change {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => merge(&mut object[name], value),
        }
    }
}

/// The bound of all waiting.
pub const BOUND: Duration = Duration::from_secs(180);

/// Waiting for what the fake has said.
pub trait WhenKnown {
    /// Until there is a pod of that UID.
    fn when_known(&self, uid: &str) -> impl Future<Output = ()>;
}

impl WhenKnown for Pods {
    async fn when_known(&self, uid: &str) {
        let known = async {
            while self.get(uid).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, known).await.expect("the pods are listed");
    }
}
