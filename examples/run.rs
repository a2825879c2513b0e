//! Runs every example and looks at what it prints.

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
