//! Reads the command line of every benchmark.

use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
Usage: cargo bench -p patchboard-tests [--bench NAME] -- [OPTIONS] [FILTER]...

Measures what contains any FILTER in its name, such as commit/mix/10 KB; everything without one.

Options:
  --quick          Shorter, and the smaller sizes only: to see that it works
  --huge           100 MB, and 10 KB to compare with: takes minutes and several gigabytes of memory
  --json FILE      Append every row to FILE as a line of JSON
  --record LABEL   Replace the tables with this label in docs/performance.md
  --help           Print this
";

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Runs for a shorter time, and only the smaller sizes.
    pub quick: bool,
    /// Runs 100 MB, and 10 KB for comparison.
    pub huge: bool,
    /// File for the lines of JSON.
    pub json: Option<PathBuf>,
    /// Label of the tables to replace.
    pub record: Option<String>,
    /// Substrings of the names of cases to run.
    pub filters: Vec<String>,
}

impl Options {
    /// Reads the arguments of the process.
    ///
    /// # Errors
    /// Text to print instead of measuring, and true if it reports an invalid argument.
    pub(super) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, (String, bool)> {
        let mut options = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value =
                |name: &str| arguments.next().ok_or_else(|| (format!("error: {name} wants a value\n\n{HELP}"), true));
            match argument.as_str() {
                // Cargo passes this flag to every benchmark.
                "--bench" => {}
                "--quick" => options.quick = true,
                "--huge" => options.huge = true,
                "--json" => options.json = Some(value("--json")?.into()),
                "--record" => options.record = Some(value("--record")?),
                "--help" | "-h" => return Err((HELP.to_owned(), false)),
                unknown if unknown.starts_with('-') => {
                    return Err((format!("error: there is no option {unknown}\n\n{HELP}"), true));
                }
                filter => options.filters.push(filter.to_owned()),
            }
        }
        Ok(options)
    }

    /// Returns the sizes to measure, smallest first: a name and bytes of compact JSON.
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let all = [
            ("1 KB", 1_000),
            ("10 KB", 10_000),
            ("100 KB", 100_000),
            ("1 MB", 1_000_000),
            ("10 MB", 10_000_000),
            ("100 MB", 100_000_000),
        ];
        let is_wanted = |bytes: usize| match (self.huge, self.quick) {
            (true, _) => bytes == 100_000_000 || bytes == 10_000,
            (false, false) => bytes <= 10_000_000,
            (false, true) => bytes <= 100_000,
        };
        all.into_iter().filter(|(_, bytes)| is_wanted(*bytes)).collect()
    }

    /// Returns the duration of one comparison: `whole`, or a fifth of it if `quick`.
    pub fn time(&self, whole: Duration) -> Duration {
        if self.quick { whole / 5 } else { whole }
    }
}
