//! `patchboard init`: writes a starter blueprint.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValue;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::templates::{self, Template};
use crate::worker_agents::quoted;

/// Write a starter blueprint and a request for it, and print the command that runs them
///
/// Each template runs unchanged, with a model or without one (--scripted, using scripts in the blueprint). Comments in
/// the blueprint explain its parts. Existing files are not overwritten.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard init
  patchboard init review --template map-review
  patchboard init --list")]
pub(crate) struct Arguments {
    /// The directory to write to; created if missing
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The template
    #[arg(long, short, value_name = "NAME", default_value = templates::ALL[0].name, value_parser = names())]
    template: String,
    /// List the templates, and write nothing
    #[arg(long)]
    list: bool,
}

fn names() -> clap::builder::PossibleValuesParser {
    templates::ALL
        .iter()
        .map(|template| PossibleValue::new(template.name).help(template.about))
        .collect::<Vec<_>>()
        .into()
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Outcome {
    if arguments.list {
        for Template { name, about, .. } in &templates::ALL {
            output.json_or_line(&json!({"name": name, "about": about}), || format!("{name:12} {about}"))?;
        }
        return Ok(Exit::Done);
    }
    let template = templates::ALL.iter().find(|template| template.name == arguments.template);
    let template = template.unwrap_or(&templates::ALL[0]);
    let targets: Vec<PathBuf> = template.files.iter().map(|(path, _)| arguments.dir.join(path)).collect();
    if let Some(there) = targets.iter().find(|path| path.exists()) {
        let message = format!("{} exists already and is not overwritten", there.display());
        return Err(
            Failure::invalid_input("file_exists", message).help("name another directory: `patchboard init DIR`")
        );
    }
    for (index, (path, (_, text))) in targets.iter().zip(template.files).enumerate() {
        if let Err(error) = write(path, text) {
            // Partially written files would block the next attempt.
            targets[..index].iter().for_each(|written| drop(fs::remove_file(written)));
            let message = format!("{} cannot be written: {error}", path.display());
            let help = "name a directory that you may write to: `patchboard init DIR`";
            return Err(Failure::invalid_input("cannot_write", message).help(help));
        }
    }
    let dir = match arguments.dir.display().to_string().trim_end_matches('/') {
        "." => String::new(),
        // Avoids a path that looks like a flag.
        dir if dir.starts_with('-') => format!("./{dir}/"),
        dir => format!("{dir}/"),
    };
    let file = |path: &str| quoted(&format!("{dir}{path}"));
    let run = format!("patchboard run {} --request {}", file("blueprint.yaml"), quoted(&format!("@{dir}request.json")));
    let workspace = template.workspace.map(|name| format!(" --workspace {}", quoted(&format!("{name}={dir}{name}"))));
    let run = run + &workspace.unwrap_or_default();
    let written: Vec<String> = targets.iter().map(|path| path.display().to_string()).collect();
    if output.is_json() {
        output.json(&json!({"template": template.name, "files": written, "run": format!("{run} --scripted")}))?;
    } else {
        output.text(&format!(
            "wrote {}\n\n{}\n\nwithout a model:\n  {run} --scripted\nwith a model:\n  {run} --model-url http://127.0.0.1:8080/v1 --model NAME\n\
             and then:\n  patchboard log last\n  patchboard graph {}\n",
            written.join(", "),
            template.about,
            file("blueprint.yaml"),
        ))?;
    }
    Ok(Exit::Done)
}

/// Writes a new file, and creates its parent directories.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}
