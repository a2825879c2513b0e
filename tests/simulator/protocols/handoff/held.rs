//! Invariants of a play of handoffs, at each commit and at the end.

use std::collections::BTreeMap;

use patchboard_kernel::record::{Body, Cause, Committed};
use patchboard_kernel::rejection::Code;
use serde_json::{Map, Value};

use super::super::{Play, World};
use super::{ALSO, Case, named};

/// All permitted moves.
const MOVES: [(&str, &str); 4] =
    [("PENDING", "ACCEPTED"), ("PENDING", "REJECTED"), ("PENDING", "EXPIRED"), ("ACCEPTED", "COMPLETED")];

/// Checks a play commit by commit, and counts on the way.
pub(super) struct Held<'c> {
    case: &'c Case,
    seed: u64,
    /// Answers of persons, and the questions to them.
    said: Vec<String>,
    questions: Vec<String>,
    /// Rejected writes to work that had been handed over.
    pub(super) refused: u64,
    /// Completed handoffs.
    pub(super) completed: u64,
    /// Extra requests before the work had changed its owner.
    pub(super) also: u64,
}

impl<'c> Held<'c> {
    /// Checks all records of a play.
    pub(super) fn of(case: &'c Case, play: &Play<'_>) -> Self {
        let (said, questions) = (Vec::new(), Vec::new());
        let mut held = Self { case, seed: play.seed, said, questions, refused: 0, completed: 0, also: 0 };
        let mut board = play.first();
        let mut before = board.state().root().to_value();
        for record in &play.records[1..] {
            board.fold(record).expect("it follows");
            match record.body().expect("it can be read") {
                Body::Answer(answer) => held.said.extend(answer.text.clone()),
                Body::Approval(approval) => {
                    held.questions.extend(approval.clarify.iter().map(|clarify| clarify.question.clone()))
                }
                Body::Rejected(rejected) if rejected.code == Code::ConditionNotMet => {
                    let writes = format!("{} after", rejected.by.worker);
                    held.refused += u64::from(rejected.reply.contains(&writes));
                }
                Body::Committed(committed) => {
                    let after = board.state().root().to_value();
                    held.commit(committed, &before, &after);
                    before = after;
                }
                _ => {}
            }
        }
        held.end(play, &before);
        held
    }

    fn commit(&mut self, committed: &Committed, before: &Value, after: &Value) {
        let seed = self.seed;
        let worker = committed.by.worker.as_str();
        for operation in committed.patch.as_array().expect("a patch") {
            let parts: Vec<&str> = operation["path"].as_str().expect("a place").split('/').skip(1).collect();
            if let ["tasks", task, "log" | "work" | "done", ..] = parts.as_slice() {
                assert_eq!(before["tasks"][*task]["owner"], worker, "SEED={seed}: {task} is not the work of {worker}");
            }
        }
        let none = Map::new();
        let handoffs = |state: &Value| state["handoffs"].as_object().unwrap_or(&none).clone();
        let (old, new) = (handoffs(before), handoffs(after));
        let mut owners: BTreeMap<&str, &Value> = BTreeMap::new();
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, handoff) in &new {
            let state = handoff["state"].as_str().expect("a state");
            let task = handoff["task"].as_str().expect("a name");
            let (from, owner) = (&handoff["from_agent"], &before["tasks"][task]["owner"]);
            match old.get(id).map(|handoff| handoff["state"].as_str().expect("a state")) {
                None => assert_eq!((state, owner), ("PENDING", from), "SEED={seed}: {id} begins as {state} of {owner}"),
                Some(was) => {
                    assert!(
                        was == state || MOVES.contains(&(was, state)),
                        "SEED={seed}: {id} goes from {was} to {state}"
                    );
                    if was != state && state == "COMPLETED" {
                        self.completed += 1;
                        assert_eq!(owner, from, "SEED={seed}: {id} hands over what is another's");
                        let first = owners.insert(task, &handoff["to"]).is_none();
                        assert!(first, "SEED={seed}: {task} is handed over twice at once");
                    }
                }
            }
            if let Some(to) = handoff.get("to")
                && old.get(id).and_then(|handoff| handoff.get("to")).is_none()
            {
                self.asked(id, handoff, to.as_str().expect("a name"), &old);
            }
            // An extra request goes to no agent and is given back.
            self.also += u64::from(id.ends_with(ALSO) && !old.contains_key(id));
            assert!(!id.ends_with(ALSO) || handoff.get("to").is_none(), "SEED={seed}: {id} is handed over: {handoff}");
            let is_open = matches!(state, "PENDING" | "ACCEPTED") && !id.ends_with(ALSO);
            *open.entry(task).or_default() += u64::from(is_open);
        }
        assert!(old.keys().all(|id| new.contains_key(id)), "SEED={seed}: a handoff is gone");
        for (task, open) in open {
            assert!(open <= 1, "SEED={seed}: {open} handoffs of {task} are open at once");
        }
        for (task, work) in after["tasks"].as_object().expect("an object") {
            let expected = owners.get(task.as_str()).copied().unwrap_or(&before["tasks"][task]["owner"]);
            assert_eq!(work["owner"], *expected, "SEED={seed}: {task} is not of who has taken it last");
        }
    }

    /// Checks that the requested agent is able, is not the owner, and has not rejected, unless a person insists.
    fn asked(&self, id: &str, handoff: &Value, to: &str, old: &Map<String, Value>) {
        let seed = self.seed;
        let can = &self.case.agents[to];
        let mut required = handoff["capabilities_required"].as_array().expect("a list").iter();
        assert!(required.all(|wanted| can.iter().any(|can| wanted == can)), "SEED={seed}: {to} cannot take {id}");
        assert_ne!(handoff["from_agent"], to, "SEED={seed}: {id}");
        let first = |id: &str| id.split('.').next().map(str::to_owned);
        let has_refused = |(other, handoff): (&String, &Value)| {
            first(other) == first(id) && handoff["rejection"]["by"] == to && handoff["state"] == "REJECTED"
        };
        if old.iter().any(has_refused) {
            assert!(self.said.iter().any(|said| said == to), "SEED={seed}: {to} has refused, and is asked {id}");
        }
    }

    /// Checks that every request not accepted goes to another agent or a person, and that no request stays open.
    fn end(&self, play: &Play<'_>, state: &Value) {
        let seed = self.seed;
        let cause = play.board.ended().map(|ended| ended.cause);
        let has_given_up = cause == Some(Cause::GaveUp);
        assert!(has_given_up || cause == Some(Cause::NothingToDo), "SEED={seed}: {cause:?}");
        if has_given_up && play.world == World::Hasty {
            // Calls exceed their timeout in this world, so later handoffs may be missing.
            return;
        }
        let handoffs = state["handoffs"].as_object().expect("an object");
        for (id, handoff) in handoffs {
            let next = named(id.split('.').next().expect("a name"), handoff["attempt"].as_u64().unwrap_or(1) + 1);
            let goes_on = handoffs.contains_key(&next) || handoff.get("returned").is_some();
            let task = handoff["task"].as_str().expect("a name");
            let was_asked = self.questions.iter().any(|question| question.contains(&format!("hands over `{task}`")));
            match handoff["state"].as_str().expect("a state") {
                "COMPLETED" => assert!(!goes_on, "SEED={seed}: {id} is completed, and goes on"),
                "REJECTED" | "EXPIRED" => assert!(goes_on || was_asked, "SEED={seed}: nothing follows {id}: {handoff}"),
                other => assert!(other == "PENDING" && was_asked, "SEED={seed}: {id} stays {other}: {handoff}"),
            }
        }
    }
}
