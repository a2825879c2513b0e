//! What an editor can ask: a `command` and its arguments, shaped like the editors that coding agents know.
//!
//! Arguments are flat, because that is how those editors describe them, and are understood under the names of other
//! editors, too; the schema has one name of each. [`Command::parse`] makes of them what can be done and says in one
//! sentence what is wrong with them.

use patchboard_kernel::files::{FilePath, INTENT_MAX};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::edit::{EditCode, EditCommand, EditError};
use super::search::PATTERN_BYTES_MAX;
use patchboard_kernel::text::one_line;

/// Bytes of a text in an argument.
pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;

/// Arguments that name a file or a directory, under all their names.
pub const PATH_ARGUMENTS: &[&str] = &["path", "file_path", "file", "directory", "new_path", "new_file_path"];

/// Lists, shows, searches and edits the files of a shared directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "arguments")]
struct Arguments {
    /// What to do: `view` shows a file, with line numbers, or lists a directory; `list` lists a directory; `search`
    /// finds lines; `create` writes a whole file, new or not; `str_replace` replaces one piece of a file; `insert` puts
    /// lines behind a line; `delete` removes a file; `rename` gives it another name.
    command: Option<Name>,
    /// The file, or for `list` and `search` the directory, relative to the workspace, like `src/main.py`. `list` and
    /// `search` take everything without it.
    #[serde(alias = "file_path", alias = "file", alias = "directory")]
    path: Option<String>,
    /// `create`: all that the file is to hold.
    #[serde(alias = "content", alias = "contents")]
    file_text: Option<String>,
    /// `str_replace`: the piece to replace, exactly as it is in the file, white space included, without line numbers.
    /// It must be there exactly once: take as many lines around it as that needs.
    #[serde(alias = "old_string")]
    old_str: Option<String>,
    /// `str_replace`: what comes in its place; nothing, if absent.
    #[serde(alias = "new_string")]
    new_str: Option<String>,
    /// `insert`: the number of the line behind which to insert; 0 is the beginning of the file.
    insert_line: Option<u32>,
    /// `insert`: the lines to insert.
    insert_text: Option<String>,
    /// `view`: the first and the last line to show; -1 as the last one is the end of the file.
    #[schemars(length(equal = 2))]
    view_range: Option<Vec<i64>>,
    /// `view`: the first and the last character to show, where `view_range` is one long line; -1 as the last one is its
    /// end.
    #[schemars(length(equal = 2))]
    view_columns: Option<Vec<i64>>,
    /// The first line and how many, in place of a range.
    #[schemars(skip)]
    offset: Option<i64>,
    #[schemars(skip)]
    limit: Option<i64>,
    /// Whether every place is meant; none of the commands does that.
    #[schemars(skip)]
    replace_all: Option<bool>,
    /// `search`: the text to look for in each line.
    pattern: Option<String>,
    /// `search`: whether the pattern is a regular expression.
    regex: Option<bool>,
    /// `rename`: the new name.
    #[serde(alias = "new_file_path")]
    new_path: Option<String>,
    /// Edits: what the changed block does and what for, in one short sentence.
    intent: Option<String>,
    /// Edits: the version of the file that you have seen; the last one that was shown to you, if absent.
    version: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Name {
    View,
    List,
    Search,
    Create,
    StrReplace,
    Insert,
    Delete,
    Rename,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Show a file, or list a directory if it is one.
    View {
        /// What to show.
        path: FilePath,
        /// The first and the last line; none of the latter: to the end.
        range: Option<(u32, Option<u32>)>,
        /// The same of the characters of a line, if the range is one.
        columns: Option<(u32, Option<u32>)>,
    },
    /// List a directory.
    List {
        /// The whole workspace if absent.
        path: Option<FilePath>,
    },
    /// Find lines.
    Search {
        /// A file or a directory; the whole workspace if absent.
        path: Option<FilePath>,
        /// What to look for.
        pattern: String,
        /// Whether it is a regular expression.
        is_regex: bool,
    },
    /// Change one file.
    Edit {
        /// Which one.
        path: FilePath,
        /// How.
        edit: EditCommand,
        /// What for and upon what.
        basis: EditBasis,
    },
    /// Give a file another name.
    Rename {
        /// The name it has.
        path: FilePath,
        /// The name it gets.
        to: FilePath,
        /// What for and upon what.
        basis: EditBasis,
    },
}

/// What its author says of an edit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EditBasis {
    /// What it is for; whether it may be absent is not decided here.
    pub intent: Option<String>,
    /// The version of the file that its author has seen.
    pub version: Option<u64>,
}

