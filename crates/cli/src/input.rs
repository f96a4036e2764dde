//! Objects that are read from files, as kubectl reads them, instead of from a cluster.
//!
//! Called by all commands with `-f`, and by the tests through [`objects`]. The bytes may be
//! anything: an error names the file, and the line if there is one.

mod document;
mod text;

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use jiff::Timestamp;

pub use document::Document;

/// The source of the objects of a decision, and its time.
#[derive(Clone, Debug, Default, Args)]
pub struct InputArgs {
    /// Take objects from this file and not from the cluster: YAML or JSON, many documents, Lists; of a directory all
    /// .yaml, .yml and .json files, except hidden ones; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub filename: Vec<String>,

    /// The time of the decision, such as 2026-01-02T03:04:05Z; without it, now
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub now: Option<Timestamp>,
}

/// Reads the time of a flag, which must have a zone.
pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "must be a time with its zone, such as 2026-01-02T03:04:05Z".to_owned())
}

/// Reads all objects in files, in directories and below, and on standard input (`-`), in this
/// order. A path without any object is an error.
pub fn read(paths: &[String]) -> Result<Vec<Document>> {
    let of_stdin = paths.iter().filter(|path| *path == STDIN).count();
    ensure!(of_stdin <= 1, "-f -: standard input can be read only once");
    let mut documents = Vec::new();
    for path in paths {
        let mut is_empty = true;
        for (name, text) in texts(path)? {
            is_empty &= add(&name, &text, &mut documents)? == 0;
        }
        ensure!(!is_empty, "no objects in {}", shown(path));
    }
    Ok(documents)
}

/// Reads all objects in a text. Errors call the text by `name`.
pub fn objects(name: &str, text: &str) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    add(name, text, &mut documents)?;
    Ok(documents)
}

/// Adds the objects of a text, and returns the number of its values.
fn add(name: &str, text: &str, documents: &mut Vec<Document>) -> Result<usize> {
    let values = text::values(text).map_err(|(line, message)| anyhow!("{name}:{line}: {message}"))?;
    let read = values.len();
    for (line, value) in values {
        document::flatten(format!("{name}:{line}"), value, documents)?;
    }
    Ok(read)
}

/// The path that stands for standard input.
const STDIN: &str = "-";

/// The name of a text in messages, and the text itself.
type InputText = (String, String);

/// Returns the name of a path in messages.
pub fn shown(path: &str) -> &str {
    if path == STDIN { "<stdin>" } else { path }
}

/// Reads a file, the files of a directory and below, or standard input.
fn texts(path: &str) -> Result<Vec<InputText>> {
    if path == STDIN {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(vec![decode(shown(STDIN), bytes)?]);
    }
    let kind = fs::metadata(path).map_err(|error| explain(path, error))?;
    if !kind.is_dir() {
        return Ok(vec![file(path)?]);
    }
    let mut files = Vec::new();
    walk(Path::new(path), &mut files)?;
    Ok(files)
}

/// Reads one file.
fn file(path: &str) -> Result<InputText> {
    decode(path, fs::read(path).map_err(|error| explain(path, error))?)
}

/// Returns an error about a path, in kubectl's words if the path doesn't exist.
fn explain(path: &str, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow!("the path {path:?} does not exist"),
        _ => anyhow::Error::new(error).context(format!("cannot read {path:?}")),
    }
}

/// Decodes UTF-8, without a byte order mark. The error has the line.
fn decode(name: &str, bytes: Vec<u8>) -> Result<InputText> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = good.split(|byte| *byte == b'\n').count();
        anyhow!("{name}:{line}: not UTF-8: save the file in this encoding")
    })?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((name.into(), text))
}

/// Adds the YAML and JSON files of a directory and below, in the order of their names. Leaves out
/// hidden entries, and links to directories, which may lead back.
fn walk(directory: &Path, files: &mut Vec<InputText>) -> Result<()> {
    let why = || format!("cannot read {:?}", directory.display().to_string());
    let mut entries =
        fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(why)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let extension = path.extension().and_then(OsStr::to_str);
        if entry.file_type().with_context(why)?.is_dir() {
            walk(&path, files)?;
        } else if matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir() {
            files.push(file(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
