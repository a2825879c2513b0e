//! The architect, with a model that gives the test's answers.

use std::cell::RefCell;

use patchboard_agents::architect::{Design, DesignError, DesignRequest, Document, Round, RoundsUsage, design};
use patchboard_agents::config::Model;
use patchboard_agents::config::{Caps, DesignLimits};
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::view::Prompt;
use patchboard_lint::source::Source;
use patchboard_llm::{Chat, PromptRequest, Variables};
use patchboard_runtime::agent::{CallResult, Failure, Reply};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a blueprint without findings.
fn notes() -> Value {
    json!({
        "blueprint": 1,
        "name": "notes",
        "request": {"type": "object", "required": ["topic"], "properties": {
            "topic": {"type": "string"},
            "documents": {"type": "array", "items": {"type": "object"}},
        }},
        "state": {
            "schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
            "initial": {},
        },
        "workers": {"writer": {
            "agent": "llm", "role": "Write the answer.", "reads": ["/request"],
            "writes": [{"path": "/answer", "ops": ["add"]}],
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "writer"}],
        "done": {"when": "has(state.answer)"},
    })
}

/// Returns the blueprint as text, with one value changed.
fn with(pointer: &str, value: Value) -> String {
    let mut changed = notes();
    match changed.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (at, name) = pointer.rsplit_once('/').expect("a pointer");
            changed.pointer_mut(at).expect("a place")[name] = value;
        }
    }
    changed.to_string()
}

fn ok(text: impl Into<String>) -> CallResult {
    Ok(Reply::new(text, Some(Usage { prompt: 100, completion: 10, cached: 0, estimated: false, money: 0 })))
}

fn fail(code: FailureCode) -> CallResult {
    Err(Failure { code, message: "no".into(), usage: None, deferral: None })
}

/// Runs the architect on these answers; returns the result and the prompts. The last answer repeats.
async fn ask(
    brief: &DesignRequest,
    terms: &DesignLimits,
    answers: &[CallResult],
) -> (Result<Design, DesignError>, Vec<Prompt>) {
    let prompts = RefCell::new(Vec::new());
    let mut reported = 0;
    let made = design(
        brief,
        terms,
        async |prompt| {
            prompts.borrow_mut().push(prompt.clone());
            let count = prompts.borrow().len();
            answers.get(count - 1).or(answers.last()).expect("an answer").clone()
        },
        |_| reported += 1,
    )
    .await;
    let rounds = made.as_ref().map_or_else(|refusal| refusal.rounds().len(), |design| design.rounds.len());
    assert_eq!((rounds, reported), (prompts.borrow().len(), rounds), "every call is a round and is told");
    (made, prompts.into_inner())
}

fn brief() -> DesignRequest {
    DesignRequest { request: "Say something about\nowls.".into(), ..DesignRequest::default() }
}

fn codes(rounds: &[Round]) -> Vec<Vec<&str>> {
    rounds.iter().map(|round| round.findings.iter().map(|finding| finding.code).collect()).collect()
}

#[tokio::test]
async fn a_good_answer_is_taken_at_once_and_written_for_people() {
    let fenced = format!("Here it is:\n```json\n{}\n```\nDone.", notes());
    let yaml = patchboard_llm::key_order::OrderedJson::new(&notes(), &[]).yaml();
    for text in [notes().to_string(), fenced, yaml] {
        let (made, prompts) = ask(&brief(), &DesignLimits::default(), &[ok(text)]).await;
        let design = made.expect("a blueprint");
        assert_eq!(prompts.len(), 1);
        assert!(prompts[0].user.contains("owls"), "{}", prompts[0].user);
        assert!(
            design
                .yaml
                .starts_with("# Made by the architect, for: Say something about owls.\nblueprint: 1\nname: notes\n")
        );
        let read = Source::read("b", &design.yaml).expect("YAML");
        assert_eq!(read.value()["workers"], notes()["workers"]);
        // Absent values have the defaults of SPEC section 12, spelled out.
        assert_eq!(
            (&read.value()["limits"]["tokens"], &read.value()["limits"]["wall"]),
            (&json!(1_000_000), &json!("1h"))
        );
        assert_eq!(design.findings, []);
        let spent = RoundsUsage::from_rounds(&design.rounds);
        assert_eq!((spent.calls, spent.usage.total(), spent.repairs.total()), (1, 110, 0));
    }
}

