//! `builtin:coordinator`: opens a ballot over a proposed artefact and decides it when due. Asks a person if the votes
//! do not decide, and sends the artefact back if no person rules (`docs/rooms.md`).
//!
//! The kernel evaluates the votes ([`patchboard_protocols::room`]). The place of the triggering event selects the step.

mod question;

use std::collections::BTreeSet;

use jsonptr::Pointer;
use patchboard_kernel::blueprint::Worker;
use patchboard_protocols::room::{self, ArtifactType, Decision, Outcome, Policy, Vote};
use patchboard_runtime::agent::{Call, CallResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::role_io::{NoPatch, is_place, not_configured, put, read, read_document, respond, role_config, value_at};
use question::Escalation;

/// Possible rulings of a person.
const RULINGS: [Outcome; 2] = [Outcome::Approved, Outcome::RevisionRequested];

/// Configuration of a seat, its `with`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CoordinatorConfig {
    /// JSON Pointer of the room.
    room: String,
    /// Group of the critics, if a proposal requests none.
    critics: String,
    /// The trigger is a person's missing ruling.
    unanswered: bool,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self { room: "/room".to_owned(), critics: "critics".to_owned(), unanswered: false }
    }
}

pub(crate) fn config(worker: &Worker) -> Result<CoordinatorConfig, String> {
    let with: CoordinatorConfig = role_config(worker)?;
    is_place(&with.room)?;
    Ok(with)
}

/// Critics of an artefact, and their time to vote.
#[derive(Serialize, Deserialize)]
struct Ballot {
    artifact_id: String,
    critics: Vec<String>,
    window_ms: u64,
    policy_version: String,
}

/// A decision in the room's document.
#[derive(Serialize, Deserialize)]
struct RecordedDecision {
    artifact_id: String,
    /// Votes in the room at the decision; later votes are late.
    votes_seen: usize,
    #[serde(flatten)]
    decision: Decision,
}

pub(crate) fn answer(call: &Call) -> CallResult {
    respond(call, || {
        let with = config(call.worker_config()).map_err(not_configured)?;
        let room = Room { call, with };
        if room.with.unanswered {
            return room.send_back();
        }
        let woken_at = call.context.trigger_place().unwrap_or_default();
        let below = woken_at.strip_prefix(room.with.room.as_str()).and_then(|below| Pointer::parse(below).ok());
        let tokens: Vec<String> =
            below.into_iter().flat_map(Pointer::tokens).map(|token| token.decoded().into_owned()).collect();
        match tokens.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["proposals", artifact, "artifact_type"] => room.open(artifact),
            ["votes", vote] => room.count(vote),
            ["ballots", artifact] => room.decide(artifact, true),
            ["decisions", decision] => room.rule(decision),
            _ => Err(NoPatch::Pass("nothing of the room has woken it".to_owned())),
        }
    })
}

/// A room in the view of its coordinator.
struct Room<'c> {
    call: &'c Call,
    with: CoordinatorConfig,
}

