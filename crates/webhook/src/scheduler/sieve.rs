//! Keeps of a large question what is needed, while it comes: of whole pods, their uids and the names of their fields. It
//! would take longer to read all of it once it is there, and many times the memory.

mod scan;

use scan::Scan;
use tenure_types::extender::{Field, Part};

/// Takes a body in parts. What it can't follow it keeps, for a parser to say what is wrong.
#[derive(Debug)]
pub struct Sieve {
    kept: Vec<u8>,
    /// The objects and lists that it is within, as far as it follows them.
    levels: Vec<Part>,
    state: State,
    /// Where the last key began, after its quote.
    key: usize,
}

/// What is to become of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Enter(Part),
    Keep,
    /// `null` takes its place, unless it is as short. It isn't checked any further than is needed to find its end.
    Drop,
}

#[derive(Debug)]
enum State {
    /// Before the first key of an object, or the next.
    Key,
    /// Within one.
    InKey { is_escaped: bool },
    /// After one.
    Colon,
    /// Before a value, or an element of a list.
    Value,
    /// Within one that begins with a brace or a bracket.
    InNested { scan: Scan, keeps: bool },
    /// Within a string.
    InString { is_escaped: bool, keeps: bool },
    /// Within anything else, which is kept.
    InScalar,
    /// After one.
    Comma,
    /// All that comes is kept.
    Rest,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { kept: Vec::new(), levels: Vec::new(), state: State::Value, key: 0 }
    }
}

/// For the value of a key. One with escapes may be any: its value is kept.
fn plan(part: Part, key: &[u8]) -> Plan {
    if key.contains(&b'\\') {
        return Plan::Keep;
    }
    match part.field(key) {
        Some(Field::Part(part)) => Plan::Enter(part),
        Some(Field::Preemptor | Field::PdbViolations | Field::Uid) => Plan::Keep,
        None => Plan::Drop,
    }
}

const fn begins_with(part: Part) -> u8 {
    if matches!(part, Part::Pods) { b'[' } else { b'{' }
}

impl Sieve {
    /// The next part of the body.
    pub fn push(&mut self, mut part: &[u8]) {
        while let Some(byte) = part.first() {
            let taken = self.take(*byte, part).min(part.len());
            part = part.get(taken..).unwrap_or_default();
        }
    }

    /// How much is kept so far.
    pub const fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// What is needed of the whole body: JSON that says the same, if that was any.
    pub fn finish(self) -> Vec<u8> {
        self.kept
    }

    /// Takes some of what begins with this byte, and returns how much.
    fn take(&mut self, byte: u8, part: &[u8]) -> usize {
        match &mut self.state {
            State::InNested { scan, keeps } => {
                let (end, keeps) = (scan.end(part), *keeps);
                self.pass(part, end, keeps)
            }
            State::InString { is_escaped, keeps } => {
                let (end, keeps) = (end_of_string(part, is_escaped), *keeps);
                self.pass(part, end, keeps)
            }
            State::InScalar => {
                let length = part.iter().position(|byte| is_after_scalar(*byte));
                self.pass(part, length, true)
            }
            State::InKey { is_escaped } => {
                let end = end_of_string(part, is_escaped);
                let taken = end.unwrap_or(part.len());
                self.keep(part, taken);
                if end.is_some() {
                    self.state = State::Colon;
                }
                taken
            }
            State::Rest => {
                self.keep(part, part.len());
                part.len()
            }
            State::Key | State::Colon | State::Value | State::Comma if is_space(byte) => 1,
            State::Key | State::Colon | State::Comma => {
                self.kept.push(byte);
                self.state = self.after(byte);
                1
            }
            State::Value => self.value(byte),
        }
    }

    fn after(&mut self, byte: u8) -> State {
        let level = self.levels.last().copied();
        match (&self.state, byte) {
            (State::Key, b'"') => {
                self.key = self.kept.len();
                State::InKey { is_escaped: false }
            }
            (State::Colon, b':') => State::Value,
            (State::Comma, b',') if level == Some(Part::Pods) => State::Value,
            (State::Comma, b',') => State::Key,
            (State::Comma, b']') if level == Some(Part::Pods) => self.left(),
            (State::Key | State::Comma, b'}') if level != Some(Part::Pods) => self.left(),
            _ => State::Rest,
        }
    }

    fn left(&mut self) -> State {
        self.levels.pop();
        if self.levels.is_empty() { State::Rest } else { State::Comma }
    }

    fn value(&mut self, byte: u8) -> usize {
        let level = self.levels.last().copied();
        if level == Some(Part::Pods) && byte == b']' {
            self.kept.push(byte);
            self.state = self.left();
            return 1;
        }
        if is_after_scalar(byte) {
            self.state = State::Rest;
            return 0;
        }
        let plan = match level {
            None => Plan::Enter(Part::Args),
            Some(Part::Pods) => Plan::Enter(Part::Pod),
            Some(part) => plan(part, self.key()),
        };
        if let Plan::Enter(inner) = plan
            && byte == begins_with(inner)
        {
            self.levels.push(inner);
            self.kept.push(byte);
            self.state = if inner == Part::Pods { State::Value } else { State::Key };
            return 1;
        }
        let keeps = plan != Plan::Drop || !matches!(byte, b'{' | b'[' | b'"');
        if !keeps {
            self.kept.extend_from_slice(b"null");
        }
        self.state = match byte {
            b'{' | b'[' => State::InNested { scan: Scan::default(), keeps },
            b'"' => {
                self.kept.extend(keeps.then_some(byte));
                State::InString { is_escaped: false, keeps }
            }
            _ => State::InScalar,
        };
        usize::from(byte == b'"')
    }

    /// The last key, as it is written: a quote and a colon came after it.
    fn key(&self) -> &[u8] {
        let end = self.kept.len().saturating_sub(2);
        self.kept.get(self.key..end).unwrap_or_default()
    }

    /// Passes a value on or over, up to its end if that is known.
    fn pass(&mut self, part: &[u8], end: Option<usize>, keeps: bool) -> usize {
        let taken = end.unwrap_or(part.len());
        if keeps {
            self.keep(part, taken);
        }
        if end.is_some() {
            self.state = if self.levels.is_empty() { State::Rest } else { State::Comma };
        }
        taken
    }

    fn keep(&mut self, part: &[u8], length: usize) {
        self.kept.extend_from_slice(part.get(..length).unwrap_or(part));
    }
}

const fn is_after_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b':' | b'}' | b']') || is_space(byte)
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// How many of the bytes of a string belong to it, its last quote included, if it ends among them.
fn end_of_string(bytes: &[u8], is_escaped: &mut bool) -> Option<usize> {
    for (place, byte) in bytes.iter().enumerate() {
        match byte {
            _ if *is_escaped => *is_escaped = false,
            b'\\' => *is_escaped = true,
            b'"' => return Some(place.saturating_add(1)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
