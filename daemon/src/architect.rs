//! Has an architect write a blueprint: reads documents, shows progress and findings, and asks a person to approve the
//! result.

use std::io::{BufRead, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_agents::architect::{
    self, Design, DesignError, DesignRequest, Document, Round, RoundsUsage, design, prompt,
};
use patchboard_agents::config::DesignLimits;
use patchboard_agents::registry::InlinePrograms;
use patchboard_kernel::admission::Admission;
use patchboard_lint::{Diagnostic, Severity};
use serde::Serialize;
use serde_json::{Value, json};

use crate::describe::grouped;
use crate::diagnostics;
use crate::failure::Failure;
use crate::input;
use crate::output::{Output, clean, json_pretty, one_line, try_writing};
use crate::worker_agents::{ModelArguments, quoted};
use patchboard_kernel::text::counted;

const DOCUMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum bytes of an answer line that are read at once.
const LINE_BYTES_MAX: u64 = 1024;

const DOCUMENTS_MAX: usize = 1000;

/// Options of the architect.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Architect")]
pub(crate) struct ArchitectArguments {
    /// Text files to store at /request/documents, a list of {title, text}; the architect sees names, sizes and
    /// beginnings
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) documents: Vec<PathBuf>,
    /// Write the blueprint to this new file; a request written by the model goes to *.request.json beside it
    #[arg(long, short, value_name = "FILE", group = "written")]
    pub(crate) out: Option<PathBuf>,
    /// Show the blueprint and continue only if you approve it
    #[arg(long)]
    pub(crate) approve: bool,
    /// Maximum number of repairs, 0 to 10: findings are sent back to the model [default: 3, or the value in
    /// patchboard.toml]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub(crate) repairs: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlueprintApproval {
    Approved,
    Denied,
    /// No terminal to ask at.
    NoTerminal,
}

