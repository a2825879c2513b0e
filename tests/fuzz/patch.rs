//! Compares patches on the kernel's tree with the crate `json-patch` on a value.
//!
//! Both must accept the same patches and produce equal results, with documented exceptions. The kernel limits size,
//! depth and number of operations, and a failed operation changes nothing.

use json_patch::{Patch, PatchOperation};
use patchboard_kernel::blueprint::PatchLimits;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::state::{ResultLimits, State};
use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::values;

/// Maximum operations of a patch.
const OPS_MAX: u32 = 32;
/// Limits above any document here.
const ROOMY: ResultLimits = ResultLimits { bytes: 1 << 24, depth: 4096 };

/// Checks a document, a line break and a patch; if the first byte is 0, the rest are choices that generate both.
pub fn patch(data: &[u8]) {
    match data.split_first() {
        Some((0, choices)) => {
            let (document, patch) = made(&mut Bytes::new(choices));
            check(document, patch);
        }
        _ => {
            let (document, patch) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
            let read = |text| json::parse(text, Limits { bytes: 1 << 20, depth: 64 }).ok();
            if let (Some(document), Some(patch)) = (read(document), read(patch)) {
                check(document, patch);
            }
        }
    }
}

fn check(mut document: Value, mut patch: Value) {
    json::normalise(&mut document);
    json::normalise(&mut patch);
    let limits = PatchLimits { max_ops: OPS_MAX, ..PatchLimits::default() };
    let theirs = serde_json::from_value::<Patch>(patch.clone());
    let ops = match patch::parse(&patch, &limits) {
        Ok(ops) => ops,
        Err(violations) => {
            assert!(!violations.is_empty());
            for violation in &violations {
                assert!(patch.pointer(&violation.pointer).is_some(), "{violation:?} is nowhere in {patch}");
            }
            let is_long = patch.as_array().is_some_and(|ops| ops.len() > OPS_MAX as usize);
            assert_eq!(violations.iter().any(|violation| violation.code == Code::TooLarge), is_long);
            assert!(is_long || theirs.is_err(), "{violations:?} of a patch that can be read: {patch}");
            return;
        }
    };
    let theirs = theirs.expect("what is a patch to us is one to others");
    let read: Vec<Op<'_>> = theirs.iter().map(Op::from).collect();
    assert_eq!(ops, read);
    let written = patch::to_value(&ops);
    assert_eq!(patch::parse(&written, &limits).as_deref(), Ok(ops.as_slice()), "what is written is read as it was");

    let hasher = Hasher::new(&Salt::ZERO);
    let state = State::new(&document, &hasher);
    apply_each(&state, document.clone(), &ops, &theirs, &hasher);
    apply_within(&state, &ops, ResultLimits { bytes: state.bytes() + 16, depth: state.root().depth().into() });
    apply_within(&state, &ops, ResultLimits { bytes: state.bytes() / 2, depth: 3 });
    assert_eq!(state.root().to_value(), document, "trying changes nothing");
    assert_eq!(state.digest(), State::new(&document, &hasher).digest());
}

/// Applies each operation to the result of those before it.
fn apply_each(state: &State, mut document: Value, ops: &[Op<'_>], theirs: &[PatchOperation], hasher: &Hasher) {
    let mut candidate = state.candidate();
    for (op, their) in ops.iter().zip(theirs) {
        // An operation may double the document, so its growth is limited here.
        if candidate.bytes() > 1 << 20 {
            return;
        }
        let before = document.clone();
        let effect = candidate.effect(op);
        // `json_patch` may change the value before it fails; `document` then gets its former value back.
        let verdict = json_patch::patch_unsafe(&mut document, std::slice::from_ref(their));
        match candidate.apply(op, ROOMY) {
            Ok(applied) => {
                assert!(verdict.is_ok(), "{op:?} was applied to {before}, and {verdict:?}");
                apply_at_the_limit(op, &before, json::size(&document), hasher);
                if let Some(made) = applied.made {
                    let landed = candidate.get(&effect.lands_at).map(|node| node.to_value());
                    assert_eq!(landed, Some(made.to_value()), "{op:?} was said to land at {}", effect.lands_at);
                }
            }
            Err(violation) => {
                assert!(verdict.is_err(), "{op:?} was refused on {before}: {violation:?}");
                assert!(violation.message.len() < 512, "{violation:?}");
                document = before;
            }
        }
        assert_eq!(candidate.root().to_value(), document, "{op:?}");
        assert_eq!(candidate.bytes(), json::size(&document), "{op:?}");
        assert_eq!(usize::from(candidate.root().depth()), json::depth(&document), "{op:?}");
    }
    let next = candidate.into_state();
    assert_eq!(next.digest(), State::new(&document, hasher).digest(), "a digest depends on content alone");
    assert_eq!(next.version(), state.version().next());
}

/// Applies one valid operation with its exact result size as the limit, and with a limit one byte below.
fn apply_at_the_limit(op: &Op<'_>, before: &Value, after: u64, hasher: &Hasher) {
    let state = State::new(before, hasher);
    // Only small documents are checked, because a tree is built for each; larger ones behave alike.
    if state.bytes() > 1 << 12 {
        return;
    }
    let within = |bytes| state.candidate().apply(op, ResultLimits { bytes, ..ROOMY }).map_err(|refusal| refusal.code);
    assert!(within(after).is_ok(), "{op:?} on {before} comes to {after} bytes, which are allowed");
    if after > state.bytes() {
        assert_eq!(within(after - 1).err(), Some(Code::ResultTooLarge), "{op:?} on {before} comes to {after} bytes");
    }
}

/// Applies each operation within limits: no result exceeds them, and a rejected operation changes nothing.
fn apply_within(state: &State, ops: &[Op<'_>], limits: ResultLimits) {
    let mut candidate = state.candidate();
    for op in ops {
        let (before, bytes) = (candidate.root().clone(), candidate.bytes());
        if let Err(violation) = candidate.apply(op, limits) {
            assert_eq!(*candidate.root(), before, "{op:?} was refused: {violation:?}");
        }
        assert!(candidate.bytes() <= limits.bytes.max(bytes), "{op:?}");
        assert!(u32::from(candidate.root().depth()) <= limits.depth.max(before.depth().into()), "{op:?}");
        assert_eq!(candidate.bytes(), json::size(&candidate.root().to_value()), "{op:?}");
    }
}

/// Generates a document, and a patch with pointers that mostly begin with places of it.
fn made(bytes: &mut Bytes<'_>) -> (Value, Value) {
    let document = values::value(bytes, 4);
    let places = values::places(&document, 400);
    let mut ops = Vec::new();
    while !bytes.is_empty() && ops.len() <= OPS_MAX as usize {
        let kind = *bytes.pick(&["add", "remove", "replace", "move", "copy", "test", "test"]);
        let path = values::place(bytes, &places);
        ops.push(match kind {
            "remove" => json!({"op": kind, "path": path.as_str()}),
            "move" | "copy" => {
                json!({"op": kind, "path": path.as_str(), "from": values::place(bytes, &places).as_str()})
            }
            "test" if bytes.below(2) == 0 => {
                let there = path.resolve(&document).cloned().unwrap_or_default();
                json!({"op": kind, "path": path.as_str(), "value": there})
            }
            _ => json!({"op": kind, "path": path.as_str(), "value": values::value(bytes, 2)}),
        });
    }
    (document, ops.into())
}
