//! Third-party clients against a real daemon: the scripts of `tests/clients`, with packages at pinned versions.
//!
//! Each client is a directory with its script and dependencies: `package.json` and its lock for Node,
//! `requirements.txt` for Python, and `install.py` for other downloads. A client is installed once below the target
//! directory, and again when these files change. These tests belong to the full tier. If a client cannot be installed
//! (no tool, no network), its test prints that and passes; after that the client's own verdict counts. With
//! `PATCHBOARD_REQUIRE_CLIENTS` set, as in the full tier, a failed installation fails the test.

mod agui;
mod diagrams;
mod engines;
mod mcp;
mod openapi;
mod sw4rm;
mod workspace;

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for installing the packages of one client.
const INSTALL_TIME: Duration = Duration::from_secs(300);

/// An installed client.
pub(crate) struct Client {
    /// Copy of the client's directory, with its packages.
    home: PathBuf,
    /// Interpreter of the script.
    interpreter: PathBuf,
}

/// Installer of a client's packages into a directory.
type Install = fn(&Path) -> Result<(), String>;

/// Result of a command.
struct Ran {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Client {
    /// Returns the client with this name; prints a line and returns `None` if it cannot be installed here.
    pub(crate) fn find(name: &str) -> Option<Self> {
        match Self::install(name) {
            Ok(client) => Some(client),
            Err(why) => {
                assert!(std::env::var_os("PATCHBOARD_REQUIRE_CLIENTS").is_none(), "client {name}: {why}");
                // Bypasses the test harness's capture of output. A closed terminal is no reason to fail.
                let _ = writeln!(std::io::stderr(), "SKIPPED: client {name}: {why}");
                None
            }
        }
    }

    fn install(name: &str) -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients").join(name);
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
        let home = all.join(name);
        fs::create_dir_all(&home).expect("the target directory can be written");
        // Tests run in parallel, each in its own process.
        let alone = File::create(all.join(format!("{name}.lock"))).expect("the target directory can be written");
        alone.lock().expect("a file can be locked");
        for file in fs::read_dir(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display())) {
            let (from, to) = file.map(|file| (file.path(), home.join(file.file_name()))).expect("an entry");
            // Another test may be about to read the file.
            if fs::read(&from).ok() != fs::read(&to).ok() {
                fs::copy(from, to).expect("a file can be copied");
            }
        }
        let (needs, interpreter, install): (&str, PathBuf, Install) = if home.join("package.json").exists() {
            ("package-lock.json", PathBuf::from("node"), install_node)
        } else {
            ("requirements.txt", home.join("venv/bin/python"), install_python)
        };
        let (wanted, stamp) =
            (fs::read(home.join(needs)).expect("a client says what it needs"), home.join("installed"));
        if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            install(&home)?;
            fs::write(&stamp, wanted).expect("the target directory can be written");
        }
        Ok(Self { home, interpreter })
    }

    /// Runs one of the client's scripts and returns its stdout.
    ///
    /// # Panics
    /// If the script fails or exceeds `limit`.
    pub(crate) fn run(&self, script: &str, arguments: &[&str], limit: Duration) -> String {
        self.run_with(script, arguments, &[], limit)
    }

    /// Like [`Self::run`], with environment variables.
    ///
    /// # Panics
    /// If the script fails or exceeds the limit.
    pub(crate) fn run_with(
        &self,
        script: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
        limit: Duration,
    ) -> String {
        let mut command = Command::new(&self.interpreter);
        command.arg(script).args(arguments).envs(variables.iter().copied()).current_dir(&self.home);
        let ran = run(&mut command, limit).unwrap_or_else(|why| panic!("{script}: {why}"));
        assert!(ran.status.success(), "{script} failed: {}\n{}\n{}", ran.status, ran.stdout, ran.stderr);
        ran.stdout
    }
}

fn install_node(home: &Path) -> Result<(), String> {
    let quick = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"];
    installing(Command::new("npm").arg("ci").args(quick).current_dir(home))
}

fn install_python(home: &Path) -> Result<(), String> {
    installing(Command::new("python3").args(["-m", "venv", "--clear", "venv"]).current_dir(home))?;
    let quick = ["--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];
    let mut install = Command::new(home.join("venv/bin/python"));
    installing(install.args(["-m", "pip", "install"]).args(quick).args(["-r", "requirements.txt"]).current_dir(home))?;
    match home.join("install.py").exists() {
        true => installing(Command::new(home.join("venv/bin/python")).arg("install.py").current_dir(home)),
        false => Ok(()),
    }
}

fn installing(command: &mut Command) -> Result<(), String> {
    let ran = run(command, INSTALL_TIME)?;
    let last = ran.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("without a word");
    if ran.status.success() { Ok(()) } else { Err(format!("{:?} ended with {last}", command.get_program())) }
}

/// Runs a command to its end or to its time limit; afterwards none of its processes is left.
fn run(command: &mut Command, limit: Duration) -> Result<Ran, String> {
    let name = command.get_program().to_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", name.display()))?;
    let stdout = reading(child.stdout.take().expect("it is piped"));
    let stderr = reading(child.stderr.take().expect("it is piped"));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break Some(status),
            None if begun.elapsed() > limit => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if status.is_none() {
        let killed = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
        assert!(killed.is_ok_and(|killed| killed.success()), "{} cannot be killed", name.display());
        child.wait().expect("it was killed");
    }
    let (stdout, stderr) = (stdout.join().expect("it reads"), stderr.join().expect("it reads"));
    match status {
        Some(status) => Ok(Ran { status, stdout, stderr }),
        None => Err(format!("{} took longer than {} s\n{stdout}\n{stderr}", name.display(), limit.as_secs())),
    }
}

/// Reads to the end in a thread, so that a full pipe cannot block the process.
fn reading(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_began() {
    let begun = Instant::now();
    let ran = run(Command::new("sh").args(["-c", "echo begun; sleep 60 & sleep 60"]), Duration::from_millis(300));
    let why = ran.err().expect("it took too long");
    assert!(why.contains("took longer") && why.contains("begun"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(30), "something kept its output open");
}

#[test]
fn failed_installations_report_the_cause() {
    let why = installing(Command::new("sh").args(["-c", "echo no network >&2; exit 1"])).expect_err("it fails");
    assert!(why.contains("no network"), "{why}");
    let why = installing(&mut Command::new("no-such-tool")).expect_err("it is not there");
    assert!(why.contains("no-such-tool"), "{why}");
}

#[test]
#[should_panic(expected = "agui.mjs failed")]
fn a_client_that_fails_is_not_skipped() {
    match Client::find("agui") {
        // Without a daemon's address the script fails.
        Some(client) => drop(client.run("agui.mjs", &[], Duration::from_secs(60))),
        None => panic!("agui.mjs failed: it is not installed here"),
    }
}
