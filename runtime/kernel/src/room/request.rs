//! Whether a recommendation asks for a person (W46).
//!
//! Recommendations are free texts. Asking a person once too often is the cheaper mistake, so a request counts unless one of a
//! few fixed forms stands right before it.

/// Recommendations that ask for it as a whole.
const WHOLE: [&[&str]; 2] = [&["hitl"], &["human", "review"]];
/// What a clause ends with.
const ENDS: &[char] = &['.', ';', ':', ',', '!', '?', '\n', '(', ')', '/', '\u{2013}', '\u{2014}'];
/// Words that deny what comes right after them.
const DENIALS: [&str; 10] =
    ["don't", "doesn't", "mustn't", "needn't", "never", "no", "not", "shouldn't", "without", "won't"];
/// Beginnings of words that ask for a review.
const ASKING: [&str; 13] = [
    "ask",
    "demand",
    "flag",
    "mandatory",
    "must",
    "necessary",
    "need",
    "please",
    "refer",
    "request",
    "requir",
    "send",
    "want",
];

/// Whether a text asks for a person: it has a word that begins with `escalat`, or asks for a human review, and does not
/// deny it right before.
pub(super) fn asks(text: &str) -> bool {
    // Who writes "I can't decide - please escalate" has begun another clause.
    let text = text.to_lowercase().replace('\u{2019}', "'").replace(" - ", "\n");
    let of = |clause: &'_ str| -> Vec<String> {
        let words = clause.split(|c: char| !c.is_alphanumeric() && c != '\'');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let clauses: Vec<Vec<String>> = text.split(ENDS).map(of).collect();
    let all: Vec<&str> = clauses.iter().flatten().map(String::as_str).collect();
    let mut begins_at = 0;
    WHOLE.contains(&all.as_slice())
        || clauses.iter().any(|clause| {
            let (earlier, rest) = all.split_at(begins_at);
            begins_at += clause.len();
            asks_in(earlier, &rest[..clause.len()])
        })
}

/// Whether a clause does, after the words of earlier ones.
fn asks_in(earlier: &[&str], clause: &[&str]) -> bool {
    (0..clause.len()).any(|at| {
        let (before, after) = clause.split_at(at);
        let is_escalation = after[0].starts_with("escalat");
        let is_review = match after {
            ["human", next, ..] => next.starts_with("review"),
            [word, ..] => *word == "hitl",
            [] => false,
        };
        match said_before(earlier, before) {
            Said::No => false,
            Said::Must => is_escalation || is_review,
            Said::Nothing => is_escalation || (is_review && (wants(before) || wants(&after[1..]))),
        }
    })
}

/// Whether words ask for something: one of them does, and the word before it does not deny it.
fn wants(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let is_asking = ASKING.iter().any(|asking| word.starts_with(asking));
        let is_denied = at.checked_sub(1).is_some_and(|before| DENIALS.contains(&words[before]));
        is_asking && !is_denied
    })
}

/// What the words before a request say of it.
enum Said {
    Nothing,
    /// That it is none.
    No,
    /// That nothing is done without.
    Must,
}

/// What the last words before a request in its clause say of it.
fn said_before(earlier: &[&str], before: &[&str]) -> Said {
    let before = match before {
        [before @ .., "a" | "an" | "any" | "the"] => before,
        _ => before,
    };
    match before {
        [.., "no", "need", "to" | "for"] => Said::No,
        // "Cannot be approved without escalation."
        [said @ .., "without"] | [said @ .., "with", "no"] => {
            match earlier.iter().chain(said).any(|word| negates(word)) {
                true => Said::Must,
                false => Said::No,
            }
        }
        // Another clause begins, though no mark says so: "if not escalate".
        [.., "if" | "why", "not"] => Said::Nothing,
        [.., last] if DENIALS.contains(last) => Said::No,
        _ => Said::Nothing,
    }
}

fn negates(word: &str) -> bool {
    matches!(word, "cannot" | "never" | "no" | "nobody" | "none" | "nothing" | "not") || word.ends_with("n't")
}
