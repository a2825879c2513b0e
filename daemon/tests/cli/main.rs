//! The binary as users meet it: its input, output streams and exit codes.

mod approval;
mod architect;
mod archive;
mod blackboard;
mod check;
mod clipboard;
#[cfg(target_os = "linux")]
mod crash;
mod doctor;
mod documented;
mod golden;
mod graph;
mod handoff;
#[path = "../held/mod.rs"]
mod held;
mod history;
mod inner;
mod installing;
mod interruption;
mod kernel;
mod models;
mod modes;
mod negotiation;
mod outage;
mod papers;
mod reach;
mod readme;
mod recorded;
mod redact;
mod rejections;
mod room;
mod run;
mod sandbox;
mod step;
mod storm;
mod templates;
mod tools;
mod trust;
#[cfg(unix)]
mod tutorial;
#[path = "../voices/mod.rs"]
mod voices;
mod workflow_runs;
