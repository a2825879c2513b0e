//! One agent for all seats: selects the agent of a seat and passes the call on.
//!
//! Owns the choice by the seat's kind and the operator's configuration, and the messages about missing configuration.
//! [`AgentRegistry::check`] reports them before a run; a call fails with the code `not_configured`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::blueprint::{AgentKind, Blueprint, Restart, Worker};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, Timestamp, WorkerName};
use patchboard_llm::capabilities::{Capabilities, CapabilityProbeError, probe_capabilities};
use patchboard_llm::embeddings::Embedder;
use patchboard_llm::gate::Gate;
use patchboard_llm::probe::{ProbeResult, probe};
use patchboard_llm::{Chat, InterruptedConversations, Variables, admission, telemetry};
use patchboard_protocols::Role;
use patchboard_runtime::agent::{AdmissionDecision, Agent, Call, CallResult, Failure};
use patchboard_runtime::clock::{Clock, SystemClock};
use tracing::Instrument as _;

use crate::command::ProgramRunner;
use crate::config::{ARCHITECT_MODEL, Config, DEFAULT_MODEL, Embeddings, Environment, Model, Program, operator_models};
use crate::lease::Leases;
use crate::script::{self, Script};
use patchboard_roles::departments::storage::Storage;
use patchboard_roles::{RoleContext, blackboard};
use patchboard_runtime::tools::{BoxFuture, Toolbox, Tools};
use patchboard_workspace::boards::Workspaces;
use patchboard_workspace::tools::WorkspaceTools;

struct FixedClock(Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn steady_ms(&self) -> u64 {
        0
    }
}

/// Serves seats with the operator's models and programs, and with scripts.
pub struct AgentRegistry {
    config: Config,
    inline: InlinePrograms,
    variables: Arc<Variables>,
    chats: BTreeMap<String, Slot>,
    any_chat: Slot,
    interrupted: Arc<Mutex<InterruptedConversations>>,
    runner: Arc<ProgramRunner>,
    leases: Option<Leases>,
    workspaces: Arc<Workspaces>,
    toolbox: Arc<dyn Toolbox>,
    means: Arc<RoleContext>,
    gate: Gate,
}

/// Permission to run programs that are written in a blueprint (SPEC section 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InlinePrograms {
    /// Only programs of the operator's configuration.
    Denied,
    /// Also programs of the blueprint, because its author is trusted with this machine.
    Allowed,
}

/// Reason why seats cannot be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerConfigError {
    /// Affected workers, at least one.
    pub workers: Vec<WorkerName>,
    /// The missing configuration, and how to supply it.
    pub message: String,
}

impl fmt::Display for WorkerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |names: &[WorkerName]| names.iter().map(WorkerName::as_str).collect::<Vec<_>>().join(", ");
        match self.workers.get(NAMED_MAX..).unwrap_or_default() {
            [] if self.workers.len() == 1 => write!(f, "worker {}: ", joined(&self.workers))?,
            [] => write!(f, "workers {}: ", joined(&self.workers))?,
            more => write!(f, "workers {} and {} more: ", joined(&self.workers[..NAMED_MAX]), more.len())?,
        }
        f.write_str(&self.message)
    }
}

/// Workers that a problem names in its text.
const NAMED_MAX: usize = 3;

/// Agent of a model, created at first use: reading the system's certificates takes a while.
type Slot = OnceLock<Result<Chat, String>>;

impl AgentRegistry {
    /// Creates seats from `config`, with keys and the programs' basic variables from `env`.
    pub fn new(config: Config, env: &Environment, inline: InlinePrograms) -> Self {
        let workspaces = Arc::new(Workspaces::new(config.workspaces.clone()));
        let role_context =
            RoleContext { storage: Arc::new(Storage::unconfigured()), clock: Arc::new(SystemClock), embedder: None };
        let empty = Self {
            config: Config::default(),
            inline,
            variables: Arc::default(),
            chats: BTreeMap::new(),
            any_chat: OnceLock::new(),
            interrupted: Arc::default(),
            runner: Arc::new(ProgramRunner::new(env)),
            leases: None,
            toolbox: Arc::new(WorkspaceTools::new(Arc::clone(&workspaces), BTreeMap::new())),
            workspaces,
            means: Arc::new(role_context),
            gate: Gate::new(),
        };
        empty.with_config(config, env)
    }