impl Room<'_> {
    /// Builds the pointer of a part of the room, or of a member of it.
    fn place(&self, part: &str, member: Option<&str>, within: &str) -> String {
        let room = &self.with.room;
        let member = member.map(|member| format!("/{}", jsonptr::Token::new(member).encoded())).unwrap_or_default();
        format!("{room}/{part}{member}{within}")
    }

    /// Reads a list of the room at any length.
    fn list(&self, part: &str) -> Result<Vec<Value>, NoPatch> {
        Ok(read_document(self.call, &self.place(part, None, ""))?.unwrap_or_default())
    }

    fn policy(&self) -> Result<Policy, NoPatch> {
        let place = self.place("policy", None, "");
        let policy: Policy = read(self.call, &place)?.unwrap_or_default();
        match policy.validation_errors().into_iter().next() {
            None => Ok(policy),
            Some(problem) => Err(not_configured(format!("{place}: {problem}")).into()),
        }
    }

    /// Returns the workers of the group, sorted by name.
    fn group(&self) -> Vec<String> {
        let workers = self.call.context.plan().blueprint.workers.iter();
        let is_critic =
            |worker: &Worker| worker.group.as_ref().is_some_and(|group| group.as_str() == self.with.critics);
        workers.filter(|(_, worker)| is_critic(worker)).map(|(name, _)| name.to_string()).collect()
    }

    /// Opens the ballot over an artefact. Without critics, the ballot is over at once.
    fn open(&self, artifact: &str) -> Result<Vec<Value>, NoPatch> {
        let proposal = |within| self.place("proposals", Some(artifact), within);
        // An unknown artefact type has the window for unknown types.
        let kind = value_at(self.call, &proposal("/artifact_type"))?;
        let kind = kind.and_then(|kind| serde_json::from_value::<ArtifactType>(kind).ok());
        let mut critics: Vec<String> =
            read(self.call, &proposal("/requested_critics"))?.unwrap_or_else(|| self.group());
        let mut seen = BTreeSet::new();
        critics.retain(|critic| seen.insert(critic.clone()));
        let policy = self.policy()?;
        let window_ms = u64::from(policy.window_s.for_artifact(kind)) * 1000;
        let policy_version = policy.version();
        let is_over = critics.is_empty();
        let ballot = Ballot { artifact_id: artifact.to_owned(), critics, window_ms, policy_version };
        let mut patch = put(&self.place("ballots", Some(artifact), ""), &ballot)?;
        // A critic may have voted before the ballot.
        match self.decided(&ballot, is_over) {
            Ok(decided) => patch.extend(decided),
            Err(NoPatch::Pass(_)) => {}
            Err(stop) => return Err(stop),
        }
        Ok(patch)
    }

    /// Decides over the artefact of a vote, if it was the last awaited one.
    fn count(&self, vote: &str) -> Result<Vec<Value>, NoPatch> {
        let votes = self.list("votes")?;
        let artifact =
            vote.parse::<usize>().ok().and_then(|vote| votes.get(vote)?["artifact_id"].as_str().map(str::to_owned));
        self.decide(&artifact.ok_or_else(|| NoPatch::Pass("there is no such vote".to_owned()))?, false)
    }

    fn decide(&self, artifact: &str, is_over: bool) -> Result<Vec<Value>, NoPatch> {
        let ballot: Option<Ballot> = read(self.call, &self.place("ballots", Some(artifact), ""))?;
        let ballot = ballot.ok_or_else(|| NoPatch::Pass("nobody has been asked yet".to_owned()))?;
        if self.list("decisions")?.iter().any(|decision| decision["artifact_id"] == artifact) {
            return Err(NoPatch::Pass("it is decided; the vote is late".to_owned()));
        }
        self.decided(&ballot, is_over)
    }

    /// Returns the decision by the present votes, if it is due.
    fn decided(&self, ballot: &Ballot, is_over: bool) -> Result<Vec<Value>, NoPatch> {
        let votes = self.list("votes")?;
        let votes_seen = votes.len();
        let own = votes.into_iter().filter(|vote| vote["artifact_id"] == ballot.artifact_id.as_str());
        let own = own.map(serde_json::from_value::<Vote>).collect::<Result<Vec<_>, _>>();
        let own = own.map_err(|why| not_configured(format!("a vote cannot be read: {why}")))?;
        let decided = room::decide(&ballot.critics, &own, is_over, &self.policy()?);
        match decided.map_err(|bad| not_configured(bad.to_string()))? {
            Some(decision) => {
                let decided = RecordedDecision { artifact_id: ballot.artifact_id.clone(), votes_seen, decision };
                put(&self.place("decisions", Some("-"), ""), &decided)
            }
            None => Err(NoPatch::Pass("others have still to vote".to_owned())),
        }
    }

    /// Records a person's ruling over an escalated artefact, or asks for it.
    fn rule(&self, index: &str) -> Result<Vec<Value>, NoPatch> {
        let decided: Option<RecordedDecision> = read_document(self.call, &self.place("decisions", Some(index), ""))?;
        let decided = decided.filter(|decided| decided.decision.outcome == Outcome::EscalatedToHitl);
        let decided = decided.ok_or_else(|| NoPatch::Pass("no person is to decide over it".to_owned()))?;
        let artifact_id = &decided.artifact_id;
        if let Some(answered) = self.call.context.answers().last() {
            let ruling = json!({"artifact_id": artifact_id, "outcome": answered.answer, "by": answered.by});
            return put(&self.place("rulings", Some("-"), ""), &ruling);
        }
        // The question omits parts that the seat may not read.
        let of = |within| {
            if_readable(read_document::<Value>(self.call, &self.place("proposals", Some(artifact_id), within)))
        };
        let kinds = [of("/artifact_type")?, of("/artifact_content_type")?].into_iter().flatten();
        let escalated = Escalation {
            artifact_id,
            kinds: kinds.filter_map(|kind| kind.as_str().map(str::to_owned)).collect(),
            artifact: of("/artifact")?,
            decision: &decided.decision,
            votes: counted(&decided, if_readable(self.list("votes").map(Some))?.unwrap_or_default()),
        };
        let choice = |outcome: &Outcome| json!(outcome).as_str().unwrap_or_default().to_owned();
        Err(NoPatch::Ask { question: escalated.question(), choices: RULINGS.iter().map(choice).collect() })
    }

    /// Sends back the escalated artefacts without a ruling.
    fn send_back(&self) -> Result<Vec<Value>, NoPatch> {
        let ruled = self.list("rulings")?;
        let is_ruled = |decision: &Value| ruled.iter().any(|ruling| ruling["artifact_id"] == decision["artifact_id"]);
        let mut patch = Vec::new();
        for decision in self.list("decisions")? {
            if decision["outcome"] == json!(Outcome::EscalatedToHitl) && !is_ruled(&decision) {
                let ruling = json!({"artifact_id": decision["artifact_id"], "outcome": Outcome::RevisionRequested,
                    "by": self.call.worker, "reason": "no person has ruled over it in time"});
                patch.extend(put(&self.place("rulings", Some("-"), ""), &ruling)?);
            }
        }
        if patch.is_empty() { Err(NoPatch::Pass("everything is ruled over".to_owned())) } else { Ok(patch) }
    }
}

/// Returns a value; none if the seat may not read it.
fn if_readable<T>(found: Result<Option<T>, NoPatch>) -> Result<Option<T>, NoPatch> {
    match found {
        Err(NoPatch::NotInView(_)) => Ok(None),
        found => found,
    }
}

/// Returns the votes that a decision has counted.
fn counted(decided: &RecordedDecision, votes: Vec<Value>) -> Vec<Vote> {
    let own = votes.into_iter().take(decided.votes_seen);
    let own = own.filter(|vote| vote["artifact_id"] == decided.artifact_id.as_str());
    let own = own.filter_map(|vote| serde_json::from_value::<Vote>(vote).ok());
    let mut seen = BTreeSet::new();
    own.filter(|vote| !decided.decision.foreign_votes.contains(&vote.critic_id) && seen.insert(vote.critic_id.clone()))
        .collect()
}
