//! The texts that paths stand for.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, Result, anyhow};

/// The path that stands for standard input.
pub const STDIN: &str = "-";

/// The name of a text in messages, and the text.
pub type InputText = (String, String);

/// Returns the name of a path in messages.
pub fn shown(path: &str) -> &str {
    if path == STDIN { "<stdin>" } else { path }
}

/// The file, the files of a directory and below, or standard input.
pub fn of(path: &str) -> Result<Vec<InputText>> {
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

fn file(path: &str) -> Result<InputText> {
    decode(path, fs::read(path).map_err(|error| explain(path, error))?)
}

fn explain(path: &str, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => anyhow!("the path {path:?} does not exist"),
        _ => anyhow::Error::new(error).context(format!("cannot read {path:?}")),
    }
}

fn decode(name: &str, bytes: Vec<u8>) -> Result<InputText> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = good.split(|byte| *byte == b'\n').count();
        anyhow!("{name}:{line}: not UTF-8: save the file in this encoding")
    })?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((name.into(), text))
}

/// In the order of their names. What is hidden is left out, and so is what links to a directory: it may lead back.
fn walk(directory: &Path, files: &mut Vec<InputText>) -> Result<()> {
    let why = || format!("cannot read {:?}", directory.display().to_string());
    let mut entries =
        fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(why)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().with_context(why)?.is_dir() {
            walk(&path, files)?;
        } else if is_manifest(&path) && !path.is_dir() {
            files.push(file(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?)?);
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(decode("a", b"\xef\xbb\xbfkind: A".to_vec()).unwrap().1, "kind: A");
    }

    #[test]
    fn what_is_not_utf_8_is_told_with_its_line() {
        let error = decode("a.yaml", b"a: 1\nb: \xff\n".to_vec()).unwrap_err().to_string();
        assert_eq!(error, "a.yaml:2: not UTF-8: save the file in this encoding");
    }
}
