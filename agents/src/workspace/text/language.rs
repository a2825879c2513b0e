//! Which comments a file can hold, and what must be known of its language to put one between two lines.
//!
//! A language is known by the name of the file alone. What is not in the table has no comments: JSON, CSV, plain text.

use patchboard_kernel::files::FilePath;

/// How a comment of one line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommentStyle {
    /// From here to the end of the line.
    Line(&'static str),
    /// From here to there.
    Block(&'static str, &'static str),
}

/// What can be known of a file's language without understanding it.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// How our comments are written.
    pub(super) style: CommentStyle,
    /// How literals and comments are found.
    pub(super) lexis: Lexis,
    /// Before which lines a comment may stand.
    pub(super) places: Places,
    /// What a line begins with that belongs to the one below: decorators, attributes.
    pub(super) attributes: &'static [&'static str],
    /// What the lines begin with that stay at the top of a file.
    pub(super) head: &'static [&'static str],
    /// A file that contains one of these gets no comments.
    pub(super) never: &'static [&'static str],
}

/// How literals and comments are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexis {
    pub(super) line: &'static [&'static str],
    pub(super) block: &'static [(&'static str, &'static str)],
    /// Block comments may hold others.
    pub(super) is_nested: bool,
    /// The longer before those that begin like them.
    pub(super) quotes: &'static [Quote],
    /// A backslash at the end joins a line with the next one.
    pub(super) continues: bool,
    /// `<<NAME` begins a text that ends with a line `NAME`.
    pub(super) heredocs: bool,
    /// Whole lines between one that begins with the first and one that begins with the second; to the end, if that is
    /// empty.
    pub(super) regions: &'static [(&'static str, &'static str)],
    pub(super) dialect: Dialect,
}

/// A kind of string literal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quote {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// A backslash takes the meaning from what follows it.
    pub(super) escapes: bool,
    /// May go over several lines.
    pub(super) spans: bool,
}

/// What a table cannot say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    Plain,
    /// A `#` begins a comment only at the beginning of a word.
    Words,
    /// Lifetimes, and raw strings with any number of `#`.
    Rust,
    /// Raw strings with a delimiter of choice.
    Cpp,
    /// Templates that hold code, and regular expressions.
    Script,
}

/// Before which lines a comment may stand that are in no literal, no comment and no continued line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Places {
    /// All.
    Any,
    /// Those that begin like this, outside all brackets: where text can be code, a word that begins a statement tells.
    Statements(&'static [&'static str]),
    /// Those that are not indented.
    Margin,
    /// Those that begin an element.
    Markup,
    /// Those that begin a paragraph.
    Paragraphs,
    /// Those that begin an entry.
    Yaml,
}

const fn quote(open: &'static str, close: &'static str, escapes: bool, spans: bool) -> Quote {
    Quote { open, close, escapes, spans }
}

const DOUBLE: Quote = quote("\"", "\"", true, false);
const SINGLE: Quote = quote("'", "'", true, false);
const TRIPLE: Quote = quote("\"\"\"", "\"\"\"", true, true);
const TRIPLE_SINGLE: Quote = quote("'''", "'''", true, true);
const WIDE: Quote = quote("\"", "\"", true, true);
const WIDE_SINGLE: Quote = quote("'", "'", true, true);
const VERBATIM_SINGLE: Quote = quote("'", "'", false, true);
const TICKS: Quote = quote("`", "`", false, true);

const LEXIS: Lexis = Lexis {
    line: &[],
    block: &[],
    is_nested: false,
    quotes: &[DOUBLE, SINGLE],
    continues: false,
    heredocs: false,
    regions: &[],
    dialect: Dialect::Plain,
};

const HASH: Language = Language {
    style: CommentStyle::Line("#"),
    lexis: Lexis { line: &["#"], ..LEXIS },
    places: Places::Any,
    attributes: &[],
    head: &["#!"],
    never: &[],
};

const PYTHON: Language = Language {
    lexis: Lexis { quotes: &[TRIPLE, TRIPLE_SINGLE, DOUBLE, SINGLE], continues: true, ..HASH.lexis },
    attributes: &["@"],
    ..HASH
};

const SHELL: Language = Language {
    lexis: Lexis {
        quotes: &[quote("$'", "'", true, true), WIDE, VERBATIM_SINGLE],
        continues: true,
        heredocs: true,
        dialect: Dialect::Words,
        ..HASH.lexis
    },
    ..HASH
};

/// Lines, each for itself.
const ENTRIES: Language = Language {
    lexis: Lexis { quotes: &[], continues: true, dialect: Dialect::Words, ..HASH.lexis },
    places: Places::Margin,
    ..HASH
};

const MAKE: Language = Language { lexis: Lexis { regions: &[("define ", "endef")], ..ENTRIES.lexis }, ..ENTRIES };

