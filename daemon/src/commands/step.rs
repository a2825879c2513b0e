//! `patchboard dry-run`: runs one worker again on an earlier state of the board, without side effects on it.

use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::{self, Board, DryRun};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::event::Change;
use patchboard_kernel::expand_request::ExpandRequest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{IdempotencyKey, InvocationId, Timestamp, WorkerName};
use patchboard_kernel::pipeline::Verdict;
use patchboard_kernel::plan::UncachedPlans;
use patchboard_kernel::record::{Author, Body, Invoked, Record};
use patchboard_kernel::rejection::Rejection;
use patchboard_kernel::scheduler::QueuedInvocation;
use patchboard_roles::blackboard;
use patchboard_runtime::agent::{self, Call, Reply};
use serde_json::{Value, json};

use crate::cli::BoardArgument;
use crate::describe;
use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::{Output, json_line, one_line, short};
use crate::reader::{Reader, bad_board};
use crate::worker_agents::{AgentArguments, PlayedRecording};

/// Maximum characters of a value in the output.
const SHOWN: usize = 200;

/// Maximum bytes of a reply read from a file.
const REPLY_BYTES_MAX: u64 = 16 << 20;

/// Run one worker again on the board as it was before a record, and show what it would commit
///
/// If the record is an attempt of the worker (`invoked`) or its outcome, the worker gets the view of that attempt.
/// Otherwise it gets a view of the board before the record, with its latest trigger. Only its agent is called, or
/// `--reply` provides the reply, and the kernel judges it as it would have at that moment. If the journal has the
/// actual outcome, the two are compared: `same` means the same patch, the same rejection or the same failure.
///
/// The roles of departments use the time of the attempt, or of the record, and the rows at that time. For a nested
/// board give the recording of the outermost board: it includes the nested calls.
///
/// Nothing changes. The journal is only read, even while another process runs the board; no record is written, and the
/// call is not charged to the board (the model server still bills it). Agents that edit files would change them, so a
/// worker with `files` requires `--reply`. Side effects of programs are not prevented.
///
/// Exits with 0 if the reply would be committed, would change nothing or would wait for a person; with 1 if it would be
/// rejected, or the agent fails.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard log last                                  which record was it?
  patchboard dry-run last --at 7 --worker extractor --cassette blueprints/evidence-review/cassette.jsonl
  patchboard dry-run last --at 7 --worker extractor --model-url http://127.0.0.1:8080/v1 --model qwen2.5
  echo '[{\"op\":\"add\",\"path\":\"/answer\",\"value\":\"42\"}]' | patchboard dry-run last --at 7 --worker writer --reply -
  patchboard dry-run last --at 7 --worker extractor --output json | jq '.outcome, .recorded.same'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The record before which the board is reconstructed
    #[arg(long, value_name = "SEQ")]
    at: u64,
    /// The worker, by its name in the blueprint
    #[arg(long, value_name = "WORKER")]
    worker: String,
    /// Judge this reply instead of calling an agent: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["cassette", "model_url", "model", "api_key_env", "temperature", "allow_inline"])]
    reply: Option<PathBuf>,
    #[command(flatten)]
    agents: AgentArguments,
}

/// Reconstructed moment of the run.
struct DryRunPoint {
    /// State before the record.
    board: Board,
    /// View and values for the worker.
    dry_run: DryRun,
    /// Trigger of the call; `None` for a preview.
    queued: Option<QueuedInvocation>,
    /// Recorded attempt, if any.
    invoked: Option<Invoked>,
    /// Time of the attempt, or of the record if there is no attempt.
    time: Timestamp,
    /// Index of the record with the actual outcome.
    outcome: Option<usize>,
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    let records = reader.records(&summary.id)?;
    let worker = WorkerName::from(arguments.worker.as_str());
    let at = position(&records, arguments.at)?;
    let moment = DryRunPoint::find(&records, at, &worker)?;
    let call = moment.call();
    let answer = match &arguments.reply {
        Some(path) => Ok(blackboard::made(&call, Reply::new(read_reply(path)?, None))),
        None => {
            let before = &records[..moment.outcome.unwrap_or(at)];
            let (name, mut records) = reader.related_records(&summary, moment.time)?;
            records.push(before.to_vec());
            let played = PlayedRecording { name: &name, records: &records };
            ask(&arguments.agents, &moment, &call, &played, data_dir, config).await?
        }
    };
    let result = DryRunResult::from_answer(&moment, &records[at], answer);
    let recorded = moment.outcome.map(|index| RecordedOutcome::compare(&records[index], &result));
    if output.is_json() {
        output.json(&result.json(&moment, arguments.at, recorded.as_ref()))?;
    } else {
        output.text(&result.text(&moment, arguments.at, recorded.as_ref()))?;
    }
    reader.exit_after_listing(&summary.id)?;
    Ok(if result.is_accepted() { Exit::Done } else { Exit::Failed })
}

