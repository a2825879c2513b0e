//! Follows a running board until it ends or the user stops it, and reports the result.

use std::collections::BTreeMap;
use std::path::Path;

use jsonptr::PointerBuf;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Done;
use patchboard_kernel::board::{PendingQuestion, UnfinishedWork};
use patchboard_kernel::driver::Head;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::files::FILES;
use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_kernel::ledger::Account;
use patchboard_kernel::record::{Cause, End, Ended, PauseCause, Principal};
use patchboard_kernel::state::State;
use patchboard_kernel::tree::Node;
use patchboard_protocols::workflow::engine::{self, FailedNode};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::runtime::{BoardHandle, Options, Runtime};
use patchboard_runtime::subscription::Subscription;
use patchboard_server::interrupts::{Interrupt, Interrupts};
use serde_json::{Map, Value, json};

use crate::describe::{self, NestedShortage, UnshownInfo, grouped};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, clean, json_line, json_pretty, one_line, short};
use crate::progress::{Progress, Totals};
use crate::queries::cost::unanswered;
use crate::queries::questions::QuestionInfo;
use crate::reader::format_time;
use crate::user;
use crate::worker_agents::{ResumeFlags, WorkerAgents};
use patchboard_kernel::text::counted;

/// Checks, before any model call, that boards can be stored in a data directory.
pub(crate) fn check_storage(data_dir: &Path) -> Result<(), Failure> {
    patchboard_storage::open(data_dir).map(drop).map_err(crate::reader::storage)
}

/// Starts a runtime on the journal of a data directory.
pub(crate) async fn start(data_dir: &Path, agents: &WorkerAgents) -> Result<Runtime, Failure> {
    let journal = patchboard_storage::open(data_dir).map_err(crate::reader::storage)?;
    let mut options = Options::new(agents.agent.clone());
    // Runs of one recording must produce identical journals, including the positions of snapshot records.
    options.snapshots.waits = agents.is_played();
    options.observer = agents.nested_shortages.clone();
    Runtime::start(journal, options).await.map_err(Failure::from)
}

/// Starts a runtime and acquires a stored board in it.
pub(crate) async fn acquire_board(
    data_dir: &Path,
    agents: &WorkerAgents,
    board: &BoardId,
    how: AcquireMode,
) -> Result<(Runtime, BoardHandle), Failure> {
    let runtime = start(data_dir, agents).await?;
    let taken = match how {
        AcquireMode::Resume => runtime.resume(board).await,
        AcquireMode::ForceResume => runtime.resume_forced(board).await,
        AcquireMode::Paused => runtime.resume_paused(board, recorded_user(agents)).await,
    };
    match taken {
        Ok(board) => {
            let board = recorded_user(agents).map_or(board.clone(), |user| board.with_principal(user));
            attach_directory(runtime, board, agents).await
        }
        Err(error) => {
            runtime.shutdown().await;
            Err(error.into())
        }
    }
}

/// Returns the user to record; `None` for a played recording: its records must not depend on the user.
pub(crate) fn recorded_user(agents: &WorkerAgents) -> Option<Principal> {
    (!agents.is_played()).then(user::principal)
}

/// Attaches a board's directory, if it has one.
pub(crate) async fn attach_directory(
    runtime: Runtime,
    board: BoardHandle,
    agents: &WorkerAgents,
) -> Result<(Runtime, BoardHandle), Failure> {
    match agents.attach(&board).await {
        Ok(()) => Ok((runtime, board)),
        Err(failure) => {
            let failure = failure.detail("board", board.id().as_str().into());
            runtime.shutdown().await;
            Err(failure)
        }
    }
}

/// Maximum characters of a current value in a question.
const CURRENT_VALUE_CHARS_MAX: usize = 400;

/// Way of acquiring a stored board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    /// Resume.
    Resume,
    /// Resume, even if another process seems to run it.
    ForceResume,
    /// Acquire in a paused state, without calling agents.
    Paused,
}

/// Result of a run.
enum RunEnd {
    /// Board ended.
    Ended(Ended),
    /// Board paused by the user.
    Paused,
    /// Board waits only for persons.
    Waiting,
    /// Provider is unavailable for longer than the board's patience, or needs an operator.
    Unavailable,
}

