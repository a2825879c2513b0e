//! Includes the department folders of `departments:` into the blueprint that names their directory. Each becomes a
//! nested board and a worker that runs it.
//!
//! Folders are not listed one by one: a new folder is a new department, without other changes.

use std::sync::LazyLock;

use crate::department::{
    Departments, Expansion, Manifest, NO_ACTION, NO_DEPARTMENT, OPEN_QUESTION, PENDING, ROLE_BYTES_MAX, expand, role,
};
use patchboard_lint::extension::Expanded;
use patchboard_lint::source::{FileLoader, Source, child, object_at};
use patchboard_lint::{Diagnostic, MetaSchema, suggest};

/// Maximum departments of one blueprint: each takes one of its 64 seats, and others are needed to trigger them.
pub const DEPARTMENTS_MAX: usize = 48;

/// Schema of manifests, as published for editors.
pub const DEPARTMENT_SCHEMA: &str = include_str!("../../../../blueprints/department.schema.json");

static SCHEMA: LazyLock<MetaSchema> = LazyLock::new(|| {
    let meta = serde_json::from_str(DEPARTMENT_SCHEMA).expect("the schema is part of this crate and tested");
    MetaSchema::new("the manifest", meta)
});

/// Manifest file of a department's folder.
const MANIFEST: &str = "department.yaml";

