//! `patchboard edit-stats`: reports statistics on edits of boards' files, and the results of the work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_kernel::tree::Node;
use patchboard_workspace::metrics::{self, Drift, EditCounts, Metrics, Symptom};
use serde_json::{Value, json};

use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, table};
use crate::reader::Reader;

const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Report statistics on edits of boards' files (made, rejected, conflicting), and the results of the work
///
/// REVIEWED counts the edits proposed to the board, MADE the accepted ones; ACCEPTANCE is MADE / REVIEWED, in percent.
/// CONFLICTS were rejected before anything was written, because another edit came first (`stale_target`, `stale_read`,
/// `reserved`). AGAIN counts edits of a file right after a rejection of the same author's edit of it. OVERLAP is the
/// percentage of files that more than one author tried to edit. Deleted lines that another author had written are
/// counted separately. For the tasks of the first round (`round: 1` in the document's /tasks, in the format of
/// blueprints/storm.yaml) it reports the percentage with a single file, and of those that share a file with another
/// task. It also reports the number of functions of each engineer (`functions_to_implement`). For engineers with tasks,
/// edits of files outside them (`file_path`, `also`) are counted. Changes that bypassed the workspace are attributed to
/// no author.
///
/// The score of a board is the share of tests that pass: from `--score`, else from `passed` and `failed` of the
/// document's /verdict. For several boards `score_w` is all passed tests / all tests, and `score` the mean of the
/// boards' shares, in percent. `cost_eff` is dollars per point of `score_w` (with --dollars), `tokens_eff` tokens per
/// point, `time_eff` minutes of recorded running time per point: lower is better.
///
/// With `--tests`, the output of a test program (pytest with its short summary, or unittest), failures are counted by
/// symptom: assertion, missing_symbol, contract, not_implemented, runtime. For a board that does not pass all tests,
/// possible causes are listed.
/// incomplete_api: symbols are missing or not implemented.
/// scope_drift: edits of files were accepted that /tasks of the document assigns to others or to no engineer.
/// budget_or_runtime: an attempt used all its model calls, or ran out of tokens or time, or a limit of the board was
/// reached.
/// same_file_overlap: edits of more than one author were accepted in one file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard edit-stats last
  patchboard edit-stats last --tests pytest.txt --dollars 1.25
  patchboard edit-stats 0199a 0199b --score 416/416 --score 180/185 --output json | jq '.score_w, .score'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// Further boards
    #[arg(value_name = "BOARD")]
    boards: Vec<String>,
    /// Tests that pass, of how many; may be repeated, one for each board in their order
    #[arg(long, value_name = "PASSED/TOTAL", value_parser = score)]
    score: Vec<Score>,
    /// Final output of a test program; may be repeated, one for each board in their order
    #[arg(long, value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Cost of the models for all these boards
    #[arg(long, value_name = "AMOUNT", value_parser = dollars)]
    dollars: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Score {
    passed: u64,
    total: u64,
}

impl Score {
    fn percent(self) -> f64 {
        100.0 * self.passed as f64 / self.total as f64
    }
}

fn score(text: &str) -> Result<Score, String> {
    let wrong = || "write tests that pass, of how many, like 180/185".to_owned();
    let (passed, total) = text.split_once('/').ok_or_else(wrong)?;
    let (passed, total) = (passed.parse().map_err(|_| wrong())?, total.parse().map_err(|_| wrong())?);
    if total == 0 || passed > total { Err(wrong()) } else { Ok(Score { passed, total }) }
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| "write an amount like 1.25".to_owned())
}

