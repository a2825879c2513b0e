//! Assigns agents to the workers of a run: from the operator's configuration and the flags, or from a recording.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args};
use parking_lot::Mutex;
use patchboard_agents::cassette::{CassetteError, Player, Recorder, ToolRecorder};
use patchboard_agents::nested_boards::NestedBoards;
use patchboard_agents::registry::{InlinePrograms, WorkerConfigError};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::Salt;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{Timestamp, WorkerName};
use patchboard_kernel::record::{Body, Record};
use patchboard_llm::gate::Gate;
use patchboard_roles::departments::storage::Storage;
use patchboard_runtime::agent::Agent;
use patchboard_runtime::archive;
use patchboard_runtime::handle::BoardHandle;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;
use patchboard_workspace::boards::{ActivationGuard, Workspaces};
use serde_json::json;

use crate::arguments::{DATA_DIR, DATA_DIR_ENV, StoredBoard};
use crate::describe::NestedShortages;
use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{Output, one_line, try_writing};
use crate::reader::{Reader, storage};
use patchboard_kernel::text::counted;
use patchboard_server::model_arguments::flag;
pub(crate) use patchboard_server::model_arguments::{ModelArguments, quoted};

/// Options that select agents.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Agents")]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    pub(crate) models: ModelArguments,
    /// Replay recorded responses; no model calls
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model_url", "model", "api_key_env", "temperature"])]
    cassette: Option<PathBuf>,
    /// Run programs embedded in the blueprint: only if you trust its author with this machine
    #[arg(long)]
    allow_inline: bool,
}

/// Options that assign agents to workers.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Agents", group = ArgGroup::new("written").multiple(true))]
pub(crate) struct WorkerAgentArguments {
    #[command(flatten)]
    pub(crate) agents: AgentArguments,
    /// Record every response to a new file
    #[arg(long, value_name = "FILE", conflicts_with = "cassette", group = "written")]
    record: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "written")]
    pub(crate) force: bool,
    /// Append to an existing recording, of the same board in another process
    #[arg(long, requires = "record", conflicts_with = "force")]
    append: bool,
    /// Directory of the blueprint's workspace NAME, in addition to those in patchboard.toml
    #[arg(long, value_name = "NAME=DIR", value_parser = named_directory)]
    workspace: Vec<(String, PathBuf)>,
}

pub(crate) struct WorkerAgents {
    pub(crate) agent: Arc<NestedBoards>,
    workspaces: Arc<Workspaces>,
    /// Guard that makes workers wait until the board's directory is attached.
    attach_guard: Mutex<Option<ActivationGuard>>,
    /// Salt of a recording, so that two runs of one recording produce identical records.
    pub(crate) salt: Option<Salt>,
    /// Set if no key is sent to the model given by flags.
    sends_no_key: bool,
    /// Admission gate of the models; `None` for a played recording.
    gate: Option<Gate>,
    player: Option<Arc<Player>>,
    recorder: Option<(Arc<Recorder>, PathBuf)>,
    pub(crate) nested_shortages: Arc<NestedShortages>,
    pub(crate) resume_flags: ResumeFlags,
}

/// State of a recording that has been played in part.
pub(crate) struct PlayedRecording<'a> {
    /// Name of the recorded blueprint, of the outermost board.
    pub(crate) name: &'a str,
    /// Records of the boards that it has been played to.
    pub(crate) records: &'a [Vec<Record>],
}

impl AgentArguments {
    /// Returns true if a recording answers.
    pub(crate) const fn is_played(&self) -> bool {
        self.cassette.is_some()
    }

    /// Returns the agent of one worker at a moment, without tools and with a copy of the departments' data at that
    /// time.
    pub(crate) fn single_agent(
        &self,
        blueprint: &Blueprint,
        data_dir: &Path,
        worker: &WorkerName,
        moment: Timestamp,
        played: &PlayedRecording<'_>,
        config: Option<&Path>,
    ) -> Result<Arc<dyn Agent>, Failure> {
        if let Some(path) = &self.cassette {
            let player = player(path, played.name)?;
            played.records.iter().for_each(|records| mark_answered(&player, records));
            return Ok(Arc::new(player));
        }
        let registry = self.models.build_registry(config, self.inline())?.with_fixed_time(moment, data_dir);
        let problems = registry.check(blueprint);
        let own: Vec<_> = problems.into_iter().filter(|problem| problem.workers.contains(worker)).collect();
        if own.is_empty() { Ok(Arc::new(registry)) } else { Err(not_configured(&own)) }
    }

    const fn inline(&self) -> InlinePrograms {
        if self.allow_inline { InlinePrograms::Allowed } else { InlinePrograms::Denied }
    }

