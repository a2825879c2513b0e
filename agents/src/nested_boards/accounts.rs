//! Accounts of invocations: usage of their inner boards, and the part of it that is in the outer journal.
//!
//! Each answer of a call, deferrals and timeouts included, reports the usage since the last recorded answer. The
//! recorded part is read from the outer journal, so that usage counts once even if an answer was lost.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Kind, Record, Scheduled};
use patchboard_runtime::agent::{Call, CallResult, Failure, Reply};
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::runtime::WeakRuntime;

use super::{NestedBoards, crashed};

/// Accounts by outer board and invocation.
#[derive(Default)]
pub(super) struct Accounts(Mutex<BTreeMap<BoardId, BTreeMap<InvocationId, Account>>>);

#[derive(Clone, Default)]
struct Account {
    /// The series of retries that the invocation belongs to, itself the last.
    series: Vec<InvocationId>,
    /// Last record of the outer board that is counted.
    read: Option<Seq>,
    recorded: Usage,
    /// Usage of each inner board, as of its last snapshot.
    spent: BTreeMap<BoardId, Usage>,
    /// Start of the oldest attempt whose result is open.
    since: Option<Timestamp>,
}

impl Account {
    /// Counts a record of the outer board.
    fn count(&mut self, invocation: InvocationId, record: &Record) {
        use Kind::*;
        self.read = Some(record.seq);
        let is_of_call =
            matches!(record.kind, Invoked | Deferred | Committed | NoOp | Expanded | Approval | Rejected | Failed);
        let Some(Ok(body)) = is_of_call.then(|| record.body()) else { return };
        if matches!(body, Body::Invoked(invoked) if invoked.invocation == invocation) {
            self.since.get_or_insert(record.at);
        }
        let is_own = |invocation| self.series.contains(&invocation);
        let by = body.author().filter(|by| by.attempt.as_ref().is_some_and(|attempt| is_own(attempt.invocation)));
        let Some(by) = by else { return };
        self.recorded.add(by.usage.unwrap_or_default());
        let is_open = match body {
            Body::Deferred(_) => true,
            Body::Failed(failed) => matches!(failed.code, FailureCode::Timeout | FailureCode::Lost),
            _ => false,
        };
        if !is_open {
            self.since = None;
        }
    }

    /// Returns the usage that is not recorded.
    fn unrecorded(&self) -> Usage {
        let mut spent = Usage::default();
        self.spent.values().for_each(|usage| spent.add(*usage));
        spent.without(self.recorded)
    }
}

impl Accounts {
    pub(super) fn forget(&self, outer: &BoardId) {
        self.0.lock().remove(outer);
    }
}

impl NestedBoards {
    /// Brings the account of a call's invocation up to date. Returns the first invocation of its series of retries, and
    /// the start of the oldest attempt whose result is open.
    pub(super) async fn begin(&self, call: &Call) -> Result<(InvocationId, Timestamp), Failure> {
        let runtime = self.runtime.get().and_then(WeakRuntime::upgrade);
        let outer = runtime.as_ref().and_then(|runtime| runtime.board(&call.board));
        let (runtime, outer) = runtime.zip(outer).ok_or_else(|| crashed("the outer board is closed"))?;
        let unread = |error: RuntimeError| crashed(format!("the outer board: {error}"));
        let invocation = call.invocation;
        let known = self.accounts.0.lock().get(&call.board).and_then(|accounts| accounts.get(&invocation)).cloned();
        let count = async |account: Account| {
            outer.read(account.read, account, move |account, record| account.count(invocation, record)).await
        };
        let account = match known {
            Some(account) => count(account).await.map_err(unread)?,
            None => {
                let series = series(&outer, call).await.map_err(unread)?;
                if call.attempt == 1 && series.len() == 1 {
                    // Nothing is recorded yet.
                    let snapshot = outer.status();
                    let (read, since) = (Some(snapshot.head.seq), Some(snapshot.at));
                    Account { series, read, since, ..Account::default() }
                } else {
                    let inside = runtime.nested_boards(&call.board, series.clone()).await.map_err(unread)?;
                    let account = Account { series, ..Account::default() };
                    Account { spent: inside.into_iter().collect(), ..count(account).await.map_err(unread)? }
                }
            }
        };
        let since = account.since.unwrap_or_else(|| outer.status().at);
        let origin = account.series.first().copied().unwrap_or(invocation);
        let mut accounts = self.accounts.0.lock();
        // Read under the lock, so that it has all invocations with an account.
        let open: BTreeSet<InvocationId> = outer.status().attempts.iter().map(|(open, _)| *open).collect();
        let of_outer = accounts.entry(call.board.clone()).or_default();
        of_outer.retain(|invocation, _| open.contains(invocation));
        of_outer.insert(invocation, account);
        Ok((origin, since))
    }

