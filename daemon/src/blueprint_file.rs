//! Reads a blueprint from disk with its fragments, and shows what the lint found in it.
//!
//! A blueprint is not trusted with the machine (SPEC section 11): its fragments and departments are files below its own
//! directory, and nothing else is opened for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::lint::{self, Diagnostic, FINDINGS_MAX, OpaquePlace, Report, Severity};
use patchboard_kernel::source::{self, Source};
use patchboard_runtime::runtime::RuntimeError;
use serde_json::Value;

use crate::department_tests;
use crate::diagnostics;
use crate::drive;
use crate::failure::Failure;
use crate::given::{self, STDIN};
use crate::output::Output;

/// The code of a blueprint that cannot be read.
const UNREADABLE: &str = "blueprint_unreadable";

/// What to do about it.
const UNREADABLE_HELP: &str = "name a blueprint file, in YAML or JSON";

/// The most entries of a directory that is looked through for folders.
const ENTRIES_MAX: usize = 1000;

/// A blueprint as read.
pub(crate) struct Reading {
    /// The file, as the user named it.
    name: String,
    /// What the file and its fragments hold; the file itself under the empty name.
    texts: BTreeMap<String, String>,
    /// Its values with their positions; none if it could not be read.
    source: Option<Source>,
    /// What the lint made of it.
    pub(crate) report: Report,
    /// How many tests of departments were run.
    pub(crate) tests: usize,
}

/// Reads and checks a blueprint.
///
/// # Errors
/// The file cannot be read. What is wrong *in* it is in the report.
pub(crate) fn read(path: &Path) -> Result<Reading, Failure> {
    let name = path.display().to_string();
    let text = text_of(path)
        .map_err(|why| Failure::refused(UNREADABLE, format!("{name} cannot be read: {why}")).help(UNREADABLE_HELP))?;
    Ok(read_text(path, name, text))
}

/// The same; a file that cannot be read is a finding among others.
pub(crate) fn read_or_find(path: &Path) -> Reading {
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
            let report = refused(vec![finding]);
            Reading { name, texts: BTreeMap::new(), source: None, report, tests: 0 }
        }
    }
}

fn read_text(path: &Path, name: String, text: String) -> Reading {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut texts = BTreeMap::from([(String::new(), text.clone())]);
    let read = Source::read(&name, &text).map_err(|finding| vec![finding]);
    let read = read.and_then(|source| source::resolve(source, &mut Below { directory, texts: &mut texts }));
    let (source, report) = match read {
        Err(findings) => (None, refused(findings)),
        Ok(source) => {
            let report = lint::check(&source);
            (Some(source), report)
        }
    };
    Reading { name, texts, source, report, tests: 0 }
}

/// The files below a blueprint's directory, whose texts are kept.
struct Below<'a> {
    directory: &'a Path,
    texts: &'a mut BTreeMap<String, String>,
}

impl source::Files for Below<'_> {
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
            // A link to a folder is one, if it leads to one below the directory: its manifest is opened like any file.
            let is_folder = entry.path().is_dir();
            let name = entry.file_name().into_string().map_err(|_| "a folder's name is not UTF-8".to_owned())?;
            if is_folder && !name.starts_with('.') {
                folders.push(name);
            }
        }
        Ok(folders)
    }
}

/// What is reported of a file that holds no blueprint.
fn refused(findings: Vec<Diagnostic>) -> Report {
    Report { blueprint: None, findings, opaque: Vec::new() }
}

/// Returns the request of a board that is made of a blueprint.
pub(crate) type Given<'a> = dyn Fn(&Blueprint) -> Result<Value, Failure> + 'a;

/// The blueprint of a file, or an error that holds everything that is wrong with it. Findings that refuse nothing are
/// printed as progress, with those on a board that is begun with the request, if one is given. What views have no room for, the board
/// itself tells.
pub(crate) fn accepted(path: &Path, given: Option<&Given<'_>>, output: Output) -> Result<Blueprint, Failure> {
    let mut reading = read(path)?;
    if let (Some(given), false, Some(blueprint), Some(source)) =
        (given, output.is_json(), &reading.report.blueprint, &reading.source)
    {
        // A request that makes no board is refused where the board is made.
        let request = given(blueprint).ok();
        let found = request.and_then(|request| lint::check_beginning(source, blueprint.clone(), request).ok());
        let found = found.unwrap_or_default();
        let is_told_here = |finding: &Diagnostic| !lint::IS_OF_VIEWS.contains(&finding.code);
        reading.report.findings.extend(found.into_iter().filter(is_told_here));
    }
    if !output.is_json() {
        let refused = reading.report.blueprint.is_none();
        for finding in &reading.report.findings {
            let text = reading.text(finding);
            if refused {
                output.complaint(text.trim_end());
            } else {
                output.note(text.trim_end());
            }
        }
    }
    let findings = reading.report.findings.iter().map(|finding| reading.json(finding)).collect();
    let errors = reading.count(Severity::Error);
    reading.report.blueprint.ok_or_else(|| {
        Failure::refused("blueprint_refused", format!("{} has {}", path.display(), plural(errors, "error")))
            .help(format!("mend what `patchboard check {}` shows", path.display()))
            .detail("findings", Value::Array(findings))
    })
}

