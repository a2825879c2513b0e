//! Generates random schemas with every keyword.

use serde_json::{Map, Value, json};

/// Small seeded generator with equal results on every platform.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // The first numbers of adjacent seeds must differ.
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for _ in 0..4 {
            dice.roll(2);
        }
        dice
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    pub(crate) fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }
}

/// Names of members in schemas and documents.
pub(crate) const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "x1", "x2", "a/b~"];
/// Regular expressions with texts that match them.
pub(crate) const PATTERNS: [(&str, &str); 4] = [("^x", "x7"), ("^[a-c]$", "b"), ("[0-9]", "y3"), ("^.?$", "q")];

/// JSON Schema dialect of a generated document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dialect {
    Draft6,
    Draft7,
    Draft201909,
    Draft202012,
}

struct Writer<'d> {
    dice: &'d mut Dice,
    dialect: Dialect,
    definitions: usize,
    /// Allows rare constructs, and references that lead back to themselves on the same value.
    is_odd: bool,
}

/// Generates a random schema document.
pub(crate) fn schema(dice: &mut Dice) -> Value {
    let dialect = match dice.roll(10) {
        0 => Dialect::Draft6,
        1 | 2 => Dialect::Draft7,
        3 => Dialect::Draft201909,
        _ => Dialect::Draft202012,
    };
    let (definitions, is_odd) = (dice.roll(4), dice.one_in(6));
    let mut writer = Writer { dice, dialect, definitions, is_odd };
    let mut root = match writer.object(4) {
        Value::Object(members) => members,
        _ => unreachable!("a schema object was asked for"),
    };
    // Most states are objects, few are scalars.
    if !writer.dice.one_in(8) {
        root.insert("type".to_owned(), json!("object"));
        root.entry("properties").or_insert_with(|| writer.named(3));
    }
    let keyword = if dialect >= Dialect::Draft201909 { "$defs" } else { "definitions" };
    let mut defined = Map::new();
    let mut dynamic = 0;
    for number in 0..definitions {
        let mut definition = writer.schema(3);
        if let Value::Object(members) = &mut definition {
            if writer.dice.one_in(5) && dialect >= Dialect::Draft201909 {
                members.insert("$anchor".to_owned(), json!(format!("anchor{number}")));
            }
            if writer.is_odd && writer.dice.one_in(6) && dialect == Dialect::Draft202012 {
                members.insert("$dynamicAnchor".to_owned(), json!("dynamic"));
                dynamic += 1;
            }
            // An anchor name must be unique in a document, so a second one gets an `$id` of its own.
            if writer.is_odd && writer.dice.one_in(4) || dynamic > 1 {
                members.insert("$id".to_owned(), json!(format!("https://example.org/{number}")));
            }
        }
        defined.insert(format!("d{number}"), definition);
    }
    if !defined.is_empty() {
        root.insert(keyword.to_owned(), defined.into());
    }
    if writer.is_odd && writer.dice.one_in(4) {
        root.insert("$id".to_owned(), json!("https://example.org/root"));
    }
    if writer.is_odd && writer.dice.one_in(6) && dialect == Dialect::Draft201909 {
        root.insert("$recursiveAnchor".to_owned(), json!(true));
    }
    let uri = match dialect {
        Dialect::Draft6 => "http://json-schema.org/draft-06/schema#",
        Dialect::Draft7 => "http://json-schema.org/draft-07/schema#",
        Dialect::Draft201909 => "https://json-schema.org/draft/2019-09/schema",
        Dialect::Draft202012 => "https://json-schema.org/draft/2020-12/schema",
    };
    if dialect != Dialect::Draft202012 || writer.dice.one_in(2) {
        root.insert("$schema".to_owned(), json!(uri));
    }
    root.into()
}

/// Returns one of a few scalars, so that equal ones occur.
pub(crate) fn scalar(dice: &mut Dice) -> Value {
    let scalars = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(2),
        json!(1.5),
        json!(2.0),
        json!(-3),
        json!(""),
        json!("a"),
        json!("b"),
        json!("x1"),
        json!("longer"),
        json!("y3"),
        json!(9_007_199_254_740_993_u64),
    ];
    dice.pick(&scalars).clone()
}

