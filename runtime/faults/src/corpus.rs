//! Texts added to the built-in ones: malformed model output and real prompt injections.

use crate::instructions::TEXTS;
use crate::malformed::is_malformed;
use crate::random::Random;

/// Added texts; empty by default.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    malformed: Vec<String>,
    instructions: Vec<String>,
}

/// Maximum length of a planted text, in characters.
const PLANTED_MAX: usize = 400;

impl Corpus {
    /// Adds model output, if it is not valid JSON.
    pub fn add_malformed(&mut self, text: &str) {
        if is_malformed(text) {
            self.malformed.push(text.to_owned());
        }
    }

    /// Adds a prompt injection.
    pub fn add_instruction(&mut self, text: &str) {
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            self.instructions.push(text.chars().take(PLANTED_MAX).collect());
        }
    }

    /// Returns the number of malformed texts and of prompt injections.
    pub fn len(&self) -> (usize, usize) {
        (self.malformed.len(), self.instructions.len())
    }

    /// Returns true if no texts were added.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Returns one of the added malformed texts, with a probability of one half, if there are any.
    pub(crate) fn malformed(&self, random: &mut Random) -> Option<String> {
        (!self.malformed.is_empty() && random.percent(50)).then(|| random.pick(&self.malformed).clone())
    }

    /// Returns an added prompt injection, or a built-in one.
    pub(crate) fn instruction(&self, random: &mut Random) -> String {
        if !self.instructions.is_empty() && random.percent(50) {
            return random.pick(&self.instructions).clone();
        }
        (*random.pick(TEXTS)).to_owned()
    }
}
