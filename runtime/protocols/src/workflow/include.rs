//! Expands the workflow of a blueprint (`workflow:`, inline or in a file) into a seat, rules and a part of the
//! document.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::workflow::engine::WHEN_VARIABLES;
use crate::workflow::{
    self, Definition, Expansion, GeneratedPart, Node, REQUEST_DATA_SCHEMA, RESUME_SIGNAL, RUNNING_NODES_MAX,
    TriggerType, Warning, WorkflowError, expand, is_node_name,
};
use patchboard_kernel::expr::{CompileError, Expr};
use patchboard_lint::extension::Expanded;
use patchboard_lint::source::{FileLoader, Source, child, object_at};
use patchboard_lint::{Diagnostic, META_SCHEMA, MetaSchema, suggest};

/// Workflow part of the blueprint schema; workflows may be in files of their own.
static SCHEMA: LazyLock<MetaSchema> = LazyLock::new(|| {
    let meta: Value = serde_json::from_str(META_SCHEMA).expect("the schema is part of the kernel and tested");
    MetaSchema::new("the workflow", json!({"$ref": "#/$defs/workflow", "$defs": meta["$defs"]}))
});

const HELP: &str = "docs/workflows.md says what a workflow has.";

/// Replaces `workflow` by its expansion. `file` is the file of the source itself. Fails with all findings of the
/// workflow.
pub(crate) fn resolve(source: &mut Source, files: &mut dyn FileLoader, file: Option<&String>) -> Expanded {
    let Some(inline) = source.part("/workflow") else { return Ok(()) };
    let name = inline.value().as_str().map(str::to_owned);
    let read = match &name {
        None => inline,
        Some(name) => {
            let text = files.text(name).map_err(|reason| {
                let message = format!("the workflow `{name}` cannot be read: {reason}");
                let help = "It is named relative to the blueprint's own directory and stays below it.";
                vec![Diagnostic::at(source, "fragment_unreadable", "/workflow", message, help).or_in_file(file)]
            })?;
            Source::read(name, &text).map_err(|finding| vec![finding.in_file(name)])?
        }
    };
    let included = definition(&read).and_then(|definition| include(source, &read, &definition));
    included.map_err(|findings| {
        let placed = |finding: Diagnostic| match &name {
            Some(name) => finding.in_file(name),
            None => finding.below("/workflow").or_in_file(file),
        };
        findings.into_iter().map(placed).collect::<Vec<_>>()
    })?;
    drop(source.take_member("workflow"));
    Ok(())
}

/// Reads the workflow, if it is acyclic and can be run.
fn definition(read: &Source) -> Result<Definition, Vec<Diagnostic>> {
    let mut findings = Vec::new();
    SCHEMA.check(read, &mut findings);
    if !findings.is_empty() {
        return Err(findings);
    }
    // The schema is at least as strict as the model; a test enforces it.
    let definition: Definition = serde_json::from_value(read.value().clone())
        .map_err(|error| vec![Diagnostic::at(read, "bad_value", "", error.to_string(), HELP)])?;
    if let Err(problems) = workflow::check(&definition) {
        return Err(problems.iter().map(|problem| finding(read, &definition, problem)).collect());
    }
    if definition.nodes.len() > RUNNING_NODES_MAX {
        let found = Warning::TooLarge { nodes: definition.nodes.len() };
        return Err(vec![Diagnostic::at(read, found.code(), "/nodes", found.to_string(), found.help())]);
    }
    for (id, node) in &definition.nodes {
        check_node(read, id, node, &mut findings);
    }
    if findings.is_empty() { Ok(definition) } else { Err(findings) }
}

/// Converts a problem to a finding at its position.
fn finding(read: &Source, definition: &Definition, problem: &WorkflowError) -> Diagnostic {
    let of_node = |node: &str| child("/nodes", node);
    let dependency = |node: &str, named: &str| {
        let named_at = definition.nodes.get(node).and_then(|node| node.dependencies.iter().position(|id| id == named));
        format!("{}/dependencies/{}", of_node(node), named_at.unwrap_or_default())
    };
    let known = definition.nodes.keys().map(String::as_str);
    let (pointer, help) = match problem {
        WorkflowError::Size { .. } => {
            ("/nodes".to_owned(), "Give it a node: `nodes: {first: {agent_id: worker}}`.".to_owned())
        }
        WorkflowError::IdMismatch { node, .. } => {
            (format!("{}/node_id", of_node(node)), "Remove `node_id`.".to_owned())
        }
        WorkflowError::SelfDependency { node } => (dependency(node, node), "Remove this dependency.".to_owned()),
        WorkflowError::UnknownDependency { node, dependency: named } => {
            (dependency(node, named), suggest(named, known, "Remove this dependency."))
        }
        WorkflowError::Cycle { nodes } => {
            let (first, last) = (nodes.first(), nodes.last());
            let at = first.zip(last).map_or_else(String::new, |(first, last)| dependency(first, last));
            (at, "Remove one of these dependencies.".to_owned())
        }
    };
    Diagnostic::at(read, problem.code().as_str(), &pointer, problem.to_string(), help)
}

