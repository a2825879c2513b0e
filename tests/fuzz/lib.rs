//! Checks readers of external input against simple independent implementations, on arbitrary bytes.
//!
//! A target is a function of bytes that panics if the kernel, or its documentation, is wrong. Two harnesses call the
//! targets: the package's own test (`suite.rs`), and libFuzzer through `runner`, which is not a member of the workspace
//! (`cargo xtask fuzz`). Initial inputs are in `corpus`, with a folder for each target.
//!
//! * `bytes.rs`, `values.rs`: choices and JSON drawn from the bytes, for inputs that random bytes would never form;
//! * one file for each target.

mod blueprint;
mod bytes;
mod cel;
mod contract;
mod journal;
mod json;
mod patch;
mod snapshot;
mod values;

use std::time::{Duration, Instant};

pub use blueprint::blueprint;
pub use cel::cel;
pub use contract::contract;
pub use journal::journal;
pub use json::json;
pub use patch::patch;
pub use snapshot::snapshot;

/// Maximum bytes of an input; longer ones are cut. `cargo xtask fuzz` makes none that are longer.
pub const INPUT_BYTES_MAX: usize = 8192;

/// Stack size in bytes within which every target must handle any input: that of a tokio worker thread.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target, and of its folder in `corpus`.
    pub name: &'static str,
    /// Description of its assertions.
    pub claim: &'static str,
    /// Words of its inputs' language, for mutators without coverage feedback.
    pub words: &'static [&'static str],
    /// Checks an input, and panics if an assertion fails.
    pub check: fn(&[u8]),
}

impl Target {
    /// Checks an input, cut to the maximum length.
    pub fn run(&self, data: &[u8]) {
        (self.check)(&data[..data.len().min(INPUT_BYTES_MAX)]);
    }

    /// Returns the target with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "json",
        claim: "the strict reader accepts what serde_json does, but for reasons that are documented",
        words: &[
            "{\"a\":",
            "[",
            "]",
            "}",
            ",",
            "null",
            "true",
            "1e400",
            "-0.0",
            "1e-400",
            "18446744073709551616",
            "\\ud800",
            "\\u0061",
        ],
        check: json,
    },
    Target {
        name: "blueprint",
        claim: "findings are few and inside the text; what is accepted compiles, and is accepted again",
        words: &[
            "blueprint: 1\n",
            "name: ",
            "state:\n",
            "schema: ",
            "initial: ",
            "workers:\n",
            "rules:\n",
            "&a ",
            "*a",
            "<<: ",
            "? ",
            "!!str ",
            "- ",
            "|\n",
            ">\n",
            "{",
            "[",
            "\"",
            "'",
            "# ",
            "---\n",
            "%YAML 1.2\n",
            ".inf",
            "0x1F",
            "$ref: ",
            "for: ",
            "expr: ",
        ],
        check: blueprint,
    },
    Target {
        name: "patch",
        claim: "a patch does to the tree what the crate json-patch does to the value, within the limits, or nothing",
        words: &[
            "{\"op\":\"add\",\"path\":\"/",
            "{\"op\":\"move\",\"from\":\"/",
            "\"copy\"",
            "\"replace\"",
            "\"remove\"",
            "\"test\"",
            "\"value\":",
            "/-",
            "/0",
            "~0",
            "~1",
            "\n",
        ],
        check: patch,
    },
    Target {
        name: "contract",
        claim: "patterns match what a naive matcher does, and no grant lets a write outside of it through",
        words: &[
            "**",
            "*",
            "-",
            "\"reads\"",
            "\"writes\"",
            "\"path\"",
            "\"ops\"",
            "\"insert\"",
            "\"move\"",
            "\"copy\"",
        ],
        check: contract,
    },
    Target {
        name: "cel",
        claim: "an expression is refused with a code, or evaluates in its steps, twice alike, over values and trees",
        words: &[
            "state.",
            ".all(x, ",
            ".exists(x, ",
            ".map(x, ",
            ".filter(x, ",
            "has(",
            "size(",
            "matches('",
            " && ",
            " || ",
            " ? ",
            " : ",
            " in ",
            "==",
            "self",
            "before",
            "int(",
            "double(",
            "string(",
            "9223372036854775807",
            "r'",
            "'''",
            "[",
            "{'a': ",
        ],
        check: cel,
    },
    Target {
        name: "journal",
        claim: "records are read without panic, and no change of a chained journal goes unnoticed",
        words: &[
            "\"kind\":",
            "\"seq\":",
            "\"at\":",
            "\"values\":",
            "\"by\":",
            "committed",
            "invoked",
            "18446744073709551615",
            "\n",
        ],
        check: journal,
    },
    Target {
        name: "snapshot",
        claim: "a board that was stored is restored as it was, and no other parts bring it down",
        words: &[
            "[\"a\",0,0,",
            "[\"o\",0,0,",
            "[\"l\",0,0,[",
            "[\"i\",0,[",
            "[\"b\",0,0,[",
            "[\"s\",0,[",
            "[\"t\",\"#0\"]",
            "\"#0\"",
            "\"#1\"",
            "4294967295",
            "]]",
            "\n",
        ],
        check: snapshot,
    },
];

/// Runs `run` with a time limit, and panics if every trial takes longer than `bound`.
///
/// A busy machine slows down a single trial; a slow input is slow in every trial.
pub(crate) fn within<T>(bound: Duration, what: &str, mut run: impl FnMut() -> T) -> T {
    const TRIALS: usize = 3;
    let mut fastest = Duration::MAX;
    for _ in 0..TRIALS {
        let begun = Instant::now();
        let result = run();
        fastest = fastest.min(begun.elapsed());
        if fastest <= bound {
            return result;
        }
    }
    panic!("{what} takes {fastest:?}, more than {bound:?}")
}
