//! Builds the request of a chat in the shape that its server accepts, and its body.

use std::borrow::Cow;
use std::num::NonZeroU32;

use patchboard_runtime::tools::ToolDefinition;

use super::request::{self, Message, Request, RequestSource, StreamOptions, Tool};
use super::request_shape::{Limit, OmittedMembers, OutputMode, RequestShape, Stream, Temperature, ToolForms};
use super::schema::{self, SchemaLevel};
use super::{Chat, api};
use crate::config::{Api, Streaming};
use crate::key_order::OrderedJson;

/// Reasoning effort after reasoning has left no room for a reply. Lower and unknown efforts stay.
const LESS: &str = "low";

/// Efforts above [`LESS`].
const MORE: [&str; 4] = ["medium", "high", "xhigh", "max"];

/// Replaces a temperature of 0 where it must be positive.
const POSITIVE: f64 = 0.01;

impl Chat {
    /// Builds a request in a shape that the server accepts.
    pub(super) fn request<'a>(
        &'a self,
        task: RequestSource<'a>,
        messages: &'a [Message<'a>],
        offered: &'a [ToolDefinition],
        shape: RequestShape,
    ) -> Request<'a> {
        let most = self.model.max_reply_tokens.map_or(u32::MAX, NonZeroU32::get);
        let limit = Some(task.reply_tokens.min(shape.cap.unwrap_or(u32::MAX)).min(most));
        let configured = self.model.temperature;
        let temperature = match shape.temperature {
            Temperature::Given => Some(configured),
            Temperature::Positive => Some(if configured > 0.0 { configured } else { POSITIVE }),
            Temperature::None => None,
        };
        let stream = match self.model.stream {
            Streaming::Auto | Streaming::Always => shape.stream,
            Streaming::Never => Stream::Off,
        };
        let left_out = shape.left_out;
        let effort = self.model.reasoning_effort.as_deref();
        let effort =
            effort.map(|effort| if task.reduces_reasoning() && MORE.contains(&effort) { LESS } else { effort });
        let mut request = Request {
            model: &self.model.model,
            messages: request::arranged(messages, shape),
            // The plainest request omits every optional member.
            stream: (stream != Stream::Off || shape.left_out != OmittedMembers::ALL).then_some(stream != Stream::Off),
            stream_options: (stream == Stream::WithUsage).then_some(StreamOptions { include_usage: true }),
            temperature,
            max_tokens: limit.filter(|_| shape.limit == Limit::MaxTokens),
            max_completion_tokens: limit.filter(|_| shape.limit == Limit::MaxCompletionTokens),
            seed: self.model.seed.filter(|_| !left_out.seed),
            top_p: self.model.top_p.filter(|_| !left_out.top_p),
            stop: if left_out.stop { &[] } else { &self.model.stop },
            reasoning_effort: effort.filter(|_| !left_out.effort),
            extra: Cow::Borrowed(&self.model.extra_body),
            tools: offered.iter().map(|tool| Tool::from_definition(tool, shape.tool_forms)).collect(),
            response_format: None,
            has_form: false,
            has_include: !left_out.include,
        };
        let level = match shape.form {
            OutputMode::Derived | OutputMode::Strict | OutputMode::Plain => SchemaLevel::Derived,
            OutputMode::Generic | OutputMode::Object => SchemaLevel::Generic,
            OutputMode::None => SchemaLevel::None,
        };
        if let Some((_, mut schema)) = task.form(level) {
            match shape.form {
                OutputMode::Object => request.require_json_object(),
                rung => {
                    match rung {
                        OutputMode::Plain => schema::plain(schema.value.to_mut()),
                        OutputMode::Strict => schema::close(schema.value.to_mut(), task.takes_null()),
                        _ => {}
                    }
                    if shape.tool_forms == ToolForms::Plain && !offered.is_empty() {
                        schema::open(schema.value.to_mut());
                    }
                    request.has_form = request.require_schema(schema, offered, rung == OutputMode::Strict);
                }
            }
        }
        request.drop_overridden_members();
        request
    }

    pub(super) fn body(&self, request: &Request<'_>) -> Result<Vec<u8>, serde_json::Error> {
        match self.model.api {
            Api::Chat => serde_json::to_vec(request),
            api @ (Api::Responses | Api::Anthropic) => {
                let body = serde_json::to_value(request)?;
                let body = api::encode(api, body, request.has_include, &self.model.extra_body);
                serde_json::to_vec(&OrderedJson::new(&body, request.order()))
            }
        }
    }
}
