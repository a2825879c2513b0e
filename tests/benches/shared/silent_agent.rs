//! Provides the agent of boards on which no worker is ever called.

use patchboard_runtime::agent::{Agent, Call, CallResult};

/// Agent that never answers.
pub(crate) struct SilentAgent;

impl Agent for SilentAgent {
    fn call<'a>(&'a self, _: &'a Call) -> std::pin::Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}
