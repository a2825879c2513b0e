//! Texts of workspace files, and a line-by-line parser of the texts that an agent receives.

use std::collections::BTreeMap;

use super::history::Line;

/// Line endings of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Form {
    pub(crate) has_crlf: bool,
    /// The last line has no line end.
    pub(crate) is_open: bool,
}

impl Form {
    /// Normalises the form for a number of lines: a file without any line end shows no kind of line end.
    pub(crate) const fn of(self, lines: usize) -> Self {
        let is_open = self.is_open && lines > 0;
        Self { has_crlf: self.has_crlf && lines > is_open as usize, is_open }
    }
}

/// Text and line endings of the files.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Texts of the lines that differ from the default text.
    says: BTreeMap<Line, String>,
    forms: BTreeMap<String, Form>,
}

impl Pages {
    /// Returns the text of a line. Lines of one file have distinct texts.
    pub(crate) fn says(&self, line: Line) -> String {
        self.says.get(&line).cloned().unwrap_or_else(|| format!("L{line};"))
    }

    pub(crate) fn say(&mut self, line: Line, text: String) {
        self.says.insert(line, text);
    }

    pub(crate) fn form(&self, path: &str) -> Form {
        self.forms.get(path).copied().unwrap_or_default()
    }

    pub(crate) fn set_form(&mut self, path: &str, form: Form) {
        self.forms.insert(path.to_owned(), form);
    }

    pub(crate) fn content(&self, lines: &[Line], form: Form) -> String {
        let end = if form.has_crlf { "\r\n" } else { "\n" };
        let mut text: String = lines.iter().flat_map(|line| [self.says(*line), end.to_owned()]).collect();
        if form.is_open {
            text.truncate(text.len().saturating_sub(end.len()));
        }
        text
    }

    /// Finds the line with this text.
    pub(crate) fn line(&self, among: &[Line], text: &str) -> Option<Line> {
        among.iter().copied().find(|line| self.says(*line) == text)
    }
}

/// Content of one file, as a text showed it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) numbered: Vec<(usize, String)>,
    /// Each hunk of a diff: number of the first new line, the new lines, and the deleted lines.
    pub(crate) parts: Vec<(usize, Vec<String>, Vec<String>)>,
    pub(crate) is_empty: bool,
}

/// Parses a text into the content it shows, by file. `of` is the file before the text names one.
pub(crate) fn heard(text: &str, of: Option<&str>) -> BTreeMap<String, Heard> {
    let mut heard: BTreeMap<String, Heard> = BTreeMap::new();
    let mut of = of.map(str::to_owned);
    let mut is_in_part = false;
    for line in text.lines() {
        let file = || of.as_ref().unwrap_or_else(|| panic!("{line} is of no file: {text}")).clone();
        if let Some(place) = line.strip_prefix("@@ ") {
            let newer = place.split_once('+').map_or("", |(_, newer)| newer);
            let first = newer.split([',', ' ']).next().and_then(|number| number.parse().ok()).expect("a number");
            heard.entry(file()).or_default().parts.push((first, Vec::new(), Vec::new()));
            is_in_part = true;
            continue;
        }
        if is_in_part && line.starts_with([' ', '+', '-']) {
            let (_, newer, gone) = heard.entry(file()).or_default().parts.last_mut().expect("it has begun");
            if line.starts_with('-') { &mut *gone } else { newer }.push(line[1..].to_owned());
            continue;
        }
        is_in_part &= line.starts_with('\\');
        if let Some((number, shown)) = line.trim_start().split_once('\t')
            && let Ok(number) = number.parse()
        {
            heard.entry(file()).or_default().numbered.push((number, shown.to_owned()));
            continue;
        }
        if let Some(comment) = annotation(line) {
            heard.entry(file()).or_default().numbered.push(comment);
            continue;
        }
        if line == "(the file is empty)" {
            heard.entry(file()).or_default().is_empty = true;
            continue;
        }
        let head = line.trim_start_matches("target: ").trim_start_matches("stale: ");
        let named = head.split([',', ' ']).next().unwrap_or_default();
        if named.starts_with("src/") {
            of = Some(named.to_owned());
        }
    }
    heard
}

/// Returns the line number and the text of an intent comment that a rejection quotes in prose.
fn annotation(line: &str) -> Option<(usize, String)> {
    let (number, rest) = line.strip_prefix("Line ")?.split_once(" says what ")?;
    let (author, rest) = rest.split_once(" wrote the block below for (")?;
    let (intent, _) = rest.split_once("), ")?;
    Some((number.parse().ok()?, format!("# {author}: {intent}")))
}
