//! The table of the findings of this crate. Extensions add their own.

use Severity::{Error, Warning};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The blueprint is rejected.
    Error,
    /// The blueprint runs, but probably not as intended.
    Warning,
}

/// Code, severity and one-line meaning of a finding. Codes are stable.
pub type FindingCode = (&'static str, Severity, &'static str);

/// Builds a table with a code, its severity and its meaning in each entry.
macro_rules! finding_codes {
    ($($code:literal $severity:ident $meaning:literal)*) => {
        &[$(($code, $severity, $meaning)),*]
    };
}

/// Findings of this crate.
pub const CODES: &[FindingCode] = finding_codes! {
    // Reading the file.
    "yaml_syntax" Error "The text is not YAML or JSON, or uses a part of YAML that readers disagree on."
    "duplicate_key" Error "A mapping has the same key twice, or a key beside its former name."
    "too_large" Error "The file is too long, too deeply nested, or its aliases copy too much."
    "too_costly" Error "The blueprint has so many schemas, paths and grants that to check it takes too long."
    "fragment_unreadable" Error "A fragment named in `use` cannot be read."
    "bad_fragment" Error "A fragment has a member that only the including blueprint may have."
    "fragment_clash" Error "A fragment brings a name that is there already."
    "fragment_cycle" Error "A fragment includes itself."
    "fragment_limit" Error "There are too many fragments, or they are nested too deeply."
    "unresolved_fragment" Error "A file of `use`, `departments` or `workflow` was not included."
    // The schema of blueprints.
    "unknown_field" Error "A key that blueprints do not have."
    "missing_field" Error "A key that must be there is not."
    "bad_type" Error "A value of another type than the field has."
    "bad_value" Error "A value that the field does not allow."
    "newer_format" Error "A member that a later format has, and the blueprint's format does not."
    "renamed_field" Warning "A key that the blueprint's format has under a new name; the old one stays valid."
    "infinite_budget" Error "A budget or limit that is absent, zero or unlimited."
    "bad_rule" Error "A trigger of none of the known forms, or one that brings no name where the rule looks for it."
    // Names.
    "undeclared_worker" Error "A worker is named that does not exist."
    "undeclared_group" Error "A group is named that no worker is in."
    "undeclared_rule" Error "A rule is named that does not exist."
    "unknown_model" Error "A worker names a model that `models` does not list."
    "duplicate_name" Error "Two rules, or two invariants, have one name."
    "reserved_name" Error "A name of the document that belongs to the system."
    "unavailable_agent" Error "A kind of agent that this version does not have."
    "bad_schedule" Error "A schedule that is no cron pattern of five fields, or has no time."
    "bad_command" Error "A worker's program or script does not fit its agent."
    "bad_files" Error "The configuration of workspace files cannot be used."
    "bad_board" Error "The configuration of a nested board cannot be used."
    "undeclared_key" Error "An input or output of a nested board that is not declared on both sides."
    "mismatched_type" Error
        "An input of a nested board may be of a type that its request does not take."
    "indistinct_worker" Warning "Two of a group, of which one is chosen by name, are described in the same words."
    "unused_board" Warning "A nested board that no worker uses."
    "no_worktree" Warning "A worker edits the directory itself, unchecked, while others have working trees."
    // The document.
    "bad_schema" Error "A JSON Schema that cannot be used."
    "invalid_initial_state" Error "The initial state breaks its own schema, an invariant, or a limit."
    "bad_condition" Error "A CEL expression that cannot be used."
    "not_boolean" Error "A CEL expression that is neither true nor false."
    "unknown_member" Warning
        "An expression looks at a place that can never be there, or at a name that `properties` does not declare."
    "never_equal" Warning
        "A comparison with a value that the schema allows nowhere there, or with a worker that there is not."
    "never_true" Warning "A condition takes what is never true or false for a truth value."
    "decided_together" Warning "Comparisons of one value that never hold together, or of which one always holds."
    "never_read" Warning "A rule waits for another one whose results nothing reads."
    "nothing_left" Warning
        "A rule triggers a worker again, for its own writes or for each of many elements, when it can write nothing more."
    "whole_division" Warning "A division of whole numbers, whose result is cut off to one."
    "unknown_keyword" Warning "A JSON Schema has a keyword that no draft knows, or requires a misspelt name."
    "void_keyword" Warning "A JSON Schema has a keyword without effect on the type that it names."
    "impossible_schema" Warning "No value satisfies a JSON Schema."
    "costly_schema" Warning "Every write below a place makes validation go through a collection without a bound."
    "costly_shift" Warning "A grant lets elements come or go in the middle of an array without a bound."
    "costly_invariant" Warning
        "An invariant is evaluated for every instance when what they share changes, or looks through a whole collection \
         without a bound."
    // Paths.
    "bad_pattern" Error "A text that is no path pattern."
    "unknown_path" Error "A path that is no location of the schema."
    "whole_document" Error "A write grant on the whole document."
    "overlapping_grants" Error
        "Two write grants of one worker that meet, one of them with a `value` schema; a grant under a condition on what \
         another lets it read or write without."
    "undeclared_name" Warning "A path has a name that `properties` does not declare, in an object that takes others."
    "wide_grant" Warning "A write grant on every place."
    "writes_request" Warning "A write grant that reaches the user's request."
    "script_refused" Warning
        "A script answers with what its worker's grants or the schema refuse, or with a name that nothing binds."
    "unusable_grant" Warning
        "A write grant that cannot be used: to add a value that exists from the beginning, or below a place that no \
         worker may add."
    "value_never_fits" Warning "A `value` of a write grant that the schema allows nowhere there."
    "not_a_beginning" Error "A write grant's condition is of a place that is no beginning of the grant's path."
    "index_grant" Error "A path by index into an array whose elements may move."
    "foreign_index" Warning "A name that is bound to an index of one array is used as an index of another."
    "unbound_name" Error "A name in a path that the worker's trigger does not bind."
    "literal_name" Warning "A name in braces that is read as an ordinary name: in format 1, or as a part of a token."
    "budget_too_small" Error "A view budget below what must always be shown."
    "view_shortage" Warning "A worker may read more of a request than its view has room for (`check --request`)."
    // The flow.
    "dependency_cycle" Error "Rules that wait for each other."
    "done_at_start" Warning "The condition of `done` holds at the beginning, so no worker is ever triggered."
    "no_start" Warning "Nothing can start the board."
    "limit_too_low" Warning
        "A limit that does not suffice for what the board begins with, with this request, and for what follows from it \
         one for one."
    "never_fires" Warning "A rule that can never fire, or whose condition can never hold."
    "first_only" Warning "A rule fires after the first of several completions of another, as `after` means in format 1."
    "early_join" Warning "A join's worker reads what a rule may still be writing that the join does not wait for."
    "unguarded_old" Warning "An invariant that cannot be evaluated for an instance that is new."
    "stale_storm" Warning
        "A rule triggers a worker for each element, and each call reads what the others write: concurrent calls are \
         rejected."
    "loop_without_progress" Warning
        "Rules that may trigger each other for ever by overwriting, or that fire whenever they rest."
    "trigger_unreadable" Warning "A rule triggers a worker that may not read the changed value."
    "idle_worker" Warning "A worker that no rule triggers."
    "no_done" Warning "There is no `done`, or none that can hold."
    // The fields.
    "second_writer" Error "A field has two writers, and the blueprint says `writers: one`."
    "two_writers" Warning "Two workers may overwrite one field."
    "never_written" Warning "A field that is never initialised and that no worker can write."
    "read_never_written" Warning "A path that is read, never initialised, and that no worker can write."
    "default_model" Warning "A language model names no model, and `models` has no `default`."
    "unused_model" Warning "A worker that is no language model names a model."
};

/// Returns the severity of a code; one that is not in the table counts as an error.
pub(crate) fn severity(code: &str, codes: &[FindingCode]) -> Severity {
    codes.iter().find(|(name, ..)| *name == code).map_or(Error, |(_, severity, _)| *severity)
}
