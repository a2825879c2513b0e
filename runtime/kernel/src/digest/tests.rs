//! Tests of `digest.rs`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns the salt of the bytes 0 to 31.
fn counted_salt() -> Salt {
    Salt(std::array::from_fn(|i| u8::try_from(i).expect("fewer than 256")))
}

fn digest(value: &Value) -> String {
    Hasher::new(&Salt::ZERO).document(value).to_string()
}

fn counting(length: u32) -> Value {
    (0..length).collect()
}

fn keyed(numbers: impl Iterator<Item = u32>) -> Value {
    numbers.map(|i| (format!("k{i}"), json!(i))).collect()
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!([]), |inner, _| json!([inner]))
}

// The expected values were computed from the module documentation by a program of some forty lines in another
// language (Python: json, struct, hashlib), which shares no code with this one.
#[test]
fn documents_have_the_digests_that_the_format_gives_them() {
    for (value, expected) in [
        (Value::Null, "c8758e2ce6c93ff17ed5b74e78d8ae8091b4d353f63795f2eccb3db34a493dc1"),
        (json!(false), "8091678e497d73ca1a50c189ee418e721860e045db5f55f8dd577236ffecb35e"),
        (json!(true), "56eb9fe9bdceb155c3b74f035af557af6a4b276988854b2e726648df0b235397"),
        (json!(0), "18134150662c28ec4113774d24e642209a7436ffe2a5747fdfda160fde198535"),
        (json!(1), "89b2e4e1353344c94eb1ce42cf10102edbd02bb72aa7b1e3f5fbe6a1fa7d7a68"),
        (json!(1.0), "89b2e4e1353344c94eb1ce42cf10102edbd02bb72aa7b1e3f5fbe6a1fa7d7a68"),
        (json!(-1), "65cd55dce34d10e5c133e23e4b4693bae4d9fcefeb572805ae88b7dd12db6114"),
        (json!(1.5), "126d9bc1b072dd4ace854f0806a408b0b59d7c31dbdc19e5f87cba21b96316cc"),
        (json!(1e22), "5c7af942c5efbc01787433498330511b358e8667ca2c2d0990443e432b524c03"),
        (json!(i64::MIN), "13e09bcec9b93068401f476a1b1015648ddce75d0b4197e7ad22fed74ab5b024"),
        (json!(u64::MAX), "fad21e3f7c977024b1eb3f96436aa0e1ab20b64b51a04a5c85fb4e9df54c7d5c"),
        (json!(""), "4185e067591590a939c263404c18676fb91ebb258cc7b6ba37a75bebe066e139"),
        (json!("1"), "0bdeaf10afcace229a5fd80ee71577727f64b8a4383889563b7dda63627b675d"),
        (json!("ä"), "a072b8170d7d0adc9379d14f2fba6ec064c0ce5e637a59f223d7894a800d6518"),
        (json!("x".repeat(256)), "346e04c20b148f24349d84b388fdaf4e5041e9e28c8cd6d7f28b5a940be3ac0a"),
        (json!("x".repeat(257)), "6255ae8034f7bbee59959d675a4f9db6cb010e2b7d42d5bf6ebfc18aebf07e57"),
        (json!([]), "ffa3e991dd7715692d3f516f00e9b58cf3019cb1d2e6ef5ea69d4eda67e35c81"),
        (json!({}), "52926365be1181aebc7a660be353ed23d5b8ea7b44bfd4f5426220832d46a82e"),
        (json!([1]), "b050354130a1557e93587e85014dfaad0a7508f97583b4ada91b52a27281500c"),
        (json!([[1]]), "2305c939eaf7ffda1d147c37ab8d5029000a77fb30573ebc88a3d830f0eae152"),
        (counting(16), "2ffffc592659b1c0f046f45672534e835cdb1d46609f0fe19a0d4b29a7a0d2f4"),
        (counting(17), "1c9224de8f8e76265785136a493af4d7aa15df874fd2462eb7d1efb42a3e8d24"),
        (counting(257), "f59ed75db4a4eb6753682056ddeb578c52942dbf46804820f7bc88888ee35d82"),
        (keyed(0..32), "63497ff3afb78e4eacfb7e9781f94ca93eff2df24bae223277815d7368e98519"),
        (keyed(0..33), "78a6a1f125093a6977f356a99f57cb60d7c7263fd91a7a95536a6a8b84b864f0"),
        (
            (0..1000).map(|i| (format!("k{i}"), json!({"n": [i]}))).collect(),
            "050924322cf3b5cc6bd0a2a1320f7b5302a193baac863cca5144f1b2f0c9de60",
        ),
        (
            json!({"a": {"b": [1, 2.5, "x", null, true, {}]}, "é": "ß", "": []}),
            "4ddfd82ee14626207679aefb91d3a4b91bcb66c61e2cba59d669973fba49040f",
        ),
        (nested(64), "f94b080764b380592defaa5b780ddd7c5b0dd5af0831eb3c129105924cff354e"),
    ] {
        assert_eq!(digest(&value), expected, "{value}");
    }
}