impl ArchitectArguments {
    /// Rejects architect flags in a command without an architect.
    pub(crate) fn require_architect(&self) -> Result<(), Failure> {
        let given = [("--out", self.out.is_some()), ("--approve", self.approve), ("--repairs", self.repairs.is_some())];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::invalid_input("usage", format!("{flag} is for --architect"))
                .help("give --architect TASK instead of a blueprint")),
        }
    }

    /// Returns the architect's task.
    ///
    /// A board's request may be given, with room for the documents; otherwise the model writes it if `wants_input`.
    /// Documents and request together must fit into a board's state size limit.
    pub(crate) fn brief(
        &self,
        request: &str,
        input: Option<Value>,
        wants_input: bool,
        state_bytes: u64,
    ) -> Result<DesignRequest, Failure> {
        let request = match request.strip_prefix('@') {
            Some(file) => text_of(Path::new(file)).map_err(|why| unreadable(Path::new(file), &why))?,
            None => request.to_owned(),
        };
        let chars = request.trim().chars().count();
        if chars == 0 || chars > prompt::REQUEST_MAX {
            let message = format!("the request has {chars} characters; 1 to {} are allowed", prompt::REQUEST_MAX);
            return Err(Failure::invalid_input("bad_request", message)
                .help("describe the task in a few sentences; put its material into --documents"));
        }
        let documents = self.read_documents(input.as_ref().unwrap_or(&Value::Null), state_bytes)?;
        Ok(DesignRequest { request, documents, input, wants_input })
    }

    /// Reads the documents. They must fit into a board's request and, together with it, into `state_bytes`.
    fn read_documents(&self, request: &Value, state_bytes: u64) -> Result<Vec<Document>, Failure> {
        if self.documents.is_empty() {
            return Ok(Vec::new());
        }
        check_accepts_documents(request)?;
        if self.documents.len() > DOCUMENTS_MAX {
            return Err(Failure::invalid_input("bad_request", format!("more than {DOCUMENTS_MAX} documents")));
        }
        let mut left = state_bytes.saturating_sub(json_bytes(request));
        let mut documents = Vec::with_capacity(self.documents.len());
        for path in &self.documents {
            let text = text_of(path).map_err(|why| unreadable(path, &why))?;
            let title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let document = Document { title, text };
            left = left.checked_sub(json_bytes(&document)).ok_or_else(|| {
                let message =
                    format!("the documents have more than the {state_bytes} bytes that a board's state may have");
                Failure::invalid_input("bad_request", message)
                    .help("give fewer documents, or the parts of them that matter")
            })?;
            documents.push(document);
        }
        Ok(documents)
    }

    pub(crate) fn with_documents(&self, request: Value, state_bytes: u64) -> Result<Value, Failure> {
        let documents = self.read_documents(&request, state_bytes)?;
        // The default is never used: a request without room for documents was rejected.
        Ok(architect::with_documents(request, &documents).unwrap_or_default())
    }

    /// Returns the architect's budget and grants.
    pub(crate) fn terms(&self, models: &ModelArguments, config: Option<&Path>) -> Result<DesignLimits, Failure> {
        Ok(self.override_terms(models.build_registry(config, InlinePrograms::Denied)?.config().architect.terms()))
    }

    /// Overrides the operator's terms with the flags.
    fn override_terms(&self, terms: DesignLimits) -> DesignLimits {
        DesignLimits { repairs: self.repairs.unwrap_or(terms.repairs), ..terms }
    }

    /// Checks, before any model call, that the blueprint and the request beside it can be written.
    pub(crate) fn can_write(&self, wants_input: bool, is_forced: bool) -> Result<(), Failure> {
        let Some(path) = &self.out else { return Ok(()) };
        check_writable(path, is_forced)?;
        if wants_input { check_writable(&request_path(path), is_forced) } else { Ok(()) }
    }

    /// Returns the documents as shell flags; empty, or with a leading space.
    pub(crate) fn to_flags(&self) -> String {
        let paths = self.documents.iter().map(|path| format!(" {}", quoted(&path.display().to_string())));
        let paths: String = paths.collect();
        if paths.is_empty() { paths } else { format!(" --documents{paths}") }
    }

    /// Asks for approval, if it is wanted, and writes an approved blueprint to its file. Fails if it is denied.
    pub(crate) fn approve_and_save(
        &self,
        design: &Design,
        brief: &DesignRequest,
        output: Output,
    ) -> Result<BlueprintApproval, Failure> {
        let word = if self.approve { ask_person(design, brief, output)? } else { BlueprintApproval::Approved };
        if word == BlueprintApproval::Denied {
            let failure = Failure::invalid_input("blueprint_denied", "the blueprint was not agreed to");
            return Err(failure.help("say the request in other words"));
        }
        if let Some(path) = &self.out {
            save(design, brief, path, output)?;
        }
        Ok(word)
    }

    /// Runs the architect, with progress output.
    /// Fails with `not_configured`, `no_blueprint` (with findings and last draft) or `architect_failed`.
    pub(crate) async fn draft(
        &self,
        brief: &DesignRequest,
        models: &ModelArguments,
        config: Option<&Path>,
        output: Output,
    ) -> Result<(Design, Admission), Failure> {
        let registry = models.build_registry(config, InlinePrograms::Denied)?;
        let (chat, admitted) = registry.architect().map_err(|why| {
            Failure::invalid_input("not_configured", why).help("give --model-url and --model, or add [models.default]")
        })?;
        let settings = &registry.config().architect;
        let terms = self.override_terms(settings.terms());
        let ask = async |prompt: &_| {
            output.note("the architect writes …");
            architect::ask(chat, settings, brief, &terms, prompt).await
        };
        let result = design(brief, &terms, ask, |round| print_round(round, output)).await;
        result.map(|design| (design, admitted)).map_err(|refusal| no_blueprint(&refusal, output))
    }
}

fn print_round(round: &Round, output: Output) {
    let tokens = round.usage.map_or(0, |usage| usage.total());
    let errors = round.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let verdict = match (&round.failure, errors, round.findings.len()) {
        (Some(failure), ..) => format!("no answer: {failure}"),
        (None, 0, 0) => "a blueprint without a finding".to_owned(),
        (None, 0, warnings) => format!("a blueprint with {}: {}", counted(warnings, "warning"), codes(&round.findings)),
        (None, errors, _) => format!("{}: {}", counted(errors, "error"), codes(&round.findings)),
    };
    output.note(&format!("the architect wrote {} tokens: {}", grouped(tokens), one_line(&verdict)));
}