/// Prints the board's progress until it ends or the user interrupts, then its result on stdout.
///
/// Records up to `print_after` are not printed as progress.
pub(crate) async fn run_to_completion(
    runtime: Runtime,
    board: BoardHandle,
    print_after: Option<Seq>,
    agents: &WorkerAgents,
    output: Output,
) -> Outcome {
    let mut progress = Progress::new(output, print_after);
    let mut records = board.subscribe(None);
    let stop = follow(&board, &mut records, &mut progress, agents).await;
    progress.hidden_inside(&nested_shortages(&board, &agents.nested_shortages.subscribe().borrow()));
    if stop.is_ok() {
        catch_up(&board, &mut records, &mut progress).await;
    }
    progress.finish();
    let status = board.status();
    let again = agents.resume_flags.resume_command(&format!("resume {}", board.id()));
    if matches!(stop, Ok(RunEnd::Ended(_))) {
        cancel_nested_boards(&runtime, board.id()).await;
    }
    runtime.shutdown().await;
    agents.finish(output)?;
    let totals = &progress.totals;
    let last_failure = totals.last_failure.as_ref().map(|(code, message)| (*code, message.as_str()));
    let last_failure = last_failure.or_else(|| Some((FailureCode::Refused, totals.last_provider_error.as_deref()?)));
    if let Some(advice) = last_failure.and_then(|(code, message)| agents.advice(code, message)) {
        output.error_context(&format!("help: {advice}"));
    }
    let run_result = |ended| RunResult {
        board: &status.board,
        mode: &status.mode,
        ended,
        version: status.version,
        state: &status.state,
        done: status.blueprint.done.as_ref(),
        results: status.blueprint.results(),
        has_files: status.blueprint.workspace.is_some(),
        head: status.head,
        totals: &progress.totals,
        account: status.account,
        unfinished: status.unfinished.as_deref().cloned().unwrap_or_default(),
        failed_nodes: match ended {
            Some(_) => engine::failed_nodes(&status.blueprint, status.state.root()),
            None => Vec::new(),
        },
        pause_cause: status.pause_cause,
        pending: &status.pending,
        resume_flags: &agents.resume_flags,
    };
    match stop {
        Ok(RunEnd::Ended(ended)) => run_result(Some(ended)).print(output),
        Ok(RunEnd::Waiting) => {
            output.note(&format!("answered elsewhere? go on with: {again}"));
            run_result(None).print(output)
        }
        Ok(RunEnd::Unavailable) => {
            let advice = "the model's provider takes no requests: mend what the last `deferred` line names, then go on";
            output.note(&format!("{advice} with: {again}"));
            run_result(None).print(output)
        }
        Ok(RunEnd::Paused) => {
            output.note(&format!("paused; go on with: {again}"));
            run_result(None).print(output)
        }
        Err(failure) => {
            let failure = failure.detail("board", status.board.as_str().into());
            // Another process owns the board: resuming here would fence it.
            let is_fenced = matches!(&failure, Failure::Error(error) if error.code == "journal_fenced");
            Err(if is_fenced { failure } else { failure.help(format!("go on with: {again}")) })
        }
    }
}

/// Cancels the nested boards that run in this process, because their outer board has ended.
async fn cancel_nested_boards(runtime: &Runtime, outer: &BoardId) {
    for inside in runtime.boards().iter().filter(|board| *board != outer) {
        let Some(inside) = runtime.board(inside).filter(|inside| inside.status().ended.is_none()) else { continue };
        if let Err(error) = inside.cancel().await {
            tracing::debug!(board = %inside.id(), %error, "an inner board could not be cancelled");
        }
    }
}

/// Result of a board, with the data to print it.
pub(crate) struct RunResult<'a> {
    pub(crate) board: &'a BoardId,
    /// System that ran the board.
    pub(crate) mode: &'a Mode,
    /// End of the board; `None` if it is paused or waits for persons.
    pub(crate) ended: Option<Ended>,
    pub(crate) version: Version,
    /// Document of the board.
    pub(crate) state: &'a State,
    /// Condition under which the board is done.
    pub(crate) done: Option<&'a Done>,
    /// Places of the document that hold the result.
    pub(crate) results: Vec<PointerBuf>,
    /// Set if the document contains the kernel's data on files.
    pub(crate) has_files: bool,
    /// Last record of the board.
    pub(crate) head: Head,
    /// Totals from the board's records.
    pub(crate) totals: &'a Totals,
    /// Cost of the calls, as `cost` reports it.
    pub(crate) account: Account,
    /// Work left undone, if the board has ended.
    pub(crate) unfinished: UnfinishedWork,
    /// Failed nodes of its workflow, if the board has ended.
    pub(crate) failed_nodes: Vec<FailedNode>,
    /// Reason for a pause by the kernel, if any.
    pub(crate) pause_cause: Option<PauseCause>,
    /// Pending questions to persons.
    pub(crate) pending: &'a BTreeMap<Seq, PendingQuestion>,
    /// Flags for commands that resume the board.
    pub(crate) resume_flags: &'a ResumeFlags,
}

