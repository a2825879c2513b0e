//! `patchboard workflow`: prints the execution order of a workflow, or the reason it has none, from a file.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use patchboard_protocols::workflow::{self, Definition};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::Output;
use crate::queries::workflow::{InvalidWorkflow, WorkflowReport};

/// Analyse a workflow definition
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Check(Check),
}

/// Check that a workflow can be run, and print its order
///
/// FILE is {workflow_id, nodes: {ID: {agent_id, dependencies: [ID, ...], trigger_type, input_mapping, output_mapping}},
/// metadata}; only `nodes` is required. A blueprint can name it (`workflow: FILE`) and run it. A node waits for all its
/// dependencies. Nodes without dependencies are `roots`; `stages` are groups that can run concurrently. `order` is
/// sequential; among the nodes ready to run, the smallest id comes first.
///
/// Prints one JSON object: {valid: true, stages, order, roots, leaves, warnings}, or {valid: false, error_code, cycle,
/// errors}, where `cycle` lists nodes that wait for each other, each for the one before it. An invalid workflow exits
/// with 2; a file that is no definition has the code `bad_workflow`. `warnings` are nodes that nothing starts and their
/// dependents, data entries that two nodes write in no order, and violations of a board's limits: more than 64 nodes,
/// ids that are no names.
///
/// Workers, conditions and schedules are checked with the blueprint that has the workflow: `patchboard check
/// BLUEPRINT`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard workflow check etl.yaml
  patchboard workflow check etl.json | jq -r '.order[]'
  echo '{\"nodes\": {\"a\": {\"dependencies\": [\"b\"]}, \"b\": {\"dependencies\": [\"a\"]}}}' | patchboard workflow check -")]
pub(crate) struct Check {
    /// The definition, in JSON or YAML; - for standard input, in JSON
    #[arg(value_name = "FILE")]
    definition: PathBuf,
}

pub(crate) fn run(command: &Command, output: Output) -> Outcome {
    let Command::Check(arguments) = command;
    let definition = match definition(&arguments.definition) {
        Ok(definition) => definition,
        Err(failure) => {
            if let Failure::Error(error) = &failure {
                output.json(&json!(InvalidWorkflow::unreadable(error.code, &error.message)))?;
            }
            return Err(failure);
        }
    };
    let report = WorkflowReport::new(&workflow::check(&definition));
    output.json(&json!(report))?;
    Ok(if report.is_valid() { Exit::Done } else { Exit::InvalidInput })
}

fn definition(path: &Path) -> Result<Definition, Failure> {
    let help =
        "a definition is {nodes: {ID: {...}}}; for a blueprint with a workflow, `patchboard check` reports the same";
    let value: Value = input::read(path, "workflow", BAD_WORKFLOW).map_err(|failure| failure.help(help))?;
    Definition::parse(value).map_err(|why| {
        Failure::invalid_input(BAD_WORKFLOW, format!("{} holds no workflow: {why}", path.display())).help(help)
    })
}

const BAD_WORKFLOW: &str = "bad_workflow";
