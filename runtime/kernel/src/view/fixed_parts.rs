//! Part of a worker's views that depends only on its contract and the schema.

use jsonptr::Pointer;
use serde_json::Value;

use super::render::Detail;
use super::{NOTHING, ReplyInstructions, in_unit, prompt, render, text};
use crate::ablation::Interface;
use crate::bindings::Bindings;
use crate::blueprint::{GrantOp, Unit, Worker};
use crate::pattern::{PathSyntax, Pattern};
use crate::schema::Schema;

/// The part of a worker's views that depends only on its contract and the schema.
pub struct FixedParts {
    /// See [`View::instructions`](super::View::instructions).
    pub(super) instructions: String,
    /// A well-formed patch such as the worker may write.
    pub(super) example: Value,
    /// Names in the worker's paths, which its trigger binds.
    names: Vec<String>,
    /// The full description of the write grants.
    pub(super) grants: String,
    /// The last line, unless the reply format has another for the trigger.
    reminder: String,
    /// Texts for a worker that replies without patches.
    pub(crate) reply_format: Option<ReplyInstructions>,
    /// Patterns of places that the worker may append to.
    pub(super) appends: Vec<Pattern>,
    unit: Unit,
    pub(super) interface: Interface,
    /// The initial document of a message board, as one line; empty for others.
    pub(super) beginning: String,
}

impl FixedParts {
    /// Builds the fixed part for a worker with this interface.
    pub fn new(worker: &Worker, schema: &Schema, interface: Interface, paths: PathSyntax) -> Self {
        Self::with(worker, interface, paths, &|pattern: &Pattern| schema.fragment(pattern))
    }

    pub(super) fn with(
        worker: &Worker,
        interface: Interface,
        paths: PathSyntax,
        fragment: &dyn Fn(&Pattern) -> Option<Value>,
    ) -> Self {
        let fragment = &|path: &str| paths.parse(path).ok().and_then(|pattern| fragment(&pattern));
        let adds = worker.writes.iter().filter(|grant| grant.ops.contains(&GrantOp::Add));
        let written = worker.writes.iter().map(|grant| &grant.path);
        let templates =
            written.chain(worker.reads.iter().map(|read| &read.path)).filter_map(|path| paths.parse(path).ok());
        let mut names: Vec<String> =
            templates.flat_map(|template| template.names().map(str::to_owned).collect::<Vec<_>>()).collect();
        names.sort();
        names.dedup();
        let example = prompt::example(worker, paths, fragment);
        Self {
            instructions: prompt::instructions(worker, interface, &example, &names),
            names,
            appends: adds.filter_map(|grant| paths.parse(&grant.path).ok()).collect(),
            example,
            grants: render::grants(worker, interface, fragment, Detail::Full),
            reminder: render::reminder(&worker.writes, interface, worker.files.is_some()),
            reply_format: None,
            unit: worker.view.unit,
            interface,
            beginning: String::new(),
        }
    }

    /// Adds the initial document of a board, if its workers see only messages.
    #[must_use]
    pub(crate) fn beginning_with(mut self, initial: &Value) -> Self {
        let has_beginning =
            self.interface == Interface::Message && initial.as_object().is_some_and(|all| !all.is_empty());
        if has_beginning {
            self.beginning = format!("The document at the beginning: {}\n", text::whole_json(initial));
        }
        self
    }

    /// Sets the format of replies, if they are not patches.
    #[must_use]
    pub fn replying_in(mut self, format: Option<ReplyInstructions>) -> Self {
        if let Some(format) = format.as_ref().filter(|_| self.interface == Interface::Patch) {
            self.instructions.clone_from(&format.instructions);
            self.reminder.clone_from(&format.reminder);
            if !format.shows_grants {
                self.grants.clear();
            }
        }
        self.reply_format = format;
        self
    }

    /// Returns the reply format, if it replaces patches.
    pub(super) fn shown_format(&self) -> Option<&ReplyInstructions> {
        self.reply_format.as_ref().filter(|_| self.interface == Interface::Patch)
    }

    /// Returns the last line of a view with this place of the trigger.
    pub(super) fn reminder(&self, trigger: Option<&str>) -> &str {
        let place = trigger.and_then(|place| Pointer::parse(place).ok());
        let mut others = self.shown_format().into_iter().flat_map(|format| &format.reminders_at);
        let other = place.and_then(|place| others.find(|(pattern, _)| pattern.matches(place)));
        other.map_or(&self.reminder, |(_, reminder)| reminder)
    }

    /// Replaces names with bound tokens.
    pub(crate) fn with_tokens(&self, worker: &Worker, bound: &Bindings) -> Self {
        let fill = |text: &str| {
            let mut filled = String::with_capacity(text.len());
            let mut rest = text;
            while let Some(at) = rest.find("/{") {
                let (before, from) = rest.split_at(at + 1);
                filled.push_str(before);
                let end = from.find('}').map_or(0, |end| end + 1);
                match bound.get(from.get(1..end.saturating_sub(1)).unwrap_or_default()) {
                    Some(token) => {
                        filled.push_str(&text::name(&jsonptr::Token::new(token).encoded().replace(['\n', '\r'], " ")));
                        rest = &from[end..];
                    }
                    None => rest = from,
                }
            }
            filled + rest
        };
        let example = serde_json::from_str(&fill(&self.example.to_string())).unwrap_or_else(|_| self.example.clone());
        Self {
            instructions: prompt::instructions(worker, self.interface, &example, &[]),
            example,
            names: Vec::new(),
            grants: fill(&self.grants),
            reminder: fill(&self.reminder),
            reply_format: self.reply_format.clone(),
            appends: self.appends.clone(),
            unit: self.unit,
            interface: self.interface,
            beginning: self.beginning.clone(),
        }
    }

    /// Returns the size of the fixed parts (contract, schema fragments, empty sections), in the worker's unit. A
    /// smaller budget is an error of the blueprint.
    pub fn minimum(&self) -> u32 {
        in_unit(self.unit, self.minimum_chars())
    }

    pub(super) fn minimum_chars(&self) -> usize {
        let headings = [render::SEE_HEADING, NOTHING, render::TRIGGER_HEADING].map(text::chars);
        let others = self.shown_format().into_iter().flat_map(|format| &format.reminders_at);
        let reminders = others.map(|(_, reminder)| reminder).chain([&self.reminder]);
        let reminder = reminders.map(|reminder| text::chars(reminder)).max().unwrap_or_default();
        let own = text::chars(&self.grants) + reminder;
        let bound = self.names.iter().map(|name| text::chars(name) + render::BOUND_MAX).sum::<usize>();
        own + headings.iter().sum::<usize>() + render::TRIGGER_MAX + bound
    }
}
