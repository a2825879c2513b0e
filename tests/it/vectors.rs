//! Checks the formats that PatchBoard uses against public conformance suites: JSON (RFC 8259), JSON Pointer (RFC 6901),
//! JSON Patch (RFC 6902), and canonical JSON (RFC 8785). Also checks malformed JSON from models.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use patchboard_kernel::blueprint::PatchLimits;
use patchboard_kernel::canonical;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::rejection::{Code, Violation};
use patchboard_kernel::state::{ResultLimits, State};
use patchboard_kernel::tree::Node;
use serde_json::{Value, json};

use crate::shared;

/// Limits of a proposal, except for its size: the suites have whole files.
const TEXT_LIMITS: Limits = Limits { bytes: usize::MAX, depth: 64 };

/// The suites have no limits.
const RESULT_LIMITS: ResultLimits = ResultLimits { bytes: u64::MAX, depth: u32::MAX };

#[test]
fn json_patches_apply_as_rfc_6902_has_it_or_leave_the_document_byte_for_byte() {
    let Some(directory) = shared::find("vectors/json-patch-tests") else { return };
    let mut ran = 0;
    for file in shared::files_in(&directory).iter().filter(|file| is_json(file)) {
        // The strict reader is not used: two operations repeat a member in the text, see below.
        for case in cases(file) {
            let Some(document) = case.get("doc").filter(|_| case["disabled"] != json!(true)) else { continue };
            let mut document = document.clone();
            json::normalise(&mut document);
            let before = State::new(&document, &Hasher::new(&Salt::ZERO));
            let (text, digest) = (before.root().to_string(), before.digest());
            match (apply(&before, &case["patch"]), case.get("expected"), case.get("error")) {
                (Ok(after), Some(expected), None) => {
                    let mut expected = expected.clone();
                    json::normalise(&mut expected);
                    assert_eq!(*after.root(), expected, "{case}");
                    assert_eq!(after.digest(), State::new(&expected, &Hasher::new(&Salt::ZERO)).digest(), "{case}");
                }
                (Ok(_), None, None) | (Err(_), None, Some(_)) => {}
                (outcome, _, _) => panic!("{case}\n{:?}", outcome.map(|state| state.root().clone())),
            }
            assert_eq!((before.root().to_string(), before.digest()), (text, digest), "{case}");
            ran += 1;
        }
    }
    shared::ran("json-patch-tests", ran, 100);
}

#[test]
fn a_patch_with_a_repeated_member_is_rejected_as_text() {
    let Some(directory) = shared::find("vectors/json-patch-tests") else { return };
    let mut repeating = 0;
    for file in shared::files_in(&directory).iter().filter(|file| is_json(file)) {
        match json::parse(&fs::read(file).expect("a file"), TEXT_LIMITS) {
            Ok(_) => {}
            Err(refusal) => {
                assert_eq!(refusal.code, Code::DuplicateKey, "{}: {refusal}", file.display());
                repeating += 1;
            }
        }
    }
    shared::ran("json-patch-tests, files that repeat a member", repeating, 1);
}

#[test]
fn json_pointers_lead_where_rfc_6901_says() {
    let Some(file) = shared::find("vectors/json-pointer-rfc6901/rfc6901.json") else { return };
    let suite = strict(&file);
    let state = State::new(&suite["document"], &Hasher::new(&Salt::ZERO));
    let mut ran = 0;
    for case in array(&suite["string_representation"]) {
        let patch = test_patch(&case["pointer"], &case["value"]);
        let op = only_op(&patch).expect("a good pointer");
        assert_eq!(state.get(op.path()).map(Node::to_value).as_ref(), Some(&case["value"]), "{case}");
        state.candidate().apply(&op, RESULT_LIMITS).expect("the value is there");
        ran += 1;
    }
    for case in array(&suite["syntax_error"]) {
        let violations = only_op(&test_patch(&case["pointer"], &Value::Null)).expect_err("not a pointer");
        let codes: Vec<_> = violations.iter().map(|violation| violation.code).collect();
        assert_eq!(codes, [Code::BadPointer], "{case}");
        ran += 1;
    }
    for case in array(&suite["nonexistent"]) {
        let patch = test_patch(&case["pointer"], &Value::Null);
        let op = only_op(&patch).expect("a good pointer");
        assert_eq!(state.get(op.path()), None, "{case}");
        let code = state.candidate().apply(&op, RESULT_LIMITS).expect_err("nothing is there").code;
        assert!(matches!(code, Code::PathNotFound | Code::IndexOutOfRange), "{case}: {code}");
        ran += 1;
    }
    for case in array(&suite["decoding"]) {
        let patch = test_patch(&case["pointer"], &Value::Null);
        let op = only_op(&patch).expect("a good pointer");
        let tokens: Vec<_> = op.path().tokens().map(|token| token.decoded().into_owned()).collect();
        assert_eq!(json!(tokens), json!([case["member"]]), "{case}");
        ran += 1;
    }
    shared::ran("json-pointer-rfc6901", ran, 25);
}