fn and_more(all: usize) -> String {
    if all > 1 { format!(" and {} more", all - 1) } else { String::new() }
}

/// Returns the exit code of an end (SPEC section 12).
const fn exit_of(end: End) -> Exit {
    match end {
        End::Done => Exit::Done,
        End::Quiescent => Exit::Quiescent,
        End::Stopped => Exit::Stopped,
        End::Failed | End::Cancelled => Exit::Failed,
    }
}

async fn follow(
    board: &BoardHandle,
    records: &mut Subscription,
    progress: &mut Progress,
    agents: &WorkerAgents,
) -> Result<RunEnd, Failure> {
    let mut outages = agents.outages();
    let mut hidden = agents.nested_shortages.subscribe();
    let ended = board.wait_for_end();
    tokio::pin!(ended);
    let mut interrupts = Interrupts::new()?;
    let mut pausing = false;
    loop {
        let status = board.status();
        progress.spent = status.account.spent;
        // An expired question is about to be closed, and its consequences are still to come.
        let now = SystemClock.now();
        let is_over = status.pending.values().any(|question| question.is_over(now));
        if !pausing && status.waits_for_persons && !is_over {
            return Ok(RunEnd::Waiting);
        }
        // A paused board waits only for calls in progress, not for retries, providers or persons.
        let under_way = status.calling;
        if status.pause_cause.is_some() && under_way == 0 {
            return Ok(RunEnd::Unavailable);
        }
        if pausing && status.paused && under_way == 0 && status.ended.is_none() {
            return Ok(RunEnd::Paused);
        }
        tokio::select! {
            biased;
            interrupt = interrupts.next() => {
                if pausing {
                    return Ok(RunEnd::Paused);
                }
                board.pause(None).await?;
                // Without a terminal there can be no second interrupt.
                if interrupt == Interrupt::HangUp {
                    return Ok(RunEnd::Paused);
                }
                pausing = true;
                if under_way > 0 {
                    progress.print(&format!(
                        "pausing: {under_way} under way are waited for; interrupt again to give them up"
                    ));
                }
            }
            news = outages.next() => progress.outage(&news),
            Ok(()) = hidden.changed() => progress.hidden_inside(&nested_shortages(board, &hidden.borrow_and_update())),
            record = records.next() => match record {
                Some(Ok(record)) => {
                    progress.record(&record);
                }
                Some(Err(error)) => return Err(crate::reader::storage(error)),
                // The runtime closed the board; `ended` has the reason.
                None => return (&mut ended).await.map(RunEnd::Ended).map_err(Failure::from),
            },
            end = &mut ended => return end.map(RunEnd::Ended).map_err(Failure::from),
        }
    }
}

/// Returns the findings of nested boards, without those of the board itself.
fn nested_shortages(board: &BoardHandle, found: &[NestedShortage]) -> Vec<NestedShortage> {
    found.iter().filter(|hidden| hidden.board != *board.id()).cloned().collect()
}

/// Reads the durable records that have not been seen yet.
async fn catch_up(board: &BoardHandle, records: &mut Subscription, progress: &mut Progress) {
    let head = board.status().head.seq;
    while progress.last.is_none_or(|last| last < head) {
        let Some(Ok(record)) = records.next().await else { return };
        progress.record(&record);
    }
}

