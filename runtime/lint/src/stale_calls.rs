//! Parallel calls, one for each of many elements, that make each other stale.

use super::flow::Causes;
use super::{Expression, GrantedWrite, Linter, Read, WorkerGrants};
use patchboard_kernel::blueprint::{EventOp, Freshness, GrantOp, Rule, Run, Trigger};
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{Pattern, PatternToken};

/// A trigger that fires for each of many elements.
struct Each<'a> {
    path: &'a str,
    /// The trigger's path up to the token for the elements.
    element: Pattern,
    /// Names that the trigger binds.
    names: Vec<String>,
    /// True if it waits for a member of the element, not for the element itself.
    is_of_member: bool,
    /// True if the elements exist when the board begins.
    is_given: bool,
}

/// Reason for which calls make each other stale, and the help.
type Reason = (String, &'static str);

const BIND: &str = "Bind a name in the trigger (`/notes/{note}`, `blueprint: 2`) and use it in `reads` and `writes`; or set the worker's \
                    `freshness: target` or `limits: {concurrency: 1}`.";
const OF_MEMBERS: &str = "Let the worker read the members that it needs, or set its `freshness: target`.";
const APART: &str = "Let each call write a place of its own, or set the worker's `limits: {concurrency: 1}`.";

impl<'a> Linter<'a> {
    /// Warns of workers triggered for each of many elements, if their parallel calls make each other stale.
    pub(super) fn stale_calls(&self, causes: &Causes<'a>) {
        let blueprint = self.blueprint;
        for (number, rule) in blueprint.rules.iter().enumerate() {
            let Some(each) = self.each(rule) else { continue };
            for (name, seat) in
                self.worker_grants.iter().filter(|(name, _)| blueprint.triggered_workers(&rule.run).contains(name))
            {
                // A worker that creates its own next element handles one at a time.
                let is_made_by_others =
                    causes.iter().any(|(other, caused)| other != name && caused.contains_key(&number));
                if each.is_given || is_made_by_others {
                    let storm =
                        self.is_side_by_side(seat).then(|| self.stale_reason(rule, &each, name, seat)).flatten();
                    let storm = storm.or_else(|| self.same_element_reason(rule, name, seat));
                    let Some((why, help)) = storm else { continue };
                    let message = format!(
                        "`{}` triggers `{name}` for each change at `{}`; {why}, so that calls side by side make each other stale",
                        rule.name, each.path
                    );
                    self.report("stale_storm", &format!("/rules/{number}/run"), message, help);
                }
            }
        }
    }

    /// Returns true if a rule fires for each of many elements.
    pub(super) fn fires_for_each(&self, rule: &'a Rule) -> bool {
        self.each(rule).is_some()
    }

    /// Returns the trigger of a rule, if it fires for each of many elements.
    fn each(&self, rule: &'a Rule) -> Option<Each<'a>> {
        let (op, path) = match &rule.trigger {
            Trigger::Event { op, path } => (*op, path),
            Trigger::Each(path) => (Some(EventOp::Add), path),
            _ => return None,
        };
        let place = self.paths.parse(path).ok()?;
        let is_any =
            |token: &PatternToken| matches!(token, PatternToken::Any | PatternToken::Deep | PatternToken::Bound(_));
        let last = place.tokens().iter().rposition(is_any)?;
        let is_of_member = last + 1 < place.tokens().len();
        // A member that names a worker assigns each element to one worker.
        let is_given_to_one = is_of_member && matches!(rule.run, Run::Member { .. });
        let is_each = is_of_member || matches!(op, None | Some(EventOp::Add));
        (is_each && !is_given_to_one).then(|| Each {
            path,
            element: place.prefix(last + 1),
            names: place.names().map(str::to_owned).collect(),
            is_of_member,
            is_given: matches!(rule.trigger, Trigger::Each(_)),
        })
    }

    /// Returns true if a worker has parallel calls, and the blueprint does not expect conflicts between them.
    fn is_side_by_side(&self, seat: &WorkerGrants<'_>) -> bool {
        let concurrency = self.blueprint.concurrency;
        let at_once = seat.worker.limits.max_concurrency().unwrap_or(concurrency).min(concurrency);
        at_once > 1 && !self.expects_conflicts(seat)
    }

    /// Returns true if the blueprint sets the number of conflicts of a worker.
    fn expects_conflicts(&self, seat: &WorkerGrants<'_>) -> bool {
        self.source.value().pointer(&format!("{}/limits/conflicts", seat.pointer)).is_some()
    }

    /// Returns the reason for which calls triggered by the same element make a call of a worker stale, and the help.
    fn same_element_reason(&self, rule: &Rule, name: &WorkerName, seat: &WorkerGrants<'_>) -> Option<Reason> {
        let freshness = seat.worker.freshness;
        let looks_at_reads = !matches!(freshness, Freshness::None | Freshness::Target);
        if !looks_at_reads || self.blueprint.concurrency < 2 || self.expects_conflicts(seat) {
            return None;
        }
        let is_for_one = |rule: &&Rule| matches!(rule.run, Run::Member { .. });
        // Conditions may select different elements.
        let is_same = |other: &&Rule| rule.when.is_none() && other.when.is_none() && self.wake_together(rule, other);
        let rules = self.blueprint.rules.iter().filter(|other| std::ptr::eq(*other, rule) || is_same(other));
        let others =
            rules.filter(|rule| !is_for_one(rule)).flat_map(|other| self.blueprint.triggered_workers(&other.run));
        for (other, its) in
            others.filter(|other| *other != name).filter_map(|it| Some((it, self.worker_grants.get(it)?)))
        {
            for write in &its.writes {
                if let Some(read) = seat.reads.iter().find(|read| meets(read, write, &[], freshness)) {
                    let (read, path) = (&read.pattern, &write.grant.path);
                    let why = format!(
                        "each call reads all of `{read}`, and `{other}`, triggered by the same change, writes `{path}`"
                    );
                    return Some((why, OF_MEMBERS));
                }
            }
        }
        None
    }

    /// Returns true if two rules fire for the same changes.
    fn wake_together(&self, rule: &Rule, other: &Rule) -> bool {
        let is_same_place = |a: &str, b: &str| {
            let parsed = |path: &str| self.paths.parse(path).map(|place| place.under_any_binding());
            matches!((parsed(a), parsed(b)), (Ok(a), Ok(b)) if a == b)
        };
        match (&rule.trigger, &other.trigger) {
            (Trigger::Event { op, path }, Trigger::Event { op: other, path: same }) => {
                (op.is_none() || other.is_none() || op == other) && is_same_place(path, same)
            }
            (Trigger::Each(path), Trigger::Each(same)) => is_same_place(path, same),
            _ => false,
        }
    }

    /// Returns the reason for which calls of a worker become stale, and the help.
    fn stale_reason(&self, rule: &Rule, each: &Each<'_>, name: &WorkerName, seat: &WorkerGrants<'_>) -> Option<Reason> {
        let freshness = seat.worker.freshness;
        if freshness == Freshness::None {
            return None;
        }
        // A condition on the document may select one of many elements.
        let is_chosen = rule.when.is_some();
        let counts = |write: &GrantedWrite<'_>| {
            let is_of_element = each.element.collides(&write.pattern) || each.element.lies_above(&write.pattern);
            // A grant with a condition on `worker` covers the worker's own elements, and few of these are processed at
            // once.
            (is_of_element || !is_chosen) && !(each.is_of_member && self.asks_for_worker(write))
        };
        if freshness != Freshness::Target {
            let is_read = |write: &GrantedWrite<'_>| {
                let reads = seat.reads.iter();
                reads
                    .filter(|read| meets(read, write, &each.names, freshness))
                    .map(|read| read.pattern.to_string())
                    .next()
            };
            for write in seat.writes.iter().filter(|write| counts(write)) {
                if let Some(read) = is_read(write) {
                    let why = format!("each call reads all of `{read}` and writes `{}`", write.grant.path);
                    return Some((why, BIND));
                }
            }
            let others = self.blueprint.rules.iter().filter(|other| {
                !is_chosen
                    && !std::ptr::eq(*other, rule)
                    && self.each(other).is_some_and(|other| other.element.collides(&each.element))
            });
            let others =
                others.flat_map(|other| self.blueprint.triggered_workers(&other.run)).filter(|other| *other != name);
            for (other, seat) in others.filter_map(|other| Some((other, self.worker_grants.get(other)?))) {
                for write in seat.writes.iter().filter(|write| counts(write)) {
                    if let Some(read) = is_read(write) {
                        let path = &write.grant.path;
                        let why = format!(
                            "each call reads all of `{read}`, and `{other}`, triggered for each as well, writes `{path}`"
                        );
                        return Some((why, BIND));
                    }
                }
            }
        }
        let is_shared = |write: &&GrantedWrite<'_>| {
            write.grant.ops.contains(&GrantOp::Replace) && write.pattern.is_place() && !is_chosen
        };
        let shared = seat.writes.iter().find(is_shared)?;
        Some((format!("each call replaces `{}`", shared.grant.path), APART))
    }

    /// Returns true if the condition of a grant uses the writing worker.
    fn asks_for_worker(&self, write: &GrantedWrite<'_>) -> bool {
        let condition = format!("{}/where/expr", write.pointer);
        let of_grant = |expression: &&Expression<'_>| expression.pointer == condition;
        self.expressions.iter().filter(of_grant).any(|expression| expression.expr.uses("worker"))
    }
}

/// Returns true if a call may write a place in another call's view, although the calls differ in one of these names.
fn meets(read: &Read, write: &GrantedWrite<'_>, names: &[String], freshness: Freshness) -> bool {
    let (shown, written) = (&read.pattern, &write.pattern);
    if !shown.collides(written) && !shown.lies_above(written) {
        return false;
    }
    // Places that share all of the names belong to one call.
    let has_both = |name: &String| {
        let mut pairs = shown.tokens().iter().zip(written.tokens());
        pairs.any(|(a, b)| a == b && matches!(a, PatternToken::Bound(bound) if bound == name))
    };
    if !names.is_empty() && names.iter().all(has_both) {
        return false;
    }
    // A new place next to the view makes no call stale, unless the worker's freshness is `members`.
    let is_new = write.grant.ops.iter().all(|op| matches!(op, GrantOp::Add));
    let is_beside = match shown.tokens().last() {
        // A place added inside an element changes the element.
        Some(PatternToken::Any | PatternToken::Bound(_)) => written.tokens().len() <= shown.tokens().len(),
        _ => written.tokens().len() <= shown.tokens().len() + 1,
    };
    !(is_new && is_beside && freshness != Freshness::Members)
}
