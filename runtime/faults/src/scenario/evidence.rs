//! `blueprints/evidence-review.yaml`: a question and six documents, four of them relevant.

use std::sync::LazyLock;

use patchboard_kernel::blueprint::Blueprint;
use serde_json::{Value, json};

use super::{Scenario, add, list, replace, shipped, unknown_members};
use crate::random::Random;

static BLUEPRINT: LazyLock<Blueprint> =
    LazyLock::new(|| shipped("evidence-review.yaml", include_str!("../../../../blueprints/evidence-review.yaml")));

const TOWNS: [&str; 6] = ["Aldern", "Brisk", "Corvane", "Dunmere", "Estley", "Farrow"];

/// Beginning of the relevant sentences, and of those that are claimed and then refused.
const NEEDED: &str = "The mill of ";
const NEAR: &str = "The market of ";

pub(super) struct Evidence;

/// Returns the given documents, read from the request in the document.
fn given(document: &Value) -> &[Value] {
    list(&document["request"], "documents")
}

/// Returns the given documents that seem relevant.
fn sources(document: &Value) -> impl Iterator<Item = &Value> {
    given(document).iter().filter(|document| claim(document).is_some())
}

/// Returns the sentences that are claimed.
fn claims(document: &Value) -> Vec<&str> {
    sources(document).filter_map(claim).collect()
}

fn claim(document: &Value) -> Option<&str> {
    sentences(document).find(|text| text.starts_with(NEEDED) || text.starts_with(NEAR))
}

/// Returns the answer that follows from verified sentences: the earliest year.
fn answer(verified: &[Value]) -> Value {
    saying(years(verified).min(), verified)
}

fn saying(year: Option<u64>, verified: &[Value]) -> Value {
    let mills: Vec<&Value> = verified.iter().filter(|text| year_of(text).is_some()).collect();
    year.map_or_else(
        || json!({"says": "unknown", "shown_by": []}),
        |year| json!({"says": year.to_string(), "shown_by": mills}),
    )
}

fn years(verified: &[Value]) -> impl Iterator<Item = u64> {
    verified.iter().filter_map(year_of)
}

fn year_of(text: &Value) -> Option<u64> {
    text.as_str()?.split_whitespace().last()?.trim_end_matches('.').parse().ok()
}

/// Returns the list element that triggered a worker.
fn woken_by<'a>(woken: Option<&str>, document: &'a Value) -> Option<&'a Value> {
    document.pointer(woken?)
}

