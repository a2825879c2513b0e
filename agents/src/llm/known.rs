//! Findings about a server, kept as long as the process lives.
//!
//! A rejected form is a finding about the seat and the kind of turn. A server may reject a seat's answer tool and
//! accept `response_format`, or the other way round. Only the finding that a server accepts no `response_format` at
//! all applies to the model. All other parts of a request are the model's.

use std::collections::{BTreeMap, VecDeque};

use patchboard_kernel::id::{BoardId, InvocationId};

use super::ladder::{Climb, Found, Proof, Rung, Shape, Stream};
use super::transport::HttpFailure;
use crate::config::Structured;
use crate::tools::Definition;

/// Seats with remembered forms, at most.
const SEATS_MAX: usize = 256;

/// Seat key: blueprint name and worker name. Callers without a board use an empty blueprint name.
pub(super) type SeatKey = (String, String);

/// An invocation of a board.
pub(super) type CallKey = (BoardId, InvocationId);

/// Part of a request that holds the form of the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    /// In `response_format`.
    Format,
    /// In the tool by which the reply is given.
    Tool,
}

impl Place {
    /// Returns the place of the form in a request that offers these tools.
    pub(super) const fn of(offered: &[Definition]) -> Self {
        if offered.is_empty() { Self::Format } else { Self::Tool }
    }
}

/// Findings about a server.
pub(super) struct Known {
    /// Shape of requests, apart from their form.
    shape: Shape,
    /// The server accepts no `response_format`.
    no_format: bool,
    /// Forms that seats found.
    forms: Bounded<(SeatKey, Place), Rung>,
    /// Forms that the server failed on, each with the form that was suspected.
    suspects: Bounded<(SeatKey, Place), Rung>,
    /// Searches interrupted by the model's limits, each with the refusal to continue from.
    climbs: Bounded<(CallKey, Place), (Climb, HttpFailure)>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            no_format: false,
            forms: Bounded::new(SEATS_MAX),
            suspects: Bounded::new(SEATS_MAX),
            climbs: Bounded::new(SEATS_MAX),
        }
    }
}

impl Known {
    /// Returns the shape of a seat's requests.
    pub(super) fn shape(&self, seat: &SeatKey, place: Place, structured: Structured) -> Shape {
        let asked = match structured {
            Structured::Derived => Rung::Derived,
            Structured::Generic => Rung::Generic,
            Structured::Off => Rung::None,
        };
        let of_model = if self.no_format && place == Place::Format { Rung::None } else { Rung::Derived };
        let of_seat = self.forms.get(&(seat.clone(), place)).copied().unwrap_or_default();
        Shape { form: of_seat.max(of_model).max(asked), ..self.shape }
    }

