//! `patchboard architect`: has a model write a blueprint for a request.

use std::path::Path;

use clap::Args;

use crate::architect::{self, ArchitectArguments, BlueprintApproval};
use crate::failure::{Exit, Outcome};
use crate::output::Output;
use crate::worker_agents::{ModelArguments, quoted};

/// Have a model write a blueprint for a request
///
/// The prompt explains blueprints and includes a working example; output is constrained to the published schema as far
/// as the server can. The result is linted like any blueprint. Errors are sent back to the model, at most --repairs
/// times; then the blueprint is rejected with the remaining errors. It may use models and persons who agree, no
/// programs or files, and no limits above those of the table architect in patchboard.toml. The model is the one named
/// architect there, else the default.
///
/// The output is a file to read, edit and run. `patchboard run --architect` writes a blueprint and runs it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard architect 'Compare the two reports and list where they differ' --documents a.txt b.txt -o compare.yaml
  patchboard architect @task.txt --model-url http://127.0.0.1:8080/v1 --model qwen2.5 --approve -o task.yaml

Exit codes: 0 done · 1 the model could not be asked, or writing failed in the end
            2 wrong usage, no blueprint, or you did not agree
            5 --approve without a terminal")]
pub(crate) struct Arguments {
    /// The task in plain language; or @FILE
    #[arg(value_name = "REQUEST|@FILE")]
    request: String,
    #[command(flatten)]
    draft: ArchitectArguments,
    /// Overwrite an existing file
    #[arg(long, requires = "out", help_heading = "Architect")]
    force: bool,
    #[command(flatten)]
    models: ModelArguments,
}

pub(crate) async fn run(arguments: &Arguments, config: Option<&Path>, output: Output) -> Outcome {
    arguments.draft.can_write(false, arguments.force)?;
    let terms = arguments.draft.terms(&arguments.models, config)?;
    let brief = arguments.draft.brief(&arguments.request, None, false, terms.caps.state_bytes)?;
    let (design, _) = arguments.draft.draft(&brief, &arguments.models, config, output).await?;
    let name = arguments.draft.out.as_ref().map_or_else(|| "blueprint".to_owned(), |path| path.display().to_string());
    architect::warn(&design, &name, output);
    let word = arguments.draft.approve_and_save(&design, &brief, output)?;
    if output.is_json() || arguments.draft.out.is_none() {
        architect::print_blueprint(&design, output)?;
    }
    if word == BlueprintApproval::NoTerminal {
        let again = format!("patchboard run {}{}", quoted(&name), arguments.draft.to_flags());
        output.error_context(&format!("approval needs a terminal: read {name}, then run `{again}`"));
        return Ok(Exit::Waiting);
    }
    Ok(Exit::Done)
}
