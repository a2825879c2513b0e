//! Agents against real sockets, processes and files.

mod acceptance;
mod again;
mod architect;
mod at_once;
mod blackboard;
mod boards;
mod cassette;
mod command;
mod departments;
mod embeddings;
mod git;
#[cfg(target_os = "linux")]
mod in_the_way;
mod inner;
mod lease;
mod live;
mod llm;
mod programs;
mod protocols;
mod providers;
mod reading;
mod roles;
mod seats;
mod session;
mod storm;
mod support;
mod texts;
mod tools;
mod workspace;
mod worktree;
