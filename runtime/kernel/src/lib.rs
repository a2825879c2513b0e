//! The pure core of PatchBoard: what is allowed, what happened, what happens next.
//!
//! Owns every decision about a board. Knows no clock, no thread, no file, no socket and no randomness: time, salts and
//! ids arrive as arguments, and everything it wants done is returned as data. The shell around it is
//! `patchboard-runtime`.
//!
//! # Layout
//!
//! * [`board`]: [`board::Board::step`], the only way anything of a board changes; [`owner`] keeps back what a step made
//!   until it is durable; [`replay`] derives a run again.
//! * [`pipeline`]: the six stages a proposal passes; [`rejection`] is what comes out when it does not.
//! * [`blueprint`]: the contract of a board, read from YAML or JSON; [`lint`] reads it as a compiler would; [`graph`] says
//!   who reads, writes and wakes what.
//! * [`contract`], [`freshness`], [`schema`], [`expr`], [`invariant`]: who may write where, what has changed under a
//!   proposal, what a valid document is, what must hold.
//! * [`files`]: a directory of files beside the document, and what may be done to it by whom who has read what.
//! * [`json`], [`patch`], [`tree`], [`state`], [`digest`]: documents, their edits and their fingerprints.
//! * [`mode`]: how much of this a board has, for comparisons.
//! * [`record`]: the journal's entries and their hash chain; [`snapshot`]: a whole board as stored parts.
//! * [`scheduler`], [`breaker`], [`ledger`], [`view`]: parts of a board; [`wish`]: whom rules wake, and why; [`cron`]: when
//!   schedules are due.
//! * [`redaction`]: what is to be erased of the records, and what stands there then.
//! * [`department`]: what a department says of itself.
//! * [`room`]: votes and what is decided by them; [`negotiation`]: drafts in rounds, and which one is taken; [`workflow`]:
//!   what comes before what; [`handoff`]: who takes over a piece of work; [`idempotency`]: the token of a repetition.
//! * [`denials`]: refusals counted; [`planted`]: bugs that tests switch on.
//! * [`shown`], [`form`]: what an agent may look at beside the text of its view, and the JSON Schema of its reply.

pub mod admission;
pub mod asked;
pub mod bindings;
pub mod blueprint;
pub mod board;
pub mod border;
pub mod breaker;
pub mod canonical;
pub mod carried;
pub mod contract;
pub mod cron;
pub mod deferral;
pub mod denials;
pub mod department;
pub mod digest;
mod effort;
pub mod event;
mod excerpt;
pub mod expr;
pub mod failure;
pub mod files;
pub mod form;
pub mod freshness;
pub mod graph;
pub mod handoff;
pub mod id;
pub mod idempotency;
pub mod invariant;
pub mod json;
pub mod ledger;
pub mod lint;
pub mod mode;
pub mod money;
pub mod negotiation;
pub mod owner;
pub mod patch;
pub mod pattern;
pub mod pipeline;
pub mod plan;
pub mod planted;
pub mod record;
pub mod redaction;
pub mod rejection;
pub mod replay;
pub mod room;
pub mod scheduler;
pub mod schema;
pub mod shown;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod tree;
pub mod view;
pub mod wish;
pub mod workflow;
