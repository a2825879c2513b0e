//! Searches the bytes of files in a directory.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files below a directory that contain one of some texts.
pub(crate) fn holding(directory: &Path, texts: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            // A socket or a deleted file contains nothing.
            let Ok(bytes) = fs::read(&path) else { continue };
            if texts.iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes())) {
                found.push(path);
            }
        }
    }
    found
}
