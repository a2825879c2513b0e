//! Checks the places that rules use in the values of their signals.

use serde_json::Value;

use super::comparisons::may_be;
use super::conditions::signal_of;
use super::keywords::NAME_MIN;
use super::paths::suggest_token;
use super::undeclared::undeclared_in;
use super::{Linter, closest_name};
use crate::source::child;
use patchboard_kernel::blueprint::{DelayLength, Rule, Run, Trigger};
use patchboard_kernel::expr::Lookup;
use patchboard_kernel::expressions::pushed;
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::schema::Location;

impl Linter<'_> {
    /// Warns of signals and places with names similar to declared ones, and of places that cannot exist.
    pub(super) fn carried(&self) {
        let blueprint = self.blueprint;
        for (number, rule) in blueprint.rules.iter().enumerate() {
            let at = format!("/rules/{number}");
            let is_heard = |name: &&String| blueprint.rules.iter().any(|rule| signal_of(rule) == Some(name.as_str()));
            let unheard: Vec<&String> = blueprint.signals.keys().filter(|name| !is_heard(name)).collect();
            // A short name resembles too many others.
            let is_undeclared = |name: &&String| name.len() >= NAME_MIN && !blueprint.signals.contains_key(*name);
            if let Trigger::Signal(signal) = &rule.trigger
                && is_undeclared(&signal)
                && let Some(declared) = closest_name(signal, unheard.into_iter().map(String::as_str))
            {
                let message = format!("`signals` has no `{signal}`");
                let help = format!("Did you mean `{declared}`?");
                self.report("undeclared_name", &format!("{at}/trigger"), message, help);
            }
            let bound = rule.bind.iter().filter(|(_, from)| self.never_carried(rule, from).is_none());
            let mut places: Vec<(String, &str)> =
                bound.map(|(name, from)| (child(&format!("{at}/bind"), name), from.as_str())).collect();
            if let Run::Member { at: from, .. } = &rule.run {
                places.push((format!("{at}/run/at"), from));
            }
            if let Some(DelayLength::At(from)) = rule.delay.as_ref().map(|delay| &delay.length) {
                places.push((format!("{at}/delay/at"), from.as_str()));
            }
            for (pointer, from) in places {
                let place = Pattern::parse(from).ok();
                if let Some((_, message, help)) = place.and_then(|place| self.never_signalled(rule, &place, true)) {
                    self.report("undeclared_name", &pointer, message, help);
                }
            }
            self.unusable(rule, &at);
        }
    }

    /// Returns the wrong name in a condition's look at a signal, with message and help; `None` if the place can exist.
    pub(super) fn never_carried_at(&self, rule: &Rule, look: &Lookup) -> Option<(String, String, String)> {
        let path = look.steps.iter().try_fold(String::new(), pushed)?;
        self.never_signalled(rule, &Pattern::parse(&path).ok()?, false)
    }

    /// Returns a place in the triggering value, as a message names it, and its schema.
    pub(super) fn trigger_value_schema(&self, rule: &Rule, at: &str) -> Option<(String, Value)> {
        if let Some(signal) = signal_of(rule) {
            let schema = self.signals.get(signal)?;
            let sought = Pattern::parse(at).ok().filter(|sought| schema.is_described(sought))?;
            let said = schema.fragment(&sought)?;
            let place = if at.is_empty() { "the value".to_owned() } else { format!("`{at}`") };
            return Some((format!("{place} of the signal `{signal}`"), said));
        }
        let place = format!("{}{at}", rule.trigger.template()?);
        let (schema, sought, _) = self.schema_of(&self.paths.parse(&place).ok()?)?;
        schema.is_described(&sought).then(|| Some((format!("`{place}`"), schema.fragment(&sought)?)))?
    }

    /// Warns of a rule that never finds a worker's name, or a time, at the place it uses.
    fn unusable(&self, rule: &Rule, at: &str) {
        if let Run::Member { group, at: from } = &rule.run
            && let Some((place, said)) = self.trigger_value_schema(rule, from)
        {
            let is_member = |name: &Value| self.blueprint.group(group).iter().any(|member| *name == member.as_str());
            let names = said.get("enum").and_then(Value::as_array).map(Vec::as_slice);
            let names = names.or(said.get("const").map(std::slice::from_ref));
            if !may_be(&said, "string") || names.is_some_and(|names| !names.iter().any(is_member)) {
                let message = format!(
                    "`{}` never fires: {place} is never the name of a worker of `{group}` by its schema",
                    rule.name
                );
                let help = "Name a place whose schema allows the names of the group's workers.";
                self.report("never_fires", &format!("{at}/run/at"), message, help);
            }
        }
        if let Some(DelayLength::At(from)) = rule.delay.as_ref().map(|delay| &delay.length)
            && let Some((place, said)) = self.trigger_value_schema(rule, from)
            && !may_be(&said, "number")
        {
            let message =
                format!("`{}` never fires: {place} is never a number of milliseconds by its schema", rule.name);
            self.report("never_fires", &format!("{at}/delay/at"), message, "Name a place whose schema says integer.");
        }
    }

    /// Reports a place that the signal's schema excludes or does not declare. `is_needed`: the rule has no effect
    /// without it.
    fn never_signalled(&self, rule: &Rule, place: &Pattern, is_needed: bool) -> Option<(String, String, String)> {
        let signal = signal_of(rule)?;
        let schema = self.signals.get(signal)?;
        if let Location::Illegal { legal_prefix, known, patterns } = schema.locate(place) {
            let text = place.to_string();
            let rest = text.strip_prefix(legal_prefix.as_str()).unwrap_or(&text);
            let wrong = rest.split('/').nth(1).unwrap_or_default().to_owned();
            let message = format!("the signal `{signal}` has no `{place}` by its schema");
            return Some((wrong.clone(), message, suggest_token(&wrong, &known, &patterns)));
        }
        let undeclared = undeclared_in(schema, place, &|_| false)?;
        // A signal may carry undeclared members.
        let near = closest_name(&undeclared.name, undeclared.known.iter().map(String::as_str));
        let message = format!("`properties` of the signal `{signal}` has no `{}`", undeclared.name);
        let help = match near {
            Some(near) => format!("Did you mean `{near}`?"),
            None if is_needed => "Declare it, as the rule does nothing without it.".to_owned(),
            None => return None,
        };
        Some((undeclared.name, message, help))
    }
}
