//! Detects recommendations that request a person's decision (W46).
//!
//! Recommendations are free text. An unnecessary request is the cheaper mistake, so a match counts unless one of a few
//! fixed negations precedes it.

/// Texts that are a request as a whole.
const WHOLE_REQUESTS: [&[&str]; 2] = [&["hitl"], &["human", "review"]];
/// Ends of clauses.
const ENDS: &[char] = &['.', ';', ':', ',', '!', '?', '\n', '(', ')', '/', '\u{2013}', '\u{2014}'];
/// Words that negate the next word.
const NEGATIONS: [&str; 10] =
    ["don't", "doesn't", "mustn't", "needn't", "never", "no", "not", "shouldn't", "without", "won't"];
/// Prefixes of words that request a review.
const REQUEST_PREFIXES: &str = "ask demand flag mandatory must necessary need please refer request requir send want";

/// Returns true if a text requests a person, by a word that begins with `escalat` or a request for a human review. A
/// negation right before it cancels the request.
pub(super) fn requests_human(text: &str) -> bool {
    // A spaced hyphen begins a new clause, as in "I can't decide - please escalate".
    let text = text.to_lowercase().replace('\u{2019}', "'").replace(" - ", "\n");
    let of = |clause: &'_ str| -> Vec<String> {
        let words = clause.split(|c: char| !c.is_alphanumeric() && c != '\'');
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let clauses: Vec<Vec<String>> = text.split(ENDS).map(of).collect();
    let all: Vec<&str> = clauses.iter().flatten().map(String::as_str).collect();
    let mut begins_at = 0;
    WHOLE_REQUESTS.contains(&all.as_slice())
        || clauses.iter().any(|clause| {
            let (earlier, rest) = all.split_at(begins_at);
            begins_at += clause.len();
            clause_requests_human(earlier, &rest[..clause.len()])
        })
}

/// Returns true if a clause requests a person, given the words of earlier clauses.
fn clause_requests_human(earlier: &[&str], clause: &[&str]) -> bool {
    (0..clause.len()).any(|at| {
        let (before, after) = clause.split_at(at);
        let is_escalation = after[0].starts_with("escalat");
        let is_review = match after {
            ["human", next, ..] => next.starts_with("review"),
            [word, ..] => *word == "hitl",
            [] => false,
        };
        match preceding_modifier(earlier, before) {
            RequestModifier::No => false,
            RequestModifier::Must => is_escalation || is_review,
            RequestModifier::Nothing => {
                is_escalation || (is_review && (has_request_word(before) || has_request_word(&after[1..])))
            }
        }
    })
}

/// Returns true if one of the words is a request and is not negated by the word before it.
fn has_request_word(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let is_asking = REQUEST_PREFIXES.split(' ').any(|asking| word.starts_with(asking));
        let is_denied = at.checked_sub(1).is_some_and(|before| NEGATIONS.contains(&words[before]));
        is_asking && !is_denied
    })
}

/// Effect of the preceding words on a request.
enum RequestModifier {
    Nothing,
    /// They negate it.
    No,
    /// They make it mandatory.
    Must,
}

/// Returns the effect of the last words before a request in its clause.
fn preceding_modifier(earlier: &[&str], before: &[&str]) -> RequestModifier {
    let before = match before {
        [before @ .., "a" | "an" | "any" | "the"] => before,
        _ => before,
    };
    match before {
        [.., "no", "need", "to" | "for"] => RequestModifier::No,
        // "Cannot be approved without escalation."
        [said @ .., "without"] | [said @ .., "with", "no"] => {
            match earlier.iter().chain(said).any(|word| negates(word)) {
                true => RequestModifier::Must,
                false => RequestModifier::No,
            }
        }
        // A new clause begins here without punctuation: "if not escalate".
        [.., "if" | "why", "not"] => RequestModifier::Nothing,
        [.., last] if NEGATIONS.contains(last) => RequestModifier::No,
        _ => RequestModifier::Nothing,
    }
}

fn negates(word: &str) -> bool {
    matches!(word, "cannot" | "never" | "no" | "nobody" | "none" | "nothing" | "not") || word.ends_with("n't")
}
