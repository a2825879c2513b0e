//! Writes results to stdout, progress and errors to stderr, without characters that control a terminal.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::{CliError, Failure};

pub(crate) use patchboard_server::text::{
    clean, escape_all, escape_invisible, escape_json, is_printable, json_line, json_pretty, one_line, short,
};

/// Format of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    Text,
    /// One JSON value, or one per line
    Json,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Set if progress output is suppressed.
    pub(crate) quiet: bool,
}

impl Output {
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Writes text to stdout. The caller has cleaned it; colours are removed if stdout is no terminal.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        write(anstream::stdout().lock(), &escape_invisible(text))
    }

    /// Writes a file's text to stdout: unchanged, unless stdout is a terminal.
    pub(crate) fn file(self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() { self.text(&clean(text)) } else { write(io::stdout().lock(), text) }
    }

    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Writes one JSON value on a line of its own to stdout.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        write(io::stdout().lock(), &(json_line(value) + "\n"))
    }

    /// Writes a value as JSON, or the text of it as a line.
    pub(crate) fn json_or_line(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.is_json() { self.json(value) } else { self.line(&text()) }
    }

    /// Writes entries: each as JSON, or all as a table. Notes `none` in place of an empty table.
    pub(crate) fn list<T: Serialize, const N: usize>(
        self,
        entries: &[T],
        none: &str,
        header: [&str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<(), Failure> {
        if self.is_json() {
            entries.iter().try_for_each(|entry| self.json(entry))
        } else if entries.is_empty() {
            self.note(none);
            Ok(())
        } else {
            self.line(&table(header, entries.iter().map(row)))
        }
    }

    /// Writes a line of progress to stderr, unless suppressed.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            // A failure to write progress must not stop the command.
            let _ = writeln!(anstream::stderr().lock(), "{}", escape_invisible(text));
        }
    }

    /// Writes the context of a following error to stderr.
    pub(crate) fn error_context(self, text: &str) {
        let _ = writeln!(anstream::stderr().lock(), "{}", escape_invisible(text));
    }

    pub(crate) fn error(self, error: &CliError) {
        use owo_colors::OwoColorize as _;
        let mut stderr = anstream::stderr().lock();
        let _ = if self.is_json() {
            writeln!(stderr, "{}", json_line(&error.json()))
        } else {
            let text = error.text();
            match text.split_once(": ") {
                Some((head, rest)) => write!(stderr, "{}: {rest}", head.red().bold()),
                None => write!(stderr, "{text}"),
            }
        };
    }

    /// With JSON output, prints a failure as the result of a check: `{"board", "ok": false, "code", "seq", "message",
    /// …}`. Returns the failure to report.
    pub(crate) fn result_of_failure(self, failure: Failure, board: &impl Serialize) -> Failure {
        let Failure::Error(error) = &failure else { return failure };
        if self.is_json()
            && let Err(write_failure) = self.json(&error.result(board))
        {
            return write_failure;
        }
        failure
    }
}

fn write(mut stdout: impl io::Write, text: &str) -> Result<(), Failure> {
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::writing(&error))
}

/// Formats rows under a header, in columns.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Checks that a file can be written by opening it; an existing file is not changed.
pub(crate) fn try_writing(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            drop(OpenOptions::new().write(true).create_new(true).open(path)?);
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}
