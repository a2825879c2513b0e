//! Department lookups beyond spelling, with an embeddings endpoint that answers as servers do.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::TcpListener;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use patchboard_agents::config::{Config, Embeddings, Environment, Model, Setting};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_llm::gate::ModelKey;
use patchboard_roles::departments::storage::Storage;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::roles::put;

const KEY: &str = "hush-key-0123456789";

/// Synonyms.
const MEANINGS: [&[&str]; 2] = [&["plantains", "bananas"], &["espresso", "coffee", "mocha"]];

/// Returns the embedding of a text: synonyms share a dimension, and each word adds a little of its own.
fn embedding(text: &str) -> Value {
    let mut numbers = vec![0.0; 256];
    for word in text.split(' ') {
        numbers[2 + word.bytes().map(usize::from).sum::<usize>() % 251] += 0.5;
        if let Some(meaning) = MEANINGS.iter().position(|words| words.contains(&word)) {
            numbers[meaning] += 1.0;
        }
    }
    json!(numbers)
}

fn texts(body: &Value) -> Vec<&str> {
    body["input"].as_array().expect("texts").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// Returns the answer to a request.
fn embedded(body: &Value) -> ScriptedResponse {
    let item =
        |(index, text): (usize, &str)| json!({"object": "embedding", "index": index, "embedding": embedding(text)});
    let data: Vec<Value> = texts(body).into_iter().enumerate().map(item).collect();
    ScriptedResponse::Say(200, "", json!({"object": "list", "data": data, "usage": {"prompt_tokens": 3}}).to_string())
}

/// Returns a configuration with an endpoint that knows these synonyms.
pub(crate) fn configured() -> (Config, Endpoint) {
    let endpoint = Endpoint::serving(embedded);
    (with(Embeddings::new(&endpoint.url, "m")), endpoint)
}

fn with(embeddings: Embeddings) -> Config {
    Config { embeddings: Some(embeddings), ..Config::default() }
}

/// Returns seats with these entries in their notes.
async fn seats(config: Config, entries: &[(&str, &str)]) -> AgentRegistry {
    let seats = AgentRegistry::new(config, &Environment::from_iter([("KEY", KEY)]), InlinePrograms::Denied);
    let seats = seats.with_storage(Storage::in_memory());
    for (list, item) in entries {
        let found = json!({"status": "found", "action": "add", "slots": {"list": list, "item": item}});
        let outcome = crate::roles::carried_out(&seats, item, &found).await;
        assert_eq!(outcome["status"], "done", "{outcome}");
    }
    seats
}

async fn resolved(seats: &AgentRegistry, item: &str) -> Value {
    let classified = json!({"action": "remove", "slots": {"item": item}, "normalised": ""});
    put(seats, "resolve", &json!({"classified": classified}), "/resolved").await
}

#[tokio::test]
async fn a_match_by_meaning_is_confirmed_by_a_yes() {
    let (mut config, endpoint) = configured();
    let embeddings = config.embeddings.as_mut().expect("they are there");
    embeddings.api_key_command = vec!["printf".to_owned(), KEY.to_owned()];
    embeddings.query.insert("api-version".to_owned(), Setting::Text("2026-01".to_owned()));
    let seats = seats(config, &[("household", "bananas"), ("office", "hammer")]).await;
    let open = resolved(&seats, "plantains").await;
    assert_eq!((&open["status"], open.get("ids")), (&json!("open"), None), "{open}");
    let asks = put(&seats, "confirm", &json!({"resolved": open}), "/result").await;
    assert_eq!((&asks["status"], asks.get("patch")), (&json!("clarification"), None));
    assert_eq!(asks["question"], "did you mean bananas (there is no item \"plantains\")?");
    let answered = async |text: &str| {
        let request = json!({"text": text, "pending": asks["pending"]});
        put(&seats, "resume", &json!({"request": request}), "/resumed").await
    };
    assert_eq!(answered("No, leave it.").await["why"], "declined");
    let resumed = answered("Yes, please.").await;
    let outcome = put(&seats, "crud", &json!({"resumed": resumed}), "/outcome").await;
    let result = put(&seats, "confirm", &json!({"resumed": resumed, "outcome": outcome}), "/result").await;
    assert_eq!(result["text"], "Took bananas off the household list.");

    let requests = endpoint.requests();
    let [(head, body)] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(head.starts_with("post /v1/embeddings?api-version=2026-01 http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")), "{head}");
    assert_eq!(*body, json!({"model": "m", "input": ["bananas", "hammer", "plantains"]}));
}

