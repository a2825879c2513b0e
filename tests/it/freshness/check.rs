//! Compares the kernel's decisions with the oracle's findings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use patchboard_kernel::blueprint::Freshness;
use patchboard_kernel::board::{Outcome, Step};
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::rejection::{Code, Rejection, Stage, VIOLATIONS_MAX, Violation};
use serde_json::Value;

use super::driver::Seat;
use super::history::{self, Event};
use super::oracle::{DECISIONS, Finding, MILLISECONDS, Oracle, PLACES, Question};
use super::place::Place;
use super::trace::{self, Target};

/// Counters of a run.
#[derive(Default, Debug, Clone)]
pub(super) struct Figures {
    pub(super) interleavings: u64,
    pub(super) decisions: u64,
    pub(super) commits: u64,
    pub(super) no_ops: u64,
    pub(super) late: u64,
    pub(super) recoveries: u64,
    pub(super) reservations: u64,
    /// Attempts that had to wait for another invocation's reservation.
    pub(super) waits: u64,
    pub(super) given_up: u64,
    /// Rejections that leave out a code, usually because another violation already covers its place.
    pub(super) covered: u64,
    /// Rejections by stage, and at the stage `freshness` by their codes.
    pub(super) refusals: BTreeMap<String, u64>,
    /// Proposals that reached the stage, from workers with another freshness mode than `none`.
    pub(super) reached: u64,
    /// Those of `reached` that were rejected for staleness; in the next fields only for a reservation, or for an unseen
    /// target.
    pub(super) refused_stale: u64,
    pub(super) refused_reserved: u64,
    pub(super) refused_unseen: u64,
    /// Those of `reached` that a check of document versions would reject, and those of them without a stale place.
    pub(super) refused_by_version: u64,
    pub(super) refused_falsely_by_version: u64,
    /// Violations with a checked version, with a checked value, and with a checked difference.
    pub(super) stales: u64,
    pub(super) founds: u64,
    pub(super) diffs: u64,
}

impl Figures {
    pub(super) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.interleavings, other.interleavings),
            (&mut self.decisions, other.decisions),
            (&mut self.commits, other.commits),
            (&mut self.no_ops, other.no_ops),
            (&mut self.late, other.late),
            (&mut self.recoveries, other.recoveries),
            (&mut self.reservations, other.reservations),
            (&mut self.waits, other.waits),
            (&mut self.given_up, other.given_up),
            (&mut self.covered, other.covered),
            (&mut self.reached, other.reached),
            (&mut self.refused_stale, other.refused_stale),
            (&mut self.refused_reserved, other.refused_reserved),
            (&mut self.refused_unseen, other.refused_unseen),
            (&mut self.refused_by_version, other.refused_by_version),
            (&mut self.refused_falsely_by_version, other.refused_falsely_by_version),
            (&mut self.stales, other.stales),
            (&mut self.founds, other.founds),
            (&mut self.diffs, other.diffs),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
        for (name, count) in &other.refusals {
            *self.refusals.entry(name.clone()).or_default() += count;
        }
    }
}

/// One decision of the kernel, with the oracle's findings.
pub(super) struct Decision<'a> {
    pub(super) seed: u64,
    pub(super) question: &'a Question<'a>,
    pub(super) findings: &'a [Finding],
    pub(super) outcome: &'a Outcome,
    pub(super) step: &'a Step,
}

