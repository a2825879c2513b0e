//! View compiler: a bounded slice of the state, the write grants, and earlier rejections.
//!
//! A pure function (SPEC section 9): the bytes depend on state, contract, budget, feedback, expansions and
//! [`COMPILER`], never on ids, times or token use. Owns the order of the parts: the constant part first, so that
//! providers can cache it, then the state, the rejections and the trigger.
//!
//! * `search` finds the readable places, and `layout` splits them into lines;
//! * `full` shows everything if it fits, else `budget` selects the most wanted lines;
//! * `summary`, `render` and `text` write them;
//! * `dependencies` finds references to places outside the view, `summarised_places` keeps those only counted, and
//!   `explanation` the reasons;
//! * `prompt` adds the instructions.
//!
//! Boards without patches show an object instead of lines, or `messages`.
//!
//! The cost of a view is bounded by its budget and its contract, not by the state.

mod budget;
mod dependencies;
mod explanation;
mod fixed_parts;
mod full;
mod layout;
mod messages;
mod prompt;
mod render;
mod reply_instructions;
mod search;
mod selection;
mod summarised_places;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod truncated;

use std::borrow::Cow;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::ablation::Interface;
use crate::blueprint::{Unit, Worker};
use crate::contract::Readable;
use crate::digest::{Digest, sha256};
use crate::expand_request::ExpandRequest;
use crate::freshness::CommitLookup;
use crate::id::Version;
use crate::pattern::Pattern;
use crate::projection::Projection;
use crate::record;
use crate::state::State;
use crate::tree::{Node, Revision};

use budget::{Bounds, PriorityPlace, SelectionInput};
pub use explanation::{OutcomeReason, PlaceExplanation, PlaceOutcome};
pub use fixed_parts::FixedParts;
pub use prompt::{Prompt, PromptParts, file_tools, task};
use render::Detail;
pub use reply_instructions::{ReplyFormats, ReplyInstructions};
use selection::Selection;
pub use summarised_places::SummarisedPlaces;
pub use truncated::{Shortage, TruncatedPlace, grouped};

/// Version of this view compiler; recorded in the journal, because another version produces other bytes.
pub const COMPILER: u32 = 8;

/// First version that shows parts of places.
pub(crate) const RANGES: u32 = 5;

/// First version that reports the hidden parts of every requested collection.
pub(crate) const PAGES: u32 = 6;

/// First version that names completely hidden places.
pub(crate) const NAMES: u32 = 7;

/// First version that cuts long names at their first difference.
pub(crate) const DISTINCT: u32 = 8;

/// Returns the compiler version for a board: boards of an earlier journal format keep the views of that format.
pub const fn compiler_version(journal: u32) -> u32 {
    match journal {
        record::SINCE_RANGE_STARTS.. => DISTINCT,
        record::SINCE_BOUNDED_STEPS.. => NAMES,
        record::SINCE_UNDECIDED_RULES.. => PAGES,
        record::SINCE_RANGES.. => RANGES,
        _ => 4,
    }
}

/// Token counting method for budgets in tokens: an estimate of four characters each.
pub const TOKENIZER: &str = "chars/4";

/// Divisor of the room left after the fixed parts: rejections take at most a third.
const FEEDBACK_SHARE: usize = 3;

/// Divisor of the room left after the rejections: persons' answers take at most half.
const ANSWERS_SHARE: usize = 2;

/// Estimated characters per token.
const CHARS_PER_TOKEN: usize = 4;

/// All inputs of a view.
pub struct Inputs<'a> {
    /// The worker.
    pub worker: &'a Worker,
    /// The readable part of the state.
    pub readable: &'a Readable<'a>,
    /// The constant part of the view.
    pub fixed: &'a FixedParts,
    /// The committed document.
    pub state: &'a State,
    /// The trigger without unreadable places: an object with `kind`, `rule`, and for an event `op` and `path`.
    pub trigger: &'a Value,
    /// Recent rejections of this worker, and of others where it writes, oldest first.
    pub feedback: &'a [Value],
    /// Places that the worker has asked to see, for this trigger.
    pub expand: &'a [ExpandRequest],
    /// Number of places in its latest request.
    pub newest: usize,
    /// True if the worker may ask for more.
    pub may_expand: bool,
    /// The view compiler ([`compiler_version`]).
    pub compiler: u32,
    /// Record and author of each version.
    pub commits: &'a dyn CommitLookup,
    /// The budget in force, in the worker's unit.
    pub budget: u32,
}

