//! `patchboard workflow`: the order of a workflow, or why it has none, from a file.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use patchboard_kernel::workflow::{self, Definition, Problem};
use serde_json::{Value, json};

use crate::failure::{Exit, Outcome};
use crate::given;
use crate::output::Output;

/// What a workflow is, worked out from its definition
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to work out.
#[derive(Subcommand, Debug)]
enum Command {
    Check(Check),
}

/// Say whether a workflow can be run, and in what order
///
/// FILE is {workflow_id, nodes: {ID: {agent_id, dependencies: [ID, ...], trigger_type, input_mapping, output_mapping}}, metadata};
/// only `nodes` must be there. A blueprint can name it (`workflow: FILE`) and run it. A node waits for all its dependencies. Those that wait for nothing are `roots`; `stages` are
/// what can be done at the same time; `order` is one after the other, of those that could be next always the one with the
/// smallest id.
///
/// Prints one JSON object: {valid: true, stages, order, roots, leaves}, or {valid: false, error_code, cycle, errors}, where
/// `cycle` names the nodes that wait for each other, each for the one before it. What is not valid ends with exit code 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard workflow check etl.yaml
  patchboard workflow check etl.json | jq -r '.order[]'
  echo '{\"nodes\": {\"a\": {\"dependencies\": [\"b\"]}, \"b\": {\"dependencies\": [\"a\"]}}}' | patchboard workflow check -")]
struct Check {
    /// The definition, in JSON or YAML; - for standard input, in JSON
    #[arg(value_name = "FILE")]
    definition: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Outcome {
    let Command::Check(arguments) = &arguments.command;
    let definition: Definition = given::read(&arguments.definition, "workflow", "bad_workflow")?;
    match workflow::check(&definition) {
        Ok(order) => {
            let mut told = json!(order);
            told["valid"] = true.into();
            output.json(&told)?;
            Ok(Exit::Done)
        }
        Err(problems) => {
            output.json(&refusal(&problems))?;
            Ok(Exit::Refused)
        }
    }
}

/// What is told of a workflow that has no order.
pub(crate) fn refusal(problems: &[Problem]) -> Value {
    let errors: Vec<Value> = problems
        .iter()
        .map(|problem| json!({"code": problem.code().as_str(), "message": problem.to_string()}))
        .collect();
    json!({
        "valid": false,
        "error_code": problems.first().map(|problem| problem.code().as_str()),
        "cycle": problems.iter().find_map(Problem::cycle),
        "errors": errors,
    })
}