    /// Returns the flags that a later command needs for the agents; each begins with a space.
    fn to_flags(&self) -> String {
        let mut words = self.models.to_flags();
        let cassette = self.cassette.as_ref().map(|path| path.display().to_string());
        flag(&mut words, "--cassette", cassette.as_deref());
        if self.allow_inline {
            words.push_str(" --allow-inline");
        }
        words
    }
}

impl WorkerAgentArguments {
    /// Checks, before any model call, that a recording can be written.
    pub(crate) fn can_record(&self) -> Result<(), Failure> {
        let Some(path) = &self.record else { return Ok(()) };
        let name = path.display().to_string();
        if path.exists() && !self.force && !self.append {
            return Err(cassette_failure(&CassetteError::Exists { path: name }));
        }
        try_writing(path).map_err(|source| cassette_failure(&CassetteError::Io { path: name, source }))
    }

    /// Assigns agents to a blueprint's workers, or reports all missing ones. The data directory has the departments'
    /// data.
    pub(crate) fn assign_agents(
        &self,
        blueprint: &Blueprint,
        data_dir: &Path,
        config: Option<&Path>,
    ) -> Result<WorkerAgents, Failure> {
        let models = &self.agents.models;
        let assigned = |agent: Arc<dyn Agent>, workspaces: &Arc<Workspaces>| WorkerAgents {
            agent: Arc::new(NestedBoards::new(agent)),
            workspaces: Arc::clone(workspaces),
            attach_guard: Mutex::new(Some(workspaces.begin_activation())),
            salt: None,
            sends_no_key: models.sends_no_key(),
            gate: None,
            player: None,
            recorder: None,
            nested_shortages: Arc::default(),
            resume_flags: self.resume_flags(data_dir, config),
        };
        if let Some(path) = &self.agents.cassette {
            let registry = models.build_registry_with(config, InlinePrograms::Denied, &self.workspace)?;
            let player = Arc::new(player(path, &blueprint.name)?.with_toolbox(registry.toolbox()));
            let agents = assigned(player.clone(), registry.workspaces());
            return Ok(WorkerAgents { salt: Some(player.salt()), player: Some(player), ..agents });
        }
        let registry = models.build_registry_with(config, self.agents.inline(), &self.workspace)?;
        let registry = registry.with_storage(Storage::in_dir(data_dir));
        let problems = registry.check(blueprint);
        if !problems.is_empty() {
            return Err(not_configured(&problems));
        }
        let (gate, workspaces) = (Some(registry.gate().clone()), Arc::clone(registry.workspaces()));
        let Some(path) = &self.record else {
            return Ok(WorkerAgents { gate, ..assigned(Arc::new(registry), &workspaces) });
        };
        let notes = ToolRecorder::default();
        let noted = notes.wrap(registry.toolbox());
        let agent: Arc<dyn Agent> = Arc::new(registry.with_toolbox(noted));
        let made = match (self.force, self.append && path.exists()) {
            (true, _) => Recorder::replace(path, &blueprint.name, agent),
            (false, true) => Recorder::append(path, &player(path, &blueprint.name)?, agent),
            (false, false) => Recorder::create(path, &blueprint.name, agent),
        };
        let recorder = Arc::new(made.map_err(|error| cassette_failure(&error))?.with_tool_recorder(notes));
        let agents = assigned(recorder.clone(), &workspaces);
        Ok(WorkerAgents { gate, recorder: Some((recorder, path.clone())), ..agents })
    }

    /// Assigns agents to the workers of a board that was run before.
    ///
    /// Marks the recorded responses that the board and its nested boards received, so that a player does not wait for
    /// them. Calls in progress at the end of the earlier process are made again.
    pub(crate) fn assign_to(
        &self,
        stored: &StoredBoard,
        data_dir: &Path,
        config: Option<&Path>,
    ) -> Result<WorkerAgents, Failure> {
        let agents = self.assign_agents(stored.board.blueprint(), data_dir, config)?;
        if let Some(player) = &agents.player {
            mark_answered(player, &stored.records);
            let reader = Reader::open(data_dir)?;
            let boards = wait(reader.journal.boards()).map_err(storage)?;
            for inside in BoardSummary::related(&boards, &stored.summary.id) {
                mark_answered(player, &reader.records(inside)?);
            }
        }
        Ok(agents)
    }

    pub(crate) fn resume_flags(&self, data_dir: &Path, config: Option<&Path>) -> ResumeFlags {
        let mut words = data_dir_flags(data_dir);
        let finds = words.clone();
        flag(&mut words, "--config", config.map(|config| config.display().to_string()).as_deref());
        words += &self.agents.to_flags();
        for (name, dir) in &self.workspace {
            flag(&mut words, "--workspace", Some(&format!("{name}={}", dir.display())));
        }
        ResumeFlags { find_flags: finds, agent_flags: words }
    }
}

