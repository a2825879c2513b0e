//! Plays boards of blueprint files with workers written in this program, beside PatchBoard's built-in roles.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use jsonptr::Pointer;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult, Reply};
use patchboard_runtime::audit;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::journal::Journal;
use serde_json::Value;

/// Agent with a function for the program's own workers, which returns a patch or an envelope; the others are played as
/// usual.
struct CustomAgents<F> {
    own: F,
    seats: AgentRegistry,
}

impl<F: Fn(&Call) -> Option<Value> + Send + Sync + 'static> Agent for CustomAgents<F> {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        match (self.own)(call) {
            Some(reply) => {
                let reply = Reply::new(reply.to_string(), None);
                Box::pin(async move { Ok(reply) })
            }
            None => self.seats.call(call),
        }
    }
}

/// Returns the value at a place (JSON Pointer) in a call's view; null if there is none.
pub fn view_value(call: &Call, place: &str) -> Value {
    let place = Pointer::parse(place).ok();
    let node = place.and_then(|place| call.context.value_at(place).ok().flatten());
    node.map_or(Value::Null, patchboard_kernel::tree::Node::to_value)
}

/// Result of a board.
pub struct BoardResult {
    /// End of the board: `done`, `quiescent`, …
    pub end: String,
    /// Number of commits.
    pub version: u64,
    /// Final document.
    pub state: Value,
    /// Number of records in its journal, all of them verified.
    pub records: u64,
}

/// Reads a blueprint file with its fragments, which lie below its directory.
///
/// # Errors
/// The findings.
pub fn blueprint(path: &Path) -> Result<Blueprint, Box<dyn Error>> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let source = Source::read(&path.display().to_string(), &std::fs::read_to_string(path)?);
    let source = source.map_err(|finding| finding.message)?;
    let mut fragments =
        |name: &str| std::fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"));
    let source = patchboard_protocols::resolve(source, &mut fragments).map_err(|findings| format!("{findings:?}"))?;
    let report = patchboard_protocols::check(&source);
    report.blueprint.ok_or_else(|| format!("{:?}", report.findings).into())
}

/// Plays a board of a blueprint file to its end, in a temporary directory; `own` answers for the workers it knows.
///
/// # Errors
/// The board cannot be created, or its journal does not verify.
pub async fn play(
    path: &Path,
    request: Value,
    own: impl Fn(&Call) -> Option<Value> + Send + Sync + 'static,
) -> Result<BoardResult, Box<dyn Error>> {
    let blueprint = blueprint(path)?;
    let directory = tempfile::tempdir()?;
    let journal = patchboard_storage::open(directory.path())?;
    let seats = AgentRegistry::new(Config::default(), &Environment::from_process(), InlinePrograms::Denied);
    let options = Options::new(Arc::new(CustomAgents { own, seats }));
    let runtime = Runtime::start(Arc::clone(&journal) as Arc<dyn Journal>, options, PLANS).await?;
    let board = runtime.create(blueprint, request, None).await?;
    let ended = board.wait_for_end().await?;
    let snapshot = board.status();
    let verified = audit::verify(&*journal, board.id(), Some(snapshot.head.hash), &PLANS)?;
    let state = snapshot.state.root().to_value();
    let played = BoardResult {
        end: ended.end.to_string(),
        version: snapshot.version.0,
        state,
        records: verified.records as u64,
    };
    runtime.shutdown().await;
    Ok(played)
}
