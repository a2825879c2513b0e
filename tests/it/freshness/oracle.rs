//! Finds all violations of a proposal at the stage `freshness`, and tracks reservations.
//!
//! Written from SPEC section 5 before its author read the kernel's own check, and without its code. It has a history of
//! whole documents, and compares pointers by their prefixes.

use std::collections::BTreeMap;

use json_patch::PatchOperation as Op;
use patchboard_kernel::blueprint::Freshness;
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::rejection::Code;

use super::history::{Event, History};
use super::place::Place;
use super::trace::{self, Target};

/// Duration of a reservation in decisions and in milliseconds, and its maximum number of places.
pub(super) const DECISIONS: u64 = 8;
pub(super) const MILLISECONDS: i64 = 30_000;
pub(super) const PLACES: usize = 64;

/// View of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) base: u64,
    pub(super) reads: Vec<Place>,
    pub(super) members: Vec<Place>,
}

/// Proposal to be judged.
pub(super) struct Question<'a> {
    pub(super) mode: Freshness,
    /// Invocation and its view; `None` for a direct proposal.
    pub(super) asked: Option<(u64, &'a Shown)>,
    /// Returns true if the worker may read a place.
    pub(super) may_read: &'a dyn Fn(&Place) -> bool,
    pub(super) ops: &'a [Op],
    /// Number of conflicts at which the invocation is given up.
    pub(super) conflicts: u32,
    pub(super) at: i64,
}

/// Violation that the oracle found.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) code: Code,
    /// Place concerned: a target, a place of the read set, or the reserved place.
    pub(super) place: Place,
    /// Version that last changed the place; `None` without a change.
    pub(super) version: Option<u64>,
    /// Intent of the patch for the place; `None` for a place of the read set.
    pub(super) target: Option<Target>,
    /// Conflicting reservations of a `reserved` finding: holder and place of each.
    pub(super) kept: Vec<(u64, Place)>,
}

impl Finding {
    /// Returns true if a violation at `place` may report this finding.
    pub(super) fn is_about(&self, place: &Place) -> bool {
        self.place.touches(place) || self.target.as_ref().is_some_and(|target| target.is_meant_by(place))
    }
}

/// A reservation.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) places: Vec<Place>,
    pub(super) decisions: u64,
    pub(super) until: i64,
}

pub(super) struct Oracle {
    pub(super) history: History,
    /// Views by invocation and attempt.
    pub(super) shown: BTreeMap<(u64, u32), Shown>,
    pub(super) held: BTreeMap<u64, Held>,
    pub(super) decisions: u64,
}

impl Oracle {
    pub(super) fn new(history: History) -> Self {
        Self { history, shown: BTreeMap::new(), held: BTreeMap::new(), decisions: 0 }
    }

    /// Returns all violations of a proposal.
    pub(super) fn judge(&self, question: &Question<'_>) -> Vec<Finding> {
        let targets = trace::targets(self.history.now(), question.ops);
        if question.ops.iter().all(|op| matches!(op, Op::Test(_))) {
            return Vec::new();
        }
        let mut findings = self.reserved(question, &targets);
        let Some((_, shown)) = question.asked.filter(|_| question.mode != Freshness::None) else { return findings };
        for (_, target) in &targets {
            findings.extend(self.target(question, shown, target));
        }
        if matches!(question.mode, Freshness::Reads | Freshness::Members) {
            findings.extend(self.reads(shown, question.mode == Freshness::Members));
        }
        findings
    }