#[tokio::test]
async fn findings_go_back_to_the_architect_and_the_repaired_answer_is_accepted() {
    let bad = with("/rules/0/run", json!("writter"));
    let (made, prompts) = ask(&brief(), &DesignLimits::default(), &[ok(bad.clone()), ok(notes().to_string())]).await;
    let design = made.expect("a blueprint");
    assert_eq!(prompts[0].system, prompts[1].system, "the part that is cached stays the same");
    let prompt = &prompts[1].user;
    for part in [bad.as_str(), "[undeclared_worker]", "Did you mean `writer`?"] {
        assert!(prompt.contains(part), "{part:?} is not in:\n{prompt}");
    }
    let spent = RoundsUsage::from_rounds(&design.rounds);
    assert_eq!((spent.calls, spent.usage.total(), spent.repairs.total()), (2, 220, 110));
}

#[tokio::test]
async fn an_unrepaired_blueprint_is_rejected_with_its_findings_and_last_draft() {
    for repairs in [0, 2, 3] {
        let bad = with("/rules/0/run", json!("writter"));
        let terms = DesignLimits { repairs, ..DesignLimits::default() };
        let (made, prompts) = ask(&brief(), &terms, &[ok(bad.clone())]).await;
        let refusal = made.expect_err("refused");
        assert_eq!(refusal.code(), "no_blueprint");
        assert_eq!(prompts.len(), 1 + repairs as usize);
        let last = refusal.rounds().last().expect("a round");
        assert_eq!((last.draft.as_str(), last.findings[0].code), (bad.as_str(), "undeclared_worker"));
    }
}

#[tokio::test]
async fn warnings_are_reported_once_and_cost_nothing_if_they_are_not_heeded() {
    let warned = with("/done/when", json!("false"));
    let broken = with("/rules/0/run", json!("writter"));
    for (answers, calls, done) in [
        (vec![ok(warned.clone()), ok(notes().to_string())], 2, "has(state.answer)"),
        (vec![ok(warned.clone()), ok(warned.clone())], 2, "false"),
        (vec![ok(warned.clone()), ok(broken)], 2, "false"),
        (vec![ok(warned.clone()), fail(FailureCode::Unreachable)], 2, "false"),
    ] {
        let (made, prompts) = ask(&brief(), &DesignLimits::default(), &answers).await;
        let design = made.expect("a blueprint");
        assert_eq!((prompts.len(), design.blueprint.done.expect("an end").when.as_str()), (calls, done));
        assert!(prompts[1].user.contains("It can be used."), "{}", prompts[1].user);
    }
    let terms = DesignLimits { repairs: 0, ..DesignLimits::default() };
    let (made, _) = ask(&brief(), &terms, &[ok(warned)]).await;
    assert_eq!(made.expect("a blueprint").findings.len(), 1);
}

