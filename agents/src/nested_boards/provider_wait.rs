//! Detects that an inner board waits for a model's provider, and the end of that wait.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::{Kind, PauseCause};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::status::BoardStatus;
use patchboard_runtime::subscription::Subscription;

use super::NestedBoards;

/// Time for which a board waits only for its provider before the call is deferred.
const PROVIDER_WAIT_MIN: Duration = Duration::from_secs(2);

/// Pause before the call is retried, after its inner board was closed.
const CLOSED_PAUSE: Duration = Duration::from_secs(1);

impl NestedBoards {
    /// Waits until a board has waited only for its provider for [`PROVIDER_WAIT_MIN`].
    pub(super) async fn waits_for_provider(&self, board: &BoardHandle) {
        let snapshot = board.status();
        let mut records = board.subscribe(snapshot.head.seq.into());
        loop {
            let is_waiting = self.awaited_provider(&board.status()).is_some();
            let next = match is_waiting {
                true => tokio::time::timeout(PROVIDER_WAIT_MIN, progress(&mut records)).await,
                false => Ok(records.next().await.is_some_and(|record| record.is_ok())),
            };
            match next {
                Ok(true) => {}
                // The board was closed; its caller handles that.
                Ok(false) => pending().await,
                Err(_) if self.awaited_provider(&board.status()).is_some() => return,
                Err(_) => {}
            }
        }
    }

    /// Returns the reason why a board waits for a model's provider; none if it also waits for anything else.
    pub(super) fn awaited_provider(&self, snapshot: &BoardStatus) -> Option<DeferralReason> {
        let first = snapshot.provider_waits.iter().map(|of| &of.wait).min_by_key(|wait| wait.not_before);
        let first = first.map(|wait| wait.reason);
        if snapshot.paused {
            return first.filter(|_| is_out_of_patience(snapshot));
        }
        let inside = self.inner_boards(&snapshot.board).into_iter();
        let inside: Vec<DeferralReason> =
            inside.filter_map(|inside| self.awaited_provider(&*self.snapshot(&inside)?)).collect();
        let is_alone = snapshot.calling == inside.len() && snapshot.pending.is_empty();
        // Calls that the gate holds back before their first request have no record.
        let is_held_back = snapshot.awaiting > snapshot.provider_waits.len();
        let held_back = || self.others.deferral_reason(&snapshot.board).unwrap_or(DeferralReason::RateLimited);
        let reason = first.or(inside.first().copied()).or_else(|| is_held_back.then(held_back));
        reason.filter(|_| is_alone)
    }
}

/// Returns true if the board is paused because its provider was away for too long, or needs an operator.
pub(super) fn is_out_of_patience(snapshot: &BoardStatus) -> bool {
    snapshot.ended.is_none() && snapshot.pause_cause == Some(PauseCause::ProviderUnavailable)
}

pub(super) async fn wait_until_out_of_patience(board: &BoardHandle) {
    let snapshot = board.status();
    let mut records = board.subscribe(snapshot.head.seq.into());
    let mut is_over = is_out_of_patience(&snapshot);
    while !is_over && let Some(Ok(_)) = records.next().await {
        is_over = is_out_of_patience(&board.status());
    }
    if !is_over {
        // The board was closed; its caller handles that.
        pending().await
    }
}

/// Waits until a board that waits for its provider makes progress after the record `seen`. Returns false if it is
/// paused instead, because of its provider.
pub(super) async fn wait_for_progress(board: &BoardHandle, seen: Seq) -> bool {
    let mut records = board.subscribe(Some(seen));
    let mut has_progress = pin!(progress(&mut records));
    let mut gave_up = pin!(wait_until_out_of_patience(board));
    tokio::select! {
        biased;
        goes_on = &mut has_progress => {
            if !goes_on {
                // The board was closed: this process resumes it, or shuts down and ends this wait.
                tokio::time::sleep(CLOSED_PAUSE).await;
            }
            true
        }
        () = &mut gave_up => false,
    }
}

/// Waits for a record other than a further try at the provider. Returns false if the board is closed.
async fn progress(records: &mut Subscription) -> bool {
    use Kind::*;
    while let Some(Ok(record)) = records.next().await {
        match record.kind {
            Invoked | Deferred | Paused | Resumed | Tick | Jumped | Epoch | Snapshot => {}
            _ => return true,
        }
    }
    false
}
