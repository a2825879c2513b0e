//! Contents of documents, as they are read.

use patchboard_storage::documents::Document;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

pub(super) fn corrupt(message: String) -> Failure {
    Failure::failed("tokens_corrupt", format!("the tokens have an invalid entry: {message}"))
}

pub(super) fn parsed<T: DeserializeOwned>(document: Document) -> Result<T, Failure> {
    serde_json::from_value(document.value).map_err(|error| corrupt(format!("{}: {error}", document.key)))
}