#[test]
fn canonical_json_is_that_of_rfc_8785_byte_for_byte() {
    let Some(directory) = shared::find("vectors/jcs-rfc8785") else { return };
    let mut ran = 0;
    for input in shared::files_in(&directory.join("input")) {
        let name = input.file_name().expect("a file has a name");
        let expected = fs::read(directory.join("output").join(name)).expect("an output for every input");
        let text = canonical::to_string(&strict(&input));
        assert_eq!(text.as_bytes(), expected, "{}", input.display());
        let hex =
            fs::read_to_string(directory.join("outhex").join(name).with_extension("txt")).expect("the same in hex");
        let hex: Vec<u8> = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
        assert_eq!(text.as_bytes(), hex, "{}", input.display());
        ran += 1;
    }
    shared::ran("jcs-rfc8785", ran, 6);
}

#[test]
fn doubles_are_printed_as_ecmascript_prints_them_and_read_back_as_they_were() {
    let Some(file) = shared::find("vectors/jcs-rfc8785/es6-numbers-1000.txt") else { return };
    let lines = fs::read_to_string(file).expect("a text");
    let mut ran = 0;
    for line in lines.lines() {
        let (bits, expected) = line.split_once(',').expect("bits,text");
        let float = f64::from_bits(u64::from_str_radix(bits, 16).expect("64 bits in hex"));
        assert_eq!(canonical::to_string(&json!(float)), expected, "{line}");
        // Integers without a unique double are read as another kind of number.
        if expected.contains(['.', 'e']) {
            let read = json::parse(expected.as_bytes(), TEXT_LIMITS).expect("a number that a double holds");
            assert_eq!(read.as_f64(), Some(float), "{line}");
        }
        ran += 1;
    }
    shared::ran("es6-numbers", ran, 1000);
}

#[test]
fn json_texts_are_judged_as_by_rfc_8259_but_for_repeated_keys() {
    let Some(directory) = shared::find("vectors/JSONTestSuite/test_parsing") else { return };
    let mut ran = 0;
    for file in shared::files_in(&directory) {
        let name = file.file_name().and_then(|name| name.to_str()).expect("names are ASCII");
        let text = fs::read(&file).expect("a file");
        let start = Instant::now();
        let outcome = json::parse(&text, TEXT_LIMITS);
        assert!(start.elapsed() < Duration::from_secs(2), "{name} took {:?}", start.elapsed());
        match name.split('_').next() {
            // RFC 8259 section 4 leaves repeated keys to the reader, and the strict reader rejects them.
            Some("y") if name.starts_with("y_object_duplicated_key") => {
                assert_eq!(outcome.map_err(|refusal| refusal.code), Err(Code::DuplicateKey), "{name}");
            }
            Some("y") => assert!(outcome.is_ok(), "{name}: {outcome:?}"),
            Some("n") => {
                let code = outcome.expect_err(name).code;
                assert!(matches!(code, Code::InvalidJson | Code::TooDeep), "{name}: {code}");
            }
            // The standard leaves these open: either result is right, but the reader must return.
            Some("i") => {}
            _ => panic!("{name} does not say what is expected"),
        }
        ran += 1;
    }
    shared::ran("JSONTestSuite", ran, 140);
}

