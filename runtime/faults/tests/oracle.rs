//! The oracle that judges documents notices every change and raises no false alarm.

mod honest;

use patchboard_faults::class::FaultClass;
use patchboard_faults::random::Random;
use patchboard_faults::scenario::{self, Scenario};
use serde_json::{Value, json};

/// Collects the pointers of all leaves below a place.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, one)| leaves(one, &format!("{at}/{}", escaped(name)), found));
        }
        Value::Array(elements) => {
            elements.iter().enumerate().for_each(|(index, one)| leaves(one, &format!("{at}/{index}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// Returns another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::String(text) => format!("{text}, they say").into(),
        Value::Number(number) => (number.as_i64().unwrap_or_default() + 1_000).into(),
        Value::Bool(is) => (!is).into(),
        _ => json!(1),
    }
}

#[test]
fn a_right_document_is_right_at_every_step_and_done_at_the_end() {
    for scenario in scenario::ALL {
        for seed in 0..10 {
            let documents = honest::play(*scenario, seed);
            for document in &documents {
                assert_eq!(
                    scenario.document_errors(document),
                    Vec::<String>::new(),
                    "{} {seed}: {document}",
                    scenario.name()
                );
            }
            let last = documents.last().expect("a first one");
            assert!(scenario.is_done(last), "{} {seed}: {last}", scenario.name());
        }
    }
}

#[test]
fn every_change_of_what_the_workers_wrote_is_noticed() {
    for scenario in scenario::ALL {
        let document = honest::play(*scenario, 1).pop().expect("a first one");
        let mut places = Vec::new();
        leaves(&document, "", &mut places);
        // The request is written by no worker, and defines the right answer.
        places.retain(|place| !place.starts_with("/request/"));
        assert!(places.len() > 8, "{}: {places:?}", scenario.name());
        for place in &places {
            let mut changed = document.clone();
            let value = changed.pointer_mut(place).expect("it is there");
            *value = other(value);
            noticed(*scenario, &changed, place);
        }
        for name in document.as_object().expect("an object").keys().filter(|name| *name != "request") {
            let mut more = document.clone();
            if let Some(list) = more[name].as_array_mut() {
                list.push(json!("something"));
                noticed(*scenario, &more, &format!("one more of {name}"));
            }
        }
        let mut strange = document.clone();
        strange["extra"] = json!(true);
        noticed(*scenario, &strange, "a member of its own");
    }
}

fn noticed(scenario: &dyn Scenario, document: &Value, what: &str) {
    assert!(!scenario.document_errors(document).is_empty(), "{}: {what} is not noticed: {document}", scenario.name());
}

#[test]
fn committed_false_claims_are_detected_as_wrong() {
    // Judged without the kernel: the operations are applied to the documents of a faultless run.
    for scenario in scenario::ALL {
        let documents = honest::play(*scenario, 3);
        let mut random = Random::new(3);
        let (mut lies, mut noticed) = (0, 0);
        for document in &documents {
            for worker in scenario.blueprint().workers.keys() {
                for _ in 0..4 {
                    let Some(lie) = scenario.false_claim(worker.as_str(), document, &mut random) else { continue };
                    let mut changed = document.clone();
                    if lie.is_empty() || !honest::apply(&mut changed, &lie) || changed == *document {
                        continue;
                    }
                    lies += 1;
                    noticed += usize::from(!scenario.document_errors(&changed).is_empty());
                }
            }
        }
        assert!(lies > 20, "{}: {lies}", scenario.name());
        // Some lies come true, because a later step would write that value anyway.
        assert!(noticed * 10 > lies * 7, "{}: {noticed} of {lies} lies are noticed", scenario.name());
    }
}

#[test]
fn every_unchecked_trespass_is_detected() {
    for scenario in scenario::ALL {
        let documents = honest::play(*scenario, 4);
        let request = documents[0]["request"].clone();
        let mut random = Random::new(4);
        let mut trespasses = 0;
        for document in &documents {
            let lasting = scenario.permanent_entries(document);
            for worker in scenario::fault_candidates(*scenario, FaultClass::UnauthorizedWrite) {
                for _ in 0..8 {
                    let trespass = scenario.unauthorized_write(worker, document, &mut random);
                    let mut changed = document.clone();
                    if !honest::apply(&mut changed, &trespass) || changed == *document {
                        continue;
                    }
                    trespasses += 1;
                    let left = scenario.permanent_entries(&changed);
                    let is_gone = lasting.iter().any(|one| !left.contains(one));
                    let wrongs = scenario::document_errors(*scenario, &request, &changed);
                    let name = scenario.name();
                    assert!(is_gone || !wrongs.is_empty(), "{name}: {worker} {trespass:?} is not noticed: {changed}");
                }
            }
        }
        assert!(trespasses > 100, "{}: {trespasses}", scenario.name());
    }
}
