//! Replies that are no patches: the forms in which the roles of a blackboard speak.
//!
//! Owns their names, how a worker is told of them, and what a worker is woken for where that decides what its words
//! become. What they become is for whoever fills the seat to work out (`docs/blackboard.md`).

use crate::rejection::coded;

coded! {
    /// The form of a worker's replies.
    Format {
        /// Roles of experts with what each is for.
        Generator = "generator",
        /// Names of those who work next.
        Control = "control",
        /// What the problem is, and how to go about it.
        Planner = "planner",
        /// The answer, marked as such.
        Decider = "decider",
        /// Messages that are wrong, and why.
        Critic = "critic",
        /// Messages that are of no use, and why.
        Cleaner = "cleaner",
        /// Messages that contradict each other, and whose they are.
        ConflictResolver = "conflict_resolver",
        /// What an expert has to say.
        Expert = "expert",
    }
}

/// What a worker with a [`Format`] is woken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// What its role is.
    Own,
    /// Its turn in a room, an element of `/board/rooms/*/agenda`.
    Room,
    /// To say its answer: something at `/ballot`.
    Ballot,
}

impl Occasion {
    /// That of an event at this place; of nothing else.
    pub fn of(woken_at: Option<&str>) -> Self {
        let tokens: Vec<&str> = woken_at.unwrap_or_default().split('/').skip(1).take(6).collect();
        match tokens.as_slice() {
            ["board", "rooms", _, "agenda", _] => Self::Room,
            ["ballot", ..] => Self::Ballot,
            _ => Self::Own,
        }
    }
}

/// How somebody speaks in a room.
const OUTPUT: &str = "{\"output\": \"...\"}";

/// How somebody gives an answer.
const ANSWER: &str = "{\"reasoning\": \"...\", \"boxed\": \"the final answer alone\"}";

impl Format {
    /// A reply of this form, with dots where words belong.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Generator => "{\"experts\": [{\"role\": \"...\", \"description\": \"...\"}]}",
            Self::Control => "{\"chosen agents\": [\"...\", \"...\"]}",
            Self::Planner => "{\"[problem]\": \"...\", \"[planning]\": \"...\"}",
            Self::Decider => ANSWER,
            Self::Critic => "{\"critic list\": [{\"wrong message\": \"...\", \"explanation\": \"...\"}]}",
            Self::Cleaner => "{\"clean list\": [{\"useless message\": \"...\", \"explanation\": \"...\"}]}",
            Self::ConflictResolver => {
                "{\"conflict list\": [{\"agent\": \"...\", \"message\": \"...\"}, {\"agent\": \"...\", \"message\": \"...\"}]}"
            }
            Self::Expert => "{\"reasoning\": \"...\", \"output\": \"what comes of it\"}",
        }
    }

    /// The form of a reply on this occasion.
    pub const fn form_on(self, occasion: Occasion) -> &'static str {
        match occasion {
            Occasion::Own => self.form(),
            Occasion::Room => OUTPUT,
            Occasion::Ballot => ANSWER,
        }
    }

    /// Whether all that is said in it rests on messages of others.
    pub const fn is_of_messages(self) -> bool {
        matches!(self, Self::Critic | Self::Cleaner | Self::ConflictResolver | Self::Decider)
    }

    /// What who has nothing to say says instead; none where there is always something to say.
    pub const fn sentinel(self) -> Option<&'static str> {
        match self {
            Self::Planner => Some("there is no need to decompose tasks, waiting for more information"),
            Self::Decider => Some("continue, waiting for more information"),
            Self::Critic => Some("no problem, waiting for more information"),
            Self::Cleaner => Some("no useless messages, waiting for more information"),
            Self::ConflictResolver => Some("no conflicts, waiting for more information"),
            Self::Generator | Self::Control | Self::Expert => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_is_woken_for_follows_from_the_place() {
        for (place, occasion) in [
            (None, Occasion::Own),
            (Some(""), Occasion::Own),
            (Some("/rounds/0/agents/1"), Occasion::Own),
            (Some("/board/rooms/a~1b/agenda/3"), Occasion::Room),
            (Some("/board/rooms/a/agenda"), Occasion::Own),
            (Some("/board/rooms/a/agenda/3/who"), Occasion::Own),
            (Some("/ballot"), Occasion::Ballot),
            (Some("/ballot/open"), Occasion::Ballot),
            (Some("/ballots"), Occasion::Own),
        ] {
            assert_eq!(Occasion::of(place), occasion, "{place:?}");
        }
    }
}
