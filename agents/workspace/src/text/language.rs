//! Comment syntax by language, and the lexical rules needed to insert a comment line safely.
//!
//! The file name alone determines the language. Languages that are not in the table have no comments: JSON, CSV, plain
//! text.

mod table;

use patchboard_kernel::files::FilePath;

use self::table::{JSX, for_extension, for_name};

/// Syntax of a one-line comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommentStyle {
    /// Mark of a comment up to the end of the line.
    Line(&'static str),
    /// Opening and closing marks.
    Block(&'static str, &'static str),
}

/// Lexical properties of a language.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// Syntax for inserted comments.
    pub(super) style: CommentStyle,
    /// Syntax of literals and comments.
    pub(super) lexis: Lexis,
    /// Lines that allow a comment above them.
    pub(super) places: CommentPositions,
    /// Prefixes of lines that belong to the line below: decorators, attributes.
    pub(super) attributes: &'static [&'static str],
    /// Prefixes of lines that must stay at the top of a file.
    pub(super) head: &'static [&'static str],
    /// Strings that exclude a file from comments.
    pub(super) never: &'static [&'static str],
}

/// Syntax of literals and comments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexis {
    pub(super) line: &'static [&'static str],
    pub(super) block: &'static [(&'static str, &'static str)],
    /// True if block comments nest.
    pub(super) is_nested: bool,
    /// String literals; longer openings precede their prefixes.
    pub(super) quotes: &'static [Quote],
    /// True if a trailing backslash joins a line with the next one.
    pub(super) continues: bool,
    /// True if `<<NAME` begins a text that ends at a line `NAME`.
    pub(super) heredocs: bool,
    /// Regions between a line with the first prefix and one with the second; an empty second prefix extends it to the
    /// end.
    pub(super) regions: &'static [(&'static str, &'static str)],
    pub(super) dialect: Dialect,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Quote {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// True if a backslash escapes the next character.
    pub(super) escapes: bool,
    /// True if it may span lines.
    pub(super) spans: bool,
}

/// Lexical rules beyond the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    Plain,
    /// `#` begins a comment only at the beginning of a word.
    Words,
    /// Lifetimes, and raw strings with any number of `#`.
    Rust,
    /// Raw strings with a free delimiter.
    Cpp,
    /// Templates that contain code, and regular expressions.
    Script,
}

/// Lines that allow a comment above them, outside literals, comments and continued lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommentPositions {
    Any,
    /// Lines with one of these prefixes outside brackets. Used where text can look like code, because a statement's
    /// first word is distinctive.
    Statements(&'static [&'static str]),
    /// Lines without indentation.
    Margin,
    /// First lines of elements.
    Markup,
    /// First lines of paragraphs.
    Paragraphs,
    /// First lines of entries.
    Yaml,
}

impl Language {
    /// Returns the language of a file by its name; `None` if it has no comments or no known safe position for one.
    pub fn for_path(path: &FilePath) -> Option<Self> {
        for_name(path.name()).or_else(|| for_extension(&path.extension()?.to_ascii_lowercase()))
    }

    /// Returns the syntax of its comments.
    pub const fn style(&self) -> CommentStyle {
        self.style
    }
}

/// Returns `JSX` for script text with elements, independent of the file name; otherwise the language itself.
pub(super) fn refine_by_content(language: Language, text: &str) -> Language {
    let has_elements = language.lexis.dialect == Dialect::Script && (text.contains("</") || text.contains("/>"));
    if has_elements { JSX } else { language }
}
