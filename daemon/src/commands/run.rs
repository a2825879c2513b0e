//! `patchboard run`: creates a board and runs it to completion.

use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_agents::architect::{Design, DesignRequest};
use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::rejection::VIOLATIONS_MAX;
use patchboard_kernel::schema::Schema;
use patchboard_runtime::options::{ArchitectUsage, CreateOptions};
use serde_json::Value;

use crate::architect::{self, ArchitectArguments, BlueprintApproval};
use crate::blueprint_file;
use crate::failure::{Exit, Failure, Outcome};
use crate::input::{self, STDIN};
use crate::output::{Output, json_line, short};
use crate::reader::storage;
use crate::runner;
use crate::worker_agents::{ResumeFlags, WorkerAgentArguments, WorkerAgents, quoted};

const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

const REQUEST_DEPTH_MAX: usize = 64;

/// Create a board from a blueprint and a request, and run it to completion
///
/// The blueprint is checked first. Progress goes to stderr: active workers, commits, rejections and their reasons. When
/// the board is done, stdout has the result: the value that `result` of the blueprint names, or that its `done` tests;
/// then the board's id, how it ended, its version and its tokens. Without a result, the whole document is printed;
/// `patchboard state last` prints it at any time.
///
/// Ctrl-C pauses the board after the calls in progress; `patchboard resume` resumes it, also after a crash.
///
/// Models come from patchboard.toml, or from --model-url and --model, or from OPENAI_BASE_URL, OPENAI_API_KEY and
/// OPENAI_MODEL. --cassette replays recorded responses; no model is called. With --scripted, workers with a `script` in
/// the blueprint answer from it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard run review.yaml --request '{\"question\": \"Which came first?\"}'
  patchboard run review.yaml --request @task.json --model-url http://127.0.0.1:8080/v1 --model qwen2.5
  patchboard run compare.yaml --request @task.json --documents a.txt b.txt
  patchboard run review.yaml --request @task.json --scripted
  patchboard run review.yaml --request @task.json --record review.cassette
  patchboard run review.yaml --request @task.json --cassette review.cassette --output json | jq .state.answer
  patchboard run review.yaml --request @task.json --seed 7
  jq '{question: .title}' issue.json | patchboard run review.yaml --request @-
  patchboard run review.yaml --request @task.json --ablate patch,slicing
  patchboard run review.yaml --request @task.json --system plain
  patchboard run --architect 'Compare the two reports' --documents a.txt b.txt --approve

Exit codes: 0 done · 1 failed · 2 wrong usage, refused blueprint, or you did not agree to it
            3 stopped by a breaker or a limit · 4 stalled: nothing left to do, not done
            5 paused, or --approve without a terminal")]
pub(crate) struct Arguments {
    /// The blueprint, in YAML or JSON; `-` is standard input
    #[arg(value_name = "BLUEPRINT", required_unless_present = "architect")]
    blueprint: Option<PathBuf>,
    /// Have a model write the blueprint for this task, in plain language or in @FILE; without --request it also writes
    /// the board's request. The cost is charged to the board
    #[arg(long, value_name = "TASK|@FILE", conflicts_with_all = ["blueprint", "cassette"], help_heading = "Architect")]
    architect: Option<String>,
    #[command(flatten)]
    draft: ArchitectArguments,
    /// The request: JSON, or @FILE (@- is standard input); stored at /request of the document
    #[arg(long, short, value_name = "JSON|@FILE")]
    request: Option<String>,
    /// Random seed for model selection, if the blueprint has several models for a worker; overrides the blueprint's
    /// seed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// For comparison: disable parts of PatchBoard for language models, as in `--ablate patch,feedback`
    #[arg(long, value_name = "PART,…", value_delimiter = ',', help_heading = "Comparisons")]
    ablate: Vec<AblatedPart>,
    /// For comparison: run the same workers and rules on a blackboard that checks nothing
    #[arg(long, value_name = "SYSTEM", default_value = "patchboard", help_heading = "Comparisons")]
    system: System,
    /// Let workers with a `script` in the blueprint answer from it, instead of a model or program
    #[arg(long, conflicts_with_all = ["architect", "cassette"], help_heading = "Agents")]
    scripted: bool,
    #[command(flatten)]
    seats: WorkerAgentArguments,
}

/// Part of PatchBoard that can be disabled.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum AblatedPart {
    /// No patches: a worker replies with all of the data it sees, and the difference is judged
    Patch,
    /// No validation of a commit's result: neither the state schema nor invariants
    Schema,
    /// No write contracts: a worker may write everywhere
    Contracts,
    /// No slicing: a view shows the whole document, up to 64,000 characters
    Slicing,
    /// No feedback: a worker does not see the reasons for rejections
    Feedback,
}

