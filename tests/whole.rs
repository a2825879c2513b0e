//! The whole-document way of a commit: the reference that the board's own way is compared with.
//!
//! It clones the document, applies the patch with `json_patch`, validates the whole with `jsonschema` and digests the
//! whole. One plain function per stage, so that the stages can be timed apart. There are no contracts, no invariants
//! and no journal in it: schema, document and digest are all it knows.

use json_patch::{PatchErrorKind, PatchOperation};
use jsonschema::{Draft, PatternOptions, Validator};
use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::json::{self, Limits};
use serde_json::Value;

/// The largest patch that is read, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The deepest patch that is read.
const DEPTH_MAX: usize = 64;

/// Why a patch was not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is no strict JSON, or no patch.
    Syntax,
    /// A `test` failed.
    Test,
    /// Another operation cannot be applied.
    Application,
    /// What it makes does not fit the schema.
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
    /// A document that fits the schema; `None` if it does not, or if the schema is none.
    pub fn new(schema: &Value, mut document: Value, salt: &Salt) -> Option<Self> {
        json::normalise(&mut document);
        let validator = compile(schema)?;
        let hasher = Hasher::new(salt);
        let digest = digest(&hasher, &document);
        is_valid(&validator, &document).then_some(Self { validator, hasher, document, digest })
    }

    /// The committed document.
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// Its digest.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// What validates it.
    pub const fn validator(&self) -> &Validator {
        &self.validator
    }

    /// What digests it.
    pub const fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// All stages, one after the other. A refused patch changes nothing.
    ///
    /// # Errors
    /// The stage that refused it.
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

    /// The last stage: the candidate becomes the document, and the one before is dropped.
    pub fn replace(&mut self, candidate: Value, digest: Digest) {
        self.document = candidate;
        self.digest = digest;
    }
}

/// The validator of a schema, as the kernel configures its own; `None` if the schema is none.
pub fn compile(schema: &Value) -> Option<Validator> {
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline();
    options.with_pattern_options(PatternOptions::regex()).build(schema).ok()
}

/// Stage 1: strict JSON (no duplicate keys, bounded), then RFC 6902.
///
/// # Errors
/// [`Refusal::Syntax`].
pub fn parse(text: &str) -> Result<Vec<PatchOperation>, Refusal> {
    let limits = Limits { bytes: BYTES_MAX, depth: DEPTH_MAX };
    let value = json::parse(text.as_bytes(), limits).map_err(|_| Refusal::Syntax)?;
    serde_json::from_value(value).map_err(|_| Refusal::Syntax)
}

/// Stage 2: the candidate, a copy of everything.
pub fn copy(document: &Value) -> Value {
    document.clone()
}

/// Stage 3: the patch is applied to the candidate, which is of no use after an error.
///
/// # Errors
/// [`Refusal::Test`], [`Refusal::Application`].
pub fn apply(candidate: &mut Value, ops: &[PatchOperation]) -> Result<(), Refusal> {
    json_patch::patch_unsafe(candidate, ops).map_err(|error| match error.kind {
        PatchErrorKind::TestFailed => Refusal::Test,
        _ => Refusal::Application,
    })
}

/// Stage 4: the whole candidate against the whole schema.
pub fn is_valid(validator: &Validator, candidate: &Value) -> bool {
    validator.is_valid(candidate)
}

/// Stage 5: the digest of the whole candidate.
pub fn digest(hasher: &Hasher, candidate: &Value) -> Digest {
    hasher.document(candidate)
}
