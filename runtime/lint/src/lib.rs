//! Reads blueprints, and checks them as a compiler checks source: every finding has a code, a place and a fix.
//!
//! Owns the source text with its positions and fragments ([`source`]), the findings ([`CODES`]), the data flow of a
//! blueprint ([`graph`]), and the seam by which other crates extend blueprints ([`extension`]). Does not know protocols,
//! running boards, models or the operator's programs.
//!
//! [`check`] validates the source against the published meta-schema (`meta_schema`), reads the typed blueprint, then
//! checks across fields:
//!
//! * `names`, `document` (schemas, initial state, expressions), `paths` (patterns and grants), `bindings` (names in
//!   paths);
//! * `conditions` (places in expressions), `comparisons`, `keywords` (of schemas), `grants` (width and values),
//!   `scripts` (fixed replies);
//! * `workspace` (files), `nested_boards`, `flow`, `reachability`, `joins`, `retriggers` and `stale_calls`
//!   (triggering), `ending` (end of a board);
//! * `fields` (writers), `costs` and `invariants` (slow writes).
//!
//! A blueprint without an error can be used to create a board. Models and programs of the operator are not checked.

mod bindings;
mod cached_schema;
mod codes;
mod comparisons;
mod conditions;
mod costs;
mod diagnostic;
mod document;
mod ending;
mod extended;
pub mod extension;
mod fields;
mod flow;
mod follow_ups;
mod format;
mod grants;
pub mod graph;
mod initial_board;
mod initial_document;
mod invariants;
mod joins;
mod keywords;
mod meta_schema;
mod names;
mod nested_boards;
mod paths;
mod reachability;
mod replies;
mod retriggers;
mod schema_keywords;
mod scripts;
mod signal_values;
pub mod source;
mod stale_calls;
mod undeclared;
mod workspace;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;

use cached_schema::CachedSchema;
pub use codes::{CODES, FindingCode, Severity};
pub use costs::OpaquePlace;
pub use diagnostic::{Diagnostic, Position};
pub use extended::LintContext;
pub use initial_board::{VIEW_CODES, check_with_request};
use initial_document::InitialDocument;
pub use meta_schema::MetaSchema;

use crate::extension::Extension;
use crate::source::{BOARD_DEPTH_MAX, BOARDS_MAX, Source, too_many_boards};
use patchboard_kernel::blueprint::{Blueprint, Worker, WriteGrant};
use patchboard_kernel::contract::Values;
use patchboard_kernel::expr::Expr;
use patchboard_kernel::expressions::ExpressionOwner;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{PathSyntax, Pattern};
use patchboard_kernel::record::FORMAT;
use patchboard_kernel::view::ReplyInstructions;
use patchboard_kernel::work_budget::{WorkBudget, WorkKind};

/// The meta-schema of blueprints, as published for editors.
pub const META_SCHEMA: &str = include_str!("../../../blueprints/blueprint.schema.json");

/// Maximum number of steps of a check.
pub const STEPS_MAX: u64 = 100_000_000;

/// Maximum number of findings in a report.
pub const FINDINGS_MAX: usize = 100;

/// Result of checking a blueprint.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The blueprint with its defaults filled in; `None` if the findings contain an error.
    pub blueprint: Option<Blueprint>,
    /// Errors first, each group in order of position; at most [`FINDINGS_MAX`].
    pub findings: Vec<Diagnostic>,
    /// Places with writes that validate more than they touch; empty if the findings contain an error.
    pub opaque: Vec<OpaquePlace>,
}

impl Report {
    /// Creates the report of a blueprint with one error.
    fn from_error(error: Diagnostic) -> Self {
        Self { blueprint: None, findings: vec![error], opaque: Vec::new() }
    }
}

/// Checks a source: meta-schema, types, and every rule of DESIGN section 5. Fragments must be resolved.
///
/// Takes [`STEPS_MAX`] steps at most; see [`check_at_most`].
pub fn check(source: &Source, extensions: &[&dyn Extension]) -> Report {
    check_at_most(source, extensions, STEPS_MAX)
}

/// Like [`check`], with another bound: a blueprint that takes more steps has only the finding `too_costly`.
pub fn check_at_most(source: &Source, extensions: &[&dyn Extension], steps: u64) -> Report {
    let effort = WorkBudget::with_max(steps);
    let report = check_within(source, extensions, 0, &mut { BOARDS_MAX }, &effort);
    if effort.is_spent() { Report::from_error(too_costly(source, steps, &effort)) } else { report }
}

