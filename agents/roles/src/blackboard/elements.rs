//! Array elements in the view of a worker.

use std::collections::BTreeMap;

use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::tree::Node;
use serde_json::Value;

/// Returns the elements of an array that the view shows in full, by their indices in the document.
pub(super) fn visible_elements(shown: &CallContext, array: &[&str]) -> BTreeMap<usize, Value> {
    let mut found = BTreeMap::new();
    for (place, node) in shown.values() {
        let tokens: Vec<String> = place.tokens().map(|token| token.decoded().into_owned()).collect();
        let is_on_the_way = tokens.iter().zip(array).all(|(token, wanted)| token == wanted);
        match tokens.get(array.len()) {
            _ if !is_on_the_way => {}
            // The array itself, or a value that contains it.
            None => {
                let there = array[tokens.len()..].iter().try_fold(node, |node, token| node.child(token));
                let elements = there.and_then(Node::as_array).into_iter().flat_map(|array| array.iter().enumerate());
                found.extend(elements.map(|(index, element)| (index, element.to_value())));
            }
            Some(index) if tokens.len() == array.len() + 1 => {
                found.extend(index.parse().ok().map(|index| (index, node.to_value())));
            }
            // A part of an element does not count.
            Some(_) => {}
        }
    }
    found
}

/// Returns the number of elements of an array in the document; `None` if there is no array.
pub(super) fn count(shown: &CallContext, array: &[&str]) -> Option<usize> {
    let root = shown.basis().state.root();
    let there = array.iter().try_fold(root, |node, token| node.child(token))?;
    there.as_array().map(|array| array.len())
}
