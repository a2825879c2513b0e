//! What to send instead of a request that a server refused: found out by trying.
//!
//! Pure. A request has a [`Shape`]; each [`Part`] of it can be sent in plainer ways. After a refusal one part is made
//! plainer, step by step, until the error changes or the part has no step left; then it is put back, and the next part is
//! tried. At last all parts are plain at once. The words of a refusal only say which part is tried first.

use super::reasons;

/// Requests of one climb.
const TRIES_MAX: u32 = 24;

/// How a request is sent, from the richest to the plainest. The order of forms is the order of the enum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Rung {
    /// The form that the seat's contract gives.
    #[default]
    Derived,
    /// The same without the keywords that many engines refuse.
    Plain,
    /// Any patch of the operations that are granted.
    Generic,
    /// Any JSON object.
    Object,
    /// No form.
    None,
}

/// How the limit of the reply's tokens is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Limit {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
    None,
}

/// What is said of the temperature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Temperature {
    #[default]
    Given,
    Positive,
    None,
}

/// Whether the answer is to come as events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Stream {
    #[default]
    Off,
    WithUsage,
    On,
}

/// How a request is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shape {
    pub(super) form: Rung,
    pub(super) limit: Limit,
    /// The most tokens of a reply that the server has named.
    pub(super) cap: Option<u32>,
    pub(super) temperature: Temperature,
    pub(super) no_seed: bool,
    /// Whether the system's message is a part of the user's.
    pub(super) folded: bool,
    pub(super) stream: Stream,
}

/// A part of a request that can be sent in another way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Form,
    Limit,
    Temperature,
    Seed,
    System,
    Stream,
}

/// Parts in the order in which they are tried.
const PARTS: [Part; 6] = [Part::Form, Part::Limit, Part::Temperature, Part::Seed, Part::System, Part::Stream];

/// Words of refusals that name a part; the first that fits is tried first.
const HINTS: [(Part, &[&str]); 6] = [
    (Part::Limit, &["max_completion_tokens", "max_tokens", "max tokens", "completion tokens"]),
    (
        Part::Form,
        &[
            "response_format",
            "response format",
            "json_schema",
            "json schema",
            "grammar",
            "structured",
            "schema",
            "guided",
        ],
    ),
    (Part::Temperature, &["temperature"]),
    (Part::Seed, &["seed"]),
    (Part::System, &["system role", "system message", "role 'system'", "developer instruction"]),
    (Part::Stream, &["stream"]),
];

/// The search for a request that a server takes.
pub(super) struct Climb {
    shape: Shape,
    start: Shape,
    /// The part that is being changed, and the shape before it was.
    active: Option<(Part, Shape)>,
    done: Vec<Part>,
    last: Option<String>,
    is_bare: bool,
    is_certain: bool,
    tries: u32,
}

impl Climb {
    pub(super) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            start: shape,
            active: None,
            done: Vec::new(),
            last: None,
            is_bare: false,
            is_certain: true,
            tries: 0,
        }
    }

    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// What was found out, after an answer; none if the request was taken as it was, or a fault may have passed.
    pub(super) fn found(&self) -> Option<Shape> {
        (self.shape != self.start && self.is_certain).then_some(self.shape)
    }

    /// Chooses the next shape after a refusal; false: there is none.
    pub(super) fn next(&mut self, status: u16, body: &str) -> bool {
        let words = body.to_ascii_lowercase();
        let hinted = HINTS.iter().find(|(_, all)| all.iter().any(|word| words.contains(word))).map(|(part, _)| *part);
        let parts = match status {
            400 | 415 | 422 => &PARTS[..],
            // The model may not be served in this form, and the fault may be in making the form.
            404 | 500 => &PARTS[..1],
            _ => return false,
        };
        if self.tries >= TRIES_MAX || is_explained(&words) {
            return false;
        }
        self.tries += 1;
        if status == 500 && hinted.is_none() {
            self.is_certain = false;
        }
        let error = format!("{status} {}", reasons::said(body));
        let is_same = self.last.as_ref() == Some(&error);
        self.last = Some(error);
        if let Some((part, before)) = self.active {
            let moves_on = !is_same && hinted != Some(part);
            if !moves_on && let Some(shape) = step(self.shape, part, &words) {
                self.shape = shape;
                return true;
            }
            self.active = None;
            if !moves_on {
                self.shape = before;
                self.done.push(part);
            }
        }
        let order = hinted.into_iter().filter(|part| parts.contains(part)).chain(parts.iter().copied());
        for part in order.filter(|part| !self.done.contains(part)) {
            if let Some(shape) = step(self.shape, part, &words) {
                self.active = Some((part, self.shape));
                self.shape = shape;
                return true;
            }
        }
        if self.is_bare || parts.len() == 1 {
            return false;
        }
        self.is_bare = true;
        self.shape = Shape {
            form: Rung::None,
            limit: Limit::None,
            cap: None,
            temperature: Temperature::None,
            no_seed: true,
            folded: true,
            stream: self.shape.stream,
        };
        true
    }
}

/// Whether a refusal is of what is asked, not of how: no other way of sending it helps.
fn is_explained(words: &str) -> bool {
    ["context_length", "context length", "context size", "context window", "moderation", "content policy"]
        .iter()
        .any(|explained| words.contains(explained))
}