/// System that runs the board.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// Complete system
    Patchboard,
    /// Workers write messages that all of them see
    Plain,
    /// Workers see the whole document and set members of it, unchecked
    Structured,
}

impl Arguments {
    fn mode(&self) -> Mode {
        let component = |part: &AblatedPart| match part {
            AblatedPart::Patch => Component::Patch,
            AblatedPart::Schema => Component::Schema,
            AblatedPart::Contracts => Component::Contracts,
            AblatedPart::Slicing => Component::Slicing,
            AblatedPart::Feedback => Component::Feedback,
        };
        match self.system {
            System::Patchboard => Mode::without(self.ablate.iter().map(component)),
            System::Plain => Mode::Plain {},
            System::Structured => Mode::Structured {},
        }
    }
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    // An explicit default is allowed together with `--ablate`.
    if !arguments.ablate.is_empty() && arguments.system != System::Patchboard {
        let message = "--ablate leaves parts out of PatchBoard, and --system names another one";
        return Err(Failure::invalid_input("usage", message).help("give one of the two"));
    }
    let Some(task) = &arguments.architect else {
        arguments.draft.require_architect()?;
        return run_file(arguments, data_dir, config, output).await;
    };
    arguments.draft.can_write(arguments.request.is_none(), arguments.seats.force)?;
    arguments.seats.can_record()?;
    // Boards must be storable before any model call.
    drop(patchboard_storage::open(data_dir).map_err(storage)?);
    let request = arguments.request.as_deref().map(json_argument).transpose()?;
    let wants_input = request.is_none();
    let terms = arguments.draft.terms(&arguments.seats.agents.models, config)?;
    let brief = arguments.draft.brief(task, request, wants_input, terms.caps.state_bytes)?;
    let (design, admitted) = arguments.draft.draft(&brief, &arguments.seats.agents.models, config, output).await?;
    architect::warn(&design, "blueprint", output);
    if arguments.draft.approve_and_save(&design, &brief, output)? == BlueprintApproval::NoTerminal {
        let again = arguments.seats.resume_flags(data_dir, config);
        return approval_needed(arguments, &design, &brief, &again, output);
    }
    let request = design.input.clone().unwrap_or(Value::Null);
    let designed = design.designed(Some(admitted));
    let seating = match arguments.seats.assign_agents(&design.blueprint, data_dir, config) {
        Ok(seating) => seating,
        Err(failure) => {
            if arguments.draft.out.is_none() {
                architect::print_blueprint(&design, output)?;
            }
            return Err(failure);
        }
    };
    start(arguments, data_dir, &seating, design.blueprint, request, Some(designed), output).await
}

/// Ends the command if a blueprint needs approval and no terminal is present.
fn approval_needed(
    arguments: &Arguments,
    design: &Design,
    brief: &DesignRequest,
    again: &ResumeFlags,
    output: Output,
) -> Outcome {
    if output.is_json() || arguments.draft.out.is_none() {
        architect::print_blueprint(design, output)?;
    }
    let out = arguments.draft.out.as_deref();
    let name = out.map_or_else(|| "BLUEPRINT".to_owned(), |path| quoted(&path.display().to_string()));
    let request = match (&arguments.request, out, architect::written_input(design, brief)) {
        (Some(given), ..) => Some(given.clone()),
        (None, Some(path), Some(_)) => Some(format!("@{}", architect::request_path(path).display())),
        (None, None, Some(input)) => Some(json_line(&input)),
        (None, _, None) => None,
    };
    let request = request.map(|request| format!(" --request {}", quoted(&request))).unwrap_or_default();
    let seed = arguments.seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default();
    let draft = arguments.draft.to_flags();
    let again = again.resume_command(&format!("run {name}{request}{seed}{draft}"));
    output.error_context(&format!("approval needs a terminal: read the blueprint, then run `{again}`"));
    Ok(Exit::Waiting)
}