/// Returns the record's index, if the board before it can be reconstructed.
fn position(records: &[Record], seq: u64) -> Result<usize, Failure> {
    let last = records.last().map_or(0, |record| record.seq.0);
    if seq > last {
        return Err(Failure::invalid_input(
            "no_such_record",
            format!("the journal ends with record {last}, before {seq}"),
        )
        .help("`patchboard log BOARD` lists the records")
        .detail("last", last.into()));
    }
    let position = usize::try_from(seq).unwrap_or(usize::MAX);
    if position == 0 {
        return Err(Failure::invalid_input("no_such_record", "before record 0 there is no board")
            .help("name the record of an attempt or of what came of it: `patchboard log BOARD`"));
    }
    // A missing record is as bad as an altered one.
    if let Some(missing) = (0..=position).find(|&at| records.get(at).is_none_or(|record| record.seq.0 != at as u64)) {
        return Err(Failure::failed("bad_record", format!("record {missing} is missing"))
            .help("`patchboard verify BOARD` says what else is wrong")
            .detail("seq", missing.into()));
    }
    for record in &records[..position] {
        if record.redaction_marker().map_err(bad_board)?.is_some() {
            let message =
                format!("record {} holds values that are erased, so the board after it is not what it was", record.seq);
            return Err(Failure::invalid_input("values_erased", message)
                .help(format!("only records up to {} can be stepped", record.seq))
                .detail("seq", record.seq.0.into()));
        }
    }
    Ok(position)
}

impl DryRunPoint {
    fn find(records: &[Record], at: usize, worker: &WorkerName) -> Result<Self, Failure> {
        let body = |index: usize| records[index].body().map_err(bad_board);
        let here = body(at)?;
        let attempt = match here {
            Body::Invoked(invoked) if invoked.worker == *worker => Some((invoked.invocation, invoked.attempt)),
            other => other.author().filter(|by| by.worker == *worker).and_then(attempt),
        };
        // The attempt at the record, or else the worker's latest trigger.
        let (mut shown_at, mut invocation, mut invoked) = (None, None, None);
        for index in (0..=at).rev() {
            match (body(index)?, attempt) {
                (Body::Invoked(found), Some(wanted)) if (found.invocation, found.attempt) == wanted => {
                    (shown_at, invocation, invoked) = (Some(index), Some(found.invocation), Some(found.clone()));
                    break;
                }
                (Body::Scheduled(found), None) if found.worker == *worker && index < at => {
                    invocation = Some(found.invocation);
                    break;
                }
                _ => {}
            }
        }
        let mut board = Board::from_created(&records[0], &UncachedPlans).map_err(bad_board)?;
        if !board.plan().workers.contains_key(worker) {
            return Err(no_such_worker(&board, worker));
        }
        let (mut queued, mut rehearsal) = (None, None);
        for (index, record) in records.iter().enumerate().take(at).skip(1) {
            if shown_at == Some(index) {
                rehearsal = board.dry_run(worker, queued.as_ref(), &Bindings::default());
            }
            board.fold(record).map_err(bad_board)?;
            if queued.is_none() {
                queued = invocation.and_then(|invocation| board.invocation(invocation)).cloned();
            }
        }
        // Without an attempt, or at the attempt's own record, the view is of this board.
        let rehearsal = rehearsal
            .or_else(|| board.dry_run(worker, queued.as_ref(), &Bindings::default()))
            .expect("the worker is there");
        let outcome = outcome(records, at, worker, invocation, attempt)?;
        let time = records[shown_at.unwrap_or(at)].at;
        Ok(Self { board, dry_run: rehearsal, queued, invoked, time, outcome })
    }

