//! Pure core of PatchBoard: permissions, history and next steps of a board.
//!
//! Makes every decision about a board. Uses no clock, thread, file, socket or randomness: time, salts and ids are
//! arguments, and effects are returned as data. Does not know YAML, lint, protocols with their places and prompts,
//! agents, HTTP or git. The shell around it is `patchboard-runtime`.
//!
//! # Layout
//!
//! * [`board`]: [`board::Board::step`], the only way to change a board; [`driver`] holds the output of a step until it
//!   is durable; [`replay`] derives a run again.
//! * [`pipeline`]: the seven stages of judging a proposal; [`rejection`]: the result of a failed stage.
//! * [`blueprint`]: the contract of a board; [`plan`]: its compiled form; [`expressions`]: its
//!   expressions. `patchboard-lint` reads and checks it.
//! * [`contract`], [`freshness`], [`schema`], [`expr`], [`invariant`]: write grants, conflicts with concurrent commits,
//!   validity of documents, conditions on them.
//! * [`files`]: a directory of files beside the document, and the edits allowed to each worker by its read set.
//! * [`json`], [`patch`], [`tree`], [`state`], [`digest`]: documents, their edits and their fingerprints.
//! * [`ablation`]: ablations, for comparisons.
//! * [`record`]: the journal's records and their hash chain; [`snapshot`]: a whole board as stored parts.
//! * [`scheduler`], [`breaker`], [`ledger`], [`limits`], [`view`]: parts of a board; [`rules`]: invocations triggered by rules;
//!   [`cron`]: schedules.
//! * [`redaction`]: values to redact in records; [`placeholder`]: their placeholders.
//! * [`idempotency`]: idempotency keys; [`work_budget`]: a bound on the work of a check.
//! * [`rejection_counts`]: counts of rejections; [`mutants`]: bugs that tests switch on.
//! * [`call_context`], [`reply_schema`]: structured access to a view's values, and the JSON Schema of a reply.

pub mod ablation;
pub mod admission;
pub mod bindings;
pub mod blueprint;
pub mod board;
pub mod breaker;
pub mod call_context;
pub mod canonical;
pub mod contract;
pub mod cron;
pub mod deferral;
pub mod digest;
pub mod driver;
pub mod event;
pub mod expand_request;
pub mod expr;
pub mod expressions;
pub mod failure;
pub mod files;
pub mod freshness;
pub mod id;
pub mod idempotency;
pub mod invariant;
pub mod json;
pub mod ledger;
pub mod limits;
pub mod money;
pub mod mutants;
pub mod nested;
pub mod patch;
pub mod pattern;
pub mod pipeline;
pub mod placeholder;
pub mod plan;
mod projection;
pub mod record;
pub mod redaction;
pub mod rejection;
pub mod rejection_counts;
pub mod replay;
pub mod reply_schema;
pub mod rules;
pub mod scheduler;
pub mod schema;
pub mod signal_payload;
pub mod snapshot;
pub mod state;
mod targets;
pub mod text;
pub mod tree;
pub mod view;
pub mod work_budget;

/// Returns true for the value that serde leaves out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
