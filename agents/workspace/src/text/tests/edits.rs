//! Edits, hunks, excerpts, differences and searches.

use std::process::Command;

use patchboard_kernel::files::{FilePath, Hunk, LineShift, count, cover};
use proptest::prelude::*;

use super::apply::{HunkError, apply_hunks, reverse_hunks};
use super::{path, report};
use crate::text::diff::unified;
use crate::text::edit::{EditCode, EditCommand, apply};
use crate::text::hunks::{COMPARED_LINES_MAX, blocks, carry_insertion, hunks, span};
use crate::text::search::{Pattern, Search, SearchLimits, SearchResult};
use crate::text::snippet::{LINE_CHARS_MAX, snippet, whole};

fn replace(text: &str, old: &str, new: &str) -> Result<String, EditCode> {
    let edit = EditCommand::StrReplace { old_str: old.to_owned(), new_str: new.to_owned() };
    apply(&edit, text).map(|edited| edited.text).map_err(|error| error.code)
}

fn insert(text: &str, line: u32, new: &str) -> Result<String, EditCode> {
    let edit = EditCommand::Insert { insert_line: line, insert_text: new.to_owned() };
    apply(&edit, text).map(|edited| edited.text).map_err(|error| error.code)
}

#[test]
fn a_piece_is_replaced_if_it_is_there_exactly_once_and_line_ends_stay() {
    let ok = |text: &str| Ok(text.to_owned());
    let cases = [
        ("a\nb\nc\n", "b", "B", ok("a\nB\nc\n")),
        ("a\nb\nc", "b\nc", "x", ok("a\nx")),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", ok("x\r\ny\r\nz\r\nc\r\n")),
        ("a\r\nb\r\nc", "b", "x\ny", ok("a\r\nx\r\ny\r\nc")),
        ("a\r\nb\r\n", "\nb", "\nc", ok("a\r\nc\r\n")),
        ("a\r\nb\r\n", "a\r\nb\r\n", "", ok("")),
        ("a\nb\nc\n", "a\r\nb", "x\r\ny", ok("x\ny\nc\n")),
        ("a\nb\n", "a", "x\r\ny", ok("x\ny\nb\n")),
        ("a\na\na\n", "a\r\na\r\n", "x", Err(EditCode::SeveralMatches)),
        // The text has no line end to follow.
        ("a", "a", "x\r\ny", ok("x\r\ny")),
        ("é\r\nü\r\nü", "é\nü\n", "x\n", ok("x\r\nü")),
        ("a\nb\n", "c", "x", Err(EditCode::NoMatch)),
        ("a\na\n", "a", "x", Err(EditCode::SeveralMatches)),
        ("aaa\n", "aa", "x", Err(EditCode::SeveralMatches)),
        ("a\r\na\r\na\r\n", "a\na\n", "x\n", Err(EditCode::SeveralMatches)),
        ("a\n", "", "x", Err(EditCode::EmptyOldStr)),
        ("a\n", "a", "a", Err(EditCode::NoChange)),
    ];
    for (text, old, new, expected) in cases {
        assert_eq!(replace(text, old, new), expected, "{text:?} {old:?} {new:?}");
    }
}

#[test]
fn a_text_that_comes_in_the_place_of_another_keeps_its_line_ends() {
    let cases = [
        ("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n"),
        ("a\r\nb\r\n", "x\r\ny\r\n", "x\r\ny\r\n"),
        ("a\nb\n", "x\ny\n", "x\ny\n"),
        // The author's line ends are kept: the old text has no CRLF to follow.
        ("a\nb\n", "x\r\ny\n", "x\r\ny\n"),
        ("", "x\r\n", "x\r\n"),
        ("", "x\n", "x\n"),
    ];
    for (text, new, expected) in cases {
        let edited = apply(&EditCommand::Create { file_text: new.to_owned() }, text).expect("an edit");
        assert_eq!(edited.text, expected, "{text:?} {new:?}");
    }
}

#[test]
fn lines_are_inserted_behind_a_line_and_a_missing_end_stays_missing() {
    let ok = |text: &str| Ok(text.to_owned());
    let cases = [
        ("a\nb\n", 0, "x\n", ok("x\na\nb\n")),
        ("a\nb\n", 1, "x", ok("a\nx\nb\n")),
        ("a\nb\n", 2, "x\n", ok("a\nb\nx\n")),
        ("a\nb", 2, "x\n", ok("a\nb\nx")),
        ("a\nb", 2, "x", ok("a\nb\nx")),
        ("a\r\nb\r\n", 1, "x\ny", ok("a\r\nx\r\ny\r\nb\r\n")),
        ("a\nb\n", 1, "x\r\ny\r\n", ok("a\nx\ny\nb\n")),
        ("", 0, "x", ok("x\n")),
        ("a\n", 2, "x\n", Err(EditCode::NoSuchLine)),
        ("a\n", 1, "", Err(EditCode::NoChange)),
    ];
    for (text, line, new, expected) in cases {
        assert_eq!(insert(text, line, new), expected, "{text:?} {line} {new:?}");
    }
}

