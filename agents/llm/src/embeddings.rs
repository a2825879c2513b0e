//! Client for an OpenAI-compatible embeddings endpoint.
//!
//! Owns the requests and the parsing of answers; callers judge similarities. Requests are retried like those of a chat
//! ([`super`]), within the time of the whole call. Each request passes the gate: its bulkhead is that of the models
//! with the same address and name. A failure message omits the server's text, which may repeat the request.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_runtime::agent::Failure;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::credentials::Variables;
use super::failure_codes::{code_of, deferral_of};
use super::reply::estimate;
use super::retries::retry_request;
use super::transport::{Endpoint, HttpFailure};
use crate::config::{Embeddings, Model};
use crate::gate::{self, Gate, Permit};
use crate::telemetry;

/// Texts per request, at most: common servers accept this many.
const BATCH: usize = 32;

const DIMENSIONS_MAX: usize = 8192;

/// Embedding vector: finite, and of length one.
#[derive(Clone, PartialEq, Debug)]
pub struct Embedding(Vec<f64>);

impl Embedding {
    /// Normalizes a vector; returns none if it is zero, too long or not finite.
    pub fn new(numbers: Vec<f64>) -> Option<Self> {
        let most =
            numbers.iter().try_fold(0.0_f64, |most, number| number.is_finite().then(|| most.max(number.abs())))?;
        if most == 0.0 || numbers.len() > DIMENSIONS_MAX {
            return None;
        }
        // Divides by the largest number first, so that no square overflows or underflows.
        let scaled: Vec<f64> = numbers.into_iter().map(|number| number / most).collect();
        let length = scaled.iter().map(|number| number * number).sum::<f64>().sqrt();
        Some(Self(scaled.into_iter().map(|number| number / length).collect()))
    }

    /// Returns the cosine similarity, from -1 to 1, or 0 for different dimensions.
    pub fn cosine(&self, other: &Self) -> f64 {
        if self.0.len() != other.0.len() {
            return 0.0;
        }
        let product: f64 = self.0.iter().zip(&other.0).map(|(one, other)| one * other).sum();
        product.clamp(-1.0, 1.0)
    }
}

/// Client of the operator's endpoint.
pub struct Embedder {
    /// Settings of the endpoint.
    pub config: Embeddings,
    server: Model,
    variables: Arc<Variables>,
    gate: Gate,
    bulkhead: Arc<gate::Endpoint>,
    /// Created at first use: reading the system's certificates takes a while.
    connection: OnceLock<Result<Endpoint, String>>,
}

impl Embedder {
    /// Builds the client of an endpoint behind a gate. Makes no request yet.
    pub fn new(config: Embeddings, variables: Arc<Variables>, gate: Gate, bulkhead: gate::Endpoint) -> Self {
        let (server, bulkhead) = (config.server(), Arc::new(bulkhead));
        Self { server, config, variables, gate, bulkhead, connection: OnceLock::new() }
    }

    /// Returns the embeddings of these texts, in this order, all of the same dimensions.
    /// An error omits text from the server.
    pub async fn embed(&self, board: &BoardId, texts: &[&str], patience: Duration) -> Result<Vec<Embedding>, Failure> {
        let span = telemetry::embeddings(&self.server);
        let patience = patience.min(Duration::from_millis(self.config.timeout.as_ms()));
        let deadline = Instant::now() + patience;
        let asking = self.ask(board, texts, deadline).instrument(span.clone());
        let embedded = timeout_at(deadline, asking).await.unwrap_or_else(|_| {
            Err(Failure::new(FailureCode::Timeout, format!("no answer within {} s", patience.as_secs_f64())))
        });
        telemetry::record_outcome(&span, embedded.as_ref().map(|_| None));
        embedded
    }

