//! Editor tools for models, one per command, under the names that coding agents know.
//!
//! Each tool's schema is a subset of the schema of all commands. The description of an editing tool begins with the
//! intent convention, followed by the rule for concurrent edits, which depends on the [`EditConcurrency`].

use patchboard_kernel::blueprint::{Intent, Isolation, WorkspaceSpec};
use serde_json::{Map, Value, json};

use super::text::command::schema;
use super::text::intent::convention;
use patchboard_runtime::tools::ToolDefinition;

/// Concurrency control for an agent's edits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditConcurrency {
    /// Shared files; each edit is checked against the author's read set.
    Checked,
    /// Shared files without checks.
    Unchecked,
    /// A working tree of the agent's own.
    OwnTree,
}

impl EditConcurrency {
    /// Returns the manner of an agent; `has_tree` says that it has a working tree of its own.
    pub const fn from_spec(spec: &WorkspaceSpec, has_tree: bool) -> Self {
        match spec.isolation {
            _ if has_tree => Self::OwnTree,
            Isolation::Storm => Self::Checked,
            Isolation::Soft | Isolation::Worktree => Self::Unchecked,
        }
    }

    /// Returns the rule for concurrent edits, as tool descriptions state it.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Checked => {
                "An edit is made only if nothing of what you have read has changed since. If something has, the edit is \
                 refused and nothing is written: the result shows what is different now, and counts as read, so adapt \
                 your edit to it and try again at once."
            }
            Self::Unchecked => {
                "Nothing checks whether a file has changed since you have read it: an edit is made on what is there, and a \
                 whole file that you write takes away what others wrote meanwhile. View what you are about to change right \
                 before you change it."
            }
            Self::OwnTree => {
                "The files are a working tree of your own: nobody else changes them, and what you do is merged with what \
                 others do later."
            }
        }
    }
}

/// A command as a tool definition.
#[derive(Clone, Copy, Debug)]
pub struct EditorTool {
    /// Name of the tool and of its command.
    pub name: &'static str,
    /// Title for human readers.
    pub title: &'static str,
    description: &'static str,
    needs: &'static [&'static str],
    takes: &'static [&'static str],
}

/// Sentence for reading tools, used where edits are checked against the read set.
const COUNTS: &str = " What is shown counts as read.";

/// Makes the tools: name, title, arguments that it needs and others that it takes, description.
macro_rules! tools {
    ($($name:literal, $title:literal, [$($needs:literal),*], [$($takes:literal),*]: $description:literal;)*) => {
        [$(EditorTool {
            name: $name,
            title: $title,
            description: $description,
            needs: &[$($needs),*],
            takes: &[$($takes),*],
        }),*]
    };
}

/// All editor tools.
pub const ALL: [EditorTool; 8] = tools! {
    "view", "Show a file", ["path"], ["view_range", "view_columns"]:
        "Show a file with its line numbers, or a part of it; of a directory, the files in it and below.";
    "list", "List files", [], ["path"]:
        "List the files of a directory and below, or all of them.";
    "search", "Find lines", ["pattern"], ["path", "regex"]:
        "Find lines in the files of a directory and below, or in all of them; view a file to see what is around \
             them.";
    "create", "Write a file", ["path", "file_text"], ["intent", "version"]:
        "Write a whole file: a new one, or a new content of one that you have viewed. To change a part, use \
             str_replace.";
    "str_replace", "Replace a piece of a file", ["path", "old_str"], ["new_str", "intent", "version"]:
        "Replace one piece of a file that you have viewed.";
    "insert", "Insert lines", ["path", "insert_line", "insert_text"], ["intent", "version"]:
        "Insert lines behind a line of a file that you have viewed; the number is the one that was shown to you.";
    "delete", "Remove a file", ["path"], ["intent", "version"]:
        "Remove a file that you have viewed.";
    "rename", "Rename a file", ["path", "new_path"], ["intent", "version"]:
        "Give a file that you have viewed another name, which no file has.";
};

