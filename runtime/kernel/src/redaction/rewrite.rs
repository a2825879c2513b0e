//! Rewrites records without the redacted values, and lists the views and prompts to delete with them.
//!
//! Follows the document twice, before and after redaction: a rewritten patch must still apply. Results that the board
//! could no longer derive from it (the region of a branch's cycle) are stored next to it.

mod patches;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use super::edits::Edits;
use super::lineage::{Lineage, Shadow};
use super::names::patches;
use super::text_search::Needles;
use super::{REPORTED_MAX, RemainingCopy, Request};
use crate::board::{initial, reply_digest};
use crate::breaker::{self, Branch};
use crate::digest::{Digest, Hasher, Salt};
use crate::id::{InvocationId, Seq, WorkerName};
use crate::pipeline;
use crate::placeholder::{PLACEHOLDER_PREFIX, is_placeholder, name_placeholder};
use crate::plan::Plan;
use crate::record::{
    Approval, Body, Committed, Expanded, NoOp, PRINCIPAL, Record, RedactionMarker, SINCE_ADMISSION,
    SINCE_ELEMENT_CYCLES, Trigger,
};
use crate::state::State;

/// Records being rewritten, in order.
pub(super) struct Rewriter<'a> {
    plan: &'a Plan,
    hasher: &'a Hasher,
    by: Seq,
    request: &'a Request,
    traces: &'a Lineage,
    edits: &'a Edits,
    names: &'a BTreeSet<String>,
    needles: &'a Needles,
    shadow: Shadow,
    /// The document before redaction; `after` is the one after it.
    before: State,
    after: State,
    /// Places of redacted values so far, in addition to the requested ones.
    regions: BTreeSet<PointerBuf>,
    /// Workers that may read a redacted value in the current document; `None`: not computed yet.
    exposed: Option<BTreeSet<WorkerName>>,
    /// Records with redacted values that views may show.
    touched: BTreeSet<Seq>,
    /// The invocation behind each record with a question to a person.
    questions: BTreeMap<Seq, InvocationId>,
    /// Invocations with a redacted question to a person, or a redacted answer.
    answered: BTreeSet<InvocationId>,
    /// Places that triggers of invocations bind.
    elements: BTreeMap<InvocationId, PointerBuf>,
    format: u32,
    result: RewriteResult,
}

/// The rewritten records.
#[derive(Default)]
pub(super) struct RewriteResult {
    pub(super) records: Vec<Record>,
    pub(super) texts: BTreeSet<Digest>,
    pub(super) values: u64,
    pub(super) remaining: Vec<RemainingCopy>,
    /// Places of the last document that contain redacted values.
    pub(super) remaining_places: Vec<String>,
    pub(super) is_same_document: bool,
}

impl<'a> Rewriter<'a> {
    #[expect(clippy::too_many_arguments, reason = "everything that was worked out before")]
    pub(super) fn new(
        plan: &'a Plan,
        hasher: &'a Hasher,
        by: Seq,
        request: &'a Request,
        (traces, edits): (&'a Lineage, &'a Edits),
        names: &'a BTreeSet<String>,
        needles: &'a Needles,
        start: &State,
    ) -> Self {
        Self {
            plan,
            hasher,
            by,
            request,
            traces,
            edits,
            names,
            needles,
            shadow: Shadow::default(),
            before: start.clone(),
            after: start.clone(),
            regions: request.places.iter().cloned().collect(),
            exposed: None,
            touched: BTreeSet::new(),
            questions: BTreeMap::new(),
            answered: BTreeSet::new(),
            elements: BTreeMap::new(),
            format: 0,
            result: RewriteResult::default(),
        }
    }

