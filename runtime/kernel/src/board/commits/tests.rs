//! Tests of `commits.rs`.

use serde_json::json;

use super::*;
use crate::freshness::CommitLookup as _;

#[test]
fn every_version_is_found_before_and_after_being_stored() {
    let authors = ["writer", "checker", "planner"].map(WorkerName::from);
    let mut commits = CommitLog::default();
    let mut expected = Vec::new();
    let mut seq = 0;
    for number in 0..3 * BLOCK + 7 {
        seq += 1 + (number % 5) as u64;
        let author = &authors[number * number % 3];
        commits.push(Seq(seq), author);
        expected.push((Seq(seq), author.clone()));
    }
    assert_eq!((commits.len(), commits.blocks.len()), (expected.len(), 3));
    let stored = serde_json::to_value(&commits).expect("it is JSON");
    let restored: CommitLog = serde_json::from_value(stored).expect("it was just made");
    assert_eq!(restored, commits);
    for (version, by) in (1..).zip(&expected) {
        assert_eq!(restored.commit_of(Version(version)).as_ref(), Some(by), "{version}");
    }
    assert_eq!([restored.commit_of(Version(0)), restored.commit_of(Version(expected.len() as u64 + 1))], [None, None]);
}

#[test]
fn impossible_commit_logs_are_rejected() {
    let mut commits = CommitLog::default();
    (1..=BLOCK as u64).for_each(|seq| commits.push(Seq(seq), &"writer".into()));
    let good = serde_json::to_value(&commits).expect("it is JSON");
    let text = good["blocks"][0].as_str().expect("a block is a text").to_owned();
    for bad in [String::new(), format!("{text} 1 0"), format!("0{text}"), text.replacen("1 0", "x 0", 1)] {
        let mut stored = good.clone();
        stored["blocks"][0] = bad.clone().into();
        assert!(serde_json::from_value::<CommitLog>(stored).is_err(), "{bad}");
    }
    for latest in [json!([[BLOCK, 0]]), json!([[5000, 0], [4000, 0]]), json!([[5000, 1]])] {
        let mut stored = good.clone();
        stored["latest"] = latest.clone();
        assert!(serde_json::from_value::<CommitLog>(stored).is_err(), "{latest}");
    }
}
