//! Files of a board's workspace for remote processes that hold a lease: over HTTP and in an MCP seat.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// Two workers with files, one of them with fewer read grants, and one without file access.
const OFFICE: &str = r#"
blueprint: 1
name: office
state: {schema: {}, initial: {notes: []}}
workspace: {dir: code}
workers:
  ada: {agent: remote, role: Mend the code., files: {edit: ["**"]}, limits: {timeout: 1h}}
  bob: {agent: remote, files: {view: ["src/**"], edit: ["src/*.py"]}, writes: [{path: /notes/-}], limits: {timeout: 1h}}
  eve: {agent: remote, writes: [{path: /notes/-}], limits: {timeout: 1h}}
rules:
  - {name: ada, trigger: start, run: ada}
  - {name: ada-again, trigger: {signal: more}, run: ada}
  - {name: bob, trigger: start, run: bob}
  - {name: eve, trigger: start, run: eve}
"#;

const CODE: &str = "def one():\n    return 1\n";

struct Office {
    daemon: Daemon,
    board: String,
}

impl Office {
    async fn open() -> Self {
        Self::at_rest().begin().await
    }

    /// Returns an office before its daemon is started.
    fn at_rest() -> Self {
        let daemon = Daemon::not_started(&[]);
        daemon.configure("[workspaces.code]\ndir = \"code\"\n");
        std::fs::create_dir_all(daemon.path().join("code/src")).expect("directories");
        std::fs::write(daemon.path().join("code/src/a.py"), CODE).expect("a file");
        std::fs::write(daemon.path().join("code/secret.txt"), "hush\n").expect("a file");
        Self { daemon, board: String::new() }
    }

    async fn begin(mut self) -> Self {
        self.daemon.start();
        let made = self.daemon.post("/v1/boards", &json!({ "source": OFFICE })).await.expect_status(201);
        self.board = made["board"].as_str().expect("an id").to_owned();
        self
    }

    fn file(&self, name: &str) -> PathBuf {
        self.daemon.path().join("code").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("a file")
    }

    /// Takes a lease and returns its path.
    async fn lease(&self, worker: &str) -> String {
        let path = format!("/v1/boards/{}/leases", self.board);
        let lease = self.daemon.post(&path, &json!({"worker": worker, "wait": 30})).await.expect_status(200);
        format!("{path}/{}", lease["lease"].as_str().expect("a lease"))
    }

    async fn does(&self, lease: &str, worker: &str, arguments: Value) -> Answer {
        self.daemon.post(&format!("{lease}/files"), &json!({"worker": worker, "arguments": arguments})).await
    }
}

fn eleven() -> Value {
    json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 1", "new_str": "return 11", "intent": "more"})
}

#[tokio::test]
async fn lease_holders_edit_files_and_conflicts_show_the_current_content() {
    let office = Office::open().await;
    let (ada, bob) = (office.lease("ada").await, office.lease("bob").await);
    let view = json!({"command": "view", "path": "src/a.py"});
    let shown = office.does(&ada, "ada", view.clone()).await.expect_status(200);
    assert_eq!(
        (&shown["data"]["version"], &shown["data"]["content"]),
        (&json!(1), &json!("     1\tdef one():\n     2\t    return 1\n"))
    );
    office.does(&bob, "bob", view).await.expect_status(200);
    let edited = office.does(&ada, "ada", eleven()).await.expect_status(200);
    assert_eq!(edited["data"]["files"][0]["version"], 2, "{edited}");
    assert_eq!(office.text("src/a.py"), "def one():\n    # ada: more\n    return 11\n");

    let twelve = json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 1\n", "new_str": "return 12\n", "intent": "twelve"});
    let refused = office.does(&bob, "bob", twelve).await.expect_problem(409, "stale_target");
    assert!(refused["detail"].as_str().is_some_and(|text| text.contains("+    return 11")), "{refused}");
    assert_eq!(refused["data"]["code"], "stale_target", "{refused}");
    let again = json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 11", "new_str": "return 12", "intent": "twelve"});
    office.does(&bob, "bob", again).await.expect_status(200);
    assert_eq!(office.text("src/a.py"), "def one():\n    # ada: more\n    # bob: twelve\n    return 12\n");
    let state = office.daemon.get(&format!("/v1/boards/{}/state", office.board)).await.expect_status(200);
    assert_eq!(state["state"]["files"]["src/a.py"]["writer"], "bob", "{state}");
    // An edit's record names its caller.
    let token = office.daemon.token(&format!("seat:{}/bob", office.board));
    let bearer = format!("Bearer {token}");
    let create = json!({"command": "create", "path": "src/b.py", "file_text": "x = 1\n", "intent": "b"});
    let body = json!({"worker": "bob", "arguments": create});
    office.daemon.post_with(&format!("{bob}/files"), &body, &[("authorization", &bearer)]).await.expect_status(200);
    let journal = office.daemon.get(&format!("/v1/boards/{}/journal", office.board)).await.expect_status(200);
    let records = journal["records"].as_array().expect("a list").iter().filter(|record| record["kind"] == "committed");
    let callers: Vec<&Value> = records.map(|record| &record["principal"]["kind"]).collect();
    // The first commit records the initial content of the directory.
    assert_eq!(callers, [&Value::Null, &json!("address"), &json!("address"), &json!("token")]);
}