const DOCKER: Language = Language {
    lexis: Lexis { quotes: &[], ..SHELL.lexis },
    places: Places::Margin,
    head: &["# syntax=", "#syntax=", "# escape=", "#escape=", "# check=", "#check="],
    ..HASH
};

const YAML: Language = Language {
    lexis: Lexis { quotes: &[], dialect: Dialect::Words, ..HASH.lexis },
    places: Places::Yaml,
    head: &["#!", "%", "---"],
    ..HASH
};

const TOML: Language = Language {
    lexis: Lexis {
        quotes: &[TRIPLE, quote("'''", "'''", false, true), DOUBLE, quote("'", "'", false, false)],
        ..HASH.lexis
    },
    ..HASH
};

const RUBY: Language = Language {
    lexis: Lexis {
        quotes: &[WIDE, WIDE_SINGLE, quote("`", "`", true, true)],
        continues: true,
        heredocs: true,
        regions: &[("=begin", "=end"), ("__END__", "")],
        dialect: Dialect::Words,
        ..HASH.lexis
    },
    places: Places::Statements(&["def ", "class ", "module ", "require", "private", "attr_", "end"]),
    head: &["#!", "# frozen_string_literal", "# encoding", "# -*-", "# coding"],
    ..HASH
};

const PERL: Language = Language {
    lexis: Lexis { regions: &[("=", "=cut"), ("__END__", ""), ("__DATA__", "")], ..RUBY.lexis },
    places: Places::Statements(&["sub ", "package ", "use ", "my ", "our "]),
    head: &["#!"],
    ..HASH
};

const TRIPLES: Language = Language { lexis: Lexis { quotes: &[TRIPLE, WIDE, SINGLE], ..HASH.lexis }, ..HASH };
const ELIXIR: Language = Language {
    lexis: Lexis { quotes: &[TRIPLE, TRIPLE_SINGLE, WIDE, WIDE_SINGLE], ..HASH.lexis },
    attributes: &["@doc", "@spec", "@impl"],
    ..HASH
};
const JULIA: Language = Language {
    lexis: Lexis { quotes: &[TRIPLE, WIDE], block: &[("#=", "=#")], is_nested: true, ..HASH.lexis },
    // A string above a definition is its documentation, also past a comment.
    ..HASH
};
const R: Language = Language { lexis: Lexis { quotes: &[WIDE, WIDE_SINGLE, TICKS], ..HASH.lexis }, ..HASH };
const NIX: Language = Language {
    lexis: Lexis { quotes: &[quote("''", "''", false, true), WIDE], block: &[("/*", "*/")], ..HASH.lexis },
    ..HASH
};
const HCL: Language = Language {
    lexis: Lexis { line: &["#", "//"], quotes: &[DOUBLE], block: &[("/*", "*/")], heredocs: true, ..HASH.lexis },
    ..HASH
};
const CMAKE: Language = Language {
    lexis: Lexis { quotes: &[WIDE, quote("[[", "]]", false, true)], block: &[("#[[", "]]")], ..HASH.lexis },
    ..HASH
};
const POWERSHELL: Language = Language {
    lexis: Lexis {
        quotes: &[
            quote("@\"", "\n\"@", false, true),
            quote("@'", "\n'@", false, true),
            quote("\"", "\"", false, true),
            VERBATIM_SINGLE,
        ],
        block: &[("<#", "#>")],
        ..HASH.lexis
    },
    ..HASH
};

const SLASH: Language = Language {
    style: CommentStyle::Line("//"),
    lexis: Lexis { line: &["//"], block: &[("/*", "*/")], ..LEXIS },
    places: Places::Any,
    attributes: &[],
    head: &["#!"],
    never: &[],
};

const C: Language =
    Language { lexis: Lexis { continues: true, dialect: Dialect::Cpp, ..SLASH.lexis }, attributes: &["[["], ..SLASH };

const RUST: Language = Language {
    lexis: Lexis { quotes: &[WIDE], is_nested: true, dialect: Dialect::Rust, ..SLASH.lexis },
    attributes: &["#["],
    ..SLASH
};

const JAVA: Language =
    Language { lexis: Lexis { quotes: &[TRIPLE, DOUBLE, SINGLE], ..SLASH.lexis }, attributes: &["@"], ..SLASH };

const KOTLIN: Language = Language {
    lexis: Lexis { quotes: &[quote("\"\"\"", "\"\"\"", false, true), DOUBLE, SINGLE], is_nested: true, ..SLASH.lexis },
    attributes: &["@"],
    ..SLASH
};

