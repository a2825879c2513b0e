//! Recent changes and their authors, from the records of the journal.

use patchboard_workspace::session::CommandResult;
use serde_json::Value;

const CHANGES_MAX: usize = 20;

const PATHS_MAX: usize = 8;

/// Describes the latest edits of a journal page.
pub(super) fn changes(page: &Value, own: &str) -> CommandResult {
    let records = page["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let edits = records.iter().rev().filter_map(|record| {
        let written: Value = serde_json::from_str(record["written"].as_str()?).ok()?;
        let by = written["name"].as_str().or(record["by"]["worker"].as_str())?;
        let mark = if by == own { " (you)" } else { "" };
        let changes = written["changes"].as_array()?;
        let named = changes.iter().take(PATHS_MAX).filter_map(|change| change["path"].as_str());
        let mut paths = named.collect::<Vec<_>>().join(", ");
        if changes.len() > PATHS_MAX {
            paths.push_str(&format!(" and {} more", changes.len() - PATHS_MAX));
        }
        let intent = written["intent"].as_str().map_or(String::new(), |intent| format!(": {intent}"));
        Some(format!("{by}{mark} changed {paths}{intent}"))
    });
    let lines: Vec<String> = edits.take(CHANGES_MAX).collect();
    let text = if lines.is_empty() { "Nobody has changed anything lately.".to_owned() } else { lines.join("\n") };
    CommandResult { text, data: Value::Null, code: None }
}