    /// Rewrites the next record.
    pub(super) fn record(
        &mut self,
        record: &Record,
        text: &mut dyn FnMut(Digest) -> Option<String>,
    ) -> Result<(), String> {
        let body = record.body().map_err(|error| error.to_string())?;
        let old = record.redaction_marker().map_err(|error| error.to_string())?;
        let mut values = record.values().map_err(|error| error.to_string())?;
        let unchanged = values.clone();
        let is_asked = self.request.records.contains(&record.seq);
        let mut region = old.as_ref().and_then(|old| old.region);
        match body {
            Body::Created(created) => {
                self.format = created.format;
                let blueprint = serde_json::from_value(created.blueprint.clone()).map_err(|error| error.to_string())?;
                self.shadow.begin(&initial(&blueprint, &created.request));
                self.redact_created(&mut values);
                let mut request = created.request.clone();
                let mut stored = blueprint;
                if let (Some(new), Some(asked)) = (values.get("blueprint"), values.get("request")) {
                    request.clone_from(asked);
                    stored = serde_json::from_value(new.clone()).map_err(|error| error.to_string())?;
                }
                self.after = State::new(&initial(&stored, &request), self.hasher);
                let was_shown = values.get("request") != unchanged.get("request");
                for prompt in created.architect.iter().flat_map(|architect| &architect.prompts) {
                    self.text(*prompt, was_shown, text);
                }
                if self.request.forget_salt {
                    values.insert("salt".to_owned(), Salt::ZERO.to_hex().into());
                }
            }
            Body::Committed(committed) => {
                if let Some(patch) = values.get_mut("patch") {
                    self.redact_committed(record.seq, &committed.patch, patch)?;
                }
                self.redact_surroundings(&mut values, is_asked);
                self.redact_source(&mut values, &committed.patch);
                if let Some(written) = values.get_mut("written").filter(|_| self.edits.is_redacted(record.seq)) {
                    *written = self.mark(written);
                }
                let patch = values.get("patch").unwrap_or(&committed.patch);
                let reapply = |state: &State, patch: &Value| {
                    let made = pipeline::reapply(self.plan, state, patch, true);
                    made.map_err(|violation| format!("record {}: {}", record.seq, violation.message))
                };
                let (was, becomes) = (reapply(&self.before, &committed.patch)?, reapply(&self.after, patch)?);
                if committed.by.attempt.is_some() {
                    let element = self.element_of(committed);
                    let renamed = element.map(|element| renamed(element.as_str(), self.names, self.hasher));
                    let renamed = renamed.and_then(|place| PointerBuf::parse(place).ok());
                    let of = |made: &pipeline::AppliedPatch, element: Option<&Pointer>| {
                        breaker::fingerprint(self.hasher, &made.changes, &made.state, element)
                    };
                    let recorded = region.unwrap_or_else(|| of(&was, element));
                    region = (region.is_some() || of(&becomes, renamed.as_deref()) != recorded).then_some(recorded);
                }
                (self.before, self.after) = (was.state, becomes.state);
                self.exposed = None;
            }
            Body::NoOp(NoOp { patch: stored, .. })
            | Body::Expanded(Expanded { patch: stored, .. })
            | Body::Approval(Approval { patch: stored, .. }) => {
                let is_asked = is_asked || self.edits.is_redacted(record.seq);
                if let Some(patch) = values.get_mut("patch") {
                    self.redact_proposed(patch, is_asked);
                }
                if let Some(clarify) = values.get_mut("clarify") {
                    self.erase_where(clarify, &mut |scalar| is_asked || self.quotes_redacted(scalar));
                }
                self.redact_surroundings(&mut values, is_asked);
                self.redact_source(&mut values, stored);
                if let Body::Approval(approval) = body {
                    let asking = approval.by.attempt.as_ref().map(|attempt| attempt.invocation);
                    self.questions.extend(asking.map(|invocation| (record.seq, invocation)));
                    if values != unchanged {
                        self.answered.extend(asking);
                    }
                }
            }
            Body::Rejected(rejected) => {
                self.redact_rejected(&mut values, is_asked || self.edits.is_redacted(record.seq));
                if rejected.elided.is_some() {
                    self.texts(&mut values, true);
                }
            }
            Body::Late(late) => {
                // The text at the cuts of an excerpt is unknown.
                let is_there = is_asked || late.elided.is_some() || self.is_about(&late.reply);
                self.texts(&mut values, is_there);
            }
            Body::Failed(_) | Body::Deferred(_) => self.texts(&mut values, is_asked),
            Body::Skipped(_) => {
                self.texts(&mut values, is_asked);
                self.rename_trigger(&mut values);
            }
            Body::Answer(answer) => {
                self.texts(&mut values, is_asked);
                if values != unchanged {
                    self.answered.extend(self.questions.get(&answer.of));
                }
            }
            Body::Scheduled(scheduled) => {
                let branch = Branch { rule: scheduled.rule.clone(), worker: scheduled.worker.clone() };
                let element = self.plan.element(&branch, &scheduled.trigger);
                self.elements.extend(element.map(|element| (scheduled.invocation, element)));
                self.pointers(&mut values, is_asked);
                self.rename_trigger(&mut values);
                let before = scheduled.follows.or(scheduled.retries);
                let is_answered = before.is_some_and(|before| self.answered.contains(&before));
                let is_signalled =
                    matches!(&scheduled.trigger, Trigger::Signal { seq, .. } if self.touched.contains(seq));
                if is_answered {
                    // Every further request of the invocation repeats the answer.
                    self.answered.insert(scheduled.invocation);
                }
                if is_answered || is_signalled {
                    self.touched.insert(record.seq);
                }
            }
            Body::Invoked(invoked) => {
                self.pointers(&mut values, is_asked);
                let is_shown = is_asked
                    || self.touched.contains(&invoked.cause)
                    || invoked.feedback.iter().any(|seq| self.touched.contains(seq))
                    || self.exposed().contains(&invoked.worker);
                self.text(invoked.view, is_shown, text);
                // Since the format with admission, the stored prompt is only the static part, without any of the
                // document.
                self.text(invoked.prompt, is_shown && self.format < SINCE_ADMISSION, text);
            }
            Body::Reserved(_) | Body::Redacted(_) => self.pointers(&mut values, is_asked),
            Body::Signal(_) => {
                if let Some(value) = values.get_mut("value") {
                    self.erase_where(value, &mut |scalar| is_asked || self.quotes_redacted(scalar));
                    self.rename_quoting(value);
                }
            }
            Body::Epoch(epoch) => self.format = epoch.format.unwrap_or(self.format),
            _ => {}
        }
        for place in ["", "/made_by"] {
            let Some(principal) = values.get_mut(PRINCIPAL).and_then(|caller| caller.pointer_mut(place)) else {
                continue;
            };
            for name in ["name", "person", "address"] {
                if let Some(name) = principal.get_mut(name).filter(|name| is_asked || self.quotes_redacted(name)) {
                    *name = self.mark(name);
                }
            }
        }
        let is_changed = values != unchanged;
        if let Some(path) =
            self.edits.kept_file(record.seq).filter(|_| !is_changed && self.result.remaining.len() < REPORTED_MAX)
        {
            self.result.remaining.push(RemainingCopy { seq: record.seq, place: path.place().to_string() });
        }
        if is_changed {
            self.touched.insert(record.seq);
        }
        let had = old.as_ref().and_then(|old| old.region);
        if is_changed || region != had {
            let known = old.and_then(|old| old.reply);
            let reply = known.or_else(|| is_changed.then(|| reply_digest(self.hasher, self.format, body)).flatten());
            let erasure = RedactionMarker { by: self.by, reply, region };
            self.result.values += count_marks(&values).saturating_sub(count_marks(&unchanged));
            self.result.records.push(record.with_redacted(values, &erasure));
        }
        Ok(())
    }

