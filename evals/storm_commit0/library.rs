//! Downloads libraries from the package registry, and runs their tests in a Python environment. Downloads are cached.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::exercise::Exercise;

/// Timeout of a library's tests; they take seconds.
const TESTS_SECONDS: u32 = 120;

/// Marker of a body that was not restored.
const STUB: &str = "# to restore: ";

/// Cache of everything that does not change between runs.
pub(crate) struct Cache {
    directory: PathBuf,
    scripts: PathBuf,
}

/// Library with its bodies removed.
pub(crate) struct Library {
    /// Description of the removed bodies.
    pub(crate) exercise: Arc<Exercise>,
    /// Directory of the library without bodies.
    pub(crate) blank: PathBuf,
    /// Tests that the original library passes.
    pub(crate) reference: BTreeSet<String>,
}

/// Result of a library's tests on a directory.
#[derive(Deserialize, Debug)]
pub(crate) struct Verdict {
    /// Set if the tests ran to completion.
    pub(crate) is_over: bool,
    /// Error of each test that ran; null if it passed.
    pub(crate) tests: BTreeMap<String, Option<String>>,
}

/// Returns the specification of each library, with its version.
pub(crate) fn specs() -> BTreeMap<String, Value> {
    serde_json::from_str(include_str!("libraries.json")).expect("the file beside this one is JSON")
}

impl Cache {
    /// Opens a cache directory, and adds missing files.
    pub(crate) fn open(directory: &Path, scripts: &Path) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(directory)?;
        let cache = Self { directory: directory.canonicalize()?, scripts: scripts.to_owned() };
        let _alone = cache.lock()?;
        let (wanted, stamp) = (fs::read(scripts.join("requirements.txt"))?, cache.directory.join("installed"));
        if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            cache.run(Command::new("python3").args(["-m", "venv", "--clear", "venv"]))?;
            let mut install = Command::new(cache.python());
            install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
            cache
                .run(install.args(["--retries", "1", "--timeout", "20", "-r"]).arg(scripts.join("requirements.txt")))?;
            fs::write(&stamp, wanted)?;
        }
        Ok(cache)
    }

    /// Serialises concurrent runs.
    fn lock(&self) -> Result<File, Box<dyn Error>> {
        let file = File::create(self.directory.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn python(&self) -> PathBuf {
        self.directory.join("venv/bin/python")
    }

    fn run(&self, command: &mut Command) -> Result<Vec<u8>, Box<dyn Error>> {
        let name = command.get_program().to_owned();
        let output = command.current_dir(&self.directory).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{}: {error}", name.display()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("without a word");
        Err(format!("{} ended with {last}", name.display()).into())
    }

    /// Prepares a library: downloads its source distribution, removes the bodies, and runs its tests on the original.
    pub(crate) fn library(&self, name: &str, spec: &Value) -> Result<Library, Box<dyn Error>> {
        let _alone = self.lock()?;
        let version = spec["version"].as_str().ok_or("a library has a version")?;
        let archive = self.directory.join(format!("{name}-{version}.tar.gz"));
        if !archive.exists() {
            let mut download = Command::new(self.python());
            download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", "."]);
            download.args(["--disable-pip-version-check", "--retries", "1", "--timeout", "20"]);
            self.run(download.arg(format!("{name}=={version}")))?;
        }
        let made = self.directory.join(name);
        let mut blank = Command::new(self.python());
        blank.arg(self.scripts.join("blank.py")).arg(self.scripts.join("libraries.json")).arg(name);
        self.run(blank.arg(&archive).arg(&made))?;
        let exercise: Exercise = serde_json::from_slice(&fs::read(made.join("exercise.json"))?)?;
        let reference = self.judge(&made.join("reference"), &exercise.path)?;
        if !reference.is_over || reference.tests.is_empty() {
            return Err(format!("the tests of {name} do not run as it is").into());
        }
        let passed = reference.tests.into_iter().filter(|(_, trouble)| trouble.is_none()).map(|(test, _)| test);
        Ok(Library { exercise: Arc::new(exercise), blank: made.join("blank"), reference: passed.collect() })
    }

    /// Runs the tests of a library on a directory.
    pub(crate) fn judge(&self, directory: &Path, path: &str) -> Result<Verdict, Box<dyn Error>> {
        let mut judge = Command::new(self.python());
        judge.arg(self.scripts.join("judge.py")).arg(directory).arg(path).arg(TESTS_SECONDS.to_string());
        Ok(serde_json::from_slice(&self.run(&mut judge)?)?)
    }
}

impl Library {
    /// Counts the bodies that are not restored in a directory.
    pub(crate) fn left(&self, directory: &Path) -> usize {
        let names = self.exercise.sizes.keys().flat_map(|path| self.exercise.names_of(path));
        let texts = names.filter_map(|path| fs::read_to_string(directory.join(path)).ok());
        texts.map(|text| text.matches(STUB).count()).sum()
    }

    /// Writes the initial files for the engineers to a directory.
    pub(crate) fn lay_out(&self, directory: &Path) -> Result<(), Box<dyn Error>> {
        copy(&self.blank, directory).map_err(Into::into)
    }
}

pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
