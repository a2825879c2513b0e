//! Path patterns and grants: checks their syntax, that they name places of the document, and that grants do not
//! conflict.

use jsonptr::PointerBuf;
use serde_json::Value;

use super::cached_schema::CachedSchema;
use super::schema_keywords::types_of;
use super::undeclared::{Undeclared, declares, undeclared_in};
use super::{GrantedWrite, Linter, Read, WorkerGrants, closest_name, suggest};
use crate::source::child;
use patchboard_kernel::ablation::Interface;
use patchboard_kernel::blueprint::{Delay, DelayLength, GrantOp, Rule, Run, Trigger, Unit};
use patchboard_kernel::contract::{Contract, prefix_depth};
use patchboard_kernel::expressions::request_part;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{PathSyntax, Pattern, PatternToken, is_index};
use patchboard_kernel::schema::Location;
use patchboard_kernel::view::FixedParts;

impl<'a> Linter<'a> {
    /// Reads the patterns of every worker.
    pub(super) fn patterns(&mut self) {
        let blueprint = self.blueprint;
        for (name, worker) in &blueprint.workers {
            let pointer = child("/workers", name.as_str());
            let mut grants = WorkerGrants { worker, pointer, reads: Vec::new(), writes: Vec::new() };
            for (index, grant) in worker.reads.iter().enumerate() {
                let has_condition = grant.condition.is_some();
                let below = if has_condition { "/path" } else { "" };
                let pointer = format!("{}/reads/{index}{below}", grants.pointer);
                if let Some(pattern) = self.pattern(&pointer, &grant.path) {
                    grants.reads.push(Read { pointer, pattern, has_condition });
                }
            }
            for (index, grant) in worker.writes.iter().enumerate() {
                let pointer = format!("{}/writes/{index}", grants.pointer);
                if let Some(pattern) = self.pattern(&format!("{pointer}/path"), &grant.path) {
                    grants.writes.push(GrantedWrite { pointer, grant, pattern });
                }
            }
            self.worker_grants.insert(name, grants);
        }
    }

