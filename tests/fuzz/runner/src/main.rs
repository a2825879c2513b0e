//! Passes libFuzzer's inputs to the target named by the variable `PATCHBOARD_FUZZ_TARGET`.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use patchboard_fuzz::Target;

/// The target, and a file with the current input, because after a stack overflow no code can write it.
static CHOSEN: OnceLock<(&Target, Option<File>)> = OnceLock::new();

fn chosen() -> (&'static Target, Option<File>) {
    let name = std::env::var("PATCHBOARD_FUZZ_TARGET").expect("PATCHBOARD_FUZZ_TARGET names a target");
    let target = Target::named(&name).unwrap_or_else(|| panic!("there is no target {name}"));
    let kept = std::env::var_os("PATCHBOARD_FUZZ_LAST").map(|path| File::create(path).expect("a file can be made"));
    (target, kept)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (target, kept) = CHOSEN.get_or_init(chosen);
    if let Some(file) = kept {
        file.set_len(data.len() as u64).and_then(|()| file.write_all_at(data, 0)).expect("a file can be written");
    }
    target.run(data);
});
