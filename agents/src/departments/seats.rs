//! The roles as agents: what a seat is shown goes in, a patch comes out.

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

/// What the `with` of a role within a department says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Within {
    department: Department,
}

/// What the `with` of `begin` says: where messages, the turn and results are, and the arrays that are those of one turn.
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

/// What the `with` of `perceive` says: where messages go.
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

/// What is wrong with the seat of a role within a department, if anything is.
pub(crate) fn problem_within(seat: &Worker) -> Option<String> {
    department(seat).err()
}

/// What is wrong with the seat of `begin`, if anything is.
pub(crate) fn problem_of_begin(seat: &Worker) -> Option<String> {
    places(seat).err()
}

/// What is wrong with the seat of `perceive`, if anything is.
pub(crate) fn problem_of_perceive(seat: &Worker) -> Option<String> {
    into(seat).err()
}

/// The department of a seat.
fn own(call: &Call) -> Result<Department, Stop> {
    Ok(department(call.seat()).map_err(not_configured)?)
}

/// `builtin:resolve`.
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

/// What resolve finds by letters.
struct Looked {
    resolved: Resolved,
    /// What is left, if there is somebody to ask for its meaning.
    unclear: Option<Unclear>,
}

/// Words that are like nothing, and what they may mean.
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

/// Looks again by what words mean. Whoever cannot tell that changes nothing.
async fn ask(call: &Call, means: &Means, resolved: Resolved, unclear: Unclear) -> Result<Resolved, Failure> {
    let Some(embedder) = &means.embedder else { return Ok(resolved) };
    let Unclear { department, rows, unknown } = unclear;
    // The rest of the time is for the answer.
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

/// `builtin:resume`.
pub(crate) fn resume(call: &Call, means: &Means) -> Answer {
    told(call, || {
        let department = own(call)?;
        let text: String = needed(call, "/request/text")?;
        let pending: Pending = needed(call, "/request/pending")?;
        put("/resumed", &resume::resume(&department, &pending, &text, means.clock.now()))
    })
}

/// What was found, whoever found it.
fn found(call: &Call) -> Result<Option<Resolved>, Stop> {
    match read(call, "/resumed")? {
        Some(resumed) => Ok(Some(resumed)),
        None => read(call, "/resolved"),
    }
}

/// The name under which a call is carried out once. A board inside another may be made anew after one that failed; what it
/// does for the outer invocation has the same number in each.
fn key(call: &Call) -> String {
    let Call { board, invocation, parent, .. } = call;
    match parent {
        Some(outer) => format!("{}:{}:{invocation}", outer.board, outer.invocation),
        None => format!("{board}:{invocation}"),
    }
}

/// Bytes of the rows that a seat may write: slots are there as well, and the patch around them.
fn bytes_max(call: &Call) -> usize {
    usize::try_from(call.seat().patch.max_bytes).unwrap_or(usize::MAX) / 2
}

/// `builtin:crud`.
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

/// `builtin:confirm`.
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

/// `builtin:perceive`. What no signal says is in the request.
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

/// `builtin:begin`. What it takes up is no message any more, and what belonged to the turn before is gone.
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
