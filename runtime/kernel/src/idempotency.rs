//! The token by which a repetition is known: the same agent, the same task, the same content.
//!
//! The form is `{agent}:{task}:{hash}` (SW4RM section 3.11.4, requirement row W73), where the hash is the first 16 hex
//! digits of SHA-256 over agent, line feed, task, line feed, content, as the published vectors
//! `sw4rm-idempotency-bytes-v1` have it. Whose bytes the content is, is the caller's: JSON that may be written in several
//! ways is put into one ([`crate::canonical`]) before.

use std::fmt;

use crate::digest::sha256;

/// What separates the parts of what is hashed, so that no part may hold it.
const SEPARATOR: char = '\n';

/// A name that has a line feed, or is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadName {
    /// Which: `agent` or `task`.
    pub part: &'static str,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} is empty or has a line feed, so it cannot be told from what comes after it", self.part)
    }
}

impl std::error::Error for BadName {}

/// The token of what an agent does for a task.
///
/// # Errors
/// A name is none.
pub fn token(agent: &str, task: &str, content: &[u8]) -> Result<String, BadName> {
    for (part, name) in [("agent", agent), ("task", task)] {
        if name.is_empty() || name.contains(SEPARATOR) {
            return Err(BadName { part });
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
    fn a_token_tells_agents_tasks_and_contents_apart() {
        // The first of the published vectors.
        assert_eq!(token("agent", "work", b"").as_deref(), Ok("agent:work:e09d48d3d73fad94"));
        let tokens =
            [("a", "b", "c"), ("a", "b", "d"), ("a", "bc", ""), ("ab", "c", ""), ("a:b", "c", ""), ("a", "b:c", "")];
        let mut made: Vec<String> = tokens
            .iter()
            .map(|(agent, task, content)| token(agent, task, content.as_bytes()).expect("names"))
            .collect();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), tokens.len());
        assert_eq!(token("a\nb", "c", b""), Err(BadName { part: "agent" }));
        assert_eq!(token("a", "b\n", b""), Err(BadName { part: "task" }));
        assert_eq!(token("", "b", b""), Err(BadName { part: "agent" }));
    }
}
