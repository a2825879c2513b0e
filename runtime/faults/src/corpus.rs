//! Texts that are used beside our own: what models really wrote, and what attackers really wrote.

use crate::instructions::TEXTS;
use crate::malformed::is_malformed;
use crate::random::Random;

/// Given texts; none, unless somebody gives some.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    malformed: Vec<String>,
    instructions: Vec<String>,
}

/// The most characters of a planted text.
const PLANTED_MAX: usize = 400;

impl Corpus {
    /// Adds what a model wrote, if it is no JSON.
    pub fn add_malformed(&mut self, text: &str) {
        if is_malformed(text) {
            self.malformed.push(text.to_owned());
        }
    }

    /// Adds what an attacker wrote.
    pub fn add_instruction(&mut self, text: &str) {
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            self.instructions.push(text.chars().take(PLANTED_MAX).collect());
        }
    }

    /// How many texts there are of either kind.
    pub fn len(&self) -> (usize, usize) {
        (self.malformed.len(), self.instructions.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Every second time one of those that were given, if any were.
    pub(crate) fn malformed(&self, random: &mut Random) -> Option<String> {
        (!self.malformed.is_empty() && random.percent(50)).then(|| random.pick(&self.malformed).clone())
    }

    /// One of those that were given, or of our own.
    pub(crate) fn instruction(&self, random: &mut Random) -> String {
        if !self.instructions.is_empty() && random.percent(50) {
            return random.pick(&self.instructions).clone();
        }
        (*random.pick(TEXTS)).to_owned()
    }
}
