//! Real libraries, restored by several engineers at once, in three ways to share a directory.
//!
//! A small Python library is fetched as its authors publish it, and a script takes the bodies out of its functions, and
//! with them the imports that nothing else needs. Engineers put them back: each has functions of its own, but they meet in
//! the heads of files, in helpers that several of them want and each would write in another way, and in a symbol that one
//! of them renames while others use it. They are scripted, the same in every mode, and take turns in the worst order: all
//! look, then all write. What comes of it is judged by the library's own tests.
//!
//! | mode | what keeps them apart |
//! |---|---|
//! | `storm`, `storm-file` | a workspace that checks every edit against what its author has read, by lines or by files |
//! | `soft` | nothing: the same directory, and everything is written |
//! | `worktree` | a git worktree for each, merged one after the other; what conflicts is done once more on what is merged |
//!
//! ```sh
//! cargo run --release -p patchboard-examples --bin storm_commit0
//! cargo run --release -p patchboard-examples --bin storm_commit0 -- --library tinydb --engineers 4 --mode soft --json
//! ```
//!
//! It needs `python3` with `venv`, `git`, and a package registry that `pip` reaches; what is fetched is kept in `--cache`.
//! Where they are missing it says so and ends with 75. It ends with 1 if `storm` did not restore everything.

mod engineer;
mod exercise;
mod library;
mod modes;
mod plan;
mod report;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::library::{Cache, Library, specs};
use crate::modes::{Mode, restore};
use crate::report::Row;

/// What is needed is not there; it may be another time.
const UNAVAILABLE: u8 = 75;

/// Have libraries restored by several engineers at once
#[derive(Parser, Debug)]
struct Arguments {
    /// Libraries to restore [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["cachetools", "deprecated", "tinydb"])]
    library: Vec<String>,
    /// Ways to share the directory [default: all]
    #[arg(long, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// How many engineers
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=32))]
    engineers: Vec<u32>,
    /// How much a refused edit is told
    #[arg(long, default_value = "diff", value_parser = ["diff", "full", "brief"])]
    presentation: String,
    /// What the order of turns is drawn from
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
    /// Where what is fetched is kept
    #[arg(long, value_name = "DIR", default_value = "target/tmp/storm_commit0")]
    cache: PathBuf,
    /// Where to keep what comes of each run
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("storm_commit0");
    let specs = specs();
    let wanted = |name: &String| arguments.library.is_empty() || arguments.library.contains(name);
    let libraries: Result<(Cache, Vec<Library>), Box<dyn Error>> =
        Cache::open(&arguments.cache, &scripts).and_then(|cache| {
            let of = specs.iter().filter(|(name, _)| wanted(name)).map(|(name, spec)| cache.library(name, spec));
            let libraries = of.collect::<Result<Vec<_>, _>>()?;
            Ok((cache, libraries))
        });
    let (cache, libraries) = match libraries {
        Ok(found) => found,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return Ok(ExitCode::from(UNAVAILABLE));
        }
    };
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    threads.block_on(run(&arguments, &cache, &libraries))
}

async fn run(arguments: &Arguments, cache: &Cache, libraries: &[Library]) -> Result<ExitCode, Box<dyn Error>> {
    let all = [Mode::Storm, Mode::StormFile, Mode::Soft, Mode::Worktree];
    let modes = if arguments.mode.is_empty() { &all[..] } else { &arguments.mode };
    let of = libraries.len() * modes.len() * arguments.engineers.len();
    let mut rows = Vec::new();
    for library in libraries {
        for mode in modes {
            for engineers in &arguments.engineers {
                let engineers = usize::try_from(*engineers)?;
                let begun = Instant::now();
                let outcome = restore(library, *mode, engineers, arguments.seed, &arguments.presentation).await?;
                let time = begun.elapsed();
                let verdict = cache.judge(outcome.directory.path(), &library.exercise.path)?;
                if let Some(keep) = &arguments.keep {
                    let name = format!("{}-{mode:?}-{engineers}", library.exercise.library);
                    library::copy(outcome.directory.path(), &keep.join(&name))?;
                    std::fs::write(keep.join(name + ".txt"), format!("{verdict:#?}"))?;
                }
                let row = Row::new(library, *mode, engineers, &outcome, &verdict, time);
                let (name, passed) = (&library.exercise.library, row.passed);
                eprintln!("{} of {of}: {name}, {mode:?} with {engineers}: {passed} pass; {time:.1?}", rows.len() + 1);
                rows.push(row);
            }
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
    } else {
        report::print(&rows);
    }
    let is_storm = |row: &&Row| matches!(row.mode, Mode::Storm | Mode::StormFile);
    let is_right = rows.iter().filter(is_storm).all(|row| row.passed == row.tests && row.left == 0);
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
