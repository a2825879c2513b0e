//! Runs every example and checks its output.

use std::process::Command;

#[test]
fn word_count_ends_done_and_verifies() {
    let output = Command::new(env!("CARGO_BIN_EXE_word_count")).output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("done at version 5: 13 words\n"), "{text}");
    assert!(text.contains("records verified"), "{text}");
    assert_eq!(text.matches("committed ").count(), 5, "{text}");
}

#[test]
fn a_plan_is_sent_back_and_approved_in_the_approval_room() {
    let output = Command::new(env!("CARGO_BIN_EXE_approval_room")).output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("plan-1: ") && text.contains("REVISION_REQUESTED: score 5 is below 7"), "{text}");
    let approved = "  APPROVED: score 9, confidence 0.9, 100 % passed, deviation 0\ndone at version ";
    assert!(text.contains("\"Write down how to go back\"") && text.contains(approved), "{text}");
}

#[test]
fn a_ticket_is_handed_over_to_who_can_answer_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_handoff")).output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "march: ada to bob, REJECTED: I know no contracts.", "{text}");
    assert_eq!(lines[1], "march.2: ada to cyd, COMPLETED", "{text}");
    assert!(lines[2].starts_with("cyd: cyd has looked into it") && lines[3].starts_with("done at version "), "{text}");
}

#[test]
fn a_workflow_makes_a_report_of_orders() {
    let output = Command::new(env!("CARGO_BIN_EXE_etl_workflow")).output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let expected = "clean: COMPLETED\ncount: COMPLETED\ninspect: SKIPPED\nparse: COMPLETED\nreport: COMPLETED\n\
        9 pieces in 3 orders: 3 apples, 2 quinces, 4 apples.\ndone at version ";
    assert!(text.starts_with(expected), "{text}");
}
