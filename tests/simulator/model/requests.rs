//! Signals and pauses that carry a token: each is heard once, and a repetition is told what the first was.

use std::collections::BTreeMap;

use patchboard_kernel::board::{Input, Outcome, Step, Verdict};
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::record::Kind;

/// How long a token is known, in milliseconds.
const WINDOW: i64 = 3_600_000;

/// What was heard.
#[derive(Default)]
pub(super) struct Requests(BTreeMap<String, Heard>);

struct Heard {
    what: String,
    seq: Seq,
    at: i64,
}

impl Requests {
    /// Checks what became of an input, if it is a request with a token. `is_over`: the board had ended for good.
    pub(super) fn check(&mut self, seed: u64, at: Timestamp, input: &Input, step: &Step, is_over: bool) {
        let (token, what, kind) = match input {
            Input::Signal { name, value, token } => (token, format!("{name} {value}"), Kind::Signal),
            Input::Pause { token } => (token, "pause".to_owned(), Kind::Paused),
            Input::Resume { token } => (token, "resume".to_owned(), Kind::Resumed),
            _ => return,
        };
        let Some(token) = token else { return };
        let first = step.records.first();
        match self.0.get(token.as_str()).filter(|heard| at.0 - heard.at < WINDOW) {
            Some(heard) if heard.what == what => {
                let expected = Some(Outcome::Duplicate(Verdict::Heard { seq: heard.seq }));
                assert_eq!((&step.outcome, first), (&expected, None), "SEED={seed}: {what} was heard before");
            }
            Some(heard) => {
                let is_refused = matches!(step.outcome, Some(Outcome::Refused(_))) && first.is_none();
                assert!(is_refused, "SEED={seed}: {what} has the token of {}", heard.what);
            }
            None if is_over => assert!(first.is_none(), "SEED={seed}: {what} was recorded after the end"),
            None => {
                let found = first.map(|record| record.kind);
                assert_eq!(found, Some(kind), "SEED={seed}: {what} was not heard");
                let seq = first.expect("it is there").seq;
                self.0.insert(token.as_str().to_owned(), Heard { what, seq, at: at.0 });
            }
        }
    }
}