    /// Records a finding. Calls run concurrently, so findings are merged.
    pub(super) fn remember(&mut self, seat: &SeatKey, place: Place, found: Found) {
        let key = (seat.clone(), place);
        match found.proof {
            Proof::Prompt => return,
            // A second fault with the same form is no accident.
            Proof::Fault => {
                if self.suspects.remove(&key) == Some(found.refused) {
                    self.forms.insert(key, found.shape.form);
                    self.shape.turns = self.shape.turns.max(found.shape.turns);
                    self.shape.tool_forms = self.shape.tool_forms.max(found.shape.tool_forms);
                } else {
                    self.suspects.insert(key, found.refused);
                }
                return;
            }
            Proof::Refusal => {}
        }
        if found.shape.form != found.refused {
            self.forms.insert(key, found.shape.form);
            self.no_format |= place == Place::Format && found.is_form_refused;
        }
        let (known, found) = (self.shape, found.shape);
        self.shape = Shape {
            form: Rung::Derived,
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
    pub(super) fn keep_climb(&mut self, call: CallKey, place: Place, climb: Climb, refused: HttpFailure) {
        self.climbs.insert((call, place), (climb, refused));
    }

    /// Removes and returns the interrupted search that began with this shape.
    pub(super) fn take_climb(&mut self, call: CallKey, place: Place, start: Shape) -> Option<(Climb, HttpFailure)> {
        self.climbs.remove(&(call, place)).filter(|(climb, _)| climb.start() == start)
    }

    /// Streams from now on, so that bytes distinguish a slow answer from none.
    pub(super) fn prefer_streams(&mut self) {
        self.shape.stream = self.shape.stream.max(Stream::WithUsage);
    }

    /// Clears the suspicion against a seat's form after an answer.
    pub(super) fn clear(&mut self, seat: &SeatKey, place: Place) {
        self.suspects.remove(&(seat.clone(), place));
    }
}

/// Map of bounded size; evicts the oldest entry.
pub(super) struct Bounded<K, V> {
    max: usize,
    values: BTreeMap<K, V>,
    order: VecDeque<K>,
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
mod tests {
    use super::super::ladder::{Limit, Temperature};
    use super::*;

    fn key(worker: &str) -> SeatKey {
        ("b".to_owned(), worker.to_owned())
    }

    fn found(form: Rung, proof: Proof, is_form_refused: bool) -> Found {
        Found { shape: Shape { form, ..Shape::default() }, refused: Rung::Derived, proof, is_form_refused }
    }

    fn form(known: &Known, worker: &str, place: Place) -> Rung {
        known.shape(&key(worker), place, Structured::Derived).form
    }

    #[test]
    fn a_form_is_a_fact_of_its_seat_and_of_its_place() {
        for refused in [Rung::Plain, Rung::Generic, Rung::Object, Rung::None] {
            let mut known = Known::default();
            known.remember(&key("one"), Place::Tool, found(refused, Proof::Refusal, true));
            assert_eq!(form(&known, "one", Place::Tool), refused);
            assert_eq!(form(&known, "one", Place::Format), Rung::Derived);
            assert_eq!(form(&known, "other", Place::Tool), Rung::Derived);
            known.remember(&key("one"), Place::Format, found(refused, Proof::Refusal, false));
            assert_eq!(form(&known, "one", Place::Format), refused);
            assert_eq!(form(&known, "other", Place::Format), Rung::Derived);
        }
        let mut known = Known::default();
        known.remember(&key("one"), Place::Format, found(Rung::None, Proof::Refusal, true));
        assert_eq!(form(&known, "other", Place::Format), Rung::None);
        assert_eq!(form(&known, "other", Place::Tool), Rung::Derived);
    }

    #[test]
    fn a_fault_counts_when_it_meets_the_same_form_twice_in_a_row() {
        let mut known = Known::default();
        let fault = found(Rung::Plain, Proof::Fault, false);
        known.remember(&key("one"), Place::Format, fault);
        assert_eq!(form(&known, "one", Place::Format), Rung::Derived);
        known.clear(&key("one"), Place::Format);
        known.remember(&key("one"), Place::Format, fault);
        assert_eq!(form(&known, "one", Place::Format), Rung::Derived, "the form was answered in between");
        known.remember(&key("one"), Place::Format, fault);
        assert_eq!(form(&known, "one", Place::Format), Rung::Plain);
        assert_eq!(form(&known, "other", Place::Format), Rung::Derived);
    }

    #[test]
    fn other_parts_are_the_models_unless_the_prompt_was_the_cause() {
        let mut known = Known::default();
        let shape = Shape { limit: Limit::None, temperature: Temperature::Positive, ..Shape::default() };
        let of = |proof| Found { shape, refused: Rung::Derived, proof, is_form_refused: false };
        known.remember(&key("one"), Place::Format, of(Proof::Prompt));
        assert_eq!(known.shape(&key("other"), Place::Tool, Structured::Derived), Shape::default());
        known.remember(&key("one"), Place::Format, of(Proof::Refusal));
        assert_eq!(known.shape(&key("other"), Place::Tool, Structured::Derived), shape);
    }

    #[test]
    fn the_oldest_entry_of_a_full_map_gives_way() {
        let mut map = Bounded::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            map.insert(key, value);
        }
        assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (Some(&'c'), None, Some(&'d')));
        assert_eq!((map.remove(&1), map.remove(&1)), (Some('c'), None));
    }
}
