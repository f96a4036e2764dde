//! Objects that are read from files, as kubectl reads them, instead of from a cluster.

mod document;
mod files;
mod text;
mod value;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use jiff::Timestamp;

pub use document::Document;
pub use files::shown;

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

/// Parses the value of `--now`.
pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "must be a time with its zone, such as 2026-01-02T03:04:05Z".to_owned())
}

/// All objects in files, in directories and below, and on standard input (`-`), in their order.
pub fn read(paths: &[String]) -> Result<Vec<Document>> {
    let of_stdin = paths.iter().filter(|path| *path == files::STDIN).count();
    ensure!(of_stdin <= 1, "-f -: standard input can be read only once");
    let mut documents = Vec::new();
    for path in paths {
        let mut is_empty = true;
        for (name, text) in files::of(path)? {
            is_empty &= add(&name, &text, &mut documents)? == 0;
        }
        ensure!(!is_empty, "no objects in {}", shown(path));
    }
    Ok(documents)
}

/// All objects in the text of a file, which errors call by this name.
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

#[cfg(test)]
mod tests;