/// Checks the additional requirements of a workflow that is to be run.
fn check_node(read: &Source, id: &str, node: &Node, findings: &mut Vec<Diagnostic>) {
    let at = child("/nodes", id);
    let mut find = |code: &'static str, member: &str, message: String, help: &str| {
        let pointer = if member.is_empty() { at.clone() } else { format!("{at}/{member}") };
        let finding = Diagnostic::at(read, code, &pointer, message, help);
        findings.push(if member.is_empty() { finding.at_key(read) } else { finding });
    };
    if !is_node_name(id) {
        let found = Warning::NodeName { node: id };
        find(found.code(), "", format!("the id `{id}` is no name"), found.help());
    }
    if node.awaited_signal(id) == Some(RESUME_SIGNAL) {
        let found = Warning::ReservedSignal { node: id };
        let member = if node.signal.is_some() { "signal" } else { "" };
        find(found.code(), member, found.to_string(), found.help());
    }
    let belongs = [
        ("signal", node.signal.is_some(), TriggerType::Event, "EVENT"),
        ("every", node.every.is_some(), TriggerType::Schedule, "SCHEDULE"),
    ];
    for (member, _, _, name) in
        belongs.into_iter().filter(|(_, is_there, kind, _)| *is_there && node.trigger_type != *kind)
    {
        let message = format!("`{id}` has `{member}`, and its trigger is not {name}");
        find("workflow_bad_trigger", member, message, &format!("Write `trigger_type: {name}`, or remove it."));
    }
    if let Some(when) = &node.when
        && let Err(CompileError { code, offset, message }) = Expr::compile(when, WHEN_VARIABLES)
    {
        let code = if code == "cel_not_boolean" { "not_boolean" } else { "bad_condition" };
        find(code, "when", message, "Write a CEL condition over `data`, like `data.count > 0`.");
        let position = offset.and_then(|offset| read.position_in(&format!("{at}/when"), offset));
        if let (Some(position), Some(finding)) = (position, findings.last_mut()) {
            finding.position = Some(position);
        }
    }
}

/// Default invocation limit of a node's worker: it may run all nodes, and repeat them.
const INVOCATIONS: u64 = 10_000;