/// Returns the tools of the agent named `author` in files; the reading tools alone if it may not edit.
pub fn definitions(
    author: &str,
    spec: &WorkspaceSpec,
    may_edit: bool,
    concurrency: EditConcurrency,
) -> Vec<(EditorTool, ToolDefinition)> {
    let of_all = schema();
    // In its own tree an agent needs no intents, because all the commits are its own.
    let is_required = spec.intent == Intent::Required && concurrency != EditConcurrency::OwnTree;
    let convention = match concurrency {
        EditConcurrency::OwnTree => String::new(),
        _ => convention(author, is_required, spec.annotate),
    };
    let shown = ALL.into_iter().filter(|tool| may_edit || !tool.is_edit());
    shown.map(|tool| (tool, tool.definition(&of_all, &convention, is_required, concurrency))).collect()
}

/// Builds the editor's arguments for a tool call; `None` if there is no such tool.
pub fn arguments(tool: &str, mut arguments: Map<String, Value>) -> Option<Value> {
    arguments.insert("command".to_owned(), tool.into());
    is_tool(tool).then(|| arguments.into())
}

/// Returns whether an editor tool has this name.
pub fn is_tool(name: &str) -> bool {
    ALL.iter().any(|known| known.name == name)
}

/// Returns whether an editing tool has this name.
pub fn is_edit(name: &str) -> bool {
    ALL.iter().any(|known| known.name == name && known.is_edit())
}

impl EditorTool {
    /// Returns true if the tool changes files: only an edit takes an intent.
    pub fn is_edit(&self) -> bool {
        self.takes.contains(&"intent")
    }

    fn definition(
        &self,
        of_all: &Value,
        convention: &str,
        is_intent_required: bool,
        concurrency: EditConcurrency,
    ) -> ToolDefinition {
        let authorship = if concurrency == EditConcurrency::OwnTree { "" } else { self.authorship() };
        let counts =
            if concurrency == EditConcurrency::Checked && matches!(self.name, "view" | "search") { COUNTS } else { "" };
        let description = match self.is_edit() {
            true => format!("{convention}{} {}", self.description, concurrency.rule()),
            false => format!("{}{counts}{authorship}", self.description),
        };
        let mut required = self.needs.to_vec();
        required.extend((self.is_edit() && is_intent_required).then_some("intent"));
        let is_taken =
            |name: &&&str| concurrency != EditConcurrency::OwnTree || !matches!(**name, "intent" | "version");
        let properties: Map<String, Value> = self
            .needs
            .iter()
            .chain(self.takes)
            .filter(is_taken)
            .map(|name| ((*name).to_owned(), self.argument(&of_all["properties"][*name])))
            .map(|(name, argument)| match name.as_str() {
                "path" => (name, described(argument, self.path())),
                _ => (name, argument),
            })
            .collect();
        let parameters = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        ToolDefinition { name: self.name.to_owned(), description, parameters }
    }

    /// Returns the sentence about the last author in the tool's output.
    fn authorship(&self) -> &'static str {
        match self.name {
            "view" => " The first line says the version, and who changed the file last and what for.",
            "list" => " Of each are said its lines, its version, and who changed it last.",
            _ => "",
        }
    }

    fn path(&self) -> &'static str {
        match self.name {
            "view" => "The file, or a directory to list, relative to the workspace, like `src/main.py`.",
            "list" => "The directory, relative to the workspace, like `src`; all files if absent.",
            "search" => {
                "The file or directory to look through, relative to the workspace, like `src`; all files if absent."
            }
            _ => "The file, relative to the workspace, like `src/main.py`.",
        }
    }

    /// Returns the argument's schema, with the command names removed from its description.
    fn argument(&self, argument: &Value) -> Value {
        let argument = argument.clone();
        let Some(text) = argument["description"].as_str() else { return argument };
        let text = text.replace('\n', " ");
        let own = format!("`{}`: ", self.name);
        let text = text.strip_prefix(&own).or_else(|| text.strip_prefix("Edits: ")).unwrap_or(&text);
        let mut letters = text.chars();
        let text = letters.next().map(|first| format!("{}{}", first.to_uppercase(), letters.as_str()));
        described(argument, &text.unwrap_or_default())
    }
}

fn described(mut argument: Value, text: &str) -> Value {
    argument["description"] = text.into();
    argument
}

#[cfg(test)]
mod tests;
