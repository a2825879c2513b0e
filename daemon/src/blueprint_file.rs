//! Reads a blueprint and its fragments from disk, and formats lint findings.
//!
//! A blueprint is untrusted input (SPEC section 11): fragments and manifests of departments must lie below the
//! blueprint's directory. No other file is opened for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::text::counted;
use patchboard_lint::source::{self, Source};
use patchboard_lint::{Diagnostic, FINDINGS_MAX, OpaquePlace, Report, Severity};
use patchboard_protocols::PLANS;
use patchboard_runtime::error::RuntimeError;
use serde_json::Value;

use crate::diagnostics;
use crate::failure::Failure;
use crate::input::{self, STDIN};
use crate::manifest_checks;
use crate::output::Output;

const UNREADABLE: &str = "blueprint_unreadable";

const UNREADABLE_HELP: &str = "name a blueprint file, in YAML or JSON";

/// Upper bound on directory entries scanned for folders.
const ENTRIES_MAX: usize = 1000;

/// Blueprint that was read, with the lint's report.
pub(crate) struct CheckedBlueprint {
    /// File name, as the user gave it.
    name: String,
    /// Texts of the file and of its fragments by name; the file itself has the empty name.
    texts: BTreeMap<String, String>,
    /// Parsed values with their positions; `None` if the file could not be parsed.
    source: Option<Source>,
    pub(crate) report: Report,
    /// Number of department tests that were run.
    pub(crate) tests: usize,
}

/// Reads and checks a blueprint. Errors *in* the blueprint are findings of the report.
pub(crate) fn read(path: &Path) -> Result<CheckedBlueprint, Failure> {
    let name = path.display().to_string();
    let text = text_of(path).map_err(|why| {
        Failure::invalid_input(UNREADABLE, format!("{name} cannot be read: {why}")).help(UNREADABLE_HELP)
    })?;
    Ok(read_text(path, name, text))
}

/// Like [`read`], but reports an unreadable file as a finding.
pub(crate) fn read_or_find(path: &Path) -> CheckedBlueprint {
    let name = path.display().to_string();
    match text_of(path) {
        Ok(text) => read_text(path, name, text),
        Err(why) => {
            let finding = Diagnostic {
                severity: Severity::Error,
                code: UNREADABLE,
                pointer: String::new(),
                position: None,
                file: None,
                message: format!("{name} cannot be read: {why}"),
                help: UNREADABLE_HELP.to_owned(),
            };
            let report = unparsed_report(vec![finding]);
            CheckedBlueprint { name, texts: BTreeMap::new(), source: None, report, tests: 0 }
        }
    }
}

fn read_text(path: &Path, name: String, text: String) -> CheckedBlueprint {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut texts = BTreeMap::from([(String::new(), text.clone())]);
    let read = Source::read(&name, &text).map_err(|finding| vec![finding]);
    let read = read
        .and_then(|source| patchboard_protocols::resolve(source, &mut DirectoryFiles { directory, texts: &mut texts }));
    let (source, report) = match read {
        Err(findings) => (None, unparsed_report(findings)),
        Ok(source) => {
            let report = patchboard_protocols::check(&source);
            (Some(source), report)
        }
    };
    CheckedBlueprint { name, texts, source, report, tests: 0 }
}

/// Reads files below a blueprint's directory and keeps their texts.
struct DirectoryFiles<'a> {
    directory: &'a Path,
    texts: &'a mut BTreeMap<String, String>,
}

impl source::FileLoader for DirectoryFiles<'_> {
    fn text(&mut self, name: &str) -> Result<String, String> {
        let text = text_of(&fragment_path(self.directory, name)?)?;
        self.texts.insert(name.to_owned(), text.clone());
        Ok(text)
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let path = fragment_path(self.directory, name)?;
        let mut folders = Vec::new();
        for (number, entry) in std::fs::read_dir(path).map_err(|error| error.to_string())?.enumerate() {
            if number >= ENTRIES_MAX {
                return Err(format!("it has more than {ENTRIES_MAX} entries"));
            }
            let entry = entry.map_err(|error| error.to_string())?;
            // A symbolic link to a folder counts as a folder. `fragment_path` checks that its manifest lies below the
            // directory.
            let is_folder = entry.path().is_dir();
            let name = entry.file_name().into_string().map_err(|_| "a folder's name is not UTF-8".to_owned())?;
            if is_folder && !name.starts_with('.') {
                folders.push(name);
            }
        }
        Ok(folders)
    }
}

/// Returns the report of a file that holds no blueprint.
fn unparsed_report(findings: Vec<Diagnostic>) -> Report {
    Report { blueprint: None, findings, opaque: Vec::new() }
}

pub(crate) type MakeRequest<'a> = dyn Fn(&Blueprint) -> Result<Value, Failure> + 'a;

