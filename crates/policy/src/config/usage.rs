//! Reads the part of a configuration file about what runs use.

use super::{
    fields::{Field, Problems},
    names::{NameRule, names},
    tree::YamlNode,
};
use crate::usage::{DEFAULT_RESOURCE, MOST_RESOURCES, UsageResources};

/// Resources whose use is counted.
pub const USAGE_RESOURCES: &str = "usage.resources";

const RESOURCES: &str = "resources";

const RESOURCE: NameRule = NameRule {
    expected: "must be the name of a resource, such as nvidia.com/gpu or cpu: at most 253 letters, digits and . _ - /",
    is_good: |name| {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_usual)
    },
};

/// The resources that count; none if the part can't be read.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Option<UsageResources> {
    let mut fields = field.fields(problems)?;
    let list = fields.take(RESOURCES);
    let resources = match &list {
        Some(field) => names(field, RESOURCE, problems),
        None => [DEFAULT_RESOURCE.to_owned()].into(),
    };
    fields.end(problems);
    if let Some(field) = list.filter(|_| resources.len() > MOST_RESOURCES) {
        field.refuse(format!("must have at most {MOST_RESOURCES} resources"), problems);
    }
    Some(resources)
}

/// The paths of the fields that it sets.
pub fn set(usage: &YamlNode) -> Option<&'static str> {
    usage.get(RESOURCES).filter(|value| !value.is_null()).map(|_| USAGE_RESOURCES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, USAGE};

    #[test]
    fn use_is_counted_only_where_the_file_says_so() {
        for text in ["", "usage: ~"] {
            assert_eq!(Config::parse(text).unwrap().usage, None, "{text}");
        }
    }

    #[test]
    fn gpus_count_unless_the_file_names_others() {
        let of = |text: &str| Config::parse(text).unwrap();
        assert_eq!(of("usage: {}").usage, Some(["nvidia.com/gpu".to_owned()].into()));
        let config = of("usage: {resources: [cpu, amd.com/gpu]}");
        assert_eq!(config.usage, Some(["amd.com/gpu", "cpu"].map(str::to_owned).into()));
        assert_eq!(config.set, [USAGE, USAGE_RESOURCES].into());
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_path() {
        let many: Vec<String> = (0..17).map(|number| format!("example.com/{number}")).collect();
        let many = format!("usage: {{resources: [{}]}}", many.join(", "));
        for (text, expected) in [
            ("usage: true", "line 1: usage: Invalid value: true: must be a map of fields"),
            (
                "usage:\n  resources: [a b]",
                "line 2: usage.resources[0]: Invalid value: \"a b\": must be the name of a resource",
            ),
            ("usage:\n  resource: []", "line 2: usage.resource: Unknown field: did you mean resources?"),
            (&many, "line 1: usage.resources: Invalid value: [\"example.com/0\","),
        ] {
            let complaint = Config::parse(text).unwrap_err().to_string();
            assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
        }
    }
}
