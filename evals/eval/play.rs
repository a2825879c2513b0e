//! Runs one board to its end with a language model behind an OpenAI-compatible server, and reads its journal.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_agents::architect::{self, DesignError, DesignRequest, Round};
use patchboard_agents::config::{Config, Environment, Model, Program};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::pipeline;
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::record::{Author, Body, Deferred, Record};
use patchboard_kernel::state::State;
use patchboard_lint::source::Source;
use patchboard_llm::install_tls_provider;
use patchboard_protocols::PLANS;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::{CreateOptions, Options};
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal;
use serde_json::Value;

use super::results::Attempt;

/// Name of the architect among the workers.
pub const ARCHITECT: &str = "(architect)";

/// Stage name for a rejected blueprint.
const DRAFT: &str = "blueprint";

/// Player of boards.
#[derive(Clone)]
pub struct Player {
    /// Model that answers for the workers.
    pub model: Model,
    /// Parts of PatchBoard that are enabled.
    pub mode: Mode,
    /// Program of the `environment` worker, if there is one.
    pub environment: Option<Program>,
    /// Timeout of one board.
    pub limit: Duration,
}

/// Origin of a board's blueprint.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// Blueprint written by hand.
    Fixed(&'a Blueprint),
    /// Blueprint written by the model for a request in words.
    Generated(&'a str),
}

/// Result of a board.
pub struct BoardRun {
    /// Id of the board; empty if the model wrote no usable blueprint.
    pub board: String,
    /// End and its cause; `timeout` if the run was abandoned.
    pub end: (String, String),
    /// Duration in seconds.
    pub seconds: f64,
    /// Final document.
    pub state: State,
    /// Set if the document breaks the blueprint's schema or invariants.
    pub is_invalid: bool,
    /// Attempts of language models, the architect's first, then in the order of the journal.
    pub attempts: Vec<Attempt>,
    /// Records of its journal.
    pub records: Vec<Record>,
}

/// Reads a blueprint file.
pub fn blueprint(path: &Path) -> Result<Blueprint, Box<dyn Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let source = Source::read(&path.display().to_string(), &text).map_err(|finding| finding.message)?;
    let report = patchboard_protocols::check(&source);
    report.blueprint.ok_or_else(|| format!("{}: {:?}", path.display(), report.findings).into())
}

