//! Reports on the models of the gate and on the boards that wait for them.

use std::collections::BTreeSet;
use std::time::Duration;

use patchboard_kernel::id::BoardId;

use super::super::model::Model;
use super::super::types::{BoardOutage, ModelState, Outage};
use super::Core;

impl Core {
    pub(in crate::gate) fn state(&mut self, now: Duration) -> Vec<ModelState> {
        self.advance(now);
        let now = self.now;
        let states = self.models.iter().map(|(key, model)| ModelState {
            key: key.clone(),
            outage: outage(model, now).or_else(|| complaint(model, now)),
            waiting: model.queue.len() + self.deferred.get(key).copied().unwrap_or_default(),
            in_flight: model.in_flight,
            pace: model.pace(),
            deferred: model.deferred.clone(),
        });
        states.collect()
    }

    /// Reports the requests of a board that wait for unavailable models; `None` if there are none.
    pub(in crate::gate) fn board_outage(&mut self, now: Duration, board: &BoardId) -> Option<BoardOutage> {
        self.advance(now);
        let now = self.now;
        let away = self.models.values().filter_map(|model| {
            let (first, calls) = (model.queue.first_of(board)?, model.queue.len_of(board));
            Some((outage(model, now)?, self.waiters.get(&first)?.asked_at, calls))
        });
        let away: Vec<(Outage, Duration, usize)> = away.collect();
        let outage = away.iter().map(|(outage, ..)| *outage).min_by_key(|outage| outage.next_try)?;
        let since = away.iter().map(|(_, asked_at, _)| *asked_at).min()?;
        let calls = away.iter().map(|(.., calls)| calls).sum();
        Some(BoardOutage { outage, calls, elapsed: outage.elapsed.min(now.saturating_sub(since)) })
    }

    pub(in crate::gate) fn boards_waiting(&mut self, now: Duration) -> BTreeSet<BoardId> {
        self.advance(now);
        let away = self.models.values().filter(|model| model.absence(self.now).is_some());
        away.flat_map(|model| model.queue.boards().cloned()).collect()
    }
}

/// Complaint of a model that is not in an outage, reported as an outage without a next try.
fn complaint(model: &Model, now: Duration) -> Option<Outage> {
    let (reason, since) = model.operator_error?;
    Some(Outage { reason, elapsed: now.saturating_sub(since), next_try: None })
}

fn outage(model: &Model, now: Duration) -> Option<Outage> {
    let (absence, (reason, is_probed)) = (model.absence(now)?, model.outage()?);
    let next_try = (!is_probed).then(|| absence.until.saturating_sub(now));
    Some(Outage { reason, elapsed: now.saturating_sub(absence.since), next_try })
}
