//! Payload of a signal, shared by all invocations that it triggers.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::json;

/// Payload of a signal. Clones share it.
#[derive(Clone, PartialEq, Debug)]
pub struct SignalPayload(Arc<SharedPayload>);

#[derive(PartialEq, Debug)]
struct SharedPayload {
    value: Value,
    memory: u64,
}

impl SignalPayload {
    /// Wraps a value.
    pub fn new(value: Value) -> Self {
        let memory = json::memory(&value);
        Self(Arc::new(SharedPayload { value, memory }))
    }

    /// Returns the approximate memory of the value, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.0.memory
    }

    /// Returns true if both share the value of one signal, and thus its memory.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for SignalPayload {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl Serialize for SignalPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SignalPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}
