//! Signatures of webhooks according to Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Prefix of a base64 secret.
const PREFIX: &str = "whsec_";

#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Parses `whsec_` followed by base64, or takes the bytes of any other text.
    /// Error messages do not contain the text.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let key = match text.strip_prefix(PREFIX) {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| "holds no base64 after whsec_")?,
            None => text.as_bytes().to_vec(),
        };
        if key.is_empty() { Err("is empty") } else { Ok(Self(key)) }
    }

    /// Returns the value of the header `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        format!("v1,{}", STANDARD.encode(self.hmac(format!("{id}.{timestamp}.{body}").as_bytes())))
    }

    /// Computes the HMAC-SHA256 (RFC 2104).
    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(message);
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    /// Formats bytes in hexadecimal.
    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_example_of_standard_webhooks_has_its_signature() {
        let secret = Secret::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn short_and_long_keys_give_the_codes_of_rfc_4231() {
        let short = Secret::read("Jefe").expect("a secret").hmac(b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let encoded = format!("whsec_{}", base64::Engine::encode(&super::STANDARD, [0xaa; 131]));
        let long = Secret::read(&encoded).expect("a secret");
        let long = long.hmac(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn an_unusable_secret_is_rejected_without_its_text() {
        for wrong in ["", "  ", "whsec_", "whsec_%%%"] {
            assert!(Secret::read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(format!("{:?}", Secret::read("hidden").expect("a secret")), "Secret");
    }
}
