//! Status and metrics by HTTP.

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use carom_proto::GroupId;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::metrics;
use crate::status::{GroupStatus, Status, Unknown};

/// What somebody wants to know of the process.
#[derive(Debug)]
pub(crate) enum Ask {
    /// All but the groups.
    Status(oneshot::Sender<Status>),
    /// One group.
    Group(GroupId, oneshot::Sender<Result<Option<GroupStatus>, Unknown>>),
}

#[derive(Debug, Deserialize)]
struct WhichGroup {
    group: String,
}

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, asks: mpsc::Sender<Ask>) {
    let router = Router::new()
        .route("/status", get(status))
        .route("/members", get(members))
        .route("/metrics", get(metrics_text))
        .with_state(asks);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "status and metrics are no longer served");
    }
}

async fn status(State(asks): State<mpsc::Sender<Ask>>) -> Response {
    match ask(&asks, Ask::Status).await {
        Some(status) => Json(status).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn members(State(asks): State<mpsc::Sender<Ask>>, which: Query<WhichGroup>) -> Response {
    let group = GroupId::of_name(&which.group);
    match ask(&asks, |reply| Ask::Group(group, reply)).await {
        Some(Ok(Some(group))) => Json(group).into_response(),
        Some(Ok(None)) => {
            (StatusCode::NOT_FOUND, format!("group {:?} has no members here\n", which.group))
                .into_response()
        }
        Some(Err(Unknown)) | None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn metrics_text(State(asks): State<mpsc::Sender<Ask>>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = ask(&asks, Ask::Status).await.and_then(|status| metrics::text(status).ok());
    match text {
        Some(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn ask<T>(
    asks: &mpsc::Sender<Ask>,
    make: impl FnOnce(oneshot::Sender<T>) -> Ask,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    asks.send(make(reply)).await.ok()?;
    answer.await.ok()
}
