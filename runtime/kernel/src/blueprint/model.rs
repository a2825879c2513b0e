//! Model selection: a worker's model is named directly or drawn from several.

use std::collections::BTreeMap;
use std::slice;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{AgentKind, Blueprint, Worker};
use crate::id::WorkerName;

/// Key of `models` for workers that name none.
const DEFAULT: &str = "default";

/// Hash prefix before the seed and the name. It must never change, so that draws stay stable.
const DOMAIN: &[u8] = b"patchboard model draw 1\0";

/// Value of a key of `models`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum ModelChoice {
    /// A model of the operator's configuration.
    One(String),
    /// Several models, at least one. Each worker gets one, drawn by the blueprint's seed and the worker's name.
    Drawn(Vec<String>),
}

impl ModelChoice {
    /// Maximum number of models to draw from.
    pub const MODELS_MAX: usize = 32;

    /// Returns all models it may resolve to.
    pub const fn models(&self) -> &[String] {
        match self {
            Self::One(model) => slice::from_ref(model),
            Self::Drawn(models) => models.as_slice(),
        }
    }
}

impl From<&str> for ModelChoice {
    fn from(model: &str) -> Self {
        Self::One(model.to_owned())
    }
}

impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Value::String(model) = value {
            return Ok(Self::One(model));
        }
        let models: Vec<String> = serde_json::from_value(value).map_err(D::Error::custom)?;
        match models.len() {
            1..=Self::MODELS_MAX => Ok(Self::Drawn(models)),
            count => {
                Err(D::Error::custom(format!("one of 1 to {} models can be drawn, not of {count}", Self::MODELS_MAX)))
            }
        }
    }
}

impl Blueprint {
    /// Returns a worker's key of `models` and its value; `None` if the key is missing.
    pub fn choice<'a>(&'a self, worker: &'a Worker) -> (&'a str, Option<&'a ModelChoice>) {
        let name = worker.model.as_deref().unwrap_or(DEFAULT);
        (name, self.models.get(name))
    }

    /// Returns the operator's name of the model that serves a worker; `None` if `models` has no entry for it.
    pub fn model_of(&self, name: &WorkerName) -> Option<&str> {
        match self.choice(self.workers.get(name)?).1? {
            ModelChoice::One(model) => Some(model),
            ModelChoice::Drawn(models) => draw(self.seed, name, models),
        }
    }

    /// Sets the seed of draws, also in nested boards.
    pub fn draw_by(&mut self, seed: u64) {
        self.seed = seed;
        self.boards.values_mut().for_each(|board| board.draw_by(seed));
    }

    /// Returns the drawn models, by worker.
    pub fn drawn_models(&self) -> BTreeMap<WorkerName, String> {
        let draws = |(_, worker): &(&WorkerName, &Worker)| {
            worker.agent == AgentKind::Llm && matches!(self.choice(worker).1, Some(ModelChoice::Drawn(_)))
        };
        let drawn = self.workers.iter().filter(draws);
        drawn.filter_map(|(name, _)| Some((name.clone(), self.model_of(name)?.to_owned()))).collect()
    }
}

/// Draws a model by seed and worker name alone (docs/semantics.md, section 11); `None` if `models` is empty.
fn draw<'a>(seed: u64, worker: &WorkerName, models: &'a [String]) -> Option<&'a str> {
    let hash = Sha256::new().chain_update(DOMAIN).chain_update(seed.to_be_bytes()).chain_update(worker.as_str());
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let place = number.checked_rem(u64::try_from(models.len()).ok()?)?;
    models.get(usize::try_from(place).ok()?).map(String::as_str)
}

#[cfg(test)]
mod tests;
