//! Compiles the places of a plan.
//!
//! `jsonschema` compiles documents, so each part is compiled as a reference into the document, held once in a registry.
//! Keywords checked separately from their schema object are in a second document, which refers to the subschemas of the
//! first.

use jsonschema::{Draft, PatternOptions, Registry, ValidationOptions};
use serde_json::{Map, Value, json};

use super::super::SchemaError;
use super::super::map::SchemaMap;
use super::super::meter::Metered;
use super::super::node::Tree;
use super::super::regexes::Regexes;
use super::plan::{Check, Inside, Names, Others, Parts, Place, PlaceId};
use super::sketch::{Sketch, sketch};
use super::survey::{DOCUMENT, Survey, reference};

/// URI of the document with the separately compiled keywords.
const SEPARATE_PARTS: &str = "patchboard:///apart";

/// Maximum number of compiled subschemas, counted again for each part that contains them. Beyond it, the document is
/// validated as a whole. A hundred mutually nested subschemas use a tenth of it.
const COMPILED_MAX: usize = 100_000;

/// Maximum bytes of the regular expressions in all compiled parts, counted again for each part. Beyond it, the document
/// is validated as a whole.
const REGEX_BYTES_MAX: usize = 8 << 20;

/// Validation options beside the schema.
#[derive(Clone, Copy)]
pub(in crate::schema) struct Settings {
    pub(in crate::schema) draft: Draft,
    pub(in crate::schema) assert_formats: bool,
}

impl Settings {
    fn options<'i>(self) -> ValidationOptions<'i, std::sync::Arc<dyn jsonschema::Retrieve>, Metered<Tree>> {
        jsonschema::options_for::<Metered<Tree>>()
            .with_draft(self.draft)
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(self.assert_formats)
    }
}

/// Compiles the plan of a document.
pub(super) fn compile(
    document: &Value,
    settings: Settings,
    map: &SchemaMap,
    regexes: &Regexes,
) -> Result<Vec<Place>, SchemaError> {
    let whole = settings
        .options()
        .build(document)
        .map_err(|error| SchemaError::new("", format!("it cannot be compiled for trees: {}", error.masked())))?;
    let whole = Check { validator: whole, home: None };
    let mut survey = Survey::new(document, map);
    let mut sketches = sketch(&survey, map);
    let compiled = if is_light(&sketches, map, regexes) { build(document, settings, map, &sketches) } else { None };
    let mut places = match compiled {
        Some(places) => places,
        None => {
            survey.mark_untraceable();
            sketches = sketch(&survey, map);
            let opaque = sketches.swap_remove(0).opaque.expect("nothing is followed now");
            vec![Place { id: 0, pointer: String::new(), whole: None, inside: Inside::Whole(opaque) }]
        }
    };
    places[0].whole = Some(whole);
    Ok(places)
}

/// Returns true if compiling these places stays within the limits.
fn is_light(sketches: &[Sketch], map: &SchemaMap, regexes: &Regexes) -> bool {
    let (mut subschemas, mut bytes): (usize, usize) = (0, 0);
    for sketch in sketches {
        let compiled = usize::from(sketch.applied) + usize::from(!sketch.keywords.across.is_empty());
        if compiled > 0 {
            let reached = map.reach(sketch.id);
            subschemas += compiled * reached.len();
            bytes += compiled * regexes.bytes_in(reached.into_iter());
        }
        if subschemas > COMPILED_MAX || bytes > REGEX_BYTES_MAX {
            return false;
        }
    }
    true
}

