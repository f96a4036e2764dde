//! A file of Tenure's or of KAI-Scheduler's configuration, or a ConfigMap with one.
//!
//! The command line reads files with [`ConfigFile::parse`]. The servers use [`Config::parse`],
//! which reads no `ConfigMap`, and refuses a file of KAI's that has problems.

use super::{Config, ConfigError, Kai, kai, tree::YamlNode};

/// A file in either of the supported forms.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigFile {
    /// A configuration of Tenure.
    Tenure(Box<Config>),
    /// A configuration of KAI-Scheduler.
    Kai(Kai),
}

impl ConfigFile {
    /// Reads a file of either form, or a `ConfigMap` that holds one. Lines in errors are lines of
    /// the whole text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let root = YamlNode::parse(text)?;
        match kai::within_config_map(&root)? {
            Some(inner) => Self::read(&YamlNode::parse(&inner)?),
            None => Self::read(&root),
        }
    }

    fn read(root: &YamlNode) -> Result<Self, ConfigError> {
        if kai::is_kai(root) {
            return Ok(Self::Kai(Kai::read(root)));
        }
        Config::read(root).map(Box::new).map(Self::Tenure)
    }
}
