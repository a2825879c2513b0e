//! Real files with comments at random blocks, read by their languages' parsers: the meaning must not change.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Draw, language, report};
use crate::text::intent::{Signature, annotate};
use crate::text::language::Language;

/// Maximum number of files per language, to keep the run short.
const FILES_MAX: usize = 700;

/// Inserts comments twice, the second time over the first. Returns the text, the number of blocks, and how many got a
/// comment.
fn signed(text: &str, language: Language, draw: &mut Draw) -> (String, usize, usize) {
    let blocks = draw.blocks(text.split_inclusive('\n').count());
    let sign = |text: &str, intent| {
        let signature = Signature { language, author: "engineer_1", intent, is_author: &|name| name == "bob" };
        annotate(text, &blocks, &signature)
    };
    let once = sign(text, "it's \"quoted\" `ticked` {braced} (open [ \\");
    let placed = blocks.len() - once.without.len();
    let shifted: Vec<_> = once.lines.iter().map(|line| (*line + 1, *line + 1)).collect();
    let again = Signature { language, author: "engineer_1", intent: "another one", is_author: &|_| false };
    let twice = annotate(&once.text, &shifted, &again);
    let (lines, lines_twice) = (once.text.lines().count(), twice.text.lines().count());
    assert_eq!(lines_twice, lines, "the author's own comments are replaced\n{}", twice.text);
    (if draw.below(2) == 0 { once.text } else { twice.text }, blocks.len(), placed)
}

/// Collects the files with these name endings below a directory, or a single file.
fn files(below: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(below) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && !matches!(name.as_str(), "site-packages" | "target" | ".git") {
            files(&path, ends, found);
        } else if kind.is_file() && ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

/// Returns an evenly spread sample of the files.
fn some(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let step = files.len().div_ceil(FILES_MAX).max(1);
    files.into_iter().step_by(step).collect()
}

/// Returns a program's output; prints a line and returns none if it is missing or fails.
fn asked(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    if output.is_none() {
        report(&format!("SKIPPED: `{program}` is missing, or lacks what is asked of it"));
    }
    Some(String::from_utf8_lossy(&output?.stdout).trim().to_owned())
}

/// Signs the files and has a program compare each pair. The program gets a directory with `N` and `N.signed`. It prints
/// the names of those that differ, then the number compared.
fn compared(language: Language, files: &[PathBuf], program: &str, arguments: &[&str], at_least: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut draw = Draw(u64::try_from(files.len()).expect("a number"));
    let (mut texts, mut blocks, mut placed) = (0, 0, 0);
    for file in files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let (signed, of, got) = signed(&text, language, &mut draw);
        std::fs::write(directory.path().join(format!("{texts}")), &text).expect("written");
        std::fs::write(directory.path().join(format!("{texts}.signed")), &signed).expect("written");
        (texts, blocks, placed) = (texts + 1, blocks + of, placed + got);
    }
    let place = directory.path().to_string_lossy().into_owned();
    let output = Command::new(program).args(arguments).arg(&place).output().expect("it has run before");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = said.lines();
    let (checked, bad): (usize, Vec<&str>) =
        (lines.next_back().and_then(|n| n.parse().ok()).unwrap_or(0), lines.collect());
    report(&format!("{program}: {checked} of {texts} files compared, {placed} of {blocks} blocks signed"));
    if let Some(first) = bad.first() {
        let kept = directory.keep();
        panic!("{} files mean something else, the first is {}: {bad:?}", bad.len(), kept.join(first).display());
    }
    assert!(checked >= at_least, "{checked} files were compared: {errors}");
    assert!(placed * 10 >= blocks * 6, "most blocks get a comment: {placed} of {blocks}");
}

const PYTHON: &str = r"
import ast, pathlib, sys, warnings
warnings.simplefilter('ignore')
compared = 0
for file in sorted(pathlib.Path(sys.argv[1]).glob('*.signed')):
    try:
        before = ast.dump(ast.parse(file.with_suffix('').read_bytes()))
    except (SyntaxError, ValueError):
        continue
    compared += 1
    try:
        same = ast.dump(ast.parse(file.read_bytes())) == before
    except (SyntaxError, ValueError):
        same = False
    if not same:
        print(file.name)
print(compared)
";

/// Returns the files of the repository with these name endings.
fn own(ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), ends, &mut found);
    found
}

#[test]
fn signed_python_compiles_to_the_same() {
    let Some(_) = asked("python3", &["-c", "import ast"]) else { return };
    compared(language("a.py"), &own(&[".py"]), "python3", &["-c", PYTHON], 10);
}

