//! What the boards inside of an invocation have spent, and what the outer board has been told of it.
//!
//! Each answer of a call carries what was spent since the last one, deferrals and time-outs included. After a restart the
//! outer journal says what it has been told; of a board that was made for another request nothing more is told then.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_runtime::agent::{Answer, Call, Failure, Reply};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::runtime::{BoardHandle, WeakRuntime};

use super::Inner;

/// Accounts of invocations, by outer board and invocation.
#[derive(Default)]
pub(super) struct Accounts(Mutex<BTreeMap<(BoardId, InvocationId), Account>>);

#[derive(Default)]
struct Account {
    /// Usage that the outer board has been told.
    told: Usage,
    /// Usage of each inner board, when it was last seen.
    spent: BTreeMap<BoardId, Usage>,
    /// Begin of the first attempt since an attempt came to something.
    since: Option<Timestamp>,
}

impl Account {
    /// Counts a record of the outer board about the invocation.
    fn count(&mut self, invocation: InvocationId, record: &Record) {
        let Ok(body) = record.body() else { return };
        if matches!(&body, Body::Invoked(invoked) if invoked.invocation == invocation) {
            self.since.get_or_insert(record.at);
        }
        let by = body.author().filter(|by| by.attempt.as_ref().is_some_and(|attempt| attempt.invocation == invocation));
        let Some(by) = by else { return };
        self.told.add(by.usage.unwrap_or_default());
        let is_open = match &body {
            Body::Deferred(_) => true,
            Body::Failed(failed) => matches!(failed.code, FailureCode::Timeout | FailureCode::Lost),
            _ => false,
        };
        if !is_open {
            self.since = None;
        }
    }

    /// Returns the usage that the outer board has not been told, and counts it as told.
    fn tell(&mut self) -> Usage {
        let mut spent = Usage::default();
        self.spent.values().for_each(|usage| spent.add(*usage));
        let untold = spent.without(self.told);
        self.told.add(untold);
        untold
    }
}

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(BoardId, InvocationId), Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the invocations of an outer board.
    pub(super) fn forget(&self, outer: &BoardId) {
        self.lock().retain(|(board, _), _| board != outer);
    }
}

impl Inner {
    /// Returns the begin of the first attempt since an attempt of the call's invocation came to something.
    pub(super) async fn begun(&self, call: &Call) -> Timestamp {
        let key = (call.board.clone(), call.invocation);
        let is_known = self.accounts.lock().contains_key(&key);
        let account = if is_known || call.attempt == 1 { None } else { Some(self.recorded(call).await) };
        let mut accounts = self.accounts.lock();
        let known = accounts.entry(key).or_insert_with(|| account.unwrap_or_default());
        *known.since.get_or_insert_with(|| SystemClock.now())
    }

    /// Derives an account from the outer journal.
    async fn recorded(&self, call: &Call) -> Account {
        let mut account = Account::default();
        let runtime = self.runtime.get().and_then(WeakRuntime::upgrade);
        let Some(outer) = runtime.and_then(|runtime| runtime.board(&call.board)) else { return account };
        let head = outer.snapshot().head.seq;
        let mut records = outer.subscribe(None);
        while let Some(Ok(record)) = records.next().await {
            account.count(call.invocation, &record);
            if record.seq >= head {
                break;
            }
        }
        account
    }

    /// Counts what an inner board has spent.
    pub(super) fn count(&self, call: &Call, id: &BoardId, spent: Usage) {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry((call.board.clone(), call.invocation)).or_default();
        account.spent.insert(id.clone(), spent);
    }

    /// Adds to an answer what the inner boards of its invocation have spent since the last one.
    pub(super) fn settle(&self, call: &Call, answer: Answer) -> Answer {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry((call.board.clone(), call.invocation)).or_default();
        for (id, spent) in &mut account.spent {
            if let Some(snapshot) = self.snapshot(id) {
                *spent = snapshot.spent;
            }
        }
        let usage = Some(account.tell());
        match answer {
            Ok(reply) => {
                account.since = None;
                Ok(Reply { usage, ..reply })
            }
            Err(failure) => {
                if failure.deferral.is_none() && failure.code != FailureCode::Timeout {
                    account.since = None;
                }
                Err(Failure { usage, ..failure })
            }
        }
    }
}

/// Returns the time at which a board ended; none if it has not.
pub(super) async fn ended_at(board: &BoardHandle) -> Option<Timestamp> {
    let head = board.snapshot().head.seq;
    let mut records = board.subscribe(None);
    let mut at = None;
    while let Some(Ok(record)) = records.next().await {
        if record.kind == Kind::Ended {
            at = Some(record.at);
        }
        if record.seq >= head {
            break;
        }
    }
    at
}
