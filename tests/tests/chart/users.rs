//! The roles for users of the cluster.

use serde_json::{Value, json};

use crate::{find, name_of, render, values::assert_refused};

/// The kinds and names of the objects for users.
async fn of_users(values: Value) -> Vec<(String, String)> {
    let objects = render("test", &values).await;
    let label = "/metadata/labels/app.kubernetes.io~1component";
    let of_users = objects.iter().filter(|object| object.pointer(label) == Some(&json!("users")));
    of_users.map(|object| (object["kind"].as_str().unwrap().to_owned(), name_of(object).to_owned())).collect()
}

fn role(name: &str) -> (String, String) {
    ("ClusterRole".to_owned(), name.to_owned())
}

#[tokio::test]
async fn rights_of_users_are_added_to_the_built_in_roles_unless_that_is_off() {
    assert_eq!(
        of_users(json!({})).await,
        ["view", "edit", "extend", "approve"].map(|name| role(&format!("test-tenure-{name}")))
    );
    let off = json!({"users": {"aggregateRoles": false, "aggregateApproval": true}});
    assert_eq!(of_users(off.clone()).await, [role("test-tenure-approve")], "it is to be bound");
    assert!(!json!(render("test", &off).await).to_string().contains("authorization.k8s.io/aggregate-to"));
    let objects = render("test", &json!({})).await;
    let aggregated = |name: &str| {
        let labels = find(&objects, "ClusterRole", name)["metadata"]["labels"].as_object().unwrap();
        let to = labels.keys().filter_map(|key| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"));
        to.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(aggregated("test-tenure-view"), ["admin", "edit", "view"]);
    assert_eq!(aggregated("test-tenure-edit"), ["admin", "edit"]);
    assert_eq!(aggregated("test-tenure-extend"), ["admin", "edit"]);
    assert_eq!(aggregated("test-tenure-approve"), [""; 0]);
    let approving = render("test", &json!({"users": {"aggregateApproval": true}})).await;
    let labels = &find(&approving, "ClusterRole", "test-tenure-approve")["metadata"]["labels"];
    assert_eq!(labels["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
    for (name, expected) in [("test-tenure-view", "get list watch"), ("test-tenure-edit", "patch")] {
        for rule in find(&objects, "ClusterRole", name)["rules"].as_array().unwrap() {
            let verbs = rule["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap());
            assert_eq!(verbs.collect::<Vec<_>>().join(" "), expected, "{rule:#}");
        }
    }
    let edit = find(&objects, "ClusterRole", "test-tenure-edit")["rules"].to_string();
    assert!(!edit.contains("queues") && !edit.contains("podgroups"), "{edit}");
    // a Command of any namespace may close a queue of Volcano
    assert!(!edit.contains("bus.volcano.sh"), "{edit}");
}

#[tokio::test]
async fn kinds_of_the_owner_table_and_workloads_are_users_to_see_and_to_resume_only_if_the_values_say_so() {
    let rollout = json!({
        "group": "argoproj.io", "kind": "Rollout", "resource": "rollouts", "path": "spec.replicas", "value": 0,
    });
    let may = async |users: Value, name: &str| {
        let objects = render("test", &json!({"keeper": {"owners": [rollout]}, "users": users})).await;
        let rules = find(&objects, "ClusterRole", &format!("test-tenure-{name}"))["rules"].to_string();
        ["rollouts", "workloads", "notebooks"].map(|resource| rules.contains(resource))
    };
    assert_eq!(may(json!({}), "view").await, [true; 3]);
    assert_eq!(may(json!({}), "edit").await, [false, false, true]);
    assert_eq!(may(json!({"patchOwners": true}), "edit").await, [true, false, true]);
    assert_eq!(may(json!({"patchWorkloads": true}), "edit").await, [false, true, true]);
}

#[tokio::test]
async fn queues_are_shown_only_to_users_whom_the_values_name() {
    let group = json!({
        "kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io",
    });
    let values = json!({"users": {"aggregateRoles": false, "seeQueues": [group]}});
    let name = "test-tenure-see-queues";
    let binding = ("ClusterRoleBinding".to_owned(), name.to_owned());
    assert_eq!(of_users(values.clone()).await, [role("test-tenure-approve"), role(name), binding]);
    let objects = render("test", &values).await;
    assert_eq!(find(&objects, "ClusterRoleBinding", name)["subjects"], json!([group]));
    let refused = |subject: Value| json!({"users": {"seeQueues": [subject]}});
    assert_refused(&[
        (refused(json!({"kind": "Team", "name": "a"})), "'/users/seeQueues/0/kind': value must be one of"),
        (refused(json!({"kind": "Group"})), "'/users/seeQueues/0': missing property 'name'"),
        (json!({"users": {"aggregateRoles": "yes"}}), "'/users/aggregateRoles': got string, want boolean"),
    ])
    .await;
}
