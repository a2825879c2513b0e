//! Part of a worker's views that depends only on its contract and the schema.

use serde_json::Value;

use super::render::Detail;
use super::{FragmentLookup, NOTHING, in_unit, prompt, render, text};
use crate::ablation::Interface;
use crate::bindings::Bindings;
use crate::blueprint::{GrantOp, ReplyFormat, ReplyPurpose, Unit, Worker};
use crate::pattern::{PathSyntax, Pattern};
use crate::schema::Schema;

/// The part of a worker's views that depends only on its contract and the schema.
pub struct FixedParts {
    /// See [`View::example`](super::View::example).
    pub(super) example: Value,
    /// See [`View::names`](super::View::names).
    pub(super) names: Vec<String>,
    /// The full description of the write grants.
    pub(super) grants: String,
    /// The last line.
    pub(super) reminder: String,
    /// The last line by occasion, for a worker that replies without patches.
    pub(super) reminders: Vec<(ReplyPurpose, String)>,
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
        Self {
            names,
            appends: adds.filter_map(|grant| paths.parse(&grant.path).ok()).collect(),
            example: prompt::example(worker, paths, fragment),
            grants: grants(worker, interface, fragment, Detail::Full),
            reminder: render::reminder(&worker.writes, interface, worker.files.is_some()),
            reminders: match format_of(worker, interface) {
                Some(format) => prompt::formats::reminders(worker, format).to_vec(),
                None => Vec::new(),
            },
            unit: worker.view.unit,
            interface,
            beginning: String::new(),
        }
    }

    /// Adds the initial document of a board, if its workers see only messages.
    #[must_use]
    pub(crate) fn beginning_with(mut self, initial: &Value) -> Self {
        let is_told = self.interface == Interface::Message && initial.as_object().is_some_and(|all| !all.is_empty());
        if is_told {
            self.beginning = format!("The document at the beginning: {}\n", text::whole_json(initial));
        }
        self
    }

    /// Replaces names with bound tokens.
    pub(crate) fn with_tokens(&self, bound: &Bindings) -> Self {
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
        Self {
            example: serde_json::from_str(&fill(&self.example.to_string())).unwrap_or_else(|_| self.example.clone()),
            names: Vec::new(),
            grants: fill(&self.grants),
            reminder: fill(&self.reminder),
            reminders: self.reminders.iter().map(|(occasion, text)| (*occasion, fill(text))).collect(),
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
        let reminders = self.reminders.iter().map(|(_, reminder)| text::chars(reminder));
        let reminder = reminders.max().unwrap_or_else(|| text::chars(&self.reminder));
        let own = text::chars(&self.grants) + reminder;
        let bound = self.names.iter().map(|name| text::chars(name) + render::BOUND_MAX).sum::<usize>();
        own + headings.iter().sum::<usize>() + render::TRIGGER_MAX + bound
    }
}

/// Returns the format of a worker's replies, if it replaces patches.
pub(super) fn format_of(worker: &Worker, interface: Interface) -> Option<ReplyFormat> {
    worker.format.filter(|_| interface == Interface::Patch)
}

/// Describes the write grants. Workers with another reply format get none, because their agents build the patches. A
/// controller gets them nevertheless: they name the workers that it chooses among.
pub(super) fn grants(worker: &Worker, interface: Interface, fragment: FragmentLookup<'_>, detail: Detail) -> String {
    match format_of(worker, interface) {
        None | Some(ReplyFormat::Control) => render::grants(worker, interface, fragment, detail),
        Some(_) => String::new(),
    }
}
