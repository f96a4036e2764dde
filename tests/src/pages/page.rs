//! A page of `docs/`, taken apart: its commands, the files that it has its readers save, and the
//! output of commands. A block after `<!-- not run: … -->` is left out.

use std::{
    fs, mem,
    path::{Path, PathBuf},
};

/// A page as it is written.
pub struct Page {
    /// The name of its file.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The heading above it, without the hashes.
    pub heading: String,
    /// The language of the fence.
    pub language: String,
    /// The lines between the fences.
    pub text: String,
    /// The reason why it can't be run here. None: it can.
    pub not_run: Option<String>,
}

/// One act of a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Save a file, whose name is in the first line of the block.
    Save {
        /// The name of the file.
        file: String,
        /// Its content.
        text: String,
    },
    /// Run commands whose output the page doesn't show.
    Run(String),
    /// Run a command, and see its output.
    See {
        /// The command line.
        command: String,
        /// The lines that it prints.
        output: Vec<String>,
    },
}

/// Returns the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Page {
    /// Reads a page by the name of its file.
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(workspace().join("docs").join(name));
        let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    /// Returns all fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        blocks(&self.text)
    }

    /// Returns the acts of a reader below a heading, in order. Panics if there are none.
    pub fn steps(&self, heading: &str) -> Vec<Step> {
        let blocks = self.blocks().into_iter().filter(|block| block.heading == heading);
        let steps: Vec<Step> =
            blocks.filter(|block| block.not_run.is_none()).flat_map(Block::steps).collect();
        assert!(!steps.is_empty(), "{} has no commands below {heading:?}", self.name);
        steps
    }

    /// Returns the headings of the blocks that can be run.
    pub fn headings(&self) -> Vec<String> {
        let run = self.blocks().into_iter().filter(|block| block.not_run.is_none() && block.is_for_a_shell());
        let mut headings: Vec<String> = run.map(|block| block.heading).collect();
        headings.dedup();
        headings
    }
}

impl Block {
    /// True if a reader types the block, or the part after each `$`.
    pub fn is_for_a_shell(&self) -> bool {
        self.language == "bash" || self.text.starts_with("$ ")
    }

    /// Returns the name of the file that a reader saves the block as. None: the block is no file.
    pub fn file(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        let is_name = name.strip_suffix(".yaml").is_some_and(|name| !name.contains(' '));
        (self.language == "yaml" && is_name).then_some(name)
    }

    /// Returns the acts of a reader for this block.
    fn steps(self) -> Vec<Step> {
        if let Some(file) = self.file() {
            return vec![Step::Save { file: file.to_owned(), text: self.text }];
        }
        match self.language.as_str() {
            "bash" => vec![Step::Run(self.text)],
            _ if self.is_for_a_shell() => session(&self.text),
            _ => Vec::new(),
        }
    }
}

/// Takes a session apart: lines after `$ ` are commands, and the lines below are their output.
fn session(text: &str) -> Vec<Step> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            // a command goes on
            (None, Some((command, output))) if command.ends_with('\\') && output.is_empty() => {
                *command += "\n";
                *command += line;
            }
            (None, Some((_, output))) => output.push(line.to_owned()),
            (None, None) => panic!("output without a command: {text}"),
        }
    }
    steps
        .into_iter()
        .map(|(command, mut output)| {
            while output.last().is_some_and(|line| line.trim().is_empty()) {
                output.pop();
            }
            if output.is_empty() { Step::Run(command) } else { Step::See { command, output } }
        })
        .collect()
}

/// Takes a page apart.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    let (mut heading, mut not_run) = (String::new(), None);
    for line in text.lines() {
        let (content, indentation) = (line.trim_start(), line.len() - line.trim_start().len());
        if let Some((block, depth)) = &mut open {
            if content.starts_with("```") {
                blocks.extend(open.take().map(|(block, _)| block));
            } else {
                let depth = indentation.min(*depth);
                block.text += line.split_at(depth).1;
                block.text.push('\n');
            }
        } else if let Some(language) = content.strip_prefix("```") {
            let language = language.to_owned();
            let block = Block {
                heading: heading.clone(),
                language,
                text: String::new(),
                not_run: mem::take(&mut not_run),
            };
            open = Some((block, indentation));
        } else if let Some(reason) = content.strip_prefix("<!-- not run: ") {
            not_run = Some(reason.trim_end_matches(" -->").to_owned());
        } else if content.starts_with('#') {
            content.trim_start_matches('#').trim().clone_into(&mut heading);
        } else if !content.is_empty() {
            not_run = None;
        }
    }
    assert!(open.is_none(), "a fence isn't closed");
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart_into_what_its_reader_does() {
        let text = "# Page\n\n```yaml\n# queue.yaml\nkind: Queue\n```\n\n## Do it\n\n1. First:\n\n   ```bash\n   a \\\n     b\n   ```\n\n\
            <!-- not run: needs a kubelet -->\n```bash\nc\n```\n\n```\n$ d \\\n  e\nprinted\n\n$ f\n```\n";
        let page = Page { name: String::new(), text: text.to_owned() };
        assert_eq!(page.blocks()[2].not_run.as_deref(), Some("needs a kubelet"));
        assert_eq!(page.headings(), ["Do it"]);
        let text = "# queue.yaml\nkind: Queue\n".to_owned();
        assert_eq!(page.steps("Page"), [Step::Save { file: "queue.yaml".into(), text }]);
        let expected = [
            Step::Run("a \\\n  b\n".into()),
            Step::See { command: "d \\\n  e".into(), output: vec!["printed".into()] },
            Step::Run("f".into()),
        ];
        assert_eq!(page.steps("Do it"), expected);
    }
}