#[tokio::test]
async fn several_that_mean_the_same_are_options_and_what_means_nothing_alike_is_not_there() {
    let (config, endpoint) = configured();
    let seats = seats(config, &[("household", "coffee"), ("office", "mocha"), ("office", "hammer")]).await;
    let open = resolved(&seats, "espresso").await;
    let asks = put(&seats, "confirm", &json!({"resolved": open}), "/result").await;
    assert_eq!(asks["question"], "which item, coffee or mocha (there is no item \"espresso\")?");
    let none = resolved(&seats, "plantains").await;
    assert_eq!((&none["status"], &none["why"]), (&json!("none"), &json!("not_found")));
    // A spelling match is not embedded.
    let asked = endpoint.requests().len();
    assert_eq!(resolved(&seats, "hamer").await["status"], "found");
    assert_eq!((asked, endpoint.requests().len()), (2, 2));
}

#[tokio::test]
async fn many_texts_are_asked_for_in_parts_and_a_busy_server_again() {
    let busy = AtomicUsize::new(0);
    let endpoint = Endpoint::serving(move |body| match busy.fetch_add(1, Ordering::Relaxed) {
        0 => ScriptedResponse::Say(503, "retry-after-ms: 1\r\n", String::new()),
        _ => embedded(body),
    });
    let things: Vec<String> = (0..40).map(|number| format!("thing{number:02}")).collect();
    let mut entries: Vec<(&str, &str)> = things.iter().map(|thing| ("office", thing.as_str())).collect();
    entries.push(("household", "bananas"));
    let seats = seats(with(Embeddings::new(&endpoint.url, "m")), &entries).await;
    let open = resolved(&seats, "plantains").await;
    assert_eq!((&open["status"], &open["options"][0]["values"]), (&json!("open"), &json!({"item": "bananas"})));
    let bodies = endpoint.bodies();
    let counts: Vec<usize> = bodies.iter().map(|body| texts(body).len()).collect();
    assert_eq!(counts, [32, 32, 10]);
    assert_eq!(bodies.iter().flat_map(texts).collect::<BTreeSet<&str>>().len(), 42);
}

#[tokio::test]
async fn requests_keep_to_the_limits_and_the_outage_of_the_model_of_the_same_name_and_address() {
    let entries = [("household", "bananas"), ("office", "hammer")];
    let asking = async |change: fn(&mut Model), reason: Option<DeferralReason>| {
        let endpoint = Endpoint::serving(embedded);
        let mut model = Model::new(&endpoint.url, "m");
        change(&mut model);
        let key = ModelKey::new(&model.url, "m");
        let embeddings =
            Embeddings { timeout: "300ms".parse().expect("a time"), ..Embeddings::new(&endpoint.url, "m") };
        let models = [("other".to_owned(), model)].into();
        let seats = seats(Config { models, ..with(embeddings) }, &entries).await;
        if let Some(reason) = reason {
            seats.gate().hold(&key, reason, Duration::from_secs(3600));
        }
        let found = [resolved(&seats, "plantains").await, resolved(&seats, "plantains").await];
        (found.map(|found| found["status"] == "open"), endpoint.requests().len())
    };
    assert_eq!(asking(|_| {}, None).await, ([true, true], 2));
    assert_eq!(asking(|model| model.concurrency = NonZeroU32::new(1), None).await, ([true, true], 2), "one by one");
    assert_eq!(asking(|model| model.requests_per_minute = NonZeroU32::new(1), None).await, ([true, false], 1));
    assert_eq!(asking(|model| model.tokens_per_minute = NonZeroU32::new(8), None).await, ([true, false], 1));
    assert_eq!(asking(|_| {}, Some(DeferralReason::Overloaded)).await, ([false, false], 0));
    let elsewhere = asking(|model| (model.model, model.requests_per_minute) = ("n".into(), NonZeroU32::new(1)), None);
    assert_eq!(elsewhere.await, ([true, true], 2), "another model has limits of its own");
}

