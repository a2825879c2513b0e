//! Masks the parts of a rejection that its worker may not see. A worker may see readable values and its own writes
//! (SPEC section 3).
//!
//! Places hidden by conditions are not even named. A recorded rejection is masked again before it is shown another
//! time.

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::contract::Readable;
use crate::rejection::{Code, Stage, Violation};

/// Visibility of the values that a proposal met.
pub(super) struct Visibility<'a> {
    /// Readable places of the state and of the candidate that the violations refer to.
    pub(super) readable: &'a Readable<'a>,
    /// Readable places of the state that the worker's view showed.
    pub(super) in_view: Option<&'a Readable<'a>>,
    /// Places that hold values written by the worker itself.
    pub(super) written: &'a [PointerBuf],
}

pub(super) fn mask_violations(stage: Stage, violations: &mut Vec<Violation>, sight: &Visibility<'_>) {
    violations.iter_mut().for_each(|violation| mask_violation(violation, sight));
    if sight.readable.hides_any() {
        for violation in violations.iter_mut() {
            let Ok(place) = PointerBuf::parse(violation.pointer.as_str()) else { continue };
            // A difference from a value that was hidden in the view is hidden, too.
            if sight.in_view.is_some_and(|was| !was.may_read(&place)) {
                violation.diff = None;
            }
            violation.own = sight.readable.hides(&place) && sight.is_own(&place);
        }
        mask_hidden_places(stage, violations, sight.readable);
    }
}

impl Visibility<'_> {
    fn is_own(&self, place: &Pointer) -> bool {
        self.written.iter().any(|path| place.starts_with(path))
    }
}

/// Masks the details of a violation at its place.
pub(super) fn mask_violation(violation: &mut Violation, sight: &Visibility<'_>) {
    let readable = sight.readable;
    let Ok(place) = PointerBuf::parse(violation.pointer.as_str()) else { return };
    let above = place.parent().map_or_else(PointerBuf::new, |parent| parent.to_buf());
    match violation.code {
        Code::TestFailed | Code::SchemaViolation
            if violation.found.is_some() && !sight.is_own(&place) && !readable.may_read(&place) =>
        {
            violation.found = None;
            violation.message = masked_message(violation);
        }
        Code::StaleTarget | Code::StaleRead | Code::UnseenTarget | Code::FileExists | Code::Reserved
            if !readable.may_read(&place) =>
        {
            violation.found = None;
            violation.diff = None;
            violation.stale = None;
            // Reads of its parts already reveal added, removed or moved members, so the message stays.
            let is_partly_read = || readable.patterns().iter().any(|pattern| pattern.reaches_below(&place));
            if violation.code == Code::Reserved || !is_partly_read() {
                violation.message = masked_message(violation);
            }
        }
        Code::InvariantViolated if !readable.may_read(&place) => violation.found = None,
        // The document's size includes hidden values.
        Code::ResultTooLarge if readable.hides_any() => violation.message = masked_message(violation),
        // An array's length and a value's type reveal content. The container of a bound element may not be readable.
        Code::PathNotFound | Code::IndexOutOfRange if !readable.may_always_read(&above) => {
            violation.found = None;
            violation.expected = None;
            violation.message = masked_message(violation);
        }
        _ => {}
    }
}

/// Returns the message for a place that may not be read.
fn masked_message(violation: &Violation) -> String {
    match (violation.code, &violation.rule) {
        (Code::SchemaViolation | Code::TestFailed, Some(keyword)) => format!("the value there breaks {keyword}"),
        (Code::SchemaViolation | Code::TestFailed, None) => "the value there is another".to_owned(),
        (Code::StaleTarget | Code::StaleRead | Code::UnseenTarget | Code::FileExists, _) => {
            "it is not as it was when you were asked".to_owned()
        }
        (Code::Reserved, _) => "this place is kept for somebody else for a moment".to_owned(),
        (Code::PathNotFound | Code::IndexOutOfRange, _) => "there is no such place".to_owned(),
        (Code::ResultTooLarge, _) => "the document would be too large, or nested too deep".to_owned(),
        _ => violation.message.clone(),
    }
}

/// Masks the places that conditions hide: all details and, unless the reply names it, the place itself. Violations that
/// look alike afterwards are merged, so that they cannot be counted.
fn mask_hidden_places(stage: Stage, violations: &mut Vec<Violation>, readable: &Readable<'_>) {
    for violation in violations.iter_mut().filter(|violation| !violation.own) {
        let Ok(place) = PointerBuf::parse(violation.pointer.as_str()) else { continue };
        if !readable.may_hide_at(&place) {
            continue;
        }
        match stage {
            // These violations quote only the reply and the contract.
            Stage::Syntax | Stage::Authorization | Stage::Approval => continue,
            Stage::Application => {}
            Stage::Freshness | Stage::Schema | Stage::Invariant => {
                violation.pointer = readable.named(&place).to_string();
            }
        }
        violation.message = masked_message(violation);
        violation.found = None;
        violation.diff = None;
        violation.stale = None;
        if stage == Stage::Application {
            violation.expected = None;
        }
    }
    let mut distinct: Vec<Violation> = Vec::with_capacity(violations.len());
    for violation in violations.drain(..) {
        if !distinct.contains(&violation) {
            distinct.push(violation);
        }
    }
    *violations = distinct;
}

/// Masks a recorded rejection, an object with `stage` and `violations`, for what its worker may read now.
pub(crate) fn mask_recorded(rejection: &mut Value, readable: &Readable<'_>) {
    if !readable.hides_any() {
        return;
    }
    let Some(rejection) = rejection.as_object_mut() else { return };
    let mut part = |name: &str| rejection.get_mut(name).map(Value::take).unwrap_or_default();
    let stage = part("stage");
    let violations = part("violations");
    let (Ok(stage), Ok(mut violations)) = (serde_json::from_value(stage), serde_json::from_value(violations)) else {
        return;
    };
    mask_hidden_places(stage, &mut violations, readable);
    rejection.insert("stage".to_owned(), stage.as_str().into());
    rejection.insert("violations".to_owned(), serde_json::json!(violations));
}