/// State kept between decisions.
#[derive(Default)]
pub(super) struct Checked {
    /// Number of conflicts by invocation.
    conflicts: BTreeMap<u64, u32>,
    /// Reservations that an invocation's next attempt waits for: holder, and decision count at which it ends at the
    /// latest.
    awaits: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Checked {
    pub(super) fn decision(&mut self, oracle: &Oracle, decision: &Decision<'_>, figures: &mut Figures) {
        if decision.step.records.iter().any(|record| record.kind == Kind::Late) {
            figures.late += 1;
            return;
        }
        figures.decisions += 1;
        let rejection = match decision.outcome {
            Outcome::Committed { .. } => {
                figures.commits += 1;
                None
            }
            Outcome::AwaitingApproval { .. } | Outcome::Answered { .. } | Outcome::RejectedUnrecorded(_) => {
                panic!("nobody is asked")
            }
            Outcome::Continued { .. } => panic!("nobody goes on"),
            Outcome::NoOp { .. } | Outcome::Expanded { .. } => {
                figures.no_ops += 1;
                None
            }
            Outcome::Rejected { rejection, .. } => Some(rejection),
            Outcome::Duplicate(_) => return,
        };
        match rejection {
            Some(rejection) if matches!(rejection.stage, Stage::Syntax | Stage::Authorization) => {
                *figures.refusals.entry(rejection.stage.to_string()).or_default() += 1;
                return;
            }
            Some(rejection) if rejection.stage == Stage::Freshness => {
                self.conflict(oracle, decision, rejection, figures);
            }
            other => {
                if let Some(rejection) = other {
                    *figures.refusals.entry(rejection.stage.to_string()).or_default() += 1;
                }
                assert!(decision.findings.is_empty(), "{}: it passed", describe(oracle, decision));
            }
        }
        count(oracle, decision, figures);
    }

    fn conflict(&mut self, oracle: &Oracle, decision: &Decision<'_>, rejection: &Rejection, figures: &mut Figures) {
        let due: BTreeSet<Code> = decision.findings.iter().map(|finding| finding.code).collect();
        let said: BTreeSet<Code> = rejection.violations.iter().map(|violation| violation.code).collect();
        let is_cut = rejection.violations.len() == VIOLATIONS_MAX;
        // A place reported under one code need not be reported under another.
        let is_covered = said.is_subset(&due)
            && due.difference(&said).all(|code| match code {
                Code::StaleTarget => is_covered_elsewhere(decision, &rejection.violations, *code),
                Code::StaleRead => are_reported_as_targets(oracle, decision, &rejection.violations),
                _ => false,
            });
        figures.covered += u64::from(said != due);
        assert!(
            said == due || (is_cut && said.is_subset(&due)) || is_covered,
            "{}: it was refused for {said:?}",
            describe(oracle, decision)
        );
        let codes: Vec<&str> = said.iter().map(|code| code.as_str()).collect();
        *figures.refusals.entry(codes.join("+")).or_default() += 1;
        assert_eq!(rejection.code, rejection.violations[0].code, "{}", describe(oracle, decision));
        let is_first = rejection.code == Code::Reserved || !said.contains(&Code::Reserved);
        assert!(is_first, "{}: reservations are said first", describe(oracle, decision));
        for violation in &rejection.violations {
            check_violation(oracle, decision, violation, figures);
        }
        let Some((invocation, _)) = decision.question.asked else { return };
        let conflicts = self.conflicts.entry(invocation).or_default();
        *conflicts += 1;
        let is_final = *conflicts >= decision.question.conflicts;
        let kept = decision.findings.iter().flat_map(|finding| &finding.kept);
        let ends = |other: &u64| oracle.held.get(other).map_or(0, |held| held.decisions);
        self.awaits.insert(invocation, kept.map(|(other, _)| (*other, ends(other))).collect());
        check_reservation(oracle, decision, is_final, said.iter().any(|code| *code != Code::Reserved));
    }

    /// Checks a record of the kernel: final rejections, reservations and dispatches.
    pub(super) fn record(&self, oracle: &Oracle, record: &Record, body: &Body, seed: u64, figures: &mut Figures) {
        match body {
            Body::Rejected(rejected) => {
                let Some(attempt) = &rejected.by.attempt else { return };
                figures.given_up += u64::from(rejected.is_final);
                if rejected.stage == Stage::Freshness {
                    let conflicts = self.conflicts.get(&attempt.invocation.0).copied().unwrap_or(0);
                    let limit = Seat::named(rejected.by.worker.as_str()).conflicts;
                    assert_eq!(rejected.is_final, conflicts >= limit, "SEED={seed}: conflict {conflicts}");
                }
            }
            Body::Reserved(reserved) => {
                figures.reservations += 1;
                assert_eq!(reserved.decisions, oracle.decisions + DECISIONS, "SEED={seed}: record {}", record.seq);
                assert_eq!(reserved.until.0, record.at.0 + MILLISECONDS, "SEED={seed}: record {}", record.seq);
            }
            Body::Invoked(invoked) => {
                let Some(awaits) = self.awaits.get(&invoked.invocation.0).filter(|awaits| !awaits.is_empty()) else {
                    return;
                };
                figures.waits += 1;
                let is_held = |(other, ends): &&(u64, u64)| {
                    oracle.held_at(record.at.0).any(|(holder, held)| holder == *other && held.decisions == *ends)
                };
                let in_the_way = awaits.iter().find(is_held);
                assert!(
                    in_the_way.is_none(),
                    "SEED={seed}: {} is dispatched too early: {awaits:?}",
                    invoked.invocation
                );
            }
            _ => {}
        }
    }
}

fn count(oracle: &Oracle, decision: &Decision<'_>, figures: &mut Figures) {
    let Some((_, shown)) = decision.question.asked.filter(|_| decision.question.mode != Freshness::None) else {
        return;
    };
    if decision.question.ops.iter().all(|op| matches!(op, json_patch::PatchOperation::Test(_))) {
        return;
    }
    figures.reached += 1;
    let has = |codes: &[Code]| decision.findings.iter().any(|finding| codes.contains(&finding.code));
    let is_stale = has(&[Code::StaleTarget, Code::StaleRead]);
    if is_stale {
        figures.refused_stale += 1;
    } else if has(&[Code::UnseenTarget]) {
        figures.refused_unseen += 1;
    } else if has(&[Code::Reserved]) {
        figures.refused_reserved += 1;
    }
    if shown.base != oracle.history.version() {
        figures.refused_by_version += 1;
        figures.refused_falsely_by_version += u64::from(!is_stale);
    }
}

/// Returns the places that the patch copies.
fn copies<'a>(oracle: &Oracle, decision: &Decision<'a>) -> impl Iterator<Item = Place> + use<'a> {
    let targets = trace::targets(oracle.history.now(), decision.question.ops);
    targets.into_iter().filter_map(|(_, target)| match target {
        Target::Copy(place) => Some(place),
        _ => None,
    })
}

