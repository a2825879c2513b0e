//! Requests of an agent, and the read set on which each is based.
//!
//! An agent may send several requests in parallel. It does not know the answer to the first when it sends the second.
//! Therefore an edit is checked against the read set at the time of its request. The read sets after each of the last
//! answers are kept for that ([`ReadHistory`]). An agent that can name the answers it had received does so ([`Order`]).
//! Any other agent is assumed to have received all answers given by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::record::Principal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::reads::{OwnEdit, Reads};
use super::Session;
use patchboard_runtime::tools::ROOM_MAX;

/// Answers after which the read set is kept. An agent that had received none of them gets the oldest read set. The
/// number exceeds the requests that an agent of `patchboard mcp` can have in flight.
const KEPT_MAX: usize = 128;

/// Request of an agent.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Arguments of the editor tool.
    pub arguments: Value,
    /// Idempotency key of an edit.
    pub key: Option<String>,
    /// Characters available for the answer.
    pub room: usize,
    /// Position of the request, if the agent gives one.
    pub order: Option<Order>,
    /// Read set at the time of the request; `None` means the current one.
    pub basis: Option<RequestReads>,
    /// External caller that makes the request; `None` for a worker that the runtime calls.
    pub principal: Option<Principal>,
}

impl From<Value> for SessionRequest {
    fn from(arguments: Value) -> Self {
        Self { arguments, key: None, room: ROOM_MAX, order: None, basis: None, principal: None }
    }
}

/// Position of a request, by the numbers that an agent gives to its requests. Each number is larger than those before,
/// and requests are answered in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Number of this request.
    pub number: u64,
    /// Last request with an answer that the agent had received by then.
    pub heard: u64,
    /// Earlier requests with answers that the agent will not receive.
    #[serde(default)]
    pub unheard: Vec<u64>,
}

/// Read set of an agent at the time of a request. The agent's own later edits are added to it.
#[derive(Clone, Debug)]
pub struct RequestReads {
    reads: Arc<Mutex<Reads>>,
    /// True if earlier reads were lost and the agent had not been notified by then.
    pub(super) is_lost: bool,
}

impl RequestReads {
    fn new(reads: Reads, is_lost: bool) -> Self {
        Self { reads: Arc::new(Mutex::new(reads)), is_lost }
    }

    pub(super) fn reads(&self) -> Reads {
        self.reads.lock().clone()
    }

    /// Returns whether an unanswered request uses this read set.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.reads) > 1
    }
}

/// Read sets of an agent after each of its last answers, by answer number. They serve requests in its name, also while
/// another request is processed. Never empty.
#[derive(Clone, Debug)]
pub struct ReadHistory(Arc<Mutex<BTreeMap<u64, RequestReads>>>);

impl ReadHistory {
    /// Creates the read sets of an agent without answers. `is_lost` is true if earlier reads were lost.
    pub(super) fn new(is_lost: bool) -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::from([(0, RequestReads::new(Reads::default(), is_lost))]))))
    }

    /// Returns the read set for a request made now.
    pub fn now(&self) -> RequestReads {
        self.after(u64::MAX)
    }

    /// Returns the read set of an agent that has received this answer and none after it. Drops older ones that are not
    /// in use.
    pub fn after(&self, heard: u64) -> RequestReads {
        let mut history = self.0.lock();
        let found = history.range(..=heard).next_back().or_else(|| history.first_key_value());
        let (number, basis) =
            found.map_or_else(|| (0, RequestReads::new(Reads::default(), true)), |(at, it)| (*at, it.clone()));
        history.retain(|at, basis| *at >= number || basis.is_in_use());
        basis
    }

    /// Stores the read set after an answer. Returns the answer's number, which is `number` if the agent gave one. Only
    /// the newest read set and those in use keep the texts that rejections compare with.
    pub(super) fn record_answer(&self, number: Option<u64>, reads: &Reads) -> u64 {
        let mut history = self.0.lock();
        if let Some((_, before)) = history.last_key_value().filter(|(_, before)| !before.is_in_use()) {
            before.reads.lock().drop_texts();
        }
        let last = history.last_key_value().map_or(0, |(last, _)| *last);
        let number = number.map_or(last.saturating_add(1), |number| number.max(last));
        history.insert(number, RequestReads::new(reads.clone(), false));
        if history.len() > KEPT_MAX {
            history.pop_first();
        }
        number
    }

    /// Adds an edit of the agent to all read sets: requests made before it know of it as well.
    pub(super) fn note_own_edit(&self, edit: OwnEdit<'_>) {
        self.0.lock().values().for_each(|basis| basis.reads.lock().note_own_edit(edit));
    }

    /// Removes an answer. If it was the last one, returns the read set without it.
    fn take_back(&self, number: u64) -> Option<RequestReads> {
        let mut history = self.0.lock();
        let is_last = history.last_key_value().is_some_and(|(last, _)| *last == number);
        if history.len() > 1 && history.remove(&number).is_some() && is_last {
            return history.last_key_value().map(|(_, basis)| basis.clone());
        }
        None
    }
}

impl Session {
    /// Reverts the reads of answers that the agent will not receive, unless later answers followed.
    pub fn revert_answers(&mut self, numbers: &[u64]) {
        for number in numbers {
            let of_it = self.answers.iter_mut().filter(|answered| answered.number == *number);
            of_it.for_each(|answered| answered.is_reverted = true);
            if let Some(before) = self.read_history.take_back(*number) {
                self.has_lost_reads |= before.is_lost;
                self.reads.restore(&before.reads.lock());
            }
        }
    }
}
