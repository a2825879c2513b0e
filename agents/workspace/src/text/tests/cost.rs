//! Adversarial texts: the cost grows with their length, not with its square.

use std::time::{Duration, Instant};

use super::{Draw, language};
use crate::text::edit::{EditCommand, apply};
use crate::text::hunks::{COMPARED_LINES_MAX, hunks};
use crate::text::intent::{Signature, annotate};

/// Time limit: linear work takes milliseconds, quadratic work would take minutes.
const TIME_MAX: Duration = Duration::from_secs(5);

fn within(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    assert!(start.elapsed() < TIME_MAX, "{what}: {:?}", start.elapsed());
}

#[test]
fn texts_with_little_in_common_are_compared_in_time() {
    let mut draw = Draw(1);
    for kinds in [2, 5, 50, 5_000] {
        let mut text = || (0..COMPARED_LINES_MAX / 2).map(|_| format!("{}\n", draw.below(kinds))).collect::<String>();
        let (old, new) = (text(), text());
        within(&format!("{kinds} kinds of lines"), || assert!(hunks(&old, &new).len() > 1));
    }
}

#[test]
fn texts_that_open_and_never_close_are_looked_at_in_time() {
    let pieces = [
        "<<a\n",
        "<<a <<b\n",
        "<pre>",
        "<pre></pre>\n",
        "<",
        "`${",
        "'",
        "\"",
        "/",
        "a/b",
        "(",
        "/*",
        "R\"(",
        "r#\"",
        "- a: |\n",
        "a: \"\n",
        "# bob: x\n",
        "a\n",
        "\n",
        "@a\n",
        "\\\n",
    ];
    for piece in pieces {
        let text = piece.repeat((64 << 10) / piece.len());
        let lines = u32::try_from(text.lines().count()).expect("a number");
        let blocks: Vec<_> = (1..=lines).rev().step_by(2).map(|at| (at, at)).collect();
        for file in ["a.py", "a.sh", "a.rs", "a.cpp", "a.js", "a.html", "a.md", "a.yaml", "a.rb"] {
            let signature = Signature { language: language(file), author: "bob", intent: "why", is_author: &|_| true };
            within(&format!("{piece:?} in {file}"), || drop(annotate(&text, &blocks, &signature)));
        }
        let missing = EditCommand::StrReplace { old_str: format!("{}?", piece.repeat(1_000)), new_str: String::new() };
        within(&format!("{piece:?} replaced"), || assert!(apply(&missing, &text).is_err()));
    }
}