/// Reads a blueprint, or returns an error with all of its findings. Warnings are printed as progress, with those of a
/// board created from the request, if one is given. Findings about view space are left to the running board.
pub(crate) fn read_valid(
    path: &Path,
    make_request: Option<&MakeRequest<'_>>,
    output: Output,
) -> Result<Blueprint, Failure> {
    let mut reading = read(path)?;
    if let (Some(make_request), false, Some(blueprint), Some(source)) =
        (make_request, output.is_json(), &reading.report.blueprint, &reading.source)
    {
        // Creating the board reports an invalid request.
        let request = make_request(blueprint).ok();
        let found = request
            .and_then(|request| patchboard_lint::check_with_request(source, blueprint.clone(), request, &PLANS).ok());
        let found = found.unwrap_or_default();
        let is_relevant = |finding: &Diagnostic| !patchboard_lint::VIEW_CODES.contains(&finding.code);
        reading.report.findings.extend(found.into_iter().filter(is_relevant));
    }
    if !output.is_json() {
        let refused = reading.report.blueprint.is_none();
        for finding in &reading.report.findings {
            let text = reading.text(finding);
            if refused {
                output.error_context(text.trim_end());
            } else {
                output.note(text.trim_end());
            }
        }
    }
    let findings = reading.report.findings.iter().map(|finding| reading.json(finding)).collect();
    let errors = reading.count(Severity::Error);
    reading.report.blueprint.ok_or_else(|| {
        Failure::invalid_input("blueprint_refused", format!("{} has {}", path.display(), counted(errors, "error")))
            .help(format!("fix what `patchboard check {}` reports", path.display()))
            .detail("findings", Value::Array(findings))
    })
}

impl CheckedBlueprint {
    /// Runs the tests of the departments, if the blueprint has no errors.
    pub(crate) fn run_tests(mut self) -> Self {
        if self.report.blueprint.is_some() {
            for (name, text) in &self.texts {
                let (tests, findings) = manifest_checks::run(name, text);
                self.tests += tests;
                self.report.findings.extend(findings);
            }
        }
        self.report.findings.truncate(FINDINGS_MAX);
        self
    }

    /// Adds findings on a board created with this request: what its workers may read and what exceeds their views.
    /// `context` returns a model's context length in tokens, prompt and reply together.
    pub(crate) fn check_with_request(
        mut self,
        request: &Value,
        context: &dyn Fn(Option<&str>) -> Option<u32>,
    ) -> Result<Self, Failure> {
        let (Some(blueprint), Some(source)) = (&self.report.blueprint, &self.source) else { return Ok(self) };
        let mut blueprint = blueprint.clone();
        blueprint.fit_views(context);
        let found = patchboard_lint::check_with_request(source, blueprint, request.clone(), &PLANS);
        self.report.findings.extend(found.map_err(RuntimeError::Board)?);
        self.report.findings.truncate(FINDINGS_MAX);
        Ok(self)
    }

    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.report.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    pub(crate) fn text(&self, finding: &Diagnostic) -> String {
        let text = self.texts.get(finding.file.as_deref().unwrap_or_default());
        diagnostics::text(finding, &self.path(finding.file.as_deref()), text.map_or("", String::as_str))
    }

    pub(crate) fn json(&self, finding: &Diagnostic) -> Value {
        let mut value = diagnostics::json(finding);
        value["file"] = self.path(finding.file.as_deref()).into();
        value
    }

    pub(crate) fn opaque_text(&self, opaque: &OpaquePlace) -> String {
        diagnostics::opaque_text(opaque, &self.path(opaque.file.as_deref()))
    }

    pub(crate) fn opaque_json(&self, opaque: &OpaquePlace) -> Value {
        diagnostics::opaque_json(opaque, &self.path(opaque.file.as_deref()))
    }

    /// Returns the path of a fragment, or of the blueprint itself, for display.
    fn path(&self, fragment: Option<&str>) -> String {
        match fragment {
            None => self.name.clone(),
            Some(fragment) => Path::new(&self.name).with_file_name("").join(fragment).display().to_string(),
        }
    }
}

/// Returns a fragment's canonical path, if it lies below the blueprint's directory after following symbolic links.
fn fragment_path(directory: &Path, fragment: &str) -> Result<PathBuf, String> {
    let within = directory.canonicalize().map_err(|error| error.to_string())?;
    let path = within.join(fragment).canonicalize().map_err(|error| error.to_string())?;
    if path.starts_with(&within) { Ok(path) } else { Err("it lies outside the blueprint's directory".to_owned()) }
}

/// Reads a file as text, up to just over the blueprint size limit; the parser rejects longer texts.
fn text_of(path: &Path) -> Result<String, String> {
    if path != Path::new(STDIN) && !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let bytes = input::read_prefix(path, u64::try_from(source::BYTES_MAX).unwrap_or(u64::MAX))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // A file cut within a character is too long. Returning an oversized text lets the parser report that.
        Err(error) if error.as_bytes().len() > source::BYTES_MAX => Ok(" ".repeat(source::BYTES_MAX + 1)),
        Err(error) => Err(format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to())),
    }
}
