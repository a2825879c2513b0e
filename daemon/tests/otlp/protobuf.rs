//! Spans decoded from the bytes of an `ExportTraceServiceRequest` by field numbers, independently of the crates that
//! wrote them.

use std::collections::BTreeMap;

/// A span, as far as the tests read it. Numbers are text, ids are hexadecimal digits.
#[derive(Debug, Default)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) status: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Span {
    #[track_caller]
    pub(crate) fn has(&self, name: &str, value: &str) {
        assert_eq!(self.attributes.get(name).map(String::as_str), Some(value), "{name} of {self:#?}");
    }
}

/// Value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn number(&self) -> u64 {
        if let Value::Number(number) = self { *number } else { panic!("bytes, not a number") }
    }

    fn bytes(&self) -> &[u8] {
        if let Value::Bytes(bytes) = self { bytes } else { panic!("a number, not bytes") }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("a text")
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns all spans of a request: `resource_spans` (1), `scope_spans` (2), `spans` (2).
pub(crate) fn spans(request: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for resource in all(request, 1) {
        for scope in all(resource, 2) {
            found.extend(all(scope, 2).map(span));
        }
    }
    found
}

fn span(bytes: &[u8]) -> Span {
    let mut span = Span::default();
    for (field, value) in fields(bytes) {
        match field {
            1 => span.trace = value.hex(),
            2 => span.id = value.hex(),
            4 => span.parent = value.hex(),
            5 => span.name = value.text(),
            6 => span.kind = value.number(),
            9 => span.attributes.extend(attribute(value.bytes())),
            15 => {
                let code = fields(value.bytes()).into_iter().find(|(field, _)| *field == 3);
                span.status = code.map_or(0, |(_, code)| code.number());
            }
            _ => {}
        }
    }
    span
}

/// Decodes `key` (1) and `value` (2): a string (1), boolean (2), integer (3) or double (4).
fn attribute(bytes: &[u8]) -> Option<(String, String)> {
    let all = fields(bytes);
    let key = all.iter().find(|(field, _)| *field == 1)?.1.text();
    let any = all.iter().find(|(field, _)| *field == 2)?.1.bytes();
    let value = fields(any).into_iter().next().map(|(field, value)| match field {
        1 => value.text(),
        4 => f64::from_bits(value.number()).to_string(),
        _ => value.number().to_string(),
    });
    Some((key, value.unwrap_or_default()))
}

fn all(bytes: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    fields(bytes).into_iter().filter(move |(field, _)| *field == wanted).map(|(_, value)| match value {
        Value::Bytes(bytes) => bytes,
        Value::Number(_) => panic!("a number, not a message"),
    })
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("eight bytes"))),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                Value::Bytes(take(&mut bytes, length))
            }
            5 => Value::Number(u32::from_le_bytes(take(&mut bytes, 4).try_into().expect("four bytes")).into()),
            other => panic!("no wire type: {other}"),
        };
        found.push((key >> 3, value));
    }
    found
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
