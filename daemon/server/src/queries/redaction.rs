//! Redactions: requests, the search through departments, and reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jsonptr::PointerBuf;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq, Version};
use patchboard_kernel::redaction::{Needles, RemainingCopy, Request};
use patchboard_roles::departments::storage::erase::{self as departments, TextMatches};
use patchboard_runtime::archive::ArchiveError;
use patchboard_runtime::redaction::{self, ExternalSearchError, RedactError};
use patchboard_storage::journal::JournalError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::text::one_line;
use patchboard_kernel::text::counted;

/// Report of a redaction.
#[derive(Serialize, ToSchema)]
pub struct RedactionReport {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Number of the record that lists what was redacted.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Hash of the chain up to this record.
    #[schema(value_type = String)]
    hash: Digest,
    /// Number of redacted values.
    values: u64,
    /// Number of records with redacted values.
    records: usize,
    /// Number of removed texts, such as views and prompts.
    texts: usize,
    /// True if the board's salt is destroyed.
    salt: bool,
    /// Version of the commit with the replacement value, if one was given.
    #[schema(required, value_type = Option<u64>)]
    replaced_at: Option<Version>,
    /// Other values that contain a redacted text.
    still: Vec<RemainingCopyInfo>,
    /// Rows of departments that contain a redacted text, or did.
    departments: DepartmentReport,
    /// False if old bytes may still be found in the journal's file.
    scrubbed: bool,
    /// Ids of the parent and nested boards, which may contain the same values.
    #[schema(value_type = Vec<String>)]
    related: Vec<BoardId>,
}

/// Value that contains a redacted text, and was not redacted.
#[derive(Serialize, ToSchema)]
#[schema(as = RemainingCopy)]
pub(crate) struct RemainingCopyInfo {
    /// Number of the record that wrote the value.
    #[schema(value_type = u64)]
    seq: Seq,
    /// JSON Pointer of the value; `blueprint` for a text of the blueprint.
    place: String,
}

/// Rows and outcomes of departments that contain a redacted text, or did.
#[derive(Serialize, ToSchema)]
pub(crate) struct DepartmentReport {
    /// Numbers of rows, by the name of the department.
    rows: BTreeMap<String, BTreeSet<i64>>,
    /// Number of outcomes of calls.
    outcomes: usize,
    /// True if they are erased.
    erased: bool,
}

impl RedactionReport {
    /// Returns the report of a redaction, with the related boards.
    pub fn new(board: &BoardId, done: &Redaction, related: &[&BoardId]) -> Self {
        let info = |copy: &RemainingCopy| RemainingCopyInfo { seq: copy.seq, place: copy.place.clone() };
        Self {
            board: board.clone(),
            seq: done.head.seq,
            hash: done.head.hash,
            values: done.body.erased,
            records: done.body.records.len(),
            texts: done.body.texts.len(),
            salt: done.body.salt,
            replaced_at: done.replaced_at,
            still: done.remaining.iter().map(info).collect(),
            departments: done.external.report(),
            scrubbed: done.purge_error.is_none(),
            related: related.iter().map(|id| (*id).clone()).collect(),
        }
    }
}

const ROWS_LISTED_MAX: usize = 20;

/// Treatment of department rows that contain the text of an erased value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DepartmentRows)]
pub enum Rows {
    /// End the rows and empty all their states; in outcomes of calls a mark replaces the value
    Erase,
    /// Keep the rows
    Keep,
}

/// Rows and outcomes of departments that contain an erased text, or did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DepartmentMatches {
    found: TextMatches,
    is_erased: bool,
}

impl DepartmentMatches {
    fn report(&self) -> DepartmentReport {
        DepartmentReport { rows: self.found.rows.clone(), outcomes: self.found.outcomes, erased: self.is_erased }
    }

    /// Returns a sentence about the rows and outcomes; `None` if there are none.
    pub fn sentence(&self) -> Option<String> {
        let said = if self.is_erased { "erased:" } else { "the same text remains in" };
        (!self.found.is_empty()).then(|| format!("{said} {}", list(&self.found)))
    }
}

/// Result of a redaction.
pub type Redaction = redaction::Redaction<DepartmentMatches>;

/// Code of a redaction that requires a choice for department rows.
const KEPT: &str = "kept_by_departments";

