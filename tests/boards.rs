//! Generates boards of any size, and a writer that works on them.
//!
//! A board holds claims, evidence and tasks as arrays, and handles as one object. Their elements have about eight
//! fields with enums, patterns, nested arrays and, for claims, an `if`/`then`. Everything is derived from a seed: equal
//! seeds and sizes give equal boards and patches.

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::id::{BoardId, IdempotencyKey, Timestamp};
use patchboard_protocols::PLANS;
use serde_json::{Map, Value, json};

/// Worker that may write all patches of [`Writer`].
pub const WORKER: &str = "writer";

/// Worker with a view budget of 4,000 characters.
pub const READER: &str = "reader";

const STATUSES: [&str; 4] = ["draft", "supported", "refuted", "contested"];
const TAGS: [&str; 5] = ["numeric", "entity", "date", "place", "quote"];
const KINDS: [&str; 3] = ["table", "prose", "figure"];
const STATES: [&str; 4] = ["open", "taken", "done", "dropped"];
const WORDS: [&str; 16] = [
    "the",
    "report",
    "states",
    "that",
    "revenue",
    "rose",
    "in",
    "second",
    "quarter",
    "while",
    "costs",
    "fell",
    "against",
    "all",
    "earlier",
    "estimates",
];

/// Divisor of the number of initial claims: a writer may add the quotient before [`Writer::trim`] removes the
/// additions. Thus a small board stays small however long it is measured.
const GROWTH: usize = 4;
/// Upper limit of added claims before they are removed, for large boards.
const GROWTH_MAX: usize = 64;

/// Revision of the last claim of an initial document, and of no other.
const REVISION_OF_LAST: usize = 1000;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to choose words.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns a generator that depends on the seed alone.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// Returns one of `from`, which is not empty.
    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Returns `count` words.
    pub fn words(&mut self, count: usize) -> String {
        let words: Vec<_> = (0..count).map(|_| self.pick(&WORDS)).collect();
        words.join(" ")
    }
}

/// Keyword that looks across all claims, if any. Such keywords are the known exceptions to a constant cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Across {
    /// Every keyword is local to an element.
    Nothing,
    /// `uniqueItems` on the claims.
    UniqueItems,
    /// `contains` on the claims.
    Contains,
}

