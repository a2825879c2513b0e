//! Formats rows as a table and as lines of JSON.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::record::record;
use super::sampler::{Stats, on_cpu};
use super::{Options, Side, interleave};

/// One benchmark under way.
pub struct Bench {
    /// Options of the run.
    pub options: Options,
    name: &'static str,
    rows: Vec<Row>,
    load_at_first: String,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    case: String,
    size: String,
    what: String,
    found: Found,
    ratio: Option<Ratio>,
    goal: Option<Goal>,
}

#[derive(Clone, Debug)]
struct Ratio {
    number: f64,
    with: String,
    /// Direction of the ratio: set if the other side is `number` times this one, and not the reverse.
    is_of_other: bool,
}

#[derive(Clone, Debug)]
enum Found {
    Time(Stats),
    Number(f64, &'static str),
    Skipped(String),
}

/// Goal of a row, and its result.
#[derive(Clone, Debug)]
pub struct Goal {
    text: String,
    reached: bool,
}

impl Goal {
    /// Returns a goal for a number that should be at least `goal`.
    pub fn at_least(goal: f64, found: f64, unit: &str) -> Self {
        Self { text: format!("≥ {}{unit}", number(goal)), reached: found >= goal }
    }

    /// Returns a goal for a number that should be at most `goal`.
    pub fn at_most(goal: f64, found: f64, unit: &str) -> Self {
        Self { text: format!("≤ {}{unit}", number(goal)), reached: found <= goal }
    }
}

impl Row {
    fn new(case: &str, size: &str, what: &str, found: Found) -> Self {
        Self { case: case.into(), size: size.into(), what: what.into(), found, ratio: None, goal: None }
    }

    /// Returns a row of samples.
    pub fn time(case: &str, size: &str, what: &str, stats: Stats) -> Self {
        Self::new(case, size, what, Found::Time(stats))
    }

    /// Returns a row of one number.
    pub fn number(case: &str, size: &str, what: &str, number: f64, unit: &'static str) -> Self {
        Self::new(case, size, what, Found::Number(number, unit))
    }

    /// Returns a row that says why the measurement was skipped.
    pub fn skipped(case: &str, size: &str, what: &str, why: impl Into<String>) -> Self {
        Self::new(case, size, what, Found::Skipped(why.into()))
    }

    /// Adds a comparison: this row is `ratio` times `with`.
    #[must_use]
    pub fn ratio(mut self, ratio: f64, with: &str) -> Self {
        self.ratio = Some(Ratio { number: ratio, with: with.to_owned(), is_of_other: false });
        self
    }

    /// Adds a comparison: `other` is `ratio` times this row.
    #[must_use]
    pub fn ratio_of(mut self, other: &str, ratio: f64) -> Self {
        self.ratio = Some(Ratio { number: ratio, with: other.to_owned(), is_of_other: true });
        self
    }

    /// Adds a goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Returns the cells, in the order of [`HEADINGS`].
    fn cells(&self) -> [String; 8] {
        let (count, middle, rare) = match &self.found {
            Found::Time(stats) => (stats.count.to_string(), time(stats.median), time(stats.p99)),
            Found::Number(found, unit) => (String::new(), format!("{}{unit}", number(*found)), String::new()),
            Found::Skipped(why) => (String::new(), format!("SKIPPED: {why}"), String::new()),
        };
        let ratio = self.ratio.as_ref().map(|ratio| match ratio.is_of_other {
            true => format!("{} is {}×", ratio.with, number(ratio.number)),
            false => format!("{}× {}", number(ratio.number), ratio.with),
        });
        let goal =
            self.goal.as_ref().map(|goal| format!("{} {}", goal.text, if goal.reached { "reached" } else { "MISSED" }));
        let [ratio, goal] = [ratio, goal].map(Option::unwrap_or_default);
        [self.case.clone(), self.size.clone(), self.what.clone(), count, middle, rare, ratio, goal]
    }

