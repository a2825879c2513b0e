//! Code shared by the examples: boards with workers played by a program.

pub mod custom_agents;
