//! The shipped blackboard, run from scripts in the roles' own wording: rounds, rooms, the cleaner, the vote, and agents
//! added as files.

use patchboard_lint::source::Source;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

const TEXT: &str = include_str!("../../../blueprints/blackboard.yaml");

const PASSES: [(&str, &str); 5] = [
    ("planner", "there is no need to decompose tasks, waiting for more information"),
    ("critic", "no problem, waiting for more information"),
    ("cleaner", "no useless messages, waiting for more information"),
    ("conflict_resolver", "no conflicts, waiting for more information"),
    ("decider", "continue, waiting for more information"),
];

/// A role and its replies, in order.
type Says<'s> = (&'s str, &'s [&'s str]);

/// Returns the blueprint with script agents in place of its models. Roles without replies here pass.
fn scripted(text: &str, says: &[Says<'_>]) -> Value {
    let source = Source::read("blackboard.yaml", text).expect("it can be read");
    let mut blueprint = source.value().clone();
    for (name, worker) in blueprint["workers"].as_object_mut().expect("workers") {
        if worker["agent"] != "llm" {
            continue;
        }
        let own = says.iter().find(|(agent, _)| agent == name).map(|(_, words)| words.to_vec());
        let pass = PASSES.iter().find(|(agent, _)| agent == name).map(|(_, words)| vec![*words]);
        let words = own.or(pass).unwrap_or_else(|| match name.as_str() {
            "generator" => vec!["Answer: {\"Counter\": \"Counts what there is.\", \"Doubter\": \"Doubts it.\"}"],
            _ => vec!["waiting for more information"],
        });
        worker["agent"] = json!("script");
        worker["script"] = words.iter().map(|words| json!({"text": words})).collect();
    }
    blueprint
}

/// A board after its run.
struct Board {
    sandbox: Sandbox,
    result: Value,
    log: Vec<Value>,
}

impl Board {
    fn played(request: &Value, says: &[Says<'_>], exit: i32) -> Self {
        Self::of(&scripted(TEXT, says), request, exit)
    }

    fn of(blueprint: &Value, request: &Value, exit: i32) -> Self {
        let sandbox = Sandbox::new();
        sandbox.write("blackboard.json", blueprint.to_string());
        let mut request = request.clone();
        request["question"] = json!("How many are there?");
        let request = request.to_string();
        let arguments = ["run", "blackboard.json", "--request", &request, "--output", "json"];
        let result = sandbox.run(&arguments).expect_exit(exit).json();
        let log = sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines();
        sandbox.run(&["replay", "last"]).expect_exit(0);
        sandbox.run(&["verify", "last"]).expect_exit(0);
        Self { sandbox, result, log }
    }

    fn state(&self) -> &Value {
        &self.result["state"]
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.log.iter().filter(move |record| record["kind"] == kind)
    }

    /// Returns the workers that these rules triggered, in order.
    fn called(&self, rules: &[&str]) -> Vec<&str> {
        let scheduled: Vec<&Value> =
            self.of_kind("scheduled").filter(|record| rules.iter().any(|rule| record["rule"] == *rule)).collect();
        let is_of = |record: &&Value| scheduled.iter().any(|one| one["invocation"] == record["invocation"]);
        self.of_kind("invoked").filter(is_of).map(|record| record["worker"].as_str().expect("a name")).collect()
    }

    /// Returns the workers that were called, each with its view.
    fn views(&self) -> Vec<(String, String)> {
        let shown = |record: &Value| {
            let (worker, version) = (record["worker"].as_str().expect("a name"), record["base"].to_string());
            let view = self.sandbox.run(&["view", "last", worker, "--at", &version]).expect_exit(0).stdout;
            (worker.to_owned(), view)
        };
        self.of_kind("invoked").map(shown).collect()
    }

    fn texts(&self) -> Vec<&str> {
        let public = self.state()["board"]["public"].as_array().expect("messages");
        public.iter().map(|message| message["text"].as_str().expect("a text")).collect()
    }
}

#[test]
fn an_easy_question_takes_one_round_and_its_decider_ends_it() {
    let board = Board::played(
        &json!({}),
        &[
            ("control", &["{\"chosen agents\": [\"Decider\", \"expert_3\", \"expert_1\"]}"]),
            ("expert_1", &["{\"output\": \"Three and four are seven.\"}"]),
            ("decider", &["{\"output\": \"It says so: the final answer is boxed[7]\"}"]),
        ],
        0,
    );
    assert_eq!(board.state()["answer"], json!({"text": "7", "by": "decider"}));
    assert_eq!(board.called(&["turn"]), ["expert_1", "decider"]);
    // The decider must read the others, so it is called after them; there is no third expert.
    assert_eq!(board.state()["rounds"], json!([{"agents": ["expert_1", "decider"]}]));
    let experts = json!({"expert_1": {"role": "Counter", "description": "Counts what there is."},
        "expert_2": {"role": "Doubter", "description": "Doubts it."}});
    assert_eq!(board.state()["experts"], experts);
    // Later workers of a round see earlier messages. Experts do not see each other's expertise.
    let views = board.views();
    let of =
        |name: &str| views.iter().find(|(worker, _)| worker == name).map(|(_, view)| view.as_str()).expect("a call");
    assert!(of("decider").contains("Three and four are seven.") && !of("expert_1").contains("are seven"));
    assert!(of("expert_1").contains("Counter") && !of("expert_1").contains("Doubter"), "{}", of("expert_1"));
    assert!(of("control").contains("Counter") && of("control").contains("planner: makes a plan"), "{}", of("control"));
    // The reply schema for a model in this seat lists every present agent.
    let record = board.of_kind("invoked").find(|record| record["worker"] == "control").expect("it was called");
    let at = record["base"].to_string();
    let form = board.sandbox.run(&["view", "last", "control", "--at", &at, "--schema"]).expect_exit(0).json();
    let form = jsonschema::validator_for(&form).expect("a schema");
    let choice = |names: &[&str]| json!({"chosen agents": names});
    assert!(form.is_valid(&choice(&["expert_1", "decider"])) && form.is_valid(&choice(&["cleaner", "expert_2"])));
    assert!(!form.is_valid(&choice(&["expert_3"])) && !form.is_valid(&choice(&["control"])));
}

#[test]
fn a_crowd_of_sixty_is_reported_by_name_to_who_chooses() {
    let mut blueprint = scripted(TEXT, &[("control", &["{\"chosen agents\": [\"expert_1\", \"helper_50\"]}"])]);
    for number in 1..=50 {
        let mut helper = blueprint["workers"]["expert_1"].clone();
        helper["description"] =
            format!("knows all there is to know of the {number}th field of knowledge and of its neighbours").into();
        for write in helper["writes"].as_array_mut().expect("a list") {
            write["value"]["properties"]["from"]["const"] = format!("helper_{number}").into();
        }
        helper["script"] = json!([{"text": format!("{{\"output\": \"It is {number}.\"}}")}]);
        blueprint["workers"][format!("helper_{number}")] = helper;
    }
    let board = Board::of(&blueprint, &json!({"rounds": 1}), 0);
    assert_eq!(board.called(&["turn"]), ["expert_1", "helper_50"]);
    assert!(board.texts().contains(&"It is 50."), "{:?}", board.texts());
    let view = board.sandbox.run(&["view", "last", "control", "--at", "2"]).expect_exit(0).stdout;
    assert!((1..=50).all(|number| view.contains(&format!("helper_{number}: knows all there"))), "{view}");
    let form = board.sandbox.run(&["view", "last", "control", "--at", "2", "--schema"]).expect_exit(0).json();
    let names = form["properties"]["chosen agents"]["items"]["enum"].as_array().expect("a list").len();
    assert_eq!(names, 50 + 7, "the helpers, five with constant roles, and the two experts who were made");
}

#[test]
fn after_four_rounds_everybody_answers_and_the_vote_chooses() {
    let choice = "{\"chosen agents\": [\"planner\", \"critic\", \"cleaner\", \"decider\", \"expert_3\"]}";
    let board = Board::played(
        &json!({}),
        &[
            ("control", &[choice]),
            ("expert_1", &["The answer is boxed[7.0]"]),
            ("expert_2", &["{\"output\": \"8\"}"]),
            ("critic", &["no problem, waiting for more information", "no problem", "no problem", "no problem", "7"]),
        ],
        0,
    );
    let answer = &board.state()["answer"];
    let vote = |from: &str, text: &str, score: u8| json!({"from": from, "text": text, "score": score});
    let votes = [vote("expert_1", "7.0", 1), vote("expert_2", "8", 0), vote("critic", "7", 1)];
    assert_eq!(*answer, json!({"text": "7.0", "by": "vote", "votes": votes}));
    let round = ["planner", "critic", "cleaner", "decider"];
    assert_eq!(board.called(&["turn"]), [round; 4].concat(), "an expert that nobody has made is not called");
    assert_eq!(
        board.called(&["asked"]),
        ["planner", "expert_1", "expert_2", "critic", "conflict_resolver", "cleaner", "decider"]
    );
    // Twenty replies were passes, including the ballot's, and no circuit breaker changed state.
    let passes = board.of_kind("no_op").filter(|record| record["pass"].is_string()).count();
    assert_eq!((passes, board.of_kind("breaker").count()), (20, 0));
}

#[test]
fn contradicting_experts_talk_in_a_room_hidden_from_others() {
    let conflict = "{\"conflict list\": [{\"agent\": \"expert_1\", \"message\": \"It is 7.\"}, \
        {\"agent\": \"Expert 2\", \"message\": \"It is 8.\"}]}";
    let board = Board::played(
        &json!({"rounds": 2}),
        &[
            (
                "control",
                &[
                    "{\"chosen agents\": [\"expert_1\", \"expert_2\", \"conflict_resolver\", \"critic\"]}",
                    "{\"chosen agents\": [\"planner\", \"expert_2\", \"decider\"]}",
                ],
            ),
            ("conflict_resolver", &[conflict]),
            (
                "expert_1",
                &["It is 7.", "<W1> I have counted.", "<W2> You left one out.", "{\"output\": \"It is 7 indeed.\"}"],
            ),
            ("expert_2", &["It is 8.", "<W3> So have I.", "<W4> Then I was wrong.", "I agree with 7.", "It stays 7."]),
            ("decider", &["the final answer is boxed[7]"]),
        ],
        0,
    );
    let rooms = board.state()["board"]["rooms"].as_object().expect("rooms");
    let (name, room) = rooms.iter().next().expect("a room");
    assert_eq!((rooms.len(), &room["members"]), (1, &json!(["expert_1", "expert_2"])));
    let said: Vec<&str> =
        room["messages"].as_array().into_iter().flatten().filter_map(|said| said["text"].as_str()).collect();
    let expected = ["<W1> I have counted.", "<W3> So have I.", "<W2> You left one out.", "<W4> Then I was wrong."];
    assert_eq!(said, expected);
    assert_eq!(board.texts(), ["It is 7.", "It is 8.", "It is 7 indeed.", "I agree with 7.", "It stays 7."]);
    let statements = board.state()["board"]["public"].as_array().into_iter().flatten();
    let concluded: Vec<&Value> =
        statements.filter(|message| message["kind"] == "statement").map(|message| &message["from"]).collect();
    assert_eq!(concluded, ["expert_1", "expert_2"], "each of them tells the others");
    // The critic is called in the same round, the planner after the discussion: both see the conclusions only.
    let mut insiders = 0;
    for (worker, view) in board.views() {
        let is_member = matches!(worker.as_str(), "expert_1" | "expert_2");
        insiders += usize::from(is_member && view.contains("<W"));
        assert!(is_member || (!view.contains("<W") && !view.contains(name)), "{worker} is told of it: {view}");
        assert!(worker != "planner" || view.contains("It is 7 indeed."), "{view}");
    }
    assert!(insiders > 3);
    // A value that is hidden now is hidden at every earlier version, too.
    for version in 0..board.result["version"].as_u64().expect("a version") {
        let view = board
            .sandbox
            .run(&["view", "last", "conflict_resolver", "--at", &version.to_string()])
            .expect_exit(0)
            .stdout;
        assert!(!view.contains("<W") && !view.contains(name), "who opened it is no member: {view}");
    }
}

#[test]
fn a_cleaner_removes_marks_or_is_not_there() {
    let clean = "{\"clean list\": [{\"useless message\": \"Hello!\", \"explanation\": \"It says nothing.\"}]}";
    let says: &[Says<'_>] = &[
        ("control", &["{\"chosen agents\": [\"expert_1\", \"cleaner\", \"expert_2\", \"decider\"]}"]),
        ("expert_1", &["Hello!"]),
        ("expert_2", &["It is 7."]),
        ("cleaner", &[clean]),
        ("decider", &["the final answer is boxed[7]"]),
    ];
    let board = Board::played(&json!({}), says, 0);
    assert_eq!(board.texts(), ["It is 7."]);
    let views = board.views();
    let of = |views: &[(String, String)], name: &str| {
        views.iter().find(|(worker, _)| worker == name).map(|(_, view)| view.clone()).expect("a call")
    };
    assert!(of(&views, "cleaner").contains("Hello!") && !of(&views, "expert_2").contains("Hello!"));
    let written = board.of_kind("committed").find(|record| record["by"]["worker"] == "expert_1").expect("a commit");
    assert_eq!(written["patch"][0]["value"]["text"], "Hello!", "the journal keeps what was removed");
    let then = board.sandbox.run(&["state", "last", "--at", &written["version"].to_string()]).expect_exit(0).stdout;
    assert!(then.contains("Hello!"), "{then}");

    let board = Board::played(&json!({"cleaner": "mark"}), says, 0);
    assert_eq!(board.texts(), ["Hello!", "It is 7."]);
    let marked = &board.state()["board"]["public"][0]["marked"];
    assert_eq!(*marked, json!({"by": "cleaner", "why": "It says nothing."}));

    // A cleaner that names a marked message again is not rejected: the new messages in its list are marked.
    let both = "{\"clean list\": [{\"useless message\": \"Hello!\", \"explanation\": \"As before.\"}, \
        {\"useless message\": \"Well.\", \"explanation\": \"Nor does this.\"}]}";
    let again: &[Says<'_>] = &[
        ("control", &["{\"chosen agents\": [\"expert_1\", \"cleaner\"]}"]),
        ("expert_1", &["Hello!", "Well.", "It is 7.", "7"]),
        ("cleaner", &[clean, both, both, "7"]),
    ];
    let board = Board::played(&json!({"cleaner": "mark", "rounds": 3}), again, 0);
    let public = &board.state()["board"]["public"];
    let why: Vec<&Value> =
        public.as_array().expect("messages").iter().map(|message| &message["marked"]["why"]).collect();
    assert_eq!(why, [&json!("It says nothing."), &json!("Nor does this."), &Value::Null]);
    assert_eq!(board.of_kind("rejected").count(), 0);

    let board = Board::played(&json!({"cleaner": "off"}), says, 0);
    assert_eq!(board.texts(), ["Hello!", "It is 7."]);
    assert_eq!(board.called(&["turn"]), ["expert_1", "expert_2", "decider"]);
}

#[test]
fn without_a_control_unit_each_decides_for_itself() {
    let board = Board::played(
        &json!({"control": false}),
        &[
            ("expert_1", &["waiting for more information", "It is 7."]),
            (
                "decider",
                &[
                    "continue, waiting for more information",
                    "continue, waiting for more information",
                    "the final answer is boxed[7]",
                ],
            ),
        ],
        0,
    );
    assert_eq!(board.state()["answer"]["by"], "decider");
    assert_eq!(board.called(&["select", "turn"]), [""; 0]);
    let all = ["planner", "expert_1", "expert_2", "critic", "conflict_resolver", "cleaner", "decider"];
    assert_eq!(board.called(&["everyone"]), all.repeat(3));
}

#[test]
fn a_board_that_may_not_go_on_says_so() {
    let says: &[Says<'_>] =
        &[("control", &["{\"chosen agents\": [\"expert_1\"]}"]), ("expert_1", &["Hm.", "Well.", "So."])];
    let mut short = scripted(TEXT, says);
    short["limits"]["commits"] = json!(8);
    let board = Board::of(&short, &json!({}), 3);
    assert_eq!((&board.result["end"], board.state().get("answer")), (&json!("stopped"), None));
    // No role has an answer, so the board records none.
    let board = Board::played(&json!({"rounds": 1}), &[("control", &["I cannot choose"])], 4);
    assert_eq!((&board.result["end"], board.state().get("answer")), (&json!("quiescent"), None));
    assert_eq!(board.state()["rounds"], json!([{}]));
}

/// A new agent in the syntax of a blueprint or fragment.
const HISTORIAN: &str = r#"
  historian:
    agent: llm
    group: agents
    description: knows when things were
    model: crowd
    format: expert
    pass: true
    role: You are a historian. Say when it was.
    reads: [/request/question, /board/public, /rounds, /ballot, {path: /board/rooms/*, where: worker in self.members}]
    writes:
      - {path: /board/public/-, ops: [add], value: {properties: {from: {const: historian}}}}
      - {path: "/board/rooms/*/messages/-", ops: [add], value: {properties: {from: {const: historian}}}}
      - {path: /answers/-, ops: [add], value: {properties: {from: {const: historian}}}}
    view: {budget: 48000}
    limits: {invocations: 60, attempts: 3, timeout: 10m, reply_tokens: 400}
"#;

#[test]
fn one_more_agent_is_one_more_entry() {
    let conflict = "{\"conflict list\": [{\"agent\": \"historian\", \"message\": \"1066\"}, \
        {\"agent\": \"expert_1\", \"message\": \"1067\"}]}";
    let says: &[Says<'_>] = &[
        ("control", &["{\"chosen agents\": [\"historian\", \"expert_1\", \"conflict_resolver\"]}"]),
        (
            "historian",
            &["It was 1066.", "I have it in a book.", "In that one.", "It was 1066, by the book.", "boxed[1066]"],
        ),
        ("expert_1", &["It was 1067.", "Which?", "I see.", "1066, then.", "1066"]),
        ("conflict_resolver", &[conflict, "no conflicts, waiting for more information"]),
    ];
    let entry = TEXT.replacen("\n  opener:\n", &format!("{HISTORIAN}\n  opener:\n"), 1);
    assert_ne!(entry, TEXT);
    // A fragment in its own file is equivalent.
    let fragment = scripted(&format!("workers:{HISTORIAN}"), says);
    let mut using = scripted(TEXT, says);
    using["use"] = json!(["historian.yaml"]);
    let sandbox = Sandbox::new();
    sandbox.write("blackboard.json", using.to_string());
    sandbox.write("historian.yaml", fragment.to_string());
    let request = json!({"question": "When?", "rounds": 1}).to_string();
    let used =
        sandbox.run(&["run", "blackboard.json", "--request", &request, "--output", "json"]).expect_exit(0).json();

    let board = Board::of(&scripted(&entry, says), &json!({"rounds": 1}), 0);
    for state in [board.state(), &used["state"]] {
        assert_eq!(state["answer"]["text"], "1066");
        let votes = state["answer"]["votes"].as_array().expect("votes");
        assert!(votes.iter().any(|vote| vote["from"] == "historian"), "{votes:?}");
        let rooms = state["board"]["rooms"].as_object().expect("rooms");
        assert_eq!(rooms.values().next().expect("a room")["members"], json!(["historian", "expert_1"]));
    }
    let control = board.views().into_iter().find(|(worker, _)| worker == "control").expect("a call").1;
    assert!(control.contains("historian: knows when things were"), "{control}");
}

#[test]
fn the_shipped_blackboard_passes_check_without_warnings() {
    let sandbox = Sandbox::new();
    sandbox.write("blackboard.yaml", TEXT);
    sandbox.run(&["check", "blackboard.yaml", "--deny-warnings"]).expect_exit(0);
    // The variant from the blueprint's comment: each agent draws its model from a set.
    let crowd = TEXT.replacen("crowd: [default]}", "crowd: [small, large]}", 1);
    assert_ne!(crowd, TEXT);
    sandbox.write("crowd.yaml", crowd);
    sandbox.run(&["check", "crowd.yaml", "--deny-warnings"]).expect_exit(0);
}