    /// Returns the call that the worker's agent would get.
    fn call(&self) -> Call {
        let rehearsal = &self.dry_run;
        let attempt = self.invoked.as_ref().map_or(1, |invoked| invoked.attempt);
        let invocation = self.queued.as_ref().map(|queued| queued.invocation).unwrap_or_default();
        let decided = board::Call {
            board: self.board.id().clone(),
            parent: self.board.parent().cloned(),
            invocation,
            cause: self.queued.as_ref().map(|queued| queued.cause).unwrap_or_default(),
            attempt,
            idempotency_key: IdempotencyKey::for_attempt(invocation, attempt),
            worker: rehearsal.worker.clone(),
            model: self.board.blueprint().model_of(&rehearsal.worker).map(str::to_owned),
            view_hash: rehearsal.hash,
            prompt: rehearsal.prompt.clone(),
            context: rehearsal.context.clone(),
            occurrence: rehearsal.occurrence,
            earlier_attempts: rehearsal.past.clone(),
            timeout_ms: rehearsal.timeout_ms,
            admitted: None,
        };
        Call::new(decided, None)
    }
}

/// Returns the attempt of a proposal or failure; `None` for an edit within an attempt.
fn attempt(by: &Author) -> Option<(InvocationId, u32)> {
    let attempt = by.attempt.as_ref().filter(|_| by.edit.is_none())?;
    Some((attempt.invocation, attempt.number))
}

/// Returns the index of the outcome: this record or the first later one of the attempt; for a trigger, its last
/// outcome.
fn outcome(
    records: &[Record],
    at: usize,
    worker: &WorkerName,
    invocation: Option<InvocationId>,
    wanted: Option<(InvocationId, u32)>,
) -> Result<Option<usize>, Failure> {
    let mut last = None;
    for (index, record) in records.iter().enumerate() {
        let body = record.body().map_err(bad_board)?;
        let Some(by) = body.author().filter(|by| by.worker == *worker && by.edit.is_none()) else { continue };
        if index == at || (wanted.is_some() && index > at && attempt(by) == wanted) {
            return Ok(Some(index));
        }
        if wanted.is_none() && attempt(by).map(|(invocation, _)| invocation) == invocation && invocation.is_some() {
            last = Some(index);
        }
    }
    Ok(last)
}

fn no_such_worker(board: &Board, worker: &WorkerName) -> Failure {
    let workers: Vec<String> = board.blueprint().workers.keys().map(|name| one_line(name.as_str())).collect();
    let message = format!("the blueprint has no worker {}", one_line(worker.as_str()));
    Failure::invalid_input("no_such_worker", message)
        .help(format!("its workers are {}", workers.join(", ")))
        .detail("workers", json!(workers))
}

fn read_reply(path: &Path) -> Result<String, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::invalid_input("reply_unreadable", format!("the reply {} cannot be read: {why}", path.display()))
            .help("name a file that holds a JSON Patch or an envelope around one, or - for standard input")
    };
    let bytes = input::read_bytes(path, REPLY_BYTES_MAX).map_err(|why| unreadable(&why))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

/// Calls the worker's agent.
async fn ask(
    agents: &AgentArguments,
    moment: &DryRunPoint,
    call: &Call,
    played: &PlayedRecording<'_>,
    data_dir: &Path,
    config: Option<&Path>,
) -> Result<agent::CallResult, Failure> {
    let (seat, worker) = (call.worker_config(), &call.worker);
    let by_hand = "give the reply by hand with --reply FILE, or --reply - for standard input";
    if seat.files.is_some() {
        let message = format!("worker {worker} edits files, and a step must change nothing");
        return Err(Failure::invalid_input("uses_files", message).help(by_hand));
    }
    let is_nobody_here = match &seat.agent {
        AgentKind::Human | AgentKind::Remote => !agents.is_played(),
        // A nested board would have its own journal records; recordings hold only the calls inside it.
        kind => *kind == AgentKind::Board,
    };
    if is_nobody_here {
        let message = format!("worker {worker} has the agent {}, which cannot be asked from here", seat.agent);
        return Err(Failure::invalid_input("nobody_to_ask", message).help(by_hand));
    }
    let agent = agents.single_agent(moment.board.blueprint(), data_dir, worker, moment.time, played, config)?;
    let answered = tokio::select! {
        answered = tokio::time::timeout(call.timeout, agent.call(call)) => answered,
        _ = tokio::signal::ctrl_c() => return Err(Failure::failed("interrupted", "the call was given up")),
    };
    agent.on_board_ended(&call.board);
    Ok(answered.unwrap_or_else(|_| {
        let message = format!("it did not answer within {} ms", call.timeout.as_millis());
        Err(agent::Failure { code: FailureCode::Timeout, message, usage: None, deferral: None })
    }))
}

