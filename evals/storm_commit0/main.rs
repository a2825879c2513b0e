//! Real libraries, restored by several engineers concurrently, with three ways to share a directory.
//!
//! The program downloads small Python libraries. A script removes the bodies of their functions, and the imports that
//! only these need. Engineers restore them, each with functions of its own. Conflicts arise in the heads of files, in
//! helpers that several engineers would write differently, and in a symbol that one renames while others use it. The
//! engineers are scripted and equal in every mode. They take turns in the worst order: all read, then all write. The
//! library's own tests judge the result.
//!
//! | mode | isolation |
//! |---|---|
//! | `storm`, `storm-file` | workspace that checks every edit against its author's read set, by lines or by files |
//! | `soft` | none: a shared directory, and every edit is written |
//! | `worktree` | a git worktree for each engineer, merged in sequence; conflicting work is redone after the merge |
//!
//! ```sh
//! cargo run --release -p patchboard-evals --bin storm_commit0
//! cargo run --release -p patchboard-evals --bin storm_commit0 -- --library tinydb --engineers 4 --mode soft --json
//! ```
//!
//! Requires `python3` with `venv`, `git`, and a package registry for `pip`; downloads are kept in `--cache`. Without
//! these it exits with 75. Exits with 1 if `storm` did not restore everything.

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

/// Exit code for missing requirements; a later run may succeed.
const UNAVAILABLE: u8 = 75;

/// Have libraries restored by several engineers concurrently
#[derive(Parser, Debug)]
struct Arguments {
    /// Libraries to restore [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["cachetools", "deprecated", "tinydb"])]
    library: Vec<String>,
    /// Ways to share the directory [default: all]
    #[arg(long, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Numbers of engineers
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=32))]
    engineers: Vec<u32>,
    /// Level of detail of a rejected edit's response
    #[arg(long, default_value = "diff", value_parser = ["diff", "full", "brief"])]
    presentation: String,
    /// Random seed for the order of turns
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
    /// Cache directory of downloads
    #[arg(long, value_name = "DIR", default_value = "target/tmp/storm_commit0")]
    cache: PathBuf,
    /// Directory in which to keep the result of each run
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
