//! Boards that are due for retention.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{Seq, Version};
use patchboard_kernel::record::End;

use super::*;

fn board(name: &str, ended: Option<End>, updated_at: i64) -> BoardSummary {
    BoardSummary {
        id: format!("{name}-{updated_at}").as_str().into(),
        name: name.to_owned(),
        created_at: Timestamp(0),
        updated_at: Timestamp(updated_at),
        epoch: 0,
        head: Head { seq: Seq(1), hash: Digest([0; 32]) },
        version: Version(0),
        ended,
        parent: None,
    }
}

#[test]
fn ended_boards_are_due_after_their_retention() {
    let day = 86_400_000;
    let text = "ended = \"2d\"\nthen = \"archive\"\n[blueprints.drafts]\nended = \"1d\"\nthen = \"delete\"\n[blueprints.kept]\n";
    let retention = Retention::read(toml::from_str(text).expect("TOML")).expect("settings");
    let boards = [
        board("any", Some(End::Done), 0),
        board("any", Some(End::Quiescent), day + 1),
        board("any", None, 0),
        board("drafts", Some(End::Cancelled), day),
        board("kept", Some(End::Done), 0),
    ];
    let due = retention.due(&boards, Timestamp(2 * day));
    assert_eq!(
        due,
        [("any-0".into(), ExpiryAction::Archive), (format!("drafts-{day}").as_str().into(), ExpiryAction::Delete)]
    );
    assert_eq!(Retention::default().due(&boards, Timestamp(i64::MAX)), []);
    assert!(Retention::read(toml::from_str("endet = \"2d\"").expect("TOML")).is_err());
}
