//! Tools of a workspace, for language models and external processes.
//!
//! Includes the commands of the editor ([`editor`]), and programs and commits for agents with these grants.

use std::collections::BTreeMap;
use std::sync::Arc;

use patchboard_kernel::blueprint::{Blueprint, Isolation, Worker, WorkspaceSpec};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::files::{EditAttempt, FilePath};
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Call, Failure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::boards::Workspaces;
use super::edit_author::EditAuthor;
use super::editor::{self, EditConcurrency};
use super::git::error::GitError;
use super::git::{self, CommitResult, Window, diff};
use super::program::GIT;
use super::programs::{ProgramCode, ProgramError, ProgramResult, run, run_in};
use super::session::{CommandResult, Session};
use super::worktree::{Worktree, merge};
use crate::program::Program;
use patchboard_kernel::text::counted;
use patchboard_runtime::tools::{BoxFuture, Memory, ToolDefinition, ToolOutput, Toolbox, Tools, checkpoint, cut};

/// The operator's programs by name.
type Programs = BTreeMap<String, Program>;

/// Returns the tools available to an author.
pub fn definitions(author: &EditAuthor, spec: &WorkspaceSpec) -> Vec<ToolDefinition> {
    let access = author.access.spec();
    let concurrency = EditConcurrency::from_spec(spec, author.has_tree(spec));
    let editor = editor::definitions(author.label(), spec, !access.edit.is_empty(), concurrency);
    let mut tools: Vec<ToolDefinition> = editor.into_iter().map(|(_, tool)| tool).collect();
    let programs: Vec<&String> = access.run.iter().filter(|name| *name != GIT).collect();
    if !programs.is_empty() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "program": {"description": "Which one.", "enum": programs},
                "arguments": {
                    "description": "What it is given beside what it is always given, if it takes anything.",
                    "type": "array", "items": {"type": "string"}, "maxItems": 64,
                },
            },
            "required": ["program"], "additionalProperties": false,
        });
        let description =
            "Runs a program in the directory, and shows how it ended and the end of what it wrote.".to_owned();
        tools.push(ToolDefinition { name: "run".to_owned(), description, parameters });
    }
    if access.run.iter().any(|name| name == GIT) {
        let paths = json!({"type": "array", "items": {"type": "string"}, "maxItems": 32,
            "description": "The files; all if absent."});
        if spec.isolation == Isolation::Worktree {
            tools.push(ToolDefinition {
                name: "merge".to_owned(),
                description:
                    "Merges what an engineer has done in a working tree of its own into the directory, all of it or \
                              nothing."
                        .to_owned(),
                parameters: json!({
                    "type": "object",
                    "properties": {"author": {"type": "string", "description": "Whose work."}},
                    "required": ["author"], "additionalProperties": false,
                }),
            });
        }
        tools.push(ToolDefinition {
            name: "diff".to_owned(),
            description: "Shows what is not committed to git yet, of the files that you may view.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "paths": paths,
                    "skip": {"type": "integer", "minimum": 0, "description": "Characters of it to leave out at the beginning: \
                        where it is longer than one answer."},
                },
                "additionalProperties": false,
            }),
        });
        tools.push(ToolDefinition {
            name: "commit".to_owned(),
            description: "Commits what is not committed to git yet: the files of each author in a commit of their own, or \
                          only those of `author`. Several may have written a file: it is of who wrote the most, and the \
                          others are named. You can commit what `diff` has shown you as it is now."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "What the commit does: one line, and more below if needed."},
                    "author": {"type": "string", "description": "Whose files; everybody's if absent."},
                },
                "required": ["message"], "additionalProperties": false,
            }),
        });
    }
    tools
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    program: String,
    #[serde(default)]
    arguments: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    #[serde(default)]
    paths: Vec<FilePath>,
    #[serde(default)]
    skip: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    message: String,
    author: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Merge {
    author: String,
}

/// Executes one of the author's tools within `room` characters; the arguments are an object.
///
/// `tree`: the author's own working tree, if it does not edit the directory itself.
pub async fn call(
    session: &mut Session,
    tree: Option<&Worktree>,
    programs: &Programs,
    name: &str,
    arguments: Value,
    room: usize,
) -> CommandResult {
    // Session results fit already; the other results do not count as read.
    call_tool(session, tree, programs, name, arguments, room).await.unwrap_or_else(|error| error).within(room)
}

