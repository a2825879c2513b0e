//! Checks a blueprint together with a request, on the board at its beginning.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::PointerBuf;
use serde_json::Value;

use super::ending::{self, begins};
use super::follow_ups::{self, FollowUp};
use super::undeclared::declares;
use super::{Diagnostic, closest_name, suggest};
use crate::source::{Source, child};
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::blueprint::{Blueprint, Trigger};
use patchboard_kernel::board::{Board, BoardError, NewBoard};
use patchboard_kernel::expressions::request_part;
use patchboard_kernel::id::{BoardId, RuleName, Timestamp, WorkerName};
use patchboard_kernel::nested;
use patchboard_kernel::pattern::{PathSyntax, Pattern};
use patchboard_kernel::plan::PlanSource;
use patchboard_kernel::record::{Cause, FORMAT};
use patchboard_kernel::scheduler::QueuedInvocation;
use patchboard_kernel::tree::Node;

/// Codes of findings about view budgets.
pub const VIEW_CODES: [&str; 2] = ["budget_too_small", "view_shortage"];

/// Maximum number of one worker's invocations for which nested boards are started, until one of them has findings.
const INSIDE_MAX: usize = 16;

/// Maximum places of one rule that are counted.
const PLACES_MAX: usize = 1_024;

/// Starts a board in memory, and reports readable places that its workers' views have no room for. Covers the nested
/// boards of its first invocations. `blueprint` is that of the source, with view budgets.
pub fn check_with_request(
    source: &Source,
    blueprint: Blueprint,
    request: Value,
    plans: &dyn PlanSource,
) -> Result<Vec<Diagnostic>, BoardError> {
    let board = create_board(blueprint, request, plans)?;
    let mut findings = budgets(source, &board, "");
    if board.ended().is_some_and(|ended| ended.cause == Cause::Done) && board.blueprint().rules.iter().any(begins) {
        let message = "with this request, `done` holds at the beginning: the board ends before any worker is triggered";
        findings.push(Diagnostic::at(source, "done_at_start", "/done/when", message, ending::ASK_FOR_MORE));
        return Ok(findings);
    }
    findings.extend(beyond_limits(source, &board));
    findings.extend(nowhere(source, &board));
    findings.extend(shortages(source, &board, "", "with this request"));
    findings.extend(inside(source, &board, "", plans));
    Ok(findings)
}

/// Starts a board in memory.
fn create_board(blueprint: Blueprint, request: Value, plans: &dyn PlanSource) -> Result<Board, BoardError> {
    let genesis = NewBoard::new(BoardId::from("check"), blueprint, request, Timestamp::default());
    Board::create(genesis, plans).map(|(board, _)| board)
}

/// Returns the JSON Pointer of a worker's view budget in a source, else of the worker. `at` points to its blueprint.
fn budget_at(source: &Source, at: &str, worker: &WorkerName) -> String {
    let pointer = child(&format!("{at}/workers"), worker.as_str());
    let given = format!("{pointer}/view/budget");
    if source.value().pointer(&given).is_some() { given } else { pointer }
}

/// Reports view budgets below the fixed parts of a view.
fn budgets(source: &Source, board: &Board, at: &str) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for (worker, seat) in &board.plan().workers {
        let (least, budget) = (seat.fixed.minimum(), seat.worker.view_budget());
        if least > budget {
            let message =
                format!("the view of `{worker}` must show {least}, and the context of its model leaves {budget}");
            let help = "Use a model with a larger context, or set `view.budget`.";
            findings.push(Diagnostic::at(source, "budget_too_small", &budget_at(source, at, worker), message, help));
        }
    }
    findings
}

/// Reports readable places that views have no room for. `given` begins the message with the board's input.
fn shortages(source: &Source, board: &Board, at: &str, given: &str) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for (worker, shortage) in board.present_shortages() {
        let pointer = budget_at(source, at, &worker);
        for sentence in shortage.sentences(worker.as_str()) {
            let message = format!("{given}, {sentence}");
            let help = "Raise `view.budget`, use a model with a larger context, or bind names in the trigger so that each \
                        call reads one part.";
            findings.push(Diagnostic::at(source, "view_shortage", &pointer, message, help));
        }
    }
    findings
}

