//! Answers admission requests. Every answer allows: what fails here costs a pod Weir, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{
    AdmissionRequest, AdmissionResponse, AdmissionReview, ConvertAdmissionReviewError, Operation,
};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::connections::Handler;
use super::room::{Held, Room, is_modest};
use super::{Answer, answer, plain};
use crate::events::{Events, Notice};
use crate::inject::library::Library;
use crate::inject::{Outcome, mutate};
use crate::metrics::{Ended, Metrics};

/// Where pods are sent whose namespace asks, and those that ask themselves. The API server knows the labels of the
/// namespace, so that nothing here needs the right to read namespaces.
pub const BY_NAMESPACE: &str = "/mutate/namespace";
/// See [`BY_NAMESPACE`].
pub const BY_POD: &str = "/mutate/pod";

/// An API server keeps no object of more than 1.5 MiB. As JSON a pod may have twice that, and with what is said of it some more.
const LARGEST: usize = 4 << 20;
/// A request that is not whole by then is not waited for: the API server has given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's part that answers API servers.
#[derive(Debug)]
pub struct Admission {
    /// Where pods get the library from.
    pub library: Library,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
    /// Where owners are told, if there is a way.
    pub events: Option<Events>,
    /// Where requests and answers are held.
    pub room: Room,
}

/// Why a request is not read.
type Refusal = (StatusCode, &'static str);

const FULL: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "there is no room for this now\n");
const TOO_LARGE: Refusal = (StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than that of any pod\n");
const BROKEN: Refusal = (StatusCode::BAD_REQUEST, "the request did not come as a whole\n");

impl Handler for Admission {
    async fn handle(&self, request: Request<Incoming>) -> Answer {
        let namespace_asks = match request.uri().path() {
            BY_NAMESPACE => true,
            BY_POD => false,
            _ => return plain(StatusCode::NOT_FOUND, "there is nothing here\n"),
        };
        if request.method() != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "reviews are posted\n");
        }
        match self.reviewed(request.into_body(), namespace_asks).await {
            Ok(held) => answer(StatusCode::OK, "application/json", Bytes::from_owner(held)),
            // An API server that gets no review goes by its failurePolicy, which is Ignore.
            Err((status, why)) => {
                self.metrics.refused();
                plain(status, why)
            }
        }
    }
}

impl Admission {
    /// A request's body, and its room.
    async fn whole(&self, mut body: Incoming) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refusal> {
        let (mut whole, mut room) = (Vec::new(), self.room.take(0).ok_or(FULL)?);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BROKEN)?.into_data() else { continue };
            if whole.len() + data.len() > LARGEST {
                return Err(TOO_LARGE);
            }
            room.merge(self.room.take(data.len()).ok_or(FULL)?);
            whole.extend_from_slice(&data);
        }
        Ok((whole, room))
    }

    async fn reviewed(&self, body: Incoming, namespace_asks: bool) -> Result<Held, Refusal> {
        let (body, room) = timeout(PATIENCE, self.whole(body)).await.unwrap_or(Err(BROKEN))?;
        let began = Instant::now();
        let _turn = self.room.turn().await;
        let reviewed = review(&body, namespace_asks, &self.library);
        drop((body, room));
        let text = reviewed.response.and_then(|response| serde_json::to_vec(&response.into_review()).ok());
        let text = text.ok_or((StatusCode::BAD_REQUEST, "this is not an AdmissionReview with a request\n"))?;
        let room = self.room.take(text.len()).ok_or(FULL)?;
        self.metrics.ended(reviewed.ended, began.elapsed());
        if let (Some(events), Some(notice)) = (&self.events, reviewed.notice) {
            events.tell(notice);
        }
        Ok(Held { text, room })
    }
}

/// What a request comes to.
#[derive(Debug)]
pub struct Reviewed {
    /// The answer; none if it was not a request at all.
    pub response: Option<AdmissionResponse>,
    /// How it ended.
    pub ended: Ended,
    /// What the owner is told.
    pub notice: Option<Notice>,
}

/// Reads a request and answers it.
pub fn review(body: &[u8], namespace_asks: bool, library: &Library) -> Reviewed {
    if !is_modest(body) {
        return Reviewed { response: None, ended: Ended::Failed, notice: None };
    }
    let review = serde_json::from_slice::<AdmissionReview<Pod>>(body).map_err(|error| error.to_string());
    let request: Result<AdmissionRequest<Pod>, String> =
        review.and_then(|review| review.try_into().map_err(|error: ConvertAdmissionReviewError| error.to_string()));
    match request {
        Ok(request) => answered(&request, namespace_asks, library),
        Err(error) => Reviewed { response: let_through(body, &error), ended: Ended::Failed, notice: None },
    }
}

fn answered(request: &AdmissionRequest<Pod>, namespace_asks: bool, library: &Library) -> Reviewed {
    let response = AdmissionResponse::from(request);
    let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
    let (Operation::Create, true, Some(pod)) = (&request.operation, whole, &request.object) else {
        return Reviewed { response: Some(response), ended: Ended::Unchanged, notice: None };
    };
    let mutation = mutate(pod, namespace_asks, library);
    let ended = match mutation.outcome {
        Outcome::Injected => Ended::Injected,
        Outcome::Unchanged => Ended::Unchanged,
        Outcome::Left => Ended::Left,
    };
    let note = mutation.explanation.unwrap_or_default();
    // A rehearsal changes nothing, and tells nobody.
    let told = Notice::of(pod, request.namespace.as_deref(), mutation.outcome, &note).filter(|_| !request.dry_run);
    if mutation.patch.0.is_empty() {
        return Reviewed { response: Some(response), ended, notice: told };
    }
    match response.clone().with_patch(mutation.patch) {
        Ok(patched) => Reviewed { response: Some(patched), ended, notice: told },
        Err(error) => {
            Reviewed { response: Some(warned(response, &error.to_string())), ended: Ended::Failed, notice: None }
        }
    }
}

fn warned(mut response: AdmissionResponse, error: &str) -> AdmissionResponse {
    response.warnings = Some(vec![format!("weir-webhook: this pod is left as it is: {error}")]);
    response
}

/// A request that cannot be read is let through, if it says which one it is.
fn let_through(body: &[u8], error: &str) -> Option<AdmissionResponse> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let mut response = AdmissionResponse::invalid("");
    response.uid = value.pointer("/request/uid")?.as_str()?.to_owned();
    response.allowed = true;
    response.result = kube::core::Status::default();
    Some(warned(response, error))
}
