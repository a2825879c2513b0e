//! Commits in the whole-document way: the reference that the board's own way is compared with.
//!
//! It clones the document, applies the patch with `json_patch`, validates the whole with `jsonschema` and digests the
//! whole. Each stage is one plain function, so that it can be timed alone. The baseline has schema, document and
//! digest, but no contracts, no invariants and no journal.

use json_patch::{PatchErrorKind, PatchOperation};
use jsonschema::{Draft, PatternOptions, Validator};
use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::json::{self, Limits};
use serde_json::Value;

/// Maximum size of a patch, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// Maximum depth of a patch.
const DEPTH_MAX: usize = 64;

/// Reason why a patch was not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not strict JSON, or not a patch.
    Syntax,
    /// A failed `test` operation.
    Test,
    /// Another operation that cannot be applied.
    Application,
    /// A result that does not fit the schema.
    Schema,
}

/// A document under a schema.
pub struct Whole {
    validator: Validator,
    hasher: Hasher,
    document: Value,
    digest: Digest,
}

impl Whole {
    /// Returns a document under a schema; `None` if it does not fit, or the schema is invalid.
    pub fn new(schema: &Value, mut document: Value, salt: &Salt) -> Option<Self> {
        json::normalise(&mut document);
        let validator = compile(schema)?;
        let hasher = Hasher::new(salt);
        let digest = digest(&hasher, &document);
        is_valid(&validator, &document).then_some(Self { validator, hasher, document, digest })
    }

    /// Returns the committed document.
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// Returns the digest of the committed document.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the validator of the schema.
    pub const fn validator(&self) -> &Validator {
        &self.validator
    }

    /// Returns the hasher of the document.
    pub const fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Runs all stages in order. A rejected patch changes nothing.
    ///
    /// # Errors
    /// The stage that rejected it.
    pub fn commit(&mut self, text: &str) -> Result<Digest, Refusal> {
        let ops = parse(text)?;
        let mut candidate = copy(&self.document);
        apply(&mut candidate, &ops)?;
        if !is_valid(&self.validator, &candidate) {
            return Err(Refusal::Schema);
        }
        let digest = digest(&self.hasher, &candidate);
        self.replace(candidate, digest);
        Ok(digest)
    }

    /// Runs the last stage: the candidate becomes the document, and the former document is dropped.
    pub fn replace(&mut self, candidate: Value, digest: Digest) {
        self.document = candidate;
        self.digest = digest;
    }
}

/// Returns the validator of a schema, with the kernel's configuration; `None` if the schema is invalid.
pub fn compile(schema: &Value) -> Option<Validator> {
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline();
    options.with_pattern_options(PatternOptions::regex()).build(schema).ok()
}

/// Runs stage 1: strict JSON (no duplicate keys, bounded), then RFC 6902.
///
/// # Errors
/// [`Refusal::Syntax`].
pub fn parse(text: &str) -> Result<Vec<PatchOperation>, Refusal> {
    let limits = Limits { bytes: BYTES_MAX, depth: DEPTH_MAX };
    let value = json::parse(text.as_bytes(), limits).map_err(|_| Refusal::Syntax)?;
    serde_json::from_value(value).map_err(|_| Refusal::Syntax)
}

/// Runs stage 2: the candidate, a copy of everything.
pub fn copy(document: &Value) -> Value {
    document.clone()
}

/// Runs stage 3: applies the patch to the candidate, which is invalid after an error.
///
/// # Errors
/// [`Refusal::Test`], [`Refusal::Application`].
pub fn apply(candidate: &mut Value, ops: &[PatchOperation]) -> Result<(), Refusal> {
    json_patch::patch_unsafe(candidate, ops).map_err(|error| match error.kind {
        PatchErrorKind::TestFailed => Refusal::Test,
        _ => Refusal::Application,
    })
}

/// Runs stage 4: validates the whole candidate against the whole schema.
pub fn is_valid(validator: &Validator, candidate: &Value) -> bool {
    validator.is_valid(candidate)
}

/// Runs stage 5: digests the whole candidate.
pub fn digest(hasher: &Hasher, candidate: &Value) -> Digest {
    hasher.document(candidate)
}