/// Adds the expansion of a workflow to the blueprint.
fn include(source: &mut Source, read: &Source, definition: &Definition) -> Expanded {
    let from_request = source.value().pointer(REQUEST_DATA_SCHEMA).is_some();
    let Expansion { made, grants, defaults } = expand(definition, from_request);
    let mut findings: Vec<Diagnostic> =
        definition.nodes.iter().filter_map(|(id, node)| unknown(source, read, id, node)).collect();
    make_room(source.value_mut());
    findings.extend(made.iter().filter_map(|made| clash(source, read, made)));
    if !findings.is_empty() {
        return Err(findings);
    }
    for GeneratedPart { within, name, node, value } in made {
        let of = node.map_or_else(String::new, |node| child("/nodes", &node));
        let put = match name {
            // A value there that is neither a mapping nor a list is reported by the lint.
            Some(name) => object_at(source.value_mut(), within).map(|members| {
                members.insert(name.to_owned(), value);
                child(within, name)
            }),
            None => list_at(source.value_mut(), within).map(|list| {
                list.push(value);
                format!("{within}/{}", list.len() - 1)
            }),
        };
        let Some(put) = put else { continue };
        source.set_location(&put, read.location(&of));
        let every = format!("{of}/every");
        if read.value().pointer(&every).is_some() {
            source.set_location(&format!("{put}/trigger/every"), read.location(&every));
        }
        if put == "/workers/workflow" {
            for id in definition.nodes.keys() {
                source.set_location(&child(&format!("{put}/with/nodes"), id), read.location(&child("/nodes", id)));
            }
        }
    }
    for grant in grants {
        let worker = child("/workers", &grant.worker);
        // A worker without invocations left could never complete its node.
        let limits =
            object_at(source.value_mut(), &worker).map(|worker| worker.entry("limits").or_insert_with(|| json!({})));
        if let Some(limits) = limits.and_then(Value::as_object_mut) {
            limits.entry("invocations").or_insert_with(|| INVOCATIONS.into());
        }
        let write = json!({"path": grant.write, "ops": ["add"]});
        for (holder, path, value) in [("reads", &grant.read, json!(grant.read)), ("writes", &grant.write, write)] {
            let within = format!("{worker}/{holder}");
            let Some(list) = list_at(source.value_mut(), &within) else { continue };
            // The worker's own grant on this path takes precedence, for instance one that constrains the output.
            let is_said = |own: &Value| own.get("path").unwrap_or(own).as_str() == Some(path);
            if !list.iter().any(is_said) {
                list.push(value);
                let at = format!("{within}/{}", list.len() - 1);
                source.set_location(&at, read.location(&child("/nodes", &grant.node)));
            }
        }
    }
    for (holder, name, value) in defaults {
        let members =
            if holder.is_empty() { source.value_mut().as_object_mut() } else { object_at(source.value_mut(), holder) };
        if let Some(members) = members
            && !members.contains_key(name)
        {
            members.insert(name.to_owned(), value);
            source.set_location(&format!("{holder}/{name}"), read.location(""));
        }
    }
    Ok(())
}

/// Returns a finding if a node's worker is not declared.
fn unknown(source: &Source, read: &Source, id: &str, node: &Node) -> Option<Diagnostic> {
    let worker = node.worker(id);
    let workers = source.value().get("workers").and_then(Value::as_object);
    if workers.is_some_and(|workers| workers.contains_key(worker)) {
        return None;
    }
    let known = workers.into_iter().flat_map(|workers| workers.keys().map(String::as_str)).collect::<Vec<_>>();
    let help = suggest(worker, known, "Declare it under `workers`.");
    let message = format!("there is no worker `{worker}`");
    let at = child("/nodes", id);
    let at = if node.agent_id.is_empty() { at } else { format!("{at}/agent_id") };
    Some(Diagnostic::at(read, "undeclared_worker", &at, message, help))
}

/// Returns a finding if a generated name exists already.
fn clash(source: &Source, read: &Source, made: &GeneratedPart) -> Option<Diagnostic> {
    let within = source.value().pointer(made.within)?;
    let (name, other) = match made.name {
        Some(name) => (name, child(made.within, name)),
        None => {
            let name = made.value.get("name")?.as_str()?;
            let same = |other: &Value| other.get("name").and_then(Value::as_str) == Some(name);
            (name, format!("{}/{}", made.within, within.as_array()?.iter().position(same)?))
        }
    };
    source.value().pointer(&other)?;
    let line = source.key_position(&other).map_or_else(String::new, |position| format!(" (line {})", position.line));
    let message = format!("`{name}` is in `{}` already{line}, and a workflow brings it", made.within);
    let at = made.node.as_ref().map_or_else(String::new, |node| child("/nodes", node));
    Some(Diagnostic::at(read, "fragment_clash", &at, message, "Rename it; a workflow overrides nothing."))
}

/// Adds a default document, and opens schemas of `true` for additions.
fn make_room(value: &mut Value) {
    let Some(root) = value.as_object_mut() else { return };
    let bare = || json!({"schema": {"type": "object", "additionalProperties": false, "properties": {"request": true}}});
    let state = root.entry("state").or_insert_with(bare);
    if state.get("schema") == Some(&Value::Bool(true)) {
        state["schema"] = json!({});
    }
    if let Some(data @ Value::Bool(true)) = value.pointer_mut(REQUEST_DATA_SCHEMA) {
        *data = json!({});
    }
}

/// Returns the list at a pointer, and creates a missing one; `None` if another value is in the way.
fn list_at<'a>(root: &'a mut Value, pointer: &str) -> Option<&'a mut Vec<Value>> {
    let (holder, name) = pointer.rsplit_once('/')?;
    let members = if holder.is_empty() { root.as_object_mut() } else { object_at(root, holder) }?;
    members.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}
