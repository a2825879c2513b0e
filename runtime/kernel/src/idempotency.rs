//! Idempotency keys: equal for one agent, one task and equal content.
//!
//! The form is `{agent}:{task}:{hash}` (SW4RM section 3.11.4, requirement row W73). The hash is the first 16 hex digits
//! of SHA-256 over agent, line feed, task, line feed, content, as in the published vectors
//! `sw4rm-idempotency-bytes-v1`. The caller chooses the bytes of the content; JSON should be put into canonical form
//! before ([`crate::canonical`]).

use crate::digest::sha256;

/// Separator of the hashed parts, which agent and task must not contain.
const SEPARATOR: char = '\n';

/// Error for a name that is empty or contains a line feed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {part} is empty or has a line feed, so it cannot be told from what comes after it")]
pub struct InvalidKeyPart {
    /// Name of the part: `agent` or `task`.
    pub part: &'static str,
}

/// Returns the idempotency key for content that an agent submits for a task. Fails for an invalid agent or task.
pub fn key(agent: &str, task: &str, content: &[u8]) -> Result<String, InvalidKeyPart> {
    for (part, name) in [("agent", agent), ("task", task)] {
        if name.is_empty() || name.contains(SEPARATOR) {
            return Err(InvalidKeyPart { part });
        }
    }
    let mut hashed = format!("{agent}{SEPARATOR}{task}{SEPARATOR}").into_bytes();
    hashed.extend_from_slice(content);
    Ok(format!("{agent}:{task}:{}", &sha256(&hashed).to_string()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_distinguishes_agents_tasks_and_contents() {
        // The first of the published vectors.
        assert_eq!(key("agent", "work", b"").as_deref(), Ok("agent:work:e09d48d3d73fad94"));
        let tokens =
            [("a", "b", "c"), ("a", "b", "d"), ("a", "bc", ""), ("ab", "c", ""), ("a:b", "c", ""), ("a", "b:c", "")];
        let mut made: Vec<String> =
            tokens.iter().map(|(agent, task, content)| key(agent, task, content.as_bytes()).expect("names")).collect();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), tokens.len());
        assert_eq!(key("a\nb", "c", b""), Err(InvalidKeyPart { part: "agent" }));
        assert_eq!(key("a", "b\n", b""), Err(InvalidKeyPart { part: "task" }));
        assert_eq!(key("", "b", b""), Err(InvalidKeyPart { part: "agent" }));
    }
}
