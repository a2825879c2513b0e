//! What an author may be called: one word that stands in comments as `# NAME: …`, and that nobody writes there who means
//! something else.

use patchboard_kernel::files::{EXTERNAL, begins_comments};

use super::intent::author_name;

/// What a name is, in a sentence that is not at its end.
pub const NAMED_SO: &str =
    "a name has letters, digits, `.`, `_` and `-`, at most 64, and is no word that comments begin with, like TODO";

/// Whether somebody who edits may be called so.
pub fn is_author_name(name: &str) -> bool {
    !name.is_empty() && author_name(name) == name && name != EXTERNAL && !begins_comments(name)
}

#[cfg(test)]
mod tests {
    use super::is_author_name;

    #[test]
    fn words_that_comments_begin_with_are_nobodys_name() {
        for name in ["ada", "claude-code-1", "note-2", "Ødegård", "x.y_z"] {
            assert!(is_author_name(name), "{name}");
        }
        for name in
            ["TODO", "todo", "FixMe", "FIXME", "NOTE", "XXX", "HACK", "type", "noqa", "external", "", "a b", "a:b"]
        {
            assert!(!is_author_name(name), "{name}");
        }
    }
}
