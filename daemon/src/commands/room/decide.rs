//! `patchboard room decide`: decides on an artefact from votes in files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use patchboard_protocols::room::{self, Policy, Vote};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::input::{self, StrictObject};
use crate::output::Output;

/// Decide on an artefact from its critics' votes, as a room does at the deadline
///
/// VOTES is a list of {critic_id, score, confidence, passed, recommendations?}: scores go from 0 to 10, confidences
/// from 0 to 1. {critic_id, abstain: true} is no vote. Other members are ignored.
///
/// The decision is ESCALATED_TO_HITL (a person decides) if a vote has confidence below 0.3, scores deviate by more than
/// 3, a recommendation asks for it ("escalate", "needs human review"), or fewer than half of the critics have voted.
/// Otherwise it is APPROVED if the mean, weighted by confidence, is at least 7, the average confidence at least 0.7, 80
/// % passed it and scores deviate by no more than 2; else REVISION_REQUESTED. A policy changes any of these numbers.
///
/// Prints one JSON object with `mean`, `weighted_mean`, `std_dev`, `vote_count`, `decision`, `reason`, the evidence,
/// and measures of agreement (`entropy`, `consensus`, `polarised`; for information only). Every decision exits with 0;
/// invalid votes or an invalid policy with 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard room decide votes.json
  patchboard room decide votes.json --requested alice,bob,carol     carol has not voted
  patchboard room decide votes.json --policy strict.yaml | jq -r .decision

A policy, with its defaults:
  {version: \"\", aggregation: confidence_weighted,                   or mean, majority, borda
   min_score_threshold: 7.0, min_confidence_threshold: 0.7, min_pass_ratio: 0.8, max_std_dev: 2.0,
   escalate_confidence_below: 0.3, escalate_std_dev_above: 3.0,
   quorum: {rule: {minimum_fraction: 0.5},                          or minimum_votes: N, require_all: true
            on_failure: fail_closed}}                               or fail_with_available, fail_with_abstain")]
pub(crate) struct Decide {
    /// The votes: a JSON file, or YAML by its name; - for JSON on standard input
    #[arg(value_name = "VOTES")]
    votes: PathBuf,
    /// The policy: a JSON file, or YAML by its name; defaults are shown below
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Critics asked to vote, separated by commas [default: those who have voted]
    #[arg(long, value_name = "CRITICS", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    requested: Option<Vec<String>>,
}

pub(super) fn run(arguments: &Decide, output: Output) -> Outcome {
    let votes: Vec<StrictObject<Vote>> = input::read(&arguments.votes, "list of votes", "bad_votes")?;
    let votes: Vec<Vote> = votes.into_iter().map(|StrictObject(vote)| vote).collect();
    let policy = match &arguments.policy {
        Some(path) => input::read::<StrictObject<Policy>>(path, "policy", "bad_policy")?.0,
        None => Policy::default(),
    };
    let problems = policy.validation_errors();
    if let Some(first) = problems.first() {
        return Err(Failure::invalid_input("bad_policy", first).detail("problems", json!(problems)));
    }
    if votes.is_empty() && arguments.requested.is_none() {
        return Err(Failure::invalid_input("bad_votes", room::VoteError::Empty)
            .help("pass --requested with the critics that were asked, to see the outcome without votes"));
    }
    let voters = || votes.iter().map(|vote| vote.critic_id.clone()).collect();
    let mut requested: Vec<String> = arguments.requested.clone().unwrap_or_else(voters);
    let mut seen = BTreeSet::new();
    requested.retain(|critic| seen.insert(critic.clone()));
    let decided =
        room::decide(&requested, &votes, true, &policy).map_err(|bad| Failure::invalid_input("bad_votes", bad))?;
    let decision = decided.expect("time is over");
    let mut report = json!(decision);
    // The numbers are top-level members, for use in scripts.
    let scores = report.as_object_mut().and_then(|report| report.remove("aggregated"));
    report["decision"] = report["outcome"].take();
    report.as_object_mut().expect("it is an object").remove("outcome");
    for name in ["mean", "weighted_mean", "std_dev", "min_score", "max_score"] {
        report[name] = scores.as_ref().map_or(Value::Null, |scores| scores[name].clone());
    }
    // Only votes that count: the first of each requested critic, unless it is an abstention.
    let mut asked: BTreeSet<&String> = requested.iter().collect();
    let counted: Vec<&Vote> =
        votes.iter().filter(|vote| asked.remove(&vote.critic_id)).filter(|vote| !vote.abstain).collect();
    report["entropy"] = json!(room::entropy(&counted).ok());
    report["consensus"] = json!(room::is_consensus(&counted, policy.min_pass_ratio).ok());
    report["polarised"] = json!(room::is_polarised(&counted).ok());
    report["vote_count"] = scores.map_or(json!(0), |scores| scores["vote_count"].clone());
    output.json(&report)?;
    Ok(Exit::Done)
}