    /// Returns the place that the trigger of a commit's invocation binds, if cycles are counted per element.
    fn element_of(&self, committed: &Committed) -> Option<&Pointer> {
        let attempt = committed.by.attempt.as_ref().filter(|_| self.format >= SINCE_ELEMENT_CYCLES)?;
        self.elements.get(&attempt.invocation).map(PointerBuf::as_ref)
    }

    pub(super) fn finish(mut self) -> RewriteResult {
        let mut remaining = Vec::new();
        self.each_remaining_place(&mut |place| {
            if remaining.len() < REPORTED_MAX {
                remaining.push(place.to_string());
            }
            remaining.len() < REPORTED_MAX
        });
        self.result.remaining_places = remaining;
        self.result.is_same_document = self.before.digest() == self.after.digest();
        self.result.remaining.sort();
        self.result.remaining.dedup();
        self.result
    }

    /// Redacts the author's texts and places around a patch.
    fn redact_surroundings(&self, values: &mut Map<String, Value>, is_asked: bool) {
        self.texts(values, is_asked);
        self.pointers(values, is_asked);
    }

    /// Redacts the source of a redacted patch, even a short one: it repeats the patch.
    fn redact_source(&self, values: &mut Map<String, Value>, stored: &Value) {
        let is_erased = values.get("patch").is_some_and(|patch| patch != stored);
        for name in ["raw", "written"] {
            if let Some(text) = values.get_mut(name).filter(|_| is_erased) {
                *text = self.mark(text);
            }
        }
    }

