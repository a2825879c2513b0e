//! `patchboard schema`: prints the published JSON Schemas.

use clap::{Args, ValueEnum};
use patchboard_lint::META_SCHEMA;
use patchboard_protocols::department::DEPARTMENT_SCHEMA;

use crate::failure::{Exit, Outcome};
use crate::output::Output;

/// Print the JSON Schema of blueprints, or of the manifests of departments, for editors and other tools
///
/// Editors that validate YAML against a schema complete fields and show their descriptions: name the schema file in a
/// comment at the top of a blueprint, `# yaml-language-server: $schema=blueprint.schema.json`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard schema > blueprint.schema.json
  patchboard schema department > department.schema.json
  patchboard schema | jq '.properties | keys'")]
pub(crate) struct Arguments {
    /// The files that the schema describes
    #[arg(value_enum, default_value_t = SchemaKind::Blueprint)]
    of: SchemaKind,
}

/// Published schema.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum SchemaKind {
    /// Blueprints
    Blueprint,
    /// `department.yaml` of a department's folder
    Department,
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Outcome {
    let text = if let SchemaKind::Blueprint = arguments.of { META_SCHEMA } else { DEPARTMENT_SCHEMA };
    output.line(text.trim_end())?;
    Ok(Exit::Done)
}
