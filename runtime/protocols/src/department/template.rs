//! Sentence templates: `Put {item} on the {list} list.`
//!
//! `{FIELD}` is the row's value, or the value that was searched for; `{new_FIELD}` is a field's new value.
//! `{rows.FIELD}` lists the values of all rows, and `{rows.FIELD at rows.OTHER}` several fields of each with the text
//! between them. `{count}` is the number of rows.

/// A part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// Literal text.
    Text(&'a str),
    /// Value of this slot.
    Slot(&'a str),
    /// Parts repeated for each row: texts, and fields as slots.
    Rows(Vec<Part<'a>>),
    /// Number of rows.
    Count,
}

/// Parses a template. Fails at an unbalanced brace or a placeholder without a name.
pub fn parse(sentence: &str) -> Result<Vec<Part<'_>>, String> {
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

/// Prefix of a row's field.
const OF_ROW: &str = "rows.";
const NAMELESS: &str = "a place in braces has a name, like {item}";

/// Parses the text of a placeholder that is repeated for each row.
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
        let found = parse("On the {list} list: {rows.item} ({count}).").expect("a sentence");
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
        assert_eq!(parse(""), Ok(vec![]));
        let each = vec![Part::Slot("title"), Part::Text(" ("), Part::Slot("start_time"), Part::Text(")")];
        assert_eq!(parse("{rows.title (rows.start_time)}"), Ok(vec![Part::Rows(each)]));
        for wrong in ["{", "}", "a {b", "a b} c", "{a{b}}", "{}", "{rows.}", "{rows.a at rows.}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
