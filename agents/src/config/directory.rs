//! Directory that agents share, with or without a board of a blueprint.

use patchboard_kernel::blueprint::{Granularity, Intent, WorkspaceSpec};
use serde::{Deserialize, Deserializer};

use patchboard_runtime::tools::cut;
use patchboard_workspace::directory::{Directory, exclude, positive};

use super::{Config, ConfigError, toml_error};

/// Characters of an error about a table.
const SAID_MAX: usize = 300;

/// Directory that agents share without a daemon or a blueprint of their own: the table `[workspace]`. Missing members
/// keep the values of [`Directory`] and of the blueprint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceConfig {
    /// Excluded files, as lines of a `.gitignore` at its root.
    #[serde(deserialize_with = "exclude")]
    pub exclude: Vec<String>,
    /// Greatest size of a file in bytes.
    #[serde(deserialize_with = "some_positive")]
    pub max_bytes: Option<u64>,
    /// Unit that must be unchanged between a read and a write.
    pub granularity: Option<Granularity>,
    /// Requirement that every edit states its intent.
    pub intent: Option<Intent>,
    /// True if the intent is written above the edit as a comment.
    pub annotate: Option<bool>,
}

impl WorkspaceConfig {
    /// Reads the table from a file called `name`, which may contain other tables. Errors are shown to agents, so they
    /// do not repeat content of the other tables.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Own {
            #[serde(default)]
            workspace: WorkspaceConfig,
        }
        let parse_error = |error: &toml::de::Error, what: &str| ConfigError::Parse {
            path: name.to_owned(),
            message: toml_error::located(text, error, what),
        };
        let foreign = "this is not what the file may hold; `patchboard doctor --config` with it says why";
        // Syntax errors do not repeat the text.
        toml::from_str::<toml::Table>(text).map_err(|error| parse_error(&error, foreign))?;
        let own: Own =
            toml::from_str(text).map_err(|error| parse_error(&error, &cut(error.message().to_owned(), SAID_MAX)))?;
        toml::from_str::<Config>(text).map_err(|error| match error.message() {
            // This message holds only the unknown name and the known ones.
            unknown if unknown.starts_with("unknown field") => parse_error(&error, &cut(unknown.to_owned(), SAID_MAX)),
            _ => parse_error(&error, foreign),
        })?;
        Ok(own.workspace)
    }

    /// Applies the operator's settings to a directory.
    #[must_use]
    pub fn directory(&self, mut directory: Directory) -> Directory {
        directory.exclude.extend(self.exclude.iter().cloned());
        directory.max_bytes = self.max_bytes.unwrap_or(directory.max_bytes);
        directory
    }

    /// Applies the operator's settings to the specification of a workspace.
    #[must_use]
    pub fn spec(&self, mut spec: WorkspaceSpec) -> WorkspaceSpec {
        spec.granularity = self.granularity.unwrap_or(spec.granularity);
        spec.intent = self.intent.unwrap_or(spec.intent);
        spec.annotate = self.annotate.unwrap_or(spec.annotate);
        spec
    }
}

fn some_positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    positive(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_other_tables_nothing_is_reported_but_where_they_are_wrong() {
        for (text, place) in [
            ("[models.a]\nurl = \"http://me:s3cret@host\"\nmodel = \"m\"\n", "line 2"),
            (
                "[workspace]\nannotate = false\n[models.a]\nurl = \"http://h/v1\"\nmodel = \"m\"\napi_key = \"s3cret\"\n",
                "line 6",
            ),
            ("[commands.a]\nprogram = [\"x\"]\nenv = { TOKEN = \"s3cret }\n", "line 3"),
            ("s3cret\n", "line 1"),
        ] {
            let error = WorkspaceConfig::parse(text, "p").expect_err("refused").to_string();
            assert!(error.contains(place) && !error.contains("s3cret"), "{error}");
        }
        let error = WorkspaceConfig::parse("[workspace]\nanotate = false\n", "p").expect_err("refused").to_string();
        assert!(error.starts_with("p: line 2, column 1: unknown field `anotate`"), "{error}");
        let shared = WorkspaceConfig::parse("[workspace]\nannotate = false\n[commands.a]\nprogram = [\"x\"]\n", "p");
        assert_eq!(shared.expect("whole"), WorkspaceConfig { annotate: Some(false), ..WorkspaceConfig::default() });
    }
}