    /// Returns seats for another configuration. They share all running state: gate, running programs, leases, storage
    /// of departments, and directories, which stay those of the first configuration.
    #[must_use]
    pub fn with_config(&self, config: Config, env: &Environment) -> Self {
        let of_embeddings = config.embeddings.as_ref().map(Embeddings::server);
        let models = config.models.values().chain(&config.any_model).chain(&of_embeddings);
        let names = models.flat_map(Model::variables);
        let variables: Arc<Variables> =
            Arc::new(names.filter_map(|name| Some((name.to_owned(), env.get(name)?.into()))).collect());
        let embedder = config.embeddings.clone().map(|embeddings| {
            let models = config.models.values().chain(&config.any_model);
            let bulkhead = admission::bulkhead(&embeddings.server(), models);
            Arc::new(Embedder::new(embeddings, Arc::clone(&variables), self.gate.clone(), bulkhead))
        });
        Self {
            inline: self.inline,
            variables,
            chats: config.models.keys().map(|name| (name.clone(), OnceLock::new())).collect(),
            any_chat: OnceLock::new(),
            interrupted: Arc::clone(&self.interrupted),
            runner: Arc::clone(&self.runner),
            leases: self.leases.clone(),
            toolbox: Arc::new(WorkspaceTools::new(Arc::clone(&self.workspaces), config.commands.clone())),
            workspaces: Arc::clone(&self.workspaces),
            means: Arc::new(RoleContext { embedder, ..(*self.means).clone() }),
            gate: self.gate.clone(),
            config,
        }
    }

    /// Allows external processes to lease the calls of `remote` seats.
    #[must_use]
    pub fn with_leases(self, leases: Leases) -> Self {
        Self { leases: Some(leases), ..self }
    }

    /// Sets the storage of departments; without one their calls fail.
    #[must_use]
    pub fn with_storage(self, storage: Storage) -> Self {
        let means = RoleContext { storage: Arc::new(storage), ..(*self.means).clone() };
        Self { means: Arc::new(means), ..self }
    }

    /// Fixes the clock of this project's own roles at a moment. Departments get a copy of their storage in this
    /// directory as of before that moment.
    #[must_use]
    pub fn with_fixed_time(self, moment: Timestamp, data_dir: &Path) -> Self {
        let storage = Arc::new(Storage::copy_before(data_dir, moment));
        let means = RoleContext { storage, clock: Arc::new(FixedClock(moment)), ..(*self.means).clone() };
        Self { means: Arc::new(means), ..self }
    }

    /// Returns the gate in front of the models.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the toolbox of seats with files.
    pub fn toolbox(&self) -> Arc<dyn Toolbox> {
        Arc::clone(&self.toolbox)
    }

    /// Returns the directories that boards share with their workers.
    pub const fn workspaces(&self) -> &Arc<Workspaces> {
        &self.workspaces
    }

    /// Sets the toolbox for language models and scripts with files.
    #[must_use]
    pub fn with_toolbox(self, toolbox: Arc<dyn Toolbox>) -> Self {
        Self { toolbox, ..self }
    }

    /// Checks the seats of a blueprint. Returns each problem once and calls no agent.
    pub fn check(&self, blueprint: &Blueprint) -> Vec<WorkerConfigError> {
        self.check_within(blueprint, false)
    }

    /// Checks a blueprint. `is_limited` means that an outer board limits its money.
    fn check_within(&self, blueprint: &Blueprint, is_limited: bool) -> Vec<WorkerConfigError> {
        let is_limited = is_limited || blueprint.limits.money.is_some();
        let mut problems: Vec<WorkerConfigError> = Vec::new();
        for (name, worker) in &blueprint.workers {
            let of_money = self.money_error(blueprint, worker, is_limited || worker.limits.money.is_some());
            let of_tools =
                if worker.files.is_some() { self.toolbox.config_errors(blueprint, worker) } else { Vec::new() };
            for message in self.worker_errors(blueprint, name, worker).into_iter().chain(of_tools).chain(of_money) {
                match problems.iter_mut().find(|problem| problem.message == message) {
                    Some(known) => known.workers.push(name.clone()),
                    None => problems.push(WorkerConfigError { workers: vec![name.clone()], message }),
                }
            }
        }
        for (name, inner) in &blueprint.boards {
            let is_of_it = |worker: &&Worker| worker.board.as_ref().is_some_and(|board| board.of == *name);
            let mut seats = blueprint.workers.values().filter(is_of_it);
            let is_limited = is_limited || seats.any(|worker| worker.limits.money.is_some());
            for WorkerConfigError { workers, message } in self.check_within(inner, is_limited) {
                problems
                    .push(WorkerConfigError { workers, message: format!("{message} (in the board inside, {name})") });
            }
        }
        problems
    }

