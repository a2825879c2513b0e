//! Archives: written wholly, replaced, read back and removed.

use std::io::{ErrorKind, Read as _};

use patchboard_kernel::id::BoardId;
use patchboard_storage::archives::Archives;

use crate::drivers::{Driver, for_every_driver};

for_every_driver!(an_archive_is_read_as_it_was_last_written, leftovers_of_an_interrupted_write_are_removed);

async fn read(archives: &dyn Archives, board: &BoardId) -> Result<String, ErrorKind> {
    let mut text = String::new();
    let mut source = archives.open(board).await.map_err(|error| error.kind())?;
    source.read_to_string(&mut text).expect("it is read");
    Ok(text)
}

async fn an_archive_is_read_as_it_was_last_written(driver: &impl Driver) {
    let archives = driver.archives();
    let [one, other] = ["one", "other"].map(BoardId::from);
    assert_eq!(read(&*archives, &one).await, Err(ErrorKind::NotFound));
    archives.remove(&one).await.expect("nothing to remove");
    for text in ["a line\n", &"another\n".repeat(10_000), ""] {
        archives.write(&one, text.to_owned()).await.expect("written");
        assert_eq!(read(&*driver.archives(), &one).await, Ok(text.to_owned()));
    }
    archives.write(&other, "of another board".to_owned()).await.expect("written");
    assert_ne!(archives.place(&one), archives.place(&other));
    archives.remove(&one).await.expect("removed");
    assert_eq!(read(&*archives, &one).await, Err(ErrorKind::NotFound));
    assert_eq!(read(&*archives, &other).await, Ok("of another board".to_owned()));
}

async fn leftovers_of_an_interrupted_write_are_removed(driver: &impl Driver) {
    let Some(directory) = driver.directory() else { return };
    let (archives, board) = (driver.archives(), BoardId::from("b"));
    archives.write(&board, "whole".to_owned()).await.expect("written");
    let folder = directory.join("archive");
    std::fs::write(folder.join("b.unfinished"), "a part of it, with what is erased").expect("written");
    assert_eq!(read(&*archives, &board).await, Ok("whole".to_owned()));
    archives.remove(&board).await.expect("removed");
    assert_eq!(std::fs::read_dir(folder).expect("a directory").count(), 0);
}