#[tokio::test]
async fn an_architect_may_use_models_persons_and_nothing_else_of_the_machine() {
    for (pointer, value) in [
        ("/workers/writer/agent", json!("command")),
        ("/workers/writer/agent", json!("script")),
        ("/workers/writer/agent", json!("remote")),
        ("/workers/writer/agent", json!("board")),
        ("/workers/writer/program", json!(["rm", "-rf", "/"])),
        ("/workers/writer/command", json!("x")),
        ("/workers/writer/restart", json!("fresh")),
        ("/workers/writer/script", json!([])),
        ("/workers/writer/model", json!("dear")),
        ("/models", json!({"dear": "gpt"})),
        ("/models", json!({"default": "gpt"})),
        ("/models", json!({"crowd": ["gpt", "other"]})),
        ("/models", json!({"default": ["default"]})),
        ("/use", json!(["/etc/passwd"])),
    ] {
        let terms = DesignLimits { repairs: 0, ..DesignLimits::default() };
        let (made, _) = ask(&brief(), &terms, &[ok(with(pointer, value.clone()))]).await;
        let refusal = made.expect_err("refused");
        assert!(codes(refusal.rounds())[0].contains(&"not_for_architects"), "{pointer} {value}: {refusal:?}");
    }
    let person = with("/workers/boss", json!({"agent": "human", "role": "Agrees."}));
    let mut person: Value = serde_json::from_str(&person).expect("JSON");
    person["workers"]["writer"]["writes"][0]["approval"] = json!({"by": "boss"});
    let (made, _) = ask(&brief(), &DesignLimits::default(), &[ok(person.to_string())]).await;
    assert!(made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn a_worker_of_each_element_is_bound_to_it() {
    let each = |trigger: Value, element: &str| {
        let mut blueprint = notes();
        blueprint["blueprint"] = json!(2);
        let note =
            json!({"type": "object", "properties": {"text": {"type": "string"}, "is_right": {"type": "boolean"}}});
        blueprint["state"]["schema"]["properties"]["notes"] = json!({"type": "array", "items": note});
        blueprint["state"]["initial"] = json!({"notes": []});
        blueprint["workers"]["writer"]["writes"] =
            json!([{"path": "/notes/-", "ops": ["add"]}, {"path": "/answer", "ops": ["add"]}]);
        blueprint["workers"]["checker"] = json!({"agent": "llm", "role": "Check it.", "reads": [element],
            "writes": [{"path": format!("{element}/is_right"), "ops": ["add"]}]});
        blueprint["rules"] = json!([{"name": "begin", "trigger": "start", "run": "writer"},
            {"name": "check", "trigger": trigger, "run": "checker"}]);
        blueprint.to_string()
    };
    let bound = json!({"op": "add", "path": "/notes/{note}"});
    for (trigger, wanted) in [
        (json!({"op": "add", "path": "/notes/*"}), "/notes/{element}"),
        (json!({"op": "add", "path": "/notes/**"}), "/notes/{element}"),
        (json!({"op": "add", "path": "/notes/*/text"}), "/notes/{element}"),
        (json!({"op": "add", "path": "/notes/{note}/text"}), "/notes/{note}"),
        (bound.clone(), "/notes/{note}"),
    ] {
        let answers = [ok(each(trigger.clone(), "/notes/*")), ok(each(bound.clone(), "/notes/{note}"))];
        let (design, prompts) = ask(&brief(), &DesignLimits::default(), &answers).await;
        let design = design.expect("a design");
        let rounds = codes(&design.rounds);
        assert!(rounds[0].contains(&"unbound_element") && rounds[1].is_empty(), "{trigger}: {rounds:?}");
        let prompt = &prompts[1].user;
        assert!(prompt.contains("`checker` is woken for one of `/notes`") && prompt.contains(wanted), "{prompt}");
    }
}

#[tokio::test]
async fn a_grant_on_everything_is_not_for_architects() {
    let wide = with("/workers/writer/writes/0/path", json!("/**"));
    let (design, _) = ask(&brief(), &DesignLimits::default(), &[ok(wide), ok(notes().to_string())]).await;
    assert_eq!(codes(&design.expect("a design").rounds), [vec!["wide_grant"], vec![]]);
}

#[tokio::test]
async fn a_blueprint_without_a_start_is_rejected() {
    let terms = DesignLimits { repairs: 0, ..DesignLimits::default() };
    for (trigger, found) in [
        (json!({"op": "add", "path": "/answer"}), vec!["no_start"]),
        (json!({"signal": "go"}), vec!["no_start"]),
        (json!("manual"), vec!["not_for_architects", "no_start"]),
    ] {
        let (made, _) = ask(&brief(), &terms, &[ok(with("/rules/0/trigger", trigger.clone()))]).await;
        assert_eq!(codes(made.expect_err("refused").rounds()), [found], "{trigger}");
    }
    let both = json!([
        {"name": "begin", "trigger": "start", "run": "writer"},
        {"name": "again", "trigger": "manual", "run": "writer"},
    ]);
    let (made, _) = ask(&brief(), &terms, &[ok(with("/rules", both))]).await;
    assert_eq!(codes(made.expect_err("refused").rounds()), [["not_for_architects"]]);
    let (made, _) = ask(&brief(), &terms, &[ok(with("/rules", json!([])))]).await;
    assert_eq!(codes(made.expect_err("refused").rounds()), [["no_rules"]]);
}

#[tokio::test]
async fn limits_are_finite_and_within_the_caps() {
    let caps = Caps { commits: 50, tokens: 9000, wall: "5m".parse().expect("a time"), ..Caps::default() };
    let terms = DesignLimits { repairs: 0, caps };
    for unlimited in [json!(0), json!(-1), json!("unlimited"), Value::Null] {
        let (made, _) = ask(&brief(), &terms, &[ok(with("/limits", json!({"tokens": unlimited})))]).await;
        assert_eq!(codes(made.expect_err("refused").rounds()), [["infinite_budget"]], "{unlimited}");
    }
    let infinite = notes().to_string().replacen('{', "{\"limits\": {\"tokens\": .inf}, ", 1);
    let (made, _) = ask(&brief(), &terms, &[ok(infinite)]).await;
    assert!(made.is_err());

    let dear = json!({"commits": 1_000_000, "tokens": 5000, "wall": "2d", "state_bytes": 1_000_000_000});
    let mut dear: Value = serde_json::from_str(&with("/limits", dear)).expect("JSON");
    dear["concurrency"] = json!(256);
    dear["workers"]["writer"]["limits"] = json!({"timeout": "1d", "tokens": 1_000_000, "reply_tokens": 900_000});
    let (made, prompts) = ask(&brief(), &terms, &[ok(dear.to_string())]).await;
    let design = made.expect("a blueprint");
    let limits = &design.blueprint.limits;
    assert_eq!((limits.commits, limits.tokens, limits.wall.to_string().as_str()), (50, 5000, "5m"));
    assert_eq!((limits.state_bytes, design.blueprint.concurrency), (64 * 1024 * 1024, 4));
    let worker = &design.blueprint.workers["writer"].limits;
    assert_eq!((worker.timeout.to_string().as_str(), worker.tokens, worker.reply_tokens), ("5m", Some(5000), 5000));
    assert_eq!(codes(&design.rounds), [vec!["capped"; 7]]);
    assert_eq!(prompts.len(), 1);

    let (made, _) = ask(&brief(), &terms, &[ok(notes().to_string())]).await;
    let limits = made.expect("a blueprint").blueprint.limits;
    assert_eq!((limits.commits, limits.tokens, limits.wall.to_string().as_str()), (50, 9000, "5m"));
}

#[tokio::test]
async fn capped_limits_are_lowered_and_their_findings_name_the_cause() {
    let mut tight: Value = serde_json::from_str(&with("/limits", json!({"tokens": 500, "wall": "2d"}))).expect("JSON");
    tight["workers"]["boss"] = json!({"agent": "human", "role": "Agrees."});
    tight["workers"]["writer"]["writes"][0]["approval"] = json!({"by": "boss"});
    let caps = Caps { wall: "30s".parse().expect("a time"), ..Caps::default() };
    let (made, _) = ask(&brief(), &DesignLimits { repairs: 0, caps }, &[ok(tight.to_string())]).await;
    let design = made.expect("a blueprint");
    let written = Source::read("b", &design.yaml).expect("YAML");
    // The worker had no limits in its own blueprint.
    assert_eq!(written.value()["workers"]["writer"]["limits"], json!({"reply_tokens": 500, "timeout": "30s"}));
    assert_eq!(written.value()["workers"]["boss"].get("limits"), None);
    let capped: Vec<(&str, bool)> = design
        .findings
        .iter()
        .filter(|finding| finding.code == "capped")
        .map(|finding| (finding.pointer.as_str(), finding.message.contains("operator")))
        .collect();
    let (tokens, timeout) = ("/workers/writer/limits/reply_tokens", "/workers/writer/limits/timeout");
    assert_eq!(capped, [("/limits/wall", true), (tokens, false), (timeout, true)]);
}

#[tokio::test]
async fn documents_are_put_in_by_the_program_and_must_have_room_and_a_reader() {
    let documents = vec![Document { title: "Owls".into(), text: "They see in the dark. ".repeat(50) }];
    let brief = DesignRequest { documents, wants_input: true, ..brief() };
    let with_input = |pointer: &str, value: Value, input: Value| {
        let mut blueprint: Value = serde_json::from_str(&with(pointer, value)).expect("JSON");
        blueprint["input"] = input;
        ok(blueprint.to_string())
    };
    let good = || with_input("/name", json!("notes"), json!({"topic": "owls"}));
    let (made, prompts) = ask(&brief, &DesignLimits::default(), &[good()]).await;
    let input = made.expect("a blueprint").input.expect("an input");
    assert_eq!((&input["topic"], &input["documents"]), (&json!("owls"), &json!(brief.documents)));
    let user = &prompts[0].user;
    assert!(user.contains("- Owls (1100 characters): They see") && !user.contains(&brief.documents[0].text), "{user}");

    let list = json!({"type": "object", "properties": {"documents": {"type": "array", "items": {"type": "string"}}}});
    for (answer, code) in [
        (with_input("/name", json!("n"), json!({"topic": 3})), "bad_input"),
        (with_input("/name", json!("n"), json!("owls")), "bad_input"),
        (with_input("/name", json!("n"), Value::Null), "bad_input"),
        (with_input("/request", list, json!({})), "bad_input"),
        (with_input("/workers/writer/reads", json!(["/request/topic"]), json!({"topic": "x"})), "documents_unread"),
        (ok(notes().to_string()), "bad_input"),
    ] {
        let (made, _) =
            ask(&brief, &DesignLimits { repairs: 0, ..DesignLimits::default() }, std::slice::from_ref(&answer)).await;
        assert_eq!(codes(made.expect_err("refused").rounds())[0], [code], "{answer:?}");
    }
}

#[tokio::test]
async fn documents_need_room_in_the_request_even_if_the_rest_of_it_is_not_known_yet() {
    let documents = vec![Document { title: "Owls".into(), text: "They sleep by day.".into() }];
    let brief = DesignRequest { documents, ..brief() };
    let topic = json!({"type": "string"});
    let closed = |properties: Value| {
        let schema = json!({
            "type": "object", "required": ["topic"], "additionalProperties": false, "properties": properties,
        });
        with("/request", schema)
    };
    for (answer, found) in [
        (closed(json!({"topic": topic})), vec!["bad_input"]),
        (closed(json!({"topic": topic, "documents": {"type": "string"}})), vec!["bad_input"]),
        (closed(json!({"topic": topic, "documents": {"type": "array"}})), vec![]),
        (with("/request", json!({"type": "object", "maxProperties": 0})), vec!["bad_input"]),
        (with("/request", json!({"type": "string"})), vec!["bad_input"]),
        (notes().to_string(), vec![]),
    ] {
        let (made, _) =
            ask(&brief, &DesignLimits { repairs: 0, ..DesignLimits::default() }, &[ok(answer.clone())]).await;
        let found_here = made.map_or_else(|refusal| codes(refusal.rounds())[0].join(" "), |_| String::new());
        assert_eq!(found_here, found.join(" "), "{answer}");
    }
}

#[tokio::test]
async fn user_input_is_shown_in_the_prompt_and_must_fit_the_request_schema() {
    let asks_for_number = with("/request/properties/topic", json!({"type": "number"}));
    let brief =
        DesignRequest { input: Some(json!({"topic": "owls ".repeat(100_000), "list": [1, 2, 3, 4, 5]})), ..brief() };
    let (made, prompts) = ask(&brief, &DesignLimits::default(), &[ok(asks_for_number), ok(notes().to_string())]).await;
    let design = made.expect("a blueprint");
    assert_eq!(codes(&design.rounds), [vec!["bad_input"], vec![]]);
    assert_eq!(design.input, brief.input);
    let user = &prompts[0].user;
    assert!(user.contains("{\"list\":[1,2,3,\"[2 more]\"],\"topic\":\"owls owls"), "{user}");
    assert!(user.chars().count() < 3000 && !user.contains("one more member, input"), "{user}");
    assert!(prompts[1].user.contains("/request/topic [bad_input]: what the user supplies:"), "{}", prompts[1].user);

    // An `input` that the model adds without a request for it changes nothing.
    let documents = vec![Document { title: "Owls".into(), text: "They sleep.".into() }];
    let brief = DesignRequest { input: Some(json!({"topic": "owls"})), documents, wants_input: true, ..brief };
    let mut answer = notes();
    answer["input"] = json!({"topic": 3});
    let (made, _) = ask(&brief, &DesignLimits::default(), &[ok(answer.to_string())]).await;
    let given = json!({"topic": "owls", "documents": brief.documents});
    assert_eq!(made.expect("a blueprint").input, Some(given));
    let brief = DesignRequest { input: Some(json!("owls")), ..brief };
    let (made, _) =
        ask(&brief, &DesignLimits { repairs: 0, ..DesignLimits::default() }, &[ok(answer.to_string())]).await;
    assert_eq!(codes(made.expect_err("refused").rounds()), [["bad_input"]]);
}

#[tokio::test]
async fn garbage_huge_deep_and_cut_off_answers_are_findings() {
    let deep = "[".repeat(100_000);
    let bomb = "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b]\nd: \
                &d [*c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e]";
    let whole = notes().to_string();
    for text in [
        "",
        "owls",
        "null",
        "[]",
        "{}",
        "```",
        "``````",
        "```\n```",
        "\u{0}\u{1}",
        &deep,
        bomb,
        &"x".repeat(1_000_000),
        &"ä".repeat(100_000),
        &whole[..whole.len() / 2],
        "{\"input\": {}}",
        "input: {}",
        "{\"workers\": {\"w\": []}, \"rules\": {}, \"models\": [], \"use\": 3}",
        "{\"blueprint\": 1, \"name\": \"a\", \"state\": {\"schema\": {\"pattern\": \"(a+)+$\"}}, \"workers\": {\"a\": {\"agent\": {}}}}",
    ] {
        let (made, prompts) = ask(&brief(), &DesignLimits { repairs: 1, ..DesignLimits::default() }, &[ok(text)]).await;
        let refusal = made.expect_err("refused");
        assert_eq!((refusal.code(), prompts.len()), ("no_blueprint", 2));
        let round = &refusal.rounds()[0];
        assert!(!round.findings.is_empty() && !round.is_accepted());
        assert!(round.draft.len() <= 64 * 1024 && prompts[1].user.chars().count() < 14_000);
    }
    let (made, prompts) = ask(&brief(), &DesignLimits::default(), &[fail(FailureCode::Truncated), ok(whole)]).await;
    assert!(made.is_ok());
    assert!(prompts[1].user.contains("[no_answer]"), "{}", prompts[1].user);
}

#[tokio::test]
async fn a_model_that_cannot_be_asked_ends_it_at_once() {
    for code in [FailureCode::Unreachable, FailureCode::Timeout, FailureCode::Refused, FailureCode::RateLimited] {
        let bad = with("/rules/0/run", json!("writter"));
        let (made, prompts) = ask(&brief(), &DesignLimits::default(), &[ok(bad), fail(code)]).await;
        let refusal = made.expect_err("failed");
        assert_eq!((refusal.code(), prompts.len()), ("architect_failed", 2));
        let round = refusal.last_round_with_draft().expect("a round");
        assert_eq!(
            (round.draft.is_empty(), round.findings[0].code),
            (false, "undeclared_worker"),
            "what was paid is shown"
        );
    }
}

#[tokio::test]
async fn a_chat_completes_under_the_schema_and_does_without_it_where_it_is_refused() {
    let refusal =
        || ScriptedResponse::Say(400, "", r#"{"error": {"message": "response_format is not supported"}}"#.into());
    let answer = ScriptedResponse::complete("{}", "stop", json!({"prompt_tokens": 7}));
    let endpoint = Endpoint::new(vec![refusal(), refusal(), refusal(), answer]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let prompt = Prompt { system: "s".into(), user: "u".into() };
    let schema = json!({"type": "object", "properties": {"b": {"type": "string"}}});
    let timeout = std::time::Duration::from_secs(10);
    let asked = PromptRequest {
        caller: "architect",
        prompt: &prompt,
        schema: &schema,
        order: &[],
        reply_tokens: 55,
        timeout,
        wait_for_provider: false,
    };
    for _ in 0..2 {
        assert_eq!(chat.complete(&asked).await.expect("a reply").text, "{}");
    }
    let sent: Vec<Value> = endpoint.requests().into_iter().map(|(_, body)| body).collect();
    let schemas: Vec<&Value> = sent.iter().map(|body| &body["response_format"]["json_schema"]["schema"]).collect();
    let closed = json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false});
    assert_eq!(schemas, [&schema, &closed, &json!({"type": "object"}), &Value::Null, &Value::Null]);
    assert_eq!(sent[0]["max_tokens"], 55);

    // With `waits`, requests go beyond `max_tries`.
    let away = || ScriptedResponse::Say(503, "retry-after: 0\r\n", "away".into());
    for waits in [false, true] {
        let acts = std::iter::repeat_with(away).take(5).chain([ScriptedResponse::complete("{}", "stop", Value::Null)]);
        let endpoint = Endpoint::new(acts.collect());
        let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
        let answer = chat.complete(&PromptRequest { wait_for_provider: waits, ..asked }).await;
        assert_eq!((answer.is_ok(), endpoint.requests().len()), (waits, if waits { 6 } else { 3 }));
    }

    let endpoint = Endpoint::new(vec![ScriptedResponse::Hang]);
    let chat = Chat::new(&Model::new(endpoint.url.clone(), "m"), &Variables::new()).expect("a client");
    let timeout = std::time::Duration::from_millis(200);
    let failure = chat.complete(&PromptRequest { timeout, ..asked }).await.expect_err("no answer");
    let charged = Usage { prompt: 1, completion: 55, cached: 0, estimated: true, money: 0 };
    assert_eq!((failure.code, failure.usage), (FailureCode::Timeout, Some(charged)));
}

/// Generates texts that look more or less like a blueprint.
fn text() -> impl Strategy<Value = String> {
    let cut = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), ".{0,8}").prop_map(|(at, to, put)| {
        let whole = notes().to_string();
        let (at, to) = (at.index(whole.len()), to.index(whole.len()));
        format!("{}{put}{}", &whole[..at.min(to)], &whole[at.max(to)..])
    });
    prop_oneof![any::<String>(), cut, "[\\[\\]{}:,\"a-z&*!|>\n -]{0,60}", Just(notes().to_string())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_architect_asks_a_model_a_bounded_number_of_times(
        texts in prop::collection::vec(text(), 1..5),
        repairs in 0..6_u32,
        wants_input: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let answers: Vec<CallResult> = texts.into_iter().map(ok).collect();
        let brief = DesignRequest { wants_input, ..brief() };
        let (made, prompts) = runtime.block_on(ask(&brief, &DesignLimits { repairs, ..DesignLimits::default() }, &answers));
        prop_assert!(!prompts.is_empty() && prompts.len() <= 1 + repairs as usize);
        if let Ok(design) = made {
            prop_assert!(design.blueprint.limits.tokens <= Caps::default().tokens);
        }
    }
}
