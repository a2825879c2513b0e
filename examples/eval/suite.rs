//! The loop of an evaluation: every task by every system with every seed, once, with progress, from where it stopped.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use patchboard_agents::config::{Program, Structured};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::mode::{Component, Mode};
use serde_json::Value;

use super::play::{Origin, Played, Player, model};
use super::results::{Key, Results, Run};

/// What every evaluation is told.
#[derive(Args, Debug)]
pub struct Flags {
    /// The OpenAI-compatible server, like http://127.0.0.1:18080/v1
    #[arg(long, value_name = "URL")]
    pub model_url: String,
    /// The model's name there
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// Where results, journals and the report are kept; what is there already is not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How many tasks, from the first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub count: usize,
    /// The model's seeds
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_value = "1")]
    pub seeds: Vec<i64>,
    /// The model's temperature
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,
    /// Seconds after which a run is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub limit: u64,
    /// Print the report of what is there, and run nothing
    #[arg(long)]
    pub report: bool,
}

/// What an evaluation is told that compares systems.
#[derive(Args, Debug)]
pub struct Systems {
    /// What plays
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "patchboard")]
    pub systems: Vec<System>,
}

/// One run of an evaluation.
pub struct Play<'a> {
    /// What it is of.
    pub key: Key,
    /// What plays it.
    pub system: System,
    /// By which blueprint.
    pub origin: Origin<'a>,
    /// What the board is asked.
    pub request: Value,
    /// The program of the seat `environment`, if there is one.
    pub environment: Option<&'a Program>,
}

/// What all tasks of an evaluation are done with.
pub struct Subject<'a> {
    /// The shipped blueprint.
    pub blueprint: &'a Blueprint,
    /// The program of its seat `environment`, if it has one.
    pub environment: Option<&'a Program>,
    /// What a model is asked that is to write a blueprint for a task, in words; `None` if none can be written that would do.
    pub words: Option<&'a str>,
}

/// One task.
pub struct Task {
    /// Its name, unique in the evaluation.
    pub name: String,
    /// What the board is asked.
    pub request: Value,
}

/// Prints a report, or why there is none.
pub fn conclude(report: Result<String, Box<dyn Error>>) -> ExitCode {
    match report {
        Ok(report) => {
            // Whoever reads may have read enough.
            let _ = writeln!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What plays: how much of PatchBoard a board has, and what its replies are held to.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// All of it; replies are held to the form derived from contract and view
    Patchboard,
    /// All of it; replies are held to the generic form of a patch
    PatchboardGeneric,
    /// All of it; replies are held to nothing
    PatchboardFree,
    /// All of it, with a blueprint that the model writes for each task
    Generated,
    /// Replies are whole objects
    WithoutPatch,
    /// What a commit makes is not validated
    WithoutSchema,
    /// Workers may write everywhere
    WithoutContracts,
    /// Views show the whole document
    WithoutSlicing,
    /// Views do not show what was refused
    WithoutFeedback,
    /// A blackboard of messages
    Plain,
    /// A blackboard of JSON, unchecked
    Structured,
}

impl System {
    /// Its name on the command line and in results.
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

/// Has every task done by every system with every seed; all results.
///
/// # Errors
/// Files, a server that does not answer, or a system that cannot do these tasks.
pub async fn run(
    flags: &Flags,
    systems: &Systems,
    subject: &Subject<'_>,
    tasks: &[Task],
    measure: impl Fn(&Task, &Played) -> (Vec<(&'static str, f64)>, Value),
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

/// Plays what was not played yet; all results. With each play comes what it is measured by.
///
/// # Errors
/// Files, or a server that does not answer.
pub async fn play_all<T>(
    flags: &Flags,
    plays: &[(Play<'_>, T)],
    measure: impl Fn(&T, &Played) -> (Vec<(&'static str, f64)>, Value),
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
        let Played { board, end: (end, cause), seconds, attempts, is_invalid, .. } = played;
        let run = Run { key: key.clone(), board, end, cause, seconds, attempts, is_invalid, measures, shown };
        let told = format!(
            "{} by {}: {} ({}), {:.0} s, {} tokens",
            run.key.task,
            run.key.system,
            run.end,
            run.cause,
            run.seconds,
            run.tokens()
        );
        // A bar that nobody sees prints nothing.
        bar.suspend(|| eprintln!("{told}"));
        results.add(run)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}
