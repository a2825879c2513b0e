//! Mutates valid JSON replies into malformed ones, in the ways in which models nearly get JSON right.
//!
//! Each way in which language models were seen to break JSON has its own mutation. The result is checked:
//! it must be invalid, or repeat a name.

use patchboard_kernel::json::{self, DEPTH_MAX, Limits};

use crate::random::Random;

/// A way to break a text.
type Mutation = fn(&str, &mut Random) -> String;

/// All mutations, with their names in the results.
const MUTATIONS: &[(&str, Mutation)] = &[
    ("cut_off", |text, random| text[..boundary(text, random)].to_owned()),
    ("unclosed", |text, random| {
        let kept = text.trim_end_matches(['}', ']']);
        let closers = text.len() - kept.len();
        format!("{kept}{}", &text[kept.len()..][..closers.saturating_sub(1 + random.index(closers.max(1)))])
    }),
    ("closed_twice", |text, random| format!("{text}{}", random.pick(&["}", "]", "]}"]))),
    ("trailing_comma", |text, _| text.replacen('}', ",}", 1)),
    ("missing_comma", |text, _| text.replacen(',', " ", 1)),
    ("single_quotes", |text, _| text.replace('"', "'")),
    ("bare_names", |text, _| text.replace("\"op\":", "op:").replace("\"patch\":", "patch:").replacen("\":", ":", 1)),
    ("curly_quotes", |text, _| text.replace('"', "\u{201d}")),
    ("comment", |text, random| {
        text.replacen('{', random.pick::<&str>(&["{ // here\n", "{ /* here */ ", "{ # here\n"]), 1)
    }),
    ("python_words", |text, random| text.replacen(':', random.pick::<&str>(&[": None, \"x\":", ": True, \"x\":"]), 1)),
    ("no_numbers", |text, random| {
        text.replacen(
            ':',
            &format!(": {}, \"x\":", random.pick(&["NaN", "Infinity", "0x1F", "01", "+1", ".5", "1."])),
            1,
        )
    }),
    ("prose_before", |text, _| format!("Sure! Here is the patch you asked for: {text}")),
    ("prose_after", |text, _| format!("{text}\n\nI hope this helps. Let me know if anything else is needed.")),
    ("two_values", |text, _| format!("{text}\n{text}")),
    ("control_character", |text, random| {
        text.replacen("\":\"", &format!("\":\"{}", random.pick(&["\n", "\t", "\u{1}"])), 1)
    }),
    ("bad_escape", |text, random| {
        text.replacen("\":\"", &format!("\":\"{}", random.pick(&["\\x41", "\\u12", "\\ud800x", "\\'"])), 1)
    }),
    ("unescaped_quote", |text, _| text.replacen("\":\"", "\":\"\"", 1)),
    ("wrong_brackets", |text, _| text.replace('[', "(").replace(']', ")")),
    ("repeated_name", |text, _| text.replacen('{', "{\"op\":\"add\",\"op\":\"remove\",", 1)),
    ("ellipsis", |text, _| text.replacen('[', "[...,", 1)),
    ("elided", |text, _| text.replacen(':', ": ,", 1)),
    ("lost_character", |text, random| {
        let mut text = text.to_owned();
        let marks: Vec<usize> = text.match_indices(['{', '}', '[', ']', '"', ':', ',']).map(|(at, _)| at).collect();
        if !marks.is_empty() {
            text.remove(marks[random.index(marks.len())]);
        }
        text
    }),
    ("empty", |_, random| (*random.pick(&["", " ", "null,", "{"])).to_owned()),
];

/// Attempts after which a text counts as unbreakable.
const TRIES_MAX: usize = 100;

/// Mutates a JSON text so that it is invalid or repeats a name in an object. Returns the mutation's name and the text.
pub fn mutate(text: &str, random: &mut Random) -> (&'static str, String) {
    for _ in 0..TRIES_MAX {
        let (name, mutation) = random.pick(MUTATIONS);
        let broken = mutation(text, random);
        if is_malformed(&broken) {
            return (name, broken);
        }
    }
    ("cut_off", "{".to_owned())
}

/// Returns true if a text is not JSON, or repeats a name in an object.
pub fn is_malformed(text: &str) -> bool {
    json::parse(text.as_bytes(), Limits { bytes: usize::MAX, depth: DEPTH_MAX }).is_err()
}

/// Returns a byte offset at which a text can be cut, before its end.
fn boundary(text: &str, random: &mut Random) -> usize {
    let mut at = random.index(text.len().max(1));
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutation_breaks_what_was_whole() {
        let whole = r#"{"patch":[{"op":"add","path":"/claims/-","value":{"text":"a","of":[1,2]}}],"intent":"so"}"#;
        assert!(!is_malformed(whole));
        let mut random = Random::new(1);
        let mut seen = BTreeSet::new();
        for _ in 0..2000 {
            let (name, broken) = mutate(whole, &mut random);
            assert!(is_malformed(&broken), "{name}: {broken}");
            seen.insert(name);
        }
        assert_eq!(seen.len(), MUTATIONS.len(), "{seen:?}");
    }

    #[test]
    fn any_text_can_be_broken() {
        let mut random = Random::new(2);
        for text in ["", "[]", "{}", "1", "\u{e4}", "\"\u{1f600}\""] {
            assert!(is_malformed(&mutate(text, &mut random).1), "{text:?}");
        }
    }
}
