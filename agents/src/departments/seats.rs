//! Department roles as agents, from the view to the patch.

use std::sync::Arc;

use jsonptr::PointerBuf;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::department::Department;
use patchboard_runtime::agent::{Answer, Call, Failure};
use serde::Deserialize;
use serde_json::json;

use super::found::{Outcome, Pending, Resolved, Row, Status, Values};
use super::meaning::{Unknown, unknown};
use super::turns::{Before, Question, Turn, perceived};
use super::waits::{self, Understood};
use super::{confirm, crud, resolve, resume};
use crate::builtin::seat::{Stop, is_place, needed, not_configured, put, read, told, value_at, with};
use crate::builtin::{Answering, Means, waiting};

/// Configuration (`with`) of a role inside a department.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Within {
    department: Department,
}

/// Configuration (`with`) of `begin`: places of messages, the turn and results, and the arrays to clear for each turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Places {
    messages: String,
    turn: String,
    results: String,
    empties: Vec<String>,
}

impl Default for Places {
    fn default() -> Self {
        let [messages, turn, results] = ["/messages", "/turn", "/results"].map(str::to_owned);
        Self { messages, turn, results, empties: ["/decisions", "/results"].map(str::to_owned).to_vec() }
    }
}

/// Configuration (`with`) of `perceive`: the place for messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Inbox {
    into: String,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { into: "/messages/-".to_owned() }
    }
}

fn department(seat: &Worker) -> Result<Department, String> {
    let department = with::<Within>(seat)?.department;
    match department.problems().into_iter().next() {
        None => Ok(department),
        Some(problem) => Err(format!("its `with` cannot be used: /department{}: {}", problem.pointer, problem.message)),
    }
}

fn places(seat: &Worker) -> Result<Places, String> {
    let places: Places = with(seat)?;
    for place in [&places.messages, &places.turn, &places.results].into_iter().chain(&places.empties) {
        is_place(place)?;
    }
    Ok(places)
}

fn into(seat: &Worker) -> Result<String, String> {
    let Inbox { into } = with(seat)?;
    is_place(&into)?;
    Ok(into)
}

/// Returns the configuration problem of a role inside a department, if there is one.
pub(crate) fn problem_within(seat: &Worker) -> Option<String> {
    department(seat).err()
}

/// Returns the configuration problem of `begin`, if there is one.
pub(crate) fn problem_of_begin(seat: &Worker) -> Option<String> {
    places(seat).err()
}

/// Returns the configuration problem of `perceive`, if there is one.
pub(crate) fn problem_of_perceive(seat: &Worker) -> Option<String> {
    into(seat).err()
}

/// Returns the department of a worker.
fn own(call: &Call) -> Result<Department, Stop> {
    Ok(department(call.seat()).map_err(not_configured)?)
}

/// Answers a call of `builtin:resolve`.
pub(crate) fn resolve<'a>(call: &'a Call, means: &'a Arc<Means>) -> Answering<'a> {
    Box::pin(async move {
        let (own_call, own_means) = (call.clone(), Arc::clone(means));
        let looked = waiting(move || look(&own_call, &own_means)).await?;
        let resolved = match looked {
            Ok(Looked { resolved, unclear: None }) => Ok(resolved),
            Ok(Looked { resolved, unclear: Some(unclear) }) => Ok(ask(call, means, resolved, unclear).await?),
            Err(stop) => Err(stop),
        };
        told(call, || put("/resolved", &resolved?))
    })
}

/// Result of matching by letters.
struct Looked {
    resolved: Resolved,
    /// Words without a match, if embeddings are available.
    unclear: Option<Unclear>,
}

/// Words without a match, and their candidates.
struct Unclear {
    department: Department,
    rows: Vec<Row>,
    unknown: Unknown,
}

fn look(call: &Call, means: &Means) -> Result<Looked, Stop> {
    let department = own(call)?;
    let action: String = needed(call, "/classified/action")?;
    let slots: Values = read(call, "/classified/slots")?.unwrap_or_default();
    let rows = means.storage.rows(&department)?;
    let waits: Option<Pending> = read(call, "/request/waits")?;
    let understood = Understood { action: &action, slots: &slots };
    let search = |action: &str, slots: &Values| resolve::resolve(&department, action, slots, &rows);
    let resolved = waits::resolve(&department, waits.as_ref(), understood, means.clock.now(), search);
    let unknown = means.embedder.as_ref().and_then(|_| unknown(&department, &resolved, &rows));
    Ok(Looked { resolved, unclear: unknown.map(|unknown| Unclear { department, rows, unknown }) })
}

