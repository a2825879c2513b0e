//! Operations in the words that a worker is asked for: a patch, members to merge, or a message.

use std::fmt::Write as _;

use patchboard_kernel::mode::Interface;
use serde_json::{Value, json};

/// A reply that does these operations. Blackboards know no removing but setting nothing, and no copying.
pub(crate) fn reply(interface: Interface, ops: &[Value]) -> String {
    match interface {
        // On boards of whole objects nobody is played.
        Interface::Patch | Interface::Whole => json!({"patch": ops, "intent": "what is due"}).to_string(),
        Interface::Merge => {
            // A name may be there more than once: each appends.
            let members: Vec<String> =
                ops.iter().filter_map(setting).map(|(place, value)| format!("{place}:{value}")).collect();
            format!("{{{}}}", members.join(","))
        }
        Interface::Message => {
            let mut message = "I say:\n".to_owned();
            for op in ops {
                let place = op["path"].as_str().unwrap_or_default();
                let value = if op["op"] == "remove" { Value::Null } else { op["value"].clone() };
                let _ = writeln!(message, "set {place}: {value}");
            }
            message
        }
    }
}

/// The quoted place and the value that an operation sets.
fn setting(op: &Value) -> Option<(String, Value)> {
    let place = op["path"].as_str()?;
    let value = if op["op"] == "remove" { Value::Null } else { op.get("value")?.clone() };
    Some((json!(place).to_string(), value))
}
