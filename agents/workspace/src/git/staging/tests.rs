//! Files are staged as they were found, whatever git is configured to do.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use super::*;
use crate::disk::DiskOptions;

fn sh(root: &Path, script: &str) -> String {
    let script = format!("git() {{ command git -c user.name=me -c user.email=me@x \"$@\"; }}\n{script}");
    let ran = Command::new("sh").args(["-ec", &script]).current_dir(root).output().expect("sh runs");
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

/// Stages the scan of a directory; `meanwhile` runs between both. Returns the tree and the omissions.
async fn tree(root: &Path, meanwhile: impl FnOnce()) -> (String, Vec<String>) {
    let repository = Repository::open(root, "me").await.expect("a repository");
    let head = repository.head().await.expect("asked");
    let base = repository.begin(head.as_deref()).await.expect("a tree");
    let disk = Arc::new(Disk::open(root, DiskOptions::default()).expect("a directory"));
    let mut found = ScannedFiles::for_repository(&repository);
    disk.scan_with(&mut |path, contents| found.see(path, contents)).expect("looked through");
    meanwhile();
    let staged = stage(&repository, &base, &disk, found, |_, _| IncludeDecision::Yes).await;
    let (tree, omissions) = staged.expect("a tree");
    (tree, omissions.messages())
}

#[tokio::test]
async fn staging_takes_the_contents_found_despite_concurrent_edits() {
    for format in ["sha1", "sha256"] {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        sh(root, &format!("git init -q --object-format={format}; echo a > a; echo b > b; echo c > c"));
        sh(root, "git add .; git commit -qm begin; echo a2 > a; echo b2 > b; rm c");
        fs::write(root.join("\"d e"), "d\n").expect("written");
        let meanwhile = || {
            // Others edit meanwhile, and one of them redirects a name to another file.
            fs::write(root.join("a"), "a3\n").expect("written");
            fs::write(root.join("c"), "c3\n").expect("written");
            fs::remove_file(root.join("b")).expect("removed");
            symlink("/etc/passwd", root.join("b")).expect("linked");
        };
        let (tree, said) = tree(root, meanwhile).await;
        let changed =
            "3 files are left out, as others were changing something there; it can be asked for again: a, b, c";
        assert_eq!(said, [changed], "{format}");
        let named = sh(root, &format!("git ls-tree -r --name-only {tree}"));
        assert_eq!(named, "\"\\\"d e\"\na\nb\nc\n", "{format}");
        assert_eq!(sh(root, &format!("git show {tree}:a {tree}:b {tree}:c '{tree}:\"d e'")), "a\nb\nc\nd\n");
    }
}

#[tokio::test]
async fn modes_and_kinds_of_files_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    sh(root, "git init -q; echo a > a; echo b > b; ln -s a l; ln -s a m; mkdir d; echo x > d/x; echo y > e");
    sh(root, "chmod +x b; git add .; git commit -qm begin; chmod +x a; echo b2 > b; rm m; echo m > m");
    sh(root, "rm -r d e; echo d > d; mkdir e; echo y > e/y; echo n > n; chmod 755 n");
    let modes = async || {
        let (tree, said) = tree(root, || ()).await;
        assert!(said.is_empty(), "{said:?}");
        sh(root, &format!("git ls-tree -r {tree} | sed 's/ blob [0-9a-f]*//' | tr '\\t\\n' ': '"))
    };
    assert_eq!(modes().await, "100755:a 100755:b 100644:d 100644:e/y 120000:l 100644:m 100755:n ");
    // If the file system has no modes, the committed ones stay.
    sh(root, "git config core.fileMode false; chmod -x b");
    assert_eq!(modes().await, "100644:a 100755:b 100644:d 100644:e/y 120000:l 100644:m 100644:n ");
    let mode = fs::metadata(root.join("a")).expect("there").permissions().mode();
    assert_eq!(mode & 0o100, 0o100, "and nothing is done to the files");
}

#[tokio::test]
async fn git_attributes_leave_staged_contents_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    sh(root, "git init -q; printf 'k filter=crypt\\ni ident\\n*.bat eol=crlf\\n' > .gitattributes");
    sh(root, "git config filter.crypt.clean 'touch ran; tr a-z A-Z'; echo a > a; echo k > k; echo '$Id$' > i");
    sh(root, "printf 'x\\ny\\n' > w.bat; git add .; git commit -qm begin; rm -f ran");
    // As committed: the programs of others converted these files, and the result is theirs to commit.
    sh(root, "echo k2 > k; echo '$Id: 1 $' > i; printf 'x\\r\\ny\\r\\n' > w.bat");
    let before = sh(root, "git rev-parse HEAD^{tree}");
    let is_named = |said: &[String]| match said {
        [said] => said.starts_with("2 files are left out, as what git would commit") && said.ends_with(": i, k"),
        _ => false,
    };
    let (same, said) = tree(root, || ()).await;
    assert_eq!(same, before.trim());
    assert!(is_named(&said), "{said:?}");
    // Attributes that an editor of this workspace could write.
    let attributes = "* filter=crypt ident working-tree-encoding=UTF-16\n";
    fs::write(root.join(".gitattributes"), attributes).expect("written");
    sh(root, "echo 'a2 $Id: 1 $' > a; printf 'x\\r\\nz\\r\\n' > w.bat; printf 'n\\r\\n' > n");
    let (tree, said) = tree(root, || ()).await;
    assert!(is_named(&said), "{said:?}");
    assert_eq!(sh(root, &format!("git show {tree}:.gitattributes")), attributes);
    assert_eq!(sh(root, &format!("git show {tree}:a {tree}:k")), "a2 $Id: 1 $\nK\n");
    assert_eq!(sh(root, &format!("git show {tree}:w.bat {tree}:n")), "x\nz\nn\r\n");
    assert!(!root.join("ran").exists());
}

#[tokio::test]
async fn files_outside_a_sparse_checkout_stay_in_the_tree() {
    for form in ["--no-sparse-index", "--sparse-index"] {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        sh(root, "git init -q; mkdir x y; echo a > x/a; echo b > x/b; echo c > y/c; git add .; git commit -qm begin");
        sh(root, &format!("git sparse-checkout set {form} x; test ! -e y"));
        let before = sh(root, "git rev-parse HEAD^{tree}");
        assert_eq!(tree(root, || ()).await, (before.trim().to_owned(), vec![]), "{form}");
        // Existing files count, inside the sparse checkout or not.
        sh(root, "rm x/a; mkdir y; echo d > y/d");
        let (tree, _) = tree(root, || ()).await;
        assert_eq!(sh(root, &format!("git ls-tree -r --name-only {tree}")), "x/b\ny/c\ny/d\n", "{form}");
    }
}