const SCALA: Language = Language { lexis: Lexis { quotes: &[TRIPLE, DOUBLE], ..KOTLIN.lexis }, ..KOTLIN };
const GROOVY: Language = Language {
    lexis: Lexis { quotes: &[TRIPLE, TRIPLE_SINGLE, DOUBLE, SINGLE], ..SLASH.lexis },
    attributes: &["@"],
    ..SLASH
};
const CSHARP: Language = Language {
    lexis: Lexis {
        quotes: &[
            quote("\"\"\"", "\"\"\"", false, true),
            quote("@\"", "\"", false, true),
            quote("@$\"", "\"", false, true),
            DOUBLE,
            SINGLE,
        ],
        ..SLASH.lexis
    },
    attributes: &["["],
    ..SLASH
};

/// What stands above `import "C"` is C.
const GO: Language =
    Language { lexis: Lexis { quotes: &[DOUBLE, SINGLE, TICKS], ..SLASH.lexis }, never: &["import \"C\""], ..SLASH };

const ZIG: Language = Language { lexis: Lexis { block: &[], ..SLASH.lexis }, ..SLASH };

const SCRIPT: Language =
    Language { lexis: Lexis { continues: true, dialect: Dialect::Script, ..SLASH.lexis }, attributes: &["@"], ..SLASH };

/// What looks like code between tags is text.
const JSX: Language = Language {
    places: Places::Statements(&[
        "import ",
        "export ",
        "const ",
        "let ",
        "var ",
        "function ",
        "async ",
        "class ",
        "type ",
        "interface ",
        "enum ",
        "@",
    ]),
    ..SCRIPT
};

/// What stands before `<?php`, and behind `?>`, is no code.
const PHP: Language = Language {
    lexis: Lexis { line: &["//", "#"], quotes: &[WIDE, WIDE_SINGLE], heredocs: true, ..SLASH.lexis },
    attributes: &["#["],
    head: &["#!", "<?php"],
    never: &["?>"],
    ..SLASH
};

const SCSS: Language = SLASH;

const CSS: Language = Language {
    style: CommentStyle::Block("/*", "*/"),
    lexis: Lexis { line: &[], ..SLASH.lexis },
    head: &["@charset"],
    ..SLASH
};

const DASH: Language = Language {
    style: CommentStyle::Line("--"),
    lexis: Lexis { line: &["--"], ..LEXIS },
    places: Places::Any,
    attributes: &[],
    head: &["#!"],
    never: &[],
};
const SQL: Language = Language {
    lexis: Lexis {
        quotes: &[VERBATIM_SINGLE, quote("\"", "\"", false, true), TICKS, quote("$$", "$$", false, true)],
        block: &[("/*", "*/")],
        is_nested: true,
        ..DASH.lexis
    },
    // Other dollar quotes have a name of choice.
    never: &["$_$", "$body$", "$BODY$", "$function$"],
    ..DASH
};
const LUA: Language = Language {
    lexis: Lexis {
        block: &[("--[[", "]]"), ("--[=[", "]=]"), ("--[==[", "]==]")],
        quotes: &[
            quote("[[", "]]", false, true),
            quote("[=[", "]=]", false, true),
            quote("[==[", "]==]", false, true),
            DOUBLE,
            SINGLE,
        ],
        ..DASH.lexis
    },
    ..DASH
};
const HASKELL: Language = Language {
    lexis: Lexis { block: &[("{-", "-}")], is_nested: true, quotes: &[TRIPLE, DOUBLE], continues: true, ..DASH.lexis },
    ..DASH
};
const ADA: Language = Language { lexis: Lexis { quotes: &[quote("\"", "\"", false, false)], ..DASH.lexis }, ..DASH };

const LISP: Language = Language {
    style: CommentStyle::Line(";"),
    lexis: Lexis { line: &[";"], block: &[("#|", "|#")], is_nested: true, quotes: &[WIDE], ..LEXIS },
    places: Places::Any,
    attributes: &[],
    head: &["#!", "#lang"],
    never: &[],
};
/// `;` or `#` at the beginning of a line; the former everywhere.
const INI: Language = Language {
    style: CommentStyle::Line(";"),
    lexis: Lexis { line: &[";", "#"], quotes: &[], ..LEXIS },
    places: Places::Margin,
    attributes: &[],
    head: &[],
    never: &[],
};
const PERCENT: Language = Language {
    style: CommentStyle::Line("%"),
    lexis: Lexis { line: &["%"], quotes: &[], ..LEXIS },
    places: Places::Any,
    attributes: &[],
    head: &["#!"],
    never: &[],
};
const TEX: Language = Language {
    lexis: Lexis {
        regions: &[
            ("\\begin{verbatim", "\\end{verbatim"),
            ("\\begin{lstlisting", "\\end{lstlisting"),
            ("\\begin{minted", "\\end{minted"),
            ("\\begin{Verbatim", "\\end{Verbatim"),
        ],
        ..PERCENT.lexis
    },
    ..PERCENT
};
const ERLANG: Language = Language { lexis: Lexis { quotes: &[TRIPLE, WIDE, WIDE_SINGLE], ..PERCENT.lexis }, ..PERCENT };

