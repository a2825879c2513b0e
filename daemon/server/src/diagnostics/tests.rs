//! Findings as text, with their source lines and carets.

use patchboard_lint::Position;
use patchboard_lint::{Diagnostic, Severity};

fn finding(line: u32, column: u32) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: "undeclared_worker",
        pointer: "/rules/0/run".into(),
        position: Some(Position { line, column }),
        file: None,
        message: "no worker is named extractr".into(),
        help: "did you mean extractor?".into(),
    }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn a_finding_points_at_its_line_and_column() {
    let source = "blueprint: 1\nrules:\n  - {name: a, run: extractr}\n";
    let expected = "\
error[undeclared_worker]: no worker is named extractr
 --> b.yaml:3:20
  |
3 |   - {name: a, run: extractr}
  |                    ^
  = help: did you mean extractor?
";
    assert_eq!(plain(&super::text(&finding(3, 20), "b.yaml", source)), expected);
}

#[test]
fn the_caret_points_at_its_character_in_long_or_hostile_lines() {
    for line in [format!("{}X{}", "a".repeat(400), "b".repeat(400)), "\t\u{1b}ü\u{202e}X tail".to_owned()] {
        let column = line.chars().position(|c| c == 'X').expect("the line has an X") + 1;
        let column = u32::try_from(column).expect("the line is short");
        let text = plain(&super::text(&finding(1, column), "b.yaml", &line));
        let lines: Vec<&str> = text.lines().collect();
        let caret = lines[4].chars().position(|c| c == '^').expect("there is a caret");
        assert_eq!(lines[3].chars().nth(caret), Some('X'), "{text}");
    }
}

#[test]
fn a_place_outside_the_source_is_named_and_shows_no_line() {
    for (line, column) in [(9, 1), (0, 0), (1, 5000)] {
        let text = plain(&super::text(&finding(line, column), "b.yaml", "one line"));
        assert!(text.contains(&format!("--> b.yaml:{line}:{column}")), "{text}");
    }
}