    /// Returns the operator's configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn worker_errors(&self, blueprint: &Blueprint, name: &WorkerName, worker: &Worker) -> Vec<String> {
        let problem = match &worker.agent {
            AgentKind::Llm => match operator_models(blueprint, worker) {
                Ok([]) => self.chat(None).err(),
                // Every model that the seed may select.
                Ok(models) => return models.iter().filter_map(|model| self.chat(Some(model)).err()).collect(),
                Err(key) => Some(format!("its model {key} is not among the blueprint's models")),
            },
            AgentKind::Command => self.program(name, worker).err(),
            AgentKind::Script => script::config_error(worker),
            // A person is asked by name, not called.
            AgentKind::Human => None,
            AgentKind::Remote if self.leases.is_some() => None,
            AgentKind::Remote => Some(NO_LEASES.to_owned()),
            // The seats of its board are checked separately.
            AgentKind::Board => None,
            AgentKind::Builtin(name) => match Role::from_name(name) {
                Some(role) => patchboard_roles::config_error(role, worker),
                None => Some(unavailable(&worker.agent)),
            },
        };
        Vec::from_iter(problem)
    }

    /// Reports a model of the seat without a price, if a money limit applies.
    fn money_error(&self, blueprint: &Blueprint, worker: &Worker, is_limited: bool) -> Option<String> {
        if !is_limited || worker.agent != AgentKind::Llm {
            return None;
        }
        let named = operator_models(blueprint, worker).ok()?.iter().map(String::as_str);
        let named: Vec<&str> = if named.len() == 0 { vec![DEFAULT_MODEL] } else { named.collect() };
        let fallbacks = named.iter().filter_map(|name| self.config.model(Some(name))).flat_map(|model| &model.fallback);
        let mut all = named.iter().copied().chain(fallbacks.map(String::as_str));
        let free = all.find(|name| self.config.model(Some(name)).is_some_and(|model| model.price.is_none()))?;
        Some(format!(
            "limits.money needs a price of model {free}: add price = {{ input = …, output = … }}, for a million tokens, to \
             [models.{free}] in patchboard.toml"
        ))
    }

    /// Returns the architect's model, with its name and price: the operator's model `architect`, if there is one, else
    /// the default.
    /// The error names the missing configuration and how to supply it.
    pub fn architect(&self) -> Result<(&Chat, Admission), String> {
        let is_named = self.config.models.contains_key(ARCHITECT_MODEL);
        let name = if is_named { ARCHITECT_MODEL } else { DEFAULT_MODEL };
        let chat = self.chat(Some(name))?;
        let admitted = self.config.model(Some(name)).map(|model| admission::plain(name, model));
        Ok((chat, admitted.unwrap_or_default()))
    }

    fn chat(&self, name: Option<&str>) -> Result<&Chat, String> {
        let name = name.unwrap_or(DEFAULT_MODEL);
        let Some(model) = self.config.model(Some(name)) else {
            return Err(format!(
                "no model {name} is configured: add [models.{name}] with url and model to patchboard.toml, or give \
                 --model-url and --model{}",
                if name == DEFAULT_MODEL { ", or set OPENAI_BASE_URL and OPENAI_MODEL" } else { "" },
            ));
        };
        let slot = self.chats.get(name).unwrap_or(&self.any_chat);
        let chat = slot.get_or_init(|| Ok(Chat::new(model, &self.variables)?.with_interrupted(&self.interrupted)));
        chat.as_ref().map_err(|why| format!("model {name} cannot be used: {why}"))
    }

    /// Allows an immediate try of unavailable models, because an operator reports that they are back.
    pub fn probe_unavailable(&self) {
        self.gate.probe_unavailable();
    }

    /// Checks that the server of a model, or of embeddings, is reachable and accepts its key.
    pub async fn probe(&self, model: &Model, patience: Duration) -> ProbeResult {
        probe(model, &self.variables, patience).await
    }

    /// Probes the abilities of one of the operator's models, within this time. Costs tokens.
    pub async fn capabilities(&self, model: &Model, time: Duration) -> Result<Capabilities, CapabilityProbeError> {
        probe_capabilities(model, &self.variables, time).await
    }

    /// Returns the program of a seat: its own, or the operator's by the name it gives, or by the worker's name.
    fn program(&self, worker: &WorkerName, worker_config: &Worker) -> Result<Program, String> {
        match worker_config.restart {
            None | Some(Restart::Fail | Restart::Fresh) => {}
            Some(Restart::Replay) => {
                return Err(
                    "restart: replay is not available: with fresh, a program that was lost is started again and \
                            rebuilds its state from what it is shown; with fail, its calls fail from then on"
                        .into(),
                );
            }
        }
        if !worker_config.program.is_empty() {
            return match self.inline {
                InlinePrograms::Allowed => Ok(Program::new(worker_config.program.clone())),
                InlinePrograms::Denied => Err(format!(
                    "it brings its own program: name one with [commands.{worker}] in patchboard.toml and remove \
                     program, or, if you trust the blueprint with this machine, give --allow-inline"
                )),
            };
        }
        let name = worker_config.command.as_deref().unwrap_or(worker.as_str());
        self.config.commands.get(name).cloned().ok_or_else(|| {
            format!("no program {name} is configured: add [commands.{name}] with program to patchboard.toml")
        })
    }

    /// Opens the tools of a call, if its seat has any.
    async fn tools(&self, call: &Call) -> Result<Option<Box<dyn Tools>>, Failure> {
        let worker = call.worker_config();
        let has_tools = worker.files.is_some() && matches!(worker.agent, AgentKind::Llm | AgentKind::Script);
        if has_tools { self.toolbox.open(call).await } else { Ok(None) }
    }

    fn forward<'a>(&'a self, call: &'a Call, tools: Option<Box<dyn Tools>>) -> BoxFuture<'a, CallResult> {
        let not_configured = |message: String| -> BoxFuture<'a, CallResult> {
            Box::pin(std::future::ready(Err(Failure::new(FailureCode::NotConfigured, message))))
        };
        match &call.worker_config().agent {
            AgentKind::Llm => match self.chat(call.model.as_deref()) {
                Ok(chat) => match tools {
                    Some(mut tools) => Box::pin(async move { chat.run_tool_loop(call, &mut *tools).await }),
                    None => chat.call(call),
                },
                Err(message) => not_configured(message),
            },
            AgentKind::Command => match self.program(&call.worker, call.worker_config()) {
                Ok(program) => Box::pin(async move { self.runner.answer(&program, call).await }),
                Err(message) => not_configured(message),
            },
            AgentKind::Script => Box::pin(async move {
                match tools {
                    Some(mut tools) => Script.run(call, Some(&mut *tools)).await,
                    None => Script.call(call).await,
                }
            }),
            AgentKind::Remote => match &self.leases {
                Some(leases) => Box::pin(leases.call(call)),
                None => not_configured(NO_LEASES.to_owned()),
            },
            kind @ AgentKind::Builtin(name) => match Role::from_name(name) {
                Some(role) => Box::pin(patchboard_roles::answer(role, call, &self.means)),
                None => not_configured(unavailable(kind)),
            },
            kind @ (AgentKind::Human | AgentKind::Board) => not_configured(unavailable(kind)),
        }
    }
}

