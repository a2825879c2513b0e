//! Main loop of an evaluation: runs every task with every system and seed once, shows progress, and continues after an
//! interruption.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use patchboard_agents::config::{Program, Structured};
use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::blueprint::Blueprint;
use serde_json::Value;

use super::play::{BoardRun, Origin, Player, model};
use super::results::{Key, Results, Run};

/// Options of every evaluation.
#[derive(Args, Debug)]
pub struct Flags {
    /// The OpenAI-compatible server, like http://127.0.0.1:18080/v1
    #[arg(long, value_name = "URL")]
    pub model_url: String,
    /// The model's name on the server
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// Directory of results, journals and the report; existing results are not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of tasks, from the first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub count: usize,
    /// Random seeds for the model
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_value = "1")]
    pub seeds: Vec<i64>,
    /// Sampling temperature
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,
    /// Timeout of a run in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub limit: u64,
    /// Print the report of the existing results, and run nothing
    #[arg(long)]
    pub report: bool,
}

/// Options of an evaluation that compares systems.
#[derive(Args, Debug)]
pub struct Systems {
    /// Systems to evaluate
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "patchboard")]
    pub systems: Vec<System>,
}

/// Run of an evaluation.
pub struct Play<'a> {
    /// Identity of the run.
    pub key: Key,
    /// System that plays.
    pub system: System,
    /// Origin of the blueprint.
    pub origin: Origin<'a>,
    /// Request of the board.
    pub request: Value,
    /// Program of the worker `environment`, if there is one.
    pub environment: Option<&'a Program>,
}

/// Blueprint and environment for all tasks of an evaluation.
pub struct Subject<'a> {
    /// The shipped blueprint.
    pub blueprint: &'a Blueprint,
    /// Program of the blueprint's worker `environment`, if it has one.
    pub environment: Option<&'a Program>,
    /// Prompt for a model that writes a blueprint for a task; `None` if no generated blueprint can work.
    pub words: Option<&'a str>,
}

/// Task of an evaluation.
pub struct Task {
    /// Name, unique in the evaluation.
    pub name: String,
    /// Request of the board.
    pub request: Value,
}

/// Prints a report, or the error.
pub fn conclude(report: Result<String, Box<dyn Error>>) -> ExitCode {
    match report {
        Ok(report) => {
            // A closed pipe is no failure.
            let _ = writeln!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// System under evaluation: the enabled parts of PatchBoard, and the constraint on replies.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Complete; replies are constrained to the schema derived from contract and view
    Patchboard,
    /// Complete; replies are constrained to the generic schema of a patch
    PatchboardGeneric,
    /// Complete; replies are unconstrained
    PatchboardFree,
    /// Complete, with a blueprint that the model writes for each task
    Generated,
    /// Replies are whole objects
    WithoutPatch,
    /// Results of commits are not validated
    WithoutSchema,
    /// Workers may write everywhere
    WithoutContracts,
    /// Views show the whole document
    WithoutSlicing,
    /// Views do not show rejections
    WithoutFeedback,
    /// A blackboard of messages
    Plain,
    /// A blackboard of JSON, unchecked
    Structured,
}

impl System {
    /// Returns the name on the command line and in results.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    const fn structured(self) -> Structured {
        match self {
            Self::PatchboardGeneric => Structured::Generic,
            Self::PatchboardFree => Structured::Off,
            _ => Structured::Derived,
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Patchboard | Self::PatchboardGeneric | Self::PatchboardFree | Self::Generated => Mode::default(),
            Self::WithoutPatch => Mode::without([Component::Patch]),
            Self::WithoutSchema => Mode::without([Component::Schema]),
            Self::WithoutContracts => Mode::without([Component::Contracts]),
            Self::WithoutSlicing => Mode::without([Component::Slicing]),
            Self::WithoutFeedback => Mode::without([Component::Feedback]),
            Self::Plain => Mode::Plain {},
            Self::Structured => Mode::Structured {},
        }
    }
}

/// Runs every task with every system and seed. Returns all results.
pub async fn run(
    flags: &Flags,
    systems: &Systems,
    subject: &Subject<'_>,
    tasks: &[Task],
    measure: impl Fn(&Task, &BoardRun) -> (Vec<(&'static str, f64)>, Value),
) -> Result<Results, Box<dyn Error>> {
    let origin = |system: System| match (system, subject.words) {
        (System::Generated, Some(words)) => Ok(Origin::Generated(words)),
        (System::Generated, None) => {
            Err("no model can write a blueprint for these tasks: leave out --systems generated")
        }
        _ => Ok(Origin::Fixed(subject.blueprint)),
    };
    let mut plays = Vec::new();
    for seed in &flags.seeds {
        for task in tasks {
            for system in &systems.systems {
                let key = Key { task: task.name.clone(), system: system.name(), seed: *seed };
                let (origin, request) = (origin(*system)?, task.request.clone());
                plays.push((Play { key, system: *system, origin, request, environment: subject.environment }, task));
            }
        }
    }
    play_all(flags, &plays, |task, played| measure(task, played)).await
}

/// Plays the missing runs, each with its data for `measure`. Returns all results.
pub async fn play_all<T>(
    flags: &Flags,
    plays: &[(Play<'_>, T)],
    measure: impl Fn(&T, &BoardRun) -> (Vec<(&'static str, f64)>, Value),
) -> Result<Results, Box<dyn Error>> {
    std::fs::create_dir_all(&flags.out)?;
    let mut results = Results::open(&flags.out.join("runs.jsonl"))?;
    if flags.report {
        return Ok(results);
    }
    let bar = ProgressBar::new(plays.len() as u64)
        .with_style(ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len}, {eta} left: {msg}")?);
    for (play, by) in plays {
        let Play { key, system, origin, request, environment } = play;
        if results.has(key) {
            bar.inc(1);
            continue;
        }
        bar.set_message(format!("{} by {}", key.task, key.system));
        bar.tick();
        let mut model = model(&flags.model_url, &flags.model, key.seed);
        (model.structured, model.temperature) = (system.structured(), flags.temperature);
        let limit = Duration::from_secs(flags.limit);
        let player = Player { model, mode: system.mode(), environment: environment.cloned(), limit };
        let played = player.play(*origin, request.clone(), &flags.out.join("boards")).await?;
        let is_deaf = |attempt: &super::results::Attempt| attempt.code.as_deref() == Some("unreachable");
        if !played.attempts.is_empty() && played.attempts.iter().all(is_deaf) {
            return Err(format!("{} does not answer; start it and repeat the command", flags.model_url).into());
        }
        let (measures, shown) = measure(by, &played);
        let measures = measures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let BoardRun { board, end: (end, cause), seconds, attempts, is_invalid, .. } = played;
        let run = Run { key: key.clone(), board, end, cause, seconds, attempts, is_invalid, measures, shown };
        let line = format!(
            "{} by {}: {} ({}), {:.0} s, {} tokens",
            run.key.task,
            run.key.system,
            run.end,
            run.cause,
            run.seconds,
            run.tokens()
        );
        // A hidden bar would print nothing.
        bar.suspend(|| eprintln!("{line}"));
        results.add(run)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}
