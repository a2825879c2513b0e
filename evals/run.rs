//! Runs the load program, the restoring of libraries and the environment of ALFWorld, and checks their output.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

mod game;

#[test]
fn boards_under_random_faults_end_verify_and_are_right() {
    let soak = Command::new(env!("CARGO_BIN_EXE_soak")).args(["--boards", "12", "--seconds", "3"]).output();
    let output = soak.expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("records verified and derived again"), "{text}");
    assert!(text.contains("done (done)"), "{text}");
}

#[test]
fn a_daemon_under_load_that_is_killed_loses_nothing() {
    let load = Path::new(env!("CARGO_BIN_EXE_load"));
    let daemon = load.with_file_name("patchboard");
    if !daemon.is_file() {
        println!("SKIPPED: the daemon is not built; `cargo build -p patchboard-daemon` builds it");
        return;
    }
    let few = ["--boards", "4", "--workers", "4", "--unfinished", "6", "--seconds", "2", "--kills", "1", "--json"];
    let output = Command::new(load).arg("--patchboard").arg(daemon).args(few).output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(figures["acknowledged and lost"], 0.0, "{figures}");
    assert_eq!(figures["answers refused otherwise"], 0.0, "{figures}");
    assert!(figures["commits acknowledged, kills included"].as_f64() > Some(10.0), "{figures}");
    assert!(figures["proposal to event, p99"].as_f64() > Some(0.0), "{figures}");
}

/// Restores libraries from the package registry; returns `None`, with a visible message, if they cannot be fetched.
fn restored(arguments: &[&str]) -> Option<Vec<Value>> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storm_commit0");
    let mut restore = Command::new(env!("CARGO_BIN_EXE_storm_commit0"));
    let output = restore.args(["--json", "--cache"]).arg(&cache).args(arguments).output();
    let output = output.expect("the example was built");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(75) {
        assert!(std::env::var_os("PATCHBOARD_REQUIRE_CLIENTS").is_none(), "{error}");
        let _ = writeln!(std::io::stderr(), "{error}");
        return None;
    }
    assert!(output.status.success(), "{text}{error}");
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Uses eight engineers to force conflicts. The checked mode loses nothing, and the unchecked one loses some changes.
#[test]
fn engineers_who_are_checked_restore_a_real_library_and_those_who_are_not_do_not() {
    let eight = ["--library", "deprecated", "--engineers", "8", "--mode", "storm,soft"];
    let Some(rows) = restored(&eight) else { return };
    let (storm, soft) = (&rows[0], &rows[1]);
    assert_eq!((&storm["passed"], &storm["left"]), (&json!(185), &json!(0)), "{storm}");
    assert!(storm["refused"]["stale_target"].as_u64() > Some(0) && storm["rework"].as_u64() > Some(0), "{storm}");
    assert!(soft["passed"].as_u64() < Some(185), "{soft}");
    assert!(soft["causes"].as_array().is_some_and(|causes| !causes.is_empty()), "{soft}");
    assert_eq!(soft["acceptance"], 1.0, "{soft}");
}

#[test]
#[ignore = "full tier: half a minute; the quick tier has eight engineers in two modes"]
fn two_engineers_finish_in_every_mode() {
    let Some(rows) = restored(&["--library", "deprecated", "--engineers", "2"]) else { return };
    let modes: Vec<_> = rows.iter().filter_map(|row| row["mode"].as_str()).collect();
    assert_eq!(modes, ["storm", "storm-file", "soft", "worktree"]);
    for row in &rows {
        assert_eq!(row["tests"], 185, "{row}");
        assert!(row["accepted"].as_u64() > Some(5) && row["left"] == 0, "{row}");
    }
}

/// With four engineers, both unchecked modes break a library: silently when all edits are written, and by merges
/// without a conflict.
#[test]
#[ignore = "full tier: a minute; the quick tier has one library with engineers who are checked and who are not"]
fn four_engineers_lose_a_real_library_unchecked_and_by_merges_and_not_checked() {
    let modes = "storm,soft,worktree";
    let Some(rows) = restored(&["--library", "tinydb", "--engineers", "4", "--mode", modes]) else { return };
    let [storm, soft, worktree] = rows.as_slice() else { panic!("{rows:?}") };
    for row in &rows {
        assert_eq!(row["tests"], 219, "{row}");
    }
    assert_eq!((&storm["passed"], &storm["left"]), (&json!(219), &json!(0)), "{storm}");
    assert!(storm["refused"]["stale_read"].as_u64() > Some(0), "{storm}");
    let failed = |row: &Value| row["failed"].as_object().map_or(0, serde_json::Map::len);
    assert!(soft["passed"].as_u64() < Some(219) && failed(soft) > 0, "{soft}");
    assert!(soft["left"].as_u64() > Some(0), "what one wrote another wrote over: {soft}");
    assert!(worktree["passed"].as_u64() < Some(219) && failed(worktree) > 0, "{worktree}");
    let merges = &worktree["merges"];
    assert_eq!((&merges["tried"], &merges["conflicts"]), (&json!(4), &json!(0)), "git saw nothing of it: {worktree}");
    assert_eq!(worktree["left"], 0, "all was done, and it does not fit: {worktree}");
}