#[tokio::test]
async fn an_outage_that_embeddings_meet_is_one_of_the_gate() {
    let busy = ScriptedResponse::Say(503, "retry-after: 3600\r\n", String::new());
    let endpoint = Endpoint::new(vec![busy]);
    let embeddings = Embeddings { max_tries: 1, ..Embeddings::new(&endpoint.url, "m") };
    let seats = seats(with(embeddings), &[("household", "bananas")]).await;
    for _ in 0..2 {
        assert_eq!(resolved(&seats, "plantains").await["status"], "none");
    }
    assert_eq!(endpoint.requests().len(), 1, "the second search asks no server that is away");
    let [state] = &seats.gate().state()[..] else { panic!("one model is known") };
    assert_eq!(state.key, ModelKey::new(&endpoint.url, "m"));
    assert_eq!(state.outage.expect("it is away").reason, DeferralReason::Overloaded);
}

/// Log lines of this project.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no thread has failed").clone()
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").expect("a text takes all");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("patchboard")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut line = attributes.metadata().name().to_owned();
        attributes.record(&mut Fields(&mut line));
        self.0.lock().expect("no thread has failed").push(line);
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        let mut line = "record".to_owned();
        values.record(&mut Fields(&mut line));
        self.0.lock().expect("no thread has failed").push(line);
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Fields(&mut line));
        self.0.lock().expect("no thread has failed").push(line);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[tokio::test]
async fn failing_embeddings_leave_the_resolution_unchanged() {
    let entries = [("household", "bananas"), ("office", "hammer")];
    let without = resolved(&seats(Config::default(), &entries).await, "plantains").await;
    assert_eq!((&without["status"], &without["why"]), (&json!("none"), &json!("not_found")));
    let (config, _endpoint) = configured();
    assert_ne!(resolved(&seats(config, &entries).await, "plantains").await, without, "who can tell does");

    let of = |all: [Value; 3]| {
        ScriptedResponse::Say(200, "", json!({"data": all.map(|one| json!({"embedding": one}))}).to_string())
    };
    let say = |status: u16, body: &str| ScriptedResponse::Say(status, "", body.to_owned());
    let wrong = [
        (of([json!([1, 0]), json!([1, 0]), json!([0, 0])]), "protocol"),
        (of([json!([1, 0]), json!([1, 0]), json!([1])]), "protocol"),
        (of([json!([1, 0]), json!([1, 0]), json!([1, null])]), "protocol"),
        (of([json!([1, 0]), json!([1, 0]), json!("plantains")]), "protocol"),
        (say(200, r#"{"data": [{"embedding": [1, 0]}]}"#), "protocol"),
        (say(200, r#"{"data": [{"embedding": [NaN]}, {"embedding": [1]}, {"embedding": [1]}]}"#), "protocol"),
        (say(200, r#"{"error": "plantains are too long"}"#), "protocol"),
        (say(200, "<html>plantains</html>"), "protocol"),
        (say(400, r#"{"error": {"message": "cannot embed plantains and bananas"}}"#), "refused"),
        (say(302, "plantains"), "refused"),
        (say(429, "insufficient_quota"), "refused"),
        (say(500, "plantains"), "protocol"),
        (ScriptedResponse::BreakOff, "protocol"),
        (ScriptedResponse::Hang, "timeout"),
    ];
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut cases: Vec<(String, Option<&str>, &str, Option<Endpoint>)> = vec![
        (format!("http://{free}/v1"), None, "unreachable", None),
        (format!("http://{free}/v1"), Some("NO_KEY"), "not_configured", None),
    ];
    for (act, code) in wrong {
        let endpoint = Endpoint::new(vec![act]);
        cases.push((endpoint.url.clone(), None, code, Some(endpoint)));
    }
    for (url, key, code, endpoint) in cases {
        let embeddings = Embeddings {
            api_key_env: key.map(str::to_owned),
            timeout: "300ms".parse().expect("a time"),
            max_tries: 1,
            ..Embeddings::new(url, "m")
        };
        let seats = seats(with(embeddings), &entries).await;
        let heard = Heard::default();
        let listening = tracing::subscriber::set_default(heard.clone());
        assert_eq!(resolved(&seats, "plantains").await, without, "{code}");
        drop(listening);
        let lines = heard.lines();
        let warnings: Vec<&String> = lines.iter().filter(|line| line.starts_with("WARN")).collect();
        let [warning] = warnings.as_slice() else { panic!("{lines:?}") };
        assert!(warning.contains(&format!("code=\"{code}\"")), "{code}: {warning}");
        for line in &lines {
            assert!(!["plantains", "bananas", "hammer"].iter().any(|word| line.contains(word)), "{line}");
        }
        if let Some(endpoint) = endpoint {
            assert_eq!(endpoint.requests().len(), 1, "{code}");
        }
    }
}
