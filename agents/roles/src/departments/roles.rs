//! Department roles as agents, from the view to the patch.

use std::sync::Arc;

use jsonptr::PointerBuf;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::board;
use patchboard_protocols::department::Department;
use patchboard_runtime::agent::{Call, CallResult, Failure};
use serde::Deserialize;
use serde_json::json;

use super::inbox::{Question, Turn, TurnContext, parse_message};
use super::pending_question::{self, Classification};
use super::semantic::{UnmatchedWords, unmatched_words};
use super::types::{OpenQuestion, Outcome, Resolution, Row, Status, Values};
use super::{confirm, crud, resolve, resume};
use crate::context::{RoleContext, run_blocking};
use crate::role_io::{NoPatch, is_place, not_configured, put, read, read_required, respond, role_config, value_at};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DepartmentConfig {
    department: Department,
}

/// Configuration (`with`) of `begin`: places of messages, the turn and results, and the arrays to clear for each turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BeginConfig {
    messages: String,
    turn: String,
    results: String,
    empties: Vec<String>,
}

impl Default for BeginConfig {
    fn default() -> Self {
        let [messages, turn, results] = ["/messages", "/turn", "/results"].map(str::to_owned);
        Self { messages, turn, results, empties: ["/decisions", "/results"].map(str::to_owned).to_vec() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PerceiveConfig {
    into: String,
}

impl Default for PerceiveConfig {
    fn default() -> Self {
        Self { into: "/messages/-".to_owned() }
    }
}

/// Returns the department of a role, or the problem of its configuration.
pub(crate) fn department(worker: &Worker) -> Result<Department, String> {
    let department = role_config::<DepartmentConfig>(worker)?.department;
    match department.validation_errors().into_iter().next() {
        None => Ok(department),
        Some(problem) => Err(format!("its `with` cannot be used: /department{}: {}", problem.pointer, problem.message)),
    }
}

pub(crate) fn places(worker: &Worker) -> Result<BeginConfig, String> {
    let places: BeginConfig = role_config(worker)?;
    for place in [&places.messages, &places.turn, &places.results].into_iter().chain(&places.empties) {
        is_place(place)?;
    }
    Ok(places)
}

pub(crate) fn into(worker: &Worker) -> Result<String, String> {
    let PerceiveConfig { into } = role_config(worker)?;
    is_place(&into)?;
    Ok(into)
}

fn worker_department(call: &Call) -> Result<Department, NoPatch> {
    Ok(department(call.worker_config()).map_err(not_configured)?)
}

pub(crate) async fn resolve(call: &Call, context: &Arc<RoleContext>) -> CallResult {
    let (own_call, own_means) = (call.clone(), Arc::clone(context));
    let looked = run_blocking(move || match_literally(&own_call, &own_means)).await?;
    let resolved = match looked {
        Ok(LiteralMatch { resolved, unclear: None }) => Ok(resolved),
        Ok(LiteralMatch { resolved, unclear: Some(unclear) }) => Ok(ask(call, context, resolved, unclear).await?),
        Err(stop) => Err(stop),
    };
    respond(call, || put("/resolved", &resolved?))
}

struct LiteralMatch {
    resolved: Resolution,
    /// Words without a match, if embeddings are available.
    unclear: Option<SemanticQuery>,
}

/// Words without a match, and their candidates.
struct SemanticQuery {
    department: Department,
    rows: Vec<Row>,
    unknown: UnmatchedWords,
}

fn match_literally(call: &Call, context: &RoleContext) -> Result<LiteralMatch, NoPatch> {
    let department = worker_department(call)?;
    let action: String = read_required(call, "/classified/action")?;
    let slots: Values = read(call, "/classified/slots")?.unwrap_or_default();
    let rows = context.storage.rows(&department)?;
    let waits: Option<OpenQuestion> = read(call, "/request/waits")?;
    let understood = Classification { action: &action, slots: &slots };
    let search = |action: &str, slots: &Values| resolve::resolve(&department, action, slots, &rows);
    let resolved = pending_question::resolve(&department, waits.as_ref(), understood, context.clock.now(), search);
    let unknown = context.embedder.as_ref().and_then(|_| unmatched_words(&department, &resolved, &rows));
    Ok(LiteralMatch { resolved, unclear: unknown.map(|unknown| SemanticQuery { department, rows, unknown }) })
}

/// Searches again by meaning. If the embeddings fail, the result is unchanged.
async fn ask(
    call: &Call,
    context: &RoleContext,
    resolved: Resolution,
    unclear: SemanticQuery,
) -> Result<Resolution, Failure> {
    let Some(embedder) = &context.embedder else { return Ok(resolved) };
    let SemanticQuery { department, rows, unknown } = unclear;
    // The rest of the time is left for the answer.
    match embedder.embed(&call.board, &unknown.texts(), call.timeout / 2).await {
        Ok(embeddings) => {
            let likeness = embedder.config.likeness;
            let again = move || {
                let meaning = unknown.meaning(&embeddings, likeness);
                let asked = resolved.asked;
                let open = resolve::resolve_semantically(&department, &resolved, &rows, &meaning);
                open.map_or(resolved, |open| Resolution { asked, ..open })
            };
            run_blocking(again).await
        }
        Err(Failure { code, message, .. }) => {
            let model = &embedder.config.model;
            tracing::warn!(%model, code = code.as_str(), why = %message, "no embeddings: words go by their letters alone");
            Ok(resolved)
        }
    }
}

pub(crate) fn resume(call: &Call, context: &RoleContext) -> CallResult {
    respond(call, || {
        let department = worker_department(call)?;
        let text: String = read_required(call, "/request/text")?;
        let pending: OpenQuestion = read_required(call, "/request/pending")?;
        put("/resumed", &resume::resume(&department, &pending, &text, context.clock.now()))
    })
}

/// Returns the resolution, from `resume` or else from `resolve`.
fn read_resolution(call: &Call) -> Result<Option<Resolution>, NoPatch> {
    if let Some(resumed) = read(call, "/resumed")? { Ok(Some(resumed)) } else { read(call, "/resolved") }
}

/// Returns the key under which a call is executed once. A nested board may be created again after a failed one;
/// invocations with the same number then do the same work for the outer invocation.
fn key(call: &Call) -> String {
    let board::Call { board, invocation, parent, .. } = &call.decided;
    match parent {
        Some(outer) => format!("{}:{}:{invocation}", outer.board, outer.invocation),
        None => format!("{board}:{invocation}"),
    }
}

/// Size limit of the rows that a worker may write; half of the patch is left for slots and structure.
fn bytes_max(call: &Call) -> usize {
    usize::try_from(call.worker_config().patch.max_bytes).unwrap_or(usize::MAX) / 2
}

pub(crate) fn crud(call: &Call, context: &RoleContext) -> CallResult {
    respond(call, || {
        let department = worker_department(call)?;
        let found =
            read_resolution(call)?.ok_or_else(|| not_configured("there is nothing at /resolved and /resumed"))?;
        let key = key(call);
        put(
            "/outcome",
            &crud::execute(&context.storage, &department, &key, &found, context.clock.now(), bytes_max(call))?,
        )
    })
}

pub(crate) fn confirm(call: &Call, context: &RoleContext) -> CallResult {
    respond(call, || {
        let department = worker_department(call)?;
        if let Some(outcome) = read::<Outcome>(call, "/outcome")? {
            return put("/result", &confirm::done(&department, &outcome, bytes_max(call)));
        }
        match read_resolution(call)? {
            Some(found) if found.status != Status::Found => {
                put("/result", &confirm::not_done(&department, &found, context.clock.now(), bytes_max(call)))
            }
            Some(_) => Err(NoPatch::Pass("what was found is still to be done".to_owned())),
            None => Err(NoPatch::Pass("there is nothing to tell".to_owned())),
        }
    })
}

/// Answers a call of `builtin:perceive`. Without a signal, the message is read from the request.
pub(crate) fn perceive(call: &Call) -> CallResult {
    respond(call, || {
        let into = into(call.worker_config()).map_err(not_configured)?;
        let message = match call.context.signal() {
            Some(signal) => Some(signal.clone()),
            None => value_at(call, "/request")?,
        };
        put(&into, &parse_message(message.as_ref()).map_err(NoPatch::Pass)?)
    })
}

/// Answers a call of `builtin:begin`. Removes the message that it takes up, and clears the data of the previous turn.
pub(crate) fn begin(call: &Call, context: &RoleContext) -> CallResult {
    respond(call, || {
        let places = places(call.worker_config()).map_err(not_configured)?;
        let turn: Option<Turn> = read(call, &places.turn)?;
        let Some(text) = read::<String>(call, &format!("{}/0/text", places.messages))? else {
            return Err(NoPatch::Pass("there is no message".to_owned()));
        };
        let root = call.context.basis().state.root();
        let results = PointerBuf::parse(places.results.as_str()).ok().and_then(|place| root.get(&place)?.as_array());
        let count = results.map_or(0, |results| results.len());
        let (mut questions, mut worked): (Vec<Question>, Vec<String>) = Default::default();
        for index in 0..count {
            worked.extend(read::<String>(call, &format!("{}/{index}/department", places.results))?);
            questions.extend(read::<Question>(call, &format!("{}/{index}/pending", places.results))?);
        }
        let before =
            TurnContext { turn: turn.as_ref(), questions: &questions, departments: &worked, now: context.clock.now() };
        let mut patch = put(&places.turn, &Turn::next(&text, before))?;
        patch.push(json!({"op": "remove", "path": format!("{}/0", places.messages)}));
        patch.extend(places.empties.iter().map(|place| json!({"op": "replace", "path": place, "value": []})));
        Ok(patch)
    })
}