struct Row {
    board: String,
    metrics: Metrics,
    score: Option<Score>,
    symptoms: Option<BTreeMap<Symptom, u64>>,
    causes: Vec<&'static str>,
    drift: Vec<Drift>,
    /// Tasks of the first round, from the document's /tasks.
    tasks: Vec<Task>,
    tokens: u64,
    minutes: f64,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let names: Vec<&String> = [&arguments.board.board].into_iter().chain(&arguments.boards).collect();
    for (option, given) in [("--score", arguments.score.len()), ("--tests", arguments.tests.len())] {
        if given > 0 && given != names.len() {
            let message = format!("{option} is given {given} times, for {} boards", names.len());
            return Err(Failure::invalid_input("usage", message).help("give it once for each board, or not at all"));
        }
    }
    let rows = names.iter().enumerate().map(|(index, name)| {
        let (score, tests) = (arguments.score.get(index).copied(), arguments.tests.get(index));
        Row::load(&reader, name, score, tests.map(PathBuf::as_path))
    });
    let rows: Vec<Row> = rows.collect::<Result<_, Failure>>()?;
    let whole = BoardTotals::from_rows(&rows, arguments.dollars);
    if output.is_json() {
        output.json(&whole.json(&rows))?;
    } else {
        print(&rows, &whole, output)?;
    }
    Ok(Exit::Done)
}

impl Row {
    fn load(reader: &Reader, name: &str, score: Option<Score>, tests: Option<&Path>) -> Result<Self, Failure> {
        let summary = reader.find(name)?;
        let records = reader.records(&summary.id)?;
        let board = reader.board(&summary, None)?;
        let metrics = metrics::metrics(&records).map_err(|error| Failure::failed("bad_record", error.to_string()))?;
        let document = board.state().root();
        let score = score.or_else(|| verdict(document));
        let given = Task::all(document);
        let symptoms = tests.map(read).transpose()?.map(|text| metrics::of_output(&text));
        let is_whole =
            score.is_none_or(|score| score.passed == score.total) && symptoms.as_ref().is_none_or(BTreeMap::is_empty);
        let drift = metrics.drift(&scopes(&given));
        let causes = match is_whole {
            true => Vec::new(),
            false => {
                let ran_out = metrics::ran_out(&records, board.blueprint());
                causes(&metrics, symptoms.as_ref(), ran_out, !drift.is_empty())
            }
        };
        let (tokens, minutes) = (board.ledger().board().spent, board.running_ms() as f64 / 60_000.0);
        let tasks = given.into_iter().filter(|task| task.round == 1).collect();
        Ok(Self { board: summary.id.to_string(), metrics, score, symptoms, causes, drift, tasks, tokens, minutes })
    }

    /// Returns the percentage of first-round tasks that satisfy a predicate.
    fn tasks_that(&self, is: impl Fn(usize, &BTreeSet<String>) -> bool) -> Option<f64> {
        let all = self.tasks.len();
        let those = self.tasks.iter().enumerate().filter(|(index, task)| is(*index, &task.files)).count();
        (all > 0).then(|| percent(those as f64 / all as f64))
    }

    fn single_file(&self) -> Option<f64> {
        self.tasks_that(|_, files| files.len() == 1)
    }

    /// Counts edits of files that were not assigned to their author.
    fn drifted(&self) -> u64 {
        self.drift.iter().map(|drift| drift.edits).sum()
    }

    fn overlap(&self) -> Option<f64> {
        let shares = |index: usize, files: &BTreeSet<String>| {
            let mut others = self.tasks.iter().enumerate().filter(|(other, _)| *other != index);
            others.any(|(_, other)| !other.files.is_disjoint(files))
        };
        self.tasks_that(shares)
    }

    /// Returns the number of functions assigned to each engineer in the first round.
    fn shares(&self) -> BTreeMap<&str, usize> {
        let mut shares = BTreeMap::new();
        for task in &self.tasks {
            *shares.entry(task.engineer.as_str()).or_default() += task.functions;
        }
        shares
    }

    fn json(&self) -> Value {
        let Metrics { total, authors, external, tried, taken, taken_of_others, .. } = &self.metrics;
        let shared: Vec<&str> = self.metrics.shared().map(|path| path.as_str()).collect();
        let authors: BTreeMap<&String, Value> = authors.iter().map(|(name, edits)| (name, edits_json(edits))).collect();
        json!({
            "board": self.board,
            "edits": edits_json(total),
            "authors": authors,
            "external": external,
            "files": {"tried": tried.len(), "overlap": self.metrics.overlap().map(percent), "shared": shared},
            "lines": {"taken": taken, "of_others": taken_of_others},
            "tasks": {"first_round": self.tasks.len(), "single_file": self.single_file(), "overlap": self.overlap(),
                "functions": self.shares()},
            "drift": {"edits": self.drifted(), "files": self.drift},
            "score": self.score.map(|score| {
                json!({"passed": score.passed, "total": score.total, "percent": score.percent()})
            }),
            "symptoms": self.symptoms,
            "causes": self.causes,
            "tokens": self.tokens,
            "minutes": self.minutes,
        })
    }
}

