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

/// Defines methods that replace one property of a language.
macro_rules! setters {
    ($($name:ident: $($member:ident).+: $type:ty;)*) => {
        impl Language {
            $(const fn $name(mut self, $name: $type) -> Self {
                self.$($member).+ = $name;
                self
            })*
        }
    };
}

type Words = &'static [&'static str];
type Pairs = &'static [(&'static str, &'static str)];

setters! {
    block: lexis.block: Pairs;
    is_nested: lexis.is_nested: bool;
    quotes: lexis.quotes: &'static [Quote];
    continues: lexis.continues: bool;
    heredocs: lexis.heredocs: bool;
    regions: lexis.regions: Pairs;
    dialect: lexis.dialect: Dialect;
    places: places: CommentPositions;
    attributes: attributes: Words;
    head: head: Words;
    never: never: Words;
}

const fn language(style: CommentStyle, line: Words) -> Language {
    let lexis = Lexis {
        line,
        block: &[],
        is_nested: false,
        quotes: &[DOUBLE, SINGLE],
        continues: false,
        heredocs: false,
        regions: &[],
        dialect: Dialect::Plain,
    };
    Language { style, lexis, places: CommentPositions::Any, attributes: &[], head: &["#!"], never: &[] }
}

const HASH: Language = language(CommentStyle::Line("#"), &["#"]);

const PYTHON: Language = HASH.quotes(&[TRIPLE, TRIPLE_SINGLE, DOUBLE, SINGLE]).continues(true).attributes(&["@"]);

const SHELL: Language = HASH
    .quotes(&[quote("$'", "'", true, true), WIDE, VERBATIM_SINGLE, quote("`", "`", true, true)])
    .continues(true)
    .heredocs(true)
    .dialect(Dialect::Words);

/// Line-based formats with independent lines.
const ENTRIES: Language = HASH.quotes(&[]).continues(true).dialect(Dialect::Words).places(CommentPositions::Margin);

const MAKE: Language = ENTRIES.regions(&[("define ", "endef")]);

const DOCKER: Language = SHELL.quotes(&[]).places(CommentPositions::Margin).head(&[
    "# syntax=",
    "#syntax=",
    "# escape=",
    "#escape=",
    "# check=",
    "#check=",
]);

const YAML: Language =
    HASH.quotes(&[]).dialect(Dialect::Words).places(CommentPositions::Yaml).head(&["#!", "%", "---"]);

const TOML: Language = HASH.quotes(&[TRIPLE, quote("'''", "'''", false, true), DOUBLE, quote("'", "'", false, false)]);

const RUBY: Language = HASH
    .quotes(&[WIDE, WIDE_SINGLE, quote("`", "`", true, true)])
    .continues(true)
    .heredocs(true)
    .regions(&[("=begin", "=end"), ("__END__", "")])
    .dialect(Dialect::Words)
    .places(CommentPositions::Statements(&["def ", "class ", "module ", "require", "private", "attr_", "end"]))
    .head(&["#!", "# frozen_string_literal", "# encoding", "# -*-", "# coding"]);

const PERL: Language = RUBY
    .regions(&[("=", "=cut"), ("__END__", ""), ("__DATA__", "")])
    .places(CommentPositions::Statements(&["sub ", "package ", "use ", "my ", "our "]))
    .head(&["#!"]);

const TRIPLES: Language = HASH.quotes(&[TRIPLE, WIDE, SINGLE]);
const ELIXIR: Language =
    HASH.quotes(&[TRIPLE, TRIPLE_SINGLE, WIDE, WIDE_SINGLE]).attributes(&["@doc", "@spec", "@impl"]);
// A string above a definition is its documentation, even with a comment in between.
const JULIA: Language = HASH.quotes(&[TRIPLE, WIDE]).block(&[("#=", "=#")]).is_nested(true);
const R: Language = HASH.quotes(&[WIDE, WIDE_SINGLE, TICKS]);
const NIX: Language = HASH.quotes(&[quote("''", "''", false, true), WIDE]).block(&[("/*", "*/")]);
const HCL: Language =
    language(CommentStyle::Line("#"), &["#", "//"]).quotes(&[DOUBLE]).block(&[("/*", "*/")]).heredocs(true);
const CMAKE: Language = HASH.quotes(&[WIDE, quote("[[", "]]", false, true)]).block(&[("#[[", "]]")]);
const POWERSHELL: Language = HASH
    .quotes(&[
        quote("@\"", "\n\"@", false, true),
        quote("@'", "\n'@", false, true),
        quote("\"", "\"", false, true),
        VERBATIM_SINGLE,
    ])
    .block(&[("<#", "#>")]);