/// Outcome of the dry run.
struct DryRunResult {
    reply: Option<Reply>,
    outcome: OutcomeKind,
}

/// Outcome by kind.
enum OutcomeKind {
    Committed { patch: Value, expand: Vec<ExpandRequest>, changes: Vec<Change>, asks: Option<WorkerName> },
    NoOp { patch: Value, expand: Vec<ExpandRequest>, question: Option<String>, pass: Option<String> },
    Rejected(Rejection),
    Failed(agent::Failure),
}

impl DryRunResult {
    fn from_answer(moment: &DryRunPoint, record: &Record, answer: agent::CallResult) -> Self {
        let reply = match answer {
            Ok(reply) => reply,
            Err(failure) => return Self { reply: None, outcome: OutcomeKind::Failed(failure) },
        };
        let verdict = moment.board.judge(record.at, &moment.dry_run, &reply.clone().into_body());
        let outcome = match verdict {
            Verdict::Accepted(accepted) => {
                let mut patch = accepted.reply.patch;
                if let (Some(posted), Value::Array(ops)) = (accepted.appended_message, &mut patch) {
                    ops.push(posted);
                }
                OutcomeKind::Committed {
                    patch,
                    expand: accepted.reply.expand,
                    changes: accepted.made.changes,
                    asks: accepted.approval.map(|approval| approval.by),
                }
            }
            Verdict::NoOp(reply) => OutcomeKind::NoOp {
                patch: reply.patch,
                expand: reply.expand,
                question: reply.clarify.map(|clarify| clarify.question),
                pass: reply.pass,
            },
            Verdict::Rejected { rejection, .. } => OutcomeKind::Rejected(rejection),
        };
        Self { reply: Some(reply), outcome }
    }

    const fn is_accepted(&self) -> bool {
        matches!(self.outcome, OutcomeKind::Committed { .. } | OutcomeKind::NoOp { .. })
    }

