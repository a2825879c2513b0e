//! Key, headers and query of requests, with the values of the environment.

use std::collections::BTreeMap;

use base64::Engine as _;
use patchboard_kernel::digest::{Digest, sha256};
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::keys::{self, Keys};
use crate::config::{Model, Setting, redacted};

/// Values of the environment variables named in the configuration.
pub type Variables = BTreeMap<String, SecretString>;

pub(super) struct Credentials {
    pub(super) keys: Keys,
    headers: Vec<(String, SecretString)>,
    query: Vec<(String, SecretString)>,
    /// Values of headers and query that are masked in replies, each with true if its name marks it as a secret.
    hidden: Vec<(SecretString, bool)>,
}

impl Credentials {
    /// Reads the values that the configuration of a model names.
    /// An error names the variable that is not set and the member that needs it.
    pub(super) fn new(model: &Model, variables: &Variables) -> Result<Self, String> {
        let value = |variable: &str, what: String| {
            let missing = || format!("set {}, which {what}", redacted(variable));
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
        let hidden = model.headers.iter().chain(&model.query).filter_map(|(name, setting)| {
            let is_secret = is_secret_by(name);
            let value = match setting {
                Setting::Variable(variable) => variables.get(&variable.env).cloned()?,
                Setting::Text(text) if is_secret => SecretString::from(text.as_str()),
                Setting::Text(_) => return None,
            };
            Some((value, is_secret))
        });
        // A credential follows the name of its scheme. Words that only share a prefix with the whole value are not
        // masked.
        let hidden = hidden.flat_map(|(value, is_secret)| {
            let credential = value.expose_secret().split_once(' ').map(|(_, credential)| credential.to_owned());
            let is_credential = is_secret && credential.is_none();
            let credential = credential.map(|credential| (SecretString::from(credential), is_secret));
            std::iter::once((value, is_credential)).chain(credential)
        });
        Ok(Self {
            keys: Keys::new(key, &model.api_key_command),
            headers: all(&model.headers, "headers")?,
            query: all(&model.query, "query")?,
            hidden: hidden.collect(),
        })
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    pub(super) fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    pub(super) fn mask(&self, text: &str) -> String {
        let keys = self.keys.secrets();
        let values = self.headers.iter().chain(&self.query).map(|(_, value)| value);
        let secrets = keys.iter().chain(values).chain(self.hidden.iter().map(|(value, _)| value));
        let secrets = secrets.map(SecretString::expose_secret).filter(|secret| secret.len() >= SECRET_MIN);
        secrets.fold(text.to_owned(), mask_secret)
    }

    /// Masks the keys and the values of headers and query that a reply repeats. Returns none if it repeats none.
    pub(super) fn without_keys(&self, text: &str) -> Option<String> {
        let keys = self.keys.secrets();
        let long = |(secret, _): &(&str, bool)| secret.len() >= KEY_MIN;
        let hidden = self.hidden.iter().map(|(value, is_secret)| (value.expose_secret(), *is_secret));
        let all = keys.iter().map(|key| (key.expose_secret(), true)).chain(hidden).filter(long);
        let masked = all.fold(text.to_owned(), |text, (secret, is_secret)| match is_secret {
            true => mask_secret(text, secret),
            // Another word may share its prefix.
            false => hide_whole(text, secret),
        });
        (masked != text).then_some(masked)
    }
}

/// Returns the account of a model's requests, as a digest. It covers the source of the key, and the headers and query
/// members that hold secrets or name an organization or a project. Returns none if there are none of them.
pub(crate) fn account(model: &Model) -> Option<Digest> {
    let names_account =
        |name: &str| ["organization", "project"].iter().any(|word| name.to_ascii_lowercase().contains(word));
    let mut account = String::new();
    for word in model.api_key_env.iter().chain(&model.api_key_command) {
        account.push_str(&format!("\n{word:?}"));
    }
    for (name, setting) in model.headers.iter().chain(&model.query) {
        let value = match setting {
            Setting::Variable(variable) => variable.env.as_str(),
            Setting::Text(text) if is_secret_by(name) || names_account(name) => text.as_str(),
            Setting::Text(_) => continue,
        };
        account.push_str(&format!("\n{name}: {value}"));
    }
    (!account.is_empty()).then(|| sha256(account.as_bytes()))
}

/// Returns true if the name of a header or query member marks its value as a secret.
fn is_secret_by(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        SECRET_NAMES.split(' ').any(|name| name == word) || SECRET_ENDS.iter().any(|end| word.ends_with(end))
    })
}

/// Replaces a secret in a text, also in URL, JSON and `Basic` encoding, and words that share its prefix.
fn mask_secret(text: String, secret: &str) -> String {
    let text = hide_whole(text, secret);
    if secret.len() < KEY_MIN { text } else { mask_key_prefixes(&text, secret) }
}

/// Replaces a secret in a text, also in URL, JSON and `Basic` encoding.
fn hide_whole(text: String, secret: &str) -> String {
    let url = Url::parse_with_params("http://h/", [("k", secret)]).ok();
    let escaped = url.as_ref().and_then(|url| url.query()?.strip_prefix("k=")).unwrap_or(secret);
    let in_json = Value::from(secret).to_string();
    let in_json = in_json.trim_matches('"');
    let with_slashes = in_json.replace('/', "\\/");
    let with_bare_slashes = escaped.replace("%2F", "/");
    let forms = [secret, escaped, &with_bare_slashes, in_json, &with_slashes];
    let text = forms.iter().fold(text, |text, form| text.replace(form, "***"));
    let encoded = base64::engine::general_purpose::STANDARD.encode(secret);
    // The last characters depend on the bytes after the secret.
    let encoded = encoded.trim_end_matches('=');
    if secret.len() < KEY_MIN { text } else { text.replace(encoded, "***") }
}

/// Replaces words that begin like a key, in either case, because some servers print a key without its end.
fn mask_key_prefixes(text: &str, key: &str) -> String {
    let is_key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.' | '/' | '+' | '=');
    let (lower, start) = (text.to_ascii_lowercase(), key[..key.floor_char_boundary(BEGUN_MIN)].to_ascii_lowercase());
    let (mut masked, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(found) = lower[at..].find(&start).map(|found| at + found) {
        masked.push_str(&text[at..found]);
        masked.push_str("***");
        at = text[found..].find(|c| !is_key_char(c)).map_or(text.len(), |length| found + length.max(start.len()));
    }
    masked + &text[at..]
}

/// Words in names of headers and query members that mark their values as secrets.
const SECRET_NAMES: &str = "auth authorization bearer code cookie credential credentials jwt pass sig signature";

/// Suffixes of such words, as in `apikey`.
const SECRET_ENDS: [&str; 5] = ["key", "password", "pwd", "secret", "token"];

/// Bytes of the shortest secret; masking shorter ones, like a version, would hit ordinary words.
const SECRET_MIN: usize = 4;

/// Bytes that a word must share with a key to be masked.
const BEGUN_MIN: usize = 12;

/// Bytes of the shortest key that is masked in replies; a shorter mask could change their meaning.
const KEY_MIN: usize = 16;

#[cfg(test)]
mod tests;
