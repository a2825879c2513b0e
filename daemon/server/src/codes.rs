//! Meanings of the stable codes, from `docs/codes.md`; a test keeps that page equal to the enums.

const PAGE: &str = include_str!("../../../docs/codes.md");

/// Code and its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Heading of its section, e.g. `Refusals`.
    pub section: &'static str,
    /// Stable code.
    pub code: &'static str,
    /// Last column of the table.
    pub meaning: &'static str,
}

/// Returns all rows of the page's tables, in order.
pub fn entries() -> impl Iterator<Item = Entry> {
    let mut section = "";
    PAGE.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let (code, rest) = cells.split_once('`')?;
        let (_, meaning) = rest.rsplit_once(" | ")?;
        Some(Entry { section, code, meaning })
    })
}

#[cfg(test)]
mod tests {
    use patchboard_kernel::rejection::Code;

    use super::entries;

    #[test]
    fn every_code_of_a_finding_or_a_rejection_can_be_explained() {
        let refusals = Code::ALL.iter().map(|code| code.as_str());
        let findings = patchboard_protocols::codes().map(|(code, ..)| *code);
        for code in refusals.chain(findings) {
            let entry = entries().find(|entry| entry.code == code);
            assert!(entry.is_some_and(|entry| !entry.meaning.is_empty()), "{code} is not explained");
        }
    }
}