/// The next plainer way to send a part.
fn step(shape: Shape, part: Part, words: &str) -> Option<Shape> {
    Some(match part {
        Part::Form => Shape {
            form: match shape.form {
                Rung::Derived => Rung::Plain,
                Rung::Plain => Rung::Generic,
                Rung::Generic => Rung::Object,
                Rung::Object => Rung::None,
                Rung::None => return None,
            },
            ..shape
        },
        Part::Limit => match (shape.limit, shape.cap.is_none().then(|| named_limit(words)).flatten()) {
            (Limit::MaxTokens | Limit::MaxCompletionTokens, Some(cap)) => Shape { cap: Some(cap), ..shape },
            (Limit::MaxTokens, None) => Shape { limit: Limit::MaxCompletionTokens, ..shape },
            (Limit::MaxCompletionTokens, None) => Shape { limit: Limit::None, ..shape },
            (Limit::None, _) => return None,
        },
        Part::Temperature => {
            let is_positive = ["positive", "greater than", "> 0"].iter().any(|word| words.contains(word));
            let temperature = match shape.temperature {
                Temperature::Given if is_positive => Temperature::Positive,
                Temperature::Given | Temperature::Positive => Temperature::None,
                Temperature::None => return None,
            };
            Shape { temperature, ..shape }
        }
        Part::Seed if !shape.no_seed => Shape { no_seed: true, ..shape },
        Part::System if !shape.folded => Shape { folded: true, ..shape },
        Part::Seed | Part::System => return None,
        Part::Stream => Shape {
            stream: match shape.stream {
                Stream::Off => Stream::WithUsage,
                Stream::WithUsage => Stream::On,
                Stream::On => return None,
            },
            ..shape
        },
    })
}

/// The most tokens of a reply that a refusal names.
fn named_limit(words: &str) -> Option<u32> {
    ["at most ", "less than or equal to ", "<= ", "maximum of ", "maximum value is "].iter().find_map(|lead| {
        let rest = &words[words.find(lead)? + lead.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|limit| *limit > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs against a server that says `refuse(shape)`; the shape that it takes, and how often it was asked.
    fn climb(refuse: impl Fn(Shape) -> Option<(u16, &'static str)>) -> (Option<Shape>, u32) {
        let mut climb = Climb::new(Shape::default());
        for asked in 1.. {
            match refuse(climb.shape()) {
                None => return (climb.found(), asked),
                Some((status, body)) if climb.next(status, body) => {}
                Some(_) => return (None, asked),
            }
        }
        unreachable!("a climb is bounded")
    }

    #[test]
    fn a_server_that_says_nothing_is_understood_by_trying() {
        let bare = Shape::default();
        for found in [
            Shape { form: Rung::Plain, ..bare },
            Shape { form: Rung::Object, ..bare },
            Shape { form: Rung::None, ..bare },
            Shape { limit: Limit::MaxCompletionTokens, ..bare },
            Shape { limit: Limit::None, ..bare },
            Shape { temperature: Temperature::None, ..bare },
            Shape { no_seed: true, ..bare },
            Shape { folded: true, ..bare },
            Shape { stream: Stream::WithUsage, ..bare },
        ] {
            let (shape, asked) = climb(|shape| (shape != found).then_some((400, "")));
            assert_eq!(shape, Some(found));
            assert!(asked <= TRIES_MAX, "{asked}");
        }
        let (shape, _) = climb(|shape| (shape.form != Rung::None || !shape.folded).then_some((400, "no")));
        assert!(shape.is_some_and(|shape| shape.folded && shape.form == Rung::None), "two parts without a word");
    }

    #[test]
    fn the_words_of_a_refusal_say_what_is_tried_first() {
        let gpt = |shape: Shape| match shape {
            Shape { limit: Limit::MaxTokens, .. } => Some((400, "Use 'max_completion_tokens' instead of max_tokens")),
            Shape { temperature: Temperature::Given | Temperature::Positive, .. } => Some((400, "temperature is 1")),
            _ => None,
        };
        let found = Shape { limit: Limit::MaxCompletionTokens, temperature: Temperature::None, ..Shape::default() };
        assert_eq!(climb(gpt), (Some(found), 3));
        let positive = |shape: Shape| (shape.temperature == Temperature::Given).then_some((422, "temperature > 0"));
        assert_eq!(climb(positive).0.map(|shape| shape.temperature), Some(Temperature::Positive));
        let lower = |shape: Shape| (shape.cap != Some(512)).then_some((400, "max_tokens: at most 512, not 1024"));
        assert_eq!(climb(lower), (Some(Shape { cap: Some(512), ..Shape::default() }), 2));
    }

    #[test]
    fn a_climb_ends_and_what_may_have_passed_is_not_remembered() {
        assert!(climb(|_| Some((400, "no"))).1 <= TRIES_MAX + 1);
        assert_eq!(climb(|_| Some((429, "slow"))), (None, 1));
        assert_eq!(climb(|_| Some((400, "maximum context length is 4096"))), (None, 1));
        assert_eq!(climb(|_| Some((500, "oops"))), (None, 5));
        assert_eq!(climb(|shape| (shape.form == Rung::Derived).then_some((500, "oops"))), (None, 2));
        let grammar = |shape: Shape| (shape.form == Rung::Derived).then_some((500, "bad grammar"));
        assert_eq!(climb(grammar), (Some(Shape { form: Rung::Plain, ..Shape::default() }), 2));
    }
}