fn sentences(document: &Value) -> impl Iterator<Item = &str> {
    document["sentences"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the first claim without a verdict.
fn unjudged(document: &Value) -> Option<&str> {
    let judged =
        |claim: &Value| list(document, "verified").contains(claim) || list(document, "refused").contains(claim);
    list(document, "claims").iter().find(|claim| !judged(claim)).and_then(Value::as_str)
}

impl Scenario for Evidence {
    fn name(&self) -> &'static str {
        "evidence-review"
    }

    fn blueprint(&self) -> &Blueprint {
        &BLUEPRINT
    }

    fn request(&self, random: &mut Random, planted: Option<&str>) -> Value {
        let shift = random.index(TOWNS.len());
        let documents = (0..TOWNS.len()).map(|nth| {
            let town = TOWNS[(nth + shift) % TOWNS.len()];
            let mut sentences = vec![format!("{town} lies on a river.")];
            match nth {
                0 | 1 => sentences.push(format!("{NEEDED}{town} was built in {}.", 1500 + random.below(400))),
                2 | 3 => sentences.push(format!("{NEAR}{town} is held on {} days of the year.", 2 + random.below(200))),
                _ => {}
            }
            sentences.extend(planted.filter(|_| nth < 2).map(str::to_owned));
            json!({"title": town, "sentences": sentences})
        });
        let documents: Vec<Value> = documents.collect();
        json!({"question": "When was the older of the two mills built?", "documents": documents})
    }

    fn answer(&self, worker: &str, woken: Option<&str>, document: &Value) -> Vec<Value> {
        match worker {
            "planner" => sources(document).map(|source| add("/sources/-", source.clone())).collect(),
            "extractor" => {
                woken_by(woken, document).and_then(claim).map(|claim| add("/claims/-", claim)).into_iter().collect()
            }
            "verifier" => match woken_by(woken, document).and_then(Value::as_str) {
                Some(claim) if claim.starts_with(NEEDED) => vec![add("/verified/-", claim)],
                Some(claim) => vec![add("/refused/-", claim)],
                None => Vec::new(),
            },
            _ => vec![add("/answer", answer(list(document, "verified")))],
        }
    }

    fn document_errors(&self, document: &Value) -> Vec<String> {
        let mut wrongs = unknown_members(document, &["request", "sources", "claims", "verified", "refused", "answer"]);
        let (sources, claims) = (sources(document).collect::<Vec<_>>(), claims(document));
        let is_needed = |text: &&str| text.starts_with(NEEDED);
        let (verified, refused): (Vec<&str>, Vec<&str>) = claims.iter().copied().partition(is_needed);
        let texts = [("claims", claims), ("verified", verified), ("refused", refused)];
        let mut check = |name: &str, is_due: &dyn Fn(&Value) -> bool| {
            let Some(elements) = document[name].as_array() else {
                wrongs.push(format!("/{name} is no list"));
                return;
            };
            for (index, element) in elements.iter().enumerate() {
                if !is_due(element) || elements[..index].contains(element) {
                    wrongs.push(format!("/{name}/{index} has no business there"));
                }
            }
        };
        check("sources", &|source| sources.contains(&source));
        for (name, due) in texts {
            // Every verdict must belong to a claim, and every claim must be in a source.
            let is_there = |text: &Value| match name {
                "claims" => list(document, "sources").iter().any(|source| list(source, "sentences").contains(text)),
                _ => list(document, "claims").contains(text),
            };
            check(name, &|text| is_there(text) && text.as_str().is_some_and(|text| due.contains(&text)));
        }
        // The board ends with its answer, so the answer must match the final verified sentences.
        if document.get("answer").is_some_and(|given| *given != answer(list(document, "verified"))) {
            wrongs.push("/answer is another one".to_owned());
        }
        wrongs
    }

    fn permanent_entries(&self, document: &Value) -> Vec<String> {
        let all = |name: &'static str| list(document, name).iter().map(move |one| format!("{name}: {one}"));
        ["sources", "claims", "verified", "refused"].into_iter().flat_map(all).collect()
    }

    fn is_done(&self, document: &Value) -> bool {
        let needed: Vec<Value> =
            claims(document).into_iter().filter(|text| text.starts_with(NEEDED)).map(Value::from).collect();
        document["answer"]["says"] == answer(&needed)["says"]
    }

    fn unauthorized_write(&self, worker: &str, document: &Value, random: &mut Random) -> Vec<Value> {
        let rival = format!("{NEEDED}Nowhere was built in {}.", 1000 + random.below(400));
        let answer = add("/answer", json!({"says": "1066", "shown_by": []}));
        let any = |random: &mut Random, all: Vec<Value>| vec![random.pick(&all).clone()];
        match worker {
            "planner" => any(
                random,
                vec![add("/claims/-", rival), answer, json!({"op": "remove", "path": "/request/documents/0"})],
            ),
            "extractor" => {
                let verified = list(document, "sources").first().and_then(|source| sentences(source).next());
                let verified = add("/verified/-", verified.unwrap_or("a river"));
                any(random, vec![verified, answer, add("/sources/-", json!({"title": "x", "sentences": [rival]}))])
            }
            "verifier" => {
                let claim = add("/claims/-", "It lies on a river.");
                any(random, vec![claim, answer, replace("/claims/0", rival)])
            }
            _ => any(
                random,
                vec![add("/verified/-", rival.clone()), add("/claims/-", rival), replace("/request/question", "?")],
            ),
        }
    }

    fn false_claim(&self, worker: &str, document: &Value, random: &mut Random) -> Option<Vec<Value>> {
        let invented = format!("{NEEDED}Nowhere was built in {}.", 1000 + random.below(400));
        let idle = |source: &'_ Value| sentences(source).next().map(str::to_owned);
        Some(match worker {
            // An irrelevant document.
            "planner" => {
                let other = given(document).iter().find(|one| claim(one).is_none())?;
                vec![add("/sources/-", other.clone())]
            }
            // Sentences that do not exist, or exist and are irrelevant.
            "extractor" if random.percent(50) => vec![add("/claims/-", invented)],
            "extractor" => vec![add("/claims/-", idle(list(document, "sources").first()?)?)],
            // The wrong verdict.
            "verifier" => match unjudged(document)? {
                claim if claim.starts_with(NEEDED) => vec![add("/refused/-", claim)],
                claim => vec![add("/verified/-", claim)],
            },
            // The wrong one of the verified years.
            _ => {
                let verified = list(document, "verified");
                let wrong = years(verified).max().filter(|last| Some(*last) != years(verified).min());
                vec![add("/answer", saying(wrong, verified))]
            }
        })
    }
}
