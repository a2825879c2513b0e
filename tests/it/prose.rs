//! Limits habits of wording in comments and documents; a limit may only fall.
//!
//! Comments (of sources, manifests, blueprints and scripts) and documents (`docs` and the pages beside it) are counted
//! apart, per 1,000 words. Well-kept crates of other projects have medians of 0.5, 0.2, 0.1, 0.1, 0, 0, 0 and 0 in this
//! order.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::tidy::{files, root, sources};

/// A habit with its pattern, and its maximum occurrences per 1,000 words: in comments, in documents.
const HABITS: [(&str, &str, f64, f64); 8] = [
    ("a line that opens with a relative pronoun", OPENING, 0.2, 0.4),
    ("somebody, nobody or something", r"\b(something|somebody|nobody)\b", 0.1, 0.2),
    ("whom, whose or whoever", r"\b(whom|whose|whoever|whomever)\b", 0.1, 0.2),
    ("tell", r"\b(told|tells|tell)\b", 0.1, 0.2),
    ("stand", r"\b(stands?|stood)\b", 0.1, 0.2),
    ("come to, of or about", r"\b(comes?|came|coming) (to|of|about)\b", 0.1, 0.1),
    ("anew, `none:`, of which", r"\banew\b|\bnone:|\bof (which|whom)\b", 0.1, 0.1),
    ("a line that opens with `The same`", r"(?m)^The same\b", 0.1, 0.1),
];

const OPENING: &str = r"(?m)^[-*#>| ]*(What|Whoever|Whom|Whose|Whether|Which|Where|Who|That)\b";

#[test]
fn comments_have_fewer_habits_than_their_limits() {
    let scripts = [".toml", ".yaml", ".py"].into_iter().flat_map(files).map(|path| comments(&path, "#"));
    let comments: Vec<String> = sources().iter().map(|path| comments(path, "//")).chain(scripts).collect();
    assert!(comments.len() > 300, "{} sources", comments.len());
    check("comments", &comments, |(_, _, comments, _)| comments);
}

#[test]
fn documents_have_fewer_habits_than_their_limits() {
    let pages = files(".md").into_iter().filter(|path| {
        let path = path.strip_prefix(root()).expect("a page of the workspace");
        path.starts_with("docs") || path.components().count() == 1
    });
    let texts: Vec<String> = pages.map(|path| read(&path)).collect();
    assert!(texts.len() > 100, "{} pages", texts.len());
    check("documents", &texts, |(_, _, _, documents)| documents);
}

#[test]
fn functions_are_named_by_nouns_or_verbs() {
    let odd = "(?:told|tells?|nobody|somebody|something|anew|whom|whose|whoever|stands?|stood)";
    let relative = "(?:who|whom|whose|whoever|what|whatever|where|which|that|whether)";
    let name = Regex::new(&format!(r"\bfn ({relative}_\w+|(?:\w+_)?{odd}(?:_\w+)?)\b")).expect("a pattern");
    let texts = sources().into_iter().map(|path| (read(&path), path));
    let found: Vec<String> = texts
        .flat_map(|(text, path)| {
            let named = |found: regex::Captures<'_>| format!("{}: {}", path.display(), &found[1]);
            name.captures_iter(&text).map(named).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "name these functions by what they do or return:\n{}", found.join("\n"));
}

fn check(what: &str, texts: &[String], limit: impl Fn((&str, &str, f64, f64)) -> f64) {
    let texts = texts.join("\n");
    let words = Regex::new(r"\w+").expect("a pattern").find_iter(&texts).count() as f64;
    let mut wrong = Vec::new();
    for habit in HABITS {
        let (name, pattern, ..) = habit;
        let found = Regex::new(pattern).expect("a pattern").find_iter(&texts).count();
        let (rate, limit) = (found as f64 * 1000.0 / words, limit(habit));
        println!("{what}: {name}: {rate:.2} per 1,000 words, at most {limit}");
        if rate > limit {
            wrong.push(format!("{name}: {rate:.2}, which is above {limit}: write it in other words"));
        }
    }
    assert!(wrong.is_empty(), "per 1,000 words of {what}:\n{}", wrong.join("\n"));
}

fn comments(path: &Path, mark: &str) -> String {
    let text = read(path);
    let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix(mark));
    let comments = comments.map(|line| line.strip_prefix(['/', '!']).unwrap_or(line));
    comments.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
