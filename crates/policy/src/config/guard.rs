//! What a file says about the guard.

use std::collections::BTreeSet;

use super::{
    fields::{Field, Fields, Problems},
    names::{GROUP, NAMESPACE, Names, USER, names},
    tree::Node,
};
use crate::guard::Guarded;

/// Users whose deletions of pods are preemptions.
pub const SCHEDULERS: &str = "guard.schedulers";
/// Users who are never held up.
pub const EXEMPT_USERS: &str = "guard.exemptUsers";
/// Groups whose members are never held up.
pub const EXEMPT_GROUPS: &str = "guard.exemptGroups";
/// Namespaces whose pods are never kept.
pub const EXEMPT_NAMESPACES: &str = "guard.exemptNamespaces";

const PATHS: [(&str, &str); 4] = [
    ("schedulers", SCHEDULERS),
    ("exemptUsers", EXEMPT_USERS),
    ("exemptGroups", EXEMPT_GROUPS),
    ("exemptNamespaces", EXEMPT_NAMESPACES),
];

/// Its fields, and the defaults of those that it leaves out.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Guarded {
    let defaults = Guarded::default();
    let Some(mut fields) = field.fields(problems) else { return defaults };
    let guarded = Guarded {
        schedulers: list(&mut fields, "schedulers", USER, problems).unwrap_or(defaults.schedulers),
        exempt_users: list(&mut fields, "exemptUsers", USER, problems).unwrap_or(defaults.exempt_users),
        exempt_groups: list(&mut fields, "exemptGroups", GROUP, problems).unwrap_or(defaults.exempt_groups),
        exempt_namespaces: list(&mut fields, "exemptNamespaces", NAMESPACE, problems)
            .unwrap_or(defaults.exempt_namespaces),
    };
    fields.end(problems);
    guarded
}

fn list(
    fields: &mut Fields<'_>,
    name: &'static str,
    of: Names,
    problems: &mut Problems,
) -> Option<BTreeSet<String>> {
    fields.take(name).map(|field| names(&field, of, problems))
}

/// The paths of those that it sets.
pub fn set(guard: &Node) -> BTreeSet<&'static str> {
    let is_set = |name| guard.get(name).is_some_and(|value| !value.is_null());
    PATHS.into_iter().filter(|(name, _)| is_set(name)).map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, GUARD};

    fn guarded(text: &str) -> Guarded {
        Config::parse(text).unwrap().guarded
    }

    fn of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_list_takes_the_place_of_its_default() {
        let text = "\
guard:
  schedulers: ['system:serviceaccount:kai-scheduler:scheduler', volcano]
  exemptUsers: [admin]
  exemptGroups: ['system:masters', operators]
  exemptNamespaces: [monitoring]
";
        let expected = Guarded {
            schedulers: of(&["system:serviceaccount:kai-scheduler:scheduler", "volcano"]),
            exempt_users: of(&["admin"]),
            exempt_groups: of(&["operators", "system:masters"]),
            exempt_namespaces: of(&["monitoring"]),
        };
        assert_eq!(guarded(text), expected);
        let set = Config::parse(text).unwrap().set;
        let paths = [GUARD, SCHEDULERS, EXEMPT_USERS, EXEMPT_GROUPS, EXEMPT_NAMESPACES];
        assert_eq!(set, paths.into());
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        for text in ["", "guard: ~", "guard: {}", "guard: {schedulers: ~}", "guard: {exemptGroups: []}"] {
            assert_eq!(guarded(text), Guarded::default(), "{text}");
        }
        assert_eq!(Guarded::default().schedulers, of(&["system:kube-scheduler"]));
        assert_eq!(Guarded::default().exempt_namespaces, of(&["kube-system"]));
    }

    #[test]
    fn an_empty_list_is_nobody() {
        let guarded = guarded("guard: {schedulers: [], exemptNamespaces: []}");
        assert_eq!((guarded.schedulers, guarded.exempt_namespaces), (of(&[]), of(&[])));
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_path() {
        for (text, expected) in [
            ("guard: true", "line 1: guard: Invalid value: true: must be a map of fields"),
            (
                "guard:\n  schedulers: system:kube-scheduler\n",
                "line 2: guard.schedulers: Invalid value: \"system:kube-scheduler\": must be a list",
            ),
            (
                "guard:\n  exemptUsers:\n  - ' a'\n",
                "line 3: guard.exemptUsers[0]: Invalid value: \" a\": must be the name of a user",
            ),
            (
                "guard: {exemptGroups: ['']}",
                "line 1: guard.exemptGroups[0]: Invalid value: \"\": must be the name of a group",
            ),
            (
                "guard: {exemptNamespaces: [Kube_System]}",
                "line 1: guard.exemptNamespaces[0]: Invalid value: \"Kube_System\": must be the name of a namespace",
            ),
            (
                "guard: {exemptNamespaces: [a.b]}",
                "line 1: guard.exemptNamespaces[0]: Invalid value: \"a.b\": must be",
            ),
            (
                "guard: {exemptNamespaces: [a, a]}",
                "line 1: guard.exemptNamespaces[1]: Invalid value: \"a\": is in the list already",
            ),
            ("guard:\n  scheduler: []\n", "line 2: guard.scheduler: Unknown field: did you mean schedulers?"),
        ] {
            let complaint = Config::parse(text).unwrap_err().to_string();
            assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
        }
    }
}