/// Returns the flags with which a later command finds the board; each begins with a space.
pub(crate) fn data_dir_flags(data_dir: &Path) -> String {
    let mut words = String::new();
    let named = std::env::var_os(DATA_DIR_ENV);
    if data_dir != named.as_deref().map_or(Path::new(DATA_DIR), Path::new) {
        flag(&mut words, "--data-dir", Some(&data_dir.display().to_string()));
    }
    words
}

/// Flags with which a later command finds the board and uses the same agents.
#[derive(Clone)]
pub(crate) struct ResumeFlags {
    find_flags: String,
    agent_flags: String,
}

impl ResumeFlags {
    pub(crate) fn resume_command(&self, words: &str) -> String {
        format!("patchboard {words}{}", self.agent_flags)
    }

    pub(crate) fn inspect_command(&self, words: &str) -> String {
        format!("patchboard {words}{}", self.find_flags)
    }
}

impl WorkerAgents {
    /// Returns true if a recording answers.
    pub(crate) const fn is_played(&self) -> bool {
        self.player.is_some()
    }

    /// Makes the workers of an ended board wait until [`Self::attach`] opens its directory again.
    pub(crate) fn expect_directory(&self) {
        let guard = self.workspaces.begin_activation();
        *self.attach_guard.lock() = Some(guard);
    }

    pub(crate) async fn attach(&self, board: &BoardHandle) -> Result<(), Failure> {
        let guard = self.attach_guard.lock().take();
        let attached = guard.unwrap_or_else(|| self.workspaces.begin_activation()).attach(board);
        attached.await.map(drop).map_err(|error| Failure::failed("workspace_failed", error))
    }

    /// Returns a fix for a failed call, if the agents' configuration is the cause.
    pub(crate) fn advice(&self, code: FailureCode, message: &str) -> Option<&'static str> {
        let is_denied = code == FailureCode::Refused && (message.starts_with("401 ") || message.starts_with("403 "));
        (self.sends_no_key && is_denied).then_some("no key was sent; give --api-key-env")
    }

    pub(crate) fn outages(&self) -> Outages {
        Outages::new(self.gate.clone())
    }

    /// Finishes a recording, and prints a summary of it or of the played one.
    pub(crate) fn finish(&self, output: Output) -> Result<(), Failure> {
        if let Some((recorder, path)) = &self.recorder {
            let entries = recorder.finish().map_err(|error| cassette_failure(&error))?;
            let entries = counted(usize::try_from(entries).unwrap_or(usize::MAX), "answer");
            output.note(&format!("recorded {entries} into {}", path.display()));
        }
        if let Some(left) = self.player.as_ref().map(|player| player.remaining()).filter(|left| *left > 0) {
            output.note(&format!("{} of the recording were not used", counted(left, "answer")));
        }
        Ok(())
    }
}

fn player(path: &Path, blueprint: &str) -> Result<Player, Failure> {
    let player = Player::open(path).map_err(|error| cassette_failure(&error))?;
    if player.blueprint() != blueprint {
        let recorded = one_line(player.blueprint());
        let message = format!("{} was recorded with the blueprint {recorded}, not {blueprint}", path.display());
        return Err(Failure::invalid_input("wrong_cassette", message).help("record one with --record"));
    }
    Ok(player)
}

fn mark_answered(player: &Player, records: &[Record]) {
    let hasher = records.first().and_then(archive::hasher_of);
    let names = hasher.map(|hasher| player.names(&hasher)).unwrap_or_default();
    for body in records.iter().filter_map(|record| record.body().ok()) {
        let by = match body {
            Body::Failed(failed) if failed.code == FailureCode::Lost => continue,
            body => body.author(),
        };
        if let Some((by, attempt)) = by.and_then(|by| Some((by, by.attempt.as_ref()?))) {
            player.skip_answered(&by.worker, names.get(&attempt.view).copied().unwrap_or(attempt.view));
        }
    }
}

fn not_configured(problems: &[WorkerConfigError]) -> Failure {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Failure::invalid_input("not_configured", all.join("; "))
        .help("`patchboard run --help` says how to name a model; programs are named in patchboard.toml")
        .detail("problems", json!(all))
}

fn named_directory(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok((name.to_owned(), PathBuf::from(dir))),
        Some(_) | None => Err("give a name and a directory, like code=../project".to_owned()),
    }
}

fn cassette_failure(error: &CassetteError) -> Failure {
    match error {
        CassetteError::Exists { .. } => Failure::invalid_input("cassette_exists", error)
            .help("give --force to record over it, or name another file"),
        CassetteError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::invalid_input("cassette_io", error).help("name an existing recording, or make one with --record")
        }
        CassetteError::Io { .. } => Failure::failed("cassette_io", error),
        _ => Failure::invalid_input("bad_cassette", error).help("record a new one with --record"),
    }
}