impl Reading {
    /// The same with the tests of its departments, where nothing else is wrong with it.
    pub(crate) fn tested(mut self) -> Self {
        if self.report.blueprint.is_some() {
            for (name, text) in &self.texts {
                let (tests, findings) = department_tests::run(name, text);
                self.tests += tests;
                self.report.findings.extend(findings);
            }
        }
        self.report.findings.truncate(FINDINGS_MAX);
        self
    }

    /// Adds findings on a board that is begun with this request: what its workers may read and their views have no room for.
    /// `context` returns the tokens that prompt and reply of a model may have together.
    ///
    /// # Errors
    /// The request makes no board.
    pub(crate) fn begun(
        mut self,
        request: &Value,
        context: &dyn Fn(Option<&str>) -> Option<u32>,
    ) -> Result<Self, Failure> {
        let (Some(blueprint), Some(source)) = (&self.report.blueprint, &self.source) else { return Ok(self) };
        let mut blueprint = blueprint.clone();
        blueprint.fit_views(context);
        let found = lint::check_beginning(source, blueprint, request.clone());
        self.report.findings.extend(found.map_err(|error| drive::failure(RuntimeError::Board(error)))?);
        self.report.findings.truncate(FINDINGS_MAX);
        Ok(self)
    }

    /// How many findings are this bad.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.report.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// One finding as text of several lines.
    pub(crate) fn text(&self, finding: &Diagnostic) -> String {
        let text = self.texts.get(finding.file.as_deref().unwrap_or_default());
        diagnostics::text(finding, &self.path(finding.file.as_deref()), text.map_or("", String::as_str))
    }

    /// One finding as JSON.
    pub(crate) fn json(&self, finding: &Diagnostic) -> Value {
        let mut value = diagnostics::json(finding);
        value["file"] = self.path(finding.file.as_deref()).into();
        value
    }

    /// One opaque place as a line.
    pub(crate) fn opaque_text(&self, opaque: &OpaquePlace) -> String {
        diagnostics::opaque_text(opaque, &self.path(opaque.file.as_deref()))
    }

    /// One opaque place as JSON.
    pub(crate) fn opaque_json(&self, opaque: &OpaquePlace) -> Value {
        diagnostics::opaque_json(opaque, &self.path(opaque.file.as_deref()))
    }

    /// The file that a fragment is, or the blueprint itself, as a path the user can open.
    fn path(&self, fragment: Option<&str>) -> String {
        match fragment {
            None => self.name.clone(),
            Some(fragment) => Path::new(&self.name).with_file_name("").join(fragment).display().to_string(),
        }
    }
}

/// `1 error`, `2 errors`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Where a fragment is, if it lies below the blueprint's directory, symbolic links followed.
fn fragment_path(directory: &Path, fragment: &str) -> Result<PathBuf, String> {
    let within = directory.canonicalize().map_err(|error| error.to_string())?;
    let path = within.join(fragment).canonicalize().map_err(|error| error.to_string())?;
    if path.starts_with(&within) { Ok(path) } else { Err("it lies outside the blueprint's directory".to_owned()) }
}

/// The text of a file, no more of it than a blueprint may have: the reader refuses what is longer.
fn text_of(path: &Path) -> Result<String, String> {
    if path != Path::new(STDIN) && !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let bytes = given::beginning(path, u64::try_from(source::BYTES_MAX).unwrap_or(u64::MAX))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // A file that was cut within a character is too long, which the reader says better.
        Err(error) if error.as_bytes().len() > source::BYTES_MAX => Ok(" ".repeat(source::BYTES_MAX + 1)),
        Err(error) => Err(format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to())),
    }
}
