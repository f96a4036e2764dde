//! Bad inputs, each with a name that says its point, and the answers to them. `bad/PARSER.tsv` has a line for each:
//! name, input and answer, apart by tabs.
//!
//! Escapes in an input: `\t`, `\n`, `\r`, `\0`, `\\`, `\xNN` (a byte), and `«TEXT*NUMBER»`
//! for NUMBER times TEXT.
//! `TENURE_WRITE_INPUTS=1 cargo test --package tenure-inputs` writes the answers again.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

use tenure_inputs::{Outcome, PARSERS, Parser, parser};

/// The processor time within which each input is answered, of the fastest of some tries: other tests run, too.
const LONGEST: Duration = Duration::from_secs(1);

/// The longest answer that is compared, in characters. Longer ones are cut.
const COMPARED: usize = 300;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn path(parser: Parser) -> PathBuf {
    directory("bad").join(format!("{}.tsv", parser.name))
}

fn table(parser: Parser) -> String {
    let path = path(parser);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes that the notation of a table stands for.
fn bytes(written: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), written);
    while let Some(at) = rest.find(['\\', '«']) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(repeated) = rest.strip_prefix('«') {
            let (repeated, after) = repeated.split_once('»').expect("»");
            let (text, times) = repeated.rsplit_once('*').expect("*");
            bytes.extend(self::bytes(text).repeat(times.parse().expect("a number")));
            rest = after;
            continue;
        }
        let escape = rest[1..].chars().next().expect("an escape");
        let mut length = 2;
        bytes.push(match escape {
            't' => b'\t',
            'n' => b'\n',
            'r' => b'\r',
            '0' => 0,
            '\\' => b'\\',
            'x' => {
                length = 4;
                u8::from_str_radix(&rest[2..4], 16).expect("a byte")
            }
            other => panic!("\\{other}: no escape"),
        });
        rest = &rest[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// An answer in one line.
fn shown(outcome: &Outcome) -> String {
    let (word, text) = match outcome {
        Ok(text) => ("ok", text),
        Err(text) => ("refused", text),
    };
    let text = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
    let text = text.replace('\0', "\\0");
    let mut shown = format!("{word}: {text}");
    if let Some((end, _)) = shown.char_indices().nth(COMPARED) {
        shown.truncate(end);
        shown.push('…');
    }
    shown.trim_end().to_owned()
}

/// The time that processors have spent on this process: the machine may be busy with others. Linux tells it, in
/// hundredths of a second; elsewhere no time is bounded.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

fn read(parser: Parser, input: &[u8]) -> Result<Outcome, String> {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let start = processor_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| (parser.read)(input))).map_err(|_| "panics")?;
        fastest = fastest.min(processor_time().saturating_sub(start));
        if fastest < LONGEST {
            return Ok(outcome);
        }
    }
    Err(format!("takes {fastest:?}"))
}

#[test]
fn every_bad_input_gets_its_answer_in_time() {
    let writes = std::env::var_os("TENURE_WRITE_INPUTS").is_some();
    let (mut count, mut refused, mut wrong, mut names) = (0, 0, Vec::new(), BTreeSet::new());
    for parser in PARSERS {
        let mut written = String::new();
        for line in table(*parser).lines() {
            let mut columns = line.split('\t');
            let name = columns.next().unwrap_or_default();
            let input = columns.next().unwrap_or_else(|| panic!("{}: {line}", parser.name));
            let expected = columns.next().unwrap_or_default();
            assert!(names.insert((parser.name, name.to_owned())), "{} has {name:?} twice", parser.name);
            let found = match read(*parser, &bytes(input)) {
                Ok(outcome) => shown(&outcome),
                Err(fault) => fault,
            };
            if found != expected {
                wrong.push(format!("{}: {name}: {found}\n  expected: {expected}", parser.name));
            }
            written.extend([name, "\t", input, "\t", &found, "\n"]);
            count += 1;
            refused += usize::from(found.starts_with("refused: "));
        }
        if writes {
            fs::write(path(*parser), written).unwrap();
        }
    }
    assert!(count >= 1_300 && refused >= 800, "{count} inputs, {refused} of them refused");
    assert!(writes || wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The refusal of an object names a field and its value, in the wording of the API server.
#[test]
fn the_refusal_of_an_object_names_field_and_value() {
    for name in ["queue-v3alpha1", "queue-v2", "queue-tensorstack", "priority-class"] {
        for line in table(parser(name).unwrap()).lines() {
            let answer = line.rsplit('\t').next().unwrap();
            let refusal = answer.strip_prefix("refused: ").filter(|text| text.contains(" is invalid: "));
            let Some(refusal) = refusal else { continue };
            assert!(refusal.contains(": Invalid value: ") || refusal.contains(": Required value"), "{line}");
        }
    }
}

/// The corpora of the fuzzers hold an input for each branch that was ever found.
#[test]
fn every_input_of_the_corpora_is_answered_in_time() {
    let mut faults = Vec::new();
    for parser in PARSERS {
        let directory = directory("corpus").join(parser.name);
        let mut files = fs::read_dir(&directory).into_iter().flatten().peekable();
        if files.peek().is_none() {
            faults.push(format!("{}: no input", directory.display()));
        }
        for file in files {
            let file = file.unwrap().path();
            if let Err(fault) = read(*parser, &fs::read(&file).unwrap()) {
                faults.push(format!("{}: {fault}", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_notation_of_a_table_has_escapes_and_repetitions() {
    assert_eq!(bytes(r"a\tb\\\x00\xff«xy*3»z"), b"a\tb\\\0\xffxyxyxyz");
    assert_eq!(bytes(r"«\x41*2»"), b"AA");
}
