//! Converts the reply of a role to a patch.

mod reply_parts;

use std::collections::BTreeMap;

use patchboard_protocols::blackboard::ReplyFormat;
use serde_json::{Map, Value, json};

use self::reply_parts::{
    answer_of, boxed, critique, key, lines, member, member_of_any, prose, squash, value_text, words,
};
use super::lenient_json;
use patchboard_kernel::text::one_line;

const EXPERTS_MAX: usize = 3;
/// Greatest number of agents that one reply may choose, or put into one room.
const NAMES_MAX: usize = 32;
/// Characters kept of a name in a reply.
const NAME_CHARS_MAX: usize = 100;
/// Characters kept of the words of a pass.
const PASS_CHARS_MAX: usize = 200;
/// Least length of a partial quotation in characters.
const PART_CHARS_MIN: usize = 20;
/// Number of times that each member of a room speaks before all conclude.
const ROUNDS: usize = 2;
/// Common ending of all sentinels.
const WAITING: &str = "waiting for more information";

/// Worker that replies, the part of its view that its reply refers to, and the place of its message.
#[derive(Clone, Debug)]
pub(super) struct ReplyContext<'a> {
    pub(super) format: ReplyFormat,
    pub(super) worker: &'a str,
    pub(super) place: MessageTarget,
    /// Index of the round that waits for the chosen agents; `None` if choosing opens a round.
    pub(super) round: Option<&'a str>,
    /// Messages in the public space.
    pub(super) public: Vec<Message>,
    pub(super) cleaning: Cleaning,
    pub(super) names: Vec<&'a str>,
    pub(super) eligible: Vec<&'a str>,
    /// Workers with roles that need messages, while there are none.
    pub(super) later: Vec<&'a str>,
    /// Number of the invocation. Rooms are named by it, so no other worker opens one of that name.
    pub(super) invocation: u64,
    pub(super) ops_max: usize,
}

/// Message in the public space.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Index in the document.
    pub(super) index: usize,
    pub(super) from: String,
    pub(super) text: String,
    /// True if a cleaner has marked it as useless.
    pub(super) is_marked: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MessageTarget {
    /// Place given by the role.
    Own,
    /// Messages of the room of this name, escaped as in a pointer.
    Room(String),
    /// Public space, for agents outside the room.
    Conclusion,
    /// Answers of the ballot.
    Ballot,
}

/// Treatment of messages by a cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cleaning {
    Remove,
    Mark,
    Off,
}

enum RoleOutput {
    Patch(Vec<Value>),
    Pass(String),
}

/// Builds the envelope of a reply, as text; `None` if it is a patch or an envelope already, or cannot be read.
pub(super) fn envelope(text: &str, speaker: &ReplyContext<'_>) -> Option<String> {
    let passed = match speaker.place {
        MessageTarget::Conclusion => words_of_pass(text),
        MessageTarget::Own | MessageTarget::Room(_) | MessageTarget::Ballot => None,
    };
    let text = passed.as_deref().unwrap_or(text);
    if is_patch(text) {
        return None;
    }
    let output = match speaker.place {
        MessageTarget::Own => speaker.parse_role_reply(text)?,
        MessageTarget::Room(_) | MessageTarget::Conclusion | MessageTarget::Ballot => {
            speaker.parse_shared_reply(text)?
        }
    };
    let envelope = match output {
        RoleOutput::Patch(ops) => json!({"patch": ops}),
        RoleOutput::Pass(words) => json!({"pass": words}),
    };
    Some(envelope.to_string())
}

/// Returns whether a reply has a format of the kernel, valid or not.
fn is_patch(text: &str) -> bool {
    const MEMBERS: [&str; 5] = ["patch", "expand", "clarify", "pass", "intent"];
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(ops)) => ops.iter().all(|op| op.get("op").is_some()),
        Ok(Value::Object(members)) => MEMBERS.iter().any(|name| members.contains_key(*name)),
        Ok(_) | Err(_) => false,
    }
}

/// Returns the words of a reply that is only a pass.
fn words_of_pass(text: &str) -> Option<String> {
    let Value::Object(members) = serde_json::from_str(text).ok()? else { return None };
    members.get("pass").filter(|_| members.len() == 1)?.as_str().map(str::to_owned)
}

