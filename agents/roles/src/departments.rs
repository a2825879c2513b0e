//! Roles of a department that need no model, and the storage of departments (`docs/departments.md`).
//!
//! Each role is an agent of its own, `builtin:NAME`, that sees its seat's view and answers with a patch. Decisions are
//! pure functions of plain values; the clock and the file of rows are in a thin shell.
//!
//! * `types`: the types that roles pass to each other;
//! * `similarity`: similarity of two texts;
//! * [`semantic`]: similarity by embeddings, for words without a similar spelling;
//! * `values`: turns a user's words into a value for a field;
//! * [`resolve`]: finds the row that the user means, or the question to ask;
//! * [`answers`]: recognises the answer to that question; [`resume`]: continues with it;
//! * [`pending_question`]: continues with words that needed an embedding first;
//! * [`storage`]: the rows with their history, in one file; only `crud` writes to it;
//! * [`confirm`]: reports the result in a sentence;
//! * [`inbox`]: takes users' messages one after the other;
//! * [`declared_tests`]: a department's own tests;
//! * `roles`: the roles as agents.

pub mod answers;
pub mod confirm;
pub mod crud;
pub mod declared_tests;
pub mod inbox;
pub mod pending_question;
pub mod resolve;
pub mod resume;
pub(crate) mod roles;
pub mod semantic;
mod similarity;
pub mod storage;
pub mod types;
mod values;
