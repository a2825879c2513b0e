//! Results as tables in Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use patchboard_faults::stats::{self, Interval, Share};

use super::results::{Attempt, Run};

/// Random seed of bootstraps.
const SEED: u64 = 1;

/// Formats rows under a heading.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    let mut row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    row(&heading.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    row(&vec!["---".to_owned(); heading.len()]);
    rows.iter().for_each(|cells| row(cells));
    out
}

/// Heading of a column, and the function of its cells.
pub type Column<'c, R> = (&'c str, &'c dyn Fn(&R) -> String);

/// Formats a table of columns.
pub fn columns<R>(rows: &[R], columns: &[Column<'_, R>]) -> String {
    let heading: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let cells = |row: &R| columns.iter().map(|(_, cell)| cell(row)).collect();
    table(&heading, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Groups the runs by system.
pub fn by_system(runs: &[Run]) -> BTreeMap<&str, Vec<&Run>> {
    let mut systems = BTreeMap::<&str, Vec<&Run>>::new();
    for run in runs {
        systems.entry(&run.key.system).or_default().push(run);
    }
    systems
}

/// Formats a share: `12 of 60, 20.0 % (11.8 to 31.8)`.
pub fn share(successes: usize, of: usize) -> String {
    Share { successes, trials: of }.to_string()
}

/// Formats a mean: `1234 (1100 to 1400)`.
pub fn mean(values: &[f64], decimals: usize) -> String {
    match stats::bootstrap(values, SEED) {
        None => "–".to_owned(),
        Some(Interval { estimate, low, high }) => {
            format!("{estimate:.decimals$} ({low:.decimals$} to {high:.decimals$})")
        }
    }
}

/// Sums up a count.
pub fn sum(runs: &[&Run], measure: &str) -> usize {
    runs.iter().map(|run| run.measure(measure)).sum::<f64>() as usize
}

/// Formats the share of the runs for which `is_so` holds.
pub fn share_of(runs: &[&Run], is_so: impl Fn(&Run) -> bool) -> String {
    share(runs.iter().filter(|run| is_so(run)).count(), runs.len())
}

/// Formats the [`mean`] of a value of each run.
pub fn mean_of(runs: &[&Run], of: impl Fn(&Run) -> f64, decimals: usize) -> String {
    mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>(), decimals)
}

/// Compares each system with the first in a measure, paired by task and seed.
pub fn differences(runs: &[Run], first: &str, of: impl Fn(&Run) -> f64, decimals: usize) -> Vec<Vec<String>> {
    let systems = by_system(runs);
    let Some(ours) = systems.get(first) else { return Vec::new() };
    let mut rows = Vec::new();
    for (system, theirs) in systems.iter().filter(|(system, _)| **system != first) {
        let same = |run: &&&Run, other: &Run| run.key.task == other.key.task && run.key.seed == other.key.seed;
        let pairs: Vec<(f64, f64)> =
            theirs.iter().filter_map(|run| Some((of(run), of(ours.iter().find(|ours| same(ours, run))?)))).collect();
        let difference =
            stats::paired_bootstrap(&pairs, SEED).map_or("–".to_owned(), |Interval { estimate, low, high }| {
                format!("{estimate:+.decimals$} ({low:+.decimals$} to {high:+.decimals$})")
            });
        rows.push(vec![(*system).to_owned(), pairs.len().to_string(), difference]);
    }
    rows
}

/// Reports failed first attempts by system and reason. A reply that commits, passes or requests more data succeeds;
/// one that is rejected, changes nothing or is no reply at all fails.
pub fn first_attempts(runs: &[Run]) -> String {
    let failed = |attempt: &&Attempt| {
        !matches!(attempt.outcome.as_str(), "committed" | "passed" | "expanded" | "awaiting_approval")
    };
    let systems: Vec<(&str, Vec<&Attempt>)> = by_system(runs)
        .into_iter()
        .map(|(system, runs)| {
            let all = runs.into_iter().flat_map(|run| &run.attempts);
            (system, all.filter(|attempt| attempt.number == 1).collect())
        })
        .collect();
    let kind = |attempt: &Attempt| match (&attempt.code, attempt.outcome.as_str()) {
        (Some(code), _) => code.split('/').next().unwrap_or(code).to_owned(),
        (None, outcome) => outcome.to_owned(),
    };
    let kinds: BTreeSet<String> =
        systems.iter().flat_map(|(_, attempts)| attempts.iter().filter(|a| failed(a)).map(|a| kind(a))).collect();
    let mut heading = vec!["system", "first attempts that fail"];
    heading.extend(kinds.iter().map(String::as_str));
    heading.extend(["prompt tokens", "reply tokens", "of the prompt cached"]);
    let rows: Vec<Vec<String>> = systems
        .iter()
        .map(|(system, attempts)| {
            let failures: Vec<&Attempt> = attempts.iter().copied().filter(failed).collect();
            let mut row = vec![(*system).to_owned(), share(failures.len(), attempts.len())];
            row.extend(kinds.iter().map(|one| failures.iter().filter(|a| kind(a) == *one).count().to_string()));
            let of = |tokens: fn(&Attempt) -> u64| {
                mean(&attempts.iter().map(|attempt| tokens(attempt) as f64).collect::<Vec<_>>(), 0)
            };
            row.extend([of(|a| a.prompt), of(|a| a.completion), of(|a| a.cached)]);
            row
        })
        .collect();
    table(&heading, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_a_table() {
        let rows = [vec!["a|b\nc".to_owned(), share(1, 4)]];
        assert_eq!(table(&["x", "y"], &rows), "| x | y |\n| --- | --- |\n| a\\|b c | 1 of 4, 25.0 % (4.6 to 69.9) |\n");
        assert_eq!(mean(&[], 1), "–");
    }
}