struct Task {
    engineer: String,
    round: u64,
    files: BTreeSet<String>,
    functions: usize,
}

impl Task {
    /// Returns the tasks of a document, if it has tasks in the format of the shipped blueprint.
    fn all(document: &Node) -> Vec<Self> {
        let tasks = document.child("tasks").map(Node::to_value).unwrap_or_default();
        let read = |task: &Value| {
            let (engineer, file) = (task["engineer_id"].as_str()?.to_owned(), task["file_path"].as_str()?);
            let also = task["also"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let files = also.chain([file]).map(str::to_owned).collect();
            let functions = task["functions_to_implement"].as_array().map_or(0, Vec::len);
            Some(Self { engineer, round: task["round"].as_u64().unwrap_or(1), files, functions })
        };
        tasks.as_array().into_iter().flatten().filter_map(read).collect()
    }
}

fn percent(part: f64) -> f64 {
    100.0 * part
}

fn edits_json(edits: &EditCounts) -> Value {
    json!({
        "reviewed": edits.attempts,
        "made": edits.accepted,
        "acceptance": edits.acceptance().map(percent),
        "refused": edits.rejected,
        "conflicts": edits.conflicts(),
        "again": edits.retries,
    })
}

fn verdict(document: &Node) -> Option<Score> {
    let number = |name| document.child("verdict")?.child(name)?.to_value().as_u64();
    let (passed, failed) = (number("passed")?, number("failed")?);
    let total = passed.checked_add(failed).filter(|total| *total > 0)?;
    Some(Score { passed, total })
}

fn scopes(tasks: &[Task]) -> BTreeMap<String, BTreeSet<String>> {
    let mut scopes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for task in tasks {
        scopes.entry(task.engineer.clone()).or_default().extend(task.files.iter().cloned());
    }
    scopes
}

fn causes(
    metrics: &Metrics,
    symptoms: Option<&BTreeMap<Symptom, u64>>,
    ran_out: bool,
    has_drifted: bool,
) -> Vec<&'static str> {
    let is_incomplete = symptoms.is_some_and(|symptoms| {
        symptoms.contains_key(&Symptom::MissingSymbol) || symptoms.contains_key(&Symptom::NotImplemented)
    });
    let found = [
        ("incomplete_api", is_incomplete),
        ("scope_drift", has_drifted),
        ("budget_or_runtime", ran_out),
        ("same_file_overlap", metrics.shared().next().is_some()),
    ];
    found.into_iter().filter(|(_, is)| *is).map(|(cause, _)| cause).collect()
}