    fn reserved(&self, question: &Question<'_>, targets: &[(usize, Target)]) -> Vec<Finding> {
        let own = question.asked.map(|(invocation, _)| invocation);
        let others = self.held_at(question.at).filter(|(invocation, _)| Some(*invocation) != own);
        let places: Vec<(u64, &Place)> =
            others.flat_map(|(invocation, held)| held.places.iter().map(move |place| (invocation, place))).collect();
        let hits = |target: &Target, kept: &Place| match target {
            Target::Copy(_) => false,
            Target::New(_) | Target::Beyond { .. } => target.place().touches(kept),
            Target::Over { place, draws } => place.touches(kept) || (*draws && is_shifted(place, kept)),
            Target::Insert { array, before } => kept.covers(array) || is_shifted(&array.child(before), kept),
            Target::Append { array, len, .. } => {
                kept.covers(array) || array.child(len).touches(kept) || *kept == array.child("-")
            }
        };
        let hit = |(_, target): &(usize, Target)| -> Option<Finding> {
            let hits = places.iter().filter(|(_, kept)| hits(target, kept));
            let kept: Vec<(u64, Place)> = hits.map(|(invocation, kept)| (*invocation, (*kept).clone())).collect();
            let finding = Finding {
                code: Code::Reserved,
                place: target.place(),
                version: None,
                target: Some(target.clone()),
                kept,
            };
            (!finding.kept.is_empty()).then_some(finding)
        };
        targets.iter().filter_map(hit).collect()
    }

    fn target(&self, question: &Question<'_>, shown: &Shown, target: &Target) -> Option<Finding> {
        let (code, place) =
            (if matches!(target, Target::Copy(_)) { Code::StaleRead } else { Code::StaleTarget }, target.place());
        let (base, now) = (self.history.at(shown.base), self.history.now());
        let last = |is_due: &dyn Fn(&Event) -> bool| {
            self.history.since(shown.base).iter().rev().find(|event| is_due(event)).map(|event| event.version)
        };
        // Detects a place or container that appeared after the view was taken.
        let came = |above: &Place| !above.is_in(base) && above.is_in(now);
        let (is_stale, version) = match target {
            Target::Over { place, .. } | Target::Copy(place) => {
                let version = last(&|event| event.changes_anything(place));
                let is_stale = match place.is_in(base) {
                    true => version.is_some(),
                    false => place.is_in(now),
                };
                (is_stale, version)
            }
            Target::New(place) => {
                let (above, _) = place.split()?;
                // A value added and removed in the meantime leaves the place as vacant as before.
                let is_other = place.is_in(base) || place.is_in(now);
                let version = last(&|event| event.changes(&above) || (is_other && event.at == *place));
                // So does a container added and removed in the meantime.
                let is_nowhere = !above.is_in(base) && !above.is_in(now);
                (!is_nowhere && (version.is_some() || came(&above)), version)
            }
            Target::Insert { array, before } => {
                let version = last(&|event| event.changes(array) || event.shifts(array, *before));
                (version.is_some() || came(&place) || came(array), version)
            }
            // Such an operation cannot be applied. It was valid for the author if the element before it existed and is
            // gone now.
            Target::Beyond { array, index } => {
                let could = index.checked_sub(1).is_none_or(|last| array.child(last).is_in(base));
                let version = last(&|event| event.changes(array) || (could && event.makes(&place)));
                (version.is_some() || came(array), version)
            }
            // An index that had an element names that element, and an append would put the value elsewhere.
            Target::Append { array, named, .. } => {
                let is_meant = *named && place.is_in(base);
                let is_gone = |event: &Event| is_meant && event.changes(&place);
                let version = last(&|event| event.changes(array) || is_gone(event));
                (version.is_some() || came(array), version)
            }
        };
        if is_stale {
            return Some(Finding { code, place, version, target: Some(target.clone()), kept: Vec::new() });
        }
        let Target::Over { place, .. } = target else { return None };
        let is_seen = shown.reads.iter().any(|read| read.covers(place));
        let is_unseen = place.is_in(base) && (question.may_read)(place) && !is_seen;
        is_unseen.then(|| Finding {
            code: Code::UnseenTarget,
            place: place.clone(),
            version: None,
            target: Some(target.clone()),
            kept: Vec::new(),
        })
    }