const MARKUP: Language = Language {
    style: CommentStyle::Block("<!--", "-->"),
    lexis: LEXIS,
    places: Places::Markup,
    attributes: &[],
    head: &["<?xml", "<!DOCTYPE", "<!doctype"],
    never: &[],
};
const MARKDOWN: Language = Language { places: Places::Paragraphs, head: &["---"], ..MARKUP };

impl Language {
    /// The language of a file, by its name. None: it has no comments, or it is not known how to find a place for one.
    pub fn of(path: &FilePath) -> Option<Self> {
        named(path.name()).or_else(|| of_extension(&path.extension()?.to_ascii_lowercase()))
    }

    /// How its comments are written.
    pub const fn style(&self) -> CommentStyle {
        self.style
    }
}

/// How comments are written in a file of this name; none where there are no comments.
pub fn comment_style(path: &FilePath) -> Option<CommentStyle> {
    Language::of(path).map(|language| language.style)
}

fn named(name: &str) -> Option<Language> {
    Some(match name {
        "Makefile" | "makefile" | "GNUmakefile" => MAKE,
        "Dockerfile" | "Containerfile" => DOCKER,
        "CMakeLists.txt" => CMAKE,
        "Gemfile" | "Rakefile" | "Vagrantfile" | "Podfile" => RUBY,
        "Jenkinsfile" => GROOVY,
        "BUILD" | "WORKSPACE" | "SConstruct" | "Tiltfile" => PYTHON,
        "requirements.txt" | "CODEOWNERS" | ".gitignore" | ".dockerignore" | ".gitattributes" | ".editorconfig"
        | ".npmrc" | ".env" => ENTRIES,
        ".bashrc" | ".profile" | ".zshrc" | "PKGBUILD" => SHELL,
        "Cargo.lock" | "poetry.lock" | "Pipfile" => TOML,
        _ if name.starts_with("Dockerfile.") => DOCKER,
        _ => return None,
    })
}

fn of_extension(extension: &str) -> Option<Language> {
    Some(match extension {
        "py" | "pyi" | "pyw" | "bzl" | "star" | "gn" | "pyx" => PYTHON,
        "sh" | "bash" | "zsh" | "ksh" | "bats" => SHELL,
        "yaml" | "yml" => YAML,
        "toml" => TOML,
        "mk" | "mak" => MAKE,
        "dockerfile" => DOCKER,
        "rb" | "rake" | "gemspec" => RUBY,
        "pl" | "pm" => PERL,
        "ex" | "exs" => ELIXIR,
        "jl" => JULIA,
        "r" => R,
        "nix" => NIX,
        "tf" | "hcl" | "tfvars" => HCL,
        "cmake" => CMAKE,
        "ps1" | "psm1" => POWERSHELL,
        "graphql" | "gql" | "nim" | "cr" => TRIPLES,
        "properties" | "env" => ENTRIES,
        "rs" => RUST,
        "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "hh" | "m" | "mm" | "ino" | "cu" | "glsl" => C,
        "java" => JAVA,
        "kt" | "kts" => KOTLIN,
        "scala" | "sc" | "swift" => SCALA,
        "groovy" | "gradle" | "dart" => GROOVY,
        "cs" => CSHARP,
        "go" => GO,
        "zig" => ZIG,
        "js" | "mjs" | "cjs" | "ts" | "mts" | "cts" => SCRIPT,
        "jsx" | "tsx" => JSX,
        "php" => PHP,
        "scss" | "less" => SCSS,
        "proto" | "thrift" | "sol" => SLASH,
        "css" => CSS,
        "sql" => SQL,
        "lua" => LUA,
        "hs" | "elm" => HASKELL,
        "adb" | "ads" | "vhd" | "vhdl" => ADA,
        "lisp" | "cl" | "el" | "scm" | "ss" | "rkt" | "clj" | "cljs" | "cljc" | "edn" => LISP,
        "ini" | "cfg" => INI,
        "tex" | "sty" | "cls" => TEX,
        "erl" | "hrl" => ERLANG,
        "html" | "htm" | "xml" | "xhtml" | "svg" | "vue" | "xsd" | "xsl" | "csproj" | "plist" => MARKUP,
        "md" | "markdown" => MARKDOWN,
        _ => return None,
    })
}

/// Whether the text is one whose places are those of `JSX`, whatever the name of the file says.
pub(super) fn as_found(language: Language, text: &str) -> Language {
    let has_elements = language.lexis.dialect == Dialect::Script && (text.contains("</") || text.contains("/>"));
    if has_elements { JSX } else { language }
}
