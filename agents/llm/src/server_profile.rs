//! Findings about a server, kept as long as the process lives.
//!
//! A rejected form is a finding about the seat and the kind of turn. A server may reject a seat's answer tool and
//! accept `response_format`, or the other way round. Only the finding that a server accepts no `response_format` at
//! all applies to the model. All other parts of a request are the model's.

use std::collections::{BTreeMap, VecDeque};

use patchboard_kernel::id::{BoardId, InvocationId};

use super::downgrade::{Certainty, Downgrade, DowngradeResult};
use super::request_shape::{OutputMode, RequestShape, Stream};
use super::transport::HttpFailure;
use crate::config::Structured;
use patchboard_runtime::tools::ToolDefinition;

/// Default maximum of the entries of a bounded map.
const ENTRIES_MAX: usize = 256;

/// Seat key: blueprint name and worker name. Callers without a board use an empty blueprint name.
pub(super) type WorkerKey = (String, String);

pub(super) type CallKey = (BoardId, InvocationId);

pub(super) type DowngradeKey = (CallKey, SchemaPlacement);

/// Part of a request that holds the form of the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SchemaPlacement {
    /// In `response_format`.
    Format,
    /// In the tool by which the reply is given.
    Tool,
}

impl SchemaPlacement {
    /// Returns the place of the form in a request that offers these tools.
    pub(super) const fn for_tools(offered: &[ToolDefinition]) -> Self {
        if offered.is_empty() { Self::Format } else { Self::Tool }
    }
}

#[derive(Default)]
pub(super) struct ServerProfile {
    /// Shape of requests, apart from their form.
    shape: RequestShape,
    no_format: bool,
    /// Forms that seats found.
    forms: Bounded<(WorkerKey, SchemaPlacement), OutputMode>,
    /// Forms that the server failed on, each with the form that was suspected.
    suspects: Bounded<(WorkerKey, SchemaPlacement), OutputMode>,
    /// Searches interrupted by the model's limits, each with the refusal to continue from.
    downgrades: Bounded<DowngradeKey, (Downgrade, HttpFailure)>,
}

impl ServerProfile {
    pub(super) fn shape(&self, worker: &WorkerKey, place: SchemaPlacement, structured: Structured) -> RequestShape {
        let configured_mode = match structured {
            Structured::Derived => OutputMode::Derived,
            Structured::Generic => OutputMode::Generic,
            Structured::Off => OutputMode::None,
        };
        let of_model =
            if self.no_format && place == SchemaPlacement::Format { OutputMode::None } else { OutputMode::Derived };
        let of_seat = self.forms.get(&(worker.clone(), place)).copied().unwrap_or_default();
        RequestShape { form: of_seat.max(of_model).max(configured_mode), ..self.shape }
    }

    /// Records a finding. Calls run concurrently, so findings are merged.
    pub(super) fn remember(&mut self, worker: &WorkerKey, place: SchemaPlacement, found: DowngradeResult) {
        let key = (worker.clone(), place);
        match found.proof {
            Certainty::Prompt => return,
            // A second fault with the same form is no accident.
            Certainty::ServerFailure => {
                if self.suspects.remove(&key) == Some(found.refused) {
                    self.forms.insert(key, found.shape.form);
                    self.shape.turns = self.shape.turns.max(found.shape.turns);
                    self.shape.tool_forms = self.shape.tool_forms.max(found.shape.tool_forms);
                } else {
                    self.suspects.insert(key, found.refused);
                }
                return;
            }
            Certainty::Rejection => {}
        }
        if found.shape.form != found.refused {
            self.forms.insert(key, found.shape.form);
            self.no_format |= place == SchemaPlacement::Format && found.is_form_refused;
        }
        let (known, found) = (self.shape, found.shape);
        self.shape = RequestShape {
            form: OutputMode::Derived,
            limit: known.limit.max(found.limit),
            cap: found.cap.or(known.cap),
            temperature: known.temperature.max(found.temperature),
            left_out: known.left_out.or(found.left_out),
            folded: known.folded || found.folded,
            stream: known.stream.max(found.stream),
            turns: known.turns.max(found.turns),
            tool_forms: known.tool_forms.max(found.tool_forms),
            no_tools: false,
        };
    }

    /// Keeps the search for an acceptable request: the next attempt of the invocation continues it.
    pub(super) fn keep_downgrade(&mut self, key: DowngradeKey, climb: Downgrade, refused: HttpFailure) {
        self.downgrades.insert(key, (climb, refused));
    }

    /// Removes and returns the interrupted search that began with this shape.
    pub(super) fn take_downgrade(
        &mut self,
        key: &DowngradeKey,
        start: RequestShape,
    ) -> Option<(Downgrade, HttpFailure)> {
        self.downgrades.remove(key).filter(|(climb, _)| climb.start == start)
    }

    /// Streams from now on, so that bytes distinguish a slow answer from none.
    pub(super) fn prefer_streams(&mut self) {
        self.shape.stream = self.shape.stream.max(Stream::WithUsage);
    }

    /// Clears the suspicion against a seat's form after an answer.
    pub(super) fn clear(&mut self, worker: &WorkerKey, place: SchemaPlacement) {
        self.suspects.remove(&(worker.clone(), place));
    }
}

/// Map of bounded size; evicts the oldest entry.
pub(super) struct Bounded<K, V> {
    max: usize,
    values: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Ord + Clone, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self::new(ENTRIES_MAX)
    }
}

impl<K: Ord + Clone, V> Bounded<K, V> {
    pub(super) const fn new(max: usize) -> Self {
        Self { max, values: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        if self.order.len() >= self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
        self.order.push_back(key.clone());
        self.values.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.values.remove(key)?;
        self.order.retain(|one| one != key);
        Some(value)
    }
}

#[cfg(test)]
mod tests;