/// Renames a module, and has many engineers edit one file of 400 lines.
#[test]
#[ignore = "full tier: most of a minute"]
fn a_module_is_renamed_and_a_large_file_shared_and_nothing_is_lost_that_is_checked() {
    let four = ["--library", "cachetools", "--engineers", "4", "--mode", "storm,worktree"];
    let Some(rows) = restored(&four) else { return };
    let [storm, worktree] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&storm["tests"], &storm["passed"], &storm["left"]), (&json!(416), &json!(416), &json!(0)), "{storm}");
    for code in ["stale_target", "stale_read", "reserved"] {
        assert!(storm["refused"][code].as_u64() > Some(0), "nothing was refused for {code}: {storm}");
    }
    assert!(storm["rework"].as_u64() > Some(0), "{storm}");
    assert!(worktree["passed"].as_u64() < Some(416), "{worktree}");
    assert!(worktree["failed"]["missing API/symbol"].as_u64() > Some(0), "the old names are used: {worktree}");
    let merges = &worktree["merges"];
    assert_eq!((&merges["tried"], &merges["conflicts"]), (&json!(4), &json!(0)), "git saw nothing of it: {worktree}");
    assert_eq!(worktree["left"], 0, "all was done, and it does not fit: {worktree}");
}

#[test]
fn the_environment_of_alfworld_plays_what_it_is_shown_and_knows_where_the_game_is() {
    let Some(python) = game::python() else { return };
    let directory = tempfile::tempdir().expect("a directory can be made");
    game::lay_out(directory.path(), "lamp");
    let shown = |more: Value| {
        let mut shown = json!({"/request/game": "lamp"});
        let members = shown.as_object_mut().expect("it is an object");
        members.extend(more.as_object().expect("it is an object").clone());
        format!("{}\n", json!({"protocol": 1, "shown": shown}))
    };
    let requests = [
        shown(json!({})),
        shown(json!({"/action": "look"})),
        // Repeated request: the reply was lost, the step was made.
        shown(json!({"/action": "look"})),
        // The board's history differs from the game, so the game restarts.
        shown(json!({"/action": "use lamp"})),
        shown(json!({"/history/0/action": "look", "/action": "use lamp"})),
        shown(json!({"/action": "fly"})),
        shown(json!({"/request/game": "../games/lamp/../.."})),
    ];
    let mut child = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("alfworld/environment.py"))
        .arg("games")
        .current_dir(directory.path())
        .env("PYTHONPATH", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 can be run");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(requests.concat().as_bytes()).expect("a pipe holds this much");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends with its input");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("replies are text");
    let replies: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a reply is JSON")).collect();
    assert_eq!(replies.len(), requests.len(), "{text}");

    let world = |observation: &str, status: &str| {
        vec![
            json!({"op": "add", "path": "/observation", "value": observation}),
            json!({"op": "replace", "path": "/admissible", "value": ["use lamp"]}),
            json!({"op": "replace", "path": "/status", "value": status}),
        ]
    };
    let step = |action: &str, observation: &str, status: &str| {
        let step = json!({"action": action, "effect": observation != "Nothing happens.", "observation": observation});
        let mut patch = world(observation, status);
        patch.push(json!({"op": "remove", "path": "/action"}));
        patch.push(json!({"op": "add", "path": "/history/-", "value": step}));
        Value::Array(patch)
    };
    let mut begun = world("A lamp. Game 1.", "playing");
    begun.push(json!({"op": "add", "path": "/goal", "value": "make light."}));
    assert_eq!(replies[0], Value::Array(begun));
    assert_eq!(replies[1], step("look", "Nothing happens.", "playing"));
    assert_eq!(replies[2], replies[1]);
    assert_eq!(replies[3], step("use lamp", "Light.", "won"));
    assert_eq!(replies[4], step("use lamp", "Light.", "won"));
    // An inadmissible action has no effect, but counts as a step.
    assert_eq!(replies[5], step("fly", "Nothing happens.", "playing"));
    assert!(replies[6]["error"].as_str().is_some_and(|error| error.contains("no game")), "{}", replies[6]);
}