/// Returns true if other violations cover the places of all findings with this code.
fn is_covered_elsewhere(decision: &Decision<'_>, violations: &[Violation], code: Code) -> bool {
    let is_said = |finding: &Finding| {
        let stale = violations.iter().filter(|violation| matches!(violation.code, Code::StaleRead | Code::StaleTarget));
        stale.map(|violation| Place::parse(&violation.pointer)).any(|place| finding.is_about(&place))
    };
    decision.findings.iter().filter(|finding| finding.code == code).all(is_said)
}

/// Returns true if every change of the read set is reported as a stale target.
fn are_reported_as_targets(oracle: &Oracle, decision: &Decision<'_>, violations: &[Violation]) -> bool {
    let Some((_, shown)) = decision.question.asked else { return false };
    let base = oracle.history.at(shown.base);
    let targets: Vec<Place> = violations
        .iter()
        .filter(|violation| violation.code == Code::StaleTarget)
        .map(|violation| Place::parse(&violation.pointer))
        .collect();
    let is_members = decision.question.mode == Freshness::Members;
    let is_read = matches!(decision.question.mode, Freshness::Reads | Freshness::Members);
    let changed = |event: &&Event| {
        is_read
            && shown.reads.iter().any(|read| {
                let member = event.membership().filter(|collection| is_members && collection.is_in(base));
                event.changes_value(read, base) || member.is_some_and(|collection| read.covers(&collection))
            })
    };
    oracle.history.since(shown.base).iter().filter(changed).all(|event| {
        let at = event.membership().unwrap_or_else(|| event.at.clone());
        targets.iter().any(|target| target.touches(&event.at) || target.touches(&at))
    }) && copies(oracle, decision).all(|place| {
        !decision.findings.iter().any(|finding| finding.code == Code::StaleRead && finding.place == place)
            || targets.iter().any(|target| target.touches(&place))
    })
}

