//! Answers about boards, shared by commands and routes: from journals and boards to typed values.
//!
//! Commands print the values, as JSON with `--output json`; routes return them, and describe them by their types.

pub(crate) mod cost;
pub(crate) mod handoffs;
pub(crate) mod leases;
pub(crate) mod negotiation;
pub(crate) mod parts;
pub(crate) mod questions;
pub(crate) mod redaction;
pub(crate) mod rejections;
pub(crate) mod rooms;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod view;
pub(crate) mod why;
pub(crate) mod workflow;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    fn assert_independent_of_commands(directory: &Path) {
        for entry in fs::read_dir(directory).expect("it is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                assert_independent_of_commands(&path);
            } else {
                let text = fs::read_to_string(&path).expect("a source");
                assert!(!text.contains(concat!("crate::", "commands")), "{} names commands", path.display());
            }
        }
    }

    #[test]
    fn neither_queries_nor_routes_name_commands() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert_independent_of_commands(&sources.join("queries"));
        assert_independent_of_commands(&sources.join("serve"));
    }
}