async fn call_tool(
    session: &mut Session,
    tree: Option<&Worktree>,
    programs: &Programs,
    name: &str,
    arguments: Value,
    room: usize,
) -> Result<CommandResult, CommandResult> {
    let exists = definitions(session.author(), session.workspace().spec()).iter().any(|tool| tool.name == name);
    if !exists {
        return Err(no_such_tool(name));
    }
    Ok(match name {
        "run" => run_program(session, tree, programs, &read(arguments)?).await?,
        "diff" => {
            let Diff { paths, skip } = read(arguments)?;
            let text = diff(session.workspace(), session.author(), &paths, Window { skip, room }).await?;
            let of = if paths.is_empty() { "" } else { " of these files" };
            let nothing = format!("There is nothing{of} that is not committed.\n");
            CommandResult::success(if text.is_empty() { nothing } else { text.clone() }, json!({ "diff": text }))
        }
        "merge" => {
            let Merge { author } = read(arguments)?;
            let text = merge(session.workspace(), session.author(), &author).await?;
            CommandResult::success(text.clone(), json!({ "merged": text }))
        }
        "commit" => commit(session, &read(arguments)?).await?,
        command => {
            let Value::Object(arguments) = arguments else {
                let message = "The arguments cannot be used: they are no object.";
                return Err(CommandResult::error("bad_arguments", message));
            };
            match (editor::arguments(command, arguments), tree) {
                (Some(arguments), Some(tree)) => tree.run(arguments, room).await,
                (Some(arguments), None) => session.call_within(arguments, room).await,
                (None, _) => no_such_tool(command),
            }
        }
    })
}

fn no_such_tool(name: &str) -> CommandResult {
    CommandResult::error("no_such_tool", format!("There is no tool {}.", patchboard_kernel::text::one_line(name, 80)))
}

fn read<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, CommandResult> {
    serde_json::from_value(arguments).map_err(|error| {
        let why = patchboard_kernel::text::one_line(&error.to_string(), 300);
        CommandResult::error("bad_arguments", format!("The arguments cannot be used: {why}."))
    })
}

