//! Enforces rules about the sources, each by a test that names the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde_json::Value;

/// Crates of the product, each with those it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "patchboard-daemon",
        &[
            "patchboard-server",
            "patchboard-agents",
            "patchboard-roles",
            "patchboard-llm",
            "patchboard-workspace",
            "patchboard-runtime",
            "patchboard-storage",
            "patchboard-protocols",
            "patchboard-lint",
            "patchboard-kernel",
        ],
    ),
    (
        "patchboard-server",
        &[
            "patchboard-agents",
            "patchboard-roles",
            "patchboard-llm",
            "patchboard-workspace",
            "patchboard-runtime",
            "patchboard-storage",
            "patchboard-protocols",
            "patchboard-lint",
            "patchboard-kernel",
        ],
    ),
    (
        "patchboard-agents",
        &[
            "patchboard-roles",
            "patchboard-llm",
            "patchboard-workspace",
            "patchboard-runtime",
            "patchboard-storage",
            "patchboard-protocols",
            "patchboard-lint",
            "patchboard-kernel",
        ],
    ),
    (
        "patchboard-roles",
        &[
            "patchboard-llm",
            "patchboard-runtime",
            "patchboard-storage",
            "patchboard-protocols",
            "patchboard-lint",
            "patchboard-kernel",
        ],
    ),
    (
        "patchboard-llm",
        &[
            "patchboard-workspace",
            "patchboard-runtime",
            "patchboard-storage",
            "patchboard-protocols",
            "patchboard-lint",
            "patchboard-kernel",
        ],
    ),
    ("patchboard-workspace", &["patchboard-runtime", "patchboard-kernel"]),
    ("patchboard-runtime", &["patchboard-storage", "patchboard-kernel"]),
    ("patchboard-storage", &["patchboard-kernel"]),
    ("patchboard-protocols", &["patchboard-lint", "patchboard-kernel"]),
    ("patchboard-faults", &["patchboard-lint", "patchboard-kernel"]),
    ("patchboard-lint", &["patchboard-kernel"]),
    ("patchboard-kernel", &[]),
];

/// All crates that the kernel may depend on. Crates for time, threads, files, sockets or randomness are forbidden.
const KERNEL_MAY_USE: &[&str] = &[
    "base64",
    "cel",
    "croner",
    "globset",
    "jiff",
    "json-patch",
    "jsonptr",
    "jsonschema",
    "jsonschema-regex",
    "once_cell",
    "petgraph",
    "regex",
    "regex-automata",
    "regex-syntax",
    "serde",
    "serde-saphyr",
    "serde_json",
    "serde_json_canonicalizer",
    "serde_with_macros",
    "sha2",
    "smol_str",
    "strsim",
    "thiserror",
    "triomphe",
];

#[test]
fn arrows_between_crates_point_to_the_kernel_and_never_back() {
    let packages = packages();
    for (name, allowed) in ARROWS {
        for dependency in &packages[*name] {
            let is_ours = packages.contains_key(dependency);
            assert!(
                !is_ours || allowed.contains(&dependency.as_str()),
                "{name} depends on {dependency}; its arrows go to {allowed:?} only (ARCHITECTURE.md)"
            );
        }
    }
}

#[test]
fn storage_alone_is_built_on_a_database() {
    let packages = packages();
    let users = packages.iter().filter(|(_, dependencies)| dependencies.contains("rusqlite"));
    let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
    assert_eq!(users, ["patchboard-storage"], "all others have what is durable behind its interface (ARCHITECTURE.md)");
}

#[test]
fn bugs_that_are_put_in_on_purpose_are_in_two_test_programs_alone() {
    let metadata = metadata();
    let mut askers = Vec::new();
    for package in metadata["packages"].as_array().expect("there are packages") {
        let dependencies = package["dependencies"].as_array().expect("a list").iter();
        let asks =
            |one: &&Value| one["features"].as_array().is_some_and(|features| features.contains(&"planted".into()));
        askers.extend(dependencies.filter(asks).map(|one| (package["name"].as_str(), one["kind"].as_str())));
    }
    askers.sort_unstable();
    assert_eq!(askers, ["patchboard-interleavings", "patchboard-simulator"].map(|name| (Some(name), Some("dev"))));
}

#[test]
fn the_kernel_lint_and_the_protocols_are_built_of_pure_crates_only() {
    let packages = packages();
    let pure = ["patchboard-kernel", "patchboard-lint", "patchboard-protocols"];
    for name in pure {
        for dependency in &packages[name] {
            assert!(
                KERNEL_MAY_USE.contains(&dependency.as_str()) || pure.contains(&dependency.as_str()),
                "{name} depends on {dependency}: it has no async, clock, I/O or randomness (DESIGN, invariant 1)"
            );
        }
    }
}

