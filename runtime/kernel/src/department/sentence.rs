//! Sentences with places: `Put {item} on the {list} list.`
//!
//! `{FIELD}` is what the row has, or the value that was looked for; `{new_FIELD}` what a field was changed to;
//! `{rows.FIELD}` what all rows have, as an enumeration; `{count}` how many rows there are.

/// A part of a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// As it stands.
    Text(&'a str),
    /// The value of this slot.
    Slot(&'a str),
    /// What all rows have in this field.
    Rows(&'a str),
    /// How many rows there are.
    Count,
}

/// The parts of a sentence.
///
/// # Errors
/// A brace that is not closed, or nothing opened; a place without a name.
pub fn parts(sentence: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = sentence;
    while !rest.is_empty() {
        let (text, after) = match rest.find(['{', '}']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if after.is_empty() {
            break;
        }
        let place = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, after)) = place.filter(|(name, _)| !name.contains('{')) else {
            return Err("braces stand around the name of a place, like {item}".to_owned());
        };
        parts.push(match (name, name.strip_prefix("rows.")) {
            ("" | "rows.", _) => return Err("a place in braces has a name, like {item}".to_owned()),
            ("count", _) => Part::Count,
            (_, Some(field)) => Part::Rows(field),
            (slot, None) => Part::Slot(slot),
        });
        rest = after;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_texts_and_places() {
        let found = parts("On the {list} list: {rows.item} ({count}).").expect("a sentence");
        let expected = [
            Part::Text("On the "),
            Part::Slot("list"),
            Part::Text(" list: "),
            Part::Rows("item"),
            Part::Text(" ("),
            Part::Count,
            Part::Text(")."),
        ];
        assert_eq!(found, expected);
        assert_eq!(parts(""), Ok(vec![]));
        for wrong in ["{", "}", "a {b", "a b} c", "{a{b}}", "{}", "{rows.}"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}
