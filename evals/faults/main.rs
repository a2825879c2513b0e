//! Injects faults into runs of the shipped blueprints and checks the resulting documents.
//!
//! Exit codes: 0, all requirements are met; 1, one is not, or the output cannot be written; 2, the input is invalid.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::{Parser, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use patchboard_faults::campaign::{Campaign, Cell, Report};
use patchboard_faults::class::FaultClass;
use patchboard_faults::corpus::Corpus;
use patchboard_faults::stats::{Share, wilson};
use patchboard_faults::system::System;
use patchboard_faults::verdict::Verdict;
use patchboard_kernel::rejection_counts::RejectionCount;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Maximum bytes of a corpus file.
const CORPUS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum number of corpus files, and maximum directory depth.
const CORPUS_FILES_MAX: usize = 1000;
const CORPUS_DEPTH_MAX: usize = 4;

/// Inject faults into runs of the shipped blueprints, and count how many affect the shared document
///
/// Scripted workers do the tasks of three blueprints, and one of them fails. Its reply is not JSON, writes outside its
/// grant, is based on stale data, arrives twice, late or never, and so on. The same faults are injected into PatchBoard
/// and into two blackboards that check nothing. A separate judge, independent of contracts and schemas, examines the
/// final document: it must be a document that a fault-free run produces or passes through.
///
/// Time is virtual and everything is derived from --seed: the same command prints the same, byte for byte.
#[derive(Parser, Debug)]
#[command(
    name = "faults",
    after_help = "\
A false claim that a worker may write can only be caught by invariants and by workers who check others. The figure for it
counts false claims in the final document.

Exit code 1 if PatchBoard let a fault through (other than a false claim), stopped fewer loops than --min-halted, left a
board stuck, or if a write contract never rejected a proposal, so that it remains untested.

Examples:
  faults --n 200 --seed 1
  faults --n 50 --classes stale_read,cycle --systems patchboard
  faults --n 200 --lines faults.jsonl && jq -s 'map(select(.wrongs != []))' faults.jsonl
  faults --corpus texts/ --output json"
)]
struct Arguments {
    /// Number of faults of each class, for each system
    #[arg(long = "n", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    instances: u64,
    /// Random seed for everything
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Fault classes; no_fault counts the results of unmodified runs
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', value_parser = class, default_values_t = FaultClass::ALL.iter().copied())]
    classes: Vec<FaultClass>,
    /// Systems to inject into: patchboard, plain, structured
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',', value_parser = system, default_values_t = System::ALL.iter().copied())]
    systems: Vec<System>,
    /// More texts: JSON files of [{"input": "TEXT"}], malformed model output; of {"NAME": ["TEXT"]}, instructions to
    /// plant
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Also write a line of JSON for each fault into this file
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Minimum percentage of loops that a breaker must stop
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = percent)]
    min_halted: f64,
    /// Number of boards run concurrently [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Format of the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Format of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Format {
    /// Tables.
    #[default]
    Text,
    /// A line of JSON for each fault, and one for all.
    Json,
}

#[derive(Debug)]
enum Error {
    /// The requirements are not met, or the output cannot be written.
    Failed(String),
    Corpus(String),
}

fn class(name: &str) -> Result<FaultClass, String> {
    let all = || FaultClass::ALL.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
    FaultClass::from_name(name).ok_or_else(|| format!("there is no class of that name; there are {}", all()))
}

