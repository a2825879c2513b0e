//! Deliveries that a receiver refuses, and those that it may take later.

use patchboard_kernel::id::Timestamp;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::notice::Notice;
use super::*;

#[test]
fn only_a_status_that_may_pass_is_no_refusal() {
    for (status, expected) in
        [(301, true), (400, true), (401, true), (404, true), (410, true), (413, true), (422, true)]
    {
        assert_eq!(refuses(StatusCode::from_u16(status).expect("a status")), expected, "{status}");
    }
    for status in [408, 409, 425, 429, 500, 502, 503, 504] {
        assert!(!refuses(StatusCode::from_u16(status).expect("a status")), "{status}");
    }
}

async fn deliver(script: &str, timeout: Duration) -> Result<(), DeliveryError> {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("HIDDEN", "x")].into_iter().collect();
    Program::new(words, &env, timeout).deliver(&Notice::test(Timestamp(0), 7).body()).await
}

#[tokio::test]
async fn a_program_reads_the_notice_and_its_exit_code_counts() {
    let long = Duration::from_secs(60);
    let reads = r#"read -r line; case "$line" in *'"id":"test:7:test"'*) exit 0;; esac; exit 9"#;
    assert_eq!(deliver(reads, long).await, Ok(()));
    assert_eq!(deliver("exit 0", long).await, Ok(()), "without reading");
    assert_eq!(deliver(r#"test -z "$HIDDEN" && test "$HOME" = /"#, long).await, Ok(()));
    let failed = deliver("echo wrong pager >&2; exit 3", long).await.expect_err("it failed");
    assert!(failed.why.contains('3') && failed.why.contains("wrong pager") && !failed.is_rejected, "{failed:?}");
    let flood = "yes | head -c 3000000; yes | head -c 3000000 >&2; exit 4";
    let failed = deliver(flood, long).await.expect_err("it failed");
    assert!(failed.why.len() < 1000 && failed.why.contains('4'), "{failed:?}");
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed_with_its_children() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("held");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let script = format!("exec 3> {}; echo begun >&3; sleep 1000 & wait", pipe.display());
    // The pipe ends with the last process that holds it.
    let held = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe));
    let failed = deliver(&script, Duration::from_millis(700)).await.expect_err("it hangs");
    assert!(failed.why.contains("time"), "{failed:?}");
    let held = tokio::time::timeout(Duration::from_secs(10), held).await.expect("all processes end");
    assert_eq!(held.expect("no panic").expect("read"), "begun\n");
    // A background child keeps the streams open after the program ends.
    assert_eq!(deliver("sleep 1000 & exit 0", Duration::from_secs(60)).await, Ok(()));
}
