//! Strips the wrapping around the one JSON text of a reply: reasoning blocks, channels, special tokens, fences and
//! prose.
//!
//! The only place that changes a reply. It never changes the JSON text itself, apart from decoding one that was encoded
//! as a string. An ambiguous text (several different JSON texts, or a damaged one) is returned as it came, for the
//! kernel to reject.

use std::borrow::Cow;

use serde_json::Value;

/// Candidate starts of JSON values per text, at most.
const STARTS_MAX: usize = 256;

/// Nested string encodings, at most.
const ENCODED_MAX: u32 = 3;

/// Unopened ends of reasoning blocks that are searched for, at most.
const CLOSES_MAX: usize = 16;

/// Names of tags around reasoning.
const REASONING: [&str; 8] =
    ["think", "thinking", "reasoning", "thought", "reflection", "seed:think", "scratchpad", "analysis"];

/// Special tokens without the usual brackets.
const TOKENS: [&str; 9] =
    ["</s>", "<s>", "<end_of_turn>", "<start_of_turn>", "<eos>", "<bos>", "[/INST]", "[INST]", "<pad>"];

/// Characters of a special token, at most.
const TOKEN_MAX: usize = 48;

/// Strips reasoning, channels, special tokens, and a fence around the whole text.
pub(super) fn strip_wrapping(text: &str) -> &str {
    let trimmed = trim(text);
    if is_document(trimmed) {
        return trimmed;
    }
    let text = trim(after_reasoning(final_channel(trimmed)));
    trim(unfence(text))
}

/// Extracts the JSON text of a reply; returns the text as stripped by [`strip_wrapping`] if there is none.
pub(super) fn extract_json(text: &str) -> Cow<'_, str> {
    let text = strip_wrapping(text);
    only(text).unwrap_or(Cow::Borrowed(text))
}

/// Extracts the JSON text from words that are no reply themselves.
pub(super) fn try_extract_json(text: &str) -> Option<String> {
    only(strip_wrapping(text)).map(Cow::into_owned)
}

/// Returns the only JSON object or array of a text.
pub(super) fn only(text: &str) -> Option<Cow<'_, str>> {
    only_within(text, ENCODED_MAX)
}

fn only_within(text: &str, depth: u32) -> Option<Cow<'_, str>> {
    if is_document(text) {
        return Some(Cow::Borrowed(text));
    }
    if let Ok(Value::String(inner)) = serde_json::from_str(text) {
        let depth = depth.checked_sub(1)?;
        return only_within(strip_wrapping(&inner), depth).map(|found| Cow::Owned(found.into_owned()));
    }
    let mut found: Option<(&str, Value)> = None;
    let mut at = 0;
    for _ in 0..STARTS_MAX {
        let Some(start) = text.get(at..)?.find(['{', '[']).map(|start| at + start) else {
            return found.map(|(slice, _)| Cow::Borrowed(slice));
        };
        match first_value(&text[start..]) {
            Some((value, length)) => {
                let end = start + length;
                if is_reply(&value) || is_fenced(text, start, end) {
                    match &found {
                        Some((_, known)) if *known != value => return None,
                        Some(_) => {}
                        None => found = Some((&text[start..end], value)),
                    }
                }
                at = end;
            }
            None => {
                let end = balanced(&text[start..]).map(|length| start + length);
                let part = &text[start..end.unwrap_or(text.len())];
                // Damaged JSON is not guessed at; other brackets are prose.
                if part.contains('"') && part.contains(':') {
                    return None;
                }
                at = end.unwrap_or(start + 1);
            }
        }
    }
    None
}

/// Returns the JSON value at the beginning of a text, and its length in bytes.
pub fn first_value(text: &str) -> Option<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// Returns true if a text is a JSON object or array.
fn is_document(text: &str) -> bool {
    text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns true if a value amid prose looks like a reply: a non-empty object, or a list of objects.
pub(super) fn is_reply(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        _ => false,
    }
}

/// Returns true if a part of a text is the whole content of a code fence.
fn is_fenced(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].trim_end();
    let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
    let fence = ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence));
    fence.is_some_and(|fence| text[end..].trim_start().starts_with(fence))
}

/// Returns the length in bytes of the bracketed part at the start of a text.
pub(super) fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut inside, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            '{' | '[' if !inside => depth += 1,
            '}' | ']' if !inside => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Removes white space, byte-order marks and special tokens at both ends.
