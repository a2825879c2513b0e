//! Shape of a request: the form of each part that a server may reject.

use std::fmt;

use serde::Serialize;

/// Forms of a reply, from the richest to the plainest; the enum's order is the order of the steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Form derived from the seat's contract.
    #[default]
    Derived,
    /// Derived form with every object closed and every member required, sent as strict.
    Strict,
    /// Derived form without the keywords that many engines reject.
    Plain,
    /// Any patch of the granted operations.
    Generic,
    /// Any JSON object.
    #[serde(rename = "json_object")]
    Object,
    /// No form.
    None,
}

impl fmt::Display for OutputMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Derived => "json_schema, derived",
            Self::Strict => "json_schema, strict",
            Self::Plain => "json_schema, plain",
            Self::Generic => "json_schema, generic",
            Self::Object => "json_object",
            Self::None => "none",
        })
    }
}

/// Name of the member that limits the reply's tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Limit {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Temperature {
    #[default]
    Given,
    Positive,
    None,
}

/// Form in which the turns of a conversation are sent back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum TurnFormat {
    /// Unchanged, with members that only the provider understands.
    #[default]
    Unchanged,
    /// Without such members.
    Known,
    /// Without such members, with an empty text if there is none, and the tool's name in its result.
    Filled,
}

/// Form of the tools' parameter schemas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum ToolForms {
    #[default]
    Whole,
    /// Without the keywords that many engines reject, and without `additionalProperties`.
    Plain,
}

/// Request for a stream of events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Stream {
    #[default]
    Off,
    WithUsage,
    On,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RequestShape {
    pub(super) form: OutputMode,
    pub(super) limit: Limit,
    /// Largest token limit that the server has named.
    pub(super) cap: Option<u32>,
    pub(super) temperature: Temperature,
    pub(super) left_out: OmittedMembers,
    /// The system message is part of the user message.
    pub(super) folded: bool,
    pub(super) stream: Stream,
    pub(super) turns: TurnFormat,
    pub(super) tool_forms: ToolForms,
    pub(super) no_tools: bool,
}

impl RequestShape {
    pub(super) fn without(self, left_out: OmittedMembers) -> Self {
        Self { left_out: self.left_out.or(left_out), ..self }
    }

    /// Returns true if the operator's settings are sent in only one of the two shapes.
    pub(super) fn drops_settings_of(self, other: Self) -> bool {
        self.temperature != other.temperature || self.left_out != other.left_out
    }

    /// Describes in words the difference from another shape.
    pub(super) fn beside(self, other: Self) -> String {
        let form = match self.form {
            OutputMode::Derived => "the whole form of the reply",
            OutputMode::Strict => "a strict form of the reply",
            OutputMode::Plain => "a plainer form of the reply",
            OutputMode::Generic => "the form of any patch",
            OutputMode::Object => "the form of any JSON object",
            OutputMode::None => "no form of the reply",
        };
        let limit = match self.limit {
            Limit::MaxTokens => "max_tokens",
            Limit::MaxCompletionTokens => "max_completion_tokens",
            Limit::None => "no limit of tokens",
        };
        let temperature = match self.temperature {
            Temperature::Given => "temperature",
            Temperature::Positive => "a positive temperature",
            Temperature::None => "no temperature",
        };
        let turns = match self.turns {
            TurnFormat::Unchanged => "turns as they came",
            TurnFormat::Known => "turns without unknown members",
            TurnFormat::Filled => "turns without unknown members and empty contents",
        };
        let (left_out, before) = (self.left_out, other.left_out);
        let parts = [
            (self.form != other.form, form),
            (self.limit != other.limit, limit),
            (self.cap != other.cap, "a lower limit of tokens"),
            (self.temperature != other.temperature, temperature),
            (left_out.seed != before.seed, "no seed"),
            (left_out.top_p != before.top_p, "no top_p"),
            (left_out.stop != before.stop, "no stop"),
            (left_out.effort != before.effort, "no reasoning_effort"),
            (left_out.include != before.include, "no include"),
            (self.folded != other.folded, "the system's message in the user's"),
            (self.stream != other.stream, "a stream"),
            (self.turns != other.turns, turns),
            (self.tool_forms != other.tool_forms, "plainer descriptions of tools"),
            (self.no_tools != other.no_tools, "no tools"),
        ];
        parts.into_iter().filter(|(differs, _)| *differs).map(|(_, words)| words).collect::<Vec<_>>().join(", ")
    }
}

/// Optional members that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct OmittedMembers {
    pub(super) seed: bool,
    pub(super) top_p: bool,
    pub(super) stop: bool,
    pub(super) effort: bool,
    /// Request of the Responses API for encrypted reasoning.
    pub(super) include: bool,
}

impl OmittedMembers {
    pub(super) const ALL: Self = Self { seed: true, top_p: true, stop: true, effort: true, include: true };

    pub(super) const fn or(self, other: Self) -> Self {
        Self {
            seed: self.seed || other.seed,
            top_p: self.top_p || other.top_p,
            stop: self.stop || other.stop,
            effort: self.effort || other.effort,
            include: self.include || other.include,
        }
    }
}
