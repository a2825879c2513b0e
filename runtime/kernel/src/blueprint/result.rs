//! Finds the result locations of the document: the place named by `result`, or those that `done` refers to.

use jsonptr::PointerBuf;

use super::Blueprint;
use crate::expressions::{ExpressionCompiler, ExpressionOwner};
use crate::files::FILES;
use crate::pattern::PathSyntax;

impl Blueprint {
    /// Returns the places of a board's result, without duplicates; empty if the blueprint does not determine them.
    ///
    /// Without a `result`, these are the document places that `done` reads. If one of them is the whole document, or
    /// lies in the request or in the kernel's file index, the result is empty.
    pub fn results(&self) -> Vec<PointerBuf> {
        if let Some(named) = &self.result {
            return PointerBuf::parse(named.as_str()).into_iter().collect();
        }
        let Some(done) = &self.done else { return Vec::new() };
        let Ok(expr) = ExpressionCompiler::new(PathSyntax::Plain).compile(&done.when, ExpressionOwner::Done) else {
            return Vec::new();
        };
        let looks = expr.references().iter().filter(|reference| reference.variable == "state");
        let places: Vec<PointerBuf> = looks.map(|reference| PointerBuf::from_tokens(&reference.path)).collect();
        let is_part =
            |place: &PointerBuf| place.first().is_some_and(|name| !matches!(&*name.decoded(), "request" | FILES));
        if places.iter().all(is_part) { places } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_result_follows_from_done_unless_declared() {
        for (result, done, expected) in [
            (None, Some("has(state.answer)"), &["/answer"][..]),
            (None, Some("state.answer.score > 0.5 && has(state.answer.text)"), &["/answer/score", "/answer/text"]),
            (None, Some("size(state.notes) > 0 && state.notes.all(n, n.status == 'checked')"), &["/notes"]),
            (None, Some("state.rows[0].ok && size(state.rows) >= request.least"), &["/rows"]),
            (None, Some("size(state) > 3"), &[]),
            (None, Some("state.request.done"), &[]),
            (None, Some("not CEL"), &[]),
            (None, None, &[]),
            (Some("/report"), Some("has(state.answer)"), &["/report"]),
            (Some("/a~1b"), None, &["/a~1b"]),
        ] {
            let mut value = json!({"blueprint": 2, "name": "n", "state": {"schema": true}, "workers": {}});
            if let Some(result) = result {
                value["result"] = result.into();
            }
            if let Some(done) = done {
                value["done"] = json!({ "when": done });
            }
            let blueprint: Blueprint = serde_json::from_value(value).expect("a blueprint");
            let found: Vec<String> = blueprint.results().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{result:?} {done:?}");
        }
    }
}
