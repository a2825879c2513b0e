//! Borders of steps in a journal, which does not record them.

use super::{Divergence, divergence};
use crate::record::{Body, Budget, Invoked, Kind, PauseRequest, Record};
use crate::rejection::Code;
use crate::snapshot::LAYOUT;

/// Returns the records of the next step that cannot be derived: another version made one of its views or the snapshot
/// it names. Empty if this version derives the step.
///
/// The end of a step is not recorded and not needed: records that are folded together are just not derived.
pub(super) fn underivable_batch(records: &[Record], compiler: u32) -> Result<&[Record], Divergence> {
    let mut foreign = 0;
    for (index, record) in records.iter().enumerate() {
        if index > 0 && is_step_start(records, index) {
            break;
        }
        if record.kind == Kind::Invoked {
            let body = record.body().map_err(|error| divergence(record.seq, error.to_string()))?;
            if matches!(body, Body::Invoked(invoked) if invoked.compiler != compiler) {
                foreign = index + 1;
            }
        }
        if record.kind == Kind::Snapshot {
            let body = record.body().map_err(|error| divergence(record.seq, error.to_string()))?;
            if matches!(body, Body::Snapshot(snapshot) if snapshot.layout != LAYOUT) {
                foreign = index + 1;
            }
        }
    }
    Ok(&records[..foreign])
}

/// Returns true if a record is the first of its step. The outcome of a question follows its answer, or the tick at
/// which it expires.
pub(super) fn is_step_start(records: &[Record], index: usize) -> bool {
    let is_expired = |record: &Record| match record.body() {
        Ok(Body::Rejected(rejected)) => rejected.code == Code::ApprovalExpired,
        _ => false,
    };
    let record = &records[index];
    if record.kind == Kind::Invoked {
        // A smaller view is tried in the step in which the budget was exceeded.
        let is_smaller = index.checked_sub(2).is_some_and(|short| {
            let is_again = matches!(records[short].body(), Ok(Body::Budget(Budget { is_tried_again: true, .. })));
            is_again && records[index - 1].kind == Kind::Breaker
        });
        return !is_smaller && matches!(record.body(), Ok(Body::Invoked(Invoked { admitted: Some(_), .. })));
    }
    let Some(before) = index.checked_sub(1) else { return true };
    // Patience ends with a deferral or with a tick.
    let is_held = matches!(record.body(), Ok(Body::Paused(PauseRequest { cause: Some(_), .. })))
        && matches!(records[before].kind, Kind::Deferred | Kind::Tick);
    let follows =
        is_held || records[before].kind == Kind::Answer || (record.kind == Kind::Rejected && is_expired(record));
    !follows && is_step_start_kind(record.kind)
}

/// Returns true for kinds that can only be the first record of a step.
const fn is_step_start_kind(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Scheduled
            | Kind::Invoked
            | Kind::Reserved
            | Kind::Failed
            | Kind::Skipped
            | Kind::Breaker
            | Kind::Budget
            | Kind::Ended
    )
}
