//! Content of drafts and its checks: a schema, and examples given as expressions (W11, W25).

use std::str;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Draft, NegotiationCode, NegotiationError};
use crate::is_json_type;
use patchboard_kernel::canonical;
use patchboard_kernel::expr::{Expr, Variable, Variables};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::schema::Schema;

/// Maximum bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of examples.
pub const EXAMPLES_MAX: usize = 64;
/// Maximum nesting of a JSON payload: its location on the board uses part of the board's depth limit.
const DEPTH_MAX: usize = 48;
/// Maximum number of schema violations reported.
const PROBLEMS_MAX: usize = 20;

/// The standard alphabet; padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes a base64 payload. Fails with [`NegotiationCode::BadPayload`] or [`NegotiationCode::TooLarge`].
pub fn decode(text: &str) -> Result<Vec<u8>, NegotiationError> {
    // Four characters encode three bytes.
    if text.len() > PAYLOAD_BYTES_MAX.div_ceil(3) * 4 {
        return Err(too_large());
    }
    let bytes = BASE64.decode(text).map_err(|why| {
        NegotiationError::new(NegotiationCode::BadPayload, format!("the payload is no base64: {why}"))
    })?;
    if bytes.len() > PAYLOAD_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
}

fn too_large() -> NegotiationError {
    NegotiationError::new(NegotiationCode::TooLarge, format!("the payload has more than {PAYLOAD_BYTES_MAX} bytes"))
}

/// Decoded content of a draft.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// A JSON content type.
    Json(Value),
    /// Another content type, with UTF-8 bytes.
    Text(String),
    /// Any other bytes.
    Bytes(Vec<u8>),
}

impl Content {
    /// Decodes bytes by their content type. `application/json` and types ending in `+json` are JSON, with any
    /// parameters. Fails with [`NegotiationCode::BadJson`].
    pub fn from_bytes(ct: &str, bytes: Vec<u8>) -> Result<Self, NegotiationError> {
        if is_json_type(ct) {
            let limits = Limits { bytes: PAYLOAD_BYTES_MAX, depth: DEPTH_MAX };
            let read = json::parse(&bytes, limits);
            let bad_json =
                |why| NegotiationError::new(NegotiationCode::BadJson, format!("the payload is no JSON: {why}"));
            return read.map(Self::Json).map_err(bad_json);
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(other) => Self::Bytes(other.into_bytes()),
        })
    }

    /// Returns the bytes of non-JSON content; empty for JSON.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Json(_) => &[],
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the content as a JSON value; `None` for bytes that are not UTF-8.
    pub fn value(&self) -> Option<Value> {
        match self {
            Self::Json(value) => Some(value.clone()),
            Self::Text(text) => Some(text.as_str().into()),
            Self::Bytes(_) => None,
        }
    }
}

impl Draft {
    /// Returns the draft's bytes. Fails as [`decode`].
    pub fn bytes(&self) -> Result<Vec<u8>, NegotiationError> {
        let bytes = match (&self.payload_b64, &self.payload) {
            (Some(text), None) => return decode(text),
            (None, Some(Value::String(text))) if !is_json_type(&self.ct) => text.clone().into_bytes(),
            (None, Some(value)) => canonical::to_string(value).into_bytes(),
            (Some(_), Some(_)) | (None, None) => {
                let why = "a draft has `payload_b64` or `payload`, and not both";
                return Err(NegotiationError::new(NegotiationCode::BadPayload, why));
            }
        };
        if bytes.len() > PAYLOAD_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
    }

    /// Returns the decoded content. Fails as [`Draft::bytes`], or with [`NegotiationCode::BadJson`].
    pub fn content(&self) -> Result<Content, NegotiationError> {
        Content::from_bytes(&self.ct, self.bytes()?)
    }

    /// Returns the draft's bytes in base64, unchanged if it was sent that way.
    pub fn to_base64(&self) -> Result<String, NegotiationError> {
        let bytes = self.bytes()?;
        Ok(self.payload_b64.clone().unwrap_or_else(|| BASE64.encode(bytes)))
    }
}

