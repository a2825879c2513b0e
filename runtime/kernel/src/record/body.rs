//! Record bodies, by kind.
//!
//! A field that may hold user, document or model content is a *value*: it is left out of the header
//! (`skip_serializing`) and named in [`Body::values`].

mod board;
mod call;
mod proposal;

use std::borrow::Cow;
use std::iter;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expand_request::ExpandRequest;
use crate::rejection::code_enum;

pub use board::*;
pub use call::*;
pub use proposal::*;

/// Declares each kind of record once: in [`Kind`] by its name, in [`Body`] with its content.
macro_rules! bodies {
    (Kind { $($(#[$doc:meta])* $kind:ident($content:ty) = $name:literal,)* }) => {
        code_enum! {
            /// Kinds of journal records.
            Kind {
                $($(#[$doc])* $kind = $name,)*
            }
        }

        /// Content of a record, by kind.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Body {
            $($(#[$doc])* $kind($content),)*
        }

        impl Body {
            /// Returns the kind of this body.
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }
        }
    };
}

bodies! {
    Kind {
        /// A board was created.
        Created(Box<Created>) = "created",
        /// A process acquired the board.
        Epoch(Epoch) = "epoch",
        /// An invocation was queued.
        Scheduled(Scheduled) = "scheduled",
        /// An attempt of an invocation is about to start.
        Invoked(Invoked) = "invoked",
        /// The provider did not accept an attempt's request; the invocation waits.
        Deferred(Deferred) = "deferred",
        /// An attempt's call was answered, and the attempt makes another call.
        Continued(Continued) = "continued",
        /// A proposal was committed.
        Committed(Committed) = "committed",
        /// A proposal, or an edit of files, changed nothing.
        NoOp(NoOp) = "no_op",
        /// A proposal changed nothing, and its author requested more context.
        Expanded(Expanded) = "expanded",
        /// A proposal was rejected.
        Rejected(Box<Rejected>) = "rejected",
        /// An attempt ended without a proposal.
        Failed(Failed) = "failed",
        /// A proposal was rejected before the pipeline, for example because its invocation is closed.
        Late(Late) = "late",
        /// Paths are reserved for a worker after its proposal lost to concurrent commits.
        Reserved(Reserved) = "reserved",
        /// A condition could not be evaluated, or no longer holds after its rule's delay.
        Skipped(Skipped) = "skipped",
        /// A proposal waits for a person's approval, or a worker asks a person a question.
        Approval(Approval) = "approval",
        /// A person answered.
        Answer(Answer) = "answer",
        /// A circuit breaker changed state.
        Breaker(Breaker) = "breaker",
        /// A budget was insufficient for a call.
        Budget(Budget) = "budget",
        /// Dispatching was paused.
        Paused(PauseRequest) = "paused",
        /// Dispatching was resumed.
        Resumed(PauseRequest) = "resumed",
        /// An operator retried invocations that were given up, or raised limits.
        Retried(Retried) = "retried",
        /// Time passed, and a timer was due.
        Tick(Empty) = "tick",
        /// The clock jumped forward.
        Jumped(Jumped) = "jumped",
        /// A signal arrived.
        Signal(Signal) = "signal",
        /// A snapshot of the board was stored.
        Snapshot(Snapshot) = "snapshot",
        /// Values of earlier records were redacted.
        Redacted(Redacted) = "redacted",
        /// The board ended.
        Ended(Ended) = "ended",
    }
}

impl Body {
    /// Returns the author of the proposal or attempt that the record decides.
    pub const fn author(&self) -> Option<&Author> {
        match self {
            Self::Committed(committed) => Some(&committed.by),
            Self::NoOp(no_op) => Some(&no_op.by),
            Self::Expanded(expanded) => Some(&expanded.by),
            Self::Approval(approval) => Some(&approval.by),
            Self::Rejected(rejected) => Some(&rejected.by),
            Self::Failed(failed) => Some(&failed.by),
            Self::Deferred(deferred) => Some(&deferred.by),
            _ => None,
        }
    }

    /// Returns the values by field name, in field order.
    pub(super) fn values(&self) -> Vec<(&'static str, Cow<'_, Value>)> {
        fn json(value: impl Serialize) -> Cow<'static, Value> {
            Cow::Owned(serde_json::to_value(value).expect("values have string keys and finite numbers"))
        }
        let borrowed = |value| Cow::Borrowed(value);
        let places = |expand: &[ExpandRequest]| (!expand.is_empty()).then(|| ("expand", json(expand)));
        let text = |name, text: &Option<String>| text.as_ref().map(|text| (name, json(text)));
        let proposed = |patch, intent, expand: &[ExpandRequest], raw, written| {
            let words = text("raw", raw).into_iter().chain(text("written", written));
            let values = places(expand).into_iter().chain(text("intent", intent));
            values.chain([("patch", Cow::Borrowed(patch))]).chain(words).collect::<Vec<_>>()
        };
        match self {
            Self::Created(it) => {
                let (blueprint, request) = (borrowed(&it.blueprint), borrowed(&it.request));
                vec![("blueprint", blueprint), ("request", request), ("salt", json(it.salt))]
            }
            Self::Scheduled(it) => places(&it.expand).into_iter().chain([("trigger", json(&it.trigger))]).collect(),
            Self::Invoked(it) => {
                let members = (!it.members.is_empty()).then(|| ("members", json(&it.members)));
                let unshown = (!it.unshown.is_empty()).then(|| ("unshown", json(&it.unshown)));
                members.into_iter().chain([("reads", json(&it.reads))]).chain(unshown).collect()
            }
            Self::Committed(it) => proposed(&it.patch, &it.intent, &it.expand, &it.raw, &it.written),
            Self::NoOp(it) => {
                let mut values = proposed(&it.patch, &it.intent, &[], &it.raw, &it.written);
                values.extend(text("pass", &it.pass));
                values.sort_by_key(|(name, _)| *name);
                values
            }
            Self::Expanded(it) => proposed(&it.patch, &it.intent, &it.expand, &it.raw, &it.written),
            Self::Approval(it) => {
                let clarify = it.clarify.iter().map(|clarify| ("clarify", json(clarify)));
                clarify.chain(proposed(&it.patch, &it.intent, &it.expand, &it.raw, &it.written)).collect()
            }
            Self::Answer(it) => text("reason", &it.reason).into_iter().chain(text("text", &it.text)).collect(),
            Self::Rejected(it) => {
                let judged = [("rejection", json(&it.rejection)), ("reply", json(&it.reply))];
                text("raw", &it.raw).into_iter().chain(judged).chain(text("written", &it.written)).collect()
            }
            Self::Deferred(it) => vec![("message", json(&it.message))],
            Self::Failed(it) => vec![("message", json(&it.message))],
            Self::Late(it) => text("raw", &it.raw).into_iter().chain([("reply", json(&it.reply))]).collect(),
            Self::Reserved(it) => vec![("places", json(&it.places))],
            Self::Skipped(it) => {
                let trigger = it.trigger.iter().map(|trigger| ("trigger", json(trigger)));
                iter::once(("message", json(&it.message))).chain(trigger).collect()
            }
            Self::Signal(it) => vec![("value", borrowed(&it.value))],
            Self::Redacted(it) => vec![("targets", json(&it.targets))],
            _ => Vec::new(),
        }
    }
}
