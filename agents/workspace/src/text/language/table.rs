//! Table of languages: their lexical properties, and the file names and extensions that select them.

use super::{CommentPositions, CommentStyle, Dialect, Language, Lexis, Quote};

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
    places: CommentPositions::Any,
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
        quotes: &[quote("$'", "'", true, true), WIDE, VERBATIM_SINGLE, quote("`", "`", true, true)],
        continues: true,
        heredocs: true,
        dialect: Dialect::Words,
        ..HASH.lexis
    },
    ..HASH
};

/// Line-based formats with independent lines.
const ENTRIES: Language = Language {
    lexis: Lexis { quotes: &[], continues: true, dialect: Dialect::Words, ..HASH.lexis },
    places: CommentPositions::Margin,
    ..HASH
};

const MAKE: Language = Language { lexis: Lexis { regions: &[("define ", "endef")], ..ENTRIES.lexis }, ..ENTRIES };

const DOCKER: Language = Language {
    lexis: Lexis { quotes: &[], ..SHELL.lexis },
    places: CommentPositions::Margin,
    head: &["# syntax=", "#syntax=", "# escape=", "#escape=", "# check=", "#check="],
    ..HASH
};

const YAML: Language = Language {
    lexis: Lexis { quotes: &[], dialect: Dialect::Words, ..HASH.lexis },
    places: CommentPositions::Yaml,
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
    places: CommentPositions::Statements(&["def ", "class ", "module ", "require", "private", "attr_", "end"]),
    head: &["#!", "# frozen_string_literal", "# encoding", "# -*-", "# coding"],
    ..HASH
};

const PERL: Language = Language {
    lexis: Lexis { regions: &[("=", "=cut"), ("__END__", ""), ("__DATA__", "")], ..RUBY.lexis },
    places: CommentPositions::Statements(&["sub ", "package ", "use ", "my ", "our "]),
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
    // A string above a definition is its documentation, even with a comment in between.
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
    places: CommentPositions::Any,
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

/// The text above `import "C"` is C.
const GO: Language =
    Language { lexis: Lexis { quotes: &[DOUBLE, SINGLE, TICKS], ..SLASH.lexis }, never: &["import \"C\""], ..SLASH };

const ZIG: Language = Language { lexis: Lexis { block: &[], ..SLASH.lexis }, ..SLASH };

const SCRIPT: Language =
    Language { lexis: Lexis { continues: true, dialect: Dialect::Script, ..SLASH.lexis }, attributes: &["@"], ..SLASH };

/// Text between tags can look like code.
pub(super) const JSX: Language = Language {
    places: CommentPositions::Statements(&[
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

/// Text before `<?php` and after `?>` is not code.
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
    places: CommentPositions::Any,
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
    // Other dollar quotes have free names.
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
    places: CommentPositions::Any,
    attributes: &[],
    head: &["#!", "#lang"],
    never: &[],
};
/// Comments begin with `;` or `#` at the start of a line; only `;` works in every dialect.
const INI: Language = Language {
    style: CommentStyle::Line(";"),
    lexis: Lexis { line: &[";", "#"], quotes: &[], ..LEXIS },
    places: CommentPositions::Margin,
    attributes: &[],
    head: &[],
    never: &[],
};
const PERCENT: Language = Language {
    style: CommentStyle::Line("%"),
    lexis: Lexis { line: &["%"], quotes: &[], ..LEXIS },
    places: CommentPositions::Any,
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
    places: CommentPositions::Markup,
    attributes: &[],
    head: &["<?xml", "<!DOCTYPE", "<!doctype"],
    never: &[],
};
const MARKDOWN: Language = Language { places: CommentPositions::Paragraphs, head: &["---"], ..MARKUP };

pub(super) fn for_name(name: &str) -> Option<Language> {
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

pub(super) fn for_extension(extension: &str) -> Option<Language> {
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
