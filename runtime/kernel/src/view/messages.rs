//! The view of a plain blackboard's worker: the task and the newest messages that fit.

use crate::pipeline::MESSAGES;
use crate::tree::Node;

use super::text;

/// Renders the task, the initial document and the messages, in at most `limit` characters.
pub(super) fn show(state: &Node, beginning: &str, limit: usize) -> String {
    let request =
        state.child("request").map(|request| format!("The task: {}\n", text::whole_json(&request.to_value())));
    let mut task = request.unwrap_or_default() + beginning;
    text::cut(&mut task, limit / 2);
    let mut left = limit.saturating_sub(text::chars(&task));
    let mut kept = Vec::new();
    let messages = state.child(MESSAGES).and_then(Node::as_array);
    let count = messages.map_or(0, |messages| messages.len());
    for index in (0..count).rev() {
        let message = state.child(MESSAGES).and_then(|messages| messages.child(&index.to_string()));
        let part = |name| message.and_then(|message| message.child(name)).and_then(Node::as_str).unwrap_or_default();
        // Continuation lines are indented, so that none looks like the start of another message.
        let line = format!("{}: {}\n", text::name(part("from")), part("text").trim().replace('\n', "\n  "));
        let Some(rest) = left.checked_sub(text::chars(&line)) else { break };
        left = rest;
        kept.push(line);
    }
    if kept.len() < count {
        kept.push("(Older messages are left out.)\n".chars().take(left).collect());
    }
    kept.push(task);
    kept.reverse();
    kept.concat()
}