fn check_violation(oracle: &Oracle, decision: &Decision<'_>, violation: &Violation, figures: &mut Figures) {
    let place = Place::parse(&violation.pointer);
    let of_code = || decision.findings.iter().filter(|finding| finding.code == violation.code);
    let is_meant = of_code().any(|finding| finding.is_about(&place));
    assert!(is_meant, "{}: {violation:?} is about nothing that is wrong", describe(oracle, decision));
    let Some((_, shown)) = decision.question.asked else { return };
    let base = oracle.history.at(shown.base);
    let events = oracle.history.since(shown.base);
    let last =
        |is_due: &dyn Fn(&Event) -> bool| events.iter().rev().find(|event| is_due(event)).map(|event| event.version);
    if let Some(stale) = &violation.stale {
        figures.stales += 1;
        assert_eq!(stale.read_at.0, shown.base, "{}: {violation:?}", describe(oracle, decision));
        let commit = oracle.history.commit_of(stale.now.0);
        assert_eq!(
            commit,
            Some((stale.seq.0, stale.changed_by.as_str())),
            "{}: {violation:?}",
            describe(oracle, decision)
        );
        // Accepts the last change of the whole place, of its content, of its members, or, for a target, of anything
        // within it.
        let mut due: BTreeSet<u64> = BTreeSet::new();
        due.extend(last(&|event| event.changes(&place)));
        due.extend(last(&|event| event.changes_value(&place, base)));
        // The last loss may concern an element that was only shifted or re-added there, so any loss is accepted.
        due.extend(events.iter().filter(|event| event.loses_of(&place)).map(|event| event.version));
        let is_copied = copies(oracle, decision).any(|copied| copied.covers(&place));
        if violation.code != Code::StaleRead || is_copied || decision.question.mode == Freshness::Members {
            due.extend(last(&|event| event.membership().as_ref() == Some(&place)));
        }
        if violation.code != Code::StaleRead || is_copied {
            due.extend(last(&|event| event.changes_anything(&place)));
        }
        due.extend(last(&|event| event.at == place));
        due.extend(last(&|event| event.makes(&place)));
        // Later patches may have inserted elements before elements that they inserted themselves.
        due.extend(history::last_moved(events, &place));
        assert!(due.contains(&stale.now.0), "{}: {violation:?} changed in {due:?}", describe(oracle, decision));
    }
    if violation.found.is_some() || violation.diff.is_some() || violation.stale.is_some() {
        assert!(
            (decision.question.may_read)(&place),
            "{}: {violation:?} shows what it must not",
            describe(oracle, decision)
        );
    }
    if let Some(found) = &violation.found {
        figures.founds += 1;
        assert_eq!(Some(found), place.of(oracle.history.now()), "{}: {violation:?}", describe(oracle, decision));
    }
    if let Some(diff) = &violation.diff {
        figures.diffs += 1;
        check_diff(oracle, diff, base, decision, violation);
    }
}

/// Checks a difference: `{"was": …}`, or for texts `{"at", "removed", "added"}` in characters.
fn check_diff(oracle: &Oracle, diff: &Value, base: &Value, decision: &Decision<'_>, violation: &Violation) {
    let place = Place::parse(&violation.pointer);
    let (was, now) = (place.of(base), place.of(oracle.history.now()));
    if let Some(said) = diff.get("was") {
        assert_eq!(Some(said), was, "{}: {violation:?}", describe(oracle, decision));
        return;
    }
    let (Some(was), Some(now)) = (was.and_then(Value::as_str), now.and_then(Value::as_str)) else {
        panic!("{}: {violation:?} compares texts", describe(oracle, decision));
    };
    let at = usize::try_from(diff["at"].as_u64().expect("a place in the text")).expect("texts are short");
    let part = |name: &str| diff[name].as_str().unwrap_or_default().to_owned();
    let mut made: Vec<char> = was.chars().collect();
    let removed: String = made.splice(at..at + part("removed").chars().count(), part("added").chars()).collect();
    assert_eq!(removed, part("removed"), "{}: {violation:?}", describe(oracle, decision));
    assert_eq!(made.into_iter().collect::<String>(), now, "{}: {violation:?}", describe(oracle, decision));
}