/// Reports the same shortages for the nested boards of a board's first invocations. The blueprint check limits nesting.
fn inside(source: &Source, board: &Board, at: &str, plans: &dyn PlanSource) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for (worker, seat) in &board.plan().workers {
        let Some(inner) = &seat.worker.board else { continue };
        let Some(blueprint) = board.blueprint().boards.get(&inner.of) else { continue };
        let at = child(&format!("{at}/boards"), &inner.of);
        let open = board.scheduler().open().values().map(|open| &open.queued);
        let queued = board.scheduler().queue().iter().chain(open).filter(|queued| queued.branch.worker == *worker);
        for queued in queued.take(INSIDE_MAX) {
            let rehearsed = board.dry_run(worker, Some(queued), &Bindings::default());
            let request = rehearsed.and_then(|rehearsal| nested::request(inner, &rehearsal.context).ok());
            // A request that creates no board is rejected when the invocation runs.
            let begun = request.and_then(|request| create_board(blueprint.clone(), request, plans).ok());
            let Some(begun) = begun else { continue };
            let mut found = budgets(source, &begun, &at);
            found.extend(shortages(source, &begun, &at, &format!("with what `{worker}` gives its board")));
            found.extend(inside(source, &begun, &at, plans));
            if !found.is_empty() {
                findings.extend(found);
                break;
            }
        }
    }
    findings
}

fn first_invocations(board: &Board) -> impl Iterator<Item = &QueuedInvocation> {
    let delayed = board.scheduler().delayed().iter().map(|delayed| &delayed.queued);
    let open = board.scheduler().open().values().map(|open| &open.queued);
    board.scheduler().queue().iter().chain(board.given_up()).chain(delayed).chain(open)
}

/// Reports limits that do not cover the first invocations and those that follow from them one for one.
fn beyond_limits(source: &Source, board: &Board) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let mut woken: BTreeMap<&WorkerName, u64> = BTreeMap::new();
    let mut begun = follow_ups::InvocationCounts::new();
    for queued in first_invocations(board) {
        *woken.entry(&queued.branch.worker).or_default() += 1;
        if let Some(rule) = &queued.branch.rule {
            *begun.entry((rule.clone(), queued.branch.worker.clone())).or_default() += 1;
        }
    }
    let mut beyond = |worker: &WorkerName, count: u64, had: u64, if_written: &str| {
        let limits = board.plan().workers.get(worker).map(|seat| &seat.worker.limits);
        let allowed = limits.map_or(u64::MAX, |limits| limits.invocations.into());
        if had <= allowed && count > allowed {
            let message = format!(
                "with this request, `{worker}` is triggered {count} times{if_written}, and its `limits.invocations` allow {allowed}"
            );
            let help = format!("Raise `limits.invocations` of `{worker}`, and of all workers that its work triggers.");
            findings.push(Diagnostic::at(source, "limit_too_low", &format!("/workers/{worker}"), message, help));
        }
    };
    for (worker, count) in &woken {
        beyond(worker, *count, 0, "");
    }
    let following = follow_ups::follow_ups(board, &begun);
    for FollowUp { worker, count, writer, place } in &following {
        let all = woken.entry(worker).or_default();
        let had = *all;
        *all += count;
        beyond(worker, *all, had, &format!(" if each invocation of `{writer}` writes its `{place}`"));
    }
    let writes =
        |worker: &WorkerName| board.plan().workers.get(worker).is_some_and(|seat| !seat.worker.writes.is_empty());
    let all: u64 = woken.iter().filter(|(worker, _)| writes(worker)).map(|(_, count)| count).sum();
    let commits = board.limits().commits;
    if all > commits {
        let message = format!(
            "with this request, {all} commits are made if each invocation writes once, and `limits.commits` allow {commits}"
        );
        let help = "Raise `limits.commits`: each invocation that does something takes one.";
        findings.push(Diagnostic::at(source, "limit_too_low", "/limits", message, help));
    }
    findings
}

