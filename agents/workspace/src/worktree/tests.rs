//! External content written while a tree is edited.

use super::*;
use crate::disk::DiskOptions;

/// Stages `to` for a file, writes `meanwhile` externally and settles. Returns the result, the content and the kept
/// files.
fn settled(to: Option<&str>, meanwhile: &[u8]) -> (Result<String, String>, Vec<u8>, Vec<Vec<u8>>) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a.py"), "a = 1\n").expect("written");
    let disk = Disk::open(directory.path(), DiskOptions::default()).expect("a directory");
    let path = FilePath::parse("a.py").expect("a name");
    let from = disk.read(&path).expect("read").map(|contents| contents.hash);
    let staged = disk.stage(&path, from, to).expect("staged");
    fs::write(at("a.py"), meanwhile).expect("written");
    let outcome = settle(&disk, &staged).map_err(|trouble| CommandResult::from(trouble).code.expect("a code"));
    let displaced = fs::read_dir(at(".patchboard/displaced")).expect("listed");
    let displaced = displaced.map(|entry| fs::read(entry.expect("an entry").path()).expect("read")).collect();
    (outcome, fs::read(at("a.py")).expect("it is there"), displaced)
}

#[test]
fn external_writes_during_a_tree_edit_are_kept_or_reported() {
    let (outcome, now, _) = settled(Some("a = 2\n"), b"a = 1\n");
    assert_eq!((outcome, now), (Ok(String::new()), b"a = 2\n".to_vec()));
    for to in [Some("a = 2\n"), None] {
        let (outcome, now, _) = settled(to, b"a = 7\n");
        assert_eq!((outcome, now), (Err("file_busy".to_owned()), b"a = 7\n".to_vec()));
    }
    let (outcome, now, displaced) = settled(Some("a = 2\n"), b"\0");
    assert!(outcome.is_ok_and(|message| message.contains(".patchboard/displaced/")));
    assert_eq!((now, displaced), (b"a = 2\n".to_vec(), vec![b"\0".to_vec()]));
}

#[test]
fn external_writes_during_a_rollback_are_kept_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::open(directory.path(), DiskOptions::default()).expect("a directory");
    let path = FilePath::parse("a.py").expect("a name");
    let at = directory.path().join("a.py");
    for again in [None, Some("a = 8\n")] {
        fs::write(&at, "a = 2\n").expect("written");
        let from = disk.read(&path).expect("read").map(|contents| contents.hash);
        let staged = disk.stage(&path, from, Some("a = 7\n")).expect("staged");
        again.iter().for_each(|text| fs::write(&at, text).expect("written"));
        let result = CommandResult::from(put_back(&disk, &staged).expect("put back"));
        assert_eq!(result.code.as_deref(), Some("file_busy"));
        assert_eq!(fs::read(&at).expect("it is there"), b"a = 7\n");
        let kept = result.text.split_once(".patchboard/displaced/").map(|(_, kept)| kept.trim().trim_end_matches('.'));
        let kept = kept.map(|kept| fs::read_to_string(directory.path().join(".patchboard/displaced").join(kept)));
        assert_eq!(kept.transpose().expect("kept").as_deref(), again, "{}", result.text);
    }
}