/// The JSON Schema of the arguments, an object.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Arguments).to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
        schema.insert("required".to_owned(), serde_json::json!(["command"]));
    }
    // Absent, not null: that is what models are told; null is understood all the same.
    for argument in schema["properties"].as_object_mut().into_iter().flat_map(|arguments| arguments.values_mut()) {
        let Some(argument) = argument.as_object_mut() else { continue };
        if let Some(Value::Array(types)) = argument.get("type")
            && let Some(only) = types.first().cloned()
        {
            argument.insert("type".to_owned(), only);
        }
        if let Some(Value::Array(options)) = argument.get_mut("enum") {
            options.retain(|option| !option.is_null());
        }
        if let Some(Value::Array(mut options)) = argument.remove("anyOf")
            && let Value::Object(first) = options.swap_remove(0)
        {
            argument.extend(first);
        }
    }
    schema
}

impl Command {
    /// Reads the arguments of a call.
    pub fn parse(arguments: Value) -> Result<Self, EditError> {
        let wrong = |error: serde_json::Error| {
            let message = error.to_string();
            // It lists all names that any command takes, other editors' too.
            let message = match message.split_once(", expected") {
                Some((which, _)) if which.starts_with("unknown field") => which,
                _ => &message,
            };
            bad(one_line(message, 500))
        };
        Self::from_arguments(serde_json::from_value(arguments).map_err(wrong)?)
    }

    fn from_arguments(mut arguments: Arguments) -> Result<Self, EditError> {
        let args = &mut arguments;
        let Some(name) = args.command else { return Err(bad("there is no `command`")) };
        args.within_limits()?;
        args.as_usual()?;
        let command = match name {
            Name::View => match directory(args.path.take())? {
                Some(path) => {
                    let lines = args.view_range.take().map(|lines| range("view_range", &lines)).transpose()?;
                    let columns = args.view_columns.take().map(|of| range("view_columns", &of)).transpose()?;
                    if columns.is_some() && lines.is_none_or(|(first, last)| last != Some(first)) {
                        return Err(bad("`view_columns` are those of one line, which `view_range` names, like [7, 7]"));
                    }
                    Self::View { path, range: lines, columns }
                }
                None => Self::List { path: None },
            },
            Name::List => Self::List { path: directory(args.path.take())? },
            Name::Search => Self::Search {
                path: directory(args.path.take())?,
                pattern: required(args.pattern.take(), "search", "pattern")?,
                is_regex: args.regex.take().unwrap_or(false),
            },
            Name::Create => {
                let path = file(args.path.take(), "create")?;
                let file_text = required(args.file_text.take(), "create", "file_text")?;
                Self::Edit { path, edit: EditCommand::Create { file_text }, basis: args.basis() }
            }
            Name::StrReplace => {
                let path = file(args.path.take(), "str_replace")?;
                let old_str = required(args.old_str.take(), "str_replace", "old_str")?;
                let new_str = args.new_str.take().unwrap_or_default();
                Self::Edit { path, edit: EditCommand::StrReplace { old_str, new_str }, basis: args.basis() }
            }
            Name::Insert => {
                let path = file(args.path.take(), "insert")?;
                let insert_line = required(args.insert_line.take(), "insert", "insert_line")?;
                // Editors differ in the name of it.
                let text = match (args.insert_text.take(), args.new_str.take()) {
                    (Some(text), None) | (None, Some(text)) => Some(text),
                    (Some(_), Some(_)) => return Err(bad("`insert` takes `insert_text` or `new_str`, not both")),
                    (None, None) => None,
                };
                let insert_text = required(text, "insert", "insert_text")?;
                Self::Edit { path, edit: EditCommand::Insert { insert_line, insert_text }, basis: args.basis() }
            }
            Name::Delete => {
                let path = file(args.path.take(), "delete")?;
                Self::Edit { path, edit: EditCommand::Delete, basis: args.basis() }
            }
            Name::Rename => {
                let path = file(args.path.take(), "rename")?;
                let to = file(Some(required(args.new_path.take(), "rename", "new_path")?), "rename")?;
                if path == to {
                    return Err(bad("`path` and `new_path` are the same"));
                }
                Self::Rename { path, to, basis: args.basis() }
            }
        };
        match arguments.rest() {
            Some(argument) => Err(bad(format!("this command does not take `{argument}`"))),
            None => Ok(command),
        }
    }
}

