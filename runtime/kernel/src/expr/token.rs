//! Tokenizes an expression, and bounds its size and nesting.
//!
//! The parser recurses with nesting, and tree walks recurse with the tree's depth. The text is read once, in a loop,
//! and is accepted only if it is within the limits of all of them. The parser interprets the tokens.

use super::CompileError;

/// Maximum bytes of an expression.
pub(super) const SOURCE_BYTES_MAX: usize = 2048;
/// Maximum open brackets, plus conditionals (`? :`) anywhere: both make the parser recurse.
pub(super) const NESTING_MAX: usize = 24;
/// Maximum tokens. A chain of operators or members makes a tree as deep as it is long, so this bounds depth as well.
pub(super) const TOKENS_MAX: usize = 400;

/// Signs, longer ones first.
const SIGNS: [&str; 23] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", "?", ":", "!", "<", ">", "+", "-", "*", "%", ".",
    ",",
];

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Token<'s> {
    /// Byte offset of its beginning.
    pub(super) at: usize,
    pub(super) kind: Kind<'s>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Kind<'s> {
    /// Name or keyword.
    Word(&'s str),
    /// Digits, or `0x` and digits.
    Int(&'s str),
    /// Digits of an unsigned number, without its `u`.
    UInt(&'s str),
    /// Number with a fraction or an exponent.
    Double(&'s str),
    Text(String),
    /// One of [`SIGNS`], or `/`.
    Sign(&'static str),
}

/// Reads the tokens of an expression. Fails for text that is too long, nested too deep, or not made of CEL tokens.
pub(super) fn read(source: &str) -> Result<Vec<Token<'_>>, CompileError> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("the expression has {} bytes, more than {SOURCE_BYTES_MAX}", source.len());
        return Err(CompileError { code: "cel_too_long", offset: None, message });
    }
    let mut tokens = Vec::new();
    let (mut at, mut open, mut conditionals) = (0, 0_usize, 0);
    while let Some(first) = source[at..].chars().next() {
        let (start, rest) = (at, &source[at..]);
        let kind = match first {
            ' ' | '\t' | '\r' | '\n' => {
                at += 1;
                continue;
            }
            '/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' => Kind::Sign("/"),
            'a'..='z' | 'A'..='Z' | '_' => {
                let word = &rest[..length(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_')];
                if rest[word.len()..].starts_with(['"', '\'']) {
                    raw_prefix(word, start)?;
                    let (text, end) = string(source, start + 1, true)?;
                    at = end;
                    Kind::Text(text)
                } else {
                    Kind::Word(word)
                }
            }
            '0'..='9' => number(rest),
            '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => number(rest),
            '"' | '\'' => {
                let (text, end) = string(source, start, false)?;
                at = end;
                Kind::Text(text)
            }
            _ => Kind::Sign(sign(first, rest).map_err(|message| syntax(start, message))?),
        };
        at += match &kind {
            Kind::Word(text) | Kind::Int(text) | Kind::Double(text) => text.len(),
            Kind::UInt(text) => text.len() + 1,
            Kind::Sign(sign) => sign.len(),
            // The end is already known.
            Kind::Text(_) => 0,
        };
        match kind {
            Kind::Sign("(" | "[" | "{") => open += 1,
            Kind::Sign(")" | "]" | "}") => open = open.saturating_sub(1),
            Kind::Sign("?") => conditionals += 1,
            _ => {}
        }
        tokens.push(Token { at: start, kind });
        if open + conditionals > NESTING_MAX {
            return Err(too_complex(start, format!("nested deeper than {NESTING_MAX}")));
        }
        if tokens.len() > TOKENS_MAX {
            return Err(too_complex(start, format!("more than {TOKENS_MAX} words and signs")));
        }
    }
    if tokens.is_empty() {
        return Err(syntax(0, "the expression is empty".to_owned()));
    }
    Ok(tokens)
}

fn sign(first: char, rest: &str) -> Result<&'static str, String> {
    if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        return Ok(sign);
    }
    let instead = match first {
        '=' => "; values are compared with `==`",
        '&' => "; both sides are asked for with `&&`",
        '|' => "; one of two sides is asked for with `||`",
        _ => "",
    };
    Err(format!("unexpected character {first:?}{instead}"))
}

/// Returns the number of leading bytes that satisfy the predicate.
fn length(text: &str, is_of: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is_of(byte)).unwrap_or(text.len())
}

fn digits(text: &str) -> usize {
    length(text, |byte| byte.is_ascii_digit())
}

/// Reads the number at the beginning of a text.
fn number(text: &str) -> Kind<'_> {
    let is_unsigned = |end: usize| text[end..].starts_with(['u', 'U']);
    if let Some(hex) = text.strip_prefix("0x") {
        let end = 2 + length(hex, |byte| byte.is_ascii_hexdigit());
        if end > 2 {
            return if is_unsigned(end) { Kind::UInt(&text[..end]) } else { Kind::Int(&text[..end]) };
        }
    }
    let whole = digits(text);
    let mut end = whole;
    if let Some(fraction) = text[end..].strip_prefix('.').map(digits).filter(|digits| *digits > 0) {
        end += 1 + fraction;
    }
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let power = digits(&exponent[sign..]);
        if power > 0 {
            end += 1 + sign + power;
        }
    }
    match end == whole {
        true if is_unsigned(end) => Kind::UInt(&text[..end]),
        true => Kind::Int(&text[..end]),
        false => Kind::Double(&text[..end]),
    }
}