impl RunResult<'_> {
    /// Prints the result, and returns the exit code.
    pub(crate) fn print(&self, output: Output) -> Outcome {
        if output.is_json() {
            output.json(&self.json())?;
        } else {
            output.text(&self.text())?;
        }
        for sentence in self.totals.shortages.later() {
            output.note(&sentence);
        }
        if let Some(undone) = self.describe_unfinished() {
            output.note(&undone);
        }
        Ok(self.ended.map_or(Exit::Waiting, |ended| exit_of(ended.end)))
    }

    /// Describes work left undone, and the commands that continue it.
    fn describe_unfinished(&self) -> Option<String> {
        let cause = self.ended.map(|ended| ended.cause)?;
        match cause {
            Cause::Done => return self.abandoned_work(),
            Cause::Cancelled => return None,
            _ => {}
        }
        let mut notes: Vec<String> = self.failed_nodes().into_iter().collect();
        notes.extend(self.unfinished.unmet.first().map(|rule| {
            let more = and_more(self.unfinished.unmet.len());
            format!("rule {rule}{more} has woken nobody: its `when` does not hold")
        }));
        match cause {
            Cause::NothingToDo => notes.extend(self.not_done()),
            _ => notes.extend(self.retries(cause)),
        }
        (!notes.is_empty()).then(|| notes.join("\n"))
    }

    /// Reports that `done` is false when no work is left.
    fn not_done(&self) -> Option<String> {
        let done = short(&self.done?.when, 300);
        Some(format!("nothing is left to do, and `done` does not hold: {done}"))
    }

    /// Describes the work that a done board did not wait for.
    fn abandoned_work(&self) -> Option<String> {
        let UnfinishedWork { cut_off, unfired, .. } = &self.unfinished;
        let invocations = (*cut_off > 0).then(|| format!("though {} came to nothing", counted(*cut_off, "invocation")));
        let joins: Vec<String> = unfired.iter().map(ToString::to_string).collect();
        let joins = (!joins.is_empty()).then(|| format!("before {} had fired", joins.join(" and ")));
        let missing = (!self.results.is_empty() && self.results().next().is_none()).then(|| {
            let places: Vec<&str> = self.results.iter().map(|place| place.as_str()).collect();
            format!("though nothing is at {}, the result", places.join(" and "))
        });
        let undecided = self.totals.undecided.first().map(|(rule, place)| {
            let more = and_more(self.totals.undecided.len());
            let place = place.as_ref().map(|place| format!(" at {}", short(place, 200))).unwrap_or_default();
            format!("though rule {rule} could not be decided{place}{more}")
        });
        let missed: Vec<String> = [invocations, undecided, joins, missing].into_iter().flatten().collect();
        (!missed.is_empty()).then(|| format!("`done` held {}", missed.join(", and ")))
    }

    /// Names a failed workflow node, and the command to resume from it.
    fn failed_nodes(&self) -> Option<String> {
        let FailedNode { node, error } = self.failed_nodes.first()?;
        let more = and_more(self.failed_nodes.len());
        let again =
            self.resume_flags.resume_command(&format!("signal {} resume '{}'", self.board, json!({"node": node})));
        let error = short(error, 300);
        Some(format!(
            "node {node} of the workflow FAILED{more}: {error}\nto go on from it, or from a node that it depends on: {again}"
        ))
    }

    /// Returns the commands that retry abandoned work.
    fn retries(&self, cause: Cause) -> Vec<String> {
        let (what, advice) = match cause {
            Cause::Commits => ("to go on with more commits", ""),
            Cause::Edits => ("to go on with more edits", ""),
            Cause::Wall => ("to go on with more running time", ""),
            Cause::Exhausted | Cause::Budget => (
                "to queue again what no budget was left for",
                " (`log` shows which; --tokens and --money raise limits of the board, --worker W with --worker-tokens and \
                 --worker-money those of a worker)",
            ),
            _ => ("to queue again what was given up", ""),
        };
        let command = |options: &str| self.resume_flags.resume_command(&format!("retry {}{options}", self.board));
        let retry = format!("{what}: {}{advice}", command(describe::retry_option(cause)));
        let UnfinishedWork { given_up, beyond_limit, undecided, .. } = &self.unfinished;
        let mut notes = Vec::new();
        if let (Cause::GaveUp, Some(first)) = (cause, undecided.first()) {
            let (place, rule, more) = (describe::place(Some(&first.trigger)), &first.rule, and_more(undecided.len()));
            notes.push(format!(
                "rule {rule} could not be decided{place}{more}, so `after` waits for it: mend in the blueprint what its `skipped` \
                 line names (`has(value.member)` asks whether there is one) and run it anew"
            ));
        }
        if cause == Cause::Exhausted && !beyond_limit.is_empty() {
            let commands: Vec<String> =
                beyond_limit.iter().map(|worker| command(&format!(" --worker {worker}"))).collect();
            notes.push(format!("to take up what is beyond the invocations of a worker: {}", commands.join(", then: ")));
        }
        // A retry without options queues failed invocations, and is rejected if there are none.
        if notes.is_empty() || *given_up > 0 {
            notes.push(retry);
        }
        notes
    }

    fn question(&self, seq: Seq, question: &PendingQuestion) -> String {
        let board = self.board;
        let command = |words: String| self.resume_flags.resume_command(&words);
        let commands = match question.clarify {
            Some(_) => command(format!("answer {board} {seq} --text TEXT")),
            None => {
                let deny = command(format!("deny {board} {seq} --reason TEXT"));
                format!("{}, or: {deny}", command(format!("approve {board} {seq}")))
            }
        };
        format!("{}\n  {commands}\n", question_text(seq, question, self.state))
    }

    fn json(&self) -> Value {
        json!({
            "board": self.board,
            "mode": self.mode,
            "end": self.ended.map(|ended| ended.end),
            "cause": self.cause(),
            "paused": self.ended.is_none() && self.pending.is_empty(),
            "questions": self.questions_json(),
            "version": self.version,
            "state_hash": self.state.digest(),
            "tokens": {
                "total": self.account.spent,
                "prompt": self.account.prompt,
                "completion": self.account.completion,
                "cached": self.account.cached,
                "unanswered": unanswered(&self.account),
                "estimated": self.totals.is_estimated,
            },
            "calls": self.account.calls,
            "rejected": self.totals.rejected,
            "failed": self.totals.failed,
            "unshown": self.unshown(),
            "undecided": self.totals.undecided.iter().map(|(rule, at)| json!({"rule": rule, "at": at})).collect::<Vec<_>>(),
            "head": {"seq": self.head.seq, "hash": self.head.hash},
            "result": self.results().map(|(place, node)| (place.to_string(), node.to_value())).collect::<Map<_, _>>(),
            "state": self.state.root(),
        })
    }

    fn unshown(&self) -> Vec<UnshownInfo> {
        let mut unshown = UnshownInfo::of(&self.totals.shortages.first);
        unshown.extend(UnshownInfo::inside(&self.totals.nested_shortages));
        unshown
    }

    /// Returns the cause of the end, or of a pause by the kernel.
    fn cause(&self) -> Option<String> {
        let ended = self.ended.map(|ended| ended.cause.to_string());
        ended.or_else(|| self.pause_cause.map(|cause| cause.to_string()))
    }

    fn questions_json(&self) -> Vec<Value> {
        self.pending.iter().map(|(seq, question)| json!(QuestionInfo::new(*seq, question))).collect()
    }

    fn text(&self) -> String {
        let end = match (self.ended, self.pending.len()) {
            (Some(ended), _) => format!("{} ({})", ended.end, ended.cause),
            (None, _) if self.pause_cause.is_some() => format!("paused ({})", self.cause().unwrap_or_default()),
            (None, 0) => "paused".to_owned(),
            (None, questions) => format!("waiting for {}", counted(questions, "answer")),
        };
        let sign = if self.totals.is_estimated { "~" } else { "" };
        let Account { spent, prompt, completion, .. } = self.account;
        let (total, prompt, completion) = (grouped(spent), grouped(prompt), grouped(completion));
        let unanswered = match unanswered(&self.account) {
            0 => String::new(),
            tokens => format!(", {} without an answer", grouped(tokens)),
        };
        let failed = self.totals.last_failure.as_ref().map(|(code, message)| {
            let calls = counted(usize::try_from(self.totals.failed).unwrap_or(usize::MAX), "call");
            format!("failed   {calls}; last: {code}: {}\n", short(message, 200))
        });
        let failed = failed.unwrap_or_default();
        let refused = self.totals.last_provider_error.as_ref().filter(|_| self.pause_cause.is_some());
        let refused = refused.map(|message| format!("provider {}\n", short(message, 200))).unwrap_or_default();
        let mode = if self.mode.is_default() { String::new() } else { format!("mode     {}\n", self.mode) };
        let questions = self.pending.iter().map(|(seq, question)| self.question(*seq, question)).collect::<String>();
        let result = self.result();
        let (files, document) = self.document();
        let document = match result.is_empty() {
            true => document,
            false => format!("document {}", self.resume_flags.inspect_command(&format!("state {}", self.board))),
        };
        format!(
            "{result}board    {}\n{mode}end      {end}\n{questions}version  {}\ntokens   {sign}{total} ({prompt} in prompts, {completion} in \
             replies{unanswered})\n{failed}{refused}{files}{document}\n",
            self.board, self.version
        )
    }

    /// Returns the existing result places with their values.
    fn results(&self) -> impl Iterator<Item = (&PointerBuf, &Node)> {
        self.results.iter().filter_map(|place| Some((place, self.state.root().get(place)?)))
    }

    /// Formats the result, with each place's name if there are several; empty if it is missing, or the board is not
    /// done.
    fn result(&self) -> String {
        if self.ended.is_none_or(|ended| ended.end != End::Done) {
            return String::new();
        }
        let is_one = self.results.len() == 1;
        let values = self.results().map(|(place, node)| {
            let value = node.as_str().map_or_else(|| json_pretty(node), |text| clean(text).into_owned());
            if is_one { format!("{value}\n\n") } else { format!("{}\n{value}\n\n", one_line(place.as_str())) }
        });
        values.collect()
    }

    /// Formats the document for people; of the files, possibly thousands, only their number.
    fn document(&self) -> (String, String) {
        let root = self.state.root();
        let Some(files) = root.child(FILES).filter(|_| self.has_files) else {
            return (String::new(), json_pretty(root));
        };
        let files_line =
            format!("files    {}; see `patchboard edit-stats {}`\n", grouped(files.part_count() as u64), self.board);
        let mut document = root.to_value();
        if let Value::Object(members) = &mut document {
            members.remove(FILES);
        }
        (files_line, json_pretty(&document))
    }
}

