//! Extracts the command lines of `patchboard` from pages and help texts.

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

/// A command line, without the program name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Line {
    /// Page or command that contains the line.
    pub(crate) place: String,
    /// Words after `patchboard`.
    pub(crate) words: Vec<String>,
    /// True for a mention in a sentence, which may omit arguments.
    pub(crate) is_mention: bool,
}

/// Returns the root directory of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the daemon is a folder of the workspace").to_owned()
}

/// Returns the command lines of all pages. `commands` lists the command names, which identify mentions without
/// `patchboard`.
pub(crate) fn of_pages(commands: &[String]) -> Vec<Line> {
    let mut found = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(root().join(&path)).expect("a page is text");
        let place = path.display().to_string();
        match path.extension().is_some_and(|extension| extension == "yaml") {
            true => of_prose(&place, &comments(&text), commands, &mut found),
            false => of_page(&place, current(&path, &text), commands, &mut found),
        }
    }
    found
}

/// Returns the command lines of a help text.
pub(crate) fn of_help(place: &str, text: &str, commands: &[String]) -> Vec<Line> {
    let mut found = Vec::new();
    of_shell(place, &indented(text), &mut found);
    of_prose(place, text, commands, &mut found);
    found
}

/// Returns the pages and the blueprints; their comments mention commands.
fn pages() -> Vec<PathBuf> {
    let mut found = vec!["README.md".into(), "ARCHITECTURE.md".into(), "CHANGELOG.md".into()];
    for (folder, is_page) in [("docs", "md"), ("blueprints", "md"), ("blueprints", "yaml")] {
        below(Path::new(folder), is_page, &mut found);
    }
    found
}

fn below(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    for path in names.into_iter().map(|name| folder.join(name)) {
        match root().join(&path).is_dir() {
            true => below(&path, extension, found),
            false if path.extension().is_some_and(|it| it == extension) => found.push(path),
            false => {}
        }
    }
}

/// Returns the newest release of the changelog, and all of any other page.
fn current<'t>(path: &Path, text: &'t str) -> &'t str {
    let releases = text.match_indices("\n## ").map(|(at, _)| at).nth(1);
    match releases.filter(|_| path == Path::new("CHANGELOG.md")) {
        Some(end) => &text[..end],
        None => text,
    }
}

fn comments(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
    lines.map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Returns the indented lines of a help text, each without its second column.
fn indented(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(|line| line.split("   ").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn of_page(place: &str, text: &str, commands: &[String], found: &mut Vec<Line>) {
    let (mut prose, mut shell, mut fence) = (String::new(), String::new(), None);
    for line in text.lines() {
        let (is_fence, head) = (line.trim_start().starts_with("```"), line.trim_start().trim_start_matches('`'));
        match fence {
            None if is_fence => fence = Some(matches!(head, "sh" | "")),
            None => prose.extend([line, "\n"]),
            Some(_) if is_fence => fence = None,
            Some(true) => shell.extend([line, "\n"]),
            Some(false) => {}
        }
    }
    of_shell(place, &shell, found);
    of_prose(place, &prose, commands, found);
}

/// Adds the command lines of a shell script.
fn of_shell(place: &str, script: &str, found: &mut Vec<Line>) {
    for line in script.replace("\\\n", " ").lines() {
        for words in commands_of(line) {
            let mut words: &[String] = &words;
            while words.first().is_some_and(|word| word.contains('=') && !word.starts_with('-')) {
                words = &words[1..];
            }
            if let Some(rest) = of_patchboard(words) {
                found.push(Line { place: place.to_owned(), words: filled(rest), is_mention: false });
            }
        }
    }
}

/// Adds the texts between backticks in sentences.
fn of_prose(place: &str, prose: &str, commands: &[String], found: &mut Vec<Line>) {
    // A table row counts as a paragraph.
    let prose = prose.replace("\n|", "\n\n|").replace("\\|", "|");
    for paragraph in prose.split("\n\n") {
        let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        for code in paragraph.split('`').skip(1).step_by(2) {
            let words = commands_of(code).into_iter().next().unwrap_or_default();
            let names_one = words.first().is_some_and(|word| commands.contains(word));
            let goes_on = words.get(1).is_some_and(|word| word.starts_with("--") || is_placeholder(word));
            let rest = match of_patchboard(&words) {
                Some(rest) => rest,
                None if names_one && goes_on => &words,
                None => continue,
            };
            found.push(Line { place: place.to_owned(), words: filled(rest), is_mention: true });
        }
    }
}

fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '|')
}

/// Returns the words after the program name, `cargo run --`, or a container image.
fn of_patchboard(words: &[String]) -> Option<&[String]> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it == word);
    let begin = match words.first()?.as_str() {
        "patchboard" => 0,
        "cargo" if is(1, "run") && !words.iter().any(|word| word == "--package" || word == "--bin") => {
            words.iter().position(|word| word == "--")?
        }
        "docker" if is(1, "run") => words.iter().position(|word| word == "patchboard")?,
        _ => return None,
    };
    // An image without arguments runs its default command.
    words.get(begin + 1..).filter(|rest| !rest.is_empty())
}

/// Replaces placeholders with values.
fn filled(words: &[String]) -> Vec<String> {
    let words = words.iter().map(|word| word.trim_start_matches('[').trim_end_matches(']'));
    let words = words.filter(|word| !word.is_empty() && !word.starts_with("$PLAY"));
    let value = |word: &str| match word {
        "SEQ" => "7".to_owned(),
        "N" => "3".to_owned(),
        "CHARACTERS" => "3000".to_owned(),
        "AMOUNT" => "1.5".to_owned(),
        "TIME" => "10m".to_owned(),
        "$head" => "0".repeat(64),
        "(…)" => "…".to_owned(),
        other => other.to_owned(),
    };
    words.map(value).collect()
}

/// Splits a line into commands and words as a shell does, up to a comment or a redirection.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut rest = line.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None | Some('#' | '>' | '<') => break,
            Some('|' | ';' | '&') => {
                while rest.next_if(|c| "|;&".contains(*c)).is_some() {}
                commands.push(std::mem::take(&mut words));
            }
            Some(_) => words.push(word(&mut rest)),
        }
    }
    commands.push(words);
    commands
}

fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    let (mut word, mut quote) = (String::new(), None);
    while let Some(c) = rest.next_if(|c| quote.is_some() || !(c.is_whitespace() || *c == ';')) {
        match (c, quote) {
            ('\\', None | Some('"')) => word.extend(rest.next()),
            ('\'' | '"', None) => quote = Some(c),
            (_, Some(open)) if c == open => quote = None,
            _ => word.push(c),
        }
    }
    word
}