#[test]
fn a_rejection_shows_near_and_multiple_matches() {
    let text = "def f(x):\n    return x\n\n\ndef g(y):\n    if y:\n        return y + 1\n    return 0\n";
    let refused = |old: &str| {
        let edit = EditCommand::StrReplace { old_str: old.to_owned(), new_str: "z".to_owned() };
        apply(&edit, text).expect_err("refused")
    };
    let spaces = refused("if y:\n    return y + 1");
    assert_eq!((spaces.code, spaces.lines.as_slice()), (EditCode::NoMatch, [6, 7].as_slice()));
    assert!(spaces.message.contains("white space only") && spaces.message.contains("     7\t        return y + 1\n"));
    let typo = refused("retrn y + 1");
    assert_eq!((typo.code, typo.lines.as_slice()), (EditCode::NoMatch, [7].as_slice()), "{typo}");
    let nothing = refused("~~~~~~~~");
    assert_eq!((nothing.code, nothing.lines.len()), (EditCode::NoMatch, 0));
    let several = refused("return");
    assert_eq!((several.code, several.lines.as_slice()), (EditCode::SeveralMatches, [2, 7, 8].as_slice()));
    assert!(several.message.contains("in lines 2, 7, 8."), "{several}");
    let in_one = EditCommand::StrReplace { old_str: "a".to_owned(), new_str: String::new() };
    assert!(apply(&in_one, "aaa\n").expect_err("refused").message.contains("in line 1."));
}

#[test]
fn an_edit_of_one_piece_is_one_hunk_of_the_lines_that_differ() {
    let text = "a\nb\nc\nd\n";
    let edit = EditCommand::StrReplace { old_str: "a\nb\nc".to_owned(), new_str: "a\nB\nc".to_owned() };
    let edited = apply(&edit, text).expect("made");
    assert_eq!(edited.hunks, [Hunk { at: 2, was: "b\n".to_owned(), now: "B\n".to_owned() }]);
    let edited = apply(&EditCommand::Create { file_text: "x\na\nb\nc\nD\n".to_owned() }, text).expect("made");
    assert_eq!(edited.hunks.len(), 2, "a whole text is compared line by line: {:?}", edited.hunks);
    assert_eq!(blocks(&edited.hunks), [(1, 1), (5, 5)]);
    let gone = apply(&EditCommand::Delete, text).expect("made");
    assert_eq!(gone.hunks, [Hunk { at: 1, was: text.to_owned(), now: String::new() }]);
}

#[test]
fn hunks_of_another_text_are_rejected() {
    let hunk = |at, was: &str, now: &str| Hunk { at, was: was.to_owned(), now: now.to_owned() };
    let text = "a\nb\nc";
    let cases = [
        (vec![hunk(0, "", "x\n")], HunkError::Place(0)),
        (vec![hunk(5, "", "x\n")], HunkError::Place(5)),
        (vec![hunk(2, "b\n", ""), hunk(1, "a\n", "")], HunkError::Place(1)),
        (vec![hunk(2, "c", "")], HunkError::Other(2)),
        (vec![hunk(3, "c\n", "")], HunkError::Other(3)),
        (vec![hunk(4, "", "d\n")], HunkError::Joined(4)),
        (vec![hunk(1, "a\n", "x")], HunkError::Joined(2)),
    ];
    for (hunks, expected) in cases {
        assert_eq!(apply_hunks(text, &hunks), Err(expected), "{hunks:?}");
    }
}

#[test]
fn texts_too_large_to_compare_become_one_hunk() {
    let lines =
        |word: &str| (0..COMPARED_LINES_MAX / 2 + 1).map(|at| format!("{word} {}\n", at % 7)).collect::<String>();
    let (old, new) = (lines("old") + "same\n", lines("new") + "same\n");
    let hunks = hunks(&old, &new);
    assert_eq!(hunks.len(), 1);
    assert_eq!(apply_hunks(&old, &hunks), Ok(new));
}