/// Reports rules that fire for each place of an absent collection, and reads of absent names similar to existing ones.
fn nowhere(source: &Source, board: &Board) -> Vec<Diagnostic> {
    let (plan, state) = (board.plan(), board.state().root());
    let is_declared = |place: &str| {
        let below = request_part(place).and_then(|below| Pattern::parse(below).ok());
        below.is_none_or(|below| declares(&plan.request, &below))
    };
    let woken: BTreeSet<RuleName> = first_invocations(board).filter_map(|queued| queued.branch.rule.clone()).collect();
    let mut findings = Vec::new();
    for (number, rule) in plan.blueprint.rules.iter().enumerate() {
        let Trigger::Each(path) = &rule.trigger else { continue };
        let place = PathSyntax::for_formats(plan.blueprint.blueprint, FORMAT)
            .parse(path)
            .map(|place| place.under_any_binding());
        let there = place.map_or(0, |place| place.instances(state, PLACES_MAX).len());
        let pointer = format!("/rules/{number}/trigger/start");
        if there > 0 {
            if rule.when.is_some() && !woken.contains(&rule.name) {
                let places = if there == 1 { "the place".to_owned() } else { format!("any of the {there} places") };
                let message = format!(
                    "with this request, `{}` fires for no place: its `when` does not hold for {places} at `{path}`",
                    rule.name
                );
                let help = "Compare the condition with what the request has there.";
                findings.push(Diagnostic::at(source, "never_fires", &pointer, message, help));
            }
            continue;
        }
        let is_given = !state.child("request").is_none_or(|request| request.to_value().is_null());
        let (why, help) = match first_absent(state, path) {
            Some(_) if request_part(path).is_some() && !is_given => {
                ("there is no request".to_owned(), "Give the board a request: `--request @FILE`.".to_owned())
            }
            Some(absent) => {
                let beside = absent.beside.iter().map(String::as_str);
                (format!("there is no `{}`", absent.place), suggest(&absent.name, beside, NAME_WHAT_IS_THERE))
            }
            None => (format!("nothing is at `{path}`"), NAME_WHAT_IS_THERE.to_owned()),
        };
        let message = format!("with this request, `{}` fires for no place: {why}", rule.name);
        findings.push(Diagnostic::at(source, "never_fires", &pointer, message, help));
    }
    for (worker, seat) in &plan.workers {
        for (number, read) in seat.worker.reads.iter().enumerate() {
            let Some(absent) = first_absent(state, &read.path).filter(|absent| !is_declared(&absent.place)) else {
                continue;
            };
            if let Some(near) = closest_name(&absent.name, absent.beside.iter().map(String::as_str)) {
                let message = format!("with this request, there is no `{}`, which `{worker}` reads", absent.place);
                let (pointer, help) = (format!("/workers/{worker}/reads/{number}"), format!("Did you mean `{near}`?"));
                findings.push(Diagnostic::at(source, "undeclared_name", &pointer, message, help));
            }
        }
    }
    findings
}

const NAME_WHAT_IS_THERE: &str = "Name what the board begins with, or give it in the request.";

/// A name that an object of the document lacks.
struct Absent {
    name: String,
    /// JSON Pointer to the absent place.
    place: String,
    /// Names that the object does have.
    beside: Vec<String>,
}

/// Returns the first name of a path that an object of the document lacks.
fn first_absent(state: &Node, path: &str) -> Option<Absent> {
    let (mut node, mut place) = (state, String::new());
    for token in PointerBuf::parse(path).ok()?.tokens() {
        let name = token.decoded().into_owned();
        if name.starts_with(['*', '{']) || node.as_array().is_some() {
            return None;
        }
        place = format!("{place}/{}", token.encoded());
        let Some(child) = node.child(&name) else {
            let beside = match node.to_value() {
                Value::Object(members) => members.into_iter().map(|(name, _)| name).collect(),
                _ => Vec::new(),
            };
            return Some(Absent { name, place, beside });
        };
        node = child;
    }
    None
}
