//! Author names: one word that comments show as `# NAME: …`, and that other comments do not begin with.

use patchboard_kernel::files::{EXTERNAL, is_comment_prefix};

use super::intent::author_name;

/// Description of a valid name, as part of a sentence.
pub const NAME_RULE: &str =
    "a name has letters, digits, `.`, `_` and `-`, at most 64, and is no word that comments begin with, like TODO";

/// Returns whether an editor may have this name.
pub fn is_author_name(name: &str) -> bool {
    !name.is_empty() && author_name(name) == name && name != EXTERNAL && !is_comment_prefix(name)
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