/// Formats a question to a person as text.
pub(crate) fn question_text(seq: Seq, question: &PendingQuestion, state: &State) -> String {
    let intent = question.intent.as_ref().map(|intent| format!("\n  because: {}", one_line(intent)));
    if let Some(clarify) = &question.clarify {
        let choices = clarify.choices.iter().map(|choice| format!("\n  - {}", one_line(choice))).collect::<String>();
        return format!(
            "{} asks {}{}{}\n{}{choices}",
            one_line(question.by.worker.as_str()),
            one_line(question.approver.as_str()),
            until(question.expires),
            intent.unwrap_or_default(),
            indented(&one_line(&clarify.question), seq)
        );
    }
    let shown = question.expand.iter().map(|place| one_line(&place.to_string())).collect::<Vec<_>>().join(", ");
    let shown = if shown.is_empty() { shown } else { format!("\n  and requests: {shown}") };
    let now: Vec<String> =
        affected_values(&question.patch, state).map(|(place, value)| format!("  now {place}: {value}")).collect();
    let now = if now.is_empty() { String::new() } else { format!("\n{}", now.join("\n")) };
    format!(
        "{} asks {} to agree{}{}{shown}\n{}{now}",
        one_line(question.by.worker.as_str()),
        one_line(question.approver.as_str()),
        until(question.expires),
        intent.unwrap_or_default(),
        indented(&json_pretty(&question.patch), seq)
    )
}

/// Formats the deadline of a question.
pub(crate) fn until(expires: Option<Timestamp>) -> String {
    expires.map(|expires| format!(", until {}", format_time(expires))).unwrap_or_default()
}

/// Returns the places that a patch reads or overwrites, with their current values.
fn affected_values<'a>(patch: &'a Value, state: &'a State) -> impl Iterator<Item = (String, String)> + 'a {
    let ops = patch.as_array().into_iter().flatten();
    let places = ops.flat_map(|op| [&op["path"], &op["from"]]).filter_map(Value::as_str);
    places.filter_map(|place| {
        let there = state.root().get(&PointerBuf::parse(place).ok()?)?.to_value();
        Some((one_line(place), short(&json_line(&there), CURRENT_VALUE_CHARS_MAX)))
    })
}

/// Indents lines under the number of their record.
fn indented(text: &str, seq: Seq) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    format!("  record {seq}:\n{}", lines.join("\n"))
}
