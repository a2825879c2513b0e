//! Checks whether attempts of a board ended because of a limit.

use std::collections::BTreeMap;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::{Body, Cause, Record};

/// Returns whether an attempt or the board ran out of calls, tokens or time. An attempt with tools that made all its
/// allowed calls had to reply, finished or not, and counts as well.
pub fn ran_out(records: &[Record], blueprint: &Blueprint) -> bool {
    let mut calls: BTreeMap<_, u32> = BTreeMap::new();
    records.iter().filter_map(|record| record.body().ok()).any(|body| match body {
        Body::Continued(continued) => {
            let by = &continued.by;
            let Some(attempt) = &by.attempt else { return false };
            // The previous call was answered, and another one follows.
            let made = calls.entry((attempt.invocation, attempt.number)).or_insert(1);
            *made += 1;
            let files = blueprint.workers.get(&by.worker).and_then(|worker| worker.files.as_ref());
            files.is_some_and(|files| *made >= files.iterations)
        }
        Body::Failed(failed) => matches!(
            failed.code,
            FailureCode::Timeout | FailureCode::BudgetExhausted | FailureCode::LeaseExpired | FailureCode::Truncated
        ),
        Body::Budget(budget) => !budget.is_tried_again,
        Body::Ended(ended) => matches!(ended.cause, Cause::Budget | Cause::Commits | Cause::Edits | Cause::Wall),
        _ => false,
    })
}