/// Builds the finding that a check takes too many steps, with the work that took most of them.
fn too_costly(source: &Source, steps: u64, effort: &WorkBudget) -> Diagnostic {
    let most = effort.used().into_iter().max_by_key(|(_, taken)| *taken).map_or(WorkKind::Schemas, |(work, _)| work);
    let (what, help) = match most {
        WorkKind::Schemas => {
            ("its schemas", "Put what several schemas have in common under `$defs`, and shorten long lists of values.")
        }
        WorkKind::Places => (
            "what its schemas say of the places of its paths",
            "Name places instead of `*` and `**`, and have fewer alternatives (`anyOf`, `oneOf`).",
        ),
        WorkKind::Grants => ("comparing its grants", "Have fewer grants, with wider paths, or fewer workers."),
    };
    let message = format!("to check this blueprint takes more than {steps} steps, most of them for {what}");
    Diagnostic::at(source, "too_costly", "", message, help)
}

/// Checks the blueprint at a nesting `depth`; `left` is the number of further nested boards allowed.
fn check_within(
    source: &Source,
    extensions: &[&dyn Extension],
    depth: usize,
    left: &mut usize,
    effort: &WorkBudget,
) -> Report {
    let mut findings = Vec::new();
    meta_schema::check(source, &mut findings);
    if depth == 0 {
        meta_schema::check_numbers(source, &mut findings);
    }
    let (mut blueprint, mut opaque) = (None, Vec::new());
    // Beyond the limit, the nesting itself is reported.
    if depth <= BOARD_DEPTH_MAX {
        for (at, inside) in source.within("/boards") {
            let Some(fewer) = left.checked_sub(1) else {
                findings.push(too_many_boards(source, &at));
                break;
            };
            *left = fewer;
            let report = check_within(&inside, extensions, depth + 1, left, effort);
            findings.extend(report.findings.into_iter().map(|finding| finding.below(&at)));
            opaque.extend(report.opaque);
        }
    }
    if findings.iter().all(|finding| finding.severity == Severity::Warning) {
        match serde_json::from_value::<Blueprint>(source.value().clone()) {
            Ok(read) => {
                let (found, places) =
                    Linter { extensions, ..Linter::new(source, &effective(&read), effort.clone()) }.run();
                findings.extend(found);
                opaque.extend(places);
                blueprint = Some(read);
            }
            // A test ensures that the meta-schema is at least as strict as the model. If they differ, this reports a
            // finding without a place and does not use a partial blueprint.
            Err(error) => {
                let help = "Compare the blueprint with blueprints/blueprint.schema.json.";
                findings.push(Diagnostic::new("bad_value", "", error.to_string(), help));
            }
        }
    }
    // The sort is stable, so findings of one place stay in the order of the checks.
    findings.sort_by_key(|finding| (finding.severity, source.order(finding)));
    findings.truncate(FINDINGS_MAX);
    let refused = findings.iter().any(|finding| finding.severity == Severity::Error);
    Report { blueprint: blueprint.filter(|_| !refused), findings, opaque }
}

/// Returns the blueprint with only the usable operations of its grants.
fn effective(blueprint: &Blueprint) -> Blueprint {
    let workers = blueprint.workers.iter().map(|(name, worker)| (name.clone(), worker.with_effective_ops()));
    Blueprint { workers: workers.collect(), ..blueprint.clone() }
}

/// Checks a blueprint given as a value without text, from a journal or a program.
pub fn check_value(value: Value, extensions: &[&dyn Extension]) -> Report {
    check(&Source::from_value("blueprint", value), extensions)
}

/// A check of a schema-valid blueprint: the data shared by the passes, and their findings.
struct Linter<'a> {
    source: &'a Source,
    blueprint: &'a Blueprint,
    extensions: &'a [&'a dyn Extension],
    paths: PathSyntax,
    /// `None` if it does not compile.
    schema: Option<CachedSchema>,
    request: Option<CachedSchema>,
    /// Compiled schemas of signal values.
    signals: BTreeMap<&'a str, CachedSchema>,
    values: Values<'a>,
    initial: InitialDocument<'a>,
    effort: WorkBudget,
    worker_grants: BTreeMap<&'a WorkerName, WorkerGrants<'a>>,
    expressions: Vec<Expression<'a>>,
    findings: RefCell<Vec<Diagnostic>>,
    opaque: Vec<OpaquePlace>,
}

/// An expression that compiles.
struct Expression<'a> {
    /// JSON Pointer of its text in the blueprint.
    pointer: String,
    owner: ExpressionOwner<'a>,
    expr: Expr,
}

/// A worker and its valid patterns.
struct WorkerGrants<'a> {
    worker: &'a Worker,
    /// JSON Pointer of the worker in the blueprint.
    pointer: String,
    reads: Vec<Read>,
    writes: Vec<GrantedWrite<'a>>,
}

struct Read {
    pointer: String,
    pattern: Pattern,
    has_condition: bool,
}

/// Write grant of a worker with a valid path.
pub struct GrantedWrite<'a> {
    /// JSON Pointer of the grant in the blueprint.
    pub pointer: String,
    /// The grant.
    pub grant: &'a WriteGrant,
    /// Its path.
    pub pattern: Pattern,
}