    /// Parses the pattern at `pointer`.
    fn pattern(&self, pointer: &str, path: &str) -> Option<Pattern> {
        match self.paths.parse(path) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let help = "A pattern is a JSON Pointer like /claims/*/status; `*` is one token, `**` any number, a last \
                            `-` the append position, and `{name}` what a trigger binds.";
                self.report("bad_pattern", pointer, error.to_string(), help);
                None
            }
        }
    }

    /// Checks that every path names a place, that grants do not conflict, and that every view has room.
    pub(super) fn paths(&self) {
        self.places();
        for (name, grants) in &self.worker_grants {
            self.grants(grants);
            self.budget(name.as_str(), grants);
        }
        self.indices();
    }

    fn places(&self) {
        let blueprint = self.blueprint;
        let mut places: Vec<(String, Pattern)> = Vec::new();
        for grants in self.worker_grants.values() {
            places.extend(grants.reads.iter().map(|read| (read.pointer.clone(), read.pattern.clone())));
            let writes = grants.writes.iter().filter(|write| !write.pattern.tokens().is_empty());
            places.extend(writes.map(|write| (format!("{}/path", write.pointer), write.pattern.clone())));
        }
        for (index, rule) in blueprint.rules.iter().enumerate() {
            if let Some(path) = rule.trigger.template() {
                let pointer = format!("/rules/{index}/trigger/{}", rule.trigger.word());
                let Some(pattern) = self.pattern(&pointer, path) else { continue };
                // Below a missing place every path is missing: one finding is enough.
                let mut below = |member: &str, at: &str| {
                    if at.starts_with('/')
                        && self.missing(&pattern).is_none()
                        && let Ok(place) = self.paths.parse(&format!("{path}{at}"))
                    {
                        places.push((format!("/rules/{index}/{member}/at"), place));
                    }
                };
                if let Run::Member { at, .. } = &rule.run {
                    below("run", at);
                }
                if let Some(Delay { length: DelayLength::At(at), .. }) = &rule.delay {
                    below("delay", at);
                }
                places.push((pointer, pattern));
            }
        }
        for (signal, backlog) in &blueprint.backlog {
            let pointer = format!("{}/at", child("/backlog", signal));
            places.extend(self.pattern(&pointer, &backlog.at).map(|pattern| (pointer, pattern)));
            let is_heard = |rule: &Rule| matches!(&rule.trigger, Trigger::Signal(name) if name == signal);
            if !blueprint.rules.iter().any(is_heard) {
                let help = "Name a signal that a rule waits for, or remove it.";
                let message = format!("no rule handles the signal `{signal}`");
                self.report("bad_value", &child("/backlog", signal), message, help);
            }
        }
        if let Some(result) = &blueprint.result {
            let pointer = "/result".to_owned();
            let is_one = |pattern: &Pattern| {
                let mut tokens = pattern.tokens().iter();
                !pattern.tokens().is_empty() && tokens.all(|token| matches!(token, PatternToken::Literal(_)))
            };
            if let Some(pattern) = self.pattern(&pointer, result) {
                if is_one(&pattern) {
                    places.push((pointer, pattern));
                } else {
                    let message = format!("`{result}` is no single place of the document");
                    self.report("bad_pattern", &pointer, message, "Name one place, like /answer.");
                }
            }
        }
        for (index, invariant) in blueprint.invariants.iter().enumerate() {
            if let Some(path) = &invariant.each {
                let pointer = format!("/invariants/{index}/for");
                places.extend(self.pattern(&pointer, path).map(|pattern| (pointer, pattern)));
            }
        }
        for (pointer, pattern) in places {
            self.place(&pointer, &pattern);
            if self.ends_in_nothing(&pattern) {
                let message = format!("`{pattern}` ends with a `/`: it is the member whose name is empty");
                self.report("undeclared_name", &pointer, message, "Leave the last `/` out.");
                continue;
            }
            if let Some((holder, wrong, known)) = self.undeclared(&pattern) {
                let message = format!("`{pattern}`: `properties` of {holder} has no `{wrong}`");
                let help = suggest(&wrong, known.iter().map(String::as_str), "Declare it.");
                self.report("undeclared_name", &pointer, message, help);
            }
        }
    }

    /// Returns true if a pattern ends in the empty member name, and no such member exists.
    fn ends_in_nothing(&self, pattern: &Pattern) -> bool {
        let is_nameless = matches!(pattern.tokens().last(), Some(PatternToken::Literal(name)) if name.is_empty());
        is_nameless && !self.is_there_at_first(pattern)
    }

    /// Returns the first token of a pattern that `properties` does not declare, in an object that allows other names as
    /// well. The tuple holds the holder, the token, and the declared names.
    pub(super) fn undeclared(&self, pattern: &Pattern) -> Option<(String, String, Vec<String>)> {
        let (schema, sought, base) = self.schema_of(pattern)?;
        let is_there = |place: &Pattern| {
            let is_own = || matches!(place.to_string().as_str(), "/request" | "/files");
            base.is_empty() && (is_own() || self.initial.first(place).is_some())
        };
        let Undeclared { holder, name, known } = undeclared_in(schema, &sought, &is_there)?;
        let is_document = holder.tokens().is_empty() && base.is_empty();
        let holder = if is_document { "the document".to_owned() } else { format!("`{base}{holder}`") };
        Some((holder, name, known))
    }

    /// Returns the wrong name in a place of the document, with message and help; `None` if the place can exist.
    pub(super) fn never_at(&self, place: &Pattern) -> Option<(String, String, String)> {
        if let Some((holder, wrong, known)) = self.undeclared(place) {
            let message = format!("`{place}`: `properties` of {holder} has no `{wrong}`");
            let help = suggest(&wrong, known.iter().map(String::as_str), "Declare it.");
            return Some((wrong, message, help));
        }
        let missing = self.missing(place)?;
        let message = format!("`{place}` does not exist in the state schema: {}", missing.why);
        Some((missing.wrong, message, missing.help))
    }

    fn place(&self, pointer: &str, pattern: &Pattern) {
        let Some(Missing { holder, wrong, why, help }) = self.missing(pattern) else { return };
        if wrong.starts_with('$') && holder.is_empty() {
            let message = format!("`{pattern}`: names that begin with `$` are kept for the system");
            return self.report("reserved_name", pointer, message, "Choose a name without `$`.");
        }
        self.report("unknown_path", pointer, format!("`{pattern}` does not exist in the state schema: {why}"), help);
    }

    /// Returns the reason for which the schema has no place that a pattern matches; `None` if it has one.
    pub(super) fn missing(&self, pattern: &Pattern) -> Option<Missing> {
        let (schema, sought, base) = self.schema_of(pattern)?;
        let Location::Illegal { legal_prefix, known, patterns } = schema.locate(&sought) else { return None };
        // The document's own schema may describe more of the request than `request:` does.
        if !base.is_empty() && self.schema.as_ref().is_some_and(|schema| declares(schema, pattern)) {
            return None;
        }
        let rest = sought.to_string();
        let wrong = rest.strip_prefix(legal_prefix.as_str()).unwrap_or(&rest).split('/').nth(1).unwrap_or_default();
        let holder = format!("{base}{legal_prefix}");
        let named = if holder.is_empty() { "it".to_owned() } else { format!("`{holder}`") };
        let why = format!("{named} has no `{wrong}`");
        let help = suggest_token(wrong, &known, &patterns);
        Some(Missing { holder, wrong: wrong.to_owned(), why, help })
    }

    /// Returns the schema for the places of a pattern, the pattern below it, and the schema's base path.
    pub(super) fn schema_of(&self, pattern: &Pattern) -> Option<(&CachedSchema, Pattern, &'static str)> {
        match request_part(&pattern.to_string()) {
            Some(below) => Some((self.request.as_ref()?, self.paths.parse(below).ok()?, "/request")),
            None => Some((self.schema.as_ref()?, pattern.clone(), "")),
        }
    }

    /// Reports conditions on places that the worker may also read without a condition.
    fn conditional_reads(&self, grants: &WorkerGrants<'_>) {
        for read in grants.reads.iter().filter(|read| read.has_condition) {
            let text = read.pattern.to_string();
            let is_whole = !read.pattern.tokens().contains(&PatternToken::Deep);
            // A wildcard is covered by a wildcard, and by any place above.
            let Some(place) = PointerBuf::parse(text.as_str()).ok().filter(|_| is_whole) else { continue };
            let open = grants
                .reads
                .iter()
                .find(|other| !other.has_condition && other.pattern.with_literal_names().covers(&place));
            if let Some(open) = open {
                let message = format!(
                    "`{text}` is read under a condition, and `{}` of the same worker lets it be read without",
                    open.pattern
                );
                let help = "Take the other grant away, or the condition.";
                self.report("overlapping_grants", &read.pointer, message, help);
            }
        }
    }

    fn grants(&self, grants: &WorkerGrants<'_>) {
        self.conditional_reads(grants);
        for (index, write) in grants.writes.iter().enumerate() {
            self.value_schema(write);
            self.condition_of(write);
            if write.pattern.tokens().is_empty() {
                let message = "the whole document is never written at once";
                let help = "Grant the members that the worker may write, for example /answer or /claims/-.";
                self.report("whole_document", &format!("{}/path", write.pointer), message, help);
            }
            for open in grants.writes.iter().filter(|open| bypasses_condition(open, write)) {
                let message = format!(
                    "`{}` is written under a condition, and `{}` of the same worker lets it be written without",
                    write.grant.path, open.grant.path
                );
                let help = "Take the other grant away, or the condition, or make the patterns exclude each other.";
                self.report("overlapping_grants", &format!("{}/path", write.pointer), message, help);
            }
            for other in &grants.writes[..index] {
                let writes_a_value = |write: &GrantedWrite<'_>| write.grant.ops.iter().any(|op| *op != GrantOp::Remove);
                let is_checked = write.grant.value.is_some() || other.grant.value.is_some();
                if !is_checked || !writes_a_value(write) || !writes_a_value(other) {
                    continue;
                }
                let meets = if write.pattern.collides(&other.pattern) {
                    "can match the same place as"
                } else if write.pattern.lies_above(&other.pattern) {
                    "lies above"
                } else if other.pattern.lies_above(&write.pattern) {
                    "lies below"
                } else {
                    continue;
                };
                if creates_object_of(write, other, self.paths) || creates_object_of(other, write, self.paths) {
                    continue;
                }
                let message = format!(
                    "`{}` {meets} `{}` of the same worker, and `value` is only checked for one of them",
                    write.grant.path, other.grant.path
                );
                let help = "Put them into one grant, or make the patterns exclude each other.";
                self.report("overlapping_grants", &format!("{}/path", write.pointer), message, help);
            }
        }
    }

    /// Checks that the condition of a grant names a place on the grant's path.
    fn condition_of(&self, write: &GrantedWrite<'_>) {
        let Some(condition) = &write.grant.condition else { return };
        let pointer = format!("{}/where/of", write.pointer);
        let Some(of) = self.pattern(&pointer, &condition.of) else { return };
        if let Err(message) = prefix_depth(&of, &write.pattern) {
            let help =
                "Name a place that the path goes through, as the path has it: `of: /tasks/*` for /tasks/*/result.";
            self.report("not_a_beginning", &pointer, message, help);
        }
    }

    /// Checks that the `value` schema of a grant compiles.
    fn value_schema(&self, write: &GrantedWrite<'_>) {
        let Some(value) = &write.grant.value else { return };
        if self.schema.is_none() || self.values.is_full() {
            return;
        }
        if let Err(error) = self.values.compile(value) {
            let pointer = format!("{}/value{}", write.pointer, error.pointer);
            self.report("bad_schema", &pointer, error.message, super::document::FIX_SCHEMA_HELP);
        }
    }

    fn budget(&self, name: &str, grants: &WorkerGrants<'_>) {
        let Some(schema) = &self.schema else { return };
        // A contract that does not compile has its own finding.
        if Contract::compile_with(grants.worker, &self.values, &self.compiler()).is_err() {
            return;
        }
        let fixed = FixedParts::new(grants.worker, schema, Interface::Patch, self.paths);
        let least = fixed.replying_in(self.reply_instructions(grants.worker)).minimum();
        let budget = grants.worker.view_budget();
        if least > budget {
            let unit = match grants.worker.view.unit {
                Unit::Chars => "characters",
                Unit::Tokens => "tokens",
            };
            let message = format!(
                "the view of `{name}` must show its contract and schema, {least} {unit}, but its budget is {budget}"
            );
            let given = format!("{}/view/budget", grants.pointer);
            let pointer = if self.source.value().pointer(&given).is_some() { given } else { grants.pointer.clone() };
            self.report("budget_too_small", &pointer, message, format!("Set `view.budget` to {least} or more."));
        }
    }

    /// Reports paths with an array index that may later denote another element.
    fn indices(&self) {
        let reads =
            self.worker_grants.values().flat_map(|seat| &seat.reads).map(|read| (read.pointer.clone(), &read.pattern));
        let writes = self.worker_grants.values().flat_map(|seat| &seat.writes);
        let writes = writes.map(|write| (format!("{}/path", write.pointer), &write.pattern));
        for (pointer, pattern) in reads.chain(writes) {
            for (depth, token) in pattern.tokens().iter().enumerate() {
                let is_bound = matches!(token, PatternToken::Bound(_));
                if !is_bound && !matches!(token, PatternToken::Literal(index) if is_index(index)) {
                    continue;
                }
                let text = pattern.to_string();
                let array = prefix(&text, depth);
                if !self.is_array(&array) {
                    continue;
                }
                let Ok(elements) = self.paths.parse(&format!("{array}/*")) else { continue };
                let replaced = if is_bound { self.replaces(&array) } else { None };
                let moved = self.moves_elements(&elements).map(|mover| (mover, "move"));
                if let Some((mover, how)) = moved.or(replaced.map(|mover| (mover, "replace"))) {
                    let message =
                        format!("`{text}` counts on the place of an element of `{array}`, which `{mover}` may {how}");
                    let help = match is_bound {
                        true => format!(
                            "Make the collection an object with ids as keys, or let `{mover}` only append: `{array}/-`."
                        ),
                        false => "Use `*`, or make the collection an object with ids as keys.".to_owned(),
                    };
                    self.report("index_grant", &pointer, message, help);
                }
            }
        }
    }

    /// Returns a worker that may replace an array as a whole, and so change its elements.
    fn replaces(&self, array: &str) -> Option<String> {
        let array = self.paths.parse(array).ok()?;
        let replacing = |(_, write): &(&'_ WorkerName, &GrantedWrite<'_>)| {
            write.grant.ops.contains(&GrantOp::Replace)
                && (write.pattern.overlaps(&array) || write.pattern.lies_above(&array))
        };
        self.writes().find(replacing).map(|(name, _)| name.to_string())
    }

    /// Returns a worker that may insert or remove elements, if any.
    fn moves_elements(&self, elements: &Pattern) -> Option<String> {
        let moving = |op: &GrantOp| match op {
            GrantOp::Insert | GrantOp::Remove | GrantOp::Move | GrantOp::Copy => true,
            GrantOp::Add | GrantOp::Replace => false,
        };
        // An append moves no element, and a path that ends in a member name denotes none.
        let may_be_element = |pattern: &Pattern| match pattern.tokens().last() {
            Some(PatternToken::Append) => false,
            Some(PatternToken::Literal(name)) => is_index(name),
            _ => true,
        };
        self.writes()
            .find(|(_, write)| {
                write.grant.ops.iter().any(moving) && may_be_element(&write.pattern) && write.pattern.overlaps(elements)
            })
            .map(|(name, _)| name.to_string())
    }

    /// Returns true if a path pattern matches arrays, as far as schema and initial state show.
    pub(super) fn is_array(&self, path: &str) -> bool {
        let Ok(pattern) = self.paths.parse(path) else { return false };
        let in_state = self.initial.first(&pattern.under_any_binding());
        let in_state = in_state.and_then(|at| self.blueprint.state.initial.pointer(at.as_str()));
        if in_state.is_some_and(Value::is_array) {
            return true;
        }
        let Some(schema) = &self.schema else { return false };
        let Location::Legal(fragments) = schema.locate(&pattern) else { return false };
        fragments.iter().filter_map(|fragment| schema.document().pointer(fragment)).any(|fragment| {
            let by_type = types_of(fragment).is_some_and(|types| types.contains(&"array"));
            by_type || fragment.get("items").is_some() || fragment.get("prefixItems").is_some()
        })
    }
}

