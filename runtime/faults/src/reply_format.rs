//! Renders operations in the reply format of a worker: a patch, members to merge, or a message.

use std::fmt::Write as _;

use patchboard_kernel::ablation::Interface;
use serde_json::{Value, json};

/// Renders a reply that performs these operations. Blackboards have no copy; they remove by setting null.
pub(crate) fn reply(interface: Interface, ops: &[Value]) -> String {
    match interface {
        // No board with whole-object replies is played.
        Interface::Patch | Interface::Whole => json!({"patch": ops, "intent": "what is due"}).to_string(),
        Interface::Merge => {
            // A name may occur more than once: each occurrence appends.
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

/// Returns the quoted path and the value that an operation sets.
fn setting(op: &Value) -> Option<(String, Value)> {
    let place = op["path"].as_str()?;
    let value = if op["op"] == "remove" { Value::Null } else { op.get("value")?.clone() };
    Some((json!(place).to_string(), value))
}