    /// Redacts texts of agents and persons as a whole, if they quote a redacted value.
    fn texts(&self, values: &mut Map<String, Value>, is_asked: bool) {
        for field in ["intent", "pass", "raw", "written", "reply", "message", "reason", "text"] {
            if let Some(value) = values.get_mut(field)
                && (is_asked || self.quotes_redacted(value))
            {
                *value = self.mark(value);
            }
        }
    }

    fn redact_rejected(&mut self, values: &mut Map<String, Value>, is_asked: bool) {
        let reply = values.get("reply").and_then(Value::as_str).unwrap_or_default();
        let violations = values.get("rejection").and_then(|rejection| rejection.get("violations"));
        let violations = violations.and_then(Value::as_array).into_iter().flatten();
        let mut pointers = violations.filter_map(|violation| violation.get("pointer")?.as_str());
        let is_there = is_asked
            || self.is_about(reply)
            || pointers.any(|pointer| self.is_near(pointer))
            || values.values().any(|value| self.needles.occur_in_value(value));
        self.texts(values, is_there);
        let Some(rejection) = values.get_mut("rejection") else { return };
        for violation in rejection.get_mut("violations").and_then(Value::as_array_mut).into_iter().flatten() {
            for field in ["message", "expected", "found", "diff"] {
                if let Some(value) = violation.get_mut(field).filter(|_| is_there) {
                    *value = self.mark(value);
                }
            }
            if let Some(Value::String(pointer)) = violation.get_mut("pointer") {
                let is_erased = |name: &str| self.names.contains(name) || self.needles.occur_in(name);
                *pointer = renamed_where(pointer, &is_erased, self.hasher);
            }
        }
        for allowed in rejection.get_mut("allowed").and_then(Value::as_array_mut).into_iter().flatten() {
            self.rename_places(allowed);
        }
    }

    /// Returns true if a reply is or contains a patch at a redacted place.
    fn is_about(&self, reply: &str) -> bool {
        let Ok(reply) = serde_json::from_str::<Value>(reply) else { return false };
        let ops = patches(&reply).filter_map(Value::as_array).flatten();
        let mut places = ops.flat_map(|op| [op.get("path"), op.get("from")]).flatten();
        places.any(|place| place.as_str().is_some_and(|place| self.is_near(place) || self.may_be_near(place)))
    }

    /// Returns true if a place is, contains or lies in one with redacted values.
    fn is_near(&self, place: &str) -> bool {
        let Ok(place) = PointerBuf::parse(place) else { return true };
        self.regions.iter().any(|region| place.starts_with(region) || region.starts_with(&place))
    }