/// Checks that a reservation follows exactly if one is due, and that its places are justified.
fn check_reservation(oracle: &Oracle, decision: &Decision<'_>, is_final: bool, is_stale: bool) {
    let (invocation, _) = decision.question.asked.expect("only invocations are kept places for");
    let records = decision.step.records.iter().filter(|record| record.kind == Kind::Reserved);
    let bodies: Vec<&Body> = records.map(|record| record.body().expect("it was just made")).collect();
    let [Body::Reserved(reserved)] = bodies.as_slice() else {
        assert!(bodies.is_empty(), "{}: more than one reservation", describe(oracle, decision));
        let others = oracle.held_at(decision.question.at).filter(|(other, _)| *other != invocation);
        let kept: Vec<&Place> = others.flat_map(|(_, held)| &held.places).collect();
        let targets = trace::targets(oracle.history.now(), decision.question.ops);
        let mut written = targets.iter().filter(|(_, target)| !matches!(target, Target::Copy(_)));
        let all_kept = written.all(|(_, target)| kept.iter().any(|kept| target.is_meant_by(kept)))
            && contested(decision).all(|place| kept.iter().any(|kept| kept.touches(&place)));
        assert!(is_final || !is_stale || all_kept, "{}: no reservation", describe(oracle, decision));
        return;
    };
    assert!(!is_final && is_stale, "{}: a reservation that is not due", describe(oracle, decision));
    assert_eq!(reserved.invocation.0, invocation, "{}", describe(oracle, decision));
    assert!(
        !reserved.places.is_empty() && reserved.places.len() <= PLACES,
        "{}: {reserved:?}",
        describe(oracle, decision)
    );
    let targets = trace::targets(oracle.history.now(), decision.question.ops);
    // Reservations that end with this decision no longer count.
    let others: Vec<Place> = oracle
        .held_at(decision.question.at)
        .filter(|(other, held)| *other != invocation && held.decisions > oracle.decisions + 1)
        .flat_map(|(_, held)| held.places.clone())
        .collect();
    for place in reserved.places.iter().map(|place| Place::parse(place)) {
        let is_wanted = targets.iter().any(|(_, target)| target.is_meant_by(&place))
            || decision.findings.iter().any(|finding| finding.place.touches(&place));
        // A place that never existed, in an array that the patch shifts, may have any name.
        let is_nothing = !place.is_in(oracle.history.now())
            && targets.iter().any(|(_, target)| target.place().tokens().first() == place.tokens().first());
        assert!(is_wanted || is_nothing, "{}: {place} is kept for nothing", describe(oracle, decision));
        assert!(!others.contains(&place), "{}: {place} is kept for two", describe(oracle, decision));
    }
}

/// Returns the places of changes in a rejection, each at or above a place that its author read or would write.
fn contested(decision: &Decision<'_>) -> impl Iterator<Item = Place> {
    let violations = match decision.outcome {
        Outcome::Rejected { rejection, .. } => rejection.violations.as_slice(),
        _ => &[],
    };
    let changed = violations.iter().filter(|violation| violation.code != Code::Reserved);
    changed.map(|violation| Place::parse(&violation.pointer))
}

/// Describes a decision for the message of a failed check.
fn describe(oracle: &Oracle, decision: &Decision<'_>) -> String {
    let mut description = format!("SEED={}, which FRESHNESS_SEED={} runs alone\n", decision.seed, decision.seed);
    let mut line = |name: &str, text: String| {
        let _ = writeln!(description, "  {name}: {}", text.chars().take(400).collect::<String>());
    };
    let question = decision.question;
    line("patch", serde_json::to_string(question.ops).unwrap_or_default());
    line("mode", question.mode.to_string());
    let base = question.asked.map(|(invocation, shown)| {
        let reads: Vec<String> = shown.reads.iter().map(ToString::to_string).collect();
        line("asked", format!("{invocation} at {} of {reads:?}", shown.base));
        shown.base
    });
    for finding in decision.findings {
        let (code, place, kept) = (finding.code, &finding.place, &finding.kept);
        line("oracle", format!("{code} {place} version {:?} target {:?} {kept:?}", finding.version, finding.target));
    }
    let mut about: BTreeSet<Place> = BTreeSet::new();
    match decision.outcome {
        Outcome::Rejected { rejection, .. } => {
            for violation in &rejection.violations {
                let now = violation.stale.as_ref().map(|stale| stale.now);
                let message = &violation.message;
                line(
                    "kernel",
                    format!("{} {} op {:?} now {now:?}: {message}", violation.code, violation.pointer, violation.op),
                );
                about.insert(Place::parse(&violation.pointer));
            }
        }
        other => line("kernel", format!("{other:?}")),
    }
    line("targets", format!("{:?}", trace::targets(oracle.history.now(), question.ops)));
    about.extend(trace::targets(oracle.history.now(), question.ops).into_iter().map(|(_, target)| target.place()));
    for place in about {
        let above = place.split().map_or_else(Place::default, |(above, _)| above);
        let text = |version: u64| above.of(oracle.history.at(version)).map(Value::to_string).unwrap_or_default();
        let (then, now) = (base.unwrap_or_else(|| oracle.history.version()), oracle.history.version());
        line(&format!("{above} at {then}"), text(then));
        line(&format!("{above} at {now}"), text(now));
        for event in oracle.history.since(then).iter().filter(|event| event.at.touches(&above)) {
            line("since", format!("{} {:?} {}", event.version, event.what, event.at));
        }
    }
    description
}
