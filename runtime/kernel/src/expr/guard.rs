//! Bounds an expression's text before a parser sees it.
//!
//! The parser recurses, and overflows the stack on text that is short but deep. This scan reads the text once, in a
//! loop, and lets through only what the parser, and everything that walks its tree, can hold. It knows CEL's tokens,
//! not its grammar; what the tokens mean is `lower`'s business.

use super::CompileError;

/// Bytes of an expression.
pub(super) const SOURCE_BYTES_MAX: usize = 2048;
/// Brackets open at once, plus conditionals (`? :`) anywhere: both make the parser recurse.
pub(super) const NESTING_MAX: usize = 24;
/// Tokens. A chain of operators or of members makes a tree as deep as it is long, so this bounds depth as well.
pub(super) const TOKENS_MAX: usize = 400;

/// Two-character tokens.
const PAIRS: [&[u8; 2]; 6] = [b"==", b"!=", b"<=", b">=", b"&&", b"||"];

/// Refuses text that is too long, too deep or not made of CEL's tokens.
pub(super) fn check(source: &str) -> Result<(), CompileError> {
    let bytes = source.as_bytes();
    if bytes.len() > SOURCE_BYTES_MAX {
        let message = format!("the expression has {} bytes, more than {SOURCE_BYTES_MAX}", bytes.len());
        return Err(CompileError { code: "cel_too_long", offset: None, message });
    }
    let (mut at, mut open, mut conditionals, mut tokens) = (0, 0_usize, 0, 0);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |line| at + line);
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at = end_of_word(bytes, at);
                if matches!(bytes.get(at), Some(b'"' | b'\'')) {
                    at = end_of_prefixed_string(bytes, start, at)?;
                }
            }
            b'0'..=b'9' => at = end_of_word(bytes, at),
            b'"' | b'\'' => at = end_of_string(bytes, at, false)?,
            b'(' | b'[' | b'{' => {
                open += 1;
                at += 1;
            }
            b')' | b']' | b'}' => {
                open = open.saturating_sub(1);
                at += 1;
            }
            b'?' => {
                conditionals += 1;
                at += 1;
            }
            b'=' | b'!' | b'<' | b'>' | b'&' | b'|' => {
                let is_pair = bytes.get(at..at + 2).is_some_and(|two| PAIRS.iter().any(|pair| *pair == two));
                at += if is_pair { 2 } else { 1 };
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'.' | b',' | b':' => at += 1,
            _ => {
                let found = source.get(start..).and_then(|rest| rest.chars().next()).unwrap_or('\u{fffd}');
                return Err(syntax(start, format!("unexpected character {found:?}")));
            }
        }
        tokens += 1;
        if open + conditionals > NESTING_MAX {
            return Err(too_complex(start, format!("nested deeper than {NESTING_MAX}")));
        }
        if tokens > TOKENS_MAX {
            return Err(too_complex(start, format!("more than {TOKENS_MAX} words and signs")));
        }
    }
    if tokens == 0 {
        return Err(syntax(0, "the expression is empty".to_owned()));
    }
    Ok(())
}

fn end_of_word(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len())
}

/// The end of a string that follows a word without a space: only `r` (raw) may stand there.
fn end_of_prefixed_string(bytes: &[u8], word: usize, quote: usize) -> Result<usize, CompileError> {
    match bytes.get(word..quote) {
        Some(b"r" | b"R") => end_of_string(bytes, quote, true),
        Some(b"b" | b"B" | b"br" | b"bR" | b"Br" | b"BR" | b"rb" | b"rB" | b"Rb" | b"RB") => Err(CompileError {
            code: "cel_unsupported",
            offset: Some(word),
            message: "bytes do not occur in JSON; write a string".to_owned(),
        }),
        _ => Err(syntax(quote, "a string cannot follow a word".to_owned())),
    }
}

/// The end of the string that opens at `from`, in one quote or in three.
fn end_of_string(bytes: &[u8], from: usize, raw: bool) -> Result<usize, CompileError> {
    let quote = bytes[from];
    let long = bytes.get(from..from + 3).is_some_and(|three| three.iter().all(|byte| *byte == quote));
    let mut at = from + if long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if !raw => at += 2,
            b'\n' | b'\r' if !long => break,
            _ if byte == quote && !long => return Ok(at + 1),
            _ if byte == quote && bytes[at..].starts_with(&[quote; 3]) => return Ok(at + 3),
            _ => at += 1,
        }
    }
    Err(syntax(from, "the string is not closed".to_owned()))
}

fn syntax(offset: usize, message: String) -> CompileError {
    CompileError { code: "cel_syntax", offset: Some(offset), message }
}

fn too_complex(offset: usize, message: String) -> CompileError {
    CompileError { code: "cel_too_complex", offset: Some(offset), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> (&'static str, Option<usize>) {
        let error = check(source).expect_err(source);
        (error.code, error.offset)
    }

    #[test]
    fn brackets_inside_strings_and_comments_do_not_nest() {
        for source in [
            format!("'{}' == x", "(".repeat(500)),
            format!("\"\"\"{}\n\"\"\" == x", "[".repeat(500)),
            format!("r'\\{}' == x", "{".repeat(500)),
            format!("true // {}", "(".repeat(500)),
            format!("'\\'{}' == x", "(".repeat(500)),
        ] {
            check(&source).expect(&source);
        }
    }

    #[test]
    fn depth_is_refused_whatever_makes_it() {
        for open in ["(", "[", "{", "f(", "a[", "!(", "-(", "x ? y : ", "a ? (", "[{"] {
            assert_eq!(refusal(&format!("{}1", open.repeat(60))).0, "cel_too_complex", "{open}");
        }
    }

    #[test]
    fn chains_are_refused_by_their_length() {
        for link in [".b", "+1", "&& x ", "!", "-", "== 1 ", "[0]", ", 1"] {
            assert_eq!(refusal(&format!("a{}", link.repeat(401))).0, "cel_too_complex", "{link}");
        }
    }

    #[test]
    fn what_is_no_token_is_pointed_at() {
        assert_eq!(refusal("a == é"), ("cel_syntax", Some(5)));
        assert_eq!(refusal("a == 'x"), ("cel_syntax", Some(5)));
        assert_eq!(refusal("a == 'x\n'"), ("cel_syntax", Some(5)));
        assert_eq!(refusal("a == 'x\\"), ("cel_syntax", Some(5)));
        assert_eq!(refusal("a == b'x'"), ("cel_unsupported", Some(5)));
        assert_eq!(refusal("`a` == 1"), ("cel_syntax", Some(0)));
        assert_eq!(refusal(" \n"), ("cel_syntax", Some(0)));
    }

    #[test]
    fn a_long_source_is_refused_before_it_is_read() {
        assert_eq!(refusal(&"\u{0}".repeat(SOURCE_BYTES_MAX + 1)), ("cel_too_long", None));
        check(&format!("{}true", " ".repeat(SOURCE_BYTES_MAX - 4))).expect("spaces cost only bytes");
    }
}