#[tokio::test]
async fn invalid_file_commands_have_a_status_and_a_code() {
    let office = Office::open().await;
    let (ada, bob, eve) = (office.lease("ada").await, office.lease("bob").await, office.lease("eve").await);
    let cases = [
        (json!({"command": "view", "path": "src/no.py"}), 404, "no_such_file"),
        (json!({"command": "view", "path": "secret.txt"}), 403, "not_readable"),
        (json!({"command": "view", "path": "../patchboard.toml"}), 422, "bad_arguments"),
        (json!({"command": "undo_edit", "path": "src/a.py"}), 422, "bad_arguments"),
        (json!("view"), 422, "bad_arguments"),
        (json!({"command": "search", "pattern": "(", "regex": true}), 422, "bad_pattern"),
        (json!({"command": "create", "path": "src/a.txt", "file_text": "x\n", "intent": "x"}), 403, "path_not_granted"),
        (json!({"command": "create", "path": "src/b.py", "file_text": "x\n"}), 422, "intent_missing"),
        (
            json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 1", "intent": "x"}),
            409,
            "unseen_target",
        ),
        (json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 2", "intent": "x"}), 422, "no_match"),
        (json!({"command": "view", "path": "src/.git/config"}), 403, "not_served"),
    ];
    for (arguments, status, code) in cases {
        office.does(&bob, "bob", arguments).await.expect_problem(status, code);
    }
    assert_eq!((office.text("src/a.py").as_str(), office.file("src/b.py").exists()), (CODE, false));
    let view = json!({"command": "view", "path": "src/a.py"});
    office.does(&eve, "eve", view.clone()).await.expect_problem(409, "no_files");
    // A lease belongs to its worker, has a fixed id syntax, and ends with its attempt.
    office.does(&ada, "bob", view.clone()).await.expect_problem(409, "lease_over");
    office.does(&ada, "nobody", view.clone()).await.expect_problem(404, "no_such_worker");
    let path = format!("/v1/boards/{}/leases", office.board);
    for (lease, status, code) in [("9:1", 409, "lease_over"), ("1:2", 409, "lease_over"), ("x", 400, "bad_path")] {
        office.does(&format!("{path}/{lease}"), "ada", view.clone()).await.expect_problem(status, code);
    }
    for body in [json!({"worker": "ada"}), json!({"worker": "ada", "arguments": view, "command": "view"})] {
        office.daemon.post(&format!("{ada}/files"), &body).await.expect_problem(422, "bad_body");
    }
    office.daemon.post(&format!("{ada}/answer"), &json!({"worker": "ada", "patch": []})).await.expect_status(200);
    office.does(&ada, "ada", view).await.expect_problem(409, "lease_over");
}

#[tokio::test]
async fn an_edit_is_made_once_under_a_key() {
    let mut office = Office::open().await;
    let ada = office.lease("ada").await;
    office.does(&ada, "ada", json!({"command": "view", "path": "src/a.py"})).await.expect_status(200);
    let path = format!("{ada}/files");
    let insert =
        json!({"command": "insert", "path": "src/a.py", "insert_line": 2, "insert_text": "x = 1\n", "intent": "x"});
    let body = json!({"worker": "ada", "arguments": insert});
    let first = office.daemon.post_once(&path, &body, "k").await;
    let text = office.text("src/a.py");
    assert!(!first.is_replayed() && text.matches("x = 1").count() == 1, "{text}");
    let again = office.daemon.post_once(&path, &body, "k").await;
    assert!(again.is_replayed(), "{}", again.text);
    assert_eq!((again.expect_status(200), office.text("src/a.py")), (first.expect_status(200), text.clone()));
    let other = json!({"worker": "ada", "arguments": eleven()});
    office.daemon.post_once(&path, &other, "k").await.expect_problem(409, "token_conflict");
    // Rejections are replayed as well.
    let missing = json!({"worker": "ada", "arguments": {"command": "delete", "path": "no.py", "intent": "x"}});
    for _ in 0..2 {
        office.daemon.post_once(&path, &missing, "d").await.expect_problem(404, "no_such_file");
    }
    // After a restart there is a new lease with an empty read set, and the key is still known.
    office.daemon.kill();
    office.daemon.start();
    office.daemon.post_once(&path, &body, "k").await.expect_problem(409, "lease_over");
    let path = format!("{}/files", office.lease("ada").await);
    // `reads_lost` comes first, and is not stored as the edit's outcome under its key.
    office.daemon.post_once(&path, &body, "other").await.expect_problem(409, "reads_lost");
    let refused = office.daemon.post_once(&path, &body, "other").await.expect_problem(409, "unseen_target");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("x = 1")), "{refused}");
    office.daemon.post_once(&path, &body, "k").await.expect_problem(409, "token_conflict");
    assert_eq!(office.text("src/a.py"), text);
}