/// Searches again by meaning. If the embeddings fail, the result is unchanged.
async fn ask(call: &Call, means: &Means, resolved: Resolved, unclear: Unclear) -> Result<Resolved, Failure> {
    let Some(embedder) = &means.embedder else { return Ok(resolved) };
    let Unclear { department, rows, unknown } = unclear;
    // The rest of the time is left for the answer.
    match embedder.embed(&call.board, &unknown.texts(), call.timeout / 2).await {
        Ok(embeddings) => {
            let likeness = embedder.config.likeness;
            let again = move || {
                let meaning = unknown.meaning(&embeddings, likeness);
                let asked = resolved.asked;
                let open = resolve::resolve_by_meaning(&department, &resolved, &rows, &meaning);
                open.map_or(resolved, |open| Resolved { asked, ..open })
            };
            waiting(again).await
        }
        Err(Failure { code, message, .. }) => {
            let model = &embedder.config.model;
            tracing::warn!(%model, code = code.as_str(), why = %message, "no embeddings: words go by their letters alone");
            Ok(resolved)
        }
    }
}

/// Answers a call of `builtin:resume`.
pub(crate) fn resume(call: &Call, means: &Means) -> Answer {
    told(call, || {
        let department = own(call)?;
        let text: String = needed(call, "/request/text")?;
        let pending: Pending = needed(call, "/request/pending")?;
        put("/resumed", &resume::resume(&department, &pending, &text, means.clock.now()))
    })
}

/// Returns the resolution, from `resume` or else from `resolve`.
fn found(call: &Call) -> Result<Option<Resolved>, Stop> {
    match read(call, "/resumed")? {
        Some(resumed) => Ok(Some(resumed)),
        None => read(call, "/resolved"),
    }
}

/// Returns the key under which a call is executed once. A nested board may be created again after a failed one;
/// invocations with the same number then do the same work for the outer invocation.
fn key(call: &Call) -> String {
    let Call { board, invocation, parent, .. } = call;
    match parent {
        Some(outer) => format!("{}:{}:{invocation}", outer.board, outer.invocation),
        None => format!("{board}:{invocation}"),
    }
}

/// Size limit of the rows that a worker may write; half of the patch is left for slots and structure.
fn bytes_max(call: &Call) -> usize {
    usize::try_from(call.seat().patch.max_bytes).unwrap_or(usize::MAX) / 2
}

/// Answers a call of `builtin:crud`.
pub(crate) fn crud(call: &Call, means: &Means) -> Answer {
    told(call, || {
        let department = own(call)?;
        let found = found(call)?.ok_or_else(|| not_configured("there is nothing at /resolved and /resumed"))?;
        let key = key(call);
        put(
            "/outcome",
            &crud::carry_out(&means.storage, &department, &key, &found, means.clock.now(), bytes_max(call))?,
        )
    })
}

/// Answers a call of `builtin:confirm`.
pub(crate) fn confirm(call: &Call, means: &Means) -> Answer {
    told(call, || {
        let department = own(call)?;
        if let Some(outcome) = read::<Outcome>(call, "/outcome")? {
            return put("/result", &confirm::done(&department, &outcome, bytes_max(call)));
        }
        match found(call)? {
            Some(found) if found.status != Status::Found => {
                put("/result", &confirm::not_done(&department, &found, means.clock.now(), bytes_max(call)))
            }
            Some(_) => Err(Stop::Pass("what was found is still to be done".to_owned())),
            None => Err(Stop::Pass("there is nothing to tell".to_owned())),
        }
    })
}

/// Answers a call of `builtin:perceive`. Without a signal, the message is read from the request.
pub(crate) fn perceive(call: &Call, _means: &Means) -> Answer {
    told(call, || {
        let into = into(call.seat()).map_err(not_configured)?;
        let said = match call.shown.signal() {
            Some(signal) => Some(signal.clone()),
            None => value_at(call, "/request")?,
        };
        put(&into, &perceived(said.as_ref()).map_err(Stop::Pass)?)
    })
}

/// Answers a call of `builtin:begin`. Removes the message that it takes up, and clears the data of the previous turn.
pub(crate) fn begin(call: &Call, means: &Means) -> Answer {
    told(call, || {
        let places = places(call.seat()).map_err(not_configured)?;
        let turn: Option<Turn> = read(call, &places.turn)?;
        let Some(text) = read::<String>(call, &format!("{}/0/text", places.messages))? else {
            return Err(Stop::Pass("there is no message".to_owned()));
        };
        let root = call.shown.basis().state.root();
        let results = PointerBuf::parse(places.results.as_str()).ok().and_then(|place| root.get(&place)?.as_array());
        let count = results.map_or(0, |results| results.len());
        let (mut asked, mut worked): (Vec<Question>, Vec<String>) = Default::default();
        for index in 0..count {
            worked.extend(read::<String>(call, &format!("{}/{index}/department", places.results))?);
            asked.extend(read::<Question>(call, &format!("{}/{index}/pending", places.results))?);
        }
        let before = Before { turn: turn.as_ref(), asked: &asked, worked: &worked, now: means.clock.now() };
        let mut patch = put(&places.turn, &Turn::next(&text, before))?;
        patch.push(json!({"op": "remove", "path": format!("{}/0", places.messages)}));
        patch.extend(places.empties.iter().map(|place| json!({"op": "replace", "path": place, "value": []})));
        Ok(patch)
    })
}
