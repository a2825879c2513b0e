//! Fingerprints of `Idempotency-Key`s. Files and records hold these, and no key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Token};
use sha2::Sha256;
use uuid::Builder;

use super::access::Scope;

/// Bytes of a secret.
pub(super) const SECRET_BYTES: usize = 32;

/// The beginning of a fingerprint in records.
pub(super) const FORM: &str = "key:";

/// Digits of a fingerprint in records: 128 bits.
const DIGITS: usize = 32;

/// The secret of a data directory. Only its holder can test guesses of a key against a fingerprint.
#[derive(Clone)]
pub(crate) struct Secret([u8; SECRET_BYTES]);

/// A key as one caller uses it: callers of different scopes share none.
#[derive(Clone)]
pub(crate) struct Keyed {
    secret: Secret,
    scope: String,
    key: String,
}

/// The boards that a key may have made.
pub(crate) struct Made {
    /// The id of a board that is made with it now: the same for ever.
    pub(crate) id: BoardId,
    /// The id that versions without a secret gave it.
    pub(crate) before: BoardId,
}

impl Secret {
    pub(super) const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// A key that a caller of this scope sent.
    pub(crate) fn keyed(&self, scope: &Scope, key: &str) -> Keyed {
        Keyed { secret: self.clone(), scope: scope.to_string(), key: key.to_owned() }
    }

    /// The fingerprint of a text that earlier versions kept: the scope, `/`, and the key.
    pub(super) fn token_of(&self, text: &str) -> Token {
        let digits = Digest(self.fingerprint("request", text)).to_string();
        Token::from(format!("{FORM}{}", &digits[..DIGITS]))
    }

    fn fingerprint(&self, of: &str, text: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a secret may have any length");
        mac.update(format!("{of}\n{text}").as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl Keyed {
    /// The token by which a repetition is known.
    pub(crate) fn token(&self) -> Token {
        self.secret.token_of(&format!("{}/{}", self.scope, self.key))
    }

    /// The boards that it may have made.
    pub(crate) fn made(&self) -> Made {
        let text = format!("{}\n{}", self.scope, self.key);
        let before = sha256(format!("board\n{text}").as_bytes()).0;
        Made { id: id_of(self.secret.fingerprint("board", &text)), before: id_of(before) }
    }
}

/// The id with these first bits: a UUID of version 8, whose bits are the maker's (RFC 9562 section 5.8).
fn id_of(bits: [u8; 32]) -> BoardId {
    let first = *bits.first_chunk().expect("there are as many");
    BoardId::from(Builder::from_custom_bytes(first).into_uuid().to_string())
}
