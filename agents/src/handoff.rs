//! `builtin:handoff`: takes a handoff one move further (docs/handoff.md).
//!
//! It is woken by a handoff that is new, that was answered, or whose time is over. What is to be done with it is
//! [`next`]'s to say; here that becomes a patch, or a question to a person.

use jsonptr::{Pointer, PointerBuf};
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::handoff::{Agents, Handoff, Next, State, Work, next, overtaken};
use patchboard_kernel::tree::Node;
use patchboard_runtime::agent::{Answer, Call};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::seat::{Stop, is_place, needed, not_configured, read, standing, told, with};
use crate::one_line;

/// What a person is offered beside names.
const GIVE_BACK: &str = "give it back";
/// Agents that a question names, at most: a question has 16 answers to choose from.
const NAMED_MAX: usize = 15;
/// Characters of each reason that a question repeats.
const SAID_CHARS_MAX: usize = 600;

/// What `with` says: where things are, and how often nobody may answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct With {
    /// The handoffs, by their ids.
    handoffs: String,
    /// Who there is: for each name what it can do.
    agents: String,
    /// The pieces of work, by their ids, each with its `owner`.
    tasks: String,
    /// How often a request that nobody answers is made again.
    retries: u32,
}

impl Default for With {
    fn default() -> Self {
        let [handoffs, agents, tasks] = ["/handoffs", "/agents", "/tasks"].map(str::to_owned);
        Self { handoffs, agents, tasks, retries: 2 }
    }
}

impl With {
    fn of(seat: &Worker) -> Result<Self, String> {
        let with: Self = with(seat)?;
        [&with.handoffs, &with.agents, &with.tasks].into_iter().try_for_each(|place| is_place(place))?;
        Ok(with)
    }
}

/// What is wrong with a seat, if anything is.
pub(crate) fn problem(seat: &Worker) -> Option<String> {
    With::of(seat).err()
}

/// Takes the handoff by which it was woken one move further.
pub(crate) fn answer(call: &Call) -> Answer {
    told(call, || further(call))
}

/// A handoff on a board.
struct Seen {
    handoff: Handoff,
    /// Where all are.
    handoffs: PointerBuf,
    /// Where this one is.
    place: PointerBuf,
    /// Where it says whose work it is.
    owner: PointerBuf,
}

fn further(call: &Call) -> Result<Vec<Value>, Stop> {
    let with = With::of(call.seat()).map_err(not_configured)?;
    let Some((seen, is_late)) = seen(call, &with)? else {
        return Err(Stop::Pass("no handoff has woken it".to_owned()));
    };
    let Handoff { state, request, .. } = &seen.handoff;
    if is_late {
        return match state {
            State::Pending => Ok(vec![seen.moves_to(State::Expired)]),
            State::Accepted | State::Rejected | State::Completed | State::Expired => {
                Err(Stop::Pass(format!("`{}` was answered in time", request.request_id)))
            }
        };
    }
    if *state == State::Pending
        && let Err(why) = request.check()
    {
        return Ok(seen.given_back(Some((call.worker.as_str(), &why.message))));
    }
    if let Some(why) = goes_on_elsewhere(call, &seen)? {
        return Err(Stop::Pass(why));
    }
    let owner: Option<String> = read(call, seen.owner.as_str())?;
    let other = under_way(call, &seen)?;
    if let Some(why) = overtaken(&seen.handoff, Work { owner: owner.as_deref(), under_way: other.as_deref() }) {
        let is_pending = *state == State::Pending;
        return Ok(seen.given_back(is_pending.then_some((call.worker.as_str(), why.as_str()))));
    }
    if owner.as_ref() != Some(&request.from_agent) {
        return Err(Stop::Pass(format!("`{}` is not the work of `{}` any more", request.task, request.from_agent)));
    }
    let agents: Agents = needed(call, &with.agents)?;
    // Whom a person has named is asked, whatever has become of that one since.
    if !call.shown.answers().is_empty() {
        return escalated(call, &seen, &agents, "a person gave it back");
    }
    match next(&seen.handoff, &agents, with.retries) {
        Next::Offer { to } => Ok(vec![seen.offer(&to)]),
        Next::Again { to } => Ok(vec![seen.again(&to)]),
        Next::Transfer { to } => Ok(seen.transfer(&to)),
        Next::Escalate { why } => escalated(call, &seen, &agents, &why),
        Next::Nothing => Err(Stop::Pass(format!("`{}` waits for an answer, or is done", request.request_id))),
    }
}

/// The handoff whose change has woken the seat, and whether its time is over; none if it was something else.
fn seen(call: &Call, with: &With) -> Result<Option<(Seen, bool)>, Stop> {
    let [handoffs, tasks] = [&with.handoffs, &with.tasks].map(|place| PointerBuf::parse(place.as_str()));
    let (Ok(handoffs), Ok(tasks)) = (handoffs, tasks) else {
        return Err(not_configured("places are no pointers").into());
    };
    let woken_at = call.shown.woken_at().and_then(|place| Pointer::parse(place).ok());
    let Some((id, member)) = woken_at.and_then(|at| below(at, &handoffs)) else { return Ok(None) };
    let place = handoffs.with_trailing_token(id.as_str());
    let Some(handoff) = read::<Handoff>(call, place.as_str())? else { return Ok(None) };
    let owner = tasks.with_trailing_token(handoff.request.task.as_str()).with_trailing_token("owner");
    let is_late = member.as_deref() == Some("timeout_ms");
    Ok(Some((Seen { handoff, handoffs, place, owner }, is_late)))
}