/// Returns a random small value.
pub(crate) fn anything(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(if depth == 0 { 1 } else { 4 }) {
        2 => (0..dice.roll(4)).map(|_| anything(dice, depth - 1)).collect(),
        3 => {
            let named = (0..dice.roll(4)).map(|_| ((*dice.pick(&NAMES)).to_owned(), anything(dice, depth - 1)));
            named.collect::<Map<_, _>>().into()
        }
        _ => scalar(dice),
    }
}

impl Writer<'_> {
    fn schema(&mut self, depth: usize) -> Value {
        match self.dice.roll(14) {
            0 => json!(true),
            1 if self.dice.one_in(3) => json!(false),
            _ => self.object(depth),
        }
    }

    fn name(&mut self) -> String {
        (*self.dice.pick(&NAMES)).to_owned()
    }

    fn named(&mut self, depth: usize) -> Value {
        let named = (0..=self.dice.roll(3)).map(|_| (self.name(), self.schema(depth)));
        named.collect::<Map<_, _>>().into()
    }

    fn list(&mut self, depth: usize) -> Value {
        (0..=self.dice.roll(2)).map(|_| self.schema(depth)).collect()
    }

    fn reference(&mut self) -> Option<Value> {
        // A reference to the root may lead back to itself without descending.
        if self.definitions == 0 || (self.is_odd && self.dice.one_in(4)) {
            return self.dice.one_in(3).then(|| json!("#"));
        }
        let number = self.dice.roll(self.definitions);
        let keyword = if self.dialect >= Dialect::Draft201909 { "$defs" } else { "definitions" };
        Some(match self.dice.roll(8) {
            0 if self.is_odd => json!(format!("https://example.org/{number}")),
            1 if self.is_odd => json!(format!("#anchor{number}")),
            _ => json!(format!("#/{keyword}/d{number}")),
        })
    }

    /// Generates a schema object; deep ones are simple.
    fn object(&mut self, depth: usize) -> Value {
        let mut members = Map::new();
        if depth == 0 {
            let kinds = ["string", "integer", "number", "boolean", "null", "object", "array"];
            match self.dice.roll(4) {
                0 => drop(members.insert("const".to_owned(), scalar(self.dice))),
                1 => drop(members.insert("enum".to_owned(), json!([scalar(self.dice), scalar(self.dice)]))),
                2 => drop(members.insert("type".to_owned(), json!(self.dice.pick(&kinds)))),
                _ => {}
            }
            return members.into();
        }
        // Combines related keywords, so that most schemas can be satisfied.
        match self.dice.roll(5) {
            0 | 1 => self.of_objects(&mut members, depth - 1),
            2 | 3 => self.of_arrays(&mut members, depth - 1),
            _ => self.of_scalars(&mut members),
        }
        for _ in 0..self.dice.roll(3) {
            self.of_anything(&mut members, depth - 1);
        }
        members.into()
    }

    fn of_objects(&mut self, members: &mut Map<String, Value>, depth: usize) {
        if self.dice.one_in(2) {
            members.insert("type".to_owned(), json!("object"));
        }
        for _ in 0..=self.dice.roll(3) {
            let (keyword, value) = match self.dice.roll(14) {
                0..=3 => ("properties", self.named(depth)),
                4 => {
                    let pattern = self.dice.pick(&PATTERNS).0;
                    ("patternProperties", json!({ pattern: self.schema(depth) }))
                }
                5 => ("additionalProperties", self.schema(depth)),
                6 if self.dice.one_in(3) => ("additionalProperties", json!(false)),
                7 => ("required", json!([self.name()])),
                8 => ("minProperties", json!(self.dice.roll(3))),
                9 => ("maxProperties", json!(self.dice.roll(5) + 1)),
                10 => {
                    let pattern = self.dice.pick(&PATTERNS).0;
                    let names = [json!({"pattern": pattern}), json!({"maxLength": 2}), json!({"enum": NAMES})];
                    ("propertyNames", self.dice.pick(&names).clone())
                }
                11 => {
                    let keyword = if self.dice.one_in(2) { "dependentRequired" } else { "dependencies" };
                    (keyword, json!({ self.name(): [self.name()] }))
                }
                12 => {
                    let keyword = if self.dice.one_in(2) { "dependentSchemas" } else { "dependencies" };
                    (keyword, json!({ self.name(): self.schema(depth) }))
                }
                _ => ("unevaluatedProperties", if self.dice.one_in(2) { json!(false) } else { self.schema(depth) }),
            };
            members.insert(keyword.to_owned(), value);
        }
    }

    fn of_arrays(&mut self, members: &mut Map<String, Value>, depth: usize) {
        if self.dice.one_in(2) {
            members.insert("type".to_owned(), json!("array"));
        }
        for _ in 0..=self.dice.roll(3) {
            let (keyword, value) = match self.dice.roll(12) {
                0..=2 => ("items", self.schema(depth)),
                3 if self.dialect == Dialect::Draft202012 => ("prefixItems", self.list(depth)),
                3 => ("items", self.list(depth)),
                4 => ("additionalItems", if self.dice.one_in(2) { json!(false) } else { self.schema(depth) }),
                5 => ("minItems", json!(self.dice.roll(3))),
                6 => ("maxItems", json!(self.dice.roll(5) + 1)),
                7 => ("uniqueItems", json!(!self.dice.one_in(6))),
                8 => ("contains", self.schema(depth)),
                9 => ("minContains", json!(self.dice.roll(3))),
                10 => ("maxContains", json!(self.dice.roll(3) + 1)),
                _ => ("unevaluatedItems", if self.dice.one_in(2) { json!(false) } else { self.schema(depth) }),
            };
            members.insert(keyword.to_owned(), value);
        }
    }

    fn of_scalars(&mut self, members: &mut Map<String, Value>) {
        let (keyword, value) = match self.dice.roll(12) {
            0 => ("type", json!("string")),
            1 => ("type", json!(["integer", "null", "object"])),
            2 => ("enum", json!([scalar(self.dice), scalar(self.dice), anything(self.dice, 1)])),
            3 => ("const", anything(self.dice, 1)),
            4 => ("minimum", json!(self.dice.roll(2))),
            5 => ("maximum", json!(self.dice.roll(3))),
            6 if self.dice.one_in(2) => ("exclusiveMinimum", json!(0)),
            6 => ("exclusiveMaximum", json!(self.dice.roll(3))),
            7 => ("multipleOf", json!(0.5)),
            8 => ("pattern", json!(self.dice.pick(&PATTERNS).0)),
            9 => ("minLength", json!(self.dice.roll(2))),
            10 => ("maxLength", json!(self.dice.roll(4))),
            _ => ("format", json!("date")),
        };
        members.insert(keyword.to_owned(), value);
    }

    fn of_anything(&mut self, members: &mut Map<String, Value>, depth: usize) {
        match self.dice.roll(11) {
            0 | 1 => drop(members.insert("allOf".to_owned(), self.list(depth))),
            2 => drop(members.insert("anyOf".to_owned(), self.list(depth))),
            3 => drop(members.insert("oneOf".to_owned(), self.list(depth))),
            4 if self.dice.one_in(2) => drop(members.insert("not".to_owned(), self.schema(depth))),
            5 => {
                members.insert("if".to_owned(), self.schema(depth));
                for keyword in ["then", "else"] {
                    if self.dice.one_in(2) {
                        members.insert(keyword.to_owned(), self.schema(depth));
                    }
                }
            }
            6..=8 => {
                if let Some(reference) = self.reference() {
                    members.insert("$ref".to_owned(), reference);
                }
            }
            9 if self.is_odd && self.dialect == Dialect::Draft202012 => {
                members.insert("$dynamicRef".to_owned(), json!("#dynamic"));
            }
            9 if self.is_odd && self.dialect == Dialect::Draft201909 => {
                members.insert("$recursiveRef".to_owned(), json!("#"));
            }
            _ => drop(members.insert("title".to_owned(), json!("asks nothing"))),
        }
    }
}