/// Compiles all places; `None` if one of them cannot be compiled on its own.
fn build(document: &Value, settings: Settings, map: &SchemaMap, sketches: &[Sketch]) -> Option<Vec<Place>> {
    let mut apart = Map::new();
    for (number, sketch) in sketches.iter().enumerate() {
        let mut put = |what: &str, keywords: &Map<String, Value>| {
            if !keywords.is_empty() {
                apart.insert(name(number, what), keywords.clone().into());
            }
        };
        put("shape", &sketch.keywords.shape);
        put("across", &sketch.keywords.across);
        if sketch.keywords.unique {
            put("unique", &Map::from_iter([("uniqueItems".to_owned(), Value::Bool(true))]));
        }
        if let Some(names) = sketch.names {
            let schema = json!({ "$ref": reference(&map.node(sketches[names].id).pointer) });
            put("names", &Map::from_iter([("propertyNames".to_owned(), schema)]));
        }
    }
    let apart = Value::Object(apart);
    let registry =
        Registry::new().draft(settings.draft).add(DOCUMENT, document).ok()?.add(SEPARATE_PARTS, &apart).ok()?;
    let registry = registry.prepare().ok()?;
    let options = settings.options().with_registry(&registry);
    let compiler = Compiler { options, apart: &apart };
    sketches.iter().enumerate().map(|(number, sketch)| compiler.place(number, sketch, sketches, map)).collect()
}

/// Returns the name of a separately compiled part.
fn name(number: PlaceId, what: &str) -> String {
    format!("patchboard-{number}-{what}")
}

struct Compiler<'r> {
    options: ValidationOptions<'r, std::sync::Arc<dyn jsonschema::Retrieve>, Metered<Tree>>,
    apart: &'r Value,
}

impl Compiler<'_> {
    fn place(&self, number: PlaceId, sketch: &Sketch, sketches: &[Sketch], map: &SchemaMap) -> Option<Place> {
        let node = map.node(sketch.id);
        let pointer = node.pointer.clone();
        // The root is compiled separately.
        let needs_whole = sketch.applied && number != 0 && !node.anything;
        let whole = if needs_whole { Some(self.whole(&pointer)?) } else { None };
        let inside = match &sketch.opaque {
            Some(opaque) => Inside::Whole(opaque.clone()),
            None => {
                let parts = self.parts(number, sketch, sketches, map)?;
                if parts.is_empty() { Inside::Nothing } else { Inside::Parts(Box::new(parts)) }
            }
        };
        Some(Place { id: sketch.id, pointer, whole, inside })
    }

    fn whole(&self, pointer: &str) -> Option<Check> {
        let validator = self.options.build(&json!({ "$ref": reference(pointer) })).ok()?;
        Some(Check { validator, home: None })
    }

    fn parts(&self, number: PlaceId, sketch: &Sketch, sketches: &[Sketch], map: &SchemaMap) -> Option<Parts> {
        let pointer = &map.node(sketch.id).pointer;
        let apart = |what| self.separate_check(number, what, pointer);
        let names = match sketch.names {
            Some(names) => {
                let names = map.node(sketches[names].id);
                let one = if names.anything { None } else { Some(self.whole(&names.pointer)?) };
                Some(Names { one, all: apart("names")?? })
            }
            None => None,
        };
        let mut patterns = Vec::with_capacity(sketch.patterns.len());
        for (pattern, place) in &sketch.patterns {
            patterns.push((self.options.build(&json!({ "pattern": pattern })).ok()?, *place));
        }
        let others = match sketch.others {
            None => Others::Anything,
            Some(place) if map.node(sketches[place].id).anything => Others::Anything,
            // Only a literal `false` is reported at the object instead of the member.
            Some(place)
                if map.node(sketches[place].id).pointer == format!("{pointer}/additionalProperties")
                    && map.node(sketches[place].id).never =>
            {
                Others::Nothing
            }
            Some(place) => Others::Judged(place),
        };
        Some(Parts {
            shape: apart("shape")?,
            across: apart("across")?,
            unique: apart("unique")?,
            beside: sketch.beside.clone(),
            members: sketch.members.clone(),
            patterns,
            others,
            names,
            prefix: sketch.prefix.clone(),
            items: sketch.items,
        })
    }

    /// Returns the separately compiled part of a place, if there is one; the outer `None` means that it cannot be
    /// compiled.
    #[expect(clippy::option_option, reason = "whether it is there, and whether it can be compiled")]
    fn separate_check(&self, number: PlaceId, what: &str, pointer: &str) -> Option<Option<Check>> {
        let name = name(number, what);
        if self.apart.get(&name).is_none() {
            return Some(None);
        }
        let validator = self.options.build(&json!({ "$ref": format!("{SEPARATE_PARTS}#/{name}") })).ok()?;
        Some(Some(Check { validator, home: Some((format!("/{name}"), pointer.to_owned())) }))
    }
}