/// A path that names no place of the document.
pub(super) struct Missing {
    /// The longest prefix that is a place; empty for the document.
    holder: String,
    /// The first token after the prefix.
    pub(super) wrong: String,
    /// Reason for a message.
    pub(super) why: String,
    pub(super) help: String,
}

/// Returns true if a grant only creates the object of another grant's condition, which refers to the state before the
/// patch. The first grant judges the creation, the second judges later changes.
fn creates_object_of(makes: &GrantedWrite<'_>, changes: &GrantedWrite<'_>, paths: PathSyntax) -> bool {
    let of = changes.grant.condition.as_ref().and_then(|condition| paths.parse(&condition.of).ok());
    makes.grant.ops.iter().all(|op| *op == GrantOp::Add)
        && makes.pattern.lies_above(&changes.pattern)
        && of.is_some_and(|of| of.tokens().len() >= makes.pattern.tokens().len())
}

/// Returns true if a grant without a condition allows writes for which another grant has a condition.
fn bypasses_condition(open: &GrantedWrite<'_>, write: &GrantedWrite<'_>) -> bool {
    if write.grant.condition.is_none() || open.grant.condition.is_some() {
        return false;
    }
    let has = |op: &GrantOp| open.grant.ops.contains(op);
    let is_same = open.pattern.collides(&write.pattern) && write.grant.ops.iter().any(has);
    is_same || (open.pattern.lies_above(&write.pattern) && (has(&GrantOp::Replace) || has(&GrantOp::Remove)))
}

