//! The document of a blueprint: its schemas, its initial state, and the expressions over it.

use std::collections::BTreeMap;

use jsonptr::Pointer;
use serde_json::Value;

use super::cached_schema::CachedSchema;
use super::diagnostic::Diagnostic;
use super::{Expression, Linter};
use crate::source::child;
use patchboard_kernel::expr::{Allowance, CompileError, Dialect, Expr, Variable, Variables};
use patchboard_kernel::expressions::{ExpressionCompiler, ExpressionOwner};
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::record::FORMAT;
use patchboard_kernel::rejection::Violation;
use patchboard_kernel::schema::{Location, Schema};
use patchboard_kernel::{invariant, json};

pub(super) const FIX_SCHEMA_HELP: &str =
    "Fix the schema; the dialect is JSON Schema 2020-12, and `$ref` stays inside its document.";

/// Maximum listed violations of the initial state.
const VIOLATIONS_MAX: usize = 20;

/// Maximum instances of an invariant checked on the initial state.
const INSTANCES_MAX: usize = 1000;

impl<'a> Linter<'a> {
    /// Compiles the schemas and validates the initial state.
    pub(super) fn document(&mut self) {
        let state = &self.blueprint.state;
        self.schema = self.compile("/state/schema", &state.schema);
        self.request = self.compile("/request", &self.blueprint.request);
        for (name, schema) in &self.blueprint.signals {
            if let Some(schema) = self.compile(&child("/signals", name), schema) {
                self.signals.insert(name, schema);
            }
        }
        self.reserved_names();
        self.place_for_request();
        self.initial_state();
    }

    fn compile(&self, pointer: &str, schema: &Value) -> Option<CachedSchema> {
        let compiled = Schema::compile_within(schema, self.blueprint.state.assert_formats, &self.effort);
        match compiled.and_then(|schema| self.values.count(&schema).map(|()| schema)) {
            Ok(schema) => Some(schema.into()),
            Err(error) => {
                self.report("bad_schema", &format!("{pointer}{}", error.pointer), error.message, FIX_SCHEMA_HELP);
                None
            }
        }
    }

    fn reserved_names(&self) {
        let state = &self.blueprint.state;
        let declared = state.schema.get("properties").and_then(Value::as_object);
        let declared = declared.into_iter().flat_map(|map| map.keys().map(|key| ("/state/schema/properties", key)));
        let initial = state.initial.as_object();
        let initial = initial.into_iter().flat_map(|map| map.keys().map(|key| ("/state/initial", key)));
        for (holder, key) in declared.chain(initial) {
            let pointer = child(holder, key);
            if key.starts_with('$') {
                let message = format!("`{key}` begins with `$`, which is kept for the system");
                self.report_at_key("reserved_name", &pointer, message, "Choose a name without `$`.");
            } else if key == "request" && holder == "/state/initial" {
                let message = "`request` is what the user supplies, not part of the initial state";
                let help = "Describe it under `request:` and leave it out here.";
                self.report_at_key("reserved_name", &pointer, message, help);
            }
        }
    }

