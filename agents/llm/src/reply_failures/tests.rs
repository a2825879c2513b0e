//! Requests after replies that could not be judged: room, form, pause and text.

use patchboard_kernel::digest::sha256;

use super::*;

fn after(failures: &[FailureCode]) -> Option<ReplyFailures> {
    ReplyFailures::from_past(
        &AttemptHistory { failures: failures.to_vec(), rejected_views: Vec::new() },
        sha256(b"view"),
    )
}

#[test]
fn each_further_request_differs() {
    use FailureCode as C;
    let mut notes = std::collections::BTreeSet::new();
    for kind in [C::Truncated, C::Empty, C::Protocol, C::Timeout] {
        for times in 1..4 {
            let trouble = after(&vec![kind; times]).expect("known");
            assert!(notes.insert(trouble.note()), "{}", trouble.note());
        }
    }
    assert_eq!(after(&[C::Lost, C::Refused]), None);
    assert_eq!(after(&[C::Unreachable]), after(&[C::Protocol]));
    assert_eq!(after(&[C::Empty, C::Lost]), after(&[C::Empty]));
}

#[test]
fn room_is_doubled_up_to_what_the_model_has() {
    use FailureCode as C;
    let model = Model { context: 4000, ..Model::new("http://localhost", "m") };
    for (codes, tokens, expected) in [
        (&[C::Truncated][..], 1000, 2000),
        (&[C::Truncated, C::Empty], 1000, 4000),
        (&[C::Truncated, C::Protocol], 1000, 2000),
        (&[C::Timeout], 1000, 1000),
        (&[C::Empty; 3], 1000, 4000),
        (&[C::Empty; 40], u32::MAX, u32::MAX),
        (&[C::Empty], 5000, 5000),
    ] {
        assert_eq!(after(codes).expect("known").reply_tokens(tokens, &model), expected, "{codes:?}");
    }
}

#[test]
fn after_empty_replies_the_form_is_plainer() {
    use FailureCode as C;
    for (codes, expected) in [
        (&[C::Truncated][..], OutputMode::Derived),
        (&[C::Empty], OutputMode::Generic),
        (&[C::Empty, C::Protocol], OutputMode::Generic),
        (&[C::Empty, C::Truncated, C::Empty], OutputMode::None),
    ] {
        assert_eq!(after(codes).expect("known").form(), expected, "{codes:?}");
    }
}

#[test]
fn only_what_a_server_did_wrong_is_paused_for() {
    use FailureCode as C;
    for (codes, expected) in [
        (&[C::Truncated][..], Duration::ZERO),
        (&[C::Protocol], PAUSE_MIN),
        (&[C::Protocol, C::Protocol], PAUSE_MIN * 2),
        (&[C::Protocol; 40], PAUSE_MAX),
    ] {
        assert_eq!(after(codes).expect("known").pause(), expected, "{codes:?}");
    }
}
