//! What an author may be called: one word that stands in comments as `# NAME: …`, and that nobody writes there who means
//! something else.

use patchboard_kernel::files::EXTERNAL;

use super::intent::author_name;

/// What a name is, in a sentence that is not at its end.
pub const NAMED_SO: &str =
    "a name has letters, digits, `.`, `_` and `-`, at most 64, and is no word that comments begin with, like TODO";

/// Words before a colon in comments of people and programs, in small letters. Whoever was called so would be the author of
/// all of these comments.
const COMMENT_WORDS: &[&str] = &[
    "args",
    "attention",
    "author",
    "authors",
    "beware",
    "bug",
    "bugs",
    "caution",
    "caveat",
    "changed",
    "changelog",
    "clippy",
    "coding",
    "copyright",
    "cspell",
    "danger",
    "debug",
    "default",
    "deprecated",
    "description",
    "doc",
    "docs",
    "done",
    "error",
    "eslint",
    "example",
    "examples",
    "explanation",
    "file",
    "fix",
    "fixme",
    "flake8",
    "fmt",
    "format",
    "frozen_string_literal",
    "global",
    "hack",
    "hint",
    "http",
    "https",
    "idea",
    "important",
    "info",
    "input",
    "internal",
    "isort",
    "issue",
    "language",
    "license",
    "licence",
    "lint",
    "mypy",
    "nb",
    "noinspection",
    "nolint",
    "noqa",
    "nosec",
    "nosonar",
    "note",
    "notes",
    "ok",
    "optimise",
    "optimize",
    "output",
    "param",
    "params",
    "perf",
    "performance",
    "pragma",
    "prettier",
    "purpose",
    "pylint",
    "pyright",
    "question",
    "raises",
    "rationale",
    "reason",
    "refactor",
    "remark",
    "returns",
    "review",
    "rubocop",
    "ruff",
    "safety",
    "security",
    "see",
    "shellcheck",
    "since",
    "source",
    "spdx-license-identifier",
    "step",
    "temp",
    "test",
    "tip",
    "tmp",
    "todo",
    "type",
    "typing",
    "undone",
    "usage",
    "version",
    "vim",
    "vi",
    "warn",
    "warning",
    "why",
    "workaround",
    "xxx",
    "yapf",
    "yields",
];

/// Whether somebody who edits may be called so.
pub fn is_author_name(name: &str) -> bool {
    let word = name.to_lowercase();
    !name.is_empty() && author_name(name) == name && name != EXTERNAL && !COMMENT_WORDS.contains(&word.as_str())
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
