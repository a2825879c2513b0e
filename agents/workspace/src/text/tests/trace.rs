//! A recorded text by two concurrent authors, keystroke by keystroke, as an editor's edits.

use serde::Deserialize;

use super::apply::{apply_hunks, reverse_hunks};
use super::{report, shared};
use crate::text::edit::{EditCommand, apply};
use crate::text::hunks::hunks;

#[derive(Deserialize)]
struct Trace {
    txns: Vec<Transaction>,
}

#[derive(Deserialize)]
struct Transaction {
    patches: Vec<(usize, usize, String)>,
}

/// Applies the edits in order, as far as their positions exist in the text. Merging is not tested, so the text differs
/// from the recorded one at the end. Every edit must be found, applied and reverted.
#[test]
fn a_recorded_session_is_edited_step_by_step_and_taken_back() {
    let Some(file) = shared("vectors/traces/editing-traces/clownschool.concurrent.json") else { return };
    let trace: Trace =
        serde_json::from_slice(&std::fs::read(file).expect("it was found")).expect("the format that is described");
    let mut text = String::new();
    let (mut replaced, mut inserted, mut done) = (0, 0, 0);
    let patches = trace.txns.iter().flat_map(|transaction| &transaction.patches);
    for (at, removed, added) in patches {
        let offset = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(offset, _)| offset);
        let (start, end) = (offset(*at), offset(at + removed));
        let expected = format!("{}{added}{}", &text[..start], &text[end..]);
        if expected == text {
            continue;
        }
        done += 1;
        // As an editor states it: the text concerned, with enough context to be unique.
        let edit = unique(&text, start, end).map(|(from, to)| EditCommand::StrReplace {
            old_str: text[from..to].to_owned(),
            new_str: format!("{}{added}{}", &text[from..start], &text[end..to]),
        });
        let edit = edit.unwrap_or_else(|| {
            inserted += 1;
            EditCommand::Create { file_text: expected.clone() }
        });
        replaced += usize::from(matches!(edit, EditCommand::StrReplace { .. }));
        let edited = apply(&edit, &text).unwrap_or_else(|error| panic!("edit {done}: {error}"));
        assert_eq!(edited.text, expected, "edit {done}");
        assert_eq!(apply_hunks(&text, &edited.hunks).as_deref(), Ok(expected.as_str()), "edit {done}");
        assert_eq!(apply_hunks(&expected, &reverse_hunks(&edited.hunks)).as_deref(), Ok(text.as_str()), "edit {done}");
        if done % 50 == 0 {
            let compared = hunks(&text, &expected);
            assert_eq!(apply_hunks(&text, &compared).as_deref(), Ok(expected.as_str()), "edit {done}");
        }
        text = expected;
    }
    report(&format!("clownschool: {done} edits, {replaced} by a piece, {inserted} as a whole, {} bytes", text.len()));
    assert!(done > 5_000 && replaced > done - 10, "{done} edits, {replaced} by a piece");
}

/// Returns the bytes around a position that occur once in the text; none for an empty text.
fn unique(text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let mut reach = 8;
    loop {
        let from = text[..start].char_indices().rev().nth(reach).map_or(0, |(at, _)| at);
        let to = text[end..].char_indices().nth(reach).map_or(text.len(), |(at, _)| end + at);
        let piece = &text[from..to];
        if piece.is_empty() {
            return None;
        }
        let first = text.find(piece)?;
        let next = text[first..].chars().next().map_or(1, char::len_utf8);
        if !text[first + next..].contains(piece) {
            return Some((from, to));
        }
        reach *= 2;
    }
}