#[test]
#[ignore = "full tier: reads the library of the installed Python"]
fn signed_python_of_the_library_compiles_to_the_same() {
    let Some(library) = asked("python3", &["-c", "import sysconfig; print(sysconfig.get_paths()['stdlib'])"]) else {
        return;
    };
    let mut found = Vec::new();
    files(Path::new(&library), &[".py"], &mut found);
    compared(language("a.py"), &some(found), "python3", &["-c", PYTHON], 300);
}

const SCRIPT: &str = r"
const fs = require('fs'), path = require('path');
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const bare = (text, sourceType) => JSON.stringify(
  acorn.parse(text, {ecmaVersion: 'latest', sourceType, allowHashBang: true, allowReturnOutsideFunction: true}),
  (key, value) => key === 'start' || key === 'end' ? undefined : typeof value === 'bigint' ? String(value) : value);
const place = process.argv[1];
let compared = 0;
for (const name of fs.readdirSync(place).filter((name) => name.endsWith('.signed'))) {
  const read = (name) => fs.readFileSync(path.join(place, name), 'utf8');
  let before, kind;
  for (kind of ['script', 'module']) { try { before = bare(read(name.slice(0, -7)), kind); break; } catch {} }
  if (before === undefined) continue;
  compared += 1;
  let same = false;
  try { same = bare(read(name), kind) === before; } catch {}
  if (!same) console.log(name);
}
console.log(compared);
";

#[test]
#[ignore = "full tier: reads the modules of the installed Node.js"]
fn signed_javascript_parses_to_the_same() {
    let place = "require('path').resolve(process.execPath, '../../lib/node_modules')";
    let Some(modules) = asked("node", &["-p", place]) else { return };
    let probe = "require('internal/deps/acorn/acorn/dist/acorn').version";
    if asked("node", &["--expose-internals", "-p", probe]).is_none() {
        return;
    }
    let mut found = Vec::new();
    files(Path::new(&modules), &[".js", ".cjs", ".mjs"], &mut found);
    if found.len() < 200 {
        report("SKIPPED: node comes without modules here");
        return;
    }
    let found = some(found);
    compared(language("a.js"), &found, "node", &["--expose-internals", "-e", SCRIPT], found.len() / 2);
}

const YAML: &str = r"
import pathlib, sys, yaml
def bare(node):
    if isinstance(node, yaml.ScalarNode):
        return (node.tag, node.value)
    if isinstance(node, yaml.SequenceNode):
        return (node.tag, [bare(n) for n in node.value])
    return (node.tag, [(bare(k), bare(v)) for k, v in node.value]) if node else None
read = lambda file: [bare(n) for n in yaml.compose_all(file.read_bytes())]
compared = 0
for file in sorted(pathlib.Path(sys.argv[1]).glob('*.signed')):
    try:
        before = read(file.with_suffix(''))
    except (yaml.YAMLError, RecursionError):
        continue
    compared += 1
    try:
        same = read(file) == before
    except yaml.YAMLError:
        same = False
    if not same:
        print(file.name)
print(compared)
";

/// Generates YAML documents in all styles, with misleading texts.
const WRITTEN_YAML: &str = r#"
import pathlib, random, sys, yaml
draw = random.Random(5)
words = ['a', 'key: value', '- item', '# no comment', 'it\'s', '\"', '{', ']', '|', 'x: |', '---', '', '  deep']
def text():
    return draw.choice([' ', '\n', '\n\n']).join(draw.choice(words) for _ in range(draw.randrange(1, 14)))
def value(depth):
    kind = draw.randrange(4 if depth < 4 else 2)
    if kind == 2:
        return {text()[:20]: value(depth + 1) for _ in range(draw.randrange(1, 5))}
    if kind == 3:
        return [value(depth + 1) for _ in range(draw.randrange(1, 5))]
    return text() if kind else draw.randrange(99)
for number in range(400):
    style = draw.choice([None, None, '|', '>', '\"', '\''])
    made = yaml.safe_dump_all(
        [value(0) for _ in range(draw.randrange(1, 3))], default_style=style, width=draw.choice([20, 80]),
        default_flow_style=draw.choice([False, False, None]), indent=draw.choice([2, 4]))
    (pathlib.Path(sys.argv[1]) / f'{number:03}.yaml').write_text(made)
"#;

#[test]
fn signed_yaml_reads_as_the_same() {
    let written = tempfile::tempdir().expect("a directory");
    let place = written.path().to_string_lossy().into_owned();
    if asked("python3", &["-c", WRITTEN_YAML, &place]).is_none() {
        return;
    }
    let mut found = Vec::new();
    files(written.path(), &[".yaml"], &mut found);
    found.extend(own(&[".yaml", ".yml"]));
    compared(language("a.yaml"), &some(found), "python3", &["-c", YAML], 300);
}

