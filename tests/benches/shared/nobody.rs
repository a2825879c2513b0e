//! Provides the agent of boards on which no worker is ever called.

use patchboard_runtime::agent::{Agent, Answer, Call};

/// Agent that never answers.
pub(crate) struct Nobody;

impl Agent for Nobody {
    fn call<'a>(&'a self, _: &'a Call) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}