#[test]
fn malformed_model_output_is_rejected_and_valid_json_is_read() {
    let Some(directory) = shared::find("vectors/malformed-llm-json") else { return };
    let (mut refused, mut read) = (0, 0);
    for file in shared::files_in(&directory).iter().filter(|file| is_json(file)) {
        for case in cases(file) {
            let Some(input) = case["input"].as_str() else { panic!("a case without an input: {case}") };
            let outcome = json::parse(input.as_bytes(), TEXT_LIMITS);
            if case["strict_json_valid"] == json!(false) {
                let refusal = outcome.expect_err(input);
                assert!(refusal.offset <= input.len(), "{case}: {refusal:?}");
                refused += 1;
            } else if case["duplicate_keys"] == json!(true) {
                assert_eq!(outcome.map_err(|refusal| refusal.code), Err(Code::DuplicateKey), "{case}");
                refused += 1;
            } else {
                let mut lenient: Value = serde_json::from_str(input).expect("the case says that it is JSON");
                json::normalise(&mut lenient);
                assert_eq!(outcome, Ok(lenient), "{case}");
                read += 1;
            }
        }
    }
    shared::ran("malformed-llm-json, refused", refused, 400);
    shared::ran("malformed-llm-json, read", read, 60);
}

/// Applies a patch as the pipeline does: completely to a candidate, or not at all.
fn apply(state: &State, patch: &Value) -> Result<State, Vec<Violation>> {
    let mut patch = patch.clone();
    json::normalise(&mut patch);
    let ops = patch::parse(&patch, &PatchLimits { max_ops: u32::MAX, ..PatchLimits::default() })?;
    let mut candidate = state.candidate();
    for op in &ops {
        let before = candidate.root().to_string();
        if let Err(violation) = candidate.apply(op, RESULT_LIMITS) {
            assert_eq!(candidate.root().to_string(), before, "a refused operation changed the candidate: {op:?}");
            return Err(vec![violation]);
        }
    }
    Ok(candidate.into_state())
}

fn test_patch(pointer: &Value, value: &Value) -> Value {
    json!([{"op": "test", "path": pointer, "value": value}])
}

fn only_op(patch: &Value) -> Result<Op<'_>, Vec<Violation>> {
    Ok(patch::parse(patch, &PatchLimits::default())?.remove(0))
}

fn strict(file: &Path) -> Value {
    json::parse(&fs::read(file).expect("a file"), TEXT_LIMITS)
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", file.display()))
}

fn cases(file: &Path) -> Vec<Value> {
    let suite: Value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("a suite is JSON");
    array(&suite).to_vec()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array of cases")
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "json")
}

/// Verifiers written from that page are checked with its digests.
#[test]
fn the_digests_on_the_page_of_formats_are_right() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md");
    let text = fs::read_to_string(page).expect("the page is part of the project");
    let hasher = Hasher::new(&Salt::ZERO);
    let object = |most: u32, value: &dyn Fn(u32) -> Value| (0..=most).map(|n| (format!("k{n}"), value(n))).collect();
    let mut checked = 0;
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [document, digest] = cells[..] else { continue };
        let digest = digest.trim_matches('`');
        if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        let mut value = match document {
            "the text of 257 times `x`" => json!("x".repeat(257)),
            "the array of the numbers 0 to 256" => (0..257).collect(),
            r#"the object of `"k0": 0` to `"k31": 31`"# => object(31, &|n| json!(n)),
            r#"the object of `"k0": 0` to `"k32": 32`"# => object(32, &|n| json!(n)),
            r#"the object of `"k0": {"n": [0]}` to `"k999": {"n": [999]}`"# => object(999, &|n| json!({"n": [n]})),
            text => serde_json::from_str(text.trim_matches('`')).unwrap_or_else(|error| panic!("{text}: {error}")),
        };
        json::normalise(&mut value);
        assert_eq!(State::new(&value, &hasher).digest().to_string(), digest, "{document}");
        assert_eq!(hasher.document(&value).to_string(), digest, "{document}");
        checked += 1;
    }
    assert!(checked >= 13, "the table was found: {checked}");
    let salted = Hasher::new(&Salt(std::array::from_fn(|i| u8::try_from(i).expect("fewer than 256"))));
    for digest in [salted.document(&json!({"a": 1})), salted.commitment(7, "patch", &json!({"a": 1}))] {
        assert!(text.contains(&format!("`{digest}`")), "{digest} is not on the page");
    }
}
