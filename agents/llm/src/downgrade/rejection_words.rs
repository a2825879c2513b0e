//! Parts of a request and limits that the text of a rejection names.

use crate::provider_errors::contains_words;

/// Smallest useful room for a reply, in tokens.
const ROOM_MIN: u32 = 16;

/// A part of a request that has plainer forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestPart {
    Form,
    Limit,
    Temperature,
    Seed,
    TopP,
    Stop,
    Effort,
    Include,
    System,
    Stream,
    Turns,
    ToolForms,
    Tools,
    /// All optional members that a rejection names, if it names several.
    Named,
}

/// Words of rejections that name a part; the first match is tried first.
const HINTS: [(RequestPart, &str); 13] = [
    // Precedes the effort, because its words mention reasoning, too.
    (RequestPart::Include, "encrypted content, encrypted_content, 'include', \"include\", `include`"),
    (
        RequestPart::Limit,
        "max_completion_tokens, max_tokens, max_output_tokens, max tokens, completion tokens, output tokens",
    ),
    (
        RequestPart::Form,
        "response_format, response format, output_config.format, output_format, json_schema, json schema, grammar, \
            structured, schema, guided",
    ),
    (RequestPart::System, "system role, system message, role 'system', developer instruction, roles must alternate"),
    // Precedes the effort, because members of turns are named after reasoning.
    (RequestPart::Turns, "messages, reasoning_content, function_response"),
    (RequestPart::Temperature, "temperature"),
    (RequestPart::Seed, "seed"),
    (RequestPart::TopP, "top_p"),
    (RequestPart::Stop, "stop, stop_sequences"),
    (RequestPart::Effort, "reasoning_effort, reasoning, effort, output_config"),
    (RequestPart::Stream, "stream, streaming"),
    (RequestPart::Tools, "tool, tool_choice, function calling"),
    // Contains the effort and the form.
    (RequestPart::Form, "output_config"),
];

/// Returns true if the text of a rejection, in lower case, names a part of the request.
pub(crate) fn is_explained(words: &str) -> bool {
    // Every request has messages.
    hinted(words).is_some_and(|part| part != RequestPart::Turns)
}

/// Returns the first part that the text of a rejection, in lower case, names.
pub(super) fn hinted(words: &str) -> Option<RequestPart> {
    HINTS.iter().find(|(_, all)| is_any_in(words, all)).map(|(part, _)| *part)
}

fn is_any_in(text: &str, all: &str) -> bool {
    all.split(", ").any(|words| contains_words(text, words))
}

pub(super) fn named_parts(words: &str) -> impl Iterator<Item = RequestPart> {
    use RequestPart::*;
    const OPTIONAL: [RequestPart; 7] = [Form, Temperature, Seed, TopP, Stop, Effort, Stream];
    let is_named = |part: &RequestPart| HINTS.iter().any(|(named, all)| named == part && is_any_in(words, all));
    OPTIONAL.into_iter().filter(is_named)
}

/// Computes the room for a reply from the numbers in a rejection: context minus prompt, in tokens.
pub(super) fn named_room(words: &str) -> Option<u32> {
    // Anthropic's: "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000".
    if let Some((_, sum)) = words.split_once("exceed context limit: ") {
        let mut numbers = sum.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        let (prompt, _, context) = (numbers.next()?, numbers.next()?, numbers.next()?);
        return room(context.parse().ok()?, prompt.parse().ok()?);
    }
    const CONTEXT: [&str; 6] = [
        "context length is ",
        "context length of ",
        "context window is ",
        "context window of ",
        "`max_new_tokens` must be <= ",
        "context size is ",
    ];
    const PROMPT: [&str; 8] = [
        " in the messages",
        " in your prompt",
        " in the prompt",
        " input tokens",
        " tokens from the input",
        " of text input",
        " `inputs` tokens",
        " prompt tokens",
    ];
    let context = CONTEXT.iter().find_map(|lead| {
        let rest = &words[words.find(lead)? + lead.len()..];
        let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        digits.replace(',', "").parse().ok()
    })?;
    let prompt = PROMPT.iter().find_map(|tail| {
        let before = words.match_indices(tail).filter_map(|(at, _)| {
            let lead = words[..at].strip_suffix(" tokens").unwrap_or(&words[..at]);
            let rest = lead.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
            let digits = &lead[rest.len()..];
            digits.replace(',', "").parse().ok()
        });
        before.into_iter().next()
    })?;
    room(context, prompt)
}

/// Returns the tokens that a prompt leaves of a context, if they suffice for a request.
fn room(context: u32, prompt: u32) -> Option<u32> {
    context.checked_sub(prompt).filter(|room| *room >= ROOM_MIN)
}

pub(super) fn named_limit(words: &str) -> Option<u32> {
    // Anthropic's: "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens".
    if let Some((before, _)) = words.split_once(", which is the maximum")
        && let Some(limit) = before.rsplit("> ").next().and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0)
    {
        return Some(limit);
    }
    ["at most ", "less than or equal to ", "<= ", "maximum of ", "maximum value is "].iter().find_map(|lead| {
        let rest = &words[words.find(lead)? + lead.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|limit| *limit > 0)
    })
}