impl Agent for AgentRegistry {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        let span = telemetry::invoke_agent(call);
        Box::pin(async move {
            let answer = async { self.forward(call, self.tools(call).await?).await };
            let answer = answer.instrument(span.clone()).await;
            telemetry::record_outcome(&span, answer.as_ref().map(|reply| reply.usage));
            admission::report(call, answer).map(|reply| blackboard::made(call, reply))
        })
    }

    fn admit(&self, board: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        let chain = self.config.chain(waiting.model.as_deref());
        admission::ask_gate(&self.gate, &self.means.clock, &chain, board, waiting)
    }

    fn deferral_reason(&self, board: &BoardId) -> Option<DeferralReason> {
        self.gate.board_outage(board).map(|held| held.outage.reason)
    }

    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        self.config.context(model)
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.runner.ended(board);
        self.workspaces.ended(board);
    }
}

/// Seats with a replaceable configuration, for boards that are running. A call keeps the seats that it began with.
pub struct ReloadableRegistry(RwLock<Arc<AgentRegistry>>);

impl ReloadableRegistry {
    /// Creates a holder of these seats.
    pub fn new(seats: AgentRegistry) -> Self {
        Self(RwLock::new(Arc::new(seats)))
    }

    /// Returns the seats of calls that begin now.
    pub fn current(&self) -> Arc<AgentRegistry> {
        // A writer stores only complete values.
        Arc::clone(&self.0.read())
    }

    /// Replaces the configuration for further calls: see [`AgentRegistry::with_config`].
    pub fn replace(&self, config: Config, env: &Environment) {
        let next = Arc::new(self.current().with_config(config, env));
        *self.0.write() = next;
    }
}

impl Agent for ReloadableRegistry {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        let seats = self.current();
        Box::pin(async move { seats.call(call).await })
    }

    fn admit(&self, board: &BoardId, waiting: &WaitingCall) -> AdmissionDecision {
        self.current().admit(board, waiting)
    }

    fn deferral_reason(&self, board: &BoardId) -> Option<DeferralReason> {
        self.current().deferral_reason(board)
    }

    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        self.current().context_window(model)
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.current().on_board_ended(board);
    }
}

const NO_LEASES: &str = "processes outside reach a remote seat through `patchboard serve` only: run the board there";

fn unavailable(kind: &AgentKind) -> String {
    let workers = AgentKind::worker_names();
    let builtins = Role::ALL.iter().map(|role| format!("builtin:{role}")).collect::<Vec<_>>().join(", ");
    format!(
        "this version cannot fill a seat of kind {kind}; it can fill {workers}, {builtins}, and ask a human to agree"
    )
}