/// Builds the help for a wrong token, from the names and patterns allowed in its place.
pub(super) fn suggest_token(wrong: &str, known: &[String], patterns: &[String]) -> String {
    let is_element = |name: &String| name == "-" || is_index(name);
    if !known.is_empty() && patterns.is_empty() && known.iter().all(is_element) {
        let indices: Vec<&str> = known.iter().map(String::as_str).filter(|name| *name != "-").collect();
        let indices = if indices.is_empty() { String::new() } else { format!(" ({})", indices.join(", ")) };
        return format!("The elements of an array are named by index{indices}, by `*`, or by `-` behind the last.");
    }
    if patterns.is_empty() || closest_name(wrong, known.iter().map(String::as_str)).is_some() {
        return suggest(wrong, known.iter().map(String::as_str), "Nothing is allowed below that place.");
    }
    let shown: Vec<String> = patterns.iter().take(4).map(|pattern| format!("`{pattern}`")).collect();
    let matching = format!("Names that match {} are allowed there.", shown.join(" or "));
    if known.is_empty() {
        matching
    } else {
        format!("{} {matching}", suggest(wrong, known.iter().map(String::as_str), ""))
    }
}

/// Returns the first tokens of a pattern, as text.
fn prefix(text: &str, tokens: usize) -> String {
    text.split('/').take(tokens + 1).collect::<Vec<_>>().join("/")
}
