//! Results of runs, one JSON line each, so that an interrupted evaluation continues from them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Identity of a run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Question or game.
    pub task: String,
    /// System that played it.
    pub system: String,
    /// Seed of the model.
    pub seed: i64,
}

/// Result of one attempt of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Name of the worker.
    pub worker: String,
    /// Attempt number within its invocation, from 1; includes attempts lost to a conflict or a crash.
    pub number: u32,
    /// `committed`, `no_op`, `passed`, `expanded`, `rejected`, `failed`, `deferred` or `awaiting_approval`.
    pub outcome: String,
    /// Stage and code of a rejection, or the code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the reply.
    pub completion: u64,
    /// Tokens of the prompt that were cached.
    pub cached: u64,
}

/// Result of one run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Identity of the run.
    #[serde(flatten)]
    pub key: Key,
    /// Id of the board, in the journal beside the results.
    pub board: String,
    /// How the board ended; `timeout` if the run was abandoned.
    pub end: String,
    /// Cause of the end.
    pub cause: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// Attempts of language models, in the order of the journal.
    pub attempts: Vec<Attempt>,
    /// Set if the final document breaks the blueprint's schema or invariants.
    pub is_invalid: bool,
    /// Measures by name.
    pub measures: BTreeMap<String, f64>,
    /// Further data for readers of the results.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub shown: Value,
}

impl Run {
    /// Tokens of all attempts.
    pub fn tokens(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.prompt + attempt.completion).sum()
    }

    /// Formats a measure as a part of another: `2 of 3`.
    pub fn part(&self, part: &str, of: &str) -> String {
        format!("{} of {}", self.measure(part), self.measure(of))
    }

    /// Returns a measure; 0 if there is none of that name.
    pub fn measure(&self, name: &str) -> f64 {
        self.measures.get(name).copied().unwrap_or(0.0)
    }
}

/// The results of an evaluation.
pub struct Results {
    file: File,
    runs: Vec<Run>,
}

impl Results {
    /// Opens a file of results, and creates it if missing. A partially written last line is removed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut runs = Vec::new();
        let mut whole = 0;
        match File::open(path) {
            Ok(file) => {
                let mut reader = BufReader::new(file);
                let mut line = String::new();
                while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
                    let run = serde_json::from_str(&line)
                        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
                    runs.push(run);
                    whole += line.len() as u64;
                    line.clear();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(whole)?;
        Ok(Self { file, runs })
    }

    /// Returns all runs, in the order in which they ended.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns true if a run with this key has ended.
    pub fn has(&self, key: &Key) -> bool {
        self.runs.iter().any(|run| run.key == *key)
    }

    /// Adds a run, durably.
    pub fn add(&mut self, run: Run) -> io::Result<()> {
        let mut line = serde_json::to_string(&run)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.runs.push(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(task: &str) -> Run {
        let key = Key { task: task.into(), system: "s".into(), seed: 1 };
        let (board, end, cause) = ("b".into(), "done".into(), "done".into());
        let (attempts, measures, shown) = (Vec::new(), BTreeMap::new(), Value::Null);
        Run { key, board, end, cause, seconds: 1.5, attempts, is_invalid: false, measures, shown }
    }

    #[test]
    fn complete_results_are_kept_and_truncated_ones_run_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("runs.jsonl");
        let mut results = Results::open(&path).expect("made");
        results.add(run("one")).expect("written");
        results.add(run("two")).expect("written");
        drop(results);
        let text = std::fs::read_to_string(&path).expect("readable");
        std::fs::write(&path, &text[..text.len() - 5]).expect("cut");
        let mut results = Results::open(&path).expect("read");
        assert_eq!(results.runs(), [run("one")]);
        assert!(results.has(&run("one").key) && !results.has(&run("two").key));
        results.add(run("two")).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), text);
        std::fs::write(&path, "something else\n").expect("written");
        assert!(Results::open(&path).is_err());
    }
}
