//! Findings about forms belong to seats, all others to the model.

use super::super::request_shape::{Limit, Temperature};
use super::*;

fn key(worker: &str) -> WorkerKey {
    ("b".to_owned(), worker.to_owned())
}

fn found(form: OutputMode, proof: Certainty, is_form_refused: bool) -> DowngradeResult {
    DowngradeResult {
        shape: RequestShape { form, ..RequestShape::default() },
        refused: OutputMode::Derived,
        proof,
        is_form_refused,
    }
}

fn form(known: &ServerProfile, worker: &str, place: SchemaPlacement) -> OutputMode {
    known.shape(&key(worker), place, Structured::Derived).form
}

#[test]
fn a_form_is_a_fact_of_its_seat_and_of_its_place() {
    for refused in [OutputMode::Plain, OutputMode::Generic, OutputMode::Object, OutputMode::None] {
        let mut known = ServerProfile::default();
        known.remember(&key("one"), SchemaPlacement::Tool, found(refused, Certainty::Rejection, true));
        assert_eq!(form(&known, "one", SchemaPlacement::Tool), refused);
        assert_eq!(form(&known, "one", SchemaPlacement::Format), OutputMode::Derived);
        assert_eq!(form(&known, "other", SchemaPlacement::Tool), OutputMode::Derived);
        known.remember(&key("one"), SchemaPlacement::Format, found(refused, Certainty::Rejection, false));
        assert_eq!(form(&known, "one", SchemaPlacement::Format), refused);
        assert_eq!(form(&known, "other", SchemaPlacement::Format), OutputMode::Derived);
    }
    let mut known = ServerProfile::default();
    known.remember(&key("one"), SchemaPlacement::Format, found(OutputMode::None, Certainty::Rejection, true));
    assert_eq!(form(&known, "other", SchemaPlacement::Format), OutputMode::None);
    assert_eq!(form(&known, "other", SchemaPlacement::Tool), OutputMode::Derived);
}

#[test]
fn a_fault_counts_when_it_meets_the_same_form_twice_in_a_row() {
    let mut known = ServerProfile::default();
    let fault = found(OutputMode::Plain, Certainty::ServerFailure, false);
    known.remember(&key("one"), SchemaPlacement::Format, fault);
    assert_eq!(form(&known, "one", SchemaPlacement::Format), OutputMode::Derived);
    known.clear(&key("one"), SchemaPlacement::Format);
    known.remember(&key("one"), SchemaPlacement::Format, fault);
    assert_eq!(form(&known, "one", SchemaPlacement::Format), OutputMode::Derived, "the form was answered in between");
    known.remember(&key("one"), SchemaPlacement::Format, fault);
    assert_eq!(form(&known, "one", SchemaPlacement::Format), OutputMode::Plain);
    assert_eq!(form(&known, "other", SchemaPlacement::Format), OutputMode::Derived);
}

#[test]
fn other_parts_are_the_models_unless_the_prompt_was_the_cause() {
    let mut known = ServerProfile::default();
    let shape = RequestShape { limit: Limit::None, temperature: Temperature::Positive, ..RequestShape::default() };
    let of = |proof| DowngradeResult { shape, refused: OutputMode::Derived, proof, is_form_refused: false };
    known.remember(&key("one"), SchemaPlacement::Format, of(Certainty::Prompt));
    assert_eq!(known.shape(&key("other"), SchemaPlacement::Tool, Structured::Derived), RequestShape::default());
    known.remember(&key("one"), SchemaPlacement::Format, of(Certainty::Rejection));
    assert_eq!(known.shape(&key("other"), SchemaPlacement::Tool, Structured::Derived), shape);
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