/// Returns the schema of a generated board.
pub fn schema(across: Across) -> Value {
    let mut claims = json!({"type": "array", "items": {"$ref": "#/$defs/claim"}});
    match across {
        Across::Nothing => {}
        Across::UniqueItems => claims["uniqueItems"] = true.into(),
        // Only the last of the initial claims satisfies it, so a search visits all of them.
        Across::Contains => {
            claims["contains"] = json!({"properties": {"revision": {"const": REVISION_OF_LAST}}});
        }
    }
    let id = |prefix: &str| json!({"type": "string", "pattern": format!("^{prefix}-[0-9]{{7}}$")});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "required": ["meta", "claims", "evidence", "tasks", "handles"],
        "properties": {
            "meta": {
                "type": "object", "required": ["phase", "round"], "additionalProperties": false,
                "properties": {"phase": {"enum": ["setup", "active", "closed"]}, "round": {"type": "integer"}},
            },
            "claims": claims,
            "evidence": {"type": "array", "items": {"$ref": "#/$defs/evidence"}},
            "tasks": {"type": "array", "items": {"$ref": "#/$defs/task"}},
            "handles": {
                "type": "object",
                "propertyNames": {"pattern": "^h-[0-9]{7}$"},
                "additionalProperties": {"$ref": "#/$defs/handle"},
            },
        },
        "$defs": {
            "claim": {
                "type": "object", "additionalProperties": false,
                "required": ["id", "text", "status", "confidence", "author", "evidence_ids", "tags", "revision"],
                "properties": {
                    "id": id("clm"),
                    "text": {"type": "string", "minLength": 1, "maxLength": 4000},
                    "status": {"enum": STATUSES},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                    "author": {"type": "string", "pattern": "^[a-z][a-z0-9-]{1,31}$"},
                    "evidence_ids": {"type": "array", "maxItems": 64, "items": id("evd")},
                    "tags": {"type": "array", "uniqueItems": true, "items": {"enum": TAGS}},
                    "revision": {"type": "integer", "minimum": 0},
                },
                "if": {"properties": {"status": {"const": "refuted"}}},
                "then": {"properties": {"evidence_ids": {"minItems": 1}}},
            },
            "evidence": {
                "type": "object", "additionalProperties": false,
                "required": ["id", "source", "quote", "page", "kind", "tags", "score", "checked"],
                "properties": {
                    "id": id("evd"),
                    "source": {"type": "string", "pattern": "^doc-[0-9]{3}$"},
                    "quote": {"type": "string", "minLength": 1, "maxLength": 4000},
                    "page": {"type": "integer", "minimum": 1},
                    "kind": {"enum": KINDS},
                    "tags": {"type": "array", "items": {"enum": TAGS}},
                    "score": {"type": "number", "minimum": 0, "maximum": 1},
                    "checked": {"type": "boolean"},
                },
            },
            "task": {
                "type": "object", "additionalProperties": false,
                "required": ["id", "title", "state", "owner", "priority", "depends_on", "round", "note"],
                "properties": {
                    "id": id("tsk"),
                    "title": {"type": "string", "minLength": 1, "maxLength": 200},
                    "state": {"enum": STATES},
                    "owner": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^worker-[0-9]$"}]},
                    "priority": {"type": "integer", "minimum": 0, "maximum": 9},
                    "depends_on": {"type": "array", "maxItems": 8, "items": id("tsk")},
                    "round": {"type": "integer"},
                    "note": {"type": "string", "maxLength": 400},
                },
            },
            "handle": {
                "type": "object", "additionalProperties": false, "required": ["name", "kind", "seen", "aliases"],
                "properties": {
                    "name": {"type": "string", "maxLength": 80},
                    "kind": {"enum": ["person", "company", "place"]},
                    "seen": {"type": "integer", "minimum": 0},
                    "aliases": {"type": "array", "maxItems": 8, "items": {"type": "string"}},
                },
            },
        },
    })
}

/// Returns a claim with this number.
pub fn claim(index: usize, rng: &mut Rng) -> Value {
    let status = rng.pick(&STATUSES);
    json!({
        "id": format!("clm-{index:07}"),
        "text": rng.words(14),
        "status": status,
        "confidence": rng.below(1000) as f64 / 1000.0,
        "author": format!("worker-{}", rng.below(9)),
        "evidence_ids": [format!("evd-{:07}", rng.below(1_000_000)), format!("evd-{:07}", rng.below(1_000_000))],
        "tags": [rng.pick(&TAGS)],
        "revision": rng.below(50),
    })
}

fn evidence(index: usize, rng: &mut Rng) -> Value {
    json!({
        "id": format!("evd-{index:07}"),
        "source": format!("doc-{:03}", rng.below(1000)),
        "quote": rng.words(20),
        "page": 1 + rng.below(300),
        "kind": rng.pick(&KINDS),
        "tags": [rng.pick(&TAGS), rng.pick(&TAGS)],
        "score": rng.below(1000) as f64 / 1000.0,
        "checked": rng.below(2) == 0,
    })
}

fn task(index: usize, rng: &mut Rng) -> Value {
    json!({
        "id": format!("tsk-{index:07}"),
        "title": rng.words(6),
        "state": rng.pick(&STATES),
        "owner": if rng.below(2) == 0 { Value::Null } else { format!("worker-{}", rng.below(9)).into() },
        "priority": rng.below(10),
        "depends_on": [format!("tsk-{:07}", rng.below(index + 1))],
        "round": rng.below(20),
        "note": rng.words(5),
    })
}

fn handle(rng: &mut Rng) -> Value {
    json!({
        "name": rng.words(2),
        "kind": rng.pick(&["person", "company", "place"]),
        "seen": rng.below(100),
        "aliases": [rng.words(1)],
    })
}

/// A board's document, and the generator of its patches. Clones generate the same patches, so that several ways of
/// doing the same work can be compared.
#[derive(Clone, Debug)]
pub struct Writer {
    rng: Rng,
    /// Statuses of all claims, as indices into [`STATUSES`].
    statuses: Vec<usize>,
    claims_at_first: usize,
    handles: usize,
    turn: usize,
}

