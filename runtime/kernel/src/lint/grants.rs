//! Grants on everything or on the request, and fixed replies that no grant of their worker matches.

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{Check, Seat};
use crate::blueprint::AgentKind;
use crate::pattern::{Pattern, PatternToken, is_index};

impl Check<'_> {
    /// Warns of grants on everything and on the request, and of replies of scripts that no grant allows.
    pub(super) fn widths(&mut self) {
        let request = Pattern::parse("/request").ok();
        let mut found = Vec::new();
        for (name, seat) in &self.seats {
            for write in &seat.writes {
                let pointer = format!("{}/path", write.pointer);
                let (path, tokens) = (&write.grant.path, write.pattern.tokens());
                let is_any = |token: &PatternToken| matches!(token, PatternToken::Deep | PatternToken::Any);
                if tokens.contains(&PatternToken::Deep) && tokens.iter().all(is_any) {
                    let message = format!("`{name}` may write everywhere: `{path}`");
                    let help = "Name the places that it is to write.";
                    found.push(("wide_grant", pointer, message, help.to_owned()));
                    continue;
                }
                let reaches = |request: &Pattern| write.pattern.overlaps(request) || request.lies_above(&write.pattern);
                if request.as_ref().is_some_and(reaches) {
                    let message = format!("`{name}` may write to the request: `{path}`");
                    let help = "Let it write beside the request, which says what the user asked for.";
                    found.push(("writes_request", pointer, message, help.to_owned()));
                }
            }
            found.extend(self.refused_replies(name.as_str(), seat));
        }
        for (code, pointer, message, help) in found {
            self.find(code, &pointer, message, help);
        }
    }

    /// Operations of fixed replies at places that no write grant of the worker matches.
    fn refused_replies(&self, name: &str, seat: &Seat<'_>) -> Vec<(&'static str, String, String, String)> {
        let mut found = Vec::new();
        if seat.worker.agent != AgentKind::Script {
            return found;
        }
        for (nth, reply) in seat.worker.script.iter().enumerate() {
            let (at, reply) = match reply.get("reply") {
                Some(inner) => (format!("{}/script/{nth}/reply", seat.pointer), inner),
                None => (format!("{}/script/{nth}", seat.pointer), reply),
            };
            let (at, patch) = match reply.get("patch") {
                Some(patch) => (format!("{at}/patch"), patch),
                None => (at, reply),
            };
            for (op_nth, op) in patch.as_array().into_iter().flatten().enumerate() {
                let (Some(op), Some(path)) = (written(op), op.get("path").and_then(Value::as_str)) else { continue };
                if path == "/$expand/-" {
                    continue;
                }
                let Ok(place) = PointerBuf::parse(path) else { continue };
                let appends = place.split_back().filter(|(_, last)| is_index(&last.decoded()));
                let appends = appends.map(|(array, _)| array.with_trailing_token("-"));
                let allows = |write: &super::Write<'_>| {
                    let pattern = write.pattern.under_any_binding();
                    pattern.matches(&place) || appends.as_ref().is_some_and(|append| pattern.matches(append))
                };
                if !seat.writes.iter().any(allows) {
                    let message = format!("`{name}` answers with `{op}` at `{path}`, and no grant of it matches that");
                    let help = "Grant the place under `writes`, or write elsewhere.".to_owned();
                    found.push(("script_refused", format!("{at}/{op_nth}/path"), message, help));
                }
            }
        }
        found
    }
}

/// The name of an operation that writes to its path.
fn written(op: &Value) -> Option<&str> {
    let name = op.get("op").and_then(Value::as_str)?;
    matches!(name, "add" | "replace" | "remove" | "move" | "copy").then_some(name)
}
