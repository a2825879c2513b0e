//! The installation files refer to existing commands and settings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::Sandbox;

fn file(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations").join(name);
    let text = fs::read_to_string(&path).expect("it is there");
    (path, text)
}

/// Returns a setting of the unit.
fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found.next().unwrap_or_else(|| panic!("the unit has no {name}"));
    assert_eq!(found.next(), None, "{name} is there twice");
    value
}

#[test]
fn systemd_takes_the_unit() {
    let (_, unit) = file("patchboard.service");
    let sandbox = Sandbox::new();
    // The binary is in the build directory, not at its installed path.
    let unit = unit.replace("/usr/local/bin/patchboard", env!("CARGO_BIN_EXE_patchboard"));
    sandbox.write("patchboard.service", unit);
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(sandbox.path().join("patchboard.service"))
        .output();
    let Ok(verified) = verified else {
        println!("SKIPPED: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    // The verifier prints each unknown line and still succeeds.
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("patchboard.service")).collect();
    assert!(verified.status.success() && of_ours.is_empty(), "{said}");
}

#[test]
fn the_unit_gives_the_daemon_time_to_stop_and_names_what_there_is() {
    let (_, unit) = file("patchboard.service");
    let stop: u32 = setting(&unit, "TimeoutStopSec").parse().expect("a number of seconds");
    // Pending requests have 20 s, then the actors at most 10 s, twice.
    assert!(stop >= 40, "{stop} s");
    for (name, value) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "patchboard"),
        ("KillSignal", "SIGTERM"),
    ] {
        assert_eq!(setting(&unit, name), value, "{name}");
    }
    let sandbox = Sandbox::new();
    let words: Vec<&str> = setting(&unit, "ExecStart").split_whitespace().skip(1).chain(["--help"]).collect();
    let help = sandbox.run(&words).expect_exit(0).stdout;
    for variable in setting(&unit, "Environment").split_whitespace() {
        let (name, _) = variable.split_once('=').expect("a variable and its value");
        assert!(help.contains(name), "serve knows no {name}");
    }
}

#[test]
fn the_image_runs_commands_that_there_are_and_not_as_root() {
    let (_, image) = file("Dockerfile");
    let sandbox = Sandbox::new();
    let lists =
        image.lines().filter_map(|line| line.split_once('[').map(|(before, list)| (before, format!("[{list}"))));
    let mut checked = 0;
    for (before, list) in lists {
        let mut words: Vec<String> = serde_json::from_str(&list).expect("a list of words");
        if words.first().is_some_and(|word| word == "patchboard") {
            words.remove(0);
        }
        words.push("--help".to_owned());
        sandbox.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).expect_exit(0);
        checked += 1;
        assert!(["HEALTHCHECK", "ENTRYPOINT", "CMD"].iter().any(|word| before.starts_with(word)), "{before}");
    }
    assert_eq!(checked, 3);
    let user = image.lines().find_map(|line| line.strip_prefix("USER ")).expect("it names a user");
    assert!(!user.starts_with('0') && user != "root", "{user}");
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")).expect("it is there");
    let version =
        manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("it is named");
    assert!(image.contains(&format!("FROM rust:{version}-")), "the image builds with another version than {version}");
}