fn codes(findings: &[Diagnostic]) -> String {
    let mut codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    codes.dedup();
    codes.join(", ")
}

/// Prints the errors of the last draft, and returns the failure.
fn no_blueprint(error: &DesignError, output: Output) -> Failure {
    let spent = RoundsUsage::from_rounds(error.rounds());
    let (draft, findings) =
        error.last_round_with_draft().map_or(("", &[][..]), |round| (round.draft.as_str(), round.findings.as_slice()));
    if !output.is_json() {
        if !draft.is_empty() {
            output.error_context(&format!("the last draft:\n{}", clean(draft).trim_end()));
        }
        for finding in findings {
            output.error_context(diagnostics::text(finding, "draft", draft).trim_end());
        }
    }
    let failure = match error {
        DesignError::NoBlueprint { .. } => Failure::invalid_input(error.code(), error)
            .help("say the request more simply, give --repairs more rounds, or ask a stronger model"),
        _ => Failure::failed(error.code(), error).help("see that the server answers, and try again"),
    };
    failure
        .detail("findings", findings.iter().map(diagnostics::json).collect())
        .detail("draft", draft.into())
        .detail("usage", spent_json(&spent))
        .detail("rounds", rounds_json(error.rounds()))
}

/// Returns the cost of all calls as JSON: `{"calls", "total", "prompt", "completion", "cached", "estimated",
/// "repairs"}`.
fn spent_json(spent: &RoundsUsage) -> Value {
    json!({
        "calls": spent.calls,
        "total": spent.usage.total(),
        "prompt": spent.usage.prompt,
        "completion": spent.usage.completion,
        "cached": spent.usage.cached,
        "estimated": spent.usage.estimated,
        "repairs": spent.repairs.total(),
    })
}

fn rounds_json(rounds: &[Round]) -> Value {
    let one = |round: &Round| {
        json!({
            "accepted": round.is_accepted(),
            "failure": round.failure.as_ref().map(|failure| failure.code.as_str()),
            "findings": round.findings.iter().map(diagnostics::json).collect::<Vec<_>>(),
            "tokens": round.usage.map(|usage| usage.total()),
        })
    };
    rounds.iter().map(one).collect()
}

pub(crate) fn warn(design: &Design, name: &str, output: Output) {
    if !output.is_json() {
        for finding in &design.findings {
            output.note(diagnostics::text(finding, name, &design.yaml).trim_end());
        }
    }
}

fn ask_person(design: &Design, brief: &DesignRequest, output: Output) -> Result<BlueprintApproval, Failure> {
    if !std::io::stdin().is_terminal() {
        return Ok(BlueprintApproval::NoTerminal);
    }
    output.error_context(clean(&design.yaml).trim_end());
    if let Some(input) = written_input(design, brief) {
        output.error_context(&format!("The board is given this request:\n{}", json_pretty(&input)));
    }
    decide(&mut std::io::stdin().lock(), &mut anstream::stderr())
}

/// Repeats the question until the answer is yes or no, or the input ends.
fn decide(answers: &mut impl BufRead, questions: &mut impl Write) -> Result<BlueprintApproval, Failure> {
    loop {
        // An error of writing the question does not prevent an answer.
        let _ = write!(questions, "Go on with this blueprint? [y/n] ").and_then(|()| questions.flush());
        let mut line = String::new();
        let read = answers.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        let read = read.map_err(|error| Failure::failed("input_failed", format!("no answer can be read: {error}")))?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(BlueprintApproval::Approved),
            "n" | "no" => return Ok(BlueprintApproval::Denied),
            _ if read == 0 => return Ok(BlueprintApproval::NoTerminal),
            _ => {}
        }
    }
}