/// Why nothing follows a handoff any more that was not taken, if that is so: it was asked for again, or given back.
fn goes_on_elsewhere(call: &Call, seen: &Seen) -> Result<Option<String>, Stop> {
    let id = &seen.handoff.request.request_id;
    match seen.handoff.state {
        State::Pending | State::Accepted | State::Completed => return Ok(None),
        State::Rejected | State::Expired => {}
    }
    let next = seen.handoff.next_id();
    if standing(call, seen.handoffs.with_trailing_token(next.as_str()).as_str())?.is_some() {
        return Ok(Some(format!("`{next}` was made already")));
    }
    let is_returned = standing(call, seen.place.with_trailing_token("returned").as_str())?.is_some();
    Ok(is_returned.then(|| format!("`{id}` was given back already")))
}

/// Another handoff of the same piece of work that is not over, of however many.
fn under_way(call: &Call, seen: &Seen) -> Result<Option<String>, Stop> {
    let all = standing(call, seen.handoffs.as_str())?.and_then(Node::as_object);
    let request = &seen.handoff.request;
    for (id, node) in all.into_iter().flat_map(|all| all.iter()) {
        let is = |name: &str, texts: &[&str]| {
            node.child(name).and_then(Node::as_str).is_some_and(|text| texts.contains(&text))
        };
        let is_open = is("state", &["PENDING", "ACCEPTED"]) && is("task", &[&request.task]);
        if is_open && **id != *request.request_id {
            return Ok(Some((**id).to_owned()));
        }
    }
    Ok(None)
}

/// The name below a collection in which a place lies, and the member of that.
fn below(place: &Pointer, collection: &Pointer) -> Option<(String, Option<String>)> {
    let below = place.starts_with(collection).then(|| place.strip_prefix(collection)).flatten()?;
    let mut tokens = below.tokens().map(|token| token.decoded().into_owned());
    Some((tokens.next()?, tokens.next()))
}

/// What a person has said of it, or the question.
fn escalated(call: &Call, seen: &Seen, agents: &Agents, why: &str) -> Result<Vec<Value>, Stop> {
    let request = &seen.handoff.request;
    let can = |name: &&String| {
        let mut required = request.capabilities_required.iter();
        **name != request.from_agent && required.all(|wanted| agents[*name].contains(wanted))
    };
    let mut choices: Vec<String> = agents.keys().filter(can).take(NAMED_MAX).cloned().collect();
    choices.push(GIVE_BACK.to_owned());
    let Some(answered) = call.shown.answers().last() else {
        let (why, reason) = (one_line(why, SAID_CHARS_MAX), one_line(&request.reason, SAID_CHARS_MAX));
        let question = format!("{why}. `{}` hands over `{}`: {reason} Who takes it?", request.from_agent, request.task);
        return Err(Stop::Ask { question, choices });
    };
    match (answered.answer.as_str(), seen.handoff.state) {
        (GIVE_BACK, State::Pending) => Ok(seen.given_back(Some((answered.by.as_str(), why)))),
        (GIVE_BACK, _) => Ok(seen.given_back(None)),
        (to, State::Pending) => Ok(vec![seen.offer(to)]),
        (to, _) => Ok(vec![seen.again(to)]),
    }
}

impl Seen {
    fn moves_to(&self, state: State) -> Value {
        json!({"op": "replace", "path": self.place.with_trailing_token("state"), "value": state})
    }

    fn offer(&self, to: &str) -> Value {
        json!({"op": "add", "path": self.place.with_trailing_token("to"), "value": to})
    }

    /// The same request once more, to somebody.
    fn again(&self, to: &str) -> Value {
        let place = self.handoffs.with_trailing_token(self.handoff.next_id().as_str());
        json!({"op": "add", "path": place, "value": self.handoff.again(to)})
    }

    /// From this commit on the work is another's, and the handoff done: in one patch, so that there is nothing in between.
    fn transfer(&self, to: &str) -> Vec<Value> {
        let owner = json!({"op": "replace", "path": self.owner, "value": to});
        vec![owner, self.moves_to(State::Completed)]
    }

    /// It stays with whose work it is; `refused`: by whom, and why, if that is not known yet.
    fn given_back(&self, refused: Option<(&str, &str)>) -> Vec<Value> {
        let at = |member: &str| self.place.with_trailing_token(member);
        let mut patch = Vec::new();
        if let Some((by, reason)) = refused {
            patch.push(json!({"op": "add", "path": at("rejection"), "value": {"by": by, "reason": reason}}));
            patch.push(self.moves_to(State::Rejected));
        }
        patch.push(json!({"op": "add", "path": at("returned"), "value": self.handoff.request.from_agent}));
        patch
    }
}
