//! Stand-in for the libraries of ALFWorld, so that `alfworld/environment.py` runs without them.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

/// Stub libraries for environment.py: a game of one room with a lamp, won by its light.
const LIBRARIES: [(&str, &str); 3] = [
    ("textworld/__init__.py", "def EnvInfos(**infos):\n    return infos\n"),
    (
        "textworld/envs.py",
        r#"
class PddlEnv:
    def __init__(self, infos):
        print("chatter")

    def load(self, path):
        self.begun = getattr(self, "begun", 0) + 1

    def reset(self):
        self.lit = False
        return self.now("Welcome!\n\nA lamp. Game %d.\n\nYour task is to: make light." % self.begun)

    def step(self, command):
        self.lit = command == " use lamp"
        return self.now("Light." if self.lit else "Nothing happens."), 0, self.lit

    def now(self, feedback):
        return {"feedback": feedback + " ", "admissible_commands": [" use lamp", "look"], "won": self.lit}
"#,
    ),
    ("alfworld/agents/environment/alfred_tw_env.py", "def AlfredDemangler(env, shuffle):\n    return env\n"),
];

/// Returns the Python interpreter, or `None` with a visible message if there is none.
pub(crate) fn python() -> Option<&'static str> {
    if Command::new("python3").arg("--version").output().is_ok() {
        return Some("python3");
    }
    // Bypasses output capture: a skipped test must not look like one that ran.
    let _ = writeln!(io::stderr(), "SKIPPED: no python3 to run evals/alfworld/environment.py with");
    None
}

/// Writes the libraries to a directory, and this game below its `games`.
pub(crate) fn lay_out(directory: &Path, game: &str) {
    let game = format!("games/{game}/game.tw-pddl");
    for (path, text) in LIBRARIES.into_iter().chain([(game.as_str(), "")]) {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }
}