#[test]
fn an_insertion_goes_where_its_line_went() {
    let step = |at, removed, added| LineShift { at, removed, added };
    let edits = [vec![step(1, 0, 3)], vec![step(10, 1, 1)]];
    let carried = |line| carry_insertion(line, edits.iter().map(Vec::as_slice));
    assert_eq!(carried(0), Some(0), "the beginning stays the beginning");
    assert_eq!(carried(1), Some(4));
    assert_eq!(carried(7), None, "the line was changed");
    assert_eq!(carried(8), Some(11));
}

#[test]
fn an_excerpt_says_what_it_does_not_show_and_counts_only_whole_lines_as_shown() {
    let long = "x".repeat(LINE_CHARS_MAX + 5);
    let text = format!("a\n{long}\r\nc\nd\te\nf");
    let all = whole(&text, 10_000);
    assert!(all.text.contains("[cut: 5 more characters]") && all.text.contains("     4\td\te\n"), "{}", all.text);
    assert!(all.text.ends_with("     5\tf\n[no newline at the end of the file]\n"), "{}", all.text);
    assert_eq!((all.shown.as_slice(), all.is_whole), ([(1, 1), (3, 5)].as_slice(), false));
    let part = snippet(&text, &[(4, 4)], 1, 10_000);
    let expected =
        "[lines 1-2 are not shown]\n     3\tc\n     4\td\te\n     5\tf\n[no newline at the end of the file]\n";
    assert_eq!((part.text.as_str(), part.shown.as_slice()), (expected, [(3, 5)].as_slice()));
    let little = whole("a\nb\nc\nd\n", 40);
    assert_eq!(little.text, "     1\ta\n[lines 2-4 are not shown]\n");
    assert_eq!(little.shown, [(1, 1)]);
    assert!(whole("", 100).is_whole);
}

/// Searches texts; returns the matches, and per text searched the ranges of lines shown in full.
fn searched(
    pattern: &str,
    is_regex: bool,
    texts: &[(&FilePath, &str)],
    limits: SearchLimits,
) -> (SearchResult, Vec<Vec<(u32, u32)>>) {
    let pattern = Pattern::new(pattern, is_regex).expect("a pattern");
    let mut search = Search::new(&pattern, limits);
    let mut shown = Vec::new();
    for (path, text) in texts {
        if search.is_over() {
            break;
        }
        shown.push(search.search_file(path, text));
    }
    (search.found(texts.len() - shown.len()), shown)
}

#[test]
fn a_search_shows_what_fits_and_counts_the_rest() {
    let (a, b) = (path("a.py"), path("b/c.py"));
    let texts = [(&a, "def f():\n  pass\ndef g():\n"), (&b, "x = 'def'\n")];
    let limits = SearchLimits::default();
    let (found, shown) = searched("def ", false, &texts, limits);
    assert_eq!(found.text, "a.py\n     1\tdef f():\n     3\tdef g():\n");
    assert_eq!(shown, [vec![(1, 1), (3, 3)], Vec::new()]);
    let (found, _) = searched("^x|d.f", true, &texts, SearchLimits { matches: 2, ..limits });
    assert_eq!((found.matches, found.files), (3, 2));
    assert!(found.text.ends_with("[1 of 3 matching lines is not shown; narrow the pattern or the folder]\n"));
    for (pattern, is_regex) in [("", false), ("(", true), ("(?=a)", true), ("(a{1000}){1000}", true)] {
        let error = Pattern::new(pattern, is_regex).expect_err("no pattern");
        assert_eq!(error.code, EditCode::BadPattern, "{pattern}");
    }
    assert!(searched("a.*(", false, &texts, limits).0.text.starts_with("No line matches."));
}

#[test]
fn a_search_says_where_it_stopped() {
    let names: Vec<FilePath> = (0..5).map(|file| path(&format!("{file}.py"))).collect();
    let texts: Vec<_> = names.iter().map(|name| (name, "def f():\n")).collect();
    let (found, shown) = searched("def", false, &texts, SearchLimits { bytes: 20, ..SearchLimits::default() });
    assert_eq!((found.matches, shown.len()), (3, 3), "it looks through the text that it has begun");
    assert!(found.text.contains("[2 more files were not looked through"), "{}", found.text);
    let little = SearchLimits { chars: 250, matches: 1, bytes: 20 };
    let (found, _) = searched("def", false, &texts, little);
    assert!(found.text.contains("[2 of 3 matching") && found.text.contains("[2 more files"), "{}", found.text);
    assert!(found.text.chars().count() <= little.chars, "{}", found.text.len());
}

