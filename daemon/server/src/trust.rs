//! Configurations that the operator has approved.
//!
//! A patchboard.toml names programs to run and addresses that receive keys. A file in the current directory may have
//! come with other people's files. It is used only after `patchboard trust` approved it, and until its text changes. A
//! file named explicitly (`--config`, PATCHBOARD_CONFIG) needs no approval.

use std::env;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use patchboard_agents::config;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_storage::private_files;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Configuration used by default, if it exists in the current directory.
pub const CONFIG: &str = "patchboard.toml";

/// Maximum number of approved files; beyond it the oldest approval is removed.
const FILES_MAX: usize = 1_000;

const VERSION: u32 = 1;

/// List of a user's approvals.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct TrustedFiles {
    version: u32,
    /// Approved files.
    pub files: Vec<TrustedFile>,
}

/// Approved file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct TrustedFile {
    /// Canonical directory and file name. A symbolic link in place of the file counts as a separate file.
    pub path: PathBuf,
    /// SHA-256 of its text.
    pub sha256: Digest,
}

impl TrustedFile {
    /// Approves a file in its current state.
    pub fn for_file(path: &Path) -> Result<Self, Failure> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Failure::invalid_input("bad_config", format!("{} cannot be read: {why}", path.display()))
        };
        let text = config::text(path).map_err(|error| unreadable(&error))?;
        let path = in_directory(path).map_err(|error| unreadable(&error))?;
        Ok(Self { path, sha256: sha256(text.as_bytes()) })
    }
}

/// Returns the path of a file with its directory canonicalized. A symbolic link in place of the file is kept: its
/// directory is the base for relative paths of the configuration.
fn in_directory(path: &Path) -> std::io::Result<PathBuf> {
    let Some(name) = path.file_name() else { return path.canonicalize() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(directory.canonicalize()?.join(name))
}

impl TrustedFiles {
    /// Reads the list of this user; empty if there is no file.
    pub fn read() -> Result<Self, Failure> {
        let place = place()?;
        let text = match fs::read(&place) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { version: VERSION, files: Vec::new() });
            }
            Err(error) => return Err(storage_error(&place, &error)),
        };
        let read: Self = serde_json::from_slice(&text).map_err(|error| storage_error(&place, &error))?;
        if read.version > VERSION {
            return Err(storage_error(&place, &format!("its version {} is later than {VERSION}", read.version)));
        }
        Ok(read)
    }

    /// Adds a file, replacing its earlier approval, and stores the list.
    pub fn add(&mut self, agreement: TrustedFile) -> Result<(), Failure> {
        self.files.retain(|file| file.path != agreement.path);
        self.files.push(agreement);
        let beyond = self.files.len().saturating_sub(FILES_MAX);
        self.files.drain(..beyond);
        self.store()
    }

    /// Removes a file, and stores the list; `false` if it was not listed.
    pub fn remove(&mut self, path: &Path) -> Result<bool, Failure> {
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
            private_files::make_directory(directory)?;
            let temporary = place.with_extension("new");
            let mut file = private_files::create(&temporary)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&temporary, &place)
        };
        write().map_err(|error| storage_error(&place, &error))
    }
}

/// Returns the configuration to use: the file that is named, or the one in the current directory if the operator has
/// approved it.
pub fn config_file(named: Option<&Path>) -> Result<Option<&Path>, Failure> {
    let found = Path::new(CONFIG);
    if named.is_some() || !found.is_file() {
        return Ok(named);
    }
    let agreement = TrustedFile::for_file(found)?;
    let agreements = TrustedFiles::read()?;
    if agreements.files.contains(&agreement) {
        return Ok(Some(found));
    }
    let message = match agreements.files.iter().any(|file| file.path == agreement.path) {
        true => format!("{CONFIG} in this directory has changed since you agreed to it"),
        false => {
            format!("{CONFIG} in this directory may send keys to any address and run any program: agree to it first")
        }
    };
    Err(Failure::invalid_input("config_untrusted", message).help(format!(
        "`patchboard trust` shows its effects and stores your approval; `--config {CONFIG}` uses it this once"
    )))
}

fn place() -> Result<PathBuf, Failure> {
    // A relative path would lie in the untrusted directory itself.
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute());
    let base = directory("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")));
    let base = base.ok_or_else(|| {
        let message = "this user has no home directory, where approvals are stored";
        Failure::invalid_input("no_home", message).help("set HOME, or name the configuration with --config")
    })?;
    Ok(base.join("patchboard").join("trusted.json"))
}

fn storage_error(place: &Path, why: &dyn std::fmt::Display) -> Failure {
    let message = format!("approvals are stored in {}, which cannot be used: {why}", place.display());
    Failure::failed("trust_io", message)
}
