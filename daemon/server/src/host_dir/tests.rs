//! Locks, names, settings and addresses of hosts and agents at one directory.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::{Address, File, HostDir, SETTINGS_BYTES_MAX, WorkspaceConfig};
use crate::failure::Failure;

fn address(port: u16) -> Address {
    Address { port, token: "t".to_owned(), board: "b".to_owned(), pid: 7 }
}

fn refused<T>(result: Result<T, Failure>, why: &str) {
    refused_with("workspace_untrusted", result, why);
}

fn refused_with<T>(code: &str, result: Result<T, Failure>, why: &str) {
    let Some(Failure::Error(error)) = result.err() else { panic!("it is not refused") };
    assert!(error.code == code && error.message.contains(why), "{}", error.message);
}

#[test]
fn one_is_the_host_and_each_has_a_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, other) =
        (HostDir::open(directory.path()).expect("opened"), HostDir::open(directory.path()).expect("opened"));
    let host = one.host().expect("it can be locked").expect("nobody is");
    assert!(other.host().expect("it can be locked").is_none());
    let (first, kept) = one.name("ada", true).expect("a name");
    let called = |bare: bool| other.name("ada", bare).expect("a name").0;
    assert_eq!((first.as_str(), called(true), called(false)), ("ada", "ada-2".to_owned(), "ada-1".to_owned()));
    drop((host, kept));
    assert!(other.host().expect("it can be locked").is_some());
    assert_eq!(called(true), "ada");
    let mut names = one.names();
    names.sort();
    assert_eq!(names, ["ada", "ada-1", "ada-2"]);
}

#[test]
fn locks_lapse_when_their_files_are_removed_or_moved() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join(".patchboard");
    let place = HostDir::open(directory.path()).expect("opened");
    let lock = place.host().expect("it can be locked").expect("nobody is");
    let (name, called) = place.name("ada", true).expect("a name");
    assert!(place.is_current() && place.is_host(&lock) && place.holds_name(&name, &called));
    for file in ["host.lock", "agent-ada.lock"] {
        std::fs::remove_file(own.join(file)).expect("removed");
    }
    assert!(place.is_current() && !place.is_host(&lock) && !place.holds_name(&name, &called));
    std::fs::rename(&own, directory.path().join("elsewhere")).expect("moved");
    let other = HostDir::open(directory.path()).expect("opened");
    assert!(!place.is_current() && other.is_current());
    assert!(other.host().expect("it can be locked").is_some());
}

#[test]
fn a_path_into_the_directory_is_known_by_any_of_its_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("src")).expect("directories");
    symlink(&root, directory.path().join("link")).expect("a link");
    let place = HostDir::open(&directory.path().join("link")).expect("opened");
    let within = |path: &str| place.within(&directory.path().join(path)).map(|rest| rest.display().to_string());
    for (path, rest) in [("root/src/a.py", "src/a.py"), ("link/no/b.py", "no/b.py"), ("root", ""), ("link/", "")] {
        assert_eq!(within(path).as_deref(), Some(rest), "{path}");
    }
    assert_eq!((within("roots/a.py"), within("a.py")), (None, None));
}

#[test]
fn settings_are_read_from_a_file_and_from_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = HostDir::open(directory.path()).expect("opened");
    let file = directory.path().join("patchboard.toml");
    assert_eq!(place.settings().expect("there are none"), WorkspaceConfig::default());
    std::fs::write(&file, "[workspace]\nannotate = false\n").expect("written");
    assert_eq!(place.settings().expect("read").annotate, Some(false));
    std::fs::write(&file, "[workspace]\nanotate = false\n").expect("written");
    refused_with("bad_config", place.settings(), "line 2");
    std::fs::write(&file, b"\xff").expect("written");
    refused_with("bad_config", place.settings(), "cannot be read");
    File::options().write(true).open(&file).and_then(|file| file.set_len(SETTINGS_BYTES_MAX + 1)).expect("written");
    refused_with("bad_config", place.settings(), "at most");
    std::fs::remove_file(&file).expect("removed");
    symlink("/etc/hostname", &file).expect("a link");
    refused_with("bad_config", place.settings(), "symbolic link");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a directory");
    refused_with("bad_config", place.settings(), "is no file");
}

#[test]
fn an_address_is_for_its_owner_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = HostDir::open(directory.path()).expect("opened");
    assert_eq!(place.address(), None);
    for port in [1, 2] {
        place.write_address(&address(port)).expect("written");
        assert_eq!(place.address(), Some(address(port)));
    }
    let file = directory.path().join(".patchboard/host.json");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    // An address that others could have written, or that is malformed, is not used.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("changed");
    assert_eq!(place.address(), None);
    place.write_address(&address(3)).expect("written");
    std::fs::write(&file, "{}").expect("written");
    assert_eq!(place.address(), None);
    place.remove_address();
    assert!(!file.exists());
}

#[test]
fn links_lead_nowhere() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let outside = || std::fs::read_dir(elsewhere.path()).expect("a directory").count();
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join(".patchboard");
    symlink(elsewhere.path(), &own).expect("a link");
    refused(HostDir::open(directory.path()), "is not a directory of its own");
    std::fs::remove_file(&own).expect("removed");
    let place = HostDir::open(directory.path()).expect("opened");
    symlink(elsewhere.path(), own.join("workspace")).expect("a link");
    refused(place.data(), "is not a directory of its own");
    std::fs::remove_file(own.join("workspace")).expect("removed");
    let data = place.data().expect("a directory");
    symlink(elsewhere.path().join("stolen.db"), data.join("patchboard.db")).expect("a link");
    refused(place.data(), "is a symbolic link");
    for name in ["host.lock", "host.log", "agent-ada.lock"] {
        symlink(elsewhere.path().join(name), own.join(name)).expect("a link");
    }
    refused(place.host(), "cannot be opened");
    refused(place.log(), "cannot be opened");
    refused(place.name("ada", true), "cannot be opened");
    std::fs::write(elsewhere.path().join("host.json"), serde_json::json!(address(1)).to_string()).expect("written");
    symlink(elsewhere.path().join("host.json"), own.join("host.json")).expect("a link");
    assert_eq!(place.address(), None);
    place.write_address(&address(2)).expect("written");
    assert_eq!((place.address(), outside()), (Some(address(2)), 1));
}