    /// Adds a finding about the key at a pointer.
    pub(super) fn report_at_key(
        &self,
        code: &'static str,
        pointer: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Diagnostic::at(self.source, code, pointer, message, help).at_key(self.source));
    }

    /// Reports a state schema without room for the request that a blueprint asks for.
    fn place_for_request(&self) {
        let Some(schema) = &self.schema else { return };
        let allowed = Pattern::parse("/request").map(|pattern| schema.locate(&pattern));
        if self.blueprint.request != Value::Bool(true) && matches!(allowed, Ok(Location::Illegal { .. })) {
            let message = "the state schema does not allow `/request`, where the request lands";
            let help = "Add `request: true` to its `properties`; what a request must be is said by `request` above.";
            self.report("unknown_path", "/state/schema", message, help);
        }
    }

    fn initial_state(&self) {
        let state = &self.blueprint.state;
        let limits = &self.blueprint.limits;
        let depth = json::depth(&state.initial);
        if depth > usize::try_from(limits.depth).unwrap_or(usize::MAX) {
            let message =
                format!("the initial state is nested {depth} deep, more than `limits.depth` {}", limits.depth);
            self.report("invalid_initial_state", "/state/initial", message, "Raise the limit or flatten the state.");
        }
        let bytes = state.initial.to_string().len();
        if u64::try_from(bytes).unwrap_or(u64::MAX) > limits.state_bytes {
            let message =
                format!("the initial state has {bytes} bytes, more than `limits.state_bytes` {}", limits.state_bytes);
            self.report("invalid_initial_state", "/state/initial", message, "Raise the limit or shrink the state.");
        }
        let Some(schema) = &self.schema else { return };
        for violation in violations_without_request(schema, &state.initial) {
            let pointer = format!("/state/initial{}", violation.pointer);
            let place = if violation.pointer.is_empty() { String::new() } else { format!("`{}`: ", violation.pointer) };
            let message = format!("the initial state breaks the schema: {place}{}", violation.message);
            let help = match violation.rule.as_deref() {
                Some(least @ ("minItems" | "minLength" | "minProperties")) => {
                    format!(
                        "Take `{least}` out of the schema, or begin with enough: what workers add is not there yet."
                    )
                }
                Some("required") => {
                    "Take it out of `required` if a worker adds it later, or put it into `state.initial`.".to_owned()
                }
                _ => "Change `state.initial` or `state.schema`.".to_owned(),
            };
            self.report("invalid_initial_state", &pointer, message, help);
        }
    }

    /// Compiles every expression, and checks the invariants on the initial state.
    pub(super) fn expressions(&mut self) {
        let blueprint = self.blueprint;
        for (name, worker) in &blueprint.workers {
            for (index, read) in worker.reads.iter().enumerate() {
                let Some(condition) = &read.condition else { continue };
                let pointer = format!("{}/reads/{index}/where", child("/workers", name.as_str()));
                self.add_expression(pointer, condition, ExpressionOwner::Read(read));
            }
        }
        for (name, worker) in &blueprint.workers {
            for (index, write) in worker.writes.iter().enumerate() {
                let Some(condition) = &write.condition else { continue };
                let pointer = format!("{}/writes/{index}/where/expr", child("/workers", name.as_str()));
                self.add_expression(pointer, &condition.expr, ExpressionOwner::Write(condition));
            }
        }
        for (index, rule) in blueprint.rules.iter().enumerate() {
            if let Some(when) = &rule.when {
                self.add_expression(format!("/rules/{index}/when"), when, ExpressionOwner::Rule(rule));
            }
        }
        // Uses the allowance for one proposal; creation of a board checks the rest.
        let mut allowance = Allowance::new();
        for (index, invariant) in blueprint.invariants.iter().enumerate() {
            let pointer = format!("/invariants/{index}/expr");
            let Some(expr) = self.expression(&pointer, &invariant.expr, ExpressionOwner::Invariant(invariant)) else {
                continue;
            };
            // The user's request is not known here.
            if !expr.uses("request") && !self.has("invalid_initial_state") {
                self.try_invariant(&pointer, &expr, invariant.each.as_deref(), &mut allowance);
            }
            self.expressions.push(Expression { pointer, owner: ExpressionOwner::Invariant(invariant), expr });
        }
        if let Some(done) = &blueprint.done {
            self.add_expression("/done/when".to_owned(), &done.when, ExpressionOwner::Done);
        }
    }

    fn add_expression(&mut self, pointer: String, text: &str, owner: ExpressionOwner<'a>) {
        if let Some(expr) = self.expression(&pointer, text, owner) {
            self.expressions.push(Expression { pointer, owner, expr });
        }
    }

    /// Returns the compiler of expressions, as far as the schemas are known.
    pub(super) fn compiler(&self) -> ExpressionCompiler<'_> {
        let (state, request) = (self.schema.as_deref(), self.request.as_deref());
        let dialect = Dialect::for_journal_format(FORMAT);
        ExpressionCompiler { paths: self.paths, dialect, state, request, signals: None }
    }

    fn expression(&self, pointer: &str, text: &str, owner: ExpressionOwner<'_>) -> Option<Expr> {
        let variables = owner.variables();
        match self.compiler().compile(text, owner) {
            Ok(expr) => Some(expr),
            Err(CompileError { code, offset, message }) => {
                let known = variables.join(", ");
                let (finding, help) = match code {
                    "cel_not_boolean" => ("not_boolean", "Compare the value with something, or negate it.".to_owned()),
                    "cel_unknown_variable"
                        if Expr::compile(text, &[variables, &["self", "old", "key"]].concat()).is_ok() =>
                    {
                        let cure = match pointer.starts_with("/invariants/") {
                            true => "Give the invariant a `for`, the path of what `self` is to be, or",
                            false => "Only invariants with a `for` have `self`, `old` and `key`:",
                        };
                        ("bad_condition", format!("{cure} name the place as `state.…`."))
                    }
                    "cel_unknown_variable" => {
                        let binds = |name: &&str| matches!(owner, ExpressionOwner::Rule(rule) if self.bound_by(rule).contains(*name));
                        let name = offset.and_then(|at| text.get(at..)).map(first_word).filter(binds);
                        let bound = name.map(|name| format!("Write `bound.{name}`, which is what the trigger binds."));
                        ("bad_condition", bound.unwrap_or_else(|| format!("The variables here are {known}.")))
                    }
                    "cel_too_long" | "cel_too_complex" => {
                        ("bad_condition", "Make it shorter; split an invariant into several.".to_owned())
                    }
                    _ => ("bad_condition", format!("Write a CEL expression over {known}.")),
                };
                let finding = Diagnostic::at(self.source, finding, pointer, message, help);
                let position = offset.and_then(|offset| self.source.position_in(pointer, offset));
                self.push(Diagnostic { position: position.or(finding.position), ..finding });
                None
            }
        }
    }

    fn try_invariant(&self, pointer: &str, expr: &Expr, each: Option<&str>, allowance: &mut Allowance) {
        let initial = &self.blueprint.state.initial;
        // As in the creation of a board: `before` equals `state`, and the patch is empty.
        let mut variables: Variables<'_> = BTreeMap::from([
            ("state", Variable::from(initial)),
            ("before", Variable::from(initial)),
            ("patch", Variable::from(Value::Array(Vec::new()))),
        ]);
        let outcome = match each {
            None => failure_reason(expr, &variables, allowance),
            Some(pattern) => {
                let Ok(pattern) = Pattern::parse(pattern) else { return };
                let instances = pattern.instances_of_value(initial, INSTANCES_MAX);
                instances.into_iter().find_map(|instance| {
                    let value = initial.pointer(instance.as_str())?;
                    variables.insert("self", Variable::from(value));
                    variables.insert("old", Variable::from(value));
                    let is_list = |above: &Pointer| initial.pointer(above.as_str()).is_some_and(Value::is_array);
                    variables.insert("key", Variable::from(invariant::key(&pattern, &instance, is_list)));
                    failure_reason(expr, &variables, allowance).map(|why| format!(" at `{instance}`{why}"))
                })
            }
        };
        if let Some(place) = outcome {
            let message = format!("the initial state does not satisfy this invariant{place}");
            let help = "Change `state.initial`, or guard the expression with `has`.";
            self.report("invalid_initial_state", pointer, message, help);
        }
    }
}

