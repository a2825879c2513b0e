//! Authenticated callers of the API, and what they may do.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use patchboard_kernel::record::Principal;

use super::access::{Permission, Scope};
use super::problem::{ApiResult, Code, Problem, no_such_board};
use super::rate_key::RateKey;
use super::tokens::Holder;

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    pub(crate) rate_key: RateKey,
    /// Holder of the caller's token, if the token is stored.
    pub(crate) holder: Option<Arc<Holder>>,
}

impl Caller {
    /// Returns the caller as records name it.
    pub(crate) fn principal(&self) -> Principal {
        match (&self.holder, self.rate_key) {
            (Some(holder), _) => {
                // The records name one level; the list of tokens has the rest of the chain.
                let made_by = holder.made_by.clone().map(|maker| match maker {
                    Principal::Token { id, name, person, .. } => Principal::Token { id, name, person, made_by: None },
                    maker => maker,
                });
                let (person, made_by) = (holder.scope.person().cloned(), made_by.map(Box::new));
                Principal::Token { id: holder.id, name: holder.name.clone(), person, made_by }
            }
            (None, RateKey::Address(address)) => Principal::Address { address: address.to_string() },
            (None, RateKey::Token(_)) => Principal::Host,
        }
    }

    pub(crate) fn token(&self) -> Option<i64> {
        self.holder.as_ref().map(|holder| holder.id)
    }

    /// Checks a permission. A caller that may not know of a board gets the error for a missing one.
    pub(crate) fn require(&self, need: &Permission) -> ApiResult<()> {
        let is_known = self.holder.is_some();
        if self.scope.allows(need)
            || (!is_known && matches!(need, Permission::ActAsPerson(..)) && self.scope == Scope::Admin)
        {
            return Ok(());
        }
        if let Permission::ActAsPerson(board, person) = need
            && self.scope.allows(&Permission::OperateOrActAs(board.clone()))
        {
            let detail = format!("{person} is a person, and a token of scope {} is not {person}'s", self.scope);
            let help = format!("use a token of {person}: `patchboard token create --scope person:{person}` makes one");
            return Err(Problem::from_code(Code::NotThePerson, detail).help(help));
        }
        if let Permission::View(board)
        | Permission::Operate(board)
        | Permission::OperateOrActAs(board)
        | Permission::ViewAs(board, _)
        | Permission::ActAs(board, _)
        | Permission::ActAsPerson(board, _) = need
            && !self.scope.may_know(board)
        {
            return Err(no_such_board(board));
        }
        let detail = format!("a token of scope {} does not allow this", self.scope);
        Err(Problem::from_code(Code::Forbidden, detail).help("ask the operator for another token"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}

pub(super) fn unauthorized() -> Problem {
    Problem::from_code(Code::Unauthorized, "this needs a token that is valid")
        .help("send it as `Authorization: Bearer TOKEN`; `patchboard token create` makes one")
}
