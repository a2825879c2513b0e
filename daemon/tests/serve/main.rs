//! The daemon as its clients see it: over HTTP, across restarts and kills.

#![cfg(unix)]

mod access;
mod agui;
mod blackboard;
mod clients;
mod clipboard;
mod daemon;
mod described;
mod disk;
mod events;
mod exchanges;
mod files;
#[path = "../held/mod.rs"]
mod held;
mod idempotency;
mod inner;
mod leases;
mod lifecycle;
mod limits;
mod logs;
mod mcp;
mod metrics;
mod notify;
mod outage;
mod people;
mod protocols;
mod reload;
mod requests;
mod rooms;
mod storage;
mod tls;
#[path = "../voices/mod.rs"]
mod voices;
mod workspace;
