//! Replaces the tables in `docs/performance.md` that belong to the recorded run's benchmark and label.

use std::fs;
use std::path::Path;

/// Inserts a text between the marks of this benchmark and label.
///
/// # Errors
/// If the page cannot be read or written, or has no such marks.
pub(super) fn record(bench: &str, label: &str, text: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
    let trouble = |error: std::io::Error| format!("docs/performance.md: {error}");
    let page = fs::read_to_string(&path).map_err(trouble)?;
    let begin = format!("<!-- {bench} {label} -->");
    let end = format!("<!-- end of {bench} {label} -->");
    let missing = || format!("docs/performance.md has no place {begin} … {end}");
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    fs::write(&path, format!("{before}{begin}\n\n{text}\n\n{end}{after}")).map_err(trouble)
}
