//! Configurations that the operator has agreed to.
//!
//! A patchboard.toml names programs that are run and addresses that keys are sent to. One that lies in the current directory
//! may have come with somebody else's files: it is used once `patchboard trust` was told so, as long as its text stays the same.
//! A file that is named (`--config`, PATCHBOARD_CONFIG) needs no more.

use std::env;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use patchboard_agents::config;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_runtime::private;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The configuration that is read where none is named, if it is there.
pub(crate) const CONFIG: &str = "patchboard.toml";

/// Files that are remembered; of more, the one that was agreed to first is forgotten.
const FILES_MAX: usize = 1_000;

/// The form of the list.
const VERSION: u32 = 1;

/// The list of a user.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agreements {
    version: u32,
    files: Vec<Agreement>,
}

/// A file that was agreed to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agreement {
    /// The file in its directory without links; a link in place of the file is a file of its own.
    pub(crate) path: PathBuf,
    /// SHA-256 of its text.
    pub(crate) sha256: Digest,
}

impl Agreement {
    /// Agrees to a file as it is now.
    pub(crate) fn to(path: &Path) -> Result<Self, Failure> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Failure::refused("bad_config", format!("{} cannot be read: {why}", path.display()))
        };
        let text = config::text(path).map_err(|error| unreadable(&error))?;
        let path = in_directory(path).map_err(|error| unreadable(&error))?;
        Ok(Self { path, sha256: sha256(text.as_bytes()) })
    }
}

/// Returns the path of a file in its directory without links. Keeps a link in place of the file: whoever made the link chose
/// the directory in which relative paths of the configuration are looked up.
fn in_directory(path: &Path) -> std::io::Result<PathBuf> {
    let Some(name) = path.file_name() else { return path.canonicalize() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(directory.canonicalize()?.join(name))
}

impl Agreements {
    /// Reads the list of this user; an empty one if there is none.
    pub(crate) fn read() -> Result<Self, Failure> {
        let place = place()?;
        let text = match fs::read(&place) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { version: VERSION, files: Vec::new() });
            }
            Err(error) => return Err(fault(&place, &error)),
        };
        let read: Self = serde_json::from_slice(&text).map_err(|error| fault(&place, &error))?;
        if read.version > VERSION {
            return Err(fault(&place, &format!("its version {} is later than {VERSION}", read.version)));
        }
        Ok(read)
    }

    pub(crate) fn files(&self) -> &[Agreement] {
        &self.files
    }

    pub(crate) fn has(&self, agreement: &Agreement) -> bool {
        self.files.contains(agreement)
    }

    /// Adds a file in place of what it was before, and stores the list.
    pub(crate) fn add(&mut self, agreement: Agreement) -> Result<(), Failure> {
        self.files.retain(|file| file.path != agreement.path);
        self.files.push(agreement);
        let beyond = self.files.len().saturating_sub(FILES_MAX);
        self.files.drain(..beyond);
        self.store()
    }

    /// Takes a file out, and stores the list; `false` if it was not in it.
    pub(crate) fn remove(&mut self, path: &Path) -> Result<bool, Failure> {
        let path = in_directory(path).unwrap_or_else(|_| path.to_owned());
        let count = self.files.len();
        self.files.retain(|file| file.path != path);
        self.store()?;
        Ok(self.files.len() < count)
    }

    fn store(&self) -> Result<(), Failure> {
        let place = place()?;
        let write = || -> std::io::Result<()> {
            let directory = place.parent().unwrap_or(Path::new("."));
            private::make_directory(directory)?;
            let beside = place.with_extension("new");
            let mut file = private::create(&beside)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&beside, &place)
        };
        write().map_err(|error| fault(&place, &error))
    }
}

/// Returns the configuration that is used: the file that is named, or the one in the current directory if the operator has
/// agreed to it.
pub(crate) fn config_file(named: Option<&Path>) -> Result<Option<&Path>, Failure> {
    let found = Path::new(CONFIG);
    if named.is_some() || !found.is_file() {
        return Ok(named);
    }
    let agreement = Agreement::to(found)?;
    let agreements = Agreements::read()?;
    if agreements.has(&agreement) {
        return Ok(Some(found));
    }
    let message = match agreements.files().iter().any(|file| file.path == agreement.path) {
        true => format!("{CONFIG} in this directory has changed since you agreed to it"),
        false => {
            format!("{CONFIG} in this directory may send keys to any address and run any program: agree to it first")
        }
    };
    Err(Failure::refused("config_untrusted", message).help(format!(
        "`patchboard trust` shows what it does and remembers that you agree; `--config {CONFIG}` uses it this once"
    )))
}

/// Returns where the list of this user is.
fn place() -> Result<PathBuf, Failure> {
    // A relative one would lie in the directory whose configuration is in question.
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute());
    let base = match cfg!(windows) {
        true => directory("APPDATA"),
        false => directory("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config"))),
    };
    let base = base.ok_or_else(|| {
        Failure::refused("no_home", "this user has no home directory, in which it is remembered what was agreed to")
            .help("set HOME, or name the configuration with --config")
    })?;
    Ok(base.join("patchboard").join("trusted.json"))
}

fn fault(place: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::failed(
        "trust_io",
        format!("what you agreed to is kept in {}, which cannot be used: {why}", place.display()),
    )
}