#[tokio::test]
async fn an_answer_has_the_room_that_is_asked_for_and_what_is_not_in_it_was_not_read() {
    let office = Office::open().await;
    let text: String = (1..=400).map(|at| format!("line {at}\n")).collect();
    std::fs::write(office.file("src/a.py"), text).expect("a file");
    let lease = office.lease("ada").await;
    let asks = async |room: u64, has_earlier_reads: bool, arguments: Value| {
        let body =
            json!({"worker": "ada", "room": room, "has_earlier_reads": has_earlier_reads, "arguments": arguments});
        office.daemon.post(&format!("{lease}/files"), &body).await
    };
    let shown = asks(2_000, false, json!({"command": "view", "path": "src/a.py"})).await.expect_status(200);
    let text = shown["text"].as_str().expect("a text");
    assert!(text.chars().count() <= 2_000 && text.contains("shows what follows"), "{text}");
    let edit = |line: u32| json!({"command": "str_replace", "path": "src/a.py", "old_str": format!("line {line}\n"), "intent": "less"});
    asks(2_000, false, edit(399)).await.expect_problem(409, "unseen_target");
    asks(64_000, false, edit(5)).await.expect_status(200);
    for room in [0, 999, 64_001] {
        asks(room, false, edit(7)).await.expect_problem(422, "bad_body");
    }
    // The limit also applies in an MCP seat.
    let view = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "view", "arguments": {"path": "src/a.py", "view_range": [100, 300]}}});
    let seat = format!("/mcp/{}/ada", office.board);
    office.daemon.post(&format!("{lease}/answer"), &json!({"worker": "ada", "patch": []})).await.expect_status(200);
    office
        .daemon
        .post(&format!("/v1/boards/{}/signals", office.board), &json!({"name": "more"}))
        .await
        .expect_status(202);
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_view", "arguments": {"wait": 30}}});
    office.daemon.post(&seat, &wait).await.expect_status(200);
    let answer = office.daemon.post_with(&seat, &view, &[("patchboard-room", "1500")]).await.expect_status(200);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(text.chars().count() <= 1_500 && text.contains("shows what follows"), "{text}");
    office.daemon.post_with(&seat, &view, &[("patchboard-room", "all")]).await.expect_problem(422, "bad_body");
    // A client that resumes under a new lease gets `reads_lost`, once.
    let bob = office.lease("bob").await;
    // The former name of `has_earlier_reads`.
    let body = |arguments: Value| json!({"worker": "bob", "anew": true, "arguments": arguments});
    let create = json!({"command": "create", "path": "src/b.py", "file_text": "x = 1\n", "intent": "x"});
    office.daemon.post(&format!("{bob}/files"), &body(create.clone())).await.expect_problem(409, "reads_lost");
    office.daemon.post(&format!("{bob}/files"), &body(create)).await.expect_status(200);
}

