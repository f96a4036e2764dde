//! YAML: one document as the JSON that it stands for.
//!
//! The values are put together from the parser's events: by way of serde it takes three times as long.

mod scalar;
mod simple;

use std::{
    borrow::Cow,
    collections::HashMap,
    mem,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use super::wrong::Wrong;

/// As deep as JSON may be.
const DEEPEST: usize = 128;

/// About what a value takes in memory beside its text.
const NODE: usize = 64;

/// How many bytes anchors and their aliases may still take: a few lines can stand for any number of values.
#[derive(Debug)]
pub struct Copies(AtomicUsize);

impl Default for Copies {
    fn default() -> Self {
        Self(AtomicUsize::new(256 << 20))
    }
}

impl Copies {
    fn take(&self, bytes: usize) -> Result<(), &'static str> {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(|_| ()).map_err(|_| "its aliases stand for too much: write some of it out")
    }
}

/// Reads a document, which comes without its markers.
pub fn value(text: &str, copies: &Copies) -> Result<Value, Wrong> {
    simple::value(text).map_or_else(|| in_full(text, copies), Ok)
}

fn in_full(text: &str, copies: &Copies) -> Result<Value, Wrong> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut composer = Composer { open: Vec::new(), anchors: HashMap::new(), root: Value::Null, copies };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| Wrong::at(error.marker().line(), error.info()))?;
        composer.take(event).map_err(|what| Wrong::at(line(&span), what))?;
    }
    Ok(composer.root)
}

fn line(span: &Span) -> usize {
    span.start.line()
}

type Told = Result<(), Cow<'static, str>>;

/// A collection whose end has not come yet.
enum Open {
    Sequence { items: Vec<Value>, anchor: usize },
    Mapping { entries: Mapping, anchor: usize },
}

#[derive(Default)]
struct Mapping {
    entries: Map<String, Value>,
    /// Of the value that comes next.
    key: Option<Key>,
    /// What `<<` brought, the first before the others.
    merged: Vec<Map<String, Value>>,
}

enum Key {
    Text(String),
    Merge,
}

/// A value with an anchor.
struct Anchored {
    value: Value,
    bytes: usize,
    depth: usize,
}

struct Composer<'c> {
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    root: Value,
    copies: &'c Copies,
}

impl Composer<'_> {
    fn take(&mut self, event: Event<'_>) -> Told {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_key() {
                    return self.key(text, style, anchor);
                }
                let value = scalar::value(text, style, tag.as_deref())?;
                self.add(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(Open::Sequence { items: Vec::new(), anchor }),
            Event::MappingStart(_, anchor, _) => {
                self.open(Open::Mapping { entries: Mapping::default(), anchor })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => self.alias(id),
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Mapping { entries: Mapping { key: None, .. }, .. }))
    }

    fn key(&mut self, text: Cow<'_, str>, style: ScalarStyle, anchor: usize) -> Told {
        if anchor != 0 {
            self.remember(anchor, &Value::from(&*text))?;
        }
        let Some(Open::Mapping { entries, .. }) = self.open.last_mut() else { return Ok(()) };
        entries.expect(text, style)
    }

    fn open(&mut self, collection: Open) -> Told {
        if self.wants_key() {
            return Err("a key must be a text".into());
        }
        if self.open.len() >= DEEPEST {
            return Err(too_deep());
        }
        self.open.push(collection);
        Ok(())
    }

    fn close(&mut self) -> Told {
        match self.open.pop() {
            Some(Open::Sequence { items, anchor }) => self.add(items.into(), anchor),
            Some(Open::Mapping { entries, anchor }) => self.add(entries.end(), anchor),
            None => Ok(()),
        }
    }

    fn alias(&mut self, id: usize) -> Told {
        let anchored = self.anchors.get(&id).ok_or("an alias can't stand for what it is a part of")?;
        if self.open.len().saturating_add(anchored.depth) > DEEPEST {
            return Err(too_deep());
        }
        self.copies.take(anchored.bytes)?;
        let value = anchored.value.clone();
        if self.wants_key() {
            let Value::String(text) = value else { return Err("a key must be a text".into()) };
            return self.key(text.into(), ScalarStyle::DoubleQuoted, 0);
        }
        self.add(value, 0)
    }

    /// Puts a value where it belongs.
    fn add(&mut self, value: Value, anchor: usize) -> Told {
        if anchor != 0 {
            self.remember(anchor, &value)?;
        }
        match self.open.last_mut() {
            Some(Open::Sequence { items, .. }) => items.push(value),
            Some(Open::Mapping { entries, .. }) => entries.insert(value)?,
            None => self.root = value,
        }
        Ok(())
    }

    fn remember(&mut self, anchor: usize, value: &Value) -> Told {
        let (bytes, depth) = size(value);
        self.copies.take(bytes)?;
        self.anchors.insert(anchor, Anchored { value: value.clone(), bytes, depth });
        Ok(())
    }
}

impl Mapping {
    fn expect(&mut self, text: Cow<'_, str>, style: ScalarStyle) -> Told {
        if text == "<<" && style == ScalarStyle::Plain {
            self.key = Some(Key::Merge);
            return Ok(());
        }
        if self.entries.contains_key(&*text) {
            return Err(format!("key {text:?} is there twice").into());
        }
        self.key = Some(Key::Text(text.into_owned()));
        Ok(())
    }

    fn insert(&mut self, value: Value) -> Told {
        match mem::take(&mut self.key) {
            Some(Key::Text(key)) => {
                self.entries.insert(key, value);
                Ok(())
            }
            Some(Key::Merge) => self.merge(value),
            None => Ok(()),
        }
    }

    fn merge(&mut self, value: Value) -> Told {
        match value {
            Value::Object(object) => self.merged.push(object),
            Value::Array(items) => items.into_iter().try_for_each(|item| match item {
                Value::Object(object) => {
                    self.merged.push(object);
                    Ok(())
                }
                _ => Err("<< takes mappings"),
            })?,
            _ => return Err("<< takes a mapping, or a list of them".into()),
        }
        Ok(())
    }

    /// What is written out counts for more than what is merged.
    fn end(mut self) -> Value {
        for (key, value) in self.merged.into_iter().flatten() {
            self.entries.entry(key).or_insert(value);
        }
        self.entries.into()
    }
}

fn too_deep() -> Cow<'static, str> {
    format!("it is nested deeper than {DEEPEST} levels").into()
}

/// About how many bytes a value takes, and how many collections are in each other.
fn size(value: &Value) -> (usize, usize) {
    let of = |own: usize, items: &mut dyn Iterator<Item = (usize, usize)>| {
        items.fold((own, 1usize), |(bytes, depth), (more, deeper)| {
            (bytes.saturating_add(more), depth.max(deeper.saturating_add(1)))
        })
    };
    match value {
        Value::String(text) => (NODE.saturating_add(text.len()), 0),
        Value::Array(items) => of(NODE, &mut items.iter().map(size)),
        Value::Object(entries) => of(
            NODE,
            &mut entries.iter().map(|(key, value)| {
                let (bytes, depth) = size(value);
                (bytes.saturating_add(NODE).saturating_add(key.len()), depth)
            }),
        ),
        _ => (NODE, 0),
    }
}

#[cfg(test)]
mod tests;