/// Writes a blueprint to its file, and a request written by the model beside it. Prints them if that fails, since they
/// have been paid for.
fn save(design: &Design, brief: &DesignRequest, path: &Path, output: Output) -> Result<(), Failure> {
    let input = written_input(design, brief).map(|input| json_pretty(&input) + "\n");
    let files = [(path.to_owned(), Some(&design.yaml)), (request_path(path), input.as_ref())];
    for (path, text) in files.iter().filter_map(|(path, text)| Some((path, (*text)?))) {
        if let Err(error) = std::fs::write(path, text) {
            print_blueprint(design, output)?;
            if let Some(input) = &input {
                output.error_context(&format!("The board's request:\n{}", input.trim_end()));
            }
            return Err(Failure::failed("output_failed", format!("{} cannot be written: {error}", path.display())));
        }
        output.note(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Returns the part of the board's request that the model wrote, without the documents.
pub(crate) fn written_input(design: &Design, brief: &DesignRequest) -> Option<Value> {
    let mut input = design.input.clone().filter(|_| brief.input.is_none())?;
    if let Some(members) = input.as_object_mut().filter(|_| !brief.documents.is_empty()) {
        members.remove("documents");
    }
    Some(input)
}

/// Returns the path of a blueprint's request: `owls.request.json` beside `owls.yaml`.
pub(crate) fn request_path(blueprint: &Path) -> PathBuf {
    blueprint.with_extension("request.json")
}

/// Prints a blueprint to stdout; as JSON, with all details.
pub(crate) fn print_blueprint(design: &Design, output: Output) -> Result<(), Failure> {
    if output.is_json() { output.json(&design_json(design)) } else { output.file(&design.yaml) }
}

/// Returns `{"blueprint", "input", "rounds", "usage", "findings"}`.
fn design_json(design: &Design) -> Value {
    json!({
        "blueprint": design.blueprint,
        "input": design.input,
        "rounds": rounds_json(&design.rounds),
        "usage": spent_json(&RoundsUsage::from_rounds(&design.rounds)),
        "findings": design.findings.iter().map(diagnostics::json).collect::<Vec<_>>(),
    })
}

/// Rejects an unwritable file, or an existing file unless it may be overwritten.
fn check_writable(path: &Path, is_forced: bool) -> Result<(), Failure> {
    if path.is_file() && !is_forced {
        return Err(Failure::invalid_input("output_exists", format!("{} exists", path.display()))
            .help("give --force to write over it, or name another file"));
    }
    try_writing(path).map_err(|error| {
        Failure::invalid_input("output_failed", format!("{} cannot be written: {error}", path.display()))
            .help("name a file that can be written with -o")
    })
}

/// Rejects a request without room for documents.
fn check_accepts_documents(request: &Value) -> Result<(), Failure> {
    let why = match request {
        Value::Null => return Ok(()),
        Value::Object(members) if !members.contains_key("documents") => return Ok(()),
        Value::Object(_) => "--request has a member `documents` already, which --documents would replace",
        _ => "documents have no place in a --request that is no object",
    };
    Err(Failure::invalid_input("bad_request", why).help("give documents in one of the two ways"))
}

/// Returns the size of a value as JSON, as a board counts it.
fn json_bytes(value: &impl Serialize) -> u64 {
    serde_json::to_vec(value).map_or(u64::MAX, |bytes| bytes.len() as u64)
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::invalid_input("document_unreadable", format!("{} cannot be read: {why}", path.display()))
        .help("documents are text files in UTF-8, of at most 4 MiB")
}

fn text_of(path: &Path) -> Result<String, String> {
    let bytes = input::read_bytes(path, DOCUMENT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_asked_until_the_answer_is_yes_no_or_over() {
        for (answers, word, questions) in [
            ("y\n", BlueprintApproval::Approved, 1),
            ("YES", BlueprintApproval::Approved, 1),
            ("n\n", BlueprintApproval::Denied, 1),
            (" No \ny\n", BlueprintApproval::Denied, 1),
            ("\nwhat?\ny\n", BlueprintApproval::Approved, 3),
            ("", BlueprintApproval::NoTerminal, 1),
            ("\n", BlueprintApproval::NoTerminal, 2),
            ("yesterday", BlueprintApproval::NoTerminal, 2),
        ] {
            let mut asked = Vec::new();
            let said = decide(&mut answers.as_bytes(), &mut asked).expect("it can be read");
            let count = String::from_utf8(asked).expect("text").matches("[y/n]").count();
            assert_eq!((said, count), (word, questions), "{answers:?}");
        }
        assert!(decide(&mut &b"\xff\n"[..], &mut Vec::new()).is_err(), "what is no text is no answer");
    }
}
