//! HTTP server for status and metrics, and for reports on links.
//!
//! A report is a POST request with a JSON body, which a browser does not send across sites.
//!
//! HTTP gets a bounded share of the process's descriptors, so that it cannot displace the
//! connections of nodes. At most `max_connections` are open. Each connection answers one request
//! and ends within a fixed time. Further connections wait in the system's queue, which costs no
//! descriptor.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use carom_proto::GroupId;
use carom_proto::rdcm::manager::LinkState;
use carom_proto::rdcm::manager::service::LinkReportError;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::metrics;
use crate::status::{GroupStatus, Status, Unknown};

#[derive(Debug)]
pub(crate) enum StatusRequest {
    Status(oneshot::Sender<Status>),
    Group(GroupId, oneshot::Sender<Result<Option<GroupStatus>, Unknown>>),
    Link { ends: [String; 2], state: LinkState, reply: oneshot::Sender<LinkAnswer> },
}

/// Result of a report on a link.
#[derive(Debug)]
pub(crate) enum LinkAnswer {
    /// Number of links to which the report applies.
    Done(usize),
    Refused(LinkReportError),
    NoManager,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) accepts_remote_reports: bool,
}

/// Body of a report on the links between two switches, racks or hosts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkReport {
    between: [String; 2],
    state: ReportedState,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReportedState {
    Up,
    Down,
}

/// `true` if the client of a connection may report on links.
#[derive(Clone, Copy, Debug)]
struct MayReport(bool);

#[derive(Debug, Serialize)]
struct Reported {
    links: usize,
}

#[derive(Debug, Deserialize)]
struct GroupQuery {
    group: String,
}

const HEADER_WITHIN: Duration = Duration::from_secs(5);
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

pub(crate) async fn serve(
    listener: TcpListener,
    requests: mpsc::Sender<StatusRequest>,
    limits: Limits,
) {
    let max_connections = limits.connections;
    let router = Router::new()
        .route("/status", get(status))
        .route("/members", get(members))
        .route("/metrics", get(metrics_text))
        .route("/link", post(link))
        .with_state(requests);
    let permits = Arc::new(Semaphore::new(max_connections));
    loop {
        let permit = permit(&permits, max_connections).await;
        match listener.accept().await {
            Ok((stream, from)) => {
                // A client on this host may use an address of the host, too.
                let is_own = stream.local_addr().is_ok_and(|own| own.ip() == from.ip());
                let is_local = is_own || from.ip().to_canonical().is_loopback();
                let may_report = limits.accepts_remote_reports || is_local;
                let router = router.clone().layer(Extension(MayReport(may_report)));
                tokio::spawn(answer(stream, router, permit));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(RETRY_ACCEPT).await;
            }
        }
    }
}

async fn permit(permits: &Arc<Semaphore>, max_connections: usize) -> OwnedSemaphorePermit {
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return permit;
    }
    tracing::warn!(
        most = max_connections,
        "all HTTP connections are in use; further requests wait"
    );
    Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed")
}

/// Serves one request. The descriptor is released within [`ANSWERED_WITHIN`].
async fn answer(stream: TcpStream, router: Router, permit: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(ANSWERED_WITHIN, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot answer an HTTP request"),
        Err(_) => tracing::warn!("an HTTP client did not read its response in time"),
    }
    drop(permit);
}

async fn status(State(requests): State<mpsc::Sender<StatusRequest>>) -> Response {
    match request(&requests, StatusRequest::Status).await {
        Some(status) => Json(status).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn members(
    State(requests): State<mpsc::Sender<StatusRequest>>,
    query: Query<GroupQuery>,
) -> Response {
    let group = GroupId::of_name(&query.group);
    match request(&requests, |reply| StatusRequest::Group(group, reply)).await {
        Some(Ok(Some(group))) => Json(group).into_response(),
        Some(Ok(None)) => {
            (StatusCode::NOT_FOUND, format!("group {:?} has no members here\n", query.group))
                .into_response()
        }
        Some(Err(Unknown)) | None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn link(
    State(requests): State<mpsc::Sender<StatusRequest>>,
    Extension(MayReport(may_report)): Extension<MayReport>,
    Json(report): Json<LinkReport>,
) -> Response {
    if !may_report {
        let reason = "this registry accepts reports on links from its own host only\n";
        return (StatusCode::FORBIDDEN, reason).into_response();
    }
    let state = match report.state {
        ReportedState::Up => LinkState::Up,
        ReportedState::Down => LinkState::Down,
    };
    let ends = report.between;
    match request(&requests, |reply| StatusRequest::Link { ends, state, reply }).await {
        Some(LinkAnswer::Done(links)) => Json(Reported { links }).into_response(),
        Some(LinkAnswer::Refused(error)) => {
            let reason = format!("{error}\nfix: {}\n", error.fix());
            (StatusCode::NOT_FOUND, reason).into_response()
        }
        Some(LinkAnswer::NoManager) => {
            let reason = "this registry has no multicast manager\n\
                          fix: start it with --topology FILE\n";
            (StatusCode::CONFLICT, reason).into_response()
        }
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn metrics_text(State(requests): State<mpsc::Sender<StatusRequest>>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = request(&requests, StatusRequest::Status)
        .await
        .and_then(|status| metrics::text(status).ok());
    match text {
        Some(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn request<T>(
    requests: &mpsc::Sender<StatusRequest>,
    make: impl FnOnce(oneshot::Sender<T>) -> StatusRequest,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    requests.send(make(reply)).await.ok()?;
    answer.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::AsyncWriteExt as _;

    /// The test leaves requests unanswered, which has the same effect as clients that do not read.
    #[tokio::test]
    async fn a_connection_over_the_limit_waits_until_another_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (requests_sender, mut requests) = mpsc::channel(2);
        let limits = Limits { connections: 1, accepts_remote_reports: false };
        tokio::spawn(serve(listener, requests_sender, limits));
        let mut streams = Vec::new();
        let mut unanswered = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(b"GET /status HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
            streams.push(stream);
        }
        for _ in 0..2 {
            let request = tokio::time::timeout(6 * ANSWERED_WITHIN, requests.recv()).await;
            let Ok(Some(StatusRequest::Status(reply))) = request else { panic!("no request") };
            assert!(unanswered.iter().all(oneshot::Sender::is_closed), "two at a time");
            unanswered.push(reply);
        }
    }
}