#[tokio::test]
async fn named_callers_of_one_lease_have_separate_read_sets() {
    let office = Office::open().await;
    let lease = office.lease("ada").await;
    let does = async |name: &str, arguments: Value| {
        let body = json!({"worker": "ada", "name": name, "arguments": arguments});
        office.daemon.post(&format!("{lease}/files"), &body).await
    };
    let view = json!({"command": "view", "path": "src/a.py"});
    does("one", view.clone()).await.expect_status(200);
    does("two", eleven()).await.expect_problem(409, "unseen_target");
    does("one", eleven()).await.expect_status(200);
    assert_eq!(office.text("src/a.py"), "def one():\n    # one: more\n    return 11\n");
    for name in ["", "a b", "a/b", &"x".repeat(65), "external", "TODO"] {
        does(name, view.clone()).await.expect_problem(422, "bad_body");
    }
    // A caller cannot edit in the name of another worker.
    does("bob", view.clone()).await.expect_status(200);
    let edit = json!({"command": "create", "path": "src/a.py", "file_text": "x\n", "intent": "x"});
    does("bob", edit).await.expect_problem(403, "wrong_worker");
}

#[tokio::test]
async fn ordered_file_requests_state_which_answers_were_received() {
    let office = Office::open().await;
    let path = format!("{}/files", office.lease("ada").await);
    let view = json!({"command": "view", "path": "src/a.py"});
    let ask = async |arguments: &Value, order: Value| {
        office.daemon.post(&path, &json!({"worker": "ada", "order": order, "arguments": arguments})).await
    };
    ask(&view, json!({"number": 7, "heard": 0})).await.expect_status(200);
    ask(&eleven(), json!({"number": 8, "heard": 6})).await.expect_problem(409, "unseen_target");
    // Neither answer was received.
    ask(&eleven(), json!({"number": 9, "heard": 6, "unheard": [7, 8]})).await.expect_problem(409, "unseen_target");
    ask(&eleven(), json!({"number": 10, "heard": 9})).await.expect_status(200);
    ask(&view, json!({"number": 11, "heard": 10, "by": "ada"})).await.expect_problem(422, "bad_body");
}

#[tokio::test]
async fn a_directory_that_lost_its_patchboard_folder_is_reopened() {
    let office = Office::at_rest();
    let office = office.begin().await;
    let (ada, bob) = (office.lease("ada").await, office.lease("bob").await);
    let view = json!({"command": "view", "path": "src/a.py"});
    for (lease, worker) in [(&ada, "ada"), (&bob, "bob")] {
        office.does(lease, worker, view.clone()).await.expect_status(200);
    }
    std::fs::remove_dir_all(office.file(".patchboard")).expect("removed");
    office.does(&ada, "ada", eleven()).await.expect_problem(409, "reads_lost");
    let seen = office.does(&bob, "bob", view.clone()).await.expect_status(200);
    assert_eq!(seen["data"]["begun_anew"], true, "{seen}");
    office.does(&ada, "ada", view).await.expect_status(200);
    office.does(&ada, "ada", eleven()).await.expect_status(200);
    assert_eq!(office.text("src/a.py"), "def one():\n    # ada: more\n    return 11\n");
    let twelve = json!({"command": "str_replace", "path": "src/a.py", "old_str": "return 1\n", "new_str": "return 12\n", "intent": "twelve"});
    office.does(&bob, "bob", twelve).await.expect_problem(409, "stale_target");
    let log = office.daemon.log();
    assert_eq!(log.matches("it is opened again").count(), 1, "{log}");
}