/// Rejects a word directly before a string, unless it is the prefix of a raw string.
fn raw_prefix(word: &str, at: usize) -> Result<(), CompileError> {
    match word {
        "r" | "R" => Ok(()),
        "b" | "B" | "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB" => Err(CompileError {
            code: "cel_unsupported",
            offset: Some(at),
            message: "bytes do not occur in JSON; write a string".to_owned(),
        }),
        _ => Err(syntax(at + word.len(), "a string cannot follow a word".to_owned())),
    }
}

/// Reads the string that opens at `from`, with single or triple quotes. Returns its content and the offset after it.
fn string(source: &str, from: usize, is_raw: bool) -> Result<(String, usize), CompileError> {
    let unclosed = || syntax(from, "the string is not closed".to_owned());
    let rest = &source[from..];
    let quote = rest.get(..1).ok_or_else(unclosed)?;
    let three = quote.repeat(3);
    let close = if rest.starts_with(&three) { three.as_str() } else { quote };
    let mut text = String::new();
    let mut at = from + close.len();
    loop {
        let rest = &source[at..];
        if rest.starts_with(close) {
            return Ok((text, at + close.len()));
        }
        let next = rest.chars().next().ok_or_else(unclosed)?;
        match next {
            '\\' if !is_raw => {
                let (escaped, length) = escape(rest).ok_or_else(|| {
                    let message = "after a backslash, one of a b f n r t v \\ ? ' \" `, an octal number of three \
                                   digits, or xHH, uHHHH, UHHHHHHHH is expected; a backslash itself is written \\\\"
                        .to_owned();
                    syntax(at, message)
                })?;
                text.push(escaped);
                at += length;
            }
            '\n' | '\r' if close.len() == 1 => return Err(unclosed()),
            // All line endings are normalised to `\n`.
            '\r' => {
                text.push('\n');
                at += if rest.starts_with("\r\n") { 2 } else { 1 };
            }
            _ => {
                text.push(next);
                at += next.len_utf8();
            }
        }
    }
}

/// Reads the escape sequence at the beginning of a text. Returns its character and its length in bytes.
fn escape(text: &str) -> Option<(char, usize)> {
    let of_code = |digits: &str, radix| Some((char::from_u32(u32::from_str_radix(digits, radix).ok()?)?, digits.len()));
    let hex = |length: usize| {
        let digits = text.get(2..2 + length)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        of_code(digits, 16).filter(|_| is_hex).map(|(character, length)| (character, 2 + length))
    };
    let simple = |character: char| Some((character, 2));
    match text[1..].chars().next()? {
        'a' => simple('\u{7}'),
        'b' => simple('\u{8}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        same @ ('\\' | '?' | '\'' | '"' | '`') => simple(same),
        'x' | 'X' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        '0'..='3' => {
            let digits = text.get(1..4)?;
            let is_octal = digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
            of_code(digits, 8).filter(|_| is_octal).map(|(character, length)| (character, 1 + length))
        }
        _ => None,
    }
}

fn syntax(offset: usize, message: String) -> CompileError {
    CompileError { code: "cel_syntax", offset: Some(offset), message }
}

fn too_complex(offset: usize, message: String) -> CompileError {
    CompileError { code: "cel_too_complex", offset: Some(offset), message }
}

#[cfg(test)]
mod tests;