/// Returns the search through the departments of a data directory. Without a choice it must find nothing: once the
/// texts are erased from the journal, their rows can no longer be found.
pub fn search_departments(
    data_dir: &Path,
    rows: Option<Rows>,
) -> impl FnOnce(&Needles) -> Result<DepartmentMatches, ExternalSearchError> + Send + 'static {
    let data_dir = data_dir.to_owned();
    move |texts| {
        let is_erased = rows == Some(Rows::Erase);
        let found = if is_erased { departments::erase(&data_dir, texts) } else { departments::find(&data_dir, texts) };
        match found {
            Ok(found) if rows.is_none() && !found.is_empty() => {
                Err(ExternalSearchError { code: KEPT, message: format!("the same text is in {}", list(&found)) })
            }
            Ok(found) => Ok(DepartmentMatches { found, is_erased }),
            // A board is erased even if the departments' file is damaged.
            Err(_) if rows == Some(Rows::Keep) => Ok(DepartmentMatches::default()),
            Err(fault) => Err(ExternalSearchError { code: "departments_not_erased", message: fault.to_string() }),
        }
    }
}

fn list(found: &TextMatches) -> String {
    let of = |(department, rows): (&String, &BTreeSet<i64>)| {
        let numbers: Vec<String> = rows.iter().take(ROWS_LISTED_MAX).map(ToString::to_string).collect();
        let more = if rows.len() > numbers.len() { " …" } else { "" };
        format!("{} of the department {department} ({}{more})", counted(rows.len(), "row"), numbers.join(" "))
    };
    let outcomes =
        (found.outcomes > 0).then(|| format!("{} of calls of departments", counted(found.outcomes, "outcome")));
    found.rows.iter().map(of).chain(outcomes).collect::<Vec<_>>().join(", ")
}

/// Returns the failure of a redaction that erased the board but not its archive.
pub fn archived(error: &ArchiveError) -> Failure {
    let message = format!("it is erased of the board, and not of the board's archive: {error}");
    Failure::failed("archive_not_redacted", message).help("repeat it, or delete the archive")
}

/// Parses the targets of a redaction.
pub fn request(targets: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    for target in targets {
        match (target.parse(), PointerBuf::parse(target.as_str())) {
            (Ok(seq), _) => request.records.push(Seq(seq)),
            (_, Ok(place)) => request.places.push(place),
            (Err(_), Err(_)) => {
                let message =
                    format!("this is neither a JSON Pointer nor the number of a record: {}", one_line(target));
                return Err(Failure::invalid_input("bad_pointer", message)
                    .help("name a place as `state` shows it, like /claims/3, or a record as `log` numbers it"));
            }
        }
    }
    Ok(request)
}

/// Returns the failure for values that are gone from the journal but maybe not from its file.
pub fn erase_failure(error: &JournalError) -> Failure {
    Failure::failed("not_scrubbed", format!("it is erased, but old bytes may still be found in the file: {error}"))
        .help("`patchboard vacuum` completes this, and so does the next start with free space and without readers")
}

/// Converts a refusal to a command-line failure.
pub fn failure(refusal: RedactError) -> Failure {
    match refusal {
        RedactError::Redaction(error) => {
            let failure = Failure::invalid_input(error.code.as_str(), &error);
            let failure = match error.places.is_empty() && error.questions.is_empty() {
                true => failure,
                false => {
                    failure.help("put another value there with --replace, answer the question, or end the board first")
                }
            };
            failure.detail("places", json!(error.places)).detail("questions", json!(error.questions))
        }
        RedactError::Replacement(rejection) => {
            let why = rejection.violations.first().map(|violation| violation.message.clone()).unwrap_or_default();
            Failure::invalid_input("replacement_refused", format!("the other value may not be there: {why}"))
                .detail("violations", json!(rejection.violations))
        }
        RedactError::External(hindrance) if hindrance.code == KEPT => Failure::invalid_input(KEPT, &hindrance)
            .help("choose --departments erase or keep; over HTTP, `departments`"),
        RedactError::External(hindrance) => Failure::failed(hindrance.code, &hindrance).help(
            "nothing is erased from the journal yet: fix that and repeat it, or keep the rows with --departments keep",
        ),
        RedactError::Runtime(error) => error.into(),
    }
}
