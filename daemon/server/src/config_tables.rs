//! Configuration tables of single commands. Every command that reads the file checks all of them.

use std::path::Path;

use patchboard_agents::config::{self, toml_error};
use serde::Deserialize;

use crate::failure::Failure;
use crate::notify::settings::Table as Notify;
use crate::serve::retention::Retention;
use crate::serve::settings::Table as Serve;

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "serve")]
    _serve: Serve,
    #[serde(default, rename = "retention")]
    _retention: Retention,
    #[serde(rename = "notify")]
    _notify: Option<Notify>,
}

/// Checks the names and types in `[serve]`, `[retention]` and `[notify]` of a file.
pub fn check(file: &Path) -> Result<(), Failure> {
    let refused = |why: String| Failure::invalid_input("bad_config", format!("{}: {why}", file.display()));
    let text = config::text(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
    toml::from_str::<File>(&text).map(drop).map_err(|error| refused(toml_error(&text, &error)))
}