/// A view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The rendered view.
    pub text: String,
    /// The read set: JSON Pointers of the values shown completely; none lies below another. Bounded by the number of
    /// lines and the total length of `text`.
    pub reads: Vec<String>,
    /// JSON Pointers of containers with visible membership but not fully shown: `text` has the number of their parts or
    /// every part. They need not be readable themselves: for `/claims/*` it is `/claims`. None lies at or below one of
    /// `reads`. Bounded by the number of lines in `text`, plus the 256 topmost containers that patterns with wildcards
    /// went through.
    pub members: Vec<String>,
    /// Places with no more than a summary; nothing at or below them is in `reads`. At most 256, and empty unless
    /// [`explain`] was called. To see if a readable place was shown completely, use `reads`.
    pub summarised: SummarisedPlaces,
    /// Readable collections and texts not shown completely: the 8 largest.
    pub unshown: Vec<TruncatedPlace>,
    /// True if a part of the latest request is shown or named, or if nothing was requested.
    pub finds_room: bool,
    /// True if the view offers to show more.
    pub may_expand: bool,
    /// Explanations in document order; empty unless [`explain`] was called.
    pub items: Vec<PlaceExplanation>,
    /// Instructions for the reply; depend on contract and schema only.
    pub instructions: String,
}

impl View {
    /// SHA-256 of the text.
    pub fn hash(&self) -> Digest {
        sha256(self.text.as_bytes())
    }

    /// Returns the size of the text in this unit.
    pub fn size(&self, unit: Unit) -> u32 {
        in_unit(unit, text::chars(&self.text))
    }
}

/// Compiles a view within the budget.
pub fn compile(inputs: &Inputs<'_>) -> View {
    compile_with(inputs, false)
}

/// Like [`compile`], with explanations.
pub fn explain(inputs: &Inputs<'_>) -> View {
    compile_with(inputs, true)
}

fn compile_with(inputs: &Inputs<'_>, is_explained: bool) -> View {
    let writer = |at: Revision| inputs.commits.commit_of(Version(at.into())).map(|(_, worker)| worker.to_string());
    Parts {
        worker: inputs.worker,
        reads: inputs.readable.patterns(),
        fixed: inputs.fixed,
        state: inputs.state.root(),
        trigger: inputs.trigger,
        feedback: inputs.feedback,
        expand: inputs.expand,
        newest: inputs.newest,
        may_expand: inputs.may_expand,
        compiler: inputs.compiler,
        writer: &writer,
        limit: limit(inputs.worker, inputs.budget),
        is_explained,
    }
    .compile()
}

/// Returns a number of characters in this unit.
fn in_unit(unit: Unit, chars: usize) -> u32 {
    let size = match unit {
        Unit::Chars => chars,
        Unit::Tokens => chars.div_ceil(CHARS_PER_TOKEN),
    };
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn limit(worker: &Worker, budget: u32) -> usize {
    let budget = usize::try_from(budget).unwrap_or(usize::MAX);
    match worker.view.unit {
        Unit::Chars => budget,
        Unit::Tokens => budget.saturating_mul(CHARS_PER_TOKEN),
    }
}

/// Lookup of the schema excerpt for a path.
type FragmentLookup<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// Placeholder for a state without visible content.
const NOTHING: &str = "Nothing yet.\n";

/// The parts of a view, with the budget in characters.
struct Parts<'a> {
    worker: &'a Worker,
    reads: &'a [Pattern],
    fixed: &'a FixedParts,
    state: &'a Node,
    trigger: &'a Value,
    feedback: &'a [Value],
    expand: &'a [ExpandRequest],
    newest: usize,
    may_expand: bool,
    compiler: u32,
    /// Returns the author of a version.
    writer: &'a dyn Fn(Revision) -> Option<String>,
    limit: usize,
    /// True if hidden places are named, for explanations.
    is_explained: bool,
}

