//! `patchboard trust`: approves a configuration found in a directory.

use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_agents::config::{self, Config};
use reqwest::Url;
use serde_json::json;
use toml::Table;

use crate::config_tables;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, json_line, one_line, short};
use crate::trust::{CONFIG, TrustedFile, TrustedFiles};

/// Approve a configuration: patchboard.toml of the current directory is used from then on
///
/// A configuration names programs that PatchBoard runs and addresses that it sends keys to. A file in the current
/// directory may have come with other people's files, so it is used only after you approve it, and until it changes.
/// This command shows its settings, and stores your approval in your home directory
/// (~/.config/patchboard/trusted.json). A file given with --config or PATCHBOARD_CONFIG needs no approval.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard trust                    agree to ./patchboard.toml
  patchboard trust work/patchboard.toml
  patchboard trust --list
  patchboard trust --revoke")]
pub(crate) struct Arguments {
    /// The configuration
    #[arg(value_name = "FILE", default_value = CONFIG)]
    file: PathBuf,
    /// Revoke the approval
    #[arg(long, conflicts_with = "list")]
    revoke: bool,
    /// List approved configurations
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Outcome {
    let mut agreements = TrustedFiles::read()?;
    if arguments.list {
        for file in &agreements.files {
            output.json_or_line(&json!(file), || one_line(&file.path.display().to_string()))?;
        }
        return Ok(Exit::Done);
    }
    if arguments.revoke {
        if !agreements.remove(&arguments.file)? {
            let message = format!("{} was not approved", arguments.file.display());
            return Err(Failure::invalid_input("config_untrusted", message)
                .help("`patchboard trust --list` lists the approved files"));
        }
        output.note(&format!("{} is not used any more unless it is named", arguments.file.display()));
        return Ok(Exit::Done);
    }
    let agreement = TrustedFile::for_file(&arguments.file)?;
    let does = effects(&arguments.file)?;
    agreements.add(agreement.clone())?;
    if output.is_json() {
        output.json(&json!({"path": agreement.path, "sha256": agreement.sha256, "does": does}))?;
        return Ok(Exit::Done);
    }
    for line in &does {
        output.line(line)?;
    }
    output.note(&format!("{} is used in its directory until it is changed", agreement.path.display()));
    Ok(Exit::Done)
}

/// Maximum characters of a value; a longer command should be read in the file.
const VALUE_MAX: usize = 4000;

/// Lists the settings, one line each.
fn effects(path: &Path) -> Result<Vec<String>, Failure> {
    Config::read(path).map_err(|error| Failure::invalid_input("bad_config", error))?;
    config_tables::check(path)?;
    let text = config::text(path).map_err(|error| Failure::invalid_input("bad_config", error))?;
    let whole: Table = toml::from_str(&text).map_err(|error| Failure::invalid_input("bad_config", error.message()))?;
    let mut lines = Vec::new();
    whole.iter().for_each(|(name, value)| list(name, value, &mut lines));
    Ok(lines)
}

fn list(name: &str, value: &toml::Value, lines: &mut Vec<String>) {
    match value {
        toml::Value::Table(members) => {
            for (member, value) in members {
                list(&format!("{name}.{member}"), value, lines);
            }
        }
        // These may hold a key: headers, parameters, environment variables of programs, and the path of a webhook.
        toml::Value::String(_) if [".headers.", ".query.", ".env."].iter().any(|part| name.contains(part)) => {
            lines.push(format!("{name} = …"));
        }
        toml::Value::String(address) if name == "notify.webhook" => {
            let place = Url::parse(address).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
            lines.push(format!("{name} = \"{place}/…\""));
        }
        // Formatted as JSON, so that line breaks are visible.
        value => lines.push(short(&format!("{name} = {}", json_line(value)), name.chars().count() + VALUE_MAX)),
    }
}