impl Arguments {
    /// What other editors have and this one has in another way.
    fn as_usual(&mut self) -> Result<(), EditError> {
        if self.replace_all.take() == Some(true) {
            return Err(bad(
                "there is no `replace_all`: each place is replaced by itself, or the whole file is written with `create`",
            ));
        }
        if self.view_range.is_none() && (self.offset.is_some() || self.limit.is_some()) {
            let first = self.offset.take().unwrap_or(1).max(1);
            let last = self.limit.take().map_or(-1, |lines| first.saturating_add(lines).saturating_sub(1));
            self.view_range = Some(vec![first, last]);
        }
        Ok(())
    }

    fn basis(&mut self) -> EditBasis {
        EditBasis { intent: self.intent.take(), version: self.version.take() }
    }

    fn within_limits(&self) -> Result<(), EditError> {
        let texts = [
            ("file_text", &self.file_text, ARGUMENT_BYTES_MAX),
            ("old_str", &self.old_str, ARGUMENT_BYTES_MAX),
            ("new_str", &self.new_str, ARGUMENT_BYTES_MAX),
            ("insert_text", &self.insert_text, ARGUMENT_BYTES_MAX),
            ("pattern", &self.pattern, PATTERN_BYTES_MAX),
        ];
        for (name, text, max) in texts {
            if let Some(bytes) = text.as_ref().map(String::len).filter(|bytes| *bytes > max) {
                return Err(bad(format!("`{name}` has {bytes} bytes and may have {max}")));
            }
        }
        // As one line, which is what becomes of it.
        let chars = self.intent.as_ref().map_or(0, |intent| one_line(intent, usize::MAX).chars().count());
        if chars > INTENT_MAX {
            let message =
                format!("The intent has {chars} characters, and may have {INTENT_MAX}: say it in one short sentence.");
            return Err(EditError::new(EditCode::IntentTooLong, message));
        }
        Ok(())
    }

    /// An argument that nobody has taken.
    fn rest(&self) -> Option<&'static str> {
        macro_rules! left {
            ($($name:ident)*) => { [$((stringify!($name), self.$name.is_some())),*] };
        }
        // An intent or a version of a reader does no harm.
        let left = left!(path file_text old_str new_str insert_line insert_text view_range view_columns offset limit
            pattern regex new_path);
        left.into_iter().find_map(|(name, is_left)| is_left.then_some(name))
    }
}

fn bad(what: impl std::fmt::Display) -> EditError {
    EditError::new(EditCode::BadArguments, format!("The arguments cannot be used: {what}."))
}

fn required<T>(argument: Option<T>, command: &str, name: &str) -> Result<T, EditError> {
    argument.ok_or_else(|| bad(format!("`{command}` needs `{name}`")))
}

fn file(path: Option<String>, command: &str) -> Result<FilePath, EditError> {
    let path = required(path, command, "path")?;
    FilePath::parse(path.strip_prefix("./").unwrap_or(&path)).map_err(|error| bad(format!("`path`: {error}")))
}

/// A name; none for what stands for the whole workspace.
fn directory(path: Option<String>) -> Result<Option<FilePath>, EditError> {
    let Some(path) = path else { return Ok(None) };
    let path = path.strip_prefix("./").unwrap_or(&path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if matches!(path, "" | ".") {
        return Ok(None);
    }
    FilePath::parse(path).map(Some).map_err(|error| bad(format!("`path`: {error}")))
}

fn range(name: &str, range: &[i64]) -> Result<(u32, Option<u32>), EditError> {
    let line = |number: i64| u32::try_from(number).ok().filter(|number| *number > 0);
    match range {
        [first, -1] if line(*first).is_some() => Ok((line(*first).unwrap_or(1), None)),
        [first, last] if first <= last && line(*first).is_some() && line(*last).is_some() => {
            Ok((line(*first).unwrap_or(1), line(*last)))
        }
        _ => Err(bad(format!("`{name}` is the first and the last one, counted from 1; -1 as the last one is the end"))),
    }
}

#[cfg(test)]
mod tests;