    /// Returns true for a place with names that may have been bound to one with redacted values.
    fn may_be_near(&self, place: &str) -> bool {
        let is_name = |token: &str| token.starts_with('{') && token.ends_with('}');
        let Ok(place) = PointerBuf::parse(place) else { return true };
        let tokens: Vec<_> = place.tokens().map(|token| token.decoded().into_owned()).collect();
        let meets = |region: &PointerBuf| {
            tokens.iter().zip(region.tokens()).all(|(token, of)| is_name(token) || *token == of.decoded())
        };
        tokens.iter().any(|token| is_name(token)) && self.regions.iter().any(meets)
    }

    /// Marks a view or prompt for deletion as a whole.
    fn text(&mut self, hash: Digest, is_shown: bool, text: &mut dyn FnMut(Digest) -> Option<String>) {
        if self.result.texts.contains(&hash) {
            return;
        }
        if let Some(stored) = text(hash)
            && (is_shown || self.needles.occur_in(&stored))
        {
            self.result.texts.insert(hash);
        }
    }

    /// Returns the workers that may read a redacted value in the current document.
    fn exposed(&mut self) -> &BTreeSet<WorkerName> {
        if self.exposed.is_none() {
            let mut exposed = BTreeSet::new();
            let workers = &self.plan.workers;
            self.each_remaining_place(&mut |place| {
                let readers = workers.iter().filter(|(_, worker_plan)| worker_plan.contract.could_read(place));
                exposed.extend(readers.map(|(worker, _)| worker.clone()));
                exposed.len() < workers.len()
            });
            self.exposed = Some(exposed);
        }
        self.exposed.get_or_insert_default()
    }

    /// Visits every place of the current document with a redacted value or name, until `each` returns false.
    fn each_remaining_place(&self, each: &mut dyn FnMut(&Pointer) -> bool) {
        let mut place = PointerBuf::new();
        self.visit_remaining(&self.shadow.document, &mut place, each);
    }

    fn visit_remaining(&self, numbers: &Value, place: &mut PointerBuf, each: &mut dyn FnMut(&Pointer) -> bool) -> bool {
        match numbers {
            Value::Array(items) => items.iter().enumerate().all(|(index, item)| {
                place.push_back(index);
                let goes_on = self.visit_remaining(item, place, each);
                place.pop_back();
                goes_on
            }),
            Value::Object(members) => members.iter().all(|(name, member)| {
                place.push_back(name.as_str());
                let goes_on = (!self.names.contains(name) || each(place)) && self.visit_remaining(member, place, each);
                place.pop_back();
                goes_on
            }),
            number => !self.is_number_erased(number) || each(place),
        }
    }
}

/// Returns a place with its redacted names replaced.
pub(super) fn renamed(place: &str, names: &BTreeSet<String>, hasher: &Hasher) -> String {
    renamed_where(place, &|name| names.contains(name), hasher)
}

fn renamed_where(place: &str, is_erased: &dyn Fn(&str) -> bool, hasher: &Hasher) -> String {
    let Ok(pointer) = Pointer::parse(place) else { return place.to_owned() };
    let is_erased = |name: &str| !is_placeholder(name) && is_erased(name);
    if !pointer.tokens().any(|token| is_erased(token.decoded().as_ref())) {
        return place.to_owned();
    }
    let tokens = pointer.tokens().map(|token| match token.decoded() {
        name if is_erased(name.as_ref()) => name_placeholder(hasher, &name),
        name => name.into_owned(),
    });
    PointerBuf::from_tokens(tokens).to_string()
}

fn count_marks(values: &Map<String, Value>) -> u64 {
    fn count(value: &Value) -> u64 {
        match value {
            Value::String(text) => u64::from(text.contains(PLACEHOLDER_PREFIX)),
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, member)| u64::from(is_placeholder(name)) + count(member)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }
    values.values().map(count).sum()
}
