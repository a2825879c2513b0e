//! Operations of a worker over MCP. Each returns a document, or a problem with its code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jsonptr::Pointer;
use patchboard_agents::lease::{Lease, LeaseHolder};
use patchboard_kernel::blueprint::{AgentKind, WorkspaceSpec};
use patchboard_kernel::board::{Board, Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::expand_request;
use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::{BoardId, Version, WorkerName};
use patchboard_kernel::view::Prompt;
use patchboard_llm::schema::{self, SchemaLevel};
use patchboard_workspace::session::{CommandResult, SessionRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::own_records::read_own_records;
use crate::codes;
use crate::failure::Failure;
use crate::queries::leases::LeasedCall;
use crate::queries::view as views;
use crate::serve::caller::Caller;
use crate::serve::files;
use crate::serve::long_poll::wait_time;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::rate_key::RateKey;
use crate::serve::routes::leases;
use crate::serve::routes::proposal_outcome::ProposalOutcome;
use crate::serve::service::Daemon;
use crate::text::short;

/// Default duration of a lease, in seconds; allows for the thinking time of models.
const SECONDS: u64 = 300;

/// Maximum wait for the follow-up call after `expand`. The kernel schedules it at once.
const FOLLOW_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of values in the state resource; later patterns are cut first.
const PLACES_MAX: usize = 10_000;

/// Maximum characters of a name that an error quotes.
pub(super) const NAME_MAX: usize = 80;

const LOG_MAX: usize = 100;

/// A worker of a board, as used by a caller.
#[derive(Clone)]
pub(crate) struct WorkerServer {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) board: BoardId,
    pub(crate) worker: WorkerName,
    /// Caller. Requests with the same token share one lease.
    pub(crate) caller: Caller,
    /// True if the worker's calls are leased.
    is_remote: bool,
    /// Workspace settings, if the worker edits files.
    pub(crate) files: Option<WorkspaceSpec>,
    /// True if the worker may propose patches, or ask a person.
    pub(crate) proposes: bool,
    /// Maximum characters of an editor result.
    pub(crate) room: usize,
}

/// Requested duration of a lease, counted from now.
#[derive(Clone, Copy)]
enum LeaseDuration {
    Exactly(Duration),
    AtLeast(Duration),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadView {
    #[serde(default)]
    wait: u64,
    seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposePatch {
    patch: Option<Value>,
    pass: Option<String>,
    reply: Option<Value>,
    intent: Option<String>,
    lease: Option<String>,
    base: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expand {
    paths: Vec<expand_request::ExpandRequest>,
    lease: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clarify {
    question: String,
    choices: Option<Vec<String>>,
    lease: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finish {
    intent: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRejection {
    code: Option<String>,
    seq: Option<u64>,
}

impl WorkerServer {
    pub(crate) async fn find(
        daemon: Arc<Daemon>,
        board: BoardId,
        worker: WorkerName,
        caller: Caller,
        room: usize,
    ) -> ApiResult<Self> {
        let blueprint = daemon.blueprint(&board).await?;
        let own = blueprint.workers.get(&worker);
        let is_remote = own.is_some_and(|own| own.agent == AgentKind::Remote);
        // Only remote workers edit files over MCP; agents in the daemon have their own tools.
        let is_editor = is_remote && own.is_some_and(|own| own.files.is_some());
        let files = blueprint.workspace.clone().filter(|_| is_editor);
        let proposes = own.is_none_or(|own| !own.writes.is_empty() || own.clarify.is_some());
        Ok(Self { daemon, board, worker, caller, is_remote, files, proposes, room })
    }

    pub(crate) const fn is_at_files_only(&self) -> bool {
        self.files.is_some() && !self.proposes
    }

    /// Runs a file command under the caller's lease, or under a new lease of the waiting call.
    pub(crate) async fn files(&self, arguments: Value) -> ApiResult<CommandResult> {
        let Some(lease) =
            self.current_lease(LeaseDuration::AtLeast(Duration::from_secs(SECONDS)), Duration::ZERO).await?
        else {
            let problem = Problem::from_code(Code::NoLease, "nobody asks you to do anything now");
            return Err(problem.help("call read_view with `wait`: files are open to who has been asked"));
        };
        let attempt = EditAttempt { invocation: lease.call.invocation, attempt: lease.call.attempt };
        let (room, principal) = (self.room, Some(self.caller.principal()));
        let asked = SessionRequest { room, principal, ..SessionRequest::from(arguments) };
        let worker = self.worker.clone();
        let command = files::LeasedFileCommand { worker, of: attempt, name: None, has_earlier_reads: None, asked };
        files::call(&self.daemon, &self.board, command).await.map(|(result, _)| result)
    }

    pub(crate) async fn finish(&self, arguments: Finish) -> ApiResult<Value> {
        let Some(lease) = self.daemon.leases.find_by_key(&self.board, &self.worker, &self.holder()) else {
            return Err(Problem::from_code(Code::NoLease, "nobody waits for you to finish"));
        };
        let reply = match arguments.intent {
            Some(intent) => json!({"patch": [], "intent": intent}),
            None => json!([]),
        };
        let lease = &lease.call.idempotency_key;
        let outcome = self.submit(lease.as_str(), reply).await?;
        ProposalOutcome::read(outcome).map(|(_, outcome)| json!(outcome))
    }

    /// Leases the oldest waiting call and returns its view. Without one, returns a preview of the worker's view.
    pub(crate) async fn read_view(&self, arguments: ReadView) -> ApiResult<Value> {
        let duration = leases::seconds(Some(arguments.seconds.unwrap_or(SECONDS)))?;
        let patience = wait_time(arguments.wait, Code::BadBody)?;
        if self.is_remote
            && let Some(view) = self.lease(duration, patience).await?
        {
            return Ok(view);
        }
        self.preview(Vec::new()).await
    }

    /// Replies to a leased call, or proposes an unsolicited patch.
    pub(crate) async fn propose_patch(&self, proposed: ProposePatch) -> ApiResult<Value> {
        let reply = match (proposed.patch, proposed.pass, proposed.reply, proposed.intent) {
            (Some(patch), None, None, Some(intent)) => json!({"patch": patch, "intent": intent}),
            (Some(patch), None, None, None) => patch,
            (None, Some(pass), None, None) => json!({"pass": pass}),
            (None, None, Some(reply), None) => reply,
            _ => {
                let detail = "give one of patch, pass and reply; only a patch has an intent";
                return Err(Problem::from_code(Code::BadBody, detail));
            }
        };
        let outcome = match (&proposed.lease, proposed.base) {
            (Some(lease), None) => self.submit(lease, reply).await?,
            (None, Some(base)) => {
                let from = ProposalSource::Direct { key: None, base: Some(Version(base)) };
                let worker = self.worker.clone();
                let proposal = Proposal { from, worker, reply: ReplyBody::Json(reply), usage: None, raw: None };
                self.daemon.open_for(&self.board, &self.caller).await?.propose(proposal).await?
            }
            _ => {
                let detail = "a proposal names what it rests on: lease or base, as read_view gave it, and not both";
                return Err(Problem::from_code(Code::BadBody, detail));
            }
        };
        ProposalOutcome::read(outcome).map(|(_, outcome)| json!(outcome)).map_err(with_retry_help)
    }

    /// Requests an expanded view, and returns the view that follows.
    pub(crate) async fn expand(&self, arguments: Expand) -> ApiResult<Value> {
        if arguments.paths.is_empty() {
            return Err(Problem::from_code(Code::BadBody, "paths names at least one place"));
        }
        let Some(lease) = &arguments.lease else {
            return self.preview(arguments.paths.iter().map(|asked| json!(asked)).collect()).await;
        };
        let reply = json!({"expand": arguments.paths});
        let outcome = self.submit(lease, reply).await?;
        let is_expanded = matches!(outcome, Outcome::Expanded { .. });
        let (_, proposed) = ProposalOutcome::read(outcome).map_err(with_retry_help)?;
        if is_expanded && let Some(view) = self.lease(Duration::from_secs(SECONDS), FOLLOW_UP_TIMEOUT).await? {
            return Ok(view);
        }
        // The request is a replay, or the follow-up call is still queued.
        let detail = format!("what was asked for is not there yet ({:?})", proposed.outcome);
        Err(Problem::from_code(Code::NotReady, detail).help("call read_view: it leases the call that shows it"))
    }

    /// Asks a person a question. The answer arrives with a later call.
    pub(crate) async fn clarify(&self, arguments: Clarify) -> ApiResult<Value> {
        let question = match arguments.choices {
            Some(choices) => json!({"question": arguments.question, "choices": choices}),
            None => json!({"question": arguments.question}),
        };
        let reply = json!({ "clarify": question });
        let outcome = self.submit(&arguments.lease, reply).await?;
        ProposalOutcome::read(outcome).map(|(_, outcome)| json!(outcome)).map_err(with_retry_help)
    }

    /// Returns the meanings of a code, and the worker's last rejection with it. Without a code, explains the code of
    /// the last rejection.
    pub(crate) async fn explain_rejection(&self, arguments: ExplainRejection) -> ApiResult<Value> {
        let (code, seq) = (arguments.code.clone(), arguments.seq);
        let is_wanted = move |entry: &Map<String, Value>| {
            matches!(entry.get("kind").and_then(Value::as_str), Some("rejected" | "late"))
                && seq.is_none_or(|seq| entry.get("seq") == Some(&json!(seq)))
                && code.as_ref().is_none_or(|code| entry.get("code") == Some(&json!(code)))
        };
        let last = self.own_records(1, is_wanted).await?.pop();
        let code = arguments.code.or_else(|| last.as_ref()?.get("code")?.as_str().map(str::to_owned));
        let Some(code) = code else {
            let nothing = "nothing of this worker was refused lately";
            return Err(Problem::from_code(Code::NoRejection, nothing).help("name a code to hear what it means"));
        };
        let meanings: Vec<Value> = codes::entries()
            .filter(|entry| entry.code == code)
            .map(|entry| json!({"section": entry.section, "meaning": entry.meaning}))
            .collect();
        if meanings.is_empty() {
            return Err(Problem::from_code(Code::NoMeaning, format!("there is no code {}", short(&code, NAME_MAX))));
        }
        Ok(json!({"code": code, "meanings": meanings, "rejection": last}))
    }

    /// Returns the part of the document that the worker may read.
    pub(crate) async fn state(&self) -> ApiResult<Value> {
        let worker = self.worker.clone();
        let state = move |board: &Board| {
            let no_worker =
                || Failure::invalid_input("no_such_worker", format!("the blueprint has no worker {worker}"));
            let plan = board.plan().workers.get(&worker).ok_or_else(no_worker)?;
            let readable = plan.contract.readable(board.state().root());
            let document = board.state().root().to_value();
            let mut places = BTreeSet::new();
            for pattern in readable.patterns() {
                let left = (PLACES_MAX + 1).saturating_sub(places.len());
                places.extend(pattern.instances_of_value(&document, left));
            }
            let is_whole = places.len() <= PLACES_MAX;
            // A value includes its descendants.
            let is_below = |place: &Pointer| {
                std::iter::successors(place.parent(), |above| above.parent()).any(|above| places.contains(above))
            };
            let shown = places.iter().filter(|place| !is_below(place)).take(PLACES_MAX);
            let values: BTreeMap<String, &Value> =
                shown.filter_map(|place| Some((place.to_string(), document.pointer(place.as_str())?))).collect();
            let version = board.version();
            Ok(json!({"board": board.id(), "worker": worker, "version": version, "values": values, "whole": is_whole}))
        };
        self.daemon.query_board(&self.board, None, state).await
    }

    /// Returns the worker's own records, the newest first.
    pub(crate) async fn log(&self) -> ApiResult<Value> {
        let entries = self.own_records(LOG_MAX, |_| true).await?;
        Ok(json!({"board": self.board, "worker": self.worker, "entries": entries}))
    }

    async fn submit(&self, lease: &str, reply: Value) -> ApiResult<Outcome> {
        leases::submit_reply(&self.daemon, &self.caller, &self.board, &self.worker, lease, reply, None).await
    }

    async fn lease(&self, duration: Duration, timeout: Duration) -> ApiResult<Option<Value>> {
        let Some(lease) = self.current_lease(LeaseDuration::Exactly(duration), timeout).await? else { return Ok(None) };
        let mut call = json!(LeasedCall::new(&lease, self.daemon.clock.now()));
        if let Value::Object(members) = &mut call {
            // The view's text has them.
            members.remove("shown");
            members.insert("asked".to_owned(), true.into());
        }
        Ok(Some(call))
    }

    /// Returns the key of the caller's lease.
    fn holder(&self) -> String {
        match self.caller.rate_key {
            RateKey::Token(hash) => format!("mcp/{hash}"),
            // All callers without a token share one key.
            RateKey::Address(_) => "mcp/".to_owned(),
        }
    }

    /// Returns the lease that the caller holds, or leases the oldest waiting call; its duration starts now.
    async fn current_lease(&self, duration: LeaseDuration, timeout: Duration) -> ApiResult<Option<Lease>> {
        let (LeaseDuration::Exactly(requested) | LeaseDuration::AtLeast(requested)) = duration;
        let holder = LeaseHolder { key: Some(self.holder()), api_token: self.caller.token() };
        let leased = leases::acquire(&self.daemon, &self.board, &self.worker, requested, timeout, holder).await?;
        let Some(lease) = leased else { return Ok(None) };
        // Renews a lease that the caller already held.
        let (invocation, attempt) = (lease.call.invocation, lease.call.attempt);
        let extension = match duration {
            LeaseDuration::Exactly(duration) => duration,
            LeaseDuration::AtLeast(duration) => duration.max(lease.expires_in),
        };
        let token = self.caller.token();
        let renewed = self.daemon.leases.renew(&self.board, &self.worker, invocation, attempt, extension, token);
        Ok(Some(renewed.unwrap_or(lease)))
    }

    async fn preview(&self, expand: Vec<Value>) -> ApiResult<Value> {
        let worker = self.worker.clone();
        let preview = move |board: &Board| {
            let plan = views::worker_with_bindings(board, worker.as_str(), &[])?;
            let view = views::preview(board, &plan, &expand, None)?;
            let shown = board.previewed_values(&plan, &view);
            let schema = shown.and_then(|shown| schema::reply_schema(&shown, SchemaLevel::Derived));
            let prompt = Prompt::new(&view);
            Ok(json!({
                "asked": false,
                "board": board.id(),
                "worker": worker,
                "base": board.version(),
                "system": prompt.system,
                "view": prompt.user,
                "schema": schema.map(|(_, schema)| schema),
            }))
        };
        self.daemon.query_board(&self.board, None, preview).await
    }

    /// Returns the newest of the worker's own records that satisfy a predicate, the newest first.
    async fn own_records(
        &self,
        most: usize,
        is_wanted: impl Fn(&Map<String, Value>) -> bool + Send + 'static,
    ) -> ApiResult<Vec<Map<String, Value>>> {
        let (board, worker) = (self.board.clone(), self.worker.clone());
        let head = self.daemon.summary(&board).await?.head.seq;
        let entries =
            self.daemon.query(move |reader| read_own_records(reader, &board, &worker, head, most, is_wanted)).await?;
        let blueprint = self.daemon.blueprint(&self.board).await?;
        let own = blueprint.workers.get(&self.worker);
        if own.is_none_or(|own| own.reads.iter().all(|read| read.condition.is_none())) {
            return Ok(entries);
        }
        let worker = self.worker.clone();
        let masked = move |board: &Board| {
            let mut entries = entries;
            // Earlier rejections show only what the worker may read now.
            for rejection in entries.iter_mut().filter_map(|entry| entry.get_mut("rejection")) {
                board.mask_rejection(&worker, rejection);
            }
            Ok(entries)
        };
        self.daemon.query_board(&self.board, None, masked).await
    }
}

fn with_retry_help(problem: Problem) -> Problem {
    problem.help("nothing was applied: call read_view, which shows what was refused, and propose again")
}
