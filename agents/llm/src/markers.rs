//! Escapes message markers (`<|im_start|>`, `[INST]`, `</system>` and the like) in the texts of requests.
//!
//! A server that builds its prompt from a template may take such a text of a board for the end of a message. So a word
//! joiner (U+2060), which has no width, is inserted after the first character of each marker in a request, and removed
//! from replies. Views, hashes and quotations of views do not contain it.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Names in angle brackets that templates and models use as delimiters of messages and calls.
const NAMES: &str = "system|user|assistant|developer|human|bot|ipython|function|function_calls|function_call|function_results|invoke|parameter|tool|tools|tool_call|tool_calls|tool_code|tool_output|tool_response|tool_result|tool_results|tool_use|think|thinking|s|bos|eos|sop|eop|unk|pad|mask|start_of_turn|end_of_turn|start_of_image|end_of_image|image|extra_id_\\d{1,3}|unused\\d{1,3}|reserved_\\d{1,3}|seed:\\w{1,32}|minimax:\\w{1,32}|antml:\\w{1,32}|SPECIAL_\\d{1,3}|BOS_TOKEN|EOS_TOKEN|end_of_utterance|_user|_bot|_system|_start|_end|role|arg_key|arg_value|TOOLCALL|TOOLS|AVAILABLE_TOOLS|fim_prefix|fim_suffix|fim_middle";

/// Names in square brackets.
const BRACKETS: &str = "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG|IMG_END|IMG_BREAK|AUDIO|THINK|ARGS|CALL_ID|MODEL_SETTINGS|PREFIX|SUFFIX|MIDDLE|gMASK|sMASK|MASK|CLS|SEP|UNK|PAD|EOS|BOS";

/// A joiner, also as JSON may write it.
const JOINER: &str = r"(?:\x{2060}|\\u2060)";

/// Patterns of one kind of marker, in three groups: the text before the joiners, the joiners, and the rest. Each kind
/// is matched by itself, since one marker may begin within another.
struct MarkerPattern {
    /// Matches any number of joiners.
    any: Regex,
    /// Matches at least one joiner.
    joined: Regex,
}

static FORMS: LazyLock<Vec<MarkerPattern>> = LazyLock::new(|| {
    let names = format!(
        r"\|[^|<>\n]{{1,64}}\|?>|｜[^｜<>\n]{{1,64}}｜>|[\w▁ ]{{1,64}}[|｜]>|</?SYS>>|[/\\]?(?i:{NAMES})(?:[\s=][^<>\n]{{0,200}})?>"
    );
    let brackets = format!(r"/?(?:{BRACKETS})\]|\|[^|\[\]\n]{{1,64}}\|\]|[be]~");
    let forms = [
        ("<", names.as_str()),
        (r"\[", brackets.as_str()),
        // The closing bracket may begin another marker.
        (r"\]", "~!?[a-z]"),
        // Turns of plain-text templates begin a paragraph.
        (r"(?:\n|\\n){2}[ \t]*(?:H|A|U)", "(?:uman|ssistant|SSISTANT|SER):"),
        ("‹", "｜"),
        (r"#{2,3}[ \t]?", "(?i:instruction|response|input|system|user|assistant|human)s?:"),
    ];
    let form = |(first, rest): (&str, &str)| {
        let with =
            |joiners: &str| Regex::new(&format!("({first})({JOINER}{joiners})({rest})")).expect("the pattern is one");
        MarkerPattern { any: with("*"), joined: with("+") }
    };
    forms.into_iter().map(form).collect()
});

/// Inserts a joiner into each marker of a text.
pub(super) fn escape_markers(text: &str) -> Cow<'_, str> {
    let join = |found: &Captures<'_>| format!("{}\u{2060}{}{}", &found[1], &found[2], &found[3]);
    replace_all(text, FORMS.iter().map(|form| &form.any), join)
}

/// Removes one joiner from each marker, which undoes [`escape_markers`].
pub(super) fn unescape_markers(text: &str) -> Cow<'_, str> {
    let part = |found: &Captures<'_>| {
        let joiners = &found[2];
        let fewer = joiners.strip_prefix('\u{2060}').or_else(|| joiners.strip_prefix("\\u2060")).unwrap_or(joiners);
        format!("{}{fewer}{}", &found[1], &found[3])
    };
    replace_all(text, FORMS.iter().rev().map(|form| &form.joined), part)
}

fn replace_all<'t>(
    text: &'t str,
    patterns: impl Iterator<Item = &'static Regex>,
    replace: impl Fn(&Captures<'_>) -> String,
) -> Cow<'t, str> {
    patterns.fold(Cow::Borrowed(text), |text, pattern| match pattern.replace_all(&text, &replace) {
        Cow::Borrowed(_) => text,
        Cow::Owned(changed) => Cow::Owned(changed),
    })
}

#[cfg(test)]
mod tests;