    async fn ask(&self, board: &BoardId, texts: &[&str], deadline: Instant) -> Result<Vec<Embedding>, Failure> {
        let connection = self.connection.get_or_init(|| Endpoint::new(&self.server, &self.variables)).as_ref();
        let connection = connection.map_err(|why| Failure::new(FailureCode::NotConfigured, why.as_str()))?;
        let mut all: Vec<Embedding> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            let answer =
                self.send_with_retries(connection, board, batch, deadline).await.map_err(|error| named(&error))?;
            let read = read(&answer, batch.len()).map_err(|why| Failure::new(FailureCode::Protocol, why))?;
            all.extend(read);
        }
        match all.windows(2).all(|two| two[0].0.len() == two[1].0.len()) {
            true => Ok(all),
            false => Err(Failure::new(FailureCode::Protocol, "the embeddings have different dimensions")),
        }
    }

    async fn send_with_retries(
        &self,
        connection: &Endpoint,
        board: &BoardId,
        texts: &[&str],
        deadline: Instant,
    ) -> Result<Value, HttpFailure> {
        let body = json!({"model": self.server.model, "input": texts}).to_string().into_bytes();
        let request = gate::Request {
            board: board.clone(),
            endpoint: Arc::clone(&self.bulkhead),
            fallbacks: Vec::new(),
            tokens: estimate(texts.iter().map(|text| text.chars().count()).sum()),
            prompt: sha256(&body),
        };
        let send = || async {
            let permit = self.admitted(request.clone(), deadline).await?;
            let answer = connection.post("/embeddings", body.clone(), deadline, &|| {}).await;
            report(&permit, answer.as_ref().err());
            answer.map(|answered| answered.value)
        };
        retry_request(self.server.max_tries, deadline, |_| true, send).await
    }

    async fn admitted(&self, request: gate::Request, deadline: Instant) -> Result<Permit, HttpFailure> {
        let waiting = match self.gate.admit(request) {
            gate::AdmitResult::Now(permit) => return Ok(permit),
            gate::AdmitResult::Later(waiting) => waiting,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let model = self.gate.state().into_iter().find(|model| model.key == self.bulkhead.key);
        let next_try = model.and_then(|model| model.outage?.next_try);
        if next_try.is_some_and(|next_try| next_try >= left) {
            return Err(HttpFailure::NotAdmitted);
        }
        timeout_at(deadline, waiting).await.map_err(|_| HttpFailure::NotAdmitted)
    }
}

fn report(permit: &Permit, failure: Option<&HttpFailure>) {
    match failure.and_then(deferral_of) {
        None => permit.report_answer(),
        // Waiting cannot fix the cause, and a request with less time than a model's call proves no outage by its
        // timeout.
        Some(deferral) if deferral.reason.needs_operator() || deferral.reason == DeferralReason::NoAnswer => {}
        // The request has failed, independent of the verdict.
        Some(deferral) => drop(permit.report_rejection(deferral)),
    }
}

/// Names the failure of an exchange, without the server's text.
fn named(error: &HttpFailure) -> Failure {
    let why = match error {
        HttpFailure::Key(_) => "there is no key to send".to_owned(),
        HttpFailure::NotAdmitted | HttpFailure::Limited { .. } => error.to_string(),
        HttpFailure::Connect(_) => "no connection was made".to_owned(),
        HttpFailure::ConnectionLost { .. } => "the connection broke".to_owned(),
        HttpFailure::NoAnswer { .. } => "no answer in time".to_owned(),
        HttpFailure::Status { status, .. } => format!("the server answered with status {status}"),
        HttpFailure::InvalidBody(_) | HttpFailure::NotAnApi { .. } => {
            "the answer has no JSON, or is too long".to_owned()
        }
    };
    Failure::new(code_of(error), why)
}

/// Reads the embeddings of an answer, which must have `count`.
fn read(answer: &Value, count: usize) -> Result<Vec<Embedding>, &'static str> {
    let data = answer["data"].as_array().ok_or("the answer has no embeddings")?;
    if data.len() != count {
        return Err("the answer has another number of embeddings than there are texts");
    }
    let mut found: Vec<Option<Embedding>> = vec![None; count];
    for (position, item) in data.iter().enumerate() {
        let at = item.get("index").map_or(Some(position), |index| usize::try_from(index.as_u64()?).ok());
        let place = at.and_then(|at| found.get_mut(at)).filter(|place| place.is_none());
        let place = place.ok_or("the answer does not say which embedding is of which text")?;
        let numbers = item["embedding"].as_array().filter(|numbers| numbers.len() <= DIMENSIONS_MAX);
        let numbers = numbers.and_then(|numbers| numbers.iter().map(Value::as_f64).collect());
        *place = Some(numbers.and_then(Embedding::new).ok_or("an embedding is no direction")?);
    }
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests;
