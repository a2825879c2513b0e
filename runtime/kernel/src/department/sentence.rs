//! Sentences with places: `Put {item} on the {list} list.`
//!
//! `{FIELD}` is what the row has, or the value that was looked for; `{new_FIELD}` what a field was changed to;
//! `{rows.FIELD}` what all rows have, as an enumeration, and `{rows.FIELD at rows.OTHER}` several fields of each with what
//! stands between; `{count}` how many rows there are.

/// A part of a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// As it stands.
    Text(&'a str),
    /// The value of this slot.
    Slot(&'a str),
    /// What is said of each row: texts, and fields as slots.
    Rows(Vec<Part<'a>>),
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
        parts.push(match name {
            "" => return Err(NAMELESS.to_owned()),
            "count" => Part::Count,
            of_rows if of_rows.starts_with(OF_ROW) => Part::Rows(of_row(of_rows)?),
            slot => Part::Slot(slot),
        });
        rest = after;
    }
    Ok(parts)
}

/// What stands before a field of a row.
const OF_ROW: &str = "rows.";
const NAMELESS: &str = "a place in braces has a name, like {item}";

/// The parts of what is said of each row.
fn of_row(sentence: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = sentence;
    while let Some((text, after)) = rest.split_once(OF_ROW) {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (field, after) = after.split_at(end);
        if field.is_empty() {
            return Err(NAMELESS.to_owned());
        }
        parts.extend((!text.is_empty()).then_some(Part::Text(text)));
        parts.push(Part::Slot(field));
        rest = after;
    }
    parts.extend((!rest.is_empty()).then_some(Part::Text(rest)));
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
            Part::Rows(vec![Part::Slot("item")]),
            Part::Text(" ("),
            Part::Count,
            Part::Text(")."),
        ];
        assert_eq!(found, expected);
        assert_eq!(parts(""), Ok(vec![]));
        let each = vec![Part::Slot("title"), Part::Text(" ("), Part::Slot("start_time"), Part::Text(")")];
        assert_eq!(parts("{rows.title (rows.start_time)}"), Ok(vec![Part::Rows(each)]));
        for wrong in ["{", "}", "a {b", "a b} c", "{a{b}}", "{}", "{rows.}", "{rows.a at rows.}"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}