#[test]
fn nothing_below_the_kernel_brings_an_executor_a_socket_or_a_database() {
    let forbidden =
        ["tokio", "async-std", "smol", "mio", "socket2", "reqwest", "hyper", "rusqlite", "libsqlite3-sys", "ractor"];
    let tree = Command::new(cargo())
        .current_dir(root())
        .args(["tree", "--offline", "--package", "patchboard-protocols", "--edges", "normal", "--prefix", "none"])
        .output()
        .expect("cargo can be run");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8_lossy(&tree.stdout);
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains("serde_json"), "the tree was read: {tree}");
    for name in forbidden {
        assert!(!names.contains(name), "the kernel is built on {name} (DESIGN, invariant 1)");
    }
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    let files = sources();
    assert!(files.len() > 30, "the sources were found: {}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source is text");
        let first = text.lines().next().unwrap_or_default();
        let purpose = first.strip_prefix("//! ").unwrap_or_default();
        assert!(
            purpose.split_whitespace().count() >= 2,
            "{} opens with {first:?}: the first line of a file says with `//!` what it is for",
            file.display()
        );
    }
}

#[test]
fn the_kernel_names_no_place_and_no_prompt_of_a_protocol() {
    let kernel = root().join("runtime/kernel/src");
    for file in sources().iter().filter(|file| file.starts_with(&kernel)) {
        let text = fs::read_to_string(file).expect("a source is text").to_lowercase();
        for word in ["/board/", "agenda", "ballot", "rooms", "handoff", "negotiat"] {
            assert!(!text.contains(word), "{} has {word:?}, which is of runtime/protocols", file.display());
        }
    }
}

#[test]
fn the_kernels_clippy_bites_at_clocks_threads_files_and_random_orders() {
    let impure = [
        ("std::time::Instant::now();", "std::time::Instant::now"),
        ("std::time::SystemTime::now();", "std::time::SystemTime::now"),
        ("std::thread::spawn(|| {});", "std::thread::spawn"),
        ("std::thread::sleep(std::time::Duration::ZERO);", "std::thread::sleep"),
        ("std::env::var(\"X\").ok();", "std::env::var"),
        ("std::fs::read(\"x\").ok();", "std::fs::read"),
        ("std::fs::write(\"x\", \"x\").ok();", "std::fs::write"),
        ("std::fs::File::open(\"x\").ok();", "std::fs::File"),
        ("std::net::TcpStream::connect(\"x\").ok();", "std::net::TcpStream"),
        ("std::process::Command::new(\"x\");", "std::process::Command"),
        ("std::collections::HashMap::<u8, u8>::new();", "std::collections::HashMap"),
        ("std::collections::HashSet::<u8>::new();", "std::collections::HashSet"),
        ("std::hash::RandomState::new();", "std::hash::RandomState"),
        ("println!();", "std::println"),
    ];
    let body: String = impure.iter().map(|(line, _)| format!("    let _ = {line}\n")).collect();
    let directory = tempfile::tempdir().expect("a directory can be made");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("src")).expect("a directory can be made");
    fs::copy(root().join("runtime/kernel/clippy.toml"), at("clippy.toml")).expect("the kernel has a clippy.toml");
    fs::write(at("src/lib.rs"), format!("//! Impure.\n/// Impure.\npub fn impure() {{\n{body}}}\n")).expect("written");
    fs::write(at("Cargo.toml"), "[package]\nname = \"impure\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n")
        .expect("written");
    let clippy = Command::new(cargo())
        .current_dir(directory.path())
        .args(["clippy", "--offline", "--color", "never"])
        .env("CARGO_TARGET_DIR", at("target"))
        .env_remove("CLIPPY_CONF_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo can be run");
    let said = String::from_utf8_lossy(&clippy.stderr);
    if said.contains("no such command") || said.contains("is not installed") {
        println!("SKIPPED: cargo clippy is not installed");
        return;
    }
    for (line, banned) in impure {
        let bites =
            ["type", "method", "macro"].iter().any(|kind| said.contains(&format!("disallowed {kind} `{banned}`")));
        assert!(bites, "the kernel may write {line} (DESIGN, invariant 1); clippy said:\n{said}");
    }
}

#[test]
fn no_source_names_a_place_on_somebodys_machine() {
    for file in sources() {
        let text = fs::read_to_string(&file).expect("a source is text");
        // Assembled here, so that this file does not contain them.
        for place in ["home", "Users", "work"].map(|top| format!("\"/{top}/")) {
            assert!(!text.contains(&place), "{} names {place}…", file.display());
        }
    }
}