fn trim(mut text: &str) -> &str {
    let is_blank = |c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}' | '\u{2060}' | '\0');
    loop {
        let before = text.len();
        text = text.trim_matches(is_blank);
        for token in TOKENS {
            text = text.strip_prefix(token).unwrap_or(text);
            text = text.strip_suffix(token).unwrap_or(text);
        }
        for (open, close) in [("<|", "|>"), ("<｜", "｜>")] {
            if let Some(end) = text.strip_prefix(open).and_then(|rest| rest.find(close))
                && is_token(&text[open.len()..open.len() + end])
            {
                text = &text[open.len() + end + close.len()..];
                text = text.strip_prefix("assistant\n").unwrap_or(text);
            }
            if let Some(start) = text.strip_suffix(close).and_then(|rest| rest.rfind(open))
                && is_token(&text[start + open.len()..text.len() - close.len()])
            {
                text = &text[..start];
            }
        }
        if text.len() == before {
            return text;
        }
    }
}

/// Returns true if a name between brackets is a special token. Channels and tool calls are none: they announce
/// content.
fn is_token(name: &str) -> bool {
    let is_short =
        name.chars().count() <= TOKEN_MAX && !name.chars().any(|c| c.is_whitespace() || matches!(c, '<' | '>'));
    is_short && !matches!(name, "channel" | "message" | "python_tag" | "constrain" | "call") && !name.contains("tool")
}

/// Returns the last message of the final channel, if a model writes channels (harmony).
fn final_channel(text: &str) -> &str {
    const FINAL: &str = "<|channel|>final";
    let Some(start) = text.rfind(FINAL).map(|at| at + FINAL.len()) else { return text };
    let Some(message) = text[start..].find("<|message|>").map(|at| start + at + "<|message|>".len()) else {
        return text;
    };
    let rest = &text[message..];
    let end = ["<|end|>", "<|return|>", "<|start|>"].iter().filter_map(|end| rest.find(end)).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// Returns the text after leading reasoning blocks. An unterminated block leaves nothing.
fn after_reasoning(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let open = REASONING.into_iter().find_map(|name| {
            let pairs = [
                (format!("<{name}>"), format!("</{name}>")),
                (format!("◁{name}▷"), format!("◁/{name}▷")),
                (format!("[{}]", name.to_uppercase()), format!("[/{}]", name.to_uppercase())),
                (format!("<|{name}|>"), format!("<|/{name}|>")),
            ];
            pairs
                .into_iter()
                .find(|(open, _)| text.get(..open.len()).is_some_and(|start| start.eq_ignore_ascii_case(open)))
        });
        let Some((open, close)) = open else { break };
        let rest = &text[open.len()..];
        // Folds ASCII case only, so that offsets are unchanged.
        match rest.to_ascii_lowercase().find(&close.to_ascii_lowercase()) {
            Some(end) => text = &rest[end + close.len()..],
            None => return "",
        }
    }
    // Some templates open the block in the prompt. A tag inside the reply itself ends no block.
    let closes =
        ["</think>", "</thinking>", "</reasoning>", "[/THINK]", "◁/think▷", "<|END_THINKING|>", "\n...done thinking."];
    for _ in 0..CLOSES_MAX {
        let found = closes.iter().filter_map(|close| Some((text.find(close)?, *close)));
        let Some((at, close)) = found.min() else { break };
        if only(text).is_some_and(|found| found.contains(close)) {
            break;
        }
        let rest = text[at + close.len()..].trim_start();
        if rest.is_empty()
            && let Some(open) = text[..at].rfind(&close.replace('/', ""))
            && open > 0
        {
            // The reasoning follows the reply.
            return text[..open].trim_end();
        }
        text = rest;
    }
    text
}

/// Strips white space, and a code fence around the whole text.
///
/// The fence's first line must be three backticks and at most a language name, its last line three backticks, without
/// a third fence between. Any other text is only trimmed.
pub fn unfence(text: &str) -> &str {
    let text = text.trim();
    inside_fence(text).unwrap_or(text)
}

fn inside_fence(text: &str) -> Option<&str> {
    let (info, rest) = text.strip_prefix("```")?.split_once('\n')?;
    if !info.trim().chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+')) {
        return None;
    }
    let inside = rest.strip_suffix("```")?;
    // The closing fence must be on its own line; JSON has no line that begins with a backtick.
    let own_line = inside.is_empty() || inside.trim_end_matches([' ', '\t']).ends_with('\n');
    let another = inside.lines().any(|line| line.trim_start().starts_with("```"));
    (own_line && !another).then(|| inside.trim())
}

#[cfg(test)]
mod tests;