/// Returns the result of a seat's tool, and whether it is an error.
async fn tool(office: &Office, worker: &str, tool: &str, arguments: Value) -> (Value, bool) {
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    let answer = office.daemon.post(&format!("/mcp/{}/{worker}", office.board), &message).await.expect_status(200);
    let result = answer["result"].clone();
    let is_error = result["isError"].as_bool().unwrap_or_else(|| panic!("{answer}"));
    (result, is_error)
}

async fn tools(office: &Office, worker: &str) -> Vec<Value> {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let answer = office.daemon.post(&format!("/mcp/{}/{worker}", office.board), &message).await.expect_status(200);
    answer["result"]["tools"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_seat_with_files_is_an_editor() {
    let office = Office::open().await;
    let names = |tools: &[Value]| -> Vec<String> {
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    let editor = ["view", "list", "search", "create", "str_replace", "insert", "delete", "rename"];
    let board = ["read_view", "propose_patch", "expand", "clarify", "explain_rejection"];
    let of_ada = tools(&office, "ada").await;
    assert_eq!(names(&of_ada), [&["read_view", "explain_rejection", "finish"][..], &editor].concat());
    assert_eq!(names(&tools(&office, "bob").await), [&board[..], &editor].concat());
    assert_eq!(names(&tools(&office, "eve").await), board);
    let replace = of_ada.iter().find(|tool| tool["name"] == "str_replace").expect("a tool");
    let text = replace["description"].as_str().expect("a text");
    assert!(text.starts_with("EVERY EDIT NEEDS AN `intent`") && text.contains("You are `ada`"), "{text}");

    // The first tool that needs a lease takes the pending call, and `read_view` shows that call.
    let (shown, is_error) = tool(&office, "ada", "view", json!({"path": "src/a.py"})).await;
    assert!(!is_error && shown["content"][0]["text"].as_str().is_some_and(|text| text.contains("return 1")), "{shown}");
    let (view, _) = tool(&office, "ada", "read_view", json!({})).await;
    assert!(view["structuredContent"]["lease"] == "1:1", "{view}");
    let mut edit = eleven();
    edit.as_object_mut().expect("an object").remove("command");
    let (edited, is_error) = tool(&office, "ada", "str_replace", edit.clone()).await;
    assert!(!is_error && office.text("src/a.py").contains("# ada: more\n    return 11"), "{edited}");
    let (refused, is_error) = tool(
        &office,
        "bob",
        "str_replace",
        json!({"path": "src/a.py", "old_str": "11", "new_str": "12", "intent": "x"}),
    )
    .await;
    assert!(is_error && refused["structuredContent"]["code"] == "unseen_target", "{refused}");
    assert!(refused["content"][0]["text"].as_str().is_some_and(|text| text.contains("return 11")), "{refused}");
    let (refused, is_error) = tool(&office, "ada", "insert", json!({"path": "src/a.py"})).await;
    assert!(is_error && refused["structuredContent"]["code"] == "bad_arguments", "{refused}");

    let (finished, is_error) = tool(&office, "ada", "finish", json!({"intent": "eleven it is"})).await;
    assert!(!is_error && finished["structuredContent"]["outcome"] == "no_op", "{finished}");
    for name in ["finish", "view"] {
        let arguments = if name == "view" { json!({"path": "src/a.py"}) } else { json!({}) };
        let (refused, is_error) = tool(&office, "ada", name, arguments).await;
        assert!(is_error && refused["structuredContent"]["code"] == "no_lease", "{refused}");
    }
    // A caller that has not leased the next call cannot finish it.
    office
        .daemon
        .post(&format!("/v1/boards/{}/signals", office.board), &json!({"name": "more"}))
        .await
        .expect_status(202);
    let (refused, _) = tool(&office, "ada", "finish", json!({})).await;
    assert_eq!(refused["structuredContent"]["code"], "no_lease", "{refused}");
    let (view, _) = tool(&office, "ada", "read_view", json!({"wait": 30})).await;
    assert_eq!(view["structuredContent"]["asked"], true, "{view}");
    // Tools that are not listed cannot be called.
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "propose_patch", "arguments": {}}});
    let answer = office.daemon.post(&format!("/mcp/{}/ada", office.board), &message).await.expect_status(200);
    assert_eq!(answer["error"]["data"]["code"], "no_such_tool", "{answer}");
}