#[test]
fn salted_digests_and_commitments_are_those_that_the_format_gives() {
    let salted = Hasher::new(&counted_salt());
    assert_eq!(
        salted.document(&json!({"a": 1})).to_string(),
        "16afdbfbc0a65d00ff026238560906c68ecbd738b087a8b72f1b77015edfb252"
    );
    assert_eq!(
        salted.document(&keyed(0..33)).to_string(),
        "70a694a7e04c0b294d9be782d8a485cdce067147f985e3670105ce9cc0922fc6"
    );
    assert_eq!(
        salted.commitment(7, "patch", &json!({"a": 1})).to_string(),
        "b408f00de3c85f9bf97c5b06729c2c46f3c308e0f26bd2669ad7bb729fb4ee6b"
    );
    assert_eq!(
        Hasher::new(&Salt::ZERO).commitment(0, "", &Value::Null).to_string(),
        "64f0d7b4fabb468d1afbe3312cd3fbe1182a7395a81fb991de441f6a390234ff"
    );
}

#[test]
fn sha256_is_that_of_fips_180() {
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc").to_string(), abc);
}

#[test]
fn the_order_in_which_members_came_does_not_show() {
    let forwards = keyed(0..100);
    let backwards = keyed((0..100).rev());
    let shrunk = {
        let mut larger = keyed(0..500);
        larger.as_object_mut().expect("an object").retain(|_, value| value.as_u64() < Some(100));
        larger
    };
    assert_eq!(digest(&forwards), digest(&backwards));
    assert_eq!(digest(&forwards), digest(&shrunk));
}

#[test]
fn equal_numbers_have_one_digest_and_values_of_other_types_another() {
    assert_eq!(digest(&json!({"a": [1, 0]})), digest(&json!({"a": [1.0, -0.0]})));
    let different =
        [json!(1), json!("1"), json!(true), json!([1]), json!({"1": 1}), json!(1.5), json!([]), json!({}), json!("")];
    for (i, one) in different.iter().enumerate() {
        for other in &different[i + 1..] {
            assert_ne!(digest(one), digest(other), "{one} and {other}");
        }
    }
}

#[test]
fn a_commitment_is_bound_to_its_record_its_field_and_its_board() {
    let (here, value) = (Hasher::new(&Salt::ZERO), json!("draft"));
    let commitment = here.commitment(1, "patch", &value);
    assert_ne!(commitment, here.commitment(2, "patch", &value));
    assert_ne!(commitment, here.commitment(1, "reply", &value));
    assert_ne!(commitment, Hasher::new(&counted_salt()).commitment(1, "patch", &value));
    assert_ne!(here.commitment(1, "ab", &json!("c")), here.commitment(1, "a", &json!("bc")));
}

#[test]
fn documents_as_deep_as_any_that_is_read_fit_the_stack() {
    assert_ne!(digest(&nested(json::DEPTH_MAX)), digest(&nested(json::DEPTH_MAX - 1)));
}

#[test]
fn a_digest_has_one_text_and_a_salt_does_not_show_in_debug_output() {
    let text = digest(&Value::Null);
    let read: Digest = text.parse().expect("its own text");
    assert_eq!(format!("{read} {read:?}"), format!("{text} {text}"));
    assert_eq!(serde_json::to_value(read).expect("a string"), json!(text));
    assert_eq!(serde_json::from_value::<Digest>(json!(text)).expect("a digest"), read);
    for wrong in [&text[1..], &text.to_uppercase(), &text.replace('c', "g"), &"é".repeat(32), ""] {
        assert_eq!(wrong.parse::<Digest>(), Err(HexError), "{wrong}");
    }
    assert_eq!(counted_salt().to_hex().parse(), Ok(counted_salt()));
    assert_eq!(format!("{:?}", counted_salt()), "Salt(..)");
}

proptest! {
    #[test]
    fn changing_one_element_changes_the_digest(length in 1_u32..600, at in any::<prop::sample::Index>()) {
        let before = counting(length);
        let mut after = before.clone();
        after[at.index(length as usize)] = json!("changed");
        prop_assert_ne!(digest(&before), digest(&after));
    }

    #[test]
    fn changing_one_member_changes_the_digest(length in 1_u32..200, at in any::<prop::sample::Index>()) {
        let before = keyed(0..length);
        let mut after = before.clone();
        after[format!("k{}", at.index(length as usize))] = json!("changed");
        prop_assert_ne!(digest(&before), digest(&after));
    }
}