const SLASH: Language = language(CommentStyle::Line("//"), &["//"]).block(&[("/*", "*/")]);

const C: Language = SLASH.continues(true).dialect(Dialect::Cpp).attributes(&["[["]);

const RUST: Language = SLASH.quotes(&[WIDE]).is_nested(true).dialect(Dialect::Rust).attributes(&["#["]);

const JAVA: Language = SLASH.quotes(&[TRIPLE, DOUBLE, SINGLE]).attributes(&["@"]);

const KOTLIN: Language =
    SLASH.quotes(&[quote("\"\"\"", "\"\"\"", false, true), DOUBLE, SINGLE]).is_nested(true).attributes(&["@"]);

const SCALA: Language = KOTLIN.quotes(&[TRIPLE, DOUBLE]);
const GROOVY: Language = SLASH.quotes(&[TRIPLE, TRIPLE_SINGLE, DOUBLE, SINGLE]).attributes(&["@"]);
const CSHARP: Language = SLASH
    .quotes(&[
        quote("\"\"\"", "\"\"\"", false, true),
        quote("@\"", "\"", false, true),
        quote("@$\"", "\"", false, true),
        DOUBLE,
        SINGLE,
    ])
    .attributes(&["["]);

/// The text above `import "C"` is C.
const GO: Language = SLASH.quotes(&[DOUBLE, SINGLE, TICKS]).never(&["import \"C\""]);

const ZIG: Language = SLASH.block(&[]);

const SCRIPT: Language = SLASH.continues(true).dialect(Dialect::Script).attributes(&["@"]);

/// Text between tags can look like code.
pub(super) const JSX: Language = SCRIPT.places(CommentPositions::Statements(&[
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
]));

/// Text before `<?php` and after `?>` is not code.
const PHP: Language = language(CommentStyle::Line("//"), &["//", "#"])
    .block(&[("/*", "*/")])
    .quotes(&[WIDE, WIDE_SINGLE])
    .heredocs(true)
    .attributes(&["#["])
    .head(&["#!", "<?php"])
    .never(&["?>"]);

const CSS: Language = language(CommentStyle::Block("/*", "*/"), &[]).block(&[("/*", "*/")]).head(&["@charset"]);

const DASH: Language = language(CommentStyle::Line("--"), &["--"]);
const SQL: Language = DASH
    .quotes(&[VERBATIM_SINGLE, quote("\"", "\"", false, true), TICKS, quote("$$", "$$", false, true)])
    .block(&[("/*", "*/")])
    .is_nested(true)
    // Other dollar quotes have free names.
    .never(&["$_$", "$body$", "$BODY$", "$function$"]);
const LUA: Language = DASH.block(&[("--[[", "]]"), ("--[=[", "]=]"), ("--[==[", "]==]")]).quotes(&[
    quote("[[", "]]", false, true),
    quote("[=[", "]=]", false, true),
    quote("[==[", "]==]", false, true),
    DOUBLE,
    SINGLE,
]);
const HASKELL: Language = DASH.block(&[("{-", "-}")]).is_nested(true).quotes(&[TRIPLE, DOUBLE]).continues(true);
const ADA: Language = DASH.quotes(&[quote("\"", "\"", false, false)]);

const LISP: Language = language(CommentStyle::Line(";"), &[";"])
    .block(&[("#|", "|#")])
    .is_nested(true)
    .quotes(&[WIDE])
    .head(&["#!", "#lang"]);
/// Comments begin with `;` or `#` at the start of a line; only `;` works in every dialect.
const INI: Language =
    language(CommentStyle::Line(";"), &[";", "#"]).quotes(&[]).places(CommentPositions::Margin).head(&[]);
const PERCENT: Language = language(CommentStyle::Line("%"), &["%"]).quotes(&[]);
const TEX: Language = PERCENT.regions(&[
    ("\\begin{verbatim", "\\end{verbatim"),
    ("\\begin{lstlisting", "\\end{lstlisting"),
    ("\\begin{minted", "\\end{minted"),
    ("\\begin{Verbatim", "\\end{Verbatim"),
]);
const ERLANG: Language = PERCENT.quotes(&[TRIPLE, WIDE, WIDE_SINGLE]);

const MARKUP: Language = language(CommentStyle::Block("<!--", "-->"), &[]).places(CommentPositions::Markup).head(&[
    "<?xml",
    "<!DOCTYPE",
    "<!doctype",
]);
const MARKDOWN: Language = MARKUP.places(CommentPositions::Paragraphs).head(&["---"]);

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
        "scss" | "less" | "proto" | "thrift" | "sol" => SLASH,
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
