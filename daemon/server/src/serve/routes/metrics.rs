//! Metrics of the daemon, with the current state of its boards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::End;
use patchboard_runtime::status::BoardStatus;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;

use super::boards::status;
use crate::reader::storage;
use crate::serve::access::Permission;
use crate::serve::caller::Caller;
use crate::serve::metrics::{GaugeValues, MEDIA_TYPE};
use crate::serve::problem::ApiResult;
use crate::serve::service::Daemon;

/// Show the metrics in Prometheus's text format
#[utoipa::path(get, operation_id = "getMetrics", path = "/metrics", tag = "operations",
    responses((status = 200, description = "Metrics in the Prometheus text format", body = String, content_type = "text/plain")))]
pub(crate) async fn show(State(daemon): State<Arc<Daemon>>, caller: Caller) -> ApiResult<impl IntoResponse> {
    caller.require(&Permission::ViewAll)?;
    let boards = daemon.query(|reader| wait(reader.journal.boards()).map_err(storage)).await?;
    let running: BTreeMap<BoardId, Arc<BoardStatus>> =
        daemon.running_boards().map(|board| (board.id().clone(), board.status())).collect();
    let now = daemon.clock.now();
    let undelivered = daemon.feeds.iter().map(|feed| {
        let age = feed.oldest_undelivered().map(|since| Duration::from_millis(now.ms_since(since)));
        (feed.receiver, age.unwrap_or_default())
    });
    let picture = GaugeValues {
        journal_queue: daemon.journal_queue(),
        models: daemon.models(),
        undelivered: undelivered.collect(),
        ..picture(&boards, &running)
    };
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], daemon.metrics.text(&picture)))
}

/// Aggregates the boards of a data directory, with the snapshots of the running ones.
fn picture(boards: &[BoardSummary], running: &BTreeMap<BoardId, Arc<BoardStatus>>) -> GaugeValues {
    let known =
        ["running", "paused", "waiting", "interrupted"].into_iter().chain(End::ALL.iter().map(|it| it.as_str()));
    let mut by_status: BTreeMap<&'static str, usize> = known.map(|status| (status, 0)).collect();
    for board in boards {
        let status = match (running.get(&board.id), board.ended) {
            (Some(snapshot), _) => status(snapshot),
            (None, Some(end)) => end.as_str(),
            (None, None) => "interrupted",
        };
        *by_status.entry(status).or_default() += 1;
    }
    let sum = |of: fn(&BoardStatus) -> usize| running.values().map(|snapshot| of(snapshot)).sum();
    GaugeValues {
        boards: by_status.into_iter().collect(),
        queued: sum(|snapshot| snapshot.queued),
        running: sum(|snapshot| snapshot.open.saturating_sub(snapshot.pending.len())),
        pending: sum(|snapshot| snapshot.pending.len()),
        open_branches: sum(|snapshot| snapshot.open_branches),
        half_open_branches: sum(|snapshot| snapshot.half_open_branches),
        ..GaugeValues::default()
    }
}