const TOML: &str = r"
import pathlib, sys, tomllib
compared = 0
for file in sorted(pathlib.Path(sys.argv[1]).glob('*.signed')):
    before = tomllib.loads(file.with_suffix('').read_text())
    compared += 1
    try:
        same = tomllib.loads(file.read_text()) == before
    except ValueError:
        same = False
    if not same:
        print(file.name)
print(compared)
";

#[test]
fn signed_toml_reads_as_the_same() {
    let Some(_) = asked("python3", &["-c", "import tomllib"]) else { return };
    compared(language("a.toml"), &some(own(&[".toml", "Cargo.lock"])), "python3", &["-c", TOML], 8);
}

const SHELL: &str = r#"
compared=0
for file in "$0"/*.signed; do
  before=$(bash --norc --pretty-print "${file%.signed}" 2>/dev/null | grep -v '^$')
  [ -n "$before" ] || continue
  compared=$((compared + 1))
  after=$(bash --norc --pretty-print "$file" 2>/dev/null | grep -v '^$')
  [ "$before" = "$after" ] || basename "$file"
done
echo "$compared"
"#;

/// Generates statements of a shell, with misleading texts.
fn shell(draw: &mut Draw, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let mut text = String::new();
    for _ in 0..=draw.below(4) {
        let word =
            ["a", "'it is # no comment'", "\"$x `echo b`\"", "\"two\nlines ' # \"", "'two\nlines \"'", "$(echo c)"]
                [draw.below(6)];
        let block = |draw: &mut Draw| shell(draw, depth + 1);
        let simple = depth > 3;
        let statement = match draw.below(if simple { 6 } else { 11 }) {
            0 => format!("echo {word} # said \"once"),
            1 => format!("x={word}"),
            2 => format!("echo {word} \\\n{indent}  more"),
            3 => format!("cat <<EOF{}\n  # text {word}\n`\nEOF", ["", " | cat"][draw.below(2)]),
            4 => format!("x=`\n{indent}  echo a\n{indent}  echo {}`", draw.below(9)),
            5 => "# a 'comment".to_owned(),
            6 => format!("if [ -n {word} ]; then\n{}{indent}else\n{}{indent}fi", block(draw), block(draw)),
            7 => format!("for i in {word} b; do\n{}{indent}done", block(draw)),
            8 => format!("while read -r line; do\n{}{indent}done </dev/null", block(draw)),
            9 => format!("case {word} in\n{indent}a | b)\n{}{indent}  ;;\n{indent}*) : ;;\n{indent}esac", block(draw)),
            _ => format!("f() {{\n{}{indent}}}", block(draw)),
        };
        text.push_str(&format!("{indent}{statement}\n"));
        // A block needs a command.
        text.push_str(&format!("{indent}:\n"));
    }
    text
}

#[test]
fn signed_shell_scripts_parse_to_the_same() {
    let Some(_) = asked("bash", &["--pretty-print", "-c", "true"]) else { return };
    let written = tempfile::tempdir().expect("a directory");
    let mut draw = Draw(11);
    for number in 0..120 {
        let script = format!("#!/bin/sh\n{}", shell(&mut draw, 0));
        std::fs::write(written.path().join(format!("{number:03}.sh")), script).expect("written");
    }
    let mut found = Vec::new();
    files(written.path(), &[".sh"], &mut found);
    compared(language("a.sh"), &found, "bash", &["-c", SHELL], 110);
}

#[test]
fn signed_rust_has_the_same_tokens() {
    let mut found = Vec::new();
    for part in ["src", "../src", "../../runtime", "../../daemon/src"] {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(part), &[".rs"], &mut found);
    }
    let mut draw = Draw(3);
    let (mut blocks, mut placed) = (0, 0);
    for file in &found {
        let text = std::fs::read_to_string(file).expect("a source");
        let (signed, of, got) = signed(&text, language("a.rs"), &mut draw);
        let tokens = |text: &str| text.parse::<proc_macro2::TokenStream>().map(|tokens| tokens.to_string());
        let (before, after) = (tokens(&text).expect("it compiles"), tokens(&signed));
        assert!(after.is_ok_and(|after| after == before), "{}", file.display());
        (blocks, placed) = (blocks + of, placed + got);
    }
    report(&format!("rust: {} files compared, {placed} of {blocks} blocks signed", found.len()));
    assert!(found.len() > 100 && placed * 10 >= blocks * 9, "{placed} of {blocks}");
}
