//! Names in path templates: checks that each trigger binds the names that its workers' paths and conditions use.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::PointerBuf;

use super::{ExpressionOwner, Linter, closest_name, suggest};
use crate::source::child;
use patchboard_kernel::bindings::BindingSource;
use patchboard_kernel::blueprint::{Action, Rule, Trigger};
use patchboard_kernel::expr::LookupStep;
use patchboard_kernel::expressions::{BOUND, request_part};
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{PathSyntax, Pattern, PatternToken, is_name};
use patchboard_kernel::plan::repeated_name;
use patchboard_kernel::schema::Location;

impl Linter<'_> {
    /// Reports names in a worker's paths that its triggers do not bind, and bindings without effect.
    pub(super) fn bindings(&self) {
        let blueprint = self.blueprint;
        for (number, rule) in blueprint.rules.iter().enumerate() {
            self.binds(rule, &format!("/rules/{number}"));
        }
        let needed = self.needed_names();
        for (number, rule) in blueprint.rules.iter().enumerate() {
            let bound = self.bound_by(rule);
            for worker in blueprint.triggered_workers(&rule.run) {
                let names = needed.get(worker).into_iter().flatten();
                for name in names.filter(|name| !bound.contains(*name)) {
                    let message = format!("`{worker}` needs `{{{name}}}`, and `{}` does not bind it", rule.name);
                    let help = match &rule.trigger {
                        Trigger::Event { .. } | Trigger::Each(_) => {
                            match closest_name(name, bound.iter().map(String::as_str)) {
                                Some(meant) => format!("Did you mean `{{{meant}}}` in a path of `{worker}`?"),
                                None => format!("Name the token in the trigger's path: `/…/{{{name}}}`."),
                            }
                        }
                        Trigger::Signal(_) | Trigger::Manual => {
                            format!("Say where the signal carries it: `bind: {{{name}: /{name}}}`.")
                        }
                        _ => format!(
                            "Such a trigger binds nothing: trigger `{worker}` by a change, like `{{op: add, path: \
                             /…/{{{name}}}}}`, or give the work to a worker whose paths have no names."
                        ),
                    };
                    self.report("unbound_name", &format!("/rules/{number}/trigger"), message, help);
                }
            }
        }
        for (kind, action) in blueprint.circuit.actions() {
            if let Action::Wake(worker) = action
                && let Some(name) = needed.get(worker).and_then(|names| names.first())
            {
                let message = format!("`{worker}` needs `{{{name}}}`, and a breaker binds nothing");
                let help = "Name a worker without names in its paths.";
                self.report("unbound_name", &format!("/circuit/{kind}/then/wake"), message, help);
            }
        }
        self.literal_names();
        self.foreign_indices();
    }

    /// Reports names that a trigger binds to an index of an array that workers append to, while a grant uses them in
    /// another array. Elements of the two need not correspond.
    fn foreign_indices(&self) {
        let blueprint = self.blueprint;
        let mut found = Vec::new();
        for rule in &blueprint.rules {
            let Some(template) = rule.trigger.template().and_then(|path| self.paths.parse(path).ok()) else { continue };
            for (name, array) in holders(&template) {
                if !self.is_array(&array.to_string())
                    || !self.writes().any(|(_, write)| appends(&write.pattern, &array))
                {
                    continue;
                }
                for grants in
                    blueprint.triggered_workers(&rule.run).into_iter().filter_map(|name| self.worker_grants.get(name))
                {
                    let reads = grants.reads.iter().map(|read| (&read.pointer, &read.pattern));
                    for (pointer, pattern) in
                        reads.chain(grants.writes.iter().map(|write| (&write.pointer, &write.pattern)))
                    {
                        let others = holders(pattern).into_iter();
                        let mut others = others.filter(|(other, holder)| *other == name && !holder.collides(&array));
                        if let Some((_, other)) =
                            others.find(|(_, holder)| self.is_array(&holder.to_string()) || self.is_given_array(holder))
                        {
                            let message = format!(
                                "`{{{name}}}` is an index of `{array}`, to which workers append in any order, and is used here as an index of `{other}`"
                            );
                            found.push((pointer.clone(), message));
                        }
                    }
                }
            }
        }
        found.dedup();
        for (pointer, message) in found {
            let help = "Collect in an object under the names of the other: a worker that is triggered by `/others/{name}` writes to `/notes/{name}`.";
            self.report("foreign_index", &pointer, message, help);
        }
    }

    /// Returns true for a place in a request without a schema: a bound index used there needs an array.
    fn is_given_array(&self, place: &Pattern) -> bool {
        self.blueprint.request == serde_json::Value::Bool(true) && request_part(&place.to_string()).is_some()
    }

    /// Returns the names that a rule binds.
    pub(super) fn bound_by(&self, rule: &Rule) -> BTreeSet<String> {
        let of_path = rule.trigger.template().and_then(|path| self.paths.parse(path).ok());
        let binds = of_path.map(|template| BindingSource::from_template(&template));
        let names = binds.iter().flat_map(BindingSource::names).map(str::to_owned);
        names.chain(rule.bind.keys().cloned()).collect()
    }

    /// Returns the names that an invocation of each worker must bind.
    pub(super) fn needed_names(&self) -> BTreeMap<WorkerName, BTreeSet<String>> {
        let mut needed: BTreeMap<WorkerName, BTreeSet<String>> = BTreeMap::new();
        for (name, grants) in &self.worker_grants {
            let written = grants.writes.iter().map(|write| &write.pattern);
            let patterns = grants.reads.iter().map(|read| &read.pattern).chain(written);
            let mut names: BTreeSet<String> = patterns.flat_map(|pattern| pattern.names().map(str::to_owned)).collect();
            let places = grants.worker.board.iter().flat_map(|inner| inner.places());
            for place in places.filter_map(|place| self.paths.parse(place).ok()) {
                names.extend(place.names().map(str::to_owned));
            }
            let of_worker = format!("{}/", grants.pointer);
            for expression in self.expressions.iter().filter(|one| one.pointer.starts_with(&of_worker)) {
                for look in expression.expr.lookups().iter().filter(|look| look.variable == BOUND) {
                    if let Some(LookupStep::Member(member)) = look.steps.first() {
                        names.insert(member.clone());
                    }
                }
            }
            needed.insert((*name).clone(), names);
        }
        needed
    }

    /// Reports faults in the bindings of a rule.
    fn binds(&self, rule: &Rule, at: &str) {
        if let Some(path) = rule.trigger.template()
            && let Ok(template) = self.paths.parse(path)
            && let Some(name) = repeated_name(&template)
        {
            let message = format!("`{{{name}}}` is in `{path}` twice, and can stand for one token only");
            let pointer = format!("{at}/trigger/{}", rule.trigger.word());
            self.report("bad_pattern", &pointer, message, "Give the second another name.");
        }
        if !rule.bind.is_empty() && !rule.trigger.is_signal() {
            let message = "only what a signal carries is bound with `bind`";
            let help = "Name tokens in the trigger's path, like /notes/{note}, or remove it.";
            self.report_at_key("bad_rule", &format!("{at}/bind"), message, help);
        }
        for (name, from) in &rule.bind {
            let pointer = child(&format!("{at}/bind"), name);
            if !is_name(name) {
                let help = "Write at most 64 letters, digits and `_`, no digit first.";
                self.report_at_key("bad_value", &pointer, format!("`{name}` is no name"), help);
            }
            if PointerBuf::parse(from.as_str()).is_err() {
                let help = "Write a JSON Pointer into what the signal carries, like /id; empty for the value itself.";
                self.report("bad_pattern", &pointer, format!("`{from}` is no place"), help);
            } else if let Some(why) = self.never_carried(rule, from) {
                let message = format!("`{name}` is never bound: {why}");
                let help = "Name a place of the signal that holds a text or a whole number, or change its schema.";
                self.report("unbound_name", &pointer, message, help);
            }
        }
    }

    /// Returns the reason for which a place of a rule's signal never holds a name, by the signal's schema.
    pub(super) fn never_carried(&self, rule: &Rule, from: &str) -> Option<String> {
        let Trigger::Signal(signal) = &rule.trigger else { return None };
        let schema = self.signals.get(signal.as_str())?;
        let place = Pattern::parse(from).ok()?;
        if let Location::Illegal { .. } = schema.locate(&place) {
            return Some(format!("the signal `{signal}` has no `{from}` by its schema"));
        }
        let kind = schema.fragment(&place)?.get("type")?.as_str()?.to_owned();
        let is_name = matches!(kind.as_str(), "string" | "integer" | "number");
        (!is_name).then(|| format!("the signal `{signal}` has {kind} at `{from}`"))
    }

    /// Reports names in places without a binding, and in a format that reads them literally.
    fn literal_names(&self) {
        let blueprint = self.blueprint;
        let places = blueprint.invariants.iter().enumerate();
        let places = places.filter_map(|(at, one)| Some((format!("/invariants/{at}/for"), one.each.as_deref()?)));
        let backlog = blueprint.backlog.iter();
        let backlog = backlog.map(|(name, backlog)| (format!("{}/at", child("/backlog", name)), backlog.at.as_str()));
        let places: Vec<_> = places.chain(backlog).collect();
        for (pointer, path) in places {
            let pattern = PathSyntax::Named.parse(path).ok();
            if let Some(name) = pattern.iter().flat_map(|pattern| pattern.names()).next()
                && self.paths == PathSyntax::Named
            {
                let message = format!("nothing binds `{{{name}}}` here");
                self.report("unbound_name", &pointer, message, "Write `*`, which is any token.");
            }
        }
        let mut found = Vec::new();
        for (at, rule) in blueprint.rules.iter().enumerate() {
            if let Some(path) = rule.trigger.template() {
                found.push((format!("/rules/{at}/trigger/{}", rule.trigger.word()), path.to_owned()));
            }
        }
        for grants in self.worker_grants.values() {
            found.extend(grants.reads.iter().map(|read| (read.pointer.clone(), read.pattern.to_string())));
            let writes = grants.writes.iter();
            found.extend(writes.map(|write| (format!("{}/path", write.pointer), write.pattern.to_string())));
        }
        if self.paths == PathSyntax::Named {
            let is_part = |token: &str| token.contains('{') && !(token.starts_with('{') && token.ends_with('}'));
            for (pointer, path) in found {
                if let Some(token) = path.split('/').find(|token| is_part(token)) {
                    let message = format!("`{token}` is an ordinary name: only a whole token in braces is bound");
                    self.report("literal_name", &pointer, message, "Write the name alone between two slashes.");
                }
            }
            return;
        }
        for (pointer, path) in found {
            let template = PathSyntax::Named.parse(&path).ok();
            if let Some(name) = template.iter().flat_map(|template| template.names()).next() {
                let message = format!("`{{{name}}}` is an ordinary name in blueprint format 1");
                let help = "Write `blueprint: 2` at the top, if it is to stand for what the trigger binds.";
                self.report("literal_name", &pointer, message, help);
            }
        }
    }

    /// Returns a name that a rule's condition looks up without a binding, with message and help.
    pub(super) fn unbound_member(&self, name: &str, owner: ExpressionOwner<'_>) -> Option<(String, String, String)> {
        let ExpressionOwner::Rule(rule) = owner else { return None };
        let known = self.bound_by(rule);
        if known.contains(name) {
            return None;
        }
        let none = "Nothing is bound here: name a token of the trigger's path, like /notes/{note}.";
        let help = suggest(name, known.iter().map(String::as_str), none);
        Some((name.to_owned(), format!("`bound` has no `{name}` here"), help))
    }
}

/// Returns the names of a template, each with the collection of its elements.
fn holders(template: &Pattern) -> Vec<(&str, Pattern)> {
    let tokens = template.tokens().iter().enumerate();
    let named = tokens.filter_map(|(at, token)| match token {
        PatternToken::Bound(name) => Some((name.as_str(), template.prefix(at))),
        _ => None,
    });
    named.collect()
}

fn appends(written: &Pattern, array: &Pattern) -> bool {
    let (last, above) = (written.tokens().last(), written.tokens().len().saturating_sub(1));
    last == Some(&PatternToken::Append) && written.prefix(above).collides(array)
}