    pub(super) fn note(&self, call: &Call, board: &BoardHandle) {
        let mut accounts = self.accounts.0.lock();
        let account = accounts.get_mut(&call.board).and_then(|accounts| accounts.get_mut(&call.invocation));
        if let Some(account) = account {
            account.spent.insert(board.id().clone(), board.status().account.usage());
        }
    }

    /// Sets the usage of an answer to the unrecorded usage of its inner boards.
    pub(super) fn settle(&self, call: &Call, answer: CallResult) -> CallResult {
        let mut accounts = self.accounts.0.lock();
        let account = accounts.get_mut(&call.board).and_then(|accounts| accounts.get_mut(&call.invocation));
        let usage = account.map(|account| {
            for (id, spent) in &mut account.spent {
                if let Some(snapshot) = self.snapshot(id) {
                    *spent = snapshot.account.usage();
                }
            }
            account.unrecorded()
        });
        match answer {
            Ok(reply) => Ok(Reply { usage, ..reply }),
            Err(failure) => Err(Failure { usage, ..failure }),
        }
    }
}

/// Returns the series of retries that a call's invocation is the last of.
async fn series(outer: &BoardHandle, call: &Call) -> Result<Vec<InvocationId>, RuntimeError> {
    let scheduled = outer.subscribe(call.cause.0.checked_sub(1).map(Seq)).next().await.transpose()?;
    let mut series = vec![call.invocation];
    let scheduled = scheduled.as_ref().map(|record| record.body());
    if !matches!(scheduled, Some(Ok(Body::Scheduled(Scheduled { retries: Some(_), .. })))) {
        return Ok(series);
    }
    let note = |retried: &mut BTreeMap<InvocationId, InvocationId>, record: &Record| {
        if record.kind == Kind::Scheduled
            && let Ok(Body::Scheduled(Scheduled { invocation, retries: Some(retries), .. })) = record.body()
        {
            retried.insert(*invocation, *retries);
        }
    };
    let mut retried = outer.read(None, BTreeMap::new(), note).await?;
    // Each entry is removed when followed, so that a damaged journal cannot cause a loop.
    while let Some(before) = series.last().and_then(|last| retried.remove(last)) {
        series.push(before);
    }
    series.reverse();
    Ok(series)
}

/// Records at the end of a journal that are searched first for the board's end.
const TAIL: u64 = 16;

/// Returns the time at which a board ended; none if it has not.
pub(super) async fn ended_at(board: &BoardHandle) -> Result<Option<Timestamp>, RuntimeError> {
    let tail = board.status().head.seq.0.checked_sub(TAIL).map(Seq);
    for after in [tail, None] {
        let last = |at: &mut Option<Timestamp>, record: &Record| {
            if record.kind == Kind::Ended {
                *at = Some(record.at);
            }
        };
        let at = board.read(after, None, last).await?;
        if at.is_some() || after.is_none() {
            return Ok(at);
        }
    }
    Ok(None)
}
