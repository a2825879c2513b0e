//! A directory of the operator's that agents share, with a board of a blueprint or without.

use std::path::PathBuf;

use patchboard_kernel::blueprint::{Granularity, Intent, WorkspaceSpec};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Config, ConfigError, positive, toml_error};
use crate::tools::cut;
use crate::workspace::disk::{FILE_BYTES_MAX, can_exclude};

/// Characters of what is wrong with a table.
const SAID_MAX: usize = 300;

/// A directory that the workers of a board may share.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Where it is, relative to the configuration's directory.
    pub dir: PathBuf,
    /// What of it is not served, as lines of a `.gitignore` at its root.
    #[serde(default, deserialize_with = "exclude")]
    pub exclude: Vec<String>,
    /// Bytes of a file at most.
    #[serde(default = "default_file_bytes", deserialize_with = "positive")]
    pub max_bytes: u64,
    /// Whether nothing is done there any more once its `.patchboard` was taken away. Otherwise it is opened anew.
    #[serde(skip)]
    pub ends_with_own: bool,
}

impl Directory {
    /// A directory of which everything is served that is text.
    pub const fn at(dir: PathBuf) -> Self {
        Self { dir, exclude: Vec::new(), max_bytes: FILE_BYTES_MAX, ends_with_own: false }
    }
}

/// A directory that agents share without a daemon and a blueprint of theirs: the table `[workspace]`. What is not said is as
/// [`Directory`] and the blueprint have it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shared {
    /// What of it is not served, as lines of a `.gitignore` at its root.
    #[serde(deserialize_with = "exclude")]
    pub exclude: Vec<String>,
    /// Bytes of a file at most.
    #[serde(deserialize_with = "some_positive")]
    pub max_bytes: Option<u64>,
    /// What must not have changed of a file between a read and a write.
    pub granularity: Option<Granularity>,
    /// Whether every edit must say what it is for.
    pub intent: Option<Intent>,
    /// Whether that is written above it, as a comment.
    pub annotate: Option<bool>,
}

impl Shared {
    /// What a file called `name` says, which may say other things, too. What is wrong with it is told to agents, so of what
    /// the other tables hold nothing is repeated.
    ///
    /// # Errors
    /// [`ConfigError::Parse`].
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Own {
            #[serde(default)]
            workspace: Shared,
        }
        let told = |error: &toml::de::Error, what: &str| ConfigError::Parse {
            path: name.to_owned(),
            message: toml_error::located(text, error, what),
        };
        let foreign = "this is not what the file may hold; `patchboard doctor --config` with it says why";
        // Not the text of a table that is whole.
        toml::from_str::<toml::Table>(text).map_err(|error| told(&error, foreign))?;
        let own: Own =
            toml::from_str(text).map_err(|error| told(&error, &cut(error.message().to_owned(), SAID_MAX)))?;
        toml::from_str::<Config>(text).map_err(|error| match error.message() {
            // A name, and those there are.
            unknown if unknown.starts_with("unknown field") => told(&error, &cut(unknown.to_owned(), SAID_MAX)),
            _ => told(&error, foreign),
        })?;
        Ok(own.workspace)
    }

    /// The same directory, as far as the operator says something else of it.
    #[must_use]
    pub fn directory(&self, mut directory: Directory) -> Directory {
        directory.exclude.extend(self.exclude.iter().cloned());
        directory.max_bytes = self.max_bytes.unwrap_or(directory.max_bytes);
        directory
    }

    /// The same workspace, as far as the operator says something else of it.
    #[must_use]
    pub fn spec(&self, mut spec: WorkspaceSpec) -> WorkspaceSpec {
        spec.granularity = self.granularity.unwrap_or(spec.granularity);
        spec.intent = self.intent.unwrap_or(spec.intent);
        spec.annotate = self.annotate.unwrap_or(spec.annotate);
        spec
    }
}

const fn default_file_bytes() -> u64 {
    FILE_BYTES_MAX
}

fn some_positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    positive(deserializer).map(Some)
}

fn exclude<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let lines = Vec::<String>::deserialize(deserializer)?;
    can_exclude(&lines).map_err(D::Error::custom)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_other_tables_nothing_is_told_but_where_they_are_wrong() {
        for (text, place) in [
            ("[models.a]\nurl = \"http://me:s3cret@host\"\nmodel = \"m\"\n", "line 2"),
            (
                "[workspace]\nannotate = false\n[models.a]\nurl = \"http://h/v1\"\nmodel = \"m\"\napi_key = \"s3cret\"\n",
                "line 6",
            ),
            ("[commands.a]\nprogram = [\"x\"]\nenv = { TOKEN = \"s3cret }\n", "line 3"),
            ("s3cret\n", "line 1"),
        ] {
            let told = Shared::parse(text, "p").expect_err("refused").to_string();
            assert!(told.contains(place) && !told.contains("s3cret"), "{told}");
        }
        let told = Shared::parse("[workspace]\nanotate = false\n", "p").expect_err("refused").to_string();
        assert!(told.starts_with("p: line 2, column 1: unknown field `anotate`"), "{told}");
        let shared = Shared::parse("[workspace]\nannotate = false\n[commands.a]\nprogram = [\"x\"]\n", "p");
        assert_eq!(shared.expect("whole"), Shared { annotate: Some(false), ..Shared::default() });
    }
}