/// Replaces `departments` by the contents of its folders. A malformed one is left for the lint. `file` is the file of
/// the source itself. Fails with all findings about the directory and the manifests, in folder order.
pub(crate) fn resolve(source: &mut Source, files: &mut dyn FileLoader, file: Option<&String>) -> Expanded {
    let declared = source.value().get("departments").cloned();
    let Some(declared) = declared.and_then(|value| serde_json::from_value::<Departments>(value).ok()) else {
        return Ok(());
    };
    let here = |code, message: String, help: &str, source: &Source| {
        Diagnostic::at(source, code, "/departments/from", message, help).or_in_file(file)
    };
    let from = declared.from.trim_end_matches('/');
    let mut folders = files.folders(from).map_err(|reason| {
        let message = format!("the directory `{from}` cannot be read: {reason}");
        let help = "Departments are folders in a directory below the blueprint's own, named relative to that.";
        vec![here("fragment_unreadable", message, help, source)]
    })?;
    folders.sort();
    if folders.len() > DEPARTMENTS_MAX {
        let message = format!("`{from}` has {} folders, more than {DEPARTMENTS_MAX}", folders.len());
        return Err(vec![here("fragment_limit", message, "Put some of the departments elsewhere.", source)]);
    }
    let mut findings = Vec::new();
    for folder in &folders {
        let name = format!("{from}/{folder}/{MANIFEST}");
        match files.text(&name) {
            Ok(text) => {
                let found = include(source, &declared, folder, &name, &text).err().unwrap_or_default();
                findings.extend(found.into_iter().map(|finding| finding.in_file(&name)));
            }
            Err(reason) => {
                let message = format!("the manifest `{name}` cannot be read: {reason}");
                let help = format!("Every folder in `{from}` is a department, and its `{MANIFEST}` says what it is.");
                findings.push(here("fragment_unreadable", message, &help, source));
            }
        }
    }
    drop(source.take_member("departments"));
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// Adds the board and the worker of one department.
fn include(source: &mut Source, declared: &Departments, folder: &str, name: &str, text: &str) -> Expanded {
    let read = Source::read(name, text).map_err(|finding| vec![finding])?;
    let manifest = manifest(&read, folder)?;
    let mut unmet = unmet_needs(&manifest, declared, &read);
    unmet.extend(others_questions(&manifest, declared, &read));
    for holder in ["boards", "workers"] {
        if source.value()[holder].get(&manifest.name).is_some() {
            let message = format!("`{}` is in `{holder}` already", manifest.name);
            let help = "Rename one of the two; a department overrides nothing.";
            unmet.push(Diagnostic::at(&read, "fragment_clash", "/name", message, help));
        }
    }
    if !unmet.is_empty() {
        return Err(unmet);
    }
    let models = source.value().get("models").filter(|models| models.get("default").is_some());
    let Expansion { board, worker, reads } = expand(&manifest, declared, models);
    for (holder, value) in [("/boards", board), ("/workers", worker)] {
        let at = child(holder, &manifest.name);
        // A value that is not an object there is reported by the lint.
        if let Some(members) = object_at(source.value_mut(), holder) {
            members.insert(manifest.name.clone(), value);
            source.set_location(&at, read.location(""));
        }
    }
    // Parts that are derived from the blueprint get its source positions.
    let at = child("/workers", &manifest.name);
    let mut from_here: Vec<(String, String)> = ["writes", "board/output", "board/failed"]
        .map(|part| (format!("{at}/{part}"), "/departments/into".to_owned()))
        .to_vec();
    let promise = |need: &str| child("/departments/promises", manifest.promise(need));
    for (index, need) in reads.iter().enumerate() {
        from_here.push((format!("{at}/reads/{index}"), promise(need)));
    }
    for need in manifest.needs.keys().map(String::as_str).chain([PENDING]) {
        from_here.push((child(&format!("{at}/board/input"), need), promise(need)));
    }
    for (pointer, origin) in from_here {
        let origin = source.location(&origin);
        source.set_location(&pointer, origin);
    }
    Ok(())
}

fn manifest(read: &Source, folder: &str) -> Result<Manifest, Vec<Diagnostic>> {
    let mut findings = Vec::new();
    SCHEMA.check(read, &mut findings);
    if !findings.is_empty() {
        return Err(findings);
    }
    let mut find = |pointer: &str, message: String, help: &str| {
        findings.push(Diagnostic::at(read, "bad_department", pointer, message, help));
    };
    let manifest = match serde_json::from_value::<Manifest>(read.value().clone()) {
        Ok(manifest) => manifest,
        // The schema is at least as strict as the model; a test enforces it.
        Err(error) => {
            find("", error.to_string(), HELP);
            return Err(findings);
        }
    };
    for problem in manifest.validation_errors() {
        find(&problem.pointer, problem.message, HELP);
    }
    if manifest.name != folder {
        let help = format!("Write `name: {folder}`, or rename the folder.");
        find("/name", format!("the folder is `{folder}`, not `{}`", manifest.name), &help);
    }
    if folder == NO_DEPARTMENT {
        let message = format!("`{NO_DEPARTMENT}` is who is chosen where no department fits");
        find("/name", message, "Call the department, and its folder, something else.");
    }
    if manifest.actions.contains_key(NO_ACTION) {
        let message = format!("`{NO_ACTION}` is what words are that no action fits");
        find(&child("/actions", NO_ACTION), message, "Call the action something else.");
    }
    for member in [PENDING, OPEN_QUESTION].into_iter().filter(|member| manifest.needs.contains_key(*member)) {
        let message = format!("`{member}` is what the department has asked before, and is never needed");
        find(&child("/needs", member), message, "Remove it: it is given where the blueprint promises it.");
    }
    if findings.is_empty() {
        let bytes = role(&manifest).len();
        if bytes > ROLE_BYTES_MAX {
            let message = format!("what classify is told of it has {bytes} bytes, more than {ROLE_BYTES_MAX}");
            let at = if manifest.examples.is_empty() { "/actions" } else { "/examples" };
            let help = "Shorten descriptions and examples, or make two departments of it.";
            findings.push(Diagnostic::at(read, "bad_department", at, message, help));
        }
    }
    if findings.is_empty() { Ok(manifest) } else { Err(findings) }
}

const HELP: &str = "docs/departments.md says what a manifest has.";

/// Returns findings for needs that are met with the questions of other departments.
fn others_questions(manifest: &Manifest, declared: &Departments, read: &Source) -> Vec<Diagnostic> {
    let place = |need: &str| declared.promises.get(manifest.promise(need)).or_else(|| declared.promises.get(need));
    let own: Vec<_> = [PENDING, OPEN_QUESTION].into_iter().filter_map(place).collect();
    let is_own = |need: &&String| declared.promises.get(manifest.promise(need)).is_some_and(|at| own.contains(&at));
    let finding = |need: &String| {
        let at = child(if manifest.dispatch.input.contains_key(need) { "/dispatch/input" } else { "/needs" }, need);
        let message = format!("`{need}` is what a department has asked, whichever that is");
        let help = "Remove it: what it has asked itself, a department is given without needing it.";
        Diagnostic::at(read, "bad_department", &at, message, help)
    };
    manifest.needs.keys().filter(is_own).map(finding).collect()
}

/// Returns findings for needs that are not promised.
fn unmet_needs(manifest: &Manifest, declared: &Departments, read: &Source) -> Vec<Diagnostic> {
    let unmet = manifest.needs.keys().filter(|need| !declared.promises.contains_key(manifest.promise(need)));
    let finding = |need: &String| {
        let mapped = manifest.dispatch.input.contains_key(need);
        let at = child(if mapped { "/dispatch/input" } else { "/needs" }, need);
        let need = manifest.promise(need);
        let message = format!("`{}` needs `{need}`, which the blueprint does not promise", manifest.name);
        let known = declared.promises.keys().map(String::as_str);
        let help = suggest(need, known, "The blueprint promises nothing.");
        let help = format!("{help} A blueprint promises it by `departments: {{promises: {{{need}: PLACE}}}}`.");
        Diagnostic::at(read, "unmet_need", &at, message, help).at_key(read)
    };
    unmet.map(finding).collect()
}
