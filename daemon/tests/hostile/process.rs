//! Resource usage of a process, as reported by the operating system.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Returns the peak memory of a process in MiB; `None` if the process has ended.
pub(crate) fn peak_mib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes / 1024)
}

/// Resets the peak to the current memory.
pub(crate) fn forget_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak of an own process can be set back");
}

/// Waits for a child; kills it after `limit` and returns `None`.
pub(crate) fn ended_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if began.elapsed() > limit {
            child.kill().expect("a child can be killed");
            child.wait().expect("it was killed");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the processor time used by a process.
pub(crate) fn processor_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    ticks(&stat)
}

/// Returns the processor time in a line of `/proc/…/stat`, user and system together. A tick is 10 ms for every program.
fn ticks(stat: &str) -> Duration {
    // The program name may contain spaces.
    let (_, rest) = stat.rsplit_once(')').expect("the name is in parentheses");
    let fields: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).map(|field| field.parse().expect("a number")).collect();
    Duration::from_millis(10 * fields.iter().sum::<u64>())
}

/// Returns true if the daemon is a release build.
pub(crate) fn is_optimised() -> bool {
    std::env::var_os("PATCHBOARD_BINARY").is_some()
}