    fn json(&self, bench: &str) -> Value {
        let mut line = json!({"bench": bench, "case": self.case, "size": self.size, "what": self.what});
        match &self.found {
            Found::Time(stats) => {
                line["samples"] = stats.count.into();
                line["median_ns"] = json!(stats.median.as_secs_f64() * 1e9);
                line["p99_ns"] = json!(stats.p99.as_secs_f64() * 1e9);
                line["mean_ns"] = json!(stats.mean.as_secs_f64() * 1e9);
            }
            Found::Number(found, unit) => {
                line["number"] = json!(found);
                line["unit"] = json!(unit.trim());
            }
            Found::Skipped(why) => line["skipped"] = json!(why),
        }
        if let Some(ratio) = &self.ratio {
            line["ratio"] = json!(ratio.number);
            line[if ratio.is_of_other { "ratio_of" } else { "ratio_to" }] = json!(ratio.with);
        }
        if let Some(goal) = &self.goal {
            line["goal"] = json!(goal.text);
            line["reached"] = json!(goal.reached);
        }
        line
    }
}

const HEADINGS: [&str; 8] = ["case", "size", "what", "n", "median", "p99", "ratio", "goal"];

/// Runs one benchmark: reads the command line, measures, prints, and records if requested.
pub fn run(name: &'static str, measure: impl FnOnce(&mut Bench)) -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err((text, is_fault)) => {
            print_to_stderr_or_stdout(&text, is_fault);
            return if is_fault { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let mut bench = Bench { options, name, rows: Vec::new(), load_at_first: load() };
    measure(&mut bench);
    bench.finish()
}

fn print_to_stderr_or_stdout(text: &str, is_fault: bool) {
    if is_fault { eprint!("{text}") } else { print!("{text}") }
}

impl Bench {
    /// Returns true if this case should run: its whole name contains a filter.
    pub fn wants(&self, case: &str, size: &str) -> bool {
        let name = format!("{}/{case}/{size}", self.name);
        self.options.filters.is_empty() || self.options.filters.iter().any(|filter| name.contains(filter.as_str()))
    }

    /// Adds a row, and prints it at once, because measuring takes long.
    pub fn add(&mut self, row: Row) {
        let cells = row.cells();
        let said: Vec<_> = cells.iter().filter(|cell| !cell.is_empty()).map(String::as_str).collect();
        eprintln!("{}: {}", self.name, said.join(" | "));
        self.rows.push(row);
    }

    /// Takes samples of several sides in turns, for about `time`.
    pub fn interleave(&self, time: Duration, sides: &mut [Side<'_>]) -> Vec<super::Laps> {
        interleave(self.options.time(time), 5, sides)
    }

    fn finish(self) -> ExitCode {
        if self.rows.is_empty() {
            return ExitCode::SUCCESS;
        }
        let setting = self.setting();
        let table = table(&self.rows);
        println!("\n{}: {setting}\n\n{table}", self.name);
        let written = self.write_json().and_then(|()| match &self.options.record {
            Some(label) => {
                let name = if self.options.huge { format!("{} huge", self.name) } else { self.name.to_owned() };
                record(&name, label, &format!("{setting}\n\n{table}"))
            }
            None => Ok(()),
        });
        match written {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn write_json(&self) -> Result<(), String> {
        let Some(path) = &self.options.json else { return Ok(()) };
        let trouble = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(trouble)?;
        let setting = json!({"bench": self.name, "setting": self.setting()});
        let lines = self.rows.iter().map(|row| row.json(self.name));
        for line in std::iter::once(setting).chain(lines) {
            writeln!(file, "{line}").map_err(trouble)?;
        }
        Ok(())
    }

    /// Describes the machine and its load, without its name.
    fn setting(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let memory = memory_gib().map_or_else(String::new, |gib| format!("{gib} GiB of memory, "));
        let clock = (0..100).map(|_| on_cpu(|| ()).1).min().unwrap_or_default();
        format!(
            "{} {}, {cores} cores, {memory}load {} before and {} after; reading the clock takes {}{}.",
            std::env::consts::OS,
            std::env::consts::ARCH,
            self.load_at_first,
            load(),
            time(clock),
            if self.options.quick { "; --quick" } else { "" },
        )
    }
}

/// Returns the load average of the last minute; a dash if the system does not provide it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("-").to_owned()
}

fn memory_gib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 20)
}

/// Formats a table in Markdown that is also readable on a terminal.
fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<_> = (0..HEADINGS.len()).map(width).collect();
    let line = |cells: &[String; 8]| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        format!("| {} |", padded.join(" | ").trim_end())
    };
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = vec![line(&lines[0]), format!("| {} |", rule.join(" | "))];
    text.extend(lines[1..].iter().map(line));
    text.join("\n")
}

/// Pads by characters. The standard library's formatter also does, but here it is explicit.
fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.chars().count())))
}

/// Formats a time with three digits.
fn time(time: Duration) -> String {
    let nanos = time.as_secs_f64() * 1e9;
    let (scaled, unit) = match nanos {
        _ if nanos < 999.5 => (nanos, "ns"),
        _ if nanos < 999.5e3 => (nanos / 1e3, "µs"),
        _ if nanos < 999.5e6 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    format!("{} {unit}", number(scaled))
}

/// Formats a number with three digits, or all digits before the point, in groups of three.
fn number(number: f64) -> String {
    let size = number.abs();
    if size < 1.0 && size > 0.0 {
        return format!("{number:.2}");
    }
    if size < 10.0 && number.fract() != 0.0 {
        return format!("{number:.2}");
    }
    if size < 100.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{:.0}", size);
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0.0 { format!("-{grouped}") } else { grouped }
}

/// Formats a number of bytes with its unit.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1e3 => format!("{} B", number(bytes)),
        _ if bytes < 1e6 => format!("{} KB", number(bytes / 1e3)),
        _ => format!("{} MB", number(bytes / 1e6)),
    }
}
