//! Agents against real sockets, processes and files.

mod cassette;
mod command;
mod live;
mod llm;
mod seats;
mod session;
mod support;
