use std::collections::BTreeSet;

use crate::{
    config::Config,
    guard::{
        Guarded, SchedulerUser,
        UnknownPreemptor::{Stricter, Weaker},
    },
};

fn guarded(text: &str) -> Guarded {
    Config::parse(text).unwrap().guarded
}

fn of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn named(names: &[&str]) -> Vec<SchedulerUser> {
    names.iter().copied().map(SchedulerUser::named).collect()
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
        schedulers: named(&["system:serviceaccount:kai-scheduler:scheduler", "volcano"]),
        exempt_users: of(&["admin"]),
        exempt_groups: of(&["operators", "system:masters"]),
        exempt_namespaces: of(&["monitoring"]),
    };
    assert_eq!(guarded(text), expected);
    let set = Config::parse(text).unwrap().set;
    let paths =
        ["guard", "guard.schedulers", "guard.exemptUsers", "guard.exemptGroups", "guard.exemptNamespaces"];
    assert_eq!(set, paths.into());
}

#[test]
fn what_is_left_out_is_the_default() {
    for text in ["", "guard: ~", "guard: {}", "guard: {schedulers: ~}", "guard: {exemptGroups: []}"] {
        assert_eq!(guarded(text), Guarded::default(), "{text}");
    }
    assert_eq!(Guarded::default().schedulers, named(&["system:kube-scheduler"]));
    assert_eq!(Guarded::default().exempt_namespaces, of(&["kube-system"]));
}

#[test]
fn an_empty_list_has_no_users() {
    let guarded = guarded("guard: {schedulers: [], exemptNamespaces: []}");
    assert_eq!((guarded.schedulers, guarded.exempt_namespaces), (Vec::new(), of(&[])));
}

#[test]
fn a_name_alone_is_a_scheduler_that_shows_its_preemptors_and_an_entry_may_say_otherwise() {
    let text = "\
guard:
  schedulers:
  - system:kube-scheduler
  - {name: volcano}
  - {name: t9k, unknownPreemptor: stricter}
  - name: system:serviceaccount:kai-scheduler:scheduler
    unknownPreemptor: weaker
";
    let guarded = guarded(text);
    let of = |user| guarded.unknown_preemptor(user);
    let users = ["system:kube-scheduler", "volcano", "t9k", "system:serviceaccount:kai-scheduler:scheduler"];
    assert_eq!(guarded.schedulers.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), users);
    assert_eq!(users.map(of), [Stricter, Stricter, Stricter, Weaker]);
    assert_eq!(of("another"), Stricter);
}

#[test]
fn an_account_with_a_character_that_no_account_has_is_refused() {
    for good in ["system:serviceaccount:a-1:b.c", "arn:aws:iam::1:user/a_b+c=@x", "https://a.b/c#D-1~%"] {
        assert_eq!(guarded(&format!("guard: {{schedulers: ['{good}']}}")).schedulers, named(&[good]));
    }
    for bad in [
        "",
        "a,b",
        "a b",
        " a",
        "a\tb",
        "{a}",
        "a;b",
        "\"a\"",
        "ä",
        "system:serviceaccount:a",
        "system:serviceaccount:a:",
        "system:serviceaccount:a:b:c",
        "system:serviceaccount:A:b",
        "system:serviceaccount:a:b,system:serviceaccount:c:d",
    ] {
        let json = serde_json::Value::from(bad);
        for (entry, path) in [
            (json.to_string(), "guard.schedulers[0]"),
            (format!("{{name: {json}}}"), "guard.schedulers[0].name"),
        ] {
            let complaint =
                Config::parse(&format!("guard: {{schedulers: [{entry}]}}")).unwrap_err().to_string();
            let expected =
                format!("line 1: {path}: Invalid value: {json}: must be the name of one user: letters");
            assert!(complaint.starts_with(&expected), "{complaint:?} should be {expected:?}");
            assert!(complaint.ends_with("give each scheduler an entry of its own"), "{complaint}");
        }
    }
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
        (
            "guard:\n  schedulers:\n  - a\n  - name: a\n    unknownPreemptor: weaker\n",
            "line 4: guard.schedulers[1].name: Invalid value: \"a\": is in the list already",
        ),
        (
            "guard: {schedulers: [{unknownPreemptor: weaker}]}",
            "line 1: guard.schedulers[0].name: Required value",
        ),
        (
            "guard:\n  schedulers:\n  - name: a\n    unknownPreemptor: weak\n",
            "line 4: guard.schedulers[0].unknownPreemptor: Invalid value: \"weak\": must be stricter (the default) or weaker",
        ),
        (
            "guard: {schedulers: [{name: a, unknownPreemptors: weaker}]}",
            "line 1: guard.schedulers[0].unknownPreemptors: Unknown field: did you mean unknownPreemptor?",
        ),
        ("guard:\n  scheduler: []\n", "line 2: guard.scheduler: Unknown field: did you mean schedulers?"),
    ] {
        let complaint = Config::parse(text).unwrap_err().to_string();
        assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
    }
}