impl Player {
    /// Plays one board; its journal is kept in `data`.
    pub async fn play(&self, origin: Origin<'_>, request: Value, data: &Path) -> Result<BoardRun, Box<dyn Error>> {
        let mut config = Config { any_model: Some(self.model.clone()), ..Config::default() };
        config.commands.extend(self.environment.clone().map(|program| ("environment".to_owned(), program)));
        let seats = AgentRegistry::new(config, &Environment::from_process(), InlinePrograms::Denied);
        let begun = Instant::now();
        let mut founding = CreateOptions { ablation: self.mode.clone(), ..CreateOptions::default() };
        let (blueprint, mut attempts) = match origin {
            Origin::Fixed(blueprint) => (blueprint.clone(), Vec::new()),
            Origin::Generated(words) => {
                let brief = DesignRequest {
                    request: words.to_owned(),
                    input: Some(request.clone()),
                    ..DesignRequest::default()
                };
                let settings = &seats.config().architect;
                let (chat, terms) = (seats.architect()?.0, settings.terms());
                let ask = async |prompt: &_| architect::ask(chat, settings, &brief, &terms, prompt).await;
                match architect::design(&brief, &terms, ask, |_| ()).await {
                    Ok(design) => {
                        founding.architect = Some(design.designed(None));
                        let drafts = drafts(&design.rounds);
                        (design.blueprint, drafts)
                    }
                    Err(refusal) => return Ok(architect_failed(&refusal, begun.elapsed())),
                }
            }
        };
        if let Some(problem) = seats.check(&blueprint).first() {
            return Err(problem.to_string().into());
        }
        let journal = patchboard_storage::open(data)?;
        let options = Options::new(Arc::new(seats));
        let runtime = Runtime::start(Arc::clone(&journal) as Arc<dyn Journal>, options, PLANS).await?;
        let board = runtime.create_with(blueprint.clone(), request, founding).await?;
        let end = tokio::select! {
            ended = tokio::time::timeout(self.limit, board.wait_for_end()) => ended.ok().transpose()?,
            () = until_server_down(&board) => None,
        };
        let end = match end {
            Some(ended) => (ended.end.to_string(), ended.cause.to_string()),
            None => {
                board.cancel().await?;
                ("timeout".to_owned(), "timeout".to_owned())
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let snapshot = board.status();
        let records = wait(journal.records(board.id(), None, usize::MAX))?;
        runtime.shutdown().await;
        let is_invalid = is_invalid(&blueprint, &snapshot.state)?;
        attempts.extend(self::attempts(&blueprint, &records));
        let (board, state) = (snapshot.board.to_string(), snapshot.state.clone());
        Ok(BoardRun { board, end, seconds, state, is_invalid, attempts, records })
    }
}

/// Consecutive deferrals as unreachable after which the server counts as down.
const DEFERRALS_MAX: u32 = 2;

/// Returns once the model's server counts as down; a board would wait a day for it.
async fn until_server_down(board: &BoardHandle) {
    let (mut records, mut count) = (board.subscribe(None), 0);
    while let Some(Ok(record)) = records.next().await {
        match record.body() {
            Ok(Body::Deferred(Deferred { reason: DeferralReason::Unreachable, .. })) => count += 1,
            Ok(Body::Committed(_) | Body::Rejected(_) | Body::NoOp(_) | Body::Failed(_)) => count = 0,
            _ => {}
        }
        if count >= DEFERRALS_MAX {
            return;
        }
    }
    std::future::pending().await
}

/// Returns the result of a run after its architect failed: its cost, and no board.
fn architect_failed(refusal: &DesignError, took: Duration) -> BoardRun {
    BoardRun {
        board: String::new(),
        end: ("undesigned".to_owned(), refusal.code().to_owned()),
        seconds: took.as_secs_f64(),
        state: State::new(&Value::Null, &Hasher::new(&Salt::ZERO)),
        is_invalid: false,
        attempts: drafts(refusal.rounds()),
        records: Vec::new(),
    }
}

/// Returns the calls of an architect, as attempts of a worker.
fn drafts(rounds: &[Round]) -> Vec<Attempt> {
    let draft = |(number, round): (u32, &Round)| {
        let usage = round.usage.unwrap_or_default();
        let (prompt, completion, cached) = (usage.prompt, usage.completion, usage.cached);
        let finding = || round.findings.first().map(|finding| format!("{DRAFT}/{}", finding.code));
        let (outcome, code) = match &round.failure {
            Some(failure) => ("failed", Some(failure.code.to_string())),
            None if round.is_accepted() => ("committed", None),
            None => ("rejected", finding()),
        };
        Attempt { worker: ARCHITECT.into(), number, outcome: outcome.into(), code, prompt, completion, cached }
    };
    (1..).zip(rounds).map(draft).collect()
}

/// Checks whether a document breaks the blueprint's schema or invariants, regardless of the run's mode. Members that
/// begin with `$` belong to the kernel.
fn is_invalid(blueprint: &Blueprint, state: &State) -> Result<bool, String> {
    let plan = PLANS.plan(blueprint.clone(), &Mode::default())?;
    let mut document = state.root().to_value();
    if let Some(members) = document.as_object_mut() {
        members.retain(|name, _| !name.starts_with('$'));
    }
    let state = State::new(&document, &Hasher::new(&Salt::ZERO));
    Ok(!pipeline::check_initial(&plan, &state).is_empty())
}

/// Creates a model behind a server.
pub fn model(url: &str, name: &str, seed: i64) -> Model {
    install_tls_provider();
    Model { seed: Some(seed), ..Model::new(url, name) }
}

/// Returns the attempts of language models.
fn attempts(blueprint: &Blueprint, records: &[Record]) -> Vec<Attempt> {
    let is_llm = |by: &Author| blueprint.workers.get(&by.worker).is_some_and(|worker| worker.agent == AgentKind::Llm);
    let attempt = |record: &Record| {
        let (by, outcome, code) = match record.body().ok()? {
            Body::Committed(body) => (&body.by, "committed", None),
            Body::NoOp(body) => (&body.by, if body.pass.is_some() { "passed" } else { "no_op" }, None),
            Body::Expanded(body) => (&body.by, "expanded", None),
            Body::Approval(body) => (&body.by, "awaiting_approval", None),
            Body::Rejected(body) => (&body.by, "rejected", Some(format!("{}/{}", body.stage, body.code))),
            Body::Failed(body) => (&body.by, "failed", Some(body.code.to_string())),
            Body::Deferred(body) => (&body.by, "deferred", Some(body.reason.to_string())),
            _ => return None,
        };
        let number = by.attempt.as_ref().filter(|_| is_llm(by))?.number;
        let usage = by.usage.unwrap_or_default();
        let (prompt, completion, cached) = (usage.prompt, usage.completion, usage.cached);
        Some(Attempt {
            worker: by.worker.to_string(),
            number,
            outcome: outcome.into(),
            code,
            prompt,
            completion,
            cached,
        })
    };
    records.iter().filter_map(attempt).collect()
}
