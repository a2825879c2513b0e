//! Finds by trial a plainer request that a server accepts.
//!
//! Pure. A request has a [`RequestShape`]; each [`RequestPart`] of it can be sent in plainer ways. After a rejection
//! one part is made plainer, step by step. If the error changes, the step is kept; if the part has no step left, it is
//! restored. Then the next part is tried. Finally all optional members are left out at once, and then the tools. The
//! text of a rejection only decides which part is tried first.

mod rejection_words;

use self::rejection_words::{RequestPart, hinted, named_limit, named_parts, named_room};
use super::provider_errors::{self, is_key_refused};
use super::request_shape::{
    Limit, OmittedMembers, OutputMode, RequestShape, Stream, Temperature, ToolForms, TurnFormat,
};

pub(super) use self::rejection_words::is_explained;

/// Requests of one climb.
const TRIES_MAX: usize = 28;

/// Parts in the order of trial.
const PARTS: [RequestPart; 14] = {
    use RequestPart::*;
    [Named, Form, Limit, Temperature, Seed, TopP, Stop, Effort, Include, System, Stream, Turns, ToolForms, Tools]
};

/// Words of rejections that usually concern the prompt, not its form. The plainest request is tried at once.
const EXPLAINED: &str = "context_length, context length, context limit, context size, context window, \
    prompt is too long, moderation, content policy, content filter, content_filter, content management policy, \
    responsibleaipolicy, flagged";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DowngradeResult {
    pub(super) shape: RequestShape,
    /// The form that was rejected first.
    pub(super) refused: OutputMode,
    /// Certainty that the shape was the cause, and no passing failure.
    pub(super) proof: Certainty,
    /// A form of any patch was rejected, and the same request without a form was accepted.
    pub(super) is_form_refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Certainty {
    /// The server rejected the request itself.
    #[default]
    Rejection,
    /// The server failed, which may have been temporary.
    ServerFailure,
    /// The rejection was about the prompt, so another prompt may be accepted unchanged.
    Prompt,
}

/// Search for a request that a server accepts.
#[derive(Default)]
pub(super) struct Downgrade {
    pub(super) shape: RequestShape,
    pub(super) start: RequestShape,
    has_tools: bool,
    refused: Vec<RequestShape>,
    /// Part under change, and the shape before the change.
    active: Option<(RequestPart, RequestShape)>,
    done: Vec<RequestPart>,
    last: Option<String>,
    /// All optional parts were left out at once.
    pub(super) is_bare: bool,
    proof: Certainty,
}

impl Downgrade {
    pub(super) fn new(shape: RequestShape, has_tools: bool) -> Self {
        Self { shape, start: shape, has_tools, ..Self::default() }
    }

    /// Returns the finding after an answer; none if the first request was accepted.
    pub(super) fn found(&self) -> Option<DowngradeResult> {
        let general = [OutputMode::Generic, OutputMode::Object].map(|form| RequestShape { form, ..self.shape });
        (self.shape != self.start).then(|| DowngradeResult {
            shape: self.shape,
            refused: self.start.form,
            proof: self.proof,
            is_form_refused: self.shape.form == OutputMode::None
                && general.iter().all(|shape| self.refused.contains(shape)),
        })
    }

    /// Chooses the next shape after a rejection; returns false if there is none.
    pub(super) fn next(&mut self, status: u16, body: &str) -> bool {
        let words = body.to_ascii_lowercase();
        let hinted = hinted(&words);
        let fault = [RequestPart::Form, RequestPart::ToolForms];
        let fault = fault.into_iter().chain(hinted.filter(|part| !fault.contains(part))).collect::<Vec<_>>();
        let parts: &[RequestPart] = match status {
            400 | 415 | 422 => &PARTS,
            // The model may not be served in this form.
            404 | 501 => &[RequestPart::Form, RequestPart::ToolForms, RequestPart::Tools],
            // The cause may be the server's conversion of the form, or a part that the error names.
            500 => &fault,
            _ => return false,
        };
        if self.refused.len() >= TRIES_MAX || is_key_refused(status, body) {
            return false;
        }
        self.refused.push(self.shape);
        let hinted = hinted.filter(|part| parts.contains(part));
        // Tool schemas, and the form of the answer tool, are tried before the tools.
        let before =
            [RequestPart::ToolForms, RequestPart::Form].into_iter().filter(|_| hinted == Some(RequestPart::Tools));
        let before: Vec<RequestPart> = before.filter(|part| !self.done.contains(part)).collect();
        // A part that is named alone is tried before all named parts.
        let order = before.iter().copied().chain(hinted).chain(parts.iter().copied());
        let hinted = before.first().copied().or(hinted);
        let may_pass = [RequestPart::Form, RequestPart::Turns, RequestPart::ToolForms];
        if status == 500 && hinted.is_none_or(|part| may_pass.contains(&part)) {
            self.proof = Certainty::ServerFailure;
        }
        let error = format!("{status} {}", provider_errors::error_message(body));
        let is_same = self.last.as_ref() == Some(&error);
        self.last = Some(error);
        let is_full = parts.len() == PARTS.len();
        if is_full && !self.is_bare && EXPLAINED.split(", ").any(|explained| words.contains(explained)) {
            self.proof = Certainty::Prompt;
            self.active = None;
            // Asks for a shorter reply first, if the rejection has numbers.
            let cap = named_room(&words).filter(|cap| self.shape.cap.is_none_or(|known| *cap < known));
            match cap {
                Some(_) => self.shape.cap = cap,
                None => self.bare(),
            }
            return true;
        }
        if let Some((part, before)) = self.active.take() {
            let moves_on = !is_same && hinted != Some(part);
            if !moves_on && let Some(shape) = self.step(part, &words) {
                self.shape = shape;
                self.active = Some((part, before));
                return true;
            }
            if !moves_on {
                self.shape = before;
                self.done.push(part);
            }
        }
        for part in order {
            if self.done.contains(&part) {
                continue;
            }
            if let Some(shape) = self.step(part, &words) {
                self.active = Some((part, self.shape));
                self.shape = shape;
                return true;
            }
        }
        if is_full && !self.is_bare {
            self.bare();
            return true;
        }
        let is_last = is_full && self.has_tools && !self.shape.no_tools;
        self.shape.no_tools |= is_last;
        is_last
    }

    /// Reduces every part to its plainest form.
    fn bare(&mut self) {
        self.is_bare = true;
        self.shape = RequestShape {
            form: OutputMode::None,
            limit: Limit::None,
            cap: None,
            temperature: Temperature::None,
            left_out: OmittedMembers::ALL,
            folded: true,
            stream: if self.shape.stream == Stream::WithUsage { Stream::On } else { self.shape.stream },
            ..self.shape
        };
    }

    /// Returns the next plainer form of a part.
    fn step(&self, part: RequestPart, words: &str) -> Option<RequestShape> {
        let shape = self.shape;
        Some(match part {
            RequestPart::Form => RequestShape {
                form: match shape.form {
                    OutputMode::Derived => OutputMode::Strict,
                    OutputMode::Strict => OutputMode::Plain,
                    OutputMode::Plain => OutputMode::Generic,
                    OutputMode::Generic => OutputMode::Object,
                    OutputMode::Object => OutputMode::None,
                    OutputMode::None => return None,
                },
                ..shape
            },
            RequestPart::Limit => match (shape.limit, shape.cap.is_none().then(|| named_limit(words)).flatten()) {
                (Limit::MaxTokens | Limit::MaxCompletionTokens, Some(cap)) => RequestShape { cap: Some(cap), ..shape },
                (Limit::MaxTokens, None) => RequestShape { limit: Limit::MaxCompletionTokens, ..shape },
                (Limit::MaxCompletionTokens, None) => RequestShape { limit: Limit::None, ..shape },
                (Limit::None, _) => return None,
            },
            RequestPart::Temperature => {
                let mut ways = [Temperature::None, Temperature::Positive];
                if ["positive", "greater than", "> 0"].iter().any(|word| words.contains(word)) {
                    ways.reverse();
                }
                let ways = ways.map(|temperature| RequestShape { temperature, ..shape });
                return ways.into_iter().find(|way| !self.refused.contains(way));
            }
            RequestPart::Seed | RequestPart::TopP | RequestPart::Stop | RequestPart::Effort | RequestPart::Include => {
                return Some(plainest(shape, part)).filter(|way| *way != shape);
            }
            RequestPart::System if !shape.folded => RequestShape { folded: true, ..shape },
            RequestPart::Tools if self.has_tools && !shape.no_tools => {
                // Only a rejection of the tools alone is a finding about them.
                let formless = RequestShape { form: OutputMode::None, ..shape };
                if self.refused.contains(&formless) { RequestShape { no_tools: true, ..formless } } else { formless }
            }
            RequestPart::Turns => RequestShape {
                turns: match shape.turns {
                    TurnFormat::Unchanged => TurnFormat::Known,
                    TurnFormat::Known => TurnFormat::Filled,
                    TurnFormat::Filled => return None,
                },
                ..shape
            },
            RequestPart::ToolForms if self.has_tools && shape.tool_forms == ToolForms::Whole => {
                RequestShape { tool_forms: ToolForms::Plain, ..shape }
            }
            RequestPart::System | RequestPart::ToolForms | RequestPart::Tools => return None,
            RequestPart::Named => {
                let way =
                    named_parts(words).fold((shape, 0), |(shape, count), part| (plainest(shape, part), count + 1));
                return Some(way).filter(|(way, count)| *count > 1 && !self.refused.contains(way)).map(|(way, _)| way);
            }
            RequestPart::Stream => RequestShape {
                stream: match shape.stream {
                    Stream::Off => Stream::WithUsage,
                    Stream::WithUsage => Stream::On,
                    Stream::On => return None,
                },
                ..shape
            },
        })
    }
}

/// Returns a request without an optional member.
fn plainest(shape: RequestShape, part: RequestPart) -> RequestShape {
    let without = OmittedMembers::default();
    match part {
        RequestPart::Form => RequestShape { form: OutputMode::None, ..shape },
        RequestPart::Temperature => RequestShape { temperature: Temperature::None, ..shape },
        RequestPart::Seed => shape.without(OmittedMembers { seed: true, ..without }),
        RequestPart::TopP => shape.without(OmittedMembers { top_p: true, ..without }),
        RequestPart::Stop => shape.without(OmittedMembers { stop: true, ..without }),
        RequestPart::Effort => shape.without(OmittedMembers { effort: true, ..without }),
        RequestPart::Include => shape.without(OmittedMembers { include: true, ..without }),
        // The token counts of a stream.
        RequestPart::Stream if shape.stream == Stream::WithUsage => RequestShape { stream: Stream::On, ..shape },
        _ => shape,
    }
}

#[cfg(test)]
mod tests;