impl ReplyContext<'_> {
    fn parse_role_reply(&self, text: &str) -> Option<RoleOutput> {
        let values = lenient_json::values(text);
        match self.format {
            ReplyFormat::Generator => experts(text, &values),
            ReplyFormat::Control => self.agent_choice(&values),
            ReplyFormat::Planner => self.plan(&values).or_else(|| self.sentinel_pass(text)),
            ReplyFormat::Decider => self.decision(text, &values),
            ReplyFormat::Critic => self.critiques(&values).or_else(|| self.sentinel_pass(text)),
            ReplyFormat::Cleaner => self.cleaned(&values).or_else(|| self.sentinel_pass(text)),
            ReplyFormat::ConflictResolver => self.room(&values).or_else(|| self.sentinel_pass(text)),
            ReplyFormat::Expert => self.expertise(text, &values),
        }
    }

    fn sentinel_pass(&self, text: &str) -> Option<RoleOutput> {
        let reply_words = words(text);
        let own = self.format.sentinel();
        let is_own = own.is_some_and(|own| {
            let whole = words(own);
            reply_words.contains(&whole)
                || whole.strip_suffix(WAITING).is_some_and(|clause| clause.trim_end() == reply_words)
        });
        match own {
            Some(own) if is_own => Some(RoleOutput::Pass(own.to_owned())),
            _ if reply_words.ends_with(WAITING) => Some(RoleOutput::Pass(one_line(text, PASS_CHARS_MAX))),
            _ => None,
        }
    }

    /// Returns the list of this name from an object that has it. An empty list is a pass.
    fn list(&self, values: &[Value], name: &str) -> Option<Result<Vec<Map<String, Value>>, RoleOutput>> {
        let listed = match member_of_any(values, name)? {
            Value::Array(entries) => {
                let objects: Vec<_> = entries.iter().filter_map(Value::as_object).cloned().collect();
                // A list of other values is not an empty one.
                if objects.is_empty() && !entries.is_empty() {
                    return None;
                }
                objects
            }
            Value::Object(entry) => vec![entry.clone()],
            Value::Null => Vec::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        let nothing = || RoleOutput::Pass(self.format.sentinel().unwrap_or("nothing").to_owned());
        Some(if listed.is_empty() { Err(nothing()) } else { Ok(listed) })
    }

    fn agent_choice(&self, values: &[Value]) -> Option<RoleOutput> {
        let is_text = |value: &&Value| matches!(value, Value::Array(items) if items.iter().all(Value::is_string));
        let chosen = match member_of_any(values, "chosenagents").or_else(|| values.iter().find(is_text))? {
            Value::String(names) => names.split([',', ';', '\n']).map(str::to_owned).collect(),
            Value::Array(names) => names.iter().map(value_text).collect::<Vec<_>>(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
        };
        let mut agents = Vec::new();
        for name in chosen.iter().map(|name| self.name(name)).filter(|name| !name.is_empty()).take(NAMES_MAX) {
            if !agents.contains(&name) {
                agents.push(name);
            }
        }
        // If none is eligible, the names stay, because their rejection lists the eligible ones.
        if agents.iter().any(|name| self.is_eligible(name)) {
            agents.retain(|name| self.is_eligible(name));
        }
        // Moves leading agents that need messages to the end, so that one round can be enough.
        let leading = agents.iter().take_while(|name| self.later.contains(&name.as_str())).count();
        agents.rotate_left(leading);
        Some(patch([match self.round {
            Some(round) => add(&format!("/rounds/{round}/agents"), json!(agents)),
            None => add("/rounds/-", json!({"agents": agents})),
        }]))
    }

    fn is_eligible(&self, name: &str) -> bool {
        self.eligible.contains(&name)
    }

    fn plan(&self, values: &[Value]) -> Option<RoleOutput> {
        let plan = member_of_any(values, "planning").or_else(|| member_of_any(values, "plan")).map(value_text)?;
        let problem = member_of_any(values, "problem").map(value_text).unwrap_or_default();
        if plan.is_empty() || words(&plan).ends_with(WAITING) {
            return None;
        }
        let text = if problem.is_empty() { plan } else { format!("{problem}\n{plan}") };
        Some(patch([self.message("plan", &text)]))
    }

    fn decision(&self, text: &str, values: &[Value]) -> Option<RoleOutput> {
        let decided = |answer: String| Some(patch([add("/answer", json!({"text": answer, "by": "decider"}))]));
        if let Some(answer) = answer_of(values) {
            return if words(&answer).contains(WAITING) { self.sentinel_pass(&answer) } else { decided(answer) };
        }
        let output = member_of_any(values, "output").map(value_text);
        let text = output.as_deref().unwrap_or(text);
        match boxed(text) {
            Some((answer, after)) if !words(after).contains(WAITING) => decided(answer),
            Some(_) | None => self.sentinel_pass(text),
        }
    }

    fn critiques(&self, values: &[Value]) -> Option<RoleOutput> {
        let list = match self.list(values, "criticlist")? {
            Ok(list) => list,
            Err(pass) => return Some(pass),
        };
        let critiques: Vec<Value> =
            list.iter().filter_map(critique).map(|text| self.message("critique", &text)).collect();
        (!critiques.is_empty()).then(|| patch(critiques.into_iter().take(self.ops_max)))
    }

    fn cleaned(&self, values: &[Value]) -> Option<RoleOutput> {
        let list = match self.list(values, "cleanlist")? {
            Ok(list) => list,
            Err(pass) => return Some(pass),
        };
        if self.cleaning == Cleaning::Off {
            return Some(RoleOutput::Pass("nothing is to be cleaned here".to_owned()));
        }
        let squashed: Vec<(usize, String)> =
            self.public.iter().map(|message| (message.index, squash(&message.text))).collect();
        let mut found: BTreeMap<usize, String> = BTreeMap::new();
        for entry in &list {
            let Some(quoted) = member(entry, "uselessmessage").map(value_text) else { continue };
            let why = member(entry, "explanation").map(value_text).unwrap_or_default();
            for index in self.quoted(&quoted, &squashed) {
                if found.len() < self.ops_max {
                    found.entry(index).or_insert_with(|| why.clone());
                }
            }
        }
        if found.is_empty() {
            return Some(RoleOutput::Pass("none of the messages that were quoted is there".to_owned()));
        }
        if self.cleaning == Cleaning::Mark {
            // An existing mark is not changed.
            let marked = self.public.iter().filter(|message| message.is_marked);
            marked.for_each(|message| drop(found.remove(&message.index)));
            if found.is_empty() {
                return Some(RoleOutput::Pass("the messages that were quoted are marked already".to_owned()));
            }
        }
        let marked = |(index, why): (&usize, &String)| {
            add(&format!("/board/public/{index}/marked"), json!({"by": self.worker, "why": why}))
        };
        // From the last to the first, so that no index shifts before its turn.
        let removed = |index: &usize| json!({"op": "remove", "path": format!("/board/public/{index}")});
        Some(match self.cleaning {
            Cleaning::Mark => patch(found.iter().map(marked)),
            Cleaning::Remove | Cleaning::Off => patch(found.keys().rev().map(removed)),
        })
    }

    /// Returns the messages that a quotation matches: those with exactly this text, or else those that differ in white
    /// space. Without either, a long quotation matches the message that contains it, if there is only one.
    fn quoted(&self, quoted: &str, squashed: &[(usize, String)]) -> Vec<usize> {
        let exactly = self.public.iter().filter(|message| message.text == quoted).map(|message| message.index);
        let exactly: Vec<usize> = exactly.collect();
        if !exactly.is_empty() {
            return exactly;
        }
        let quoted = squash(quoted);
        let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<usize> {
            squashed.iter().filter(|(_, text)| is_it(text)).map(|(index, _)| *index).collect()
        };
        let alike = of(&|text| text == quoted && !text.is_empty());
        if !alike.is_empty() || quoted.chars().count() < PART_CHARS_MIN {
            return alike;
        }
        let around = of(&|text| text.contains(&quoted));
        if around.len() == 1 { around } else { Vec::new() }
    }

    fn room(&self, values: &[Value]) -> Option<RoleOutput> {
        let list = match self.list(values, "conflictlist")? {
            Ok(list) => list,
            Err(pass) => return Some(pass),
        };
        let (mut members, mut about) = (Vec::new(), Vec::new());
        for entry in list.iter().take(NAMES_MAX) {
            let name = self.name(&member(entry, "agent").map(value_text).unwrap_or_default());
            // An agent without messages contradicts no other.
            if !self.names.contains(&name.as_str()) || !self.public.iter().any(|message| message.from == name) {
                continue;
            }
            let text = member(entry, "message").map(value_text).unwrap_or_default();
            about.push(json!({"from": name, "text": text}));
            if !members.contains(&name) {
                members.push(name);
            }
        }
        if members.len() < 2 {
            return Some(RoleOutput::Pass(
                "a conflict is between two agents or more who have spoken, each of them named".to_owned(),
            ));
        }
        let turns = |act: &'static str| members.iter().map(move |member| json!({"who": member, "act": act}));
        let discussion = (0..ROUNDS).flat_map(|_| turns("discuss"));
        let agenda: Vec<Value> = discussion.chain(turns("conclude")).collect();
        let room = json!({"members": members, "about": about, "agenda": agenda, "messages": []});
        Some(patch([add(&format!("/board/rooms/room_{}", self.invocation), room)]))
    }

    fn expertise(&self, text: &str, values: &[Value]) -> Option<RoleOutput> {
        if let Some(pass) = self.sentinel_pass(text) {
            return Some(pass);
        }
        let output = member_of_any(values, "output").map(value_text).or_else(|| prose(text, values))?;
        let reasoning = member_of_any(values, "reasoning").map(value_text).filter(|reasoning| !reasoning.is_empty());
        let output = reasoning.map_or(output.clone(), |reasoning| format!("{reasoning}\n{output}").trim().to_owned());
        Some(match output.is_empty() {
            true => RoleOutput::Pass("nothing to say".to_owned()),
            false => patch([self.message("expertise", &output)]),
        })
    }

    /// Interprets a reply if the role does not matter: in a room, a conclusion or a ballot.
    fn parse_shared_reply(&self, text: &str) -> Option<RoleOutput> {
        let values = lenient_json::values(text);
        let output = answer_of(&values).or_else(|| member_of_any(&values, "output").map(value_text));
        let spoken = output.as_deref().unwrap_or(text);
        let answer = boxed(spoken).filter(|_| self.place == MessageTarget::Ballot).map(|(answer, _)| answer);
        // A conclusion is kept whatever it says.
        if answer.is_none()
            && self.place != MessageTarget::Conclusion
            && let Some(pass) = self.sentinel_pass(spoken)
        {
            return Some(pass);
        }
        let listed =
            || match ["criticlist", "cleanlist", "conflictlist"].iter().find_map(|name| self.list(&values, name))? {
                Ok(list) => Some(list.iter().map(lines).collect::<Vec<_>>().join("\n")),
                Err(_) => None,
            };
        let spoken = answer.or_else(|| output.clone()).or_else(listed).or_else(|| prose(text, &values));
        let spoken = spoken.filter(|spoken| !spoken.is_empty())?;
        let message = json!({"from": self.worker, "text": spoken});
        Some(patch([match &self.place {
            MessageTarget::Room(room) => add(&format!("/board/rooms/{room}/messages/-"), message),
            MessageTarget::Ballot => add("/answers/-", message),
            MessageTarget::Own | MessageTarget::Conclusion => self.message("statement", &spoken),
        }]))
    }

    fn message(&self, kind: &str, text: &str) -> Value {
        add("/board/public/-", json!({"from": self.worker, "kind": kind, "text": text}))
    }

    /// Returns the worker that a name means, in any spelling. An unknown name is kept, truncated.
    fn name(&self, written: &str) -> String {
        let written = written.trim().trim_matches(['"', '\'', '`', '*', '.']);
        let exact = self.names.iter().find(|name| **name == written);
        let alike = || self.names.iter().find(|name| !key(name).is_empty() && key(name) == key(written));
        match exact.or_else(alike) {
            Some(name) => (*name).to_owned(),
            None => written.chars().take(NAME_CHARS_MAX).collect(),
        }
    }
}

/// Reads experts from a list, or else from a dictionary.
fn experts(text: &str, values: &[Value]) -> Option<RoleOutput> {
    let roles = listed_experts(values).or_else(|| dictionary(text, values))?;
    Some(patch(roles.into_iter().zip(1..).map(|((role, description), number)| {
        add(&format!("/experts/expert_{number}"), json!({"role": role, "description": description}))
    })))
}

/// Returns the entries of an expert list that have a role.
fn listed_experts(values: &[Value]) -> Option<Vec<(String, String)>> {
    let entries = member_of_any(values, "experts")?.as_array()?;
    let expert = |entry: &Value| {
        let entry = entry.as_object()?;
        let role = one_line(&member(entry, "role").map(value_text)?, NAME_CHARS_MAX);
        let description = member(entry, "description").map(value_text).unwrap_or_default();
        (!role.trim().is_empty()).then_some((role, description))
    };
    let experts: Vec<_> = entries.iter().filter_map(expert).take(EXPERTS_MAX).collect();
    (!experts.is_empty()).then_some(experts)
}

/// Returns roles and their descriptions: the members of the first object after the word that marks it, or of the first
/// one.
fn dictionary(text: &str, values: &[Value]) -> Option<Vec<(String, String)>> {
    let marked = text.to_ascii_lowercase().find("answer:").map(|at| lenient_json::values(&text[at..]));
    let candidates = marked.filter(|values| !values.is_empty()).unwrap_or_else(|| values.to_vec());
    candidates.iter().filter_map(Value::as_object).find_map(|object| {
        let object = match member(object, "answer") {
            Some(Value::Object(within)) => within,
            Some(_) | None => object,
        };
        let roles = object.iter().filter_map(|(role, what)| Some((role, what.as_str()?)));
        let roles = roles.filter(|(role, _)| !role.trim().is_empty()).take(EXPERTS_MAX);
        let roles = roles.map(|(role, what)| (one_line(role, NAME_CHARS_MAX), what.trim().to_owned()));
        Some(roles.collect::<Vec<_>>()).filter(|roles| !roles.is_empty())
    })
}

fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

fn patch(ops: impl IntoIterator<Item = Value>) -> RoleOutput {
    RoleOutput::Patch(ops.into_iter().collect())
}

#[cfg(test)]
mod tests;
