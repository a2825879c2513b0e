//! Fingerprints of idempotency keys. Files and records store fingerprints, never the keys.

use hmac::{Hmac, KeyInit as _, Mac as _};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use sha2::Sha256;
use uuid::Builder;

use super::access::Scope;

pub(super) const SECRET_BYTES: usize = 32;

const FINGERPRINT_PREFIX: &str = "key:";

/// Hex digits of a fingerprint in records: 128 bits.
const DIGITS: usize = 32;

/// Secret of a data directory. Without it, guesses of a key cannot be tested against a fingerprint.
#[derive(Clone)]
pub(crate) struct Secret([u8; SECRET_BYTES]);

/// Idempotency key in the scope of its caller: the same key of another scope is a different one.
#[derive(Clone)]
pub(crate) struct ScopedKey {
    secret: Secret,
    scope: String,
    key: String,
}

pub(crate) struct KeyBoardIds {
    /// Id of a board created with the key. Stable across versions.
    pub(crate) id: BoardId,
    /// Id assigned by versions without a secret.
    pub(crate) legacy_id: BoardId,
}

impl Secret {
    pub(super) const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bind(&self, scope: &Scope, key: &str) -> ScopedKey {
        ScopedKey { secret: self.clone(), scope: scope.to_string(), key: key.to_owned() }
    }

    /// Returns the fingerprint of a text that earlier versions stored: the scope, `/`, and the key.
    pub(super) fn token_of(&self, text: &str) -> IdempotencyKey {
        let digits = Digest(self.fingerprint("request", text)).to_string();
        IdempotencyKey::from(format!("{FINGERPRINT_PREFIX}{}", &digits[..DIGITS]))
    }

    fn fingerprint(&self, of: &str, text: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a secret may have any length");
        mac.update(format!("{of}\n{text}").as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl ScopedKey {
    pub(crate) fn idempotency_key(&self) -> IdempotencyKey {
        self.secret.token_of(&format!("{}/{}", self.scope, self.key))
    }

    pub(crate) fn board_ids(&self) -> KeyBoardIds {
        let text = format!("{}\n{}", self.scope, self.key);
        let before = sha256(format!("board\n{text}").as_bytes()).0;
        KeyBoardIds { id: id_of(self.secret.fingerprint("board", &text)), legacy_id: id_of(before) }
    }
}

/// Returns the id with these first bits: a UUID of version 8, with application-defined bits (RFC 9562 section 5.8).
fn id_of(bits: [u8; 32]) -> BoardId {
    let first = *bits.first_chunk().expect("there are as many");
    BoardId::from(Builder::from_custom_bytes(first).into_uuid().to_string())
}