/// Reads the output of a test program, up to [`OUTPUT_BYTES_MAX`].
fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let shown = one_line(&path.display().to_string());
    let failed = |error| Failure::invalid_input("document_unreadable", format!("{shown} cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Totals over all boards. The scores are `None` if any board has no score.
struct BoardTotals {
    weighted: Option<f64>,
    mean: Option<f64>,
    dollars: Option<f64>,
    tokens: u64,
    minutes: f64,
}

impl BoardTotals {
    fn from_rows(rows: &[Row], dollars: Option<f64>) -> Self {
        let scores: Option<Vec<Score>> = rows.iter().map(|row| row.score).collect();
        let weighted = scores.as_ref().map(|scores| {
            let sum = |of: fn(&Score) -> u64| scores.iter().map(of).sum();
            Score { passed: sum(|score| score.passed), total: sum(|score| score.total) }.percent()
        });
        let mean = scores.map(|scores| scores.iter().map(|score| score.percent()).sum::<f64>() / scores.len() as f64);
        let (tokens, minutes) = (rows.iter().map(|row| row.tokens).sum(), rows.iter().map(|row| row.minutes).sum());
        Self { weighted, mean, dollars, tokens, minutes }
    }

    /// Returns an amount per point; `None` if there are no points.
    fn by_point(&self, amount: f64) -> Option<f64> {
        self.weighted.filter(|points| *points > 0.0).map(|points| amount / points)
    }

    fn json(&self, rows: &[Row]) -> Value {
        json!({
            "boards": rows.iter().map(Row::json).collect::<Vec<_>>(),
            "score_w": self.weighted,
            "score": self.mean,
            "cost_eff": self.dollars.and_then(|dollars| self.by_point(dollars)),
            "tokens_eff": self.by_point(self.tokens as f64),
            "time_eff": self.by_point(self.minutes),
        })
    }
}

fn print(rows: &[Row], whole: &BoardTotals, output: Output) -> Result<(), Failure> {
    const HEADER: [&str; 7] = ["AUTHOR", "REVIEWED", "MADE", "ACCEPTANCE", "CONFLICTS", "AGAIN", "REFUSED"];
    for row in rows {
        let Metrics { total, authors, external, tried, taken, taken_of_others, .. } = &row.metrics;
        if rows.len() > 1 {
            output.line(&format!("board {}", row.board))?;
        }
        let all = authors.iter().map(|(name, edits)| cells(name, edits)).chain([cells("all", total)]);
        output.line(&table(HEADER, all))?;
        let overlap = row.metrics.overlap().map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", percent(part)));
        let shared: Vec<String> = row.metrics.shared().map(|path| one_line(path.as_str())).collect();
        let shared = if shared.is_empty() { String::new() } else { format!("; several edited {}", shared.join(", ")) };
        output.line(&format!("files: {} tried, overlap {overlap}{shared}", tried.len()))?;
        output.line(&format!("lines: {taken} taken away, {taken_of_others} of them another author's"))?;
        if let Some((single, overlap)) = row.single_file().zip(row.overlap()) {
            let count = row.tasks.len();
            let rates = format!("{single:.1} % of a single file, {overlap:.1} % share a file with another");
            let shares: Vec<String> =
                row.shares().iter().map(|(name, count)| format!("{count} of {}", one_line(name))).collect();
            output.line(&format!("tasks of the first round: {count}, {rates}; functions: {}", shares.join(", ")))?;
        }
        if !row.drift.is_empty() {
            let of = |Drift { author, path, edits }: &Drift| one_line(&format!("{edits} of {path} by {author}"));
            let listed: Vec<String> = row.drift.iter().map(of).collect();
            output.line(&format!("edits outside of their authors' tasks: {}; {}", row.drifted(), listed.join(", ")))?;
        }
        output.line(&format!("around the workspace: {external} edits"))?;
        if let Some(score) = row.score {
            output.line(&format!("tests: {} of {} pass ({:.1} %)", score.passed, score.total, score.percent()))?;
        }
        if let Some(symptoms) = &row.symptoms {
            let listed: Vec<String> = symptoms.iter().map(|(symptom, count)| format!("{count} {symptom}")).collect();
            let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
            output.line(&format!("failures: {listed}"))?;
        }
        if !row.causes.is_empty() {
            output.line(&format!("possible causes: {}", row.causes.join(", ")))?;
        }
    }
    let mut efficiency = Vec::new();
    let by_point = |amount, unit| whole.by_point(amount).map(|amount| format!("{amount:.2} {unit} by point"));
    efficiency.extend(
        whole.weighted.zip(whole.mean).map(|(weighted, mean)| format!("score_w {weighted:.1} %, score {mean:.1} %")),
    );
    efficiency.extend(whole.dollars.and_then(|dollars| by_point(dollars, "dollars")));
    efficiency.extend(by_point(whole.tokens as f64, "tokens"));
    efficiency.extend(by_point(whole.minutes, "minutes"));
    if !efficiency.is_empty() {
        output.line(&efficiency.join(", "))?;
    }
    Ok(())
}

fn cells(name: &str, edits: &EditCounts) -> [String; 7] {
    let acceptance = edits.acceptance().map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", percent(part)));
    let refused: Vec<String> = edits.rejected.iter().map(|(code, count)| format!("{count} {code}")).collect();
    [
        one_line(name),
        edits.attempts.to_string(),
        edits.accepted.to_string(),
        acceptance,
        edits.conflicts().to_string(),
        edits.retries.to_string(),
        refused.join(", "),
    ]
}
