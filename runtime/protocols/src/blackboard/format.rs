//! Reply formats of the blackboard roles: replies that are not patches.
//!
//! Owns the names of the formats, their examples for prompts, and the occasions that select one. The agent that serves
//! the worker turns a reply into a patch (`docs/blackboard.md`).

use jsonptr::Pointer;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::pattern::Pattern;
use patchboard_kernel::rejection::code_enum;

code_enum! {
    /// The format of a worker's replies.
    ReplyFormat {
        /// Expert roles with a description of each.
        Generator = "generator",
        /// Names of the agents that work next.
        Control = "control",
        /// The problem and a plan for it.
        Planner = "planner",
        /// The final answer, marked as such.
        Decider = "decider",
        /// Wrong messages, each with an explanation.
        Critic = "critic",
        /// Useless messages, each with an explanation.
        Cleaner = "cleaner",
        /// Contradictory messages with their authors.
        ConflictResolver = "conflict_resolver",
        /// An expert's contribution.
        Expert = "expert",
    }
}

/// Purpose for which a worker with a [`ReplyFormat`] is triggered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyPurpose {
    /// The work of its role.
    Own,
    /// A turn in a room, an element of `/board/rooms/*/agenda`.
    Room,
    /// A vote for an answer, triggered by a change at `/ballot`.
    Ballot,
}

impl ReplyPurpose {
    /// Returns the occasion of an event at this place; [`Self::Own`] for any place outside rooms and ballots.
    pub fn for_place(woken_at: Option<&str>) -> Self {
        let place = woken_at.and_then(|place| Pointer::parse(place).ok());
        let found = place.and_then(|place| Self::by_place().find(|(path, _)| path.matches(place)));
        found.map_or(Self::Own, |(_, purpose)| purpose)
    }

    /// Returns the occasions of events at special places.
    pub(super) fn by_place() -> impl Iterator<Item = (Pattern, Self)> {
        let places = [("/board/rooms/*/agenda/*", Self::Room), ("/ballot/**", Self::Ballot)];
        places.into_iter().filter_map(|(path, purpose)| Some((Pattern::parse(path).ok()?, purpose)))
    }
}

/// Reply format for a turn in a room.
const OUTPUT: &str = "{\"output\": \"...\"}";

/// Reply format for an answer.
const ANSWER: &str = "{\"reasoning\": \"...\", \"boxed\": \"the final answer alone\"}";

impl ReplyFormat {
    /// Returns the format of this name. The error is a message that has all names.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        serde_json::from_value(name.into()).map_err(|error| error.to_string())
    }

    /// Returns the format of a worker's replies; `None` if they are patches.
    pub fn of_worker(worker: &Worker) -> Option<Self> {
        Self::from_name(worker.format.as_deref()?)
    }

    /// Returns an example reply of this format, with dots in place of words.
    pub const fn example(self) -> &'static str {
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

    /// Returns the example reply for this occasion.
    pub const fn example_for(self, purpose: ReplyPurpose) -> &'static str {
        match purpose {
            ReplyPurpose::Own => self.example(),
            ReplyPurpose::Room => OUTPUT,
            ReplyPurpose::Ballot => ANSWER,
        }
    }

    /// Returns true if every such reply refers to messages of other agents.
    pub const fn is_of_messages(self) -> bool {
        matches!(self, Self::Critic | Self::Cleaner | Self::ConflictResolver | Self::Decider)
    }

    /// Returns the reply of an agent that has nothing to contribute; `None` for formats that always contribute.
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
    fn the_reply_purpose_follows_from_the_place() {
        for (place, occasion) in [
            (None, ReplyPurpose::Own),
            (Some(""), ReplyPurpose::Own),
            (Some("/rounds/0/agents/1"), ReplyPurpose::Own),
            (Some("/board/rooms/a~1b/agenda/3"), ReplyPurpose::Room),
            (Some("/board/rooms/a/agenda"), ReplyPurpose::Own),
            (Some("/board/rooms/a/agenda/3/who"), ReplyPurpose::Own),
            (Some("/ballot"), ReplyPurpose::Ballot),
            (Some("/ballot/open"), ReplyPurpose::Ballot),
            (Some("/ballots"), ReplyPurpose::Own),
        ] {
            assert_eq!(ReplyPurpose::for_place(place), occasion, "{place:?}");
        }
    }
}