/// Returns the reason for which an expression does not hold, empty if it is false; `None` if it holds or the allowance
/// is used up.
fn failure_reason(expr: &Expr, variables: &Variables<'_>, allowance: &mut Allowance) -> Option<String> {
    match expr.evaluate_within(variables, allowance) {
        Ok(true) => None,
        Err(_) if allowance.is_used_up() => None,
        Ok(false) => Some(String::new()),
        Err(error) => Some(format!(": {error}")),
    }
}

fn violations_without_request(schema: &Schema, initial: &Value) -> Vec<Violation> {
    let about_request =
        |violation: &Violation| violation.pointer == "/request" || violation.pointer.starts_with("/request/");
    let misses_member =
        |violation: &Violation| violation.pointer.is_empty() && violation.rule.as_deref() == Some("required");
    let mut with_request = initial.clone();
    if let Some(members) = with_request.as_object_mut() {
        members.entry("request").or_insert(Value::Null);
    }
    // Missing root members are checked with a placeholder request, everything else without one. The schema may omit the
    // request and allow no other members.
    let missing = schema.violations(&with_request, VIOLATIONS_MAX).into_iter().filter(misses_member);
    let others = schema.violations(initial, VIOLATIONS_MAX).into_iter();
    let others = others.filter(|violation| !misses_member(violation) && !about_request(violation));
    missing.chain(others).collect()
}

/// Returns the leading name of a text.
fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}