    /// Returns the kind of record that the outcome would have.
    const fn kind(&self) -> &'static str {
        match &self.outcome {
            OutcomeKind::Committed { asks: Some(_), .. } | OutcomeKind::NoOp { question: Some(_), .. } => "approval",
            OutcomeKind::Committed { .. } => "committed",
            OutcomeKind::NoOp { expand, .. } if !expand.is_empty() => "expanded",
            OutcomeKind::NoOp { .. } => "no_op",
            OutcomeKind::Rejected(_) => "rejected",
            OutcomeKind::Failed(_) => "failed",
        }
    }

    fn json(&self, moment: &DryRunPoint, at: u64, recorded: Option<&RecordedOutcome>) -> Value {
        let (board, rehearsal) = (&moment.board, &moment.dry_run);
        let mut told = json!({
            "board": board.id(),
            "at": at,
            "version": board.version(),
            "worker": rehearsal.worker,
            "invocation": moment.queued.as_ref().map(|queued| queued.invocation),
            "attempt": moment.invoked.as_ref().map(|invoked| invoked.attempt),
            "rule": moment.queued.as_ref().and_then(|queued| queued.branch.rule.clone()),
            "trigger": moment.queued.as_ref().map(|queued| &queued.trigger),
            "view": {"hash": board.text_hash(&rehearsal.view.text), "version": rehearsal.context.basis().state.version(),
                     "recorded": moment.invoked.as_ref().map(|invoked| invoked.view)},
            "reply": self.reply.as_ref().map(|reply| &reply.text),
            "written": self.reply.as_ref().and_then(|reply| reply.converted_from.as_ref()),
            "usage": self.reply.as_ref().and_then(|reply| reply.usage),
            "outcome": self.kind(),
            "recorded": recorded.map(RecordedOutcome::json),
        });
        match &self.outcome {
            OutcomeKind::Committed { patch, expand, changes, asks } => {
                told["patch"] = patch.clone();
                told["changes"] = changes.iter().map(change_json).collect();
                told["expand"] = json!(expand);
                told["asks"] = json!(asks);
            }
            OutcomeKind::NoOp { patch, expand, question, pass } => {
                told["patch"] = patch.clone();
                told["expand"] = json!(expand);
                told["question"] = json!(question);
                told["pass"] = json!(pass);
            }
            OutcomeKind::Rejected(rejection) => told["rejection"] = json!(rejection),
            OutcomeKind::Failed(failure) => told["failure"] = json!({"code": failure.code, "message": failure.message}),
        }
        told
    }

    fn text(&self, moment: &DryRunPoint, at: u64, recorded: Option<&RecordedOutcome>) -> String {
        let (board, rehearsal) = (&moment.board, &moment.dry_run);
        let mut lines = vec![format!("board {} before record {at}, version {}", board.id(), board.version())];
        let why = match &moment.queued {
            Some(queued) => describe::cause(queued.branch.rule.as_ref(), &queued.trigger),
            None => "nothing had woken it".to_owned(),
        };
        let attempt = moment.invoked.as_ref().map(|invoked| format!(", attempt {}", invoked.attempt));
        lines.push(format!("worker {}{}: {why}", one_line(rehearsal.worker.as_str()), attempt.unwrap_or_default()));
        let hash = board.text_hash(&rehearsal.view.text);
        let view = match moment.invoked.as_ref().map(|invoked| invoked.view == hash) {
            Some(true) => "as it was shown then",
            Some(false) => "not what it was shown then: another version compiled that view",
            None => "of this moment, never shown",
        };
        let cost = self.reply.as_ref().and_then(|reply| reply.usage).map(describe::tokens);
        let cost = cost.map(|cost| format!("; {cost}, not charged to the board")).unwrap_or_default();
        lines.push(format!("view {hash}: {view}{cost}"));
        let expanding = |expand: &[ExpandRequest]| match expand {
            [] => String::new(),
            places => format!(", and requests {}", describe::listed(places)),
        };
        match &self.outcome {
            OutcomeKind::Committed { patch, expand, changes, asks } => {
                let what = match asks {
                    Some(by) => format!("would wait for {}", one_line(by.as_str())),
                    None => format!("would commit version {}", board.version().next()),
                };
                lines.push(format!("{what}: {}{}", describe::patch(patch), expanding(expand)));
                lines.extend(changes.iter().map(change_line));
            }
            OutcomeKind::NoOp { question: Some(question), .. } => {
                lines.push(format!("would ask a person: {}", short(question, SHOWN)));
            }
            OutcomeKind::NoOp { pass: Some(pass), .. } => lines.push(format!("would pass: {}", short(pass, SHOWN))),
            OutcomeKind::NoOp { expand, .. } => lines.push(format!("would change nothing{}", expanding(expand))),
            OutcomeKind::Rejected(rejection) => {
                lines.push(format!("would be refused: {}/{}", rejection.stage, rejection.code));
                lines.extend(rejection.violations.iter().map(|violation| {
                    let place = if violation.pointer.is_empty() { "the whole" } else { violation.pointer.as_str() };
                    format!("  at {}: {}", short(place, SHOWN), short(&violation.told(), 2 * SHOWN))
                }));
            }
            OutcomeKind::Failed(failure) => {
                lines.push(format!("the agent failed: {}: {}", failure.code, short(&failure.message, 2 * SHOWN)));
            }
        }
        lines.push(
            recorded.map_or_else(|| "the journal does not say what came of it".to_owned(), RecordedOutcome::text),
        );
        lines.join("\n") + "\n"
    }
}

fn change_json(change: &Change) -> Value {
    let mut told = json!({"path": change.path.to_string()});
    if let Some(before) = &change.before {
        told["before"] = before.to_value();
    }
    if let Some(after) = &change.after {
        told["after"] = after.to_value();
    }
    told
}