/// A condition on drafts: a boolean CEL expression over `draft`. No foreign code is run.
///
/// `draft` is the JSON value or the text; a draft of other bytes fails every example.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// Name of the example.
    pub name: String,
    /// CEL expression.
    pub expr: String,
    /// Weight in the score; the schema has weight 1.
    #[serde(default = "one")]
    pub weight: f64,
}

const fn one() -> f64 {
    1.0
}

/// Result of a check.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// `schema`, or the name of an example.
    pub name: String,
    /// True if the check passed.
    pub passed: bool,
    /// True if a draft that fails the check is invalid.
    pub required: bool,
    /// Weight in the score.
    pub weight: f64,
    /// Reasons for a failure, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The compiled checks of a negotiation.
pub struct Checks {
    schema: Option<Schema>,
    examples: Vec<(Example, Expr)>,
}

impl Checks {
    /// Compiles a schema and examples. Fails with [`NegotiationCode::BadSetup`].
    pub fn compile(schema: Option<&Value>, examples: &[Example]) -> Result<Self, NegotiationError> {
        let bad = |why: String| NegotiationError::new(NegotiationCode::BadSetup, why);
        let schema = schema.map(|schema| Schema::compile(schema, true)).transpose();
        let schema = schema.map_err(|why| bad(format!("the schema of drafts, at `{}`: {why}", why.pointer)))?;
        if examples.len() > EXAMPLES_MAX {
            return Err(bad(format!("there are {} examples; at most {EXAMPLES_MAX} may be", examples.len())));
        }
        let compile = |example: &Example| {
            if !(example.weight.is_finite() && example.weight >= 0.0) {
                return Err(bad(format!("the weight of the example `{}` is {}", example.name, example.weight)));
            }
            let expr = Expr::compile(&example.expr, &["draft"]);
            let expr = expr.map_err(|why| bad(format!("the example `{}`: {why}", example.name)))?;
            Ok((example.clone(), expr))
        };
        Ok(Self { schema, examples: examples.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// Runs the checks on a draft. `required` marks the schema and the examples as required.
    pub fn run(&self, content: &Content, required: (bool, bool)) -> Vec<Check> {
        let draft = content.value();
        let schema = self.schema.as_ref().map(|schema| {
            let problems = match content {
                Content::Json(value) => violations(schema, value),
                Content::Text(_) | Content::Bytes(_) => vec!["it is no JSON".to_owned()],
            };
            let passed = problems.is_empty();
            Check { name: "schema".to_owned(), passed, required: required.0, weight: 1.0, problems }
        });
        let example = |(example, expr): &(Example, Expr)| {
            let holds = match &draft {
                None => Err("it is neither JSON nor text".to_owned()),
                Some(draft) => {
                    let known = Variables::from([("draft", Variable::from(draft))]);
                    expr.evaluate(&known).map_err(|why| why.to_string())
                }
            };
            let (passed, problems) = match holds {
                Ok(true) => (true, Vec::new()),
                Ok(false) => (false, vec![format!("it is not so that {}", example.expr)]),
                Err(why) => (false, vec![format!("{}: {why}", example.expr)]),
            };
            Check { name: example.name.clone(), passed, required: required.1, weight: example.weight, problems }
        };
        schema.into_iter().chain(self.examples.iter().map(example)).collect()
    }
}

fn violations(schema: &Schema, value: &Value) -> Vec<String> {
    if schema.is_valid(value) {
        return Vec::new();
    }
    let describe = |violation: patchboard_kernel::rejection::Violation| match violation.pointer.as_str() {
        "" => violation.message,
        at => format!("{at}: {}", violation.message),
    };
    let mut problems: Vec<String> = schema.violations(value, PROBLEMS_MAX).into_iter().map(describe).collect();
    if problems.is_empty() {
        problems.push("it does not satisfy the schema".to_owned());
    }
    problems
}