#[test]
fn every_section_that_a_source_cites_is_in_the_semantics() {
    let page = fs::read_to_string(root().join("docs/semantics.md")).expect("the semantics are written down");
    let mut cited = 0;
    for file in sources() {
        let text = fs::read_to_string(&file).expect("a source is text");
        // Text of a heading before its number, by the cited document.
        for (document, heading) in [("SPEC", "## "), ("DESIGN", "## DESIGN ")] {
            for rest in text.split(&format!("{document} section ")).skip(1) {
                let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
                if number.is_empty() {
                    continue;
                }
                let wanted = format!("{heading}{number}. ");
                assert!(
                    page.lines().any(|line| line.starts_with(&wanted)),
                    "{} cites {document} section {number}, and docs/semantics.md has no {wanted:?}",
                    file.display()
                );
                cited += 1;
            }
        }
    }
    assert!(cited > 20, "the citations were found: {cited}");
}

#[test]
fn the_code_map_names_only_files_that_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    let paths: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| is_path(word)).collect();
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
}

#[test]
fn first_pages_are_short() {
    for (page, most) in [("README.md", 120), ("ARCHITECTURE.md", 150)] {
        let lines = fs::read_to_string(root().join(page)).expect("the page is there").lines().count();
        assert!(lines <= most, "{page} has {lines} lines, and may have {most}: move details to a page of docs");
    }
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    let mut links = 0;
    for page in files(".md") {
        let text = fs::read_to_string(&page).expect("a page is text");
        for found in link.captures_iter(&text) {
            let target = &found[1];
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { page.clone() } else { page.with_file_name("").join(path) };
            assert!(file.exists(), "{} links to {target}, which does not exist", page.display());
            if !heading.is_empty() && path.ends_with(".md") {
                let headings = headings(&file);
                assert!(headings.contains(heading), "{} links to {target}; its headings: {headings:?}", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 300, "{links} links");
}

/// Returns the names under which the headings of a page can be linked.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).expect("a page is text");
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let name = |title: &str| {
        let kept = title.to_lowercase().replace(|c: char| !(c.is_alphanumeric() || "-_ ".contains(c)), "");
        kept.replace(' ', "-")
    };
    titles.map(name).collect()
}

/// `cargo xtask fuzz` builds with that lock file, and only the full tier runs it.
#[test]
fn the_lock_file_of_the_fuzz_runner_matches_the_workspace() {
    let lock = fs::read_to_string(root().join("tests/fuzz/runner/Cargo.lock")).expect("the runner has a lock file");
    let quoted = |line: &str| line.split('"').nth(1).map(|text| text.split(' ').next().unwrap_or(text).to_owned());
    let locked: BTreeMap<String, BTreeSet<String>> = lock
        .split("[[package]]")
        .filter_map(|package| {
            let name = quoted(package.lines().find(|line| line.starts_with("name = "))?)?;
            Some((name, package.lines().filter(|line| line.starts_with(' ')).filter_map(quoted).collect()))
        })
        .collect();
    for (name, built_of) in packages().iter().filter(|(name, _)| locked.contains_key(*name)) {
        assert_eq!(locked[name], *built_of, "{name}: run `cargo update --workspace` in tests/fuzz/runner");
    }
    assert!(locked.contains_key("patchboard-kernel"));
}

/// Returns true if words in backquotes are a path in the repository: they begin with one of its folders.
fn is_path(words: &str) -> bool {
    let tops = ["runtime/", "agents/", "daemon/", "blueprints/", "evals/", "examples/", "tests/", "xtask/", "docs/"];
    tops.iter().any(|top| words.starts_with(top)) && !words.contains(['*', ' ', '{', '<', '…'])
}

/// Returns the crates of the workspace with the names of their dependencies, those of tests excluded.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("there are packages").iter();
    packages
        .map(|package| {
            let name = package["name"].as_str().expect("a package has a name").to_owned();
            let dependencies = package["dependencies"].as_array().expect("a list").iter();
            let built_of = dependencies.filter(|dependency| dependency["kind"] != "dev");
            (name, built_of.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect())
        })
        .collect()
}

/// Returns the metadata of the workspace from cargo.
fn metadata() -> Value {
    let metadata = Command::new(cargo())
        .current_dir(root())
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .expect("cargo can be run");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    serde_json::from_slice(&metadata.stdout).expect("cargo metadata is JSON")
}

/// Returns every Rust source of the workspace.
pub(crate) fn sources() -> Vec<PathBuf> {
    files(".rs")
}

/// Returns the files of the workspace with this ending.
pub(crate) fn files(ending: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("a folder can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
                folders.push(path);
            } else if name.ends_with(ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the workspace").to_owned()
}
