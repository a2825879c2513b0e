//! Names that must be declared, unique, or supported by this version.

use std::collections::{BTreeMap, BTreeSet};

use jsonptr::PointerBuf;

use super::{Linter, suggest};
use crate::source::child;
use patchboard_kernel::blueprint::{
    Action, AgentKind, DELAY_MS_MAX, DelayLength, Rule, Run, Trigger, Worker, definition_name,
};
use patchboard_kernel::cron::Cron;
use patchboard_kernel::id::{GroupName, WorkerName};

impl Linter<'_> {
    /// Checks workers, rules, models, agents and programs by name.
    pub(super) fn names(&self) {
        for fragment in 0..self.blueprint.fragments.len() {
            let message = format!("the fragment `{}` was not included", self.blueprint.fragments[fragment]);
            let help = "Read the blueprint from a file, or write the fragment's contents into it.";
            self.report("unresolved_fragment", &format!("/use/{fragment}"), message, help);
        }
        if self.blueprint.departments.is_some() {
            let help = "Read the blueprint from a file: departments are folders below its directory.";
            self.report_at_key("unresolved_fragment", "/departments", "the departments were not included", help);
        }
        if self.blueprint.workflow.is_some() {
            let help = "Resolve the blueprint before it is checked: a workflow becomes rules where it is read.";
            self.report_at_key("unresolved_fragment", "/workflow", "the workflow was not included", help);
        }
        self.workers();
        self.groups();
        self.rules();
        self.actions();
        let invariants = self.blueprint.invariants.iter().map(|invariant| invariant.name.as_str()).collect();
        self.duplicates("/invariants", invariants);
        let rules = self.blueprint.rules.iter().map(|rule| rule.name.as_str()).collect();
        self.duplicates("/rules", rules);
    }

    fn duplicates(&self, holder: &str, names: Vec<&str>) {
        let mut first = BTreeMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let Some(other) = first.get(name) else {
                first.insert(name, index);
                continue;
            };
            let line = self.source.position(&format!("{holder}/{other}/name"));
            let line = line.map_or_else(String::new, |position| format!(" (first on line {})", position.line));
            let message = format!("`{name}` is there twice{line}");
            self.report("duplicate_name", &format!("{holder}/{index}/name"), message, "Rename one of the two.");
        }
    }

    fn workers(&self) {
        let blueprint = self.blueprint;
        let roles: Vec<&str> = self.extensions.iter().flat_map(|extension| extension.roles()).collect();
        for (name, worker) in &blueprint.workers {
            let at = child("/workers", name.as_str());
            if matches!(&worker.agent, AgentKind::Builtin(role) if !roles.contains(&role.as_str())) {
                let message = format!("this version cannot seat `{}` agents", worker.agent);
                let roles: Vec<String> = roles.iter().map(|role| format!("builtin:{role}")).collect();
                let workers = AgentKind::worker_names();
                let help = format!("It seats {workers}, human and {}.", roles.join(", "));
                self.report("unavailable_agent", &format!("{at}/agent"), message, help);
            } else if worker.agent == AgentKind::Human && self.is_woken(name) {
                let message = "this version can ask a person to agree, not to work";
                let help = "Let rules trigger other workers, and name the person in `approval:` of a write grant.";
                self.report("unavailable_agent", &format!("{at}/agent"), message, help);
            }
            if let Some(model) = &worker.model {
                let pointer = format!("{at}/model");
                if !blueprint.models.contains_key(model) {
                    let known = blueprint.models.keys().map(String::as_str);
                    let help = suggest(model, known, "Declare it: `models: {name: model}`.");
                    self.report("unknown_model", &pointer, format!("`models` has no `{model}`"), help);
                }
                if worker.agent != AgentKind::Llm {
                    let message = format!("`{}` agents use no model", worker.agent);
                    self.report("unused_model", &pointer, message, "Remove it, or make the agent llm.");
                }
            }
            if worker.agent == AgentKind::Llm
                && worker.model.is_none()
                && !blueprint.models.is_empty()
                && !blueprint.models.contains_key("default")
            {
                let message = format!("`{name}` names no model and `models` has no `default`");
                let known: Vec<&str> = blueprint.models.keys().map(String::as_str).collect();
                let help = format!(
                    "It would use whatever the operator calls `default`; write `model:` with one of {}, or add `default` \
                     to `models`.",
                    known.join(", ")
                );
                self.report_at_key("default_model", &at, message, help);
            }
            self.programs(name, &at);
            self.replies(worker, &at);
            for (index, grant) in worker.writes.iter().enumerate() {
                if let Some(approval) = &grant.approval {
                    self.person(&approval.by, &format!("{at}/writes/{index}/approval/by"));
                }
            }
            if let Some(clarify) = &worker.clarify {
                self.person(&clarify.by, &format!("{at}/clarify/by"));
                if matches!(worker.agent, AgentKind::Human) {
                    let message = "a human worker cannot ask a person";
                    self.report("bad_value", &format!("{at}/clarify"), message, "Remove it.");
                }
            }
        }
    }

    /// Checks that a worker that is asked for an approval or a clarification is `human`.
    fn person(&self, name: &WorkerName, pointer: &str) {
        self.declared(name, pointer);
        if let Some(by) = self.blueprint.workers.get(name).filter(|by| by.agent != AgentKind::Human) {
            let message = format!("`{name}` is a `{}` worker and can be asked nothing", by.agent);
            self.report("bad_value", pointer, message, "Name a worker with `agent: human`.");
        }
    }

    /// Returns true if any rule or breaker can trigger a worker.
    fn is_woken(&self, name: &WorkerName) -> bool {
        let mut actions = self.blueprint.circuit.actions();
        self.blueprint.rules.iter().any(|rule| self.blueprint.triggered_workers(&rule.run).contains(&name))
            || actions.any(|(_, action)| *action == Action::Wake(name.clone()))
    }

    fn programs(&self, name: &WorkerName, at: &str) {
        let worker = &self.blueprint.workers[name];
        let agent = &worker.agent;
        let misplaced = |field: &str, belongs: &str| {
            (format!("`{agent}` agents have no `{field}`"), format!("Remove it, or make the agent {belongs}."))
        };
        let mut wrong = Vec::new();
        if *agent != AgentKind::Command {
            if !worker.program.is_empty() {
                wrong.push(("program", misplaced("program", "command")));
            }
            if worker.command.is_some() {
                wrong.push(("command", misplaced("command", "command")));
            }
        }
        if !worker.program.is_empty() && worker.command.is_some() {
            let help = "Keep `command` for a program of the operator's, `program` for one written here.".to_owned();
            wrong.push(("program", ("`program` and `command` exclude each other".to_owned(), help)));
        }
        // A script replaces a model or program in runs without them.
        if !matches!(agent, AgentKind::Script | AgentKind::Llm | AgentKind::Command) && !worker.script.is_empty() {
            wrong.push(("script", misplaced("script", "script, llm or command")));
        }
        if *agent == AgentKind::Script && worker.script.is_empty() {
            let help = "Write its replies, each a JSON Patch: `script: [[{op: add, path: /answer, value: yes}]]`.";
            wrong.push(("script", ("`script` agents need a `script` with at least one reply".into(), help.into())));
        }
        for (field, (message, help)) in wrong {
            self.report("bad_command", &child(at, field), message, help);
        }
    }

    fn rules(&self) {
        let blueprint = self.blueprint;
        for (index, rule) in blueprint.rules.iter().enumerate() {
            let at = format!("/rules/{index}");
            self.run_by(rule, &format!("{at}/run"));
            self.delay(rule, &format!("{at}/delay"));
            match &rule.trigger {
                Trigger::Every(pattern) => {
                    if let Err(error) = Cron::parse(pattern) {
                        let message = format!("`{pattern}` is no schedule: {error}");
                        let help =
                            "Write minute, hour, day, month and day of the week in UTC: `every: \"0 6 * * MON\"`.";
                        self.report("bad_schedule", &format!("{at}/trigger/every"), message, help);
                    }
                }
                trigger => {
                    let word = trigger.word();
                    for (number, name) in trigger.awaited().iter().enumerate() {
                        if !blueprint.rules.iter().any(|rule| rule.name == *name) {
                            let known = blueprint.rules.iter().map(|rule| rule.name.as_str());
                            let help = suggest(name.as_str(), known, "Declare the rule.");
                            let pointer = format!("{at}/trigger/{word}/{number}");
                            self.report("undeclared_rule", &pointer, format!("there is no rule `{name}`"), help);
                        }
                    }
                }
            }
        }
    }

    /// Checks the definitions generated for groups: their names are reserved.
    fn groups(&self) {
        for group in self.blueprint.misdefined_groups() {
            let name = definition_name(group);
            let message = format!("`{name}` is defined by the members of the group `{group}`");
            let help = "Remove it: what refers to it finds the names of the group's workers, and their descriptions.";
            self.report_at_key("reserved_name", &child("/state/schema/$defs", &name), message, help);
        }
        self.indistinct();
    }

    /// Reports members of a group with equal descriptions, if a rule selects one by name.
    fn indistinct(&self) {
        let blueprint = self.blueprint;
        let groups: BTreeSet<_> = blueprint
            .rules
            .iter()
            .filter_map(|rule| match &rule.run {
                Run::Member { group, .. } => Some(group),
                Run::Worker(_) | Run::Group(_) => None,
            })
            .collect();
        for group in groups {
            let mut first: BTreeMap<String, &WorkerName> = BTreeMap::new();
            for name in blueprint.group(group) {
                let words =
                    blueprint.workers[name].description.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
                let Some(other) = first.get(&words).filter(|_| !words.is_empty()) else {
                    first.insert(words, name);
                    continue;
                };
                let message =
                    format!("`{name}` is described in the words of `{other}`, so a choice cannot distinguish the two");
                let at = format!("{}/description", child("/workers", name.as_str()));
                self.report("indistinct_worker", &at, message, "Say what this one does that the other does not.");
            }
        }
    }

    /// Checks the workers that a rule runs, and the place of their name.
    fn run_by(&self, rule: &Rule, pointer: &str) {
        let group = match &rule.run {
            Run::Worker(worker) => return self.declared(worker, pointer),
            Run::Group(group) | Run::Member { group, .. } => group,
        };
        self.has_members(group, &format!("{pointer}/group"), "Give the workers that it triggers a `group`.");
        let Run::Member { at, .. } = &rule.run else { return };
        let pointer = format!("{pointer}/at");
        if !rule.trigger.brings_a_value() {
            let message = format!("`{}` has no trigger with a value that could contain a name", rule.name);
            let help = "Leave out `at` to trigger the whole group, or let the rule wait for {op, path} or {signal}.";
            self.report("bad_rule", &pointer, message, help);
        } else if let Err(error) = PointerBuf::parse(at.as_str()) {
            let help =
                "Write a JSON Pointer into the value of the event or signal, like /who; empty for the value itself.";
            self.report("bad_rule", &pointer, format!("`{at}` is no JSON Pointer: {error}"), help);
        }
    }

    /// Checks that a group has a worker.
    fn has_members(&self, group: &GroupName, pointer: &str, help: &str) {
        if self.blueprint.group(group).is_empty() {
            let known: BTreeSet<&str> =
                self.blueprint.workers.values().filter_map(|worker| Some(worker.group.as_ref()?.as_str())).collect();
            let help = suggest(group.as_str(), known, help);
            self.report("undeclared_group", pointer, format!("no worker is in `{group}`"), help);
        }
    }

    fn delay(&self, rule: &Rule, pointer: &str) {
        let Some(delay) = &rule.delay else { return };
        let mut groups = delay.except_waits_of.iter();
        // A fragment may name a group that a blueprint does not use.
        if let Some(group) = delay.except_waits_of.first()
            && groups.all(|group| self.blueprint.group(group).is_empty())
        {
            let help = "Give the workers whose waits do not count a `group`.";
            self.has_members(group, &format!("{pointer}/except_waits_of/0"), help);
        }
        match &delay.length {
            DelayLength::For(time) if time.as_ms() > DELAY_MS_MAX => {
                let message = format!("`{}` fires after {time}, which is longer than a year", rule.name);
                self.report("bad_rule", pointer, message, "Let it pass 366d at most.");
            }
            DelayLength::For(_) => {}
            DelayLength::At(_) if !rule.trigger.brings_a_value() => {
                let message = format!("`{}` has no trigger with a value that could contain a time", rule.name);
                let help = "Give the time itself, like 5m, or let the rule wait for {op, path} or {signal}.";
                self.report("bad_rule", &format!("{pointer}/at"), message, help);
            }
            DelayLength::At(at) => {
                if let Err(error) = PointerBuf::parse(at.as_str()) {
                    let help = "Write a JSON Pointer into the value of the event or signal, like /timeout_ms; empty for the value itself.";
                    let message = format!("`{at}` is no JSON Pointer: {error}");
                    self.report("bad_rule", &format!("{pointer}/at"), message, help);
                }
            }
        }
    }

    fn actions(&self) {
        for (kind, action) in self.blueprint.circuit.actions() {
            if let Action::Wake(worker) = action {
                self.declared(worker, &format!("/circuit/{kind}/then/wake"));
            }
        }
    }

    fn declared(&self, name: &WorkerName, pointer: &str) {
        if !self.blueprint.workers.contains_key(name) {
            let known = self.blueprint.workers.keys().map(WorkerName::as_str);
            let is_group = |worker: &Worker| worker.group.as_ref().is_some_and(|group| group.as_str() == name.as_str());
            let help = match self.blueprint.workers.values().any(is_group) {
                true => format!("It is a group: write `{{group: {name}}}`."),
                false => suggest(name.as_str(), known, "Declare it under `workers`."),
            };
            self.report("undeclared_worker", pointer, format!("there is no worker `{name}`"), help);
        }
    }
}