fn change_line(change: &Change) -> String {
    let value = |value: &Option<_>| match value {
        Some(node) => short(&json_line(node), SHOWN),
        None => "nothing".to_owned(),
    };
    format!("  {}: {} → {}", short(change.path.as_str(), SHOWN), value(&change.before), value(&change.after))
}

/// Outcome in the journal, compared with the dry run.
struct RecordedOutcome {
    seq: u64,
    kind: &'static str,
    /// Result of the comparison; `None` if the record is redacted.
    same: Option<bool>,
    patch: Option<Value>,
    rejection: Option<Rejection>,
    failure: Option<FailureCode>,
    deferral: Option<DeferralReason>,
}

impl RecordedOutcome {
    fn compare(record: &Record, now: &DryRunResult) -> Self {
        let mut recorded = Self {
            seq: record.seq.0,
            kind: record.kind.as_str(),
            same: None,
            patch: None,
            rejection: None,
            failure: None,
            deferral: None,
        };
        if !matches!(record.redaction_marker(), Ok(None)) {
            return recorded;
        }
        let is_patch = |patch: &Value, expand: &[ExpandRequest]| match &now.outcome {
            OutcomeKind::Committed { patch: ours, expand: asked, .. }
            | OutcomeKind::NoOp { patch: ours, expand: asked, .. } => ours == patch && asked == expand,
            OutcomeKind::Rejected(_) | OutcomeKind::Failed(_) => false,
        };
        let is_kind = now.kind() == record.kind.as_str();
        let (patch, same) = match record.body() {
            // A proposal that a person approved is `approval` in the dry run.
            Ok(Body::Committed(it)) => {
                let is_agreed = it.by.approval.is_some() && now.kind() == "approval";
                let same = (is_kind || is_agreed) && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::NoOp(it)) => {
                let passes = matches!(&now.outcome, OutcomeKind::NoOp { pass, .. } if *pass == it.pass);
                let same = is_kind && passes && is_patch(&it.patch, &[]);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Expanded(it)) => {
                let same = is_kind && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Approval(it)) => {
                let question = it.clarify.as_ref().map(|clarify| clarify.question.clone());
                let asked = match &now.outcome {
                    OutcomeKind::NoOp { question, .. } => question.clone(),
                    OutcomeKind::Committed { .. } | OutcomeKind::Rejected(_) | OutcomeKind::Failed(_) => None,
                };
                let same = is_kind && asked == question && is_patch(&it.patch, &it.expand);
                (Some(it.patch.clone()), same)
            }
            Ok(Body::Rejected(it)) => {
                let same = matches!(&now.outcome, OutcomeKind::Rejected(ours) if *ours == it.rejection);
                recorded.rejection = Some(it.rejection.clone());
                (None, same)
            }
            Ok(Body::Failed(it)) => {
                recorded.failure = Some(it.code);
                (None, matches!(&now.outcome, OutcomeKind::Failed(ours) if ours.code == it.code))
            }
            Ok(Body::Deferred(it)) => {
                recorded.deferral = Some(it.reason);
                (None, matches!(&now.outcome, OutcomeKind::Failed(ours) if ours.message == it.message))
            }
            Ok(_) | Err(_) => (None, false),
        };
        Self { same: Some(same), patch, ..recorded }
    }

    fn json(&self) -> Value {
        json!({
            "seq": self.seq,
            "kind": self.kind,
            "same": self.same,
            "erased": self.same.is_none(),
            "patch": self.patch,
            "rejection": self.rejection,
            "failure": self.failure,
            "deferral": self.deferral,
        })
    }

    fn text(&self) -> String {
        let Self { seq, kind, .. } = self;
        match self.same {
            None => format!("record {seq} ({kind}) is what came of it; its values are erased"),
            Some(true) => format!("record {seq} ({kind}): the same"),
            Some(false) => {
                let patch = self.patch.as_ref().map(|patch| short(&json_line(patch), 2 * SHOWN));
                let refused = self.rejection.as_ref().map(|refused| format!("{}/{}", refused.stage, refused.code));
                let what = patch.or(refused).or_else(|| self.failure.map(|code| code.to_string()));
                let what = what.or_else(|| self.deferral.map(|reason| reason.to_string()));
                format!("record {seq} ({kind}) differs: {}", what.unwrap_or_default())
            }
        }
    }
}
