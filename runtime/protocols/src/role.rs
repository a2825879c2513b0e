//! Names of the coordination roles. The agents that play them are in `patchboard-agents`.

use patchboard_kernel::rejection::code_enum;

code_enum! {
    /// Coordination role, the `NAME` of an agent `builtin:NAME`.
    Role {
        /// Takes up the oldest message.
        Begin = "begin",
        /// Words the result of a request.
        Confirm = "confirm",
        /// Opens and decides ballots.
        Coordinator = "coordinator",
        /// Executes a resolved request.
        Crud = "crud",
        /// Transfers work.
        Handoff = "handoff",
        /// Adds the next steps of a negotiation.
        Negotiator = "negotiator",
        /// Records messages of users.
        Perceive = "perceive",
        /// Finds the rows of a request.
        Resolve = "resolve",
        /// Continues a request with the answer to its question.
        Resume = "resume",
        /// Chooses an answer.
        Vote = "vote",
        /// Decides the next steps of a workflow.
        Workflow = "workflow",
    }
}
