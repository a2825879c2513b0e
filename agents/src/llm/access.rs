//! Key, headers and query of requests, with the values of the environment.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::keys::{self, Keys};
use crate::config::{Model, Setting};

/// Values of the environment variables that the configuration names.
pub type Variables = BTreeMap<String, SecretString>;

/// Key, headers and query of a model's requests.
pub(super) struct Access {
    keys: Keys,
    headers: Vec<(String, SecretString)>,
    query: Vec<(String, SecretString)>,
}

impl Access {
    /// Looks up what the configuration of a model names.
    ///
    /// # Errors
    /// The variable that is not set, and the member that names it; or the key cannot be sent.
    pub(super) fn new(model: &Model, variables: &Variables) -> Result<Self, String> {
        let value = |variable: &str, what: String| {
            let missing = || format!("set {variable}, which {what}");
            variables.get(variable).cloned().ok_or_else(missing)
        };
        let of_key = |variable: &String| value(variable, "api_key_env says holds its key".to_owned());
        let key = model.api_key_env.as_ref().map(|variable| of_key(variable).and_then(keys::check)).transpose()?;
        let all = |settings: &BTreeMap<String, Setting>, table: &str| {
            let pair = |(name, setting): (&String, &Setting)| {
                let value = match setting {
                    Setting::Text(text) => SecretString::from(text.as_str()),
                    Setting::Variable(variable) => value(&variable.env, format!("{table}.{name} is read from"))?,
                };
                Ok((name.clone(), value))
            };
            settings.iter().map(pair).collect::<Result<Vec<_>, String>>()
        };
        Ok(Self {
            keys: Keys::new(key, &model.api_key_command),
            headers: all(&model.headers, "headers")?,
            query: all(&model.query, "query")?,
        })
    }

    /// The key to send. `refused` is one that the server has refused.
    ///
    /// # Errors
    /// The program that prints it gave none.
    pub(super) async fn key(&self, refused: Option<&SecretString>) -> Result<Option<SecretString>, String> {
        self.keys.get(refused).await
    }

    /// Tells whether another key may be had after one was refused.
    pub(super) const fn can_renew(&self) -> bool {
        self.keys.can_renew()
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    pub(super) fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    /// Replaces everything secret in a text.
    pub(super) fn mask(&self, text: &str) -> String {
        let keys = self.keys.secrets();
        let secrets = keys.iter().chain(self.headers.iter().chain(&self.query).map(|(_, value)| value));
        let mut text = text.to_owned();
        for secret in secrets.map(SecretString::expose_secret).filter(|secret| secret.len() >= SECRET_MIN) {
            text = text.replace(secret, "***");
        }
        text
    }
}

/// Bytes of the shortest text that is taken for a secret; shorter ones, like a version, would mask what is none.
const SECRET_MIN: usize = 4;
