//! Two processes of the official Python SDK edit one directory at once, each through its own `patchboard mcp
//! --workspace`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::Client;

/// Time limit of the clients.
const TIME: Duration = Duration::from_secs(150);

const FILES: [&str; 2] = ["shared.txt", "src/counter.py"];

struct Workspace {
    /// Directory that the clients edit.
    directory: TempDir,
    /// Directory in which the clients wait for each other.
    rendezvous: TempDir,
}

impl Workspace {
    fn new() -> Self {
        let workspace = Self {
            directory: tempfile::tempdir().expect("a directory"),
            rendezvous: tempfile::tempdir().expect("a directory"),
        };
        std::fs::create_dir(workspace.directory.path().join("src")).expect("a directory");
        for file in FILES {
            std::fs::write(workspace.directory.path().join(file), "first = 0\nTOTAL = 0\nlast = 0\n").expect("a file");
        }
        workspace
    }

    /// Runs an agent for a while; returns the thread that yields its report.
    fn agent(&self, name: &'static str, other: &'static str, seconds: &'static str) -> Option<JoinHandle<Value>> {
        let client = Client::find("mcp")?;
        let (directory, rendezvous) =
            (self.directory.path().display().to_string(), self.rendezvous.path().display().to_string());
        Some(std::thread::spawn(move || {
            let command = [env!("CARGO_BIN_EXE_patchboard"), "mcp", "--workspace", &directory];
            let arguments = [&[name, other, &rendezvous, seconds][..], &command].concat();
            serde_json::from_str(&client.run("workspace.py", &arguments, TIME)).expect("JSON")
        }))
    }

    fn until(&self, what: impl Fn(&Path) -> bool) {
        let begun = Instant::now();
        while !what(self.rendezvous.path()) {
            assert!(begun.elapsed() < TIME, "it never came");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(file)).expect("a file")
    }

    /// Checks that the files contain every accepted edit exactly once and nothing else, and that the journal agrees.
    fn has_all(&self, agents: &[&Value]) {
        for file in FILES {
            let text = self.text(file);
            let total = text.lines().find_map(|line| line.strip_prefix("TOTAL = ")).expect("a total");
            let total: u64 = total.parse().expect("a number");
            let counted: u64 = agents.iter().map(|agent| agent["counted"][file].as_u64().expect("a number")).sum();
            // The outcome of a call that was in flight at the kill is unknown.
            let unheard = |what: &str| agents.iter().any(|agent| agent["under_way"] == serde_json::json!([what, file]));
            let most = counted + u64::from(unheard("count"));
            assert!((counted..=most).contains(&total), "{file}: {total} of {counted} to {most}\n{text}");
            let inserted: BTreeSet<&str> = agents
                .iter()
                .flat_map(|agent| agent["inserted"].as_array().expect("a list"))
                .filter(|line| line[0] == file)
                .map(|line| line[1].as_str().expect("a text"))
                .collect();
            let found: Vec<&str> = text.lines().filter(|line| line.starts_with("line_")).collect();
            assert!(inserted.iter().all(|line| found.contains(line)), "{file} lacks one of {inserted:?}\n{text}");
            assert!(
                found.iter().all(|line| inserted.contains(line) || unheard(line)),
                "{file}: more than {inserted:?}\n{text}"
            );
            assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "{text}");
        }
        for command in ["verify", "replay"] {
            let data = self.directory.path().join(".patchboard/workspace");
            let mut program = Command::new(env!("CARGO_BIN_EXE_patchboard"));
            let output =
                program.args([command, "last", "--data-dir"]).arg(data).output().expect("the binary can be run");
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let (begun, host) = (Instant::now(), self.directory.path().join(".patchboard/host.json"));
        while host.exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the host stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[ignore = "full tier: packages from registries"]
fn two_clients_edit_one_directory_and_nothing_is_lost() {
    let workspace = Workspace::new();
    let Some(ada) = workspace.agent("ada", "bob", "5") else { return };
    let bob = workspace.agent("bob", "ada", "5").expect("it was found before");
    let (ada, bob) = (ada.join().expect("it ends"), bob.join().expect("it ends"));
    workspace.has_all(&[&ada, &bob]);
    let sum = |member: &str| ada[member].as_u64().expect("a number") + bob[member].as_u64().expect("a number");
    assert!(sum("refused") > 0, "there were conflicts: {ada} {bob}");
    for agent in [&ada, &bob] {
        assert!(!agent["codes"].to_string().contains("reads_lost"), "the host is the same all the time: {agent}");
        assert!(
            agent["is_lost"] == false && agent["counted"].as_object().expect("an object").values().any(|n| *n != 0),
            "{agent}"
        );
    }
}

#[test]
#[ignore = "full tier: packages from registries"]
fn when_the_host_is_killed_both_clients_go_on() {
    let workspace = Workspace::new();
    let Some(ada) = workspace.agent("ada", "bob", "6") else { return };
    // The first request starts the host.
    workspace.until(|at| at.join("ada").exists());
    let address = std::fs::read(workspace.directory.path().join(".patchboard/host.json")).expect("there is a host");
    let address: Value = serde_json::from_slice(&address).expect("JSON");
    let bob = workspace.agent("bob", "ada", "6").expect("it was found before");
    let rounds = |at: &Path, name: &str| -> u64 {
        let text = std::fs::read_to_string(at.join(format!("{name}.round"))).unwrap_or_default();
        text.parse().unwrap_or(0)
    };
    workspace.until(|at| rounds(at, "ada") > 3 && rounds(at, "bob") > 3);
    let killed = ["ada", "bob"].map(|name| rounds(workspace.rendezvous.path(), name));
    crate::daemon::send("-KILL", u32::try_from(address["pid"].as_u64().expect("a process")).expect("a process"));
    let (ada, bob) = (ada.join().expect("it ends"), bob.join().expect("it ends"));
    assert!(ada["is_lost"] == false && bob["is_lost"] == false, "{ada} {bob}");
    let ended = ["ada", "bob"].map(|name| rounds(workspace.rendezvous.path(), name));
    assert!(ended[0] > killed[0] && ended[1] > killed[1], "{ada} {bob}");
    workspace.has_all(&[&ada, &bob]);
}