impl Parts<'_> {
    fn compile(&self) -> View {
        let trigger = self.trigger.get("path").and_then(Value::as_str).filter(|path| self.may_name(path));
        let mut woken = render::trigger(self.trigger, &|path| self.may_name(path));
        woken.push_str(self.fixed.reminder(trigger));
        let fixed = text::chars(render::SEE_HEADING)
            + text::chars(NOTHING)
            + text::chars(render::TRIGGER_HEADING)
            + text::chars(&woken);
        // A breaker may have reduced the budget below the checked minimum: then the grants are shortened.
        let shorter = [Detail::NoFragments, Detail::Bare].into_iter().map(|detail| Cow::Owned(self.grants(detail)));
        let mut grants = std::iter::once(Cow::Borrowed(self.fixed.grants.as_str())).chain(shorter);
        let Some(grants) = grants.find(|grants| text::chars(grants) + fixed <= self.limit) else {
            return self.nothing_fits(&woken);
        };
        let left = self.limit - text::chars(&grants) - fixed;
        let feedback = render::feedback(self.feedback, self.compiler >= RANGES, left / FEEDBACK_SHARE);
        let answers = render::answers(self.trigger, (left - text::chars(&feedback)) / ANSWERS_SHARE);
        let feedback = feedback + &answers;
        let left = left - text::chars(&feedback) + text::chars(NOTHING);

        match self.fixed.interface {
            Interface::Patch => {}
            Interface::Whole | Interface::Merge => return self.as_object(&grants, &feedback, &woken, left, trigger),
            Interface::Message => {
                let mut messages = messages::show(self.state, &self.fixed.beginning, left);
                if messages.is_empty() {
                    messages.push_str(NOTHING);
                }
                let text =
                    [&grants, render::SEE_HEADING, &messages, &feedback, render::TRIGGER_HEADING, &woken].concat();
                return self.view(text, Selection::new(String::new(), Vec::new(), Vec::new(), Vec::new()), false);
            }
        }

        let missing = dependencies::missing(self.state, self.reads);
        let missing = missing.filter(|line| self.has_room_for(text::chars(line), left)).unwrap_or_default();
        // Links are followed only from completely readable places, because unreadable members must not be followed.
        let whole = trigger.filter(|trigger| self.may_read(trigger));
        let links = whole.map(|trigger| dependencies::links(self.state, self.reads, trigger)).unwrap_or_default();
        let links_max = if links.is_empty() { 0 } else { dependencies::LINE_MAX };
        let hints = match (self.may_expand, self.compiler >= RANGES) {
            (false, _) => &[""],
            (true, false) => &[render::EXPAND_HINT],
            (true, true) => render::RANGE_HINTS,
        };
        let hint = hints.iter().find(|hint| self.has_room_for(text::chars(hint) + links_max, left));
        let reserve = hint.map(|hint| text::chars(hint) + links_max);

        let mut shown = self.choose(left - text::chars(&missing), reserve.unwrap_or(0), trigger, &links);
        if shown.text.is_empty() {
            shown.text.push_str(NOTHING);
        } else {
            shown.text.push_str(&missing);
        }
        let hint = hint.filter(|_| !shown.is_everything);
        if let Some(hint) = hint {
            shown.text.push_str(&dependencies::unresolved(&links, &shown.reads));
            shown.text.push_str(hint);
        }
        let is_invited = hint.is_some() && self.may_expand;
        let text = [&grants, render::SEE_HEADING, &shown.text, &feedback, render::TRIGGER_HEADING, &woken].concat();
        self.view(text, shown, is_invited)
    }

    /// Describes the write grants, without schemas.
    fn grants(&self, detail: Detail) -> String {
        match self.fixed.shown_format() {
            Some(format) if !format.shows_grants => String::new(),
            _ => render::grants(self.worker, self.fixed.interface, &|_| None, detail),
        }
    }

    fn view(&self, text: String, shown: Selection, may_expand: bool) -> View {
        let Selection { reads, members, summarised, unshown, mut items, finds_room, .. } = shown;
        if self.is_explained {
            items.extend(self.not_readable());
        }
        let instructions = self.fixed.instructions.clone();
        View { text, reads, members, summarised, unshown, finds_room, may_expand, items, instructions }
    }

    /// Builds a view with one object instead of lines: of the same places, or of fewer if the object is longer.
    fn as_object(&self, grants: &str, feedback: &str, woken: &str, left: usize, trigger: Option<&str>) -> View {
        // Lines repeat their labels, so an object of the same places is often a fraction as long.
        let mut limit = left.saturating_mul(4);
        loop {
            let mut shown = self.choose(limit, 0, trigger, &[]);
            let parse = |place: &String| PointerBuf::parse(place.as_str()).ok();
            let mut places: Vec<PointerBuf> = shown.reads.iter().filter_map(parse).collect();
            // Empty containers are visible as well.
            let is_empty = |place: &PointerBuf| self.state.get(place).is_some_and(|node| node.part_count() == 0);
            places.extend(shown.members.iter().filter_map(parse).filter(is_empty));
            let object = Projection::from_places(self.state, places.iter().map(|place| place.as_ref())).to_value();
            let mut object = text::whole_json(&object) + "\n";
            if !shown.is_everything {
                object.push_str(render::NOT_EVERYTHING);
            }
            if text::chars(&object) <= left || limit == 0 {
                if text::chars(&object) > left {
                    object = String::new();
                    shown.reads.clear();
                    shown.members.clear();
                }
                let text = [grants, render::SEE_HEADING, &object, feedback, render::TRIGGER_HEADING, woken].concat();
                return self.view(text, shown, false);
            }
            limit = limit / 4 * 3;
        }
    }

    /// Returns true if other lines leave most of the room to the state.
    const fn has_room_for(&self, chars: usize, left: usize) -> bool {
        chars * 4 <= left
    }

    /// Returns the members of the document without readable content.
    fn not_readable(&self) -> Vec<PlaceExplanation> {
        let mut items = Vec::new();
        for (step, _) in self.state.first_parts().take(explanation::ITEMS_MAX) {
            let mut place = String::new();
            search::push_step(&mut place, step);
            let is_hidden = PointerBuf::parse(place.as_str()).is_ok_and(|pointer| {
                !self.reads.iter().any(|read| read.covers(&pointer) || read.reaches_below(&pointer))
            });
            if is_hidden {
                let (fate, why) = (PlaceOutcome::LeftOut, OutcomeReason::NotReadable);
                items.push(PlaceExplanation { place, last: None, fate, why });
            }
        }
        items
    }

    /// Builds the view of a budget that does not even hold the names of the grants: as much of them as fits.
    fn nothing_fits(&self, woken: &str) -> View {
        let mut text = [render::TRIGGER_HEADING, woken].concat();
        text.insert_str(0, &self.grants(Detail::Bare));
        text::cut(&mut text, self.limit);
        let nothing = self.choose(0, 0, None, &[]);
        let (reads, members, finds_room) = (Vec::new(), Vec::new(), self.newest == 0);
        self.view(text, Selection { reads, members, finds_room, ..nothing }, false)
    }

    /// Selects as much of the state as fits into `limit`; if not all does, keeps `reserve` free.
    fn choose(&self, limit: usize, reserve: usize, trigger: Option<&str>, links: &[PointerBuf]) -> Selection {
        let appends = &self.fixed.appends;
        let may_append = |array: &str| {
            if appends.is_empty() {
                return false;
            }
            let path = PointerBuf::parse(format!("{array}/-"));
            path.is_ok_and(|path| appends.iter().any(|pattern| pattern.matches(&path)))
        };
        let mut bounds = Bounds::for_limit(limit);
        if !self.is_explained {
            bounds.summarised = 0;
        }
        let parsed = |place: &str| PointerBuf::parse(place).ok();
        let asked = self.expand.iter().filter_map(|asked| {
            Some(PriorityPlace { place: asked.place()?, why: OutcomeReason::Asked, from: asked.start() })
        });
        let woken =
            trigger.and_then(parsed).map(|place| PriorityPlace { place, why: OutcomeReason::Trigger, from: None });
        let named =
            links.iter().map(|place| PriorityPlace { place: place.clone(), why: OutcomeReason::Named, from: None });
        let first: Vec<PriorityPlace<'_>> = asked.chain(woken).chain(named).collect();
        let (writer, newest) = (Some(self.writer), self.newest.min(self.expand.len()));
        let compiler = self.compiler;
        let wanted = SelectionInput { appendable: &may_append, first: &first, newest, compiler, reserve, writer };
        budget::choose(self.state, self.reads, limit, bounds, &wanted)
    }

    /// Returns true if the worker may read the whole place.
    fn may_read(&self, path: &str) -> bool {
        Pointer::parse(path).is_ok_and(|path| self.reads.iter().any(|read| read.covers(path)))
    }

    /// Returns true if a view may name the place: the worker may read it, or a part of it.
    fn may_name(&self, path: &str) -> bool {
        let may_see = |path: &Pointer| self.reads.iter().any(|read| read.covers(path) || read.reaches_below(path));
        Pointer::parse(path).is_ok_and(may_see)
    }
}
