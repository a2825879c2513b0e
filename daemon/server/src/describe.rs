//! Describes a record in one line, for logs and live progress; a cassette miss in several.
//!
//! Text written by models, documents or users is truncated and cannot control a terminal.

mod file_edits;
mod shortages;

use std::collections::BTreeMap;

use patchboard_agents::config::DEFAULT_MODEL;
use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{RuleName, Timestamp, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{
    Author, Body, Cause, LimitOverrides, NoOp, PauseRequest, Principal, Record, Rejected, Resource, Retried, Trigger,
};
use patchboard_kernel::rejection::Code;
use serde_json::Value;

use crate::reader::format_time;
use crate::text::{clean, one_line, short};
use patchboard_kernel::text::counted;

pub use file_edits::{EditInfo, EditLine};
pub use patchboard_kernel::view::grouped;
pub use shortages::{NestedShortage, NestedShortages, UnshownInfo, ViewShortages};

const TEXT_CHARS_MAX: usize = 100;

const REPLY_CHARS_MAX: usize = 240;

/// Maximum lines of a foreign text of several lines.
const BLOCK_LINES_MAX: usize = 40;

/// Maximum characters of each of these lines.
const BLOCK_LINE_CHARS_MAX: usize = 400;

const OPS_MAX: usize = 4;

/// Describes a record, or reports that it cannot be read.
pub fn sentence(record: &Record) -> String {
    match record.body() {
        Ok(body) => body_text(body),
        Err(error) => format!("cannot be read: {}", one_line(&error.to_string())),
    }
}

/// Returns the name of the record's caller, if it has one.
pub fn caller(record: &Record) -> Option<String> {
    record.principal().ok()?.map(|caller| caller_name(&caller))
}

/// Returns a caller's name, and the creator of its token.
pub fn caller_name(caller: &Principal) -> String {
    let quoted =
        |name: &str| if name.is_empty() { String::new() } else { format!(" \"{}\"", short(name, TEXT_CHARS_MAX)) };
    match caller {
        Principal::Token { id, name, person, made_by } => {
            let person = person.as_ref().map(|person| format!(" of {}", short(person.as_str(), TEXT_CHARS_MAX)));
            let maker = made_by.as_ref().map(|maker| format!(", made by {}", caller_name(maker)));
            format!("token {id}{}{}{}", quoted(name), person.unwrap_or_default(), maker.unwrap_or_default())
        }
        Principal::User { name } => format!("user{}", quoted(name)),
        Principal::Address { address } => format!("{} without a token", one_line(address)),
        Principal::Host => "the agent that started the process".to_owned(),
    }
}

/// Returns an excerpt of a rejected reply as its author sent it. Edits of files are described elsewhere.
pub fn rejected_reply(record: &Record) -> Option<String> {
    let (reply, raw) = match record.body().ok()? {
        Body::Rejected(rejected) if rejected.by.edit.is_none() => {
            let Rejected { reply, written, raw, .. } = &**rejected;
            (written.as_ref().unwrap_or(reply), raw)
        }
        Body::Late(late) => (&late.reply, &late.raw),
        _ => return None,
    };
    Some(short(raw.as_ref().unwrap_or(reply), REPLY_CHARS_MAX))
}

/// Lists the selected models with their workers.
pub fn selected_models(drawn: &BTreeMap<WorkerName, String>) -> String {
    let mut by_model: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (worker, model) in drawn {
        by_model.entry(model).or_default().push(name(worker.as_str()));
    }
    let each = by_model.iter().map(|(model, workers)| format!("{} for {}", name(model), workers.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

/// Describes a record's body.
pub fn body_text(body: &Body) -> String {
    match body {
        Body::Created(created) => {
            let designed = created.architect.as_ref().map(|architect| {
                let calls = if architect.calls == 1 { "call" } else { "calls" };
                let tokens = grouped(architect.usage.total());
                format!(", which an architect wrote in {} {calls}, {tokens} tokens", architect.calls)
            });
            let mode = (!created.mode.is_default()).then(|| format!(", as {}", created.mode));
            let (designed, mode) = (designed.unwrap_or_default(), mode.unwrap_or_default());
            let drawn = match created.drawn.is_empty() {
                true => String::new(),
                false => format!(", models drawn: {}", selected_models(&created.drawn)),
            };
            format!("from blueprint {}{designed}{mode}{drawn}", name(&created.name))
        }
        Body::Epoch(epoch) => format!("ownership acquired by process {} (epoch {})", name(&epoch.writer), epoch.epoch),
        Body::Scheduled(scheduled) => {
            let worker = name(scheduled.worker.as_str());
            let cause = cause(scheduled.rule.as_ref(), &scheduled.trigger);
            let goes_on = scheduled.follows.map(|follows| format!(", going on from #{follows}")).unwrap_or_default();
            let due = scheduled.due.map(|due| format!(", at {}", format_time(due))).unwrap_or_default();
            format!("{worker} #{}: {cause}{goes_on}{due}", scheduled.invocation)
        }
        Body::Invoked(invoked) => {
            let (worker, invocation, attempt) = (name(invoked.worker.as_str()), invoked.invocation, invoked.attempt);
            let model = invoked.admitted.as_ref().and_then(|admitted| admitted.model.as_deref());
            let model = model.filter(|model| *model != DEFAULT_MODEL);
            let on = model.map(|model| format!(", on model {}", one_line(model))).unwrap_or_default();
            format!("{worker} #{invocation}.{attempt} called with version {}{on}", invoked.base)
        }
        Body::Deferred(deferred) => {
            let model = deferred.model.as_ref().map(|model| format!("model {}", one_line(model)));
            let model = model.unwrap_or_else(|| "its provider".to_owned());
            let (until, message) = (format_time(deferred.not_before), short(&deferred.message, 2 * TEXT_CHARS_MAX));
            format!("{} waits for {model} until {until}: {}: {message}", author(&deferred.by), deferred.reason)
        }
        Body::Retried(retried) => retry(retried),
        Body::Continued(continued) => {
            format!("{} asks its model again{}", author(&continued.by), cost(&continued.by))
        }
        Body::Committed(committed) => {
            if let Some(editing) = EditLine::from_commit(committed) {
                return editing.sentence(committed);
            }
            let intent = committed.intent.as_ref().map(|intent| format!(" “{}”", short(intent, TEXT_CHARS_MAX)));
            let (by, ops) = (author(&committed.by), patch(&committed.patch));
            let asked = match committed.expand.as_slice() {
                [] => String::new(),
                places => format!(", and requests {}", listed(places)),
            };
            let (version, cost) = (committed.version, cost(&committed.by));
            format!("version {version} by {by}: {ops}{}{asked}{cost}", intent.unwrap_or_default())
        }
        Body::NoOp(NoOp { by, pass: Some(pass), .. }) => {
            format!("{} passes: {}{}", author(by), short(pass, 2 * TEXT_CHARS_MAX), cost(by))
        }
        Body::NoOp(no_op) => {
            format!("{} proposed no change: {}{}", author(&no_op.by), patch(&no_op.patch), cost(&no_op.by))
        }
        Body::Expanded(expanded) => {
            let (by, places, cost) = (author(&expanded.by), listed(&expanded.expand), cost(&expanded.by));
            format!("{by} requests {places}{cost}")
        }
        Body::Approval(approval) => {
            if let Some(clarify) = &approval.clarify {
                let (by, approver) = (author(&approval.by), name(approval.approver.as_str()));
                let asked = short(&clarify.question, 2 * TEXT_CHARS_MAX);
                return format!("{by} asks {approver}: {asked}{}{}", until(approval.expires), cost(&approval.by));
            }
            let (by, ops, approver) = (author(&approval.by), patch(&approval.patch), name(approval.approver.as_str()));
            format!("{by} asks {approver} to agree to {ops}{}{}", until(approval.expires), cost(&approval.by))
        }
        Body::Answer(answer) => {
            let (by, of) = (name(answer.by.as_str()), answer.of);
            if let Some(text) = &answer.text {
                return format!("{by} answers {of}: {}", short(text, 2 * TEXT_CHARS_MAX));
            }
            let does = if answer.agrees { "agrees to" } else { "does not agree to" };
            let reason =
                answer.reason.as_ref().map(|reason| format!(": {}", short(reason, TEXT_CHARS_MAX))).unwrap_or_default();
            format!("{by} {does} {of}{reason}")
        }
        Body::Rejected(rejected) => {
            let first = rejected.rejection.violations.first();
            let why = first.map(|violation| {
                let place = if violation.pointer.is_empty() { "the entire reply" } else { violation.pointer.as_str() };
                // The cause is short, and contains no values.
                let cause = violation.found.as_ref().and_then(Value::as_str);
                let cause = cause.filter(|_| violation.code == Code::InvariantViolated);
                let cause = cause.map(|cause| format!(" ({})", short(cause, TEXT_CHARS_MAX))).unwrap_or_default();
                format!(
                    " at {}: {}{cause}",
                    short(place, TEXT_CHARS_MAX),
                    short(&violation.message_with_author(), 2 * TEXT_CHARS_MAX)
                )
            });
            let more = match rejected.rejection.violations.len() {
                0 | 1 => String::new(),
                several => format!(" (and {} more)", several - 1),
            };
            let last = if rejected.is_final { " (retries exhausted)" } else { "" };
            format!(
                "{} {}/{}{}{more}{last}{}",
                file_edits::rejected_edit(rejected).unwrap_or_else(|| author(&rejected.by)),
                rejected.stage,
                rejected.code,
                why.unwrap_or_default(),
                cost(&rejected.by)
            )
        }
        Body::Failed(failed) => {
            let last = if failed.is_final { " (retries exhausted)" } else { "" };
            let (by, code, cost) = (author(&failed.by), failed.code, cost(&failed.by));
            if failed.code == FailureCode::CassetteMiss {
                // The message is about the difference between the view and the recorded one.
                return format!("{by} {code}{last}{cost}: {}", block(&failed.message));
            }
            format!("{by} {code}: {}{last}{cost}", short(&failed.message, 2 * TEXT_CHARS_MAX))
        }
        Body::Late(late) => format!("{} {}", name(late.worker.as_str()), late.code),
        Body::Reserved(reserved) => {
            let (worker, places) = (name(reserved.worker.as_str()), listed(&reserved.places));
            format!("for {worker}: {places} (until {} at the latest)", format_time(reserved.until))
        }
        Body::Skipped(skipped) => {
            let which = skipped.invocation.map(|invocation| format!(" for #{invocation}")).unwrap_or_default();
            let which = which + &place(skipped.trigger.as_ref());
            let what = skipped.rule.as_ref().map(|rule| format!("rule {} did not fire{which}", name(rule.as_str())));
            let what = what.unwrap_or_else(|| "`done` could not be evaluated".to_owned());
            format!("{what}: {}", short(&skipped.message, TEXT_CHARS_MAX))
        }
        Body::Breaker(moved) => {
            let branch = branch(moved.rule.as_ref(), &moved.worker);
            format!("{branch} {}: {}", change(moved.change), reason(moved.reason))
        }
        Body::Budget(budget) => format!(
            "{}{}: {}: {} needed, {} left{}",
            branch(budget.rule.as_ref(), &budget.worker),
            budget.invocation.map(|invocation| format!(" #{invocation}")).unwrap_or_default(),
            resource(budget.resource),
            amount(budget.resource, budget.needed),
            amount(budget.resource, budget.left),
            if budget.is_tried_again { "; retried with a smaller view" } else { "" }
        ),
        Body::Paused(PauseRequest { cause: Some(cause), .. }) => {
            format!("dispatch is paused ({cause}): `patchboard resume BOARD` tries again")
        }
        Body::Paused(_) => "dispatch is paused".to_owned(),
        Body::Resumed(_) => "dispatch continues".to_owned(),
        Body::Tick(_) => "a timer expired".to_owned(),
        Body::Jumped(jumped) => {
            format!("the clock jumped forward by {} s, which costs the board nothing", jumped.ms / 1000)
        }
        Body::Snapshot(snapshot) => format!("of everything up to {}", snapshot.of),
        Body::Redacted(redacted) => {
            let (erased, records) = (redacted.erased, redacted.records.len());
            let salt = if redacted.salt { "; the salt is destroyed, and only the chain can be verified" } else { "" };
            let values = counted(usize::try_from(erased).unwrap_or(usize::MAX), "value");
            let records = counted(records, "record");
            format!("{} erased: {values} in {records}{salt}", listed(&redacted.targets))
        }
        Body::Signal(signal) => format!("{} {}", name(&signal.name), short(&signal.value.to_string(), TEXT_CHARS_MAX)),
        Body::Ended(ended) => format!("{} ({})", ended.end, ended.cause),
    }
}

/// Lists places, as many as fit.
pub fn listed(places: &[impl ToString]) -> String {
    let places: Vec<String> = places.iter().map(|place| name(&place.to_string())).collect();
    short(&places.join(", "), TEXT_CHARS_MAX)
}

/// Formats foreign text of several lines; lines after the first are indented.
fn block(text: &str) -> String {
    let text = clean(text);
    let mut lines = text.lines();
    let mut block: String = lines.by_ref().take(BLOCK_LINES_MAX).map(short_line).collect::<Vec<_>>().join("\n      ");
    let left = lines.count();
    if left > 0 {
        block.push_str(&format!("\n      … {left} more lines"));
    }
    block
}

/// Returns a line with its indentation, truncated if very long.
fn short_line(line: &str) -> String {
    let line: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    if let Some((end, _)) = line.char_indices().nth(BLOCK_LINE_CHARS_MAX) {
        format!("{}…", &line[..end])
    } else {
        line
    }
}

/// Describes the trigger of an invocation.
pub fn cause(rule: Option<&RuleName>, trigger: &Trigger) -> String {
    let what = match trigger {
        Trigger::Start => "the board began".to_owned(),
        Trigger::Event { op, path, version } => format!("{op} {} in version {version}", short(path, TEXT_CHARS_MAX)),
        Trigger::Signal { name: signal, seq } => format!("signal {} (seq {seq})", name(signal)),
        Trigger::After => "all runs of the rules it waited for have finished".to_owned(),
        Trigger::Idle => "no run of the rules it waited for is in progress".to_owned(),
        Trigger::Every { due } => format!("its schedule, due {}", format_time(*due)),
        Trigger::Breaker { rule, worker, reason: why } => {
            format!("{} was stopped: {}", branch(rule.as_ref(), worker), reason(*why))
        }
    };
    if let Some(rule) = rule { format!("rule {}: {what}", name(rule.as_str())) } else { what }
}

/// Lists the operations of a patch and their places, without the values.
pub fn patch(patch: &Value) -> String {
    let ops = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    if ops.is_empty() {
        return "an empty patch".to_owned();
    }
    first_of(ops, OPS_MAX, operation)
}

/// Joins the first ones of several, and the number of the others.
fn first_of<T>(all: &[T], most: usize, describe: impl Fn(&T) -> String) -> String {
    let mut shown: Vec<String> = all.iter().take(most).map(describe).collect();
    if all.len() > most {
        shown.push(format!("{} more", all.len() - most));
    }
    shown.join(", ")
}

/// Describes one operation and its place.
pub fn operation(op: &Value) -> String {
    let member = |name: &str| op.get(name).and_then(Value::as_str);
    let from = member("from").map(|from| format!(" {} →", short(from, TEXT_CHARS_MAX))).unwrap_or_default();
    format!("{}{from} {}", short(member("op").unwrap_or("?"), 16), short(member("path").unwrap_or("?"), TEXT_CHARS_MAX))
}

/// Formats `1,234 tokens`, with a mark for estimates.
pub fn tokens(usage: Usage) -> String {
    format!("{}{} tokens", if usage.estimated { "~" } else { "" }, grouped(usage.total()))
}

fn cost(by: &Author) -> String {
    by.usage.filter(|usage| usage.total() > 0).map(|usage| format!(" [{}]", tokens(usage))).unwrap_or_default()
}

fn author(by: &Author) -> String {
    let worker = name(by.worker.as_str());
    match &by.attempt {
        Some(attempt) => format!("{worker} #{}.{}", attempt.invocation, attempt.number),
        None => format!("{worker} (direct)"),
    }
}

fn branch(rule: Option<&RuleName>, worker: &WorkerName) -> String {
    let rule = rule.map_or_else(String::new, |rule| format!("{} × ", name(rule.as_str())));
    rule + &name(worker.as_str())
}

/// Formats the place of a trigger.
pub fn place(trigger: Option<&Trigger>) -> String {
    match trigger {
        Some(Trigger::Event { path, .. }) => format!(" at {}", short(path, TEXT_CHARS_MAX)),
        _ => String::new(),
    }
}

fn name(name: &str) -> String {
    short(name, 40)
}

fn until(expires: Option<Timestamp>) -> String {
    expires.map(|expires| format!(" (until {})", format_time(expires))).unwrap_or_default()
}

fn retry(retried: &Retried) -> String {
    let what = match (&retried.invocation, &retried.worker) {
        (Some(invocation), _) => format!("invocation #{invocation}"),
        (None, Some(worker)) => format!("failed invocations of {}", name(worker.as_str())),
        (None, None) => "failed invocations and stopped branches".to_owned(),
    };
    let LimitOverrides { tokens, wall_ms, commits, money, edits, journal } = retried.limits;
    let limits = [
        tokens.map(|tokens| format!("{} tokens", grouped(tokens))),
        wall_ms.map(|wall_ms| format!("{} s of running time", grouped(wall_ms / 1000))),
        commits.map(|commits| format!("{} commits", grouped(commits))),
        edits.map(|edits| format!("{} edits of files", grouped(edits))),
        journal.map(|bytes| format!("{} bytes of journal", grouped(bytes))),
        money.map(|money| format!("{} of money", Money(money))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let of_worker = [
        retried.worker_limits.tokens.map(|tokens| format!("{} tokens", grouped(tokens))),
        retried.worker_limits.money.map(|money| format!("{} of money", Money(money))),
    ];
    let of_worker: Vec<String> = of_worker.into_iter().flatten().collect();
    let may_use = [("board", limits), ("worker", of_worker)];
    let raised = may_use.iter().filter(|(_, limits)| !limits.is_empty());
    let raised: String = raised.map(|(owner, limits)| format!("; the {owner} may use {}", limits.join(", "))).collect();
    format!("retries {what}{raised}")
}

const fn change(change: BreakerTransition) -> &'static str {
    match change {
        BreakerTransition::Reduced => "view budget halved",
        BreakerTransition::Opened => "circuit breaker tripped",
        BreakerTransition::HalfOpened => "probe allowed",
        BreakerTransition::Closed => "circuit breaker closed",
    }
}

const fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Rejections => "too many rejections in a row",
        Reason::NoOps => "too many no-op proposals in a row",
        Reason::Passes => "too many replies in a row that passed",
        Reason::Crashes => "its agent crashed in too many invocations in a row",
        Reason::Cycles => {
            "it keeps returning to earlier values (`circuit: {cycles: {repeats: N}}` says how often it may)"
        }
        Reason::Budget => "budget exhausted",
        Reason::Cooldown => "the cooldown is over",
        Reason::ProbeCommitted => "the probe was committed",
        Reason::ProbeFailed => "the probe failed",
        Reason::Retried => "an operator retries",
    }
}

/// Formats an amount of a resource: money as a decimal of the currency.
fn amount(resource: Resource, units: u64) -> String {
    match resource {
        Resource::WorkerMoney | Resource::BoardMoney => Money(units).to_string(),
        Resource::Invocations | Resource::WorkerTokens | Resource::BranchTokens | Resource::BoardTokens => {
            units.to_string()
        }
    }
}

const fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::Invocations => "the worker's invocations are exhausted",
        Resource::WorkerTokens => "the worker's tokens do not suffice",
        Resource::BranchTokens => "the rule's tokens do not suffice",
        Resource::BoardTokens => "the board's tokens do not suffice",
        Resource::WorkerMoney => "the worker's money does not suffice",
        Resource::BoardMoney => "the board's money does not suffice",
    }
}

/// Returns the option of `retry` that raises the limit which stopped a board; empty for other causes or several limits.
pub const fn retry_option(cause: Cause) -> &'static str {
    match cause {
        Cause::Commits => " --commits N",
        Cause::Edits => " --edits N",
        Cause::Wall => " --wall TIME",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::record::{Body, Skipped};
    use serde_json::json;

    use super::{body_text, grouped, patch};

    #[test]
    fn a_patch_is_reported_by_its_operations_and_places() {
        let ops = json!([{"op": "add", "path": "/a/-", "value": "secret"}, {"op": "move", "from": "/b", "path": "/c"}]);
        assert_eq!(patch(&ops), "add /a/-, move /b → /c");
        assert_eq!(patch(&json!([])), "an empty patch");
        let many = json!(vec![json!({"op": "remove", "path": "/x\u{1b}[31m"}); 6]);
        let one = "remove /x<U+001B>[31m";
        assert_eq!(patch(&many), format!("{one}, {one}, {one}, {one}, 2 more"));
    }

    #[test]
    fn a_rule_that_was_skipped_did_not_fire_whatever_the_reason() {
        let describe = |rule: Option<&str>, message: &str| {
            let (rule, message) = (rule.map(Into::into), message.to_owned());
            body_text(&Body::Skipped(Skipped { rule, invocation: None, message, worker: None, trigger: None }))
        };
        for why in ["no such key: a", "what stands at /who is no name of a worker"] {
            assert_eq!(describe(Some("r"), why), format!("rule r did not fire: {why}"));
        }
        assert_eq!(describe(None, "no such key: a"), "`done` could not be evaluated: no such key: a");
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
