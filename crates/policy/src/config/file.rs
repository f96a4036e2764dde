//! A file of Tenure's or of KAI-Scheduler's configuration, or a ConfigMap with one.

use super::{Config, ConfigError, Kai, kai, tree::YamlNode};
use crate::floor::Floors;

/// A file in either of the supported forms.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigFile {
    /// A configuration of Tenure.
    Tenure(Box<Config>),
    /// A configuration of KAI-Scheduler.
    Kai(Kai),
}

impl ConfigFile {
    /// Reads a file of either form, also when it is wrapped in a `ConfigMap`.
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

    /// Returns its configuration of floors.
    pub fn floors(&self) -> &Floors {
        match self {
            Self::Tenure(config) => &config.floors,
            Self::Kai(kai) => &kai.floors,
        }
    }
}
