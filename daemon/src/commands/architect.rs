//! `patchboard architect`: has a model write a blueprint for a request.

use std::path::Path;

use clap::Args;
use patchboard_agents::architect::{Design, Spent};
use serde_json::{Value, json};

use crate::diagnostics;
use crate::drafting::{self, DraftArguments, Word};
use crate::failure::{Exit, Outcome};
use crate::output::Output;
use crate::seating::ModelArguments;

/// Have a model write a blueprint for a request
///
/// The model is told what a blueprint is, shown one that works, and held to the published schema as far as the server
/// can. What it writes is checked like any blueprint; errors go back to it, at most --repairs times, then it is refused
/// with what is still wrong. It may use models and persons who agree, no programs or files, and no limits above those of
/// the table architect in patchboard.toml. Its model is the one named architect there, if there is one, else the default.
///
/// What comes out is a file to read, change and run. `patchboard run --architect` makes one and runs it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard architect 'Compare the two reports and list where they differ' --documents a.txt b.txt -o compare.yaml
  patchboard architect @task.txt --model-url http://127.0.0.1:8080/v1 --model qwen2.5 --approve -o task.yaml

Exit codes: 0 done · 1 the model could not be asked · 2 wrong usage, no blueprint, or you did not agree
            5 --approve, and nobody is at the terminal")]
pub(crate) struct Arguments {
    /// The task, in your words; or @FILE
    #[arg(value_name = "REQUEST|@FILE")]
    request: String,
    #[command(flatten)]
    draft: DraftArguments,
    #[command(flatten)]
    models: ModelArguments,
}

pub(crate) async fn run(arguments: &Arguments, config: Option<&Path>, output: Output) -> Outcome {
    let terms = arguments.draft.terms(&arguments.models, config)?;
    let brief = arguments.draft.brief(&arguments.request, None, false, terms.caps.state_bytes)?;
    let design = arguments.draft.draft(&brief, &arguments.models, config, output).await?;
    let name = arguments.draft.out.as_ref().map_or_else(|| "blueprint".to_owned(), |path| path.display().to_string());
    drafting::warn(&design, &name, output);
    let word = if arguments.draft.approve { drafting::ask_person(&design, output)? } else { Word::Agreed };
    if word == Word::Denied {
        return Err(drafting::denied());
    }
    if let Some(path) = &arguments.draft.out {
        drafting::save(&design, path, output)?;
    }
    if output.is_json() {
        output.json(&as_json(&design))?;
    } else if arguments.draft.out.is_none() {
        output.text(&design.yaml)?;
    }
    if word == Word::Nobody {
        output.complaint(&format!("nobody is at the terminal to agree: read {name}, then `patchboard run {name}`"));
        return Ok(Exit::Waiting);
    }
    Ok(Exit::Done)
}

/// `{"blueprint", "input", "rounds", "usage", "findings"}`.
pub(crate) fn as_json(design: &Design) -> Value {
    json!({
        "blueprint": design.blueprint,
        "input": design.input,
        "rounds": drafting::rounds_json(&design.rounds),
        "usage": drafting::spent_json(&Spent::of(&design.rounds)),
        "findings": design.findings.iter().map(diagnostics::json).collect::<Vec<_>>(),
    })
}