/// Generates texts of few different lines, so that many are equal.
fn texts() -> impl Strategy<Value = String> {
    let line = prop_oneof![Just(""), Just("a"), Just("b"), Just("    c"), Just("d\r"), Just("- e")];
    (proptest::collection::vec(line, 0..30), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended && !lines.is_empty() {
            text.push('\n');
        }
        text
    })
}

proptest! {
    #[test]
    fn hunks_lead_from_one_text_to_the_other_and_back(old in texts(), new in texts()) {
        for hunks in [hunks(&old, &new), span(&old, &new).into_iter().collect()] {
            prop_assert_eq!(apply_hunks(&old, &hunks), Ok(new.clone()));
            prop_assert_eq!(apply_hunks(&new, &reverse_hunks(&hunks)), Ok(old.clone()));
            prop_assert_eq!(hunks.is_empty(), old == new);
            for pair in hunks.windows(2) {
                prop_assert!(pair[0].at + count(&pair[0].was) < pair[1].at, "something equal lies between two hunks");
            }
            for hunk in &hunks {
                prop_assert_ne!(hunk.was.split_inclusive('\n').next(), hunk.now.split_inclusive('\n').next());
                prop_assert_ne!(hunk.was.split_inclusive('\n').next_back(), hunk.now.split_inclusive('\n').next_back());
            }
        }
    }

    #[test]
    fn diffs_and_excerpts_contain_the_lines_they_claim_to_show(old in texts(), new in texts(), max in 0_usize..400) {
        let lines: Vec<&str> = new.split_inclusive('\n').collect();
        let diff = unified(&old, &new, ("a", "b"), max);
        prop_assert!(diff.text.chars().count() <= max);
        for (first, last) in &diff.shown {
            for line in *first..=*last {
                let bare = lines[line as usize - 1].trim_end_matches('\n');
                let has = diff.text.contains(&format!("\n+{bare}\n")) || diff.text.contains(&format!("\n {bare}\n"));
                prop_assert!(has, "{}", line);
            }
        }
        let shown = snippet(&new, &[(3, 9), (14, 14)], 1, max);
        prop_assert!(shown.text.chars().count() <= max);
        for (first, last) in &shown.shown {
            for line in *first..=*last {
                let ended = lines[line as usize - 1];
                let bare = ended.strip_suffix("\r\n").or_else(|| ended.strip_suffix('\n')).unwrap_or(ended);
                let entry = format!("{line:>6}\t{bare}\n");
                prop_assert!(shown.text.contains(&entry), "{entry:?} is not in {:?}", shown.text);
            }
        }
        prop_assert_eq!(shown.is_whole, cover(&shown.shown, (1, count(&new))));
    }

    #[test]
    fn nothing_that_an_editor_asks_panics_or_lies(text in texts(), old in texts(), new in texts(), line in 0_u32..40) {
        for edit in [
            EditCommand::StrReplace { old_str: old.clone(), new_str: new.clone() },
            EditCommand::Insert { insert_line: line, insert_text: new.clone() },
            EditCommand::Create { file_text: new.clone() },
        ] {
            if let Ok(edited) = apply(&edit, &text) {
                prop_assert_eq!(apply_hunks(&text, &edited.hunks), Ok(edited.text));
            }
        }
    }
}

#[test]
fn the_programs_that_apply_differences_apply_ours() {
    if Command::new("patch").arg("--version").output().is_err() {
        report("SKIPPED: there is no `patch` to apply differences with");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut draw = super::Draw(7);
    for case in 0..150 {
        let mut text = |seed: usize| {
            let lines: Vec<String> = (0..draw.below(60)).map(|at| format!("{}{}", at % 9, draw.below(seed))).collect();
            lines.join("\n") + if draw.below(2) == 0 || lines.is_empty() { "" } else { "\n" }
        };
        let (old, new) = (text(2), text(3));
        let file = directory.path().join("file");
        let diff = unified(&old, &new, ("file", "file"), 1_000_000);
        assert!(diff.is_whole);
        if old == new {
            continue;
        }
        std::fs::write(&file, &old).expect("written");
        let patch = directory.path().join("patch");
        std::fs::write(&patch, &diff.text).expect("written");
        let output = Command::new("patch").arg("--quiet").arg(&file).arg(&patch).output().expect("patch runs");
        assert!(output.status.success(), "case {case}: {}{}", String::from_utf8_lossy(&output.stdout), diff.text);
        // `patch` removes a file that became empty.
        assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), new, "case {case}");
    }
}
