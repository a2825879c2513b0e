//! Lenient JSON parser for model output: values inside other text, single quotes, line breaks in strings, trailing
//! commas.

use patchboard_llm::first_value;
use serde_json::{Map, Number, Value};

/// Greatest number of positions in a text at which parsing is tried.
const TRIES_MAX: usize = 64;
const DEPTH_MAX: usize = 16;

/// Returns the objects and arrays in a text, in order, without those nested in others.
pub(super) fn values(text: &str) -> Vec<Value> {
    let (mut found, mut from) = (Vec::new(), 0);
    for _ in 0..TRIES_MAX {
        let Some(at) = text[from..].find(['{', '[']).map(|at| from + at) else { break };
        match first_value(&text[at..]).or_else(|| lenient(&text[at..])) {
            Some((value, bytes)) => {
                found.push(value);
                from = at + bytes;
            }
            None => from = at + 1,
        }
    }
    found
}

fn lenient(text: &str) -> Option<(Value, usize)> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(DEPTH_MAX)?;
    Some((value, reader.at))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Returns the next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    /// Consumes the next character if it is this one. Returns whether it was.
    fn takes(&mut self, wanted: char) -> bool {
        let is_it = self.peek() == Some(wanted);
        if is_it {
            self.at += wanted.len_utf8();
        }
        is_it
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        match self.peek()? {
            '{' => self.object(depth),
            '[' => self.array(depth),
            '"' | '\'' => self.string().map(Value::String),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut members = Map::new();
        self.takes('{');
        while !self.takes('}') {
            let name = match self.peek()? {
                '"' | '\'' => self.string()?,
                _ => return None,
            };
            let value = if self.takes(':') { self.value(depth)? } else { return None };
            members.insert(name, value);
            if !self.takes(',') && self.peek()? != '}' {
                return None;
            }
        }
        Some(members.into())
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.takes('[');
        while !self.takes(']') {
            items.push(self.value(depth)?);
            if !self.takes(',') && self.peek()? != ']' {
                return None;
            }
        }
        Some(items.into())
    }

    /// Reads a string in either kind of quotes. An inner quote ends it only if a delimiter or the end of the text
    /// follows.
    fn string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        self.at += quote.len_utf8();
        let mut out = String::new();
        loop {
            let next = self.rest().chars().next()?;
            self.at += next.len_utf8();
            match next {
                '\\' => self.escape(&mut out)?,
                _ if next == quote => {
                    let after = self.rest().trim_start();
                    if after.is_empty() || after.starts_with([',', ':', '}', ']']) {
                        return Some(out);
                    }
                    out.push(next);
                }
                _ => out.push(next),
            }
        }
    }

    /// Reads an escape. Unknown escapes, as in formulas (`\frac`), keep their backslash.
    fn escape(&mut self, out: &mut String) -> Option<()> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        match next {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '"' | '\'' | '\\' | '/' => out.push(next),
            'u' => {
                let code = self.rest().get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                match code {
                    Some(code) => {
                        self.at += 4;
                        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    None => out.push_str("\\u"),
                }
            }
            other => out.extend(['\\', other]),
        }
        Some(())
    }

    /// Reads a number or a literal.
    fn word(&mut self) -> Option<Value> {
        let rest = self.rest();
        let end = rest.find([',', '}', ']', '\n']).unwrap_or(rest.len());
        let value = match rest[..end].trim() {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            number => Value::Number(number.parse::<Number>().ok()?),
        };
        self.at += end;
        Some(value)
    }
}

#[cfg(test)]
mod tests;
