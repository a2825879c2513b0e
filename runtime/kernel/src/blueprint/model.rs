//! Model selection: a worker's model is named directly or drawn from several.

use std::collections::BTreeMap;
use std::slice;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{AgentKind, Blueprint, Worker};
use crate::id::WorkerName;

/// Key of `models` for workers that name none.
const DEFAULT: &str = "default";

/// Hash prefix before the seed and the name. It must never change, so that draws stay stable.
const DOMAIN: &[u8] = b"patchboard model draw 1\0";

/// Value of a key of `models`.
#[derive(Clone, PartialEq, Eq, Debug)]
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

impl Serialize for ModelChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(model) => model.serialize(serializer),
            Self::Drawn(models) => models.serialize(serializer),
        }
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
mod tests {
    use serde_json::json;

    use super::*;

    fn several(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("m{number}")).collect()
    }

    #[test]
    fn a_model_is_a_name_or_some_names_and_keeps_its_form() {
        for form in [json!("local"), json!(["small", "large"]), json!(["only"])] {
            let choice: ModelChoice = serde_json::from_value(form.clone()).expect("a form");
            assert_eq!(serde_json::to_value(&choice).expect("it is JSON"), form);
        }
        for bad in [json!([]), json!(several(ModelChoice::MODELS_MAX + 1)), json!([1]), json!({}), json!(null)] {
            assert!(serde_json::from_value::<ModelChoice>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn draws_are_spread_evenly_over_names() {
        const NAMES: usize = 10_000;
        for count in [2, 3, 7] {
            let models = several(count);
            let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
            for number in 0..NAMES {
                let name = WorkerName::from(format!("expert_{number}"));
                *seen.entry(draw(7, &name, &models).expect("there are models")).or_default() += 1;
            }
            // Five standard deviations of a fair draw.
            let expected = NAMES as f64 / count as f64;
            let most = 5.0 * (expected * (1.0 - 1.0 / count as f64)).sqrt();
            assert_eq!(seen.len(), count);
            for (model, times) in seen {
                assert!((times as f64 - expected).abs() < most, "{model} of {count}: {times}, not about {expected}");
            }
        }
    }

    #[test]
    fn only_seed_and_name_decide() {
        let models = several(32);
        let names: Vec<WorkerName> = (0..200).map(|number| WorkerName::from(format!("w{number}"))).collect();
        let all = |seed| names.iter().map(|name| draw(seed, name, &models)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_ne!(all(0), all(u64::MAX));
        assert_eq!(draw(1, &"w".into(), &[]), None);
    }

    #[test]
    fn language_models_are_drawn_for_and_others_are_not() {
        let blueprint: Blueprint = serde_json::from_value(json!({
            "blueprint": 1, "name": "d", "seed": 9, "state": {"schema": true},
            "models": {"default": "local", "crowd": ["small", "large"]},
            "workers": {
                "a": {"agent": "llm", "model": "crowd"}, "b": {"agent": "llm"},
                "c": {"agent": "remote", "model": "crowd"}, "d": {"agent": "llm", "model": "none"},
            },
        }))
        .expect("a blueprint");
        let drawn = blueprint.drawn_models();
        assert_eq!(drawn.keys().map(WorkerName::as_str).collect::<Vec<_>>(), ["a"]);
        assert_eq!(blueprint.model_of(&"a".into()), drawn.values().next().map(String::as_str));
        assert_eq!(blueprint.model_of(&"b".into()), Some("local"));
        assert_eq!(blueprint.model_of(&"d".into()), None);
    }
}