    fn reads(&self, shown: &Shown, members: bool) -> Vec<Finding> {
        let base = self.history.at(shown.base);
        let events = self.history.since(shown.base);
        let last = |is_due: &dyn Fn(&Event) -> bool| {
            events.iter().rev().find(|event| is_due(event)).map(|event| event.version)
        };
        let stale = |read: &Place| {
            last(&|event| {
                let is_member = |collection: Place| read.covers(&collection) && collection.is_in(base);
                event.changes_value(read, base) || (members && event.membership().is_some_and(is_member))
            })
        };
        let finding = |place: &Place, version| Finding {
            code: Code::StaleRead,
            place: place.clone(),
            version: Some(version),
            target: None,
            kept: Vec::new(),
        };
        let mut findings: Vec<Finding> =
            shown.reads.iter().filter_map(|read| Some(finding(read, stale(read)?))).collect();
        if members {
            let gone = |collection: &Place| {
                last(&|event| event.changes(collection) || event.membership().as_ref() == Some(collection))
            };
            findings.extend(shown.members.iter().filter_map(|place| Some(finding(place, gone(place)?))));
        }
        findings
    }

    /// Returns the reservations that are active at a time.
    pub(super) fn held_at(&self, at: i64) -> impl Iterator<Item = (u64, &Held)> {
        let holds = move |held: &Held| self.decisions < held.decisions && at < held.until;
        self.held.iter().filter(move |(_, held)| holds(held)).map(|(invocation, held)| (*invocation, held))
    }

    /// Updates the oracle with a record.
    pub(super) fn hear(&mut self, record: &Record, body: &Body) {
        match body {
            Body::Invoked(invoked) => {
                let places = |texts: &[String]| texts.iter().map(|text| Place::parse(text)).collect();
                let shown =
                    Shown { base: invoked.base.0, reads: places(&invoked.reads), members: places(&invoked.members) };
                assert_eq!(shown.base, self.history.version(), "a view is of the newest version");
                self.shown.insert((invoked.invocation.0, invoked.attempt), shown);
            }
            Body::Committed(committed) => {
                let ops: Vec<Op> = serde_json::from_value(committed.patch.clone()).expect("a commit has a patch");
                self.history.commit(record.seq.0, committed.by.worker.as_str(), &ops);
                self.decided(committed.by.attempt.as_ref().map(|attempt| attempt.invocation.0));
            }
            Body::Expanded(expanded) => {
                self.decided(expanded.by.attempt.as_ref().map(|attempt| attempt.invocation.0));
            }
            Body::NoOp(no_op) => self.decided(no_op.by.attempt.as_ref().map(|attempt| attempt.invocation.0)),
            Body::Rejected(rejected) => {
                let closed = rejected.by.attempt.as_ref().filter(|_| rejected.is_final);
                self.decided(closed.map(|attempt| attempt.invocation.0));
            }
            Body::Failed(failed) => {
                let closed = failed.by.attempt.as_ref().filter(|_| failed.is_final);
                self.decided(closed.map(|attempt| attempt.invocation.0));
            }
            Body::Reserved(reserved) => {
                let places = reserved.places.iter().map(|place| Place::parse(place)).collect();
                let held = Held { places, decisions: reserved.decisions, until: reserved.until.0 };
                self.held.insert(reserved.invocation.0, held);
            }
            Body::Ended(_) => self.held.clear(),
            _ => {}
        }
    }

    /// Counts a decision, and ends the reservation of the invocation that it closed.
    fn decided(&mut self, closed: Option<u64>) {
        self.decisions += 1;
        if let Some(closed) = closed {
            self.held.remove(&closed);
        }
    }
}

/// Returns true if an insertion before, or removal of, `element` shifts `kept`.
fn is_shifted(element: &Place, kept: &Place) -> bool {
    let Some((array, _)) = element.split() else { return false };
    match (element.index_in(&array), kept.index_in(&array)) {
        (Some(from), Some(index)) => index >= from,
        _ => false,
    }
}