fn system(name: &str) -> Result<System, String> {
    let all = || System::ALL.iter().map(|system| system.as_str()).collect::<Vec<_>>().join(", ");
    System::from_name(name).ok_or_else(|| format!("there is no system of that name; there are {}", all()))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "a number from 0 to 100 is needed".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        Err(Error::Corpus(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let corpus = arguments.corpus.as_deref().map(read_corpus).transpose()?.unwrap_or_default();
    if arguments.corpus.is_some() {
        let (malformed, instructions) = corpus.len();
        eprintln!("corpus: {malformed} malformed texts, {instructions} instructions");
    }
    let mut lines = arguments.lines.as_deref().map(Lines::create).transpose()?;
    let threads = arguments.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let campaign = Campaign {
        instances: arguments.instances,
        seed: arguments.seed,
        classes: once_each(&arguments.classes),
        systems: once_each(&arguments.systems),
        corpus,
        threads,
    };
    let is_json = arguments.output == Format::Json;
    let bar = bar(&campaign, arguments.quiet);
    let mut failure = None;
    let report = campaign.run(PLANS, |verdict| {
        let line = verdict_json(verdict);
        let written = if is_json { print(&line) } else { Ok(()) };
        let written = written.and_then(|()| lines.as_mut().map_or(Ok(()), |lines| lines.add(&line)));
        failure = failure.take().or(written.err());
        bar.inc(1);
    });
    bar.finish_and_clear();
    if let Some(failure) = failure {
        return Err(failure);
    }
    if let Some(lines) = lines {
        lines.close()?;
    }
    let shortcomings = shortcomings(&report, arguments.min_halted, &campaign);
    if is_json {
        print(&summary(&report, &campaign, &shortcomings))?;
    } else {
        print(&rates(&report, &campaign))?;
        print(&format!("\nRejections by PatchBoard:\n\n{}", rejection_table(&report)))?;
    }
    if shortcomings.is_empty() {
        return Ok(());
    }
    let help = "`--lines FILE` writes the verdict on each fault";
    Err(Error::Failed(format!("faults were let through: {}\n  help: {help}", shortcomings.join("; "))))
}

fn print(line: &impl std::fmt::Display) -> Result<(), Error> {
    writeln!(io::stdout(), "{line}").map_err(|error| Error::Failed(format!("the result cannot be written: {error}")))
}

/// Formats rows under a header, in columns.
fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

fn once_each<T: Copy + Ord>(given: &[T]) -> Vec<T> {
    let mut all = given.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

fn bar(campaign: &Campaign, is_quiet: bool) -> ProgressBar {
    if is_quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} boards, {eta} left");
    ProgressBar::new(campaign.boards() as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn verdict_json(verdict: &Verdict) -> Value {
    let mut line = serde_json::to_value(verdict).unwrap_or_default();
    line["is_contaminated"] = verdict.is_contaminated().into();
    line
}

/// Formats the rates of each class and system as a table.
fn rates(report: &Report, campaign: &Campaign) -> String {
    let mut rows = Vec::new();
    for class in &campaign.classes {
        for system in &campaign.systems {
            let Some(cell) = report.cells.get(&(*class, *system)) else { continue };
            let share = |successes: usize| Share { successes, trials: cell.injected }.to_string();
            let first = Some(system) == campaign.systems.first();
            let name = if first { class.to_string() } else { String::new() };
            rows.push([name, system.to_string(), share(cell.contaminated), share(cell.halted), share(cell.done)]);
        }
    }
    table(["FAULT", "SYSTEM", "CONTAMINATED", "HALTED", "COMPLETED DESPITE FAULT"], rows)
}

/// Formats rejections by worker and stage as a table.
fn rejection_table(report: &Report) -> String {
    let all = report.denials.iter().flat_map(|(blueprint, denials)| denials.iter().map(move |one| (blueprint, one)));
    let rows = all.map(|(blueprint, one)| {
        let RejectionCount { worker, stage, code, count } = one;
        [(*blueprint).to_owned(), worker.to_string(), stage.to_string(), code.to_string(), count.to_string()]
    });
    table(["BLUEPRINT", "WORKER", "STAGE", "CODE", "TIMES"], rows)
}

/// Returns the requirements that PatchBoard did not meet.
fn shortcomings(report: &Report, min_halted: f64, campaign: &Campaign) -> Vec<String> {
    let mut all = Vec::new();
    for ((class, system), cell) in &report.cells {
        let Cell { injected: made, contaminated, halted, done, unreplayed } = *cell;
        if made < campaign.instances as usize {
            all.push(format!("only {made} faults of {class} could be made in {}", system.as_str()));
        }
        if unreplayed > 0 {
            all.push(format!("{unreplayed} journals of {class} do not make the same board again"));
        }
        if *system != System::Patchboard {
            continue;
        }
        if contaminated > 0 && *class != FaultClass::FalseClaim {
            all.push(format!("{contaminated} of {made} faults of {class} reached the document"));
        }
        // Boards without faults must finish, or the rates of the others are meaningless.
        if *class == FaultClass::NoFault && done < made {
            all.push(format!("only {done} of {made} tasks were done without a fault"));
        }
        let least = if *class == FaultClass::Cycle { min_halted } else { 100.0 };
        if (halted as f64) < made as f64 * least / 100.0 {
            all.push(format!("{halted} of {made} boards were halted under {class}, at least {least} % must be"));
        }
    }
    // A smaller sample may contain no fault for some workers.
    if campaign.classes.contains(&FaultClass::UnauthorizedWrite) && campaign.instances >= 100 {
        let idle = report.idle_contracts().into_iter().map(|(blueprint, worker)| format!("{worker} of {blueprint}"));
        let idle: Vec<String> = idle.collect();
        if !idle.is_empty() {
            all.push(format!("contracts that refused nothing: {}", idle.join(", ")));
        }
    }
    all
}

fn summary(report: &Report, campaign: &Campaign, shortcomings: &[String]) -> Value {
    let rates = report.cells.iter().map(|((class, system), cell)| {
        let interval =
            |successes: usize| wilson(successes, cell.injected).map(|interval| [interval.low, interval.high]);
        json!({
            "class": class.as_str(), "system": system.as_str(), "made": cell.injected,
            "contaminated": cell.contaminated, "contaminated_interval": interval(cell.contaminated),
            "halted": cell.halted, "halted_interval": interval(cell.halted),
            "done": cell.done, "done_interval": interval(cell.done),
        })
    });
    let denials: serde_json::Map<_, _> = report
        .denials
        .iter()
        .map(|(blueprint, denials)| ((*blueprint).to_owned(), json!(denials.iter().collect::<Vec<_>>())))
        .collect();
    json!({
        "seed": campaign.seed, "instances": campaign.instances, "rates": rates.collect::<Vec<_>>(), "denials": denials,
        "shortcomings": shortcomings,
    })
}

/// Output file of JSON lines.
struct Lines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Lines {
    fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    fn add(&mut self, value: &Value) -> Result<(), Error> {
        writeln!(self.file, "{value}").map_err(|error| unwritable(&self.path, &error))
    }

    fn close(mut self) -> Result<(), Error> {
        self.file.flush().map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::Failed(format!("{} cannot be written: {error}", path.display()))
}

/// Reads the corpus in a directory and below it.
fn read_corpus(directory: &Path) -> Result<Corpus, Error> {
    let unreadable = |path: &Path, why: &dyn std::fmt::Display| {
        let help = "give a directory of JSON files: [{\"input\": TEXT}], or {\"NAME\": [TEXT]}";
        Error::Corpus(format!("{} cannot be read: {why}\n  help: {help}", path.display()))
    };
    let mut corpus = Corpus::default();
    let mut files = 0;
    let mut left = vec![(directory.to_owned(), 0)];
    while let Some((path, depth)) = left.pop() {
        let entries = std::fs::read_dir(&path).map_err(|error| unreadable(&path, &error))?;
        let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort_unstable();
        for entry in entries {
            if entry.is_dir() && depth < CORPUS_DEPTH_MAX {
                left.push((entry, depth + 1));
            } else if entry.extension().is_some_and(|extension| extension == "json") && files < CORPUS_FILES_MAX {
                files += 1;
                let size = entry.metadata().map_err(|error| unreadable(&entry, &error))?.len();
                if size > CORPUS_BYTES_MAX {
                    return Err(unreadable(&entry, &format!("it has more than {CORPUS_BYTES_MAX} bytes")));
                }
                let text = std::fs::read_to_string(&entry).map_err(|error| unreadable(&entry, &error))?;
                let value: Value = serde_json::from_str(&text).map_err(|error| unreadable(&entry, &error))?;
                add_texts(&value, &mut corpus);
            }
        }
    }
    if corpus.is_empty() {
        return Err(unreadable(directory, &"it has no usable text"));
    }
    Ok(corpus)
}

fn add_texts(value: &Value, corpus: &mut Corpus) {
    for text in value.as_array().into_iter().flatten().filter_map(|one| one["input"].as_str()) {
        corpus.add_malformed(text);
    }
    let lists = value.as_object().into_iter().flatten().filter_map(|(_, list)| list.as_array());
    for text in lists.flatten().filter_map(Value::as_str) {
        corpus.add_instruction(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(instances: u64) -> Campaign {
        let (classes, systems) = (FaultClass::ALL.to_vec(), System::ALL.to_vec());
        Campaign { instances, seed: 1, classes, systems, corpus: Corpus::default(), threads: 1 }
    }

    #[test]
    fn shortcomings_of_a_campaign_are_named() {
        let good = Cell { injected: 10, contaminated: 0, halted: 10, done: 10, unreplayed: 0 };
        let found = |class, system, cell: Cell| {
            let report = Report { cells: [((class, system), cell)].into(), ..Report::default() };
            shortcomings(&report, 99.0, &campaign(10))
        };
        for &class in FaultClass::ALL {
            for &system in System::ALL {
                assert_eq!(found(class, system, good), Vec::<String>::new(), "{class} {system}");
            }
        }
        let bad = Cell { contaminated: 1, ..good };
        // False claims and blackboards are not held to the requirement.
        for (class, system, is_bad) in [
            (FaultClass::StaleRead, System::Patchboard, true),
            (FaultClass::FalseClaim, System::Patchboard, false),
            (FaultClass::StaleRead, System::Plain, false),
        ] {
            assert_eq!(found(class, system, bad).len(), usize::from(is_bad), "{class} {system}");
        }
        for (class, cell) in [
            (FaultClass::Cycle, Cell { halted: 9, ..good }),
            (FaultClass::AgentHang, Cell { halted: 9, ..good }),
            (FaultClass::NoFault, Cell { done: 9, ..good }),
            (FaultClass::Cycle, Cell { injected: 9, halted: 9, ..good }),
            (FaultClass::Oversized, Cell { unreplayed: 1, ..good }),
        ] {
            assert_eq!(found(class, System::Patchboard, cell).len(), 1, "{class} {cell:?}");
        }
    }

    #[test]
    fn a_contract_without_rejections_among_many_trespasses_is_a_shortcoming() {
        let report = Report { denials: [("stockroom", Default::default())].into(), ..Report::default() };
        assert_eq!(shortcomings(&report, 99.0, &campaign(99)), Vec::<String>::new(), "too few to tell");
        let found = shortcomings(&report, 99.0, &campaign(100));
        assert!(found.len() == 1 && found[0].contains("clerk of stockroom"), "{found:?}");
    }
}
