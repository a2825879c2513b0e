//! Modules of a crate form no circles. A module and those inside it are one thing, and may use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use regex::Regex;

use crate::tidy::{root, sources};

/// Segments of a module's path in its crate; none for the crate itself.
type Module = Vec<String>;

static USES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\buse\s+([^;]+);").expect("a pattern"));
static PATHS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b((?:crate|super)(?:::\w+)+)").expect("a pattern"));
static COMMENTS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"//[^\n]*").expect("a pattern"));

#[test]
fn modules_form_no_circles() {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for file in sources() {
        let place = file.strip_prefix(root()).expect("a file of the workspace").to_string_lossy().into_owned();
        let Some((name, inside)) = place.split_once("/src/") else { continue };
        if name.starts_with("tests") || inside.contains("tests") {
            continue;
        }
        let text = fs::read_to_string(root().join(&place)).expect("a source");
        crates.entry(name.to_owned()).or_default().insert(module_of(inside), text);
    }
    assert!(crates.len() > 10, "the crates were found: {:?}", crates.keys());
    let mut found = BTreeSet::new();
    for (name, modules) in &crates {
        for circle in circles(modules) {
            found.insert(format!("{name}: {}", circle.join(" ")));
        }
    }
    assert!(found.is_empty(), "circles of modules: {found:#?}");
}

#[test]
fn a_circle_is_found_and_a_parent_with_its_children_is_none() {
    let modules = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        files.iter().map(|(file, text)| (module_of(file), (*text).to_owned())).collect()
    };
    let family = modules(&[("a/mod.rs", "use self::b::C;"), ("a/b.rs", "use super::D; use crate::a::{self, E};")]);
    assert!(circles(&family).is_empty());
    let siblings = modules(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::{b::{C, D as E}, c};"),
        ("b.rs", "fn f() { super::c::d::g() }"),
        ("c/d.rs", "use crate::a; // use crate::z;"),
    ]);
    assert_eq!(circles(&siblings), [["a", "b", "c/d"]]);
}

/// Returns the module of a file below `src`.
fn module_of(file: &str) -> Module {
    let mut path: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    path.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    path
}

/// Returns the circles among modules that are not inside each other.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let numbers: Vec<&Module> = modules.keys().collect();
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<NodeIndex> = numbers.iter().map(|_| graph.add_node(())).collect();
    for (from, module) in numbers.iter().enumerate() {
        for used in used(module, &modules[*module]) {
            // The longest beginning that is a module.
            let target = (0..=used.len()).rev().find_map(|end| numbers.iter().position(|one| **one == used[..end]));
            if let Some(to) = target
                && !numbers[to].starts_with(module)
                && !module.starts_with(numbers[to])
            {
                graph.add_edge(nodes[from], nodes[to], ());
            }
        }
    }
    let mut circles: Vec<Vec<String>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|circle| circle.len() > 1)
        .map(|circle| {
            let mut names: Vec<String> = circle.into_iter().map(|node| numbers[node.index()].join("/")).collect();
            names.sort();
            names
        })
        .collect();
    circles.sort();
    circles
}

/// Returns the paths in the crate that a module's text uses.
fn used(module: &Module, text: &str) -> Vec<Module> {
    let text = COMMENTS.replace_all(text, "");
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut paths = Vec::new();
    for tree in USES.captures_iter(text) {
        expand(String::new(), &tree[1], &mut paths);
    }
    let rest = USES.replace_all(text, "");
    paths.extend(PATHS.captures_iter(&rest).map(|path| path[1].to_owned()));
    paths.iter().filter_map(|path| resolved(module, path)).collect()
}

/// Adds the paths of a tree of `use`, without spaces.
fn expand(prefix: String, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((before, inner)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return paths.push(format!("{prefix}{}", path.trim()));
    };
    let prefix = format!("{prefix}{}", before.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(prefix.clone(), &inner[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        expand(prefix, &inner[start..], paths);
    }
}

/// Resolves a path to one from the root of the crate; `None` if it leads out of the crate.
fn resolved(module: &Module, path: &str) -> Option<Module> {
    let mut segments = path.split("::").peekable();
    let mut base: Module = match segments.next()? {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    while segments.next_if_eq(&"super").is_some() {
        base.pop()?;
    }
    base.extend(segments.filter(|segment| *segment != "self").map(str::to_owned));
    Some(base)
}

#[test]
fn a_file_names_its_module() {
    assert_eq!(module_of("board/decide/dispatch.rs"), ["board", "decide", "dispatch"]);
    assert_eq!(module_of("board/mod.rs"), ["board"]);
    assert_eq!(module_of("lib.rs"), Module::new());
}