async fn run_program(
    session: &Session,
    tree: Option<&Worktree>,
    programs: &Programs,
    request: &Run,
) -> Result<CommandResult, GitError> {
    let may = session.author().access.spec().run.iter().any(|name| *name == request.program && name != GIT);
    let (workspace, name, arguments) = (session.workspace(), &request.program, &request.arguments);
    let ran = match (programs.get(name).filter(|_| may), tree) {
        (Some(program), None) => run(workspace, name, program, arguments, session.author().label()).await,
        (Some(program), Some(tree)) => run_in(tree.path(), workspace, name, program, arguments).await,
        (None, _) => Err(ProgramError::Program(
            ProgramCode::NoSuchProgram,
            format!("there is no program {} that you may run", patchboard_kernel::text::one_line(&request.program, 80)),
        )),
    };
    let ProgramResult { exit, stdout, stderr, changed, others, unreported } = ran?;
    let ended = exit.map_or_else(|| "a signal ended it".to_owned(), |code| format!("exit code {code}"));
    let named = |what: &str, paths: &[FilePath]| match paths {
        [] => String::new(),
        paths => format!("{what}: {}\n", paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let text = format!(
        "{} ended: {ended}\n{}{}{}standard output:\n{stdout}\nstandard error:\n{stderr}",
        request.program,
        named("changed", &changed),
        named("changed, though it may not change them", &others),
        unreported.iter().map(|said| format!("{said}\n")).collect::<String>(),
    );
    let data = json!({
        "exit": exit, "stdout": stdout, "stderr": stderr, "changed": changed, "others": others, "untold": unreported,
    });
    Ok(CommandResult::success(text, data))
}

async fn commit(session: &Session, Commit { message, author }: &Commit) -> Result<CommandResult, GitError> {
    let committed = git::commit(session.workspace(), session.author(), message, author.as_deref()).await?;
    let CommitResult { commits, omissions } = committed;
    let left_out = omissions.messages();
    let lines = commits.iter().map(|commit| {
        let with: Vec<&str> = commit.others.iter().map(String::as_str).collect();
        let with = if with.is_empty() { String::new() } else { format!(", with {}", with.join(", ")) };
        let hash = &commit.hash[..commit.hash.len().min(12)];
        format!("{hash} by {}{with}: {}\n", commit.author, counted(commit.files.len(), "file"))
    });
    let text = lines.chain(left_out.iter().map(|said| format!("{said}\n"))).collect();
    Ok(CommandResult::success(text, json!({"commits": commits, "left_out": left_out})))
}

impl From<GitError> for CommandResult {
    fn from(error: GitError) -> Self {
        Self::error(error.code(), error.to_string())
    }
}

/// Workspace tools for the agents that run in this process.
pub struct WorkspaceTools {
    workspaces: Arc<Workspaces>,
    programs: Arc<Programs>,
}

impl WorkspaceTools {
    /// Creates the tools for these directories and programs.
    pub fn new(workspaces: Arc<Workspaces>, programs: Programs) -> Self {
        Self { workspaces, programs: Arc::new(programs) }
    }
}

impl Toolbox for WorkspaceTools {
    fn config_errors(&self, blueprint: &Blueprint, worker: &Worker) -> Vec<String> {
        let Some(access) = &worker.files else { return Vec::new() };
        let of_programs = access.run.iter().filter(|name| *name != GIT && !self.programs.contains_key(*name));
        let of_programs = of_programs.map(|name| {
            format!(
                "no program {name} is configured, which files.run names: add [commands.{name}] with program to patchboard.toml"
            )
        });
        self.workspaces.unusable_reason(blueprint, access).into_iter().chain(of_programs).collect()
    }

    fn open<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Option<Box<dyn Tools>>, Failure>> {
        Box::pin(async move {
            let Some(access) = call.context.worker_plan().files.as_deref().cloned() else { return Ok(None) };
            let not_configured = |why: String| Failure::new(FailureCode::NotConfigured, why);
            if let Some(reason) = self.workspaces.unusable_reason(&call.context.plan().blueprint, access.spec()) {
                return Err(not_configured(reason));
            }
            let workspace = self.workspaces.get(&call.board).await;
            let workspace = workspace.map_err(|error| not_configured(error.to_string()))?;
            let of = EditAttempt { invocation: call.invocation, attempt: call.attempt };
            let author = EditAuthor { attempt: of, access, worker: call.worker.to_string(), name: None };
            let tree = match author.has_tree(workspace.spec()) {
                true => Some(Worktree::open(&workspace, author.clone()).await),
                false => None,
            };
            let tree = tree.transpose().map_err(|error| not_configured(error.to_string()))?;
            let session = Session::new(workspace, author);
            let tools = AttemptTools { call: call.clone(), session, tree, programs: Arc::clone(&self.programs) };
            Ok(Some(Box::new(tools) as Box<dyn Tools>))
        })
    }
}

struct AttemptTools {
    call: Call,
    session: Session,
    tree: Option<Worktree>,
    programs: Arc<Programs>,
}

impl Tools for AttemptTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        definitions(self.session.author(), self.session.workspace().spec())
    }

    fn begin_batch(&mut self) {
        self.session.begin_batch();
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let arguments = match serde_json::from_str(arguments) {
                Ok(arguments) => arguments,
                Err(error) => return ToolOutput::error(cut(format!("The arguments are not JSON: {error}."), room)),
            };
            let result = call(&mut self.session, self.tree.as_ref(), &self.programs, name, arguments, room).await;
            ToolOutput { is_error: result.is_error(), text: result.text }
        })
    }

    fn checkpoint(&mut self, usage: Option<Usage>, reserve: u64) -> BoxFuture<'_, Result<(), Failure>> {
        self.session.end_batch();
        Box::pin(async move { checkpoint(self.session.workspace().board(), &self.call, usage, reserve).await })
    }

    fn take_memory(&mut self) -> Memory {
        Box::new(self.session.take_memory())
    }

    fn restore_memory(&mut self, memory: Memory) {
        if let Ok(memory) = memory.downcast() {
            self.session.recall(*memory);
        }
    }
}