impl<'a> Linter<'a> {
    fn new(source: &'a Source, blueprint: &'a Blueprint, effort: WorkBudget) -> Self {
        Self {
            source,
            blueprint,
            extensions: &[],
            paths: PathSyntax::for_formats(blueprint.blueprint, FORMAT),
            schema: None,
            request: None,
            signals: BTreeMap::new(),
            initial: InitialDocument::new(&blueprint.state.initial, effort.clone()),
            values: Values::new(&blueprint.state.schema).within(effort.clone()),
            effort,
            worker_grants: BTreeMap::new(),
            expressions: Vec::new(),
            findings: RefCell::default(),
            opaque: Vec::new(),
        }
    }

    fn run(mut self) -> (Vec<Diagnostic>, Vec<OpaquePlace>) {
        self.document();
        self.patterns();
        self.names();
        self.workspace();
        self.inner();
        self.expressions();
        self.paths();
        self.bindings();
        self.ranges();
        self.dependencies();
        self.one_writer();
        self.format();
        self.renamed();
        // A misspelt name makes other items look unused or unwritten, so warnings wait until the errors are fixed.
        if !self.findings.get_mut().iter().any(|finding| finding.severity == Severity::Error) {
            self.keywords();
            self.widths();
            self.carried();
            self.conditions();
            self.flow();
            self.ending();
            for extension in self.extensions {
                extension.lint(&mut LintContext { linter: &mut self, codes: extension.codes() });
            }
            self.fields();
            self.costs();
            self.shifts();
            self.invariants();
            self.consequences();
        }
        (self.findings.into_inner(), self.opaque)
    }

    fn report(&self, code: &'static str, pointer: &str, message: impl Into<String>, help: impl Into<String>) {
        self.push(Diagnostic::at(self.source, code, pointer, message, help));
    }

    fn push(&self, finding: Diagnostic) {
        // Findings beyond the limit are dropped. Errors displace warnings only after sorting, hence the margin.
        let mut findings = self.findings.borrow_mut();
        if findings.len() < 4 * FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// Removes the consequences of a misspelt name in a rule's trigger, which is reported itself.
    fn consequences(&mut self) {
        let findings = self.findings.get_mut();
        let misspelt = findings.iter().filter(|finding| finding.code == "undeclared_name");
        let misspelt: Vec<String> = misspelt.map(|finding| finding.pointer.clone()).collect();
        let is_of = |trigger: &str| {
            let rest =
                |at: &'_ String| at.strip_prefix(trigger).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            misspelt.iter().any(rest)
        };
        let follows = |finding: &Diagnostic| matches!(finding.code, "never_fires" | "trigger_unreadable");
        findings.retain(|finding| !follows(finding) || !is_of(&finding.pointer));
    }

    /// Returns the texts about the reply format of a worker; `None` if it replies with patches.
    fn reply_instructions(&self, worker: &Worker) -> Option<ReplyInstructions> {
        let format = worker.format.as_deref()?;
        let mut formats = self.extensions.iter().filter_map(|extension| extension.reply_formats());
        formats.find_map(|texts| texts(format, worker).ok())
    }

    fn has(&self, code: &str) -> bool {
        self.findings.borrow().iter().any(|finding| finding.code == code)
    }

    /// Returns every write grant of every worker.
    fn writes(&self) -> impl Iterator<Item = (&'a WorkerName, &GrantedWrite<'a>)> {
        let all =
            self.worker_grants.iter().flat_map(|(name, seat)| seat.writes.iter().map(move |write| (*name, write)));
        all.take_while(|(_, write)| self.effort.spend(WorkKind::Grants, write.pattern.steps()))
    }
}

/// Maximum characters of a name to find a similar one for.
const COMPARED_CHARS_MAX: usize = 100;

/// Returns the name among `known` that was probably meant.
pub(crate) fn closest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = |text: &str| text.chars().count();
    let (own, most) = (length(name), 1 + length(name) / 4);
    let is_like = |other: &&str| own <= COMPARED_CHARS_MAX && own.abs_diff(length(other)) <= most;
    let near = known.into_iter().filter(is_like).map(|other| (strsim::damerau_levenshtein(name, other), other));
    near.min().filter(|(distance, _)| *distance <= most).map(|(_, best)| best)
}

/// Returns a help text with the name that was probably meant, else with the known names.
pub fn suggest<'k>(name: &str, known: impl IntoIterator<Item = &'k str> + Clone, none: &str) -> String {
    if let Some(best) = closest_name(name, known.clone()) {
        return format!("Did you mean `{best}`?");
    }
    let mut all: Vec<String> = Vec::new();
    for name in known {
        let name = format!("`{name}`");
        if all.len() < 12 && !all.contains(&name) {
            all.push(name);
        }
    }
    if all.is_empty() { none.to_owned() } else { format!("There is {}.", all.join(", ")) }
}