/// Kind of patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Alternating appends and revisions: a board's typical mix.
    Mix,
    /// Patches that the schema rejects.
    Refused,
    /// Addition of a member to the object of handles.
    Member,
    /// Insertion of a claim before all others, which shifts them.
    Front,
}

/// Returns a document of about `bytes` bytes of compact JSON, and its writer.
pub fn document(bytes: usize, seed: u64) -> (Value, Writer) {
    let mut rng = Rng::new(seed);
    let (mut claims, mut proofs, mut tasks, mut handles) = (Vec::new(), Vec::new(), Vec::new(), Map::new());
    let mut made = 100;
    for turn in 0_usize.. {
        let element = match turn % 5 {
            0 | 2 => claim(claims.len(), &mut rng),
            1 => evidence(proofs.len(), &mut rng),
            3 => task(tasks.len(), &mut rng),
            _ => handle(&mut rng),
        };
        made += usize::try_from(patchboard_kernel::json::size(&element)).unwrap_or(usize::MAX) + 1;
        match turn % 5 {
            0 | 2 => claims.push(element),
            1 => proofs.push(element),
            3 => tasks.push(element),
            _ => drop(handles.insert(format!("h-{:07}", handles.len()), element)),
        }
        // At least one of each, in fives, so that the proportions are equal at every size.
        if turn % 5 == 4 && made >= bytes {
            break;
        }
    }
    if let Some(last) = claims.last_mut() {
        last["revision"] = REVISION_OF_LAST.into();
    }
    let status = |claim: &Value| STATUSES.iter().position(|status| claim["status"] == *status).unwrap_or_default();
    let statuses: Vec<_> = claims.iter().map(status).collect();
    let writer = Writer { rng, claims_at_first: statuses.len(), statuses, handles: handles.len(), turn: 0 };
    let document = json!({
        "meta": {"phase": "active", "round": 1},
        "claims": claims, "evidence": proofs, "tasks": tasks, "handles": handles,
    });
    (document, writer)
}

impl Writer {
    /// Returns a writer that writes other patches to the same document.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { rng: Rng::new(seed), ..self }
    }

    /// Returns the next patch, as text.
    pub fn patch(&mut self, work: Work) -> String {
        self.turn += 1;
        let ops = match work {
            Work::Mix if self.turn.is_multiple_of(2) => self.append(),
            Work::Mix => self.revise(),
            Work::Refused => {
                let mut claim = claim(self.statuses.len(), &mut self.rng);
                claim["status"] = "maybe".into();
                json!([{"op": "add", "path": "/claims/-", "value": claim}])
            }
            Work::Member => {
                let path = format!("/handles/h-{:07}", self.handles);
                self.handles += 1;
                json!([{"op": "add", "path": path, "value": handle(&mut self.rng)}])
            }
            Work::Front => {
                let claim = claim(self.statuses.len(), &mut self.rng);
                let status = STATUSES.iter().position(|status| claim["status"] == *status).unwrap_or_default();
                self.statuses.insert(0, status);
                json!([{"op": "add", "path": "/claims/0", "value": claim}])
            }
        };
        ops.to_string()
    }

    fn append(&mut self) -> Value {
        let claim = claim(self.statuses.len(), &mut self.rng);
        let status = STATUSES.iter().position(|status| claim["status"] == *status).unwrap_or_default();
        self.statuses.push(status);
        json!([
            {"op": "test", "path": "/meta/phase", "value": "active"},
            {"op": "add", "path": "/claims/-", "value": claim},
        ])
    }

    /// Changes a claim's status and confidence, with a test of the status that the writer expects.
    fn revise(&mut self) -> Value {
        let index = self.rng.below(self.statuses.len());
        let before = self.statuses[index];
        let after = (before + 1 + self.rng.below(STATUSES.len() - 1)) % STATUSES.len();
        self.statuses[index] = after;
        let place = |field: &str| format!("/claims/{index}/{field}");
        json!([
            {"op": "test", "path": place("status"), "value": STATUSES[before]},
            {"op": "replace", "path": place("status"), "value": STATUSES[after]},
            {"op": "replace", "path": place("confidence"), "value": self.rng.below(1000) as f64 / 1000.0},
        ])
    }

    /// Returns a patch that removes the newest claims and handles, if enough have been added. It keeps the board's size
    /// constant and must not be measured.
    pub fn trim(&mut self, handles_at_first: usize) -> Option<String> {
        let slack = (self.claims_at_first / GROWTH).clamp(1, GROWTH_MAX);
        let mut ops = Vec::new();
        if self.statuses.len() > self.claims_at_first + slack {
            while self.statuses.len() > self.claims_at_first {
                self.statuses.pop();
                ops.push(json!({"op": "remove", "path": format!("/claims/{}", self.statuses.len())}));
            }
        }
        if self.handles > handles_at_first + slack {
            while self.handles > handles_at_first {
                self.handles -= 1;
                ops.push(json!({"op": "remove", "path": format!("/handles/h-{:07}", self.handles)}));
            }
        }
        (!ops.is_empty()).then(|| Value::Array(ops).to_string())
    }

    /// Returns the number of handles.
    pub const fn handles(&self) -> usize {
        self.handles
    }
}

