//! Reserved author names. Intents appear above edits as `# NAME: …` comments, so a name must not be a usual comment
//! prefix.

/// Words that commonly precede a colon in comments of people and programs, in lower case. An author with such a name
/// would be credited with all of these comments.
const COMMENT_WORDS: &str = "
    args attention author authors beware bug bugs caution caveat changed changelog clippy coding copyright cspell
    danger debug default deprecated description doc docs done error eslint example examples explanation file fix fixme
    flake8 fmt format frozen_string_literal global hack hint http https idea important info input internal isort issue
    language license licence lint mypy nb noinspection nolint noqa nosec nosonar note notes ok optimise optimize
    output param params perf performance pragma prettier purpose pylint pyright question raises rationale reason
    refactor remark returns review rubocop ruff safety security see shellcheck since source spdx-license-identifier
    step temp test tip tmp todo type typing undone usage version vim vi warn warning why workaround xxx yapf yields
";

/// Returns true if comments that are no intent commonly begin with this name.
pub fn is_comment_prefix(name: &str) -> bool {
    COMMENT_WORDS.split_whitespace().any(|word| word == name.to_lowercase())
}
