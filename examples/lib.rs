//! Code shared by the examples: evaluations of boards played by a language model, and boards with workers played by a
//! program.

pub mod custom_agents;
pub mod eval;
