//! Tokens of callers, and the end of requests and leases with them.

use std::time::Duration;

use patchboard_kernel::digest::sha256;
use tokio::sync::watch;

use super::Daemon;
use crate::failure::Failure;
use crate::serve::access::Scope;
use crate::serve::tokens::Holder;

/// Maximum interval at which tokens of open streams and leases are checked for expiry.
const EXPIRY_LOOK: Duration = Duration::from_secs(30);

impl Daemon {
    /// Accepts an administrator's token that is stored in no file of the daemon.
    pub(crate) fn with_own_token(self, token: &str) -> Self {
        Self { own: Some(sha256(token.as_bytes())), ..self }
    }

    /// Returns the scope of a token, and its holder if the token is stored; `None` if it is invalid.
    pub(crate) async fn holder(&self, token: &str) -> Result<Option<(Scope, Option<Holder>)>, Failure> {
        if self.own == Some(sha256(token.as_bytes())) {
            return Ok(Some((Scope::Admin, None)));
        }
        let holder = self.tokens.holder(token, self.clock.now()).await?;
        Ok(holder.map(|holder| (holder.scope.clone(), Some(holder))))
    }

    /// Waits until a token is invalid. `changes` must have been subscribed before the token was looked up.
    pub(crate) async fn ended(&self, holder: &Holder, mut changes: watch::Receiver<u64>) {
        loop {
            let left = holder
                .expires_at
                .map(|at| Duration::from_millis(at.0.saturating_sub(self.clock.now().0).max(0).unsigned_abs()));
            let over = async {
                match left {
                    // Bounded, because timers ignore changes of the clock and sleep of the machine.
                    Some(left) => tokio::time::sleep(left.min(EXPIRY_LOOK)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = over => {}
            }
            // On a read error the request continues; new requests fail at their own check.
            if !self.tokens.is_valid(holder.id, self.clock.now()).await.unwrap_or(true) {
                return;
            }
        }
    }

    /// Ends leases when their tokens become invalid. Never returns.
    pub(crate) async fn expire_leases(&self) {
        let mut changes = self.tokens.changes();
        loop {
            let now = self.clock.now();
            for token in self.leases.holder_tokens() {
                // On a read error the token is checked again later.
                if !self.tokens.is_valid(token, now).await.unwrap_or(true) {
                    self.leases.expire_for_token(token);
                }
            }
            drop(tokio::time::timeout(EXPIRY_LOOK, changes.changed()).await);
        }
    }
}
