//! Output of model outages during a run: a live line on a terminal; elsewhere a line at the beginning and the end.

use std::time::Duration;

use patchboard_agents::config::DEFAULT_MODEL;
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::id::WorkerName;
use patchboard_llm::gate::{Availability, Gate, ModelState, Transition};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, interval_at};

use patchboard_kernel::text::counted;

const EVERY: Duration = Duration::from_secs(1);

/// Returns the operator's name of a worker's preferred model; `None` if the worker is no language model.
pub fn awaited_model(blueprint: &Blueprint, worker: &WorkerName) -> Option<String> {
    let is_model = blueprint.workers.get(worker)?.agent == AgentKind::Llm;
    is_model.then(|| blueprint.model_of(worker).unwrap_or(DEFAULT_MODEL).to_owned())
}

/// Update on the models' availability.
pub enum OutageUpdate {
    /// Beginning or end of a model's outage.
    Changed(String),
    /// Current text of the line; empty if all models are available.
    Line(String),
}

/// Watches the models of a run.
pub struct Outages {
    watched: Option<(Gate, Receiver<Transition>)>,
    /// Models that were unavailable at the start.
    first: Option<String>,
    ticks: Interval,
}

impl Outages {
    /// Watches a gate; without one there are no updates.
    pub fn new(gate: Option<Gate>) -> Self {
        let watched = gate.map(|gate| (gate.clone(), gate.subscribe()));
        let first = watched.as_ref().map(|(gate, _)| line(&gate.state())).filter(|line| !line.is_empty());
        Self { watched, first, ticks: interval_at(Instant::now() + EVERY, EVERY) }
    }

    /// Returns the next update. Cancel safe.
    pub async fn next(&mut self) -> OutageUpdate {
        if let Some(first) = self.first.take() {
            return OutageUpdate::Changed(first);
        }
        loop {
            let Some((gate, transitions)) = &mut self.watched else { return std::future::pending().await };
            let changed = tokio::select! {
                changed = transitions.recv() => changed,
                _ = self.ticks.tick() => return OutageUpdate::Line(line(&gate.state())),
            };
            match changed {
                Ok(transition) => return OutageUpdate::Changed(sentence(&transition)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => self.watched = None,
            }
        }
    }
}

const OPERATOR: &str = "an operator must fix that";

pub(crate) fn sentence(transition: &Transition) -> String {
    let model = transition.key.model();
    match transition.change {
        Availability::Unavailable { reason, next_try: Some(next_try) } => {
            format!("model {model} {}: next try in {} s", state_text(reason), next_try.as_secs_f64().ceil())
        }
        Availability::Unavailable { reason, next_try: None } => {
            format!("model {model} {}: {OPERATOR}", state_text(reason))
        }
        Availability::Recovered { after } => format!("model {model} answers again, after {} s", after.as_secs()),
    }
}

/// Lists the unavailable models, with the calls that wait for them.
fn line(models: &[ModelState]) -> String {
    let away = models.iter().filter_map(|model| {
        let outage = model.outage.as_ref()?;
        let next_try = match outage.next_try {
            Some(next_try) => format!("next try in {} s", next_try.as_secs_f64().ceil()),
            None if outage.reason.needs_operator() => OPERATOR.to_owned(),
            None => "trying now".to_owned(),
        };
        let waiting = counted(model.waiting, "call");
        let wait = if model.waiting == 1 { "waits" } else { "wait" };
        Some(format!("model {} {}: {next_try}, {waiting} {wait}", model.key.model(), state_text(outage.reason)))
    });
    away.collect::<Vec<_>>().join(" · ")
}

const fn state_text(reason: DeferralReason) -> &'static str {
    match reason {
        DeferralReason::RateLimited => "is rate-limited",
        DeferralReason::Overloaded => "is overloaded",
        DeferralReason::ModelLoading => "is being loaded",
        DeferralReason::Unreachable => "cannot be reached",
        DeferralReason::NoAnswer => "does not answer",
        DeferralReason::KeyRefused => "refuses the key",
        DeferralReason::PaymentRequired => "asks for payment",
        DeferralReason::AccessDenied => "denies access",
        DeferralReason::ModelNotFound => "is not known to the server",
        DeferralReason::RequestRefused => "refuses a request",
    }
}