/// Returns the blueprint of a board with this document.
///
/// # Panics
/// Never: the parts that vary are a schema and a document of this module.
pub fn blueprint(schema: Value, document: Value) -> Blueprint {
    let all = ["/meta", "/claims", "/evidence", "/tasks", "/handles"];
    let mut blueprint = json!({
        "blueprint": 1,
        "name": "measured",
        "state": {"schema": schema, "initial": {}},
        "workers": {
            WORKER: {
                "agent": "script",
                "reads": all,
                "writes": [
                    {"path": "/claims/-", "ops": ["add"]},
                    {"path": "/claims/*", "ops": ["insert", "remove"]},
                    {"path": "/claims/*/status", "ops": ["replace"]},
                    {"path": "/claims/*/confidence", "ops": ["replace"]},
                    {"path": "/handles/*", "ops": ["add", "remove"]},
                ],
                "patch": {"max_ops": 1000, "max_bytes": 1 << 20},
            },
            READER: {
                "agent": "script",
                "reads": all,
                "writes": [{"path": "/claims/*/status", "ops": ["replace"]}],
                "view": {"budget": 4000, "unit": "chars"},
            },
        },
        "limits": {"commits": u64::MAX / 2, "wall": "365d", "state_bytes": 1_u64 << 32},
    });
    blueprint["state"]["initial"] = document;
    serde_json::from_value(blueprint).expect("every field is one that a blueprint has")
}

/// Creates a board without storage.
///
/// # Panics
/// If the document does not fit the schema; those of this module do.
pub fn board(schema: Value, document: Value) -> (Board, Step) {
    made(blueprint(schema, document))
}

/// Creates a board of a blueprint in JSON, without storage.
///
/// # Panics
/// If it is not a valid blueprint, or the board cannot be created.
pub fn of(blueprint: Value) -> (Board, Step) {
    made(serde_json::from_value(blueprint).expect("a blueprint"))
}

/// Creates the board with a salt of zeros at time 0.
fn made(blueprint: Blueprint) -> (Board, Step) {
    let genesis = NewBoard::new(BoardId::from(blueprint.name.as_str()), blueprint, Value::Null, Timestamp(0));
    Board::create(genesis, &PLANS).expect("a board")
}

/// Returns a direct proposal in the writer's name. With `token` it has an idempotency key, as every proposal of an
/// agent has.
pub fn proposal(text: String, token: Option<u64>) -> Proposal {
    let token = token.map(|number| IdempotencyKey::from(number.to_string().as_str()));
    Proposal {
        from: ProposalSource::Direct { key: token, base: None },
        worker: WORKER.into(),
        reply: ReplyBody::Text(text),
        usage: None,
        raw: None,
    }
}

/// Returns a direct proposal as an input to [`Board::step`].
pub fn input(text: String, token: Option<u64>) -> Input {
    Input::Propose(proposal(text, token))
}