async fn run_file(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let path = arguments.blueprint.as_deref().unwrap_or(Path::new(""));
    input::check_single_stdin(std::iter::once(path), arguments.request.as_deref())?;
    let request = arguments.request.as_deref().map(json_argument).transpose()?.unwrap_or(Value::Null);
    let given = |blueprint: &Blueprint| arguments.draft.with_documents(request.clone(), blueprint.limits.state_bytes);
    let mut blueprint = blueprint_file::read_valid(path, Some(&given), output)?;
    if arguments.scripted {
        let (scripted, count) = blueprint.scripted();
        if count == 0 {
            let help = "give a worker its replies, like script: [[{op: add, path: /answer, value: yes}]], or leave --scripted out";
            return Err(Failure::invalid_input("no_script", "no worker of the blueprint has a `script`").help(help));
        }
        blueprint = scripted;
    }
    if blueprint.rules.is_empty() {
        let message = "the blueprint has no rules: no worker would ever be triggered, and the run would never end";
        let help = "add a rule, such as {name: begin, trigger: start, run: WORKER}; `patchboard pipe` needs none";
        return Err(Failure::invalid_input("no_rules", message).help(help));
    }
    let request = given(&blueprint)?;
    if arguments.request.is_none() {
        demands_no_request(&blueprint, &request)?;
    }
    let seating = arguments.seats.assign_agents(&blueprint, data_dir, config);
    let seating = seating.map_err(|failure| match unscripted(&blueprint) {
        names if arguments.scripted && !names.is_empty() => {
            failure.help(format!("give {names} a `script`, or a model with --config"))
        }
        _ => failure,
    })?;
    start(arguments, data_dir, &seating, blueprint, request, None, output).await
}

/// Returns the names of the workers that a model answers for.
fn unscripted(blueprint: &Blueprint) -> String {
    let workers = blueprint.workers.iter().filter(|(_, worker)| worker.agent == AgentKind::Llm);
    workers.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

async fn start(
    arguments: &Arguments,
    data_dir: &Path,
    seating: &WorkerAgents,
    mut blueprint: Blueprint,
    request: Value,
    designed: Option<ArchitectUsage>,
    output: Output,
) -> Outcome {
    if let Some(seed) = arguments.seed {
        blueprint.draw_by(seed);
    }
    let runtime = runner::start(data_dir, seating).await?;
    let principal = runner::recorded_user(seating);
    let founding = CreateOptions {
        salt: seating.salt,
        ablation: arguments.mode(),
        architect: designed,
        principal: principal.clone(),
        ..CreateOptions::default()
    };
    let board = runner::or_shutdown(&runtime, runtime.create_with(blueprint, request, founding).await).await?;
    let board = principal.map_or(board.clone(), |user| board.with_principal(user));
    output.note(&format!("board {}", board.id()));
    let (runtime, board) = runner::attach_directory(runtime, board, seating).await?;
    runner::run_to_completion(runtime, board, None, seating, output).await
}

/// Returns an error if the blueprint demands a request and only documents, or nothing, are given.
fn demands_no_request(blueprint: &Blueprint, request: &Value) -> Result<(), Failure> {
    // Creating the board reports a schema that cannot be compiled.
    let Ok(schema) = Schema::compile(&blueprint.request, blueprint.state.assert_formats) else { return Ok(()) };
    let violations = schema.violations(request, VIOLATIONS_MAX);
    if violations.is_empty() {
        return Ok(());
    }
    let message = format!(
        "--request is missing: the blueprint demands one that fits {}",
        short(&json_line(&blueprint.request), 200)
    );
    Err(Failure::invalid_input("bad_request", message)
        .help("give it as JSON in single quotes, or as @FILE")
        .detail("violations", serde_json::json!(violations)))
}

/// Parses JSON from the command line, or from the file of `@FILE`; `-` and `@-` are standard input.
pub(crate) fn json_argument(argument: &str) -> Result<Value, Failure> {
    let file = argument.strip_prefix('@').or((argument == STDIN).then_some(argument));
    let source = match file {
        Some(STDIN) => "standard input",
        Some(file) => file,
        None => "the argument",
    };
    let text = match file {
        Some(file) => {
            let most = u64::try_from(REQUEST_BYTES_MAX).unwrap_or(u64::MAX);
            input::read_prefix(Path::new(file), most).map_err(|why| {
                Failure::invalid_input("request_unreadable", format!("{source} cannot be read: {why}"))
            })?
        }
        None => argument.as_bytes().to_vec(),
    };
    let limits = Limits { bytes: REQUEST_BYTES_MAX, depth: REQUEST_DEPTH_MAX };
    json::parse(&text, limits).map_err(|refusal| {
        Failure::invalid_input("bad_json", format!("{source} is no acceptable JSON: {refusal}"))
            .help("give JSON in single quotes, like '{\"question\": \"…\"}', or a file as @FILE")
            .detail("reason", refusal.code.as_str().into())
    })
}
