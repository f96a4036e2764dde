//! Pods that their owners don't stop, by the number of tries.

use super::*;

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_can_not_be_paused_the_pod_is_deleted_after_all_tries() {
    let unpausable = [
        // a right that the keeper lacks, and an admission policy
        (Method::PATCH, 403, "failed to pause Deployment web (apps/v1)"),
        (Method::PATCH, 422, "failed to pause Deployment web (apps/v1)"),
        // an admission webhook that is down, and a user who keeps changing the owner
        (Method::PATCH, 500, "failed to pause Deployment web (apps/v1)"),
        (Method::PATCH, 409, "failed to pause Deployment web (apps/v1)"),
        // an API that is broken: the owner can't even be read
        (Method::GET, 500, "failed to read Deployment web (apps/v1)"),
    ];
    for (method, code, failure) in unpausable {
        let server = Server::new();
        server.refuse(method.clone(), DEPLOYMENT, code);
        let pauser = pauser(&server);
        for attempts in 0..TRIES {
            let expected = saw(&format!("failed: {failure}"), &[]);
            assert_eq!(act(&pauser, &server, attempts).await, expected, "{method} {code} {attempts}");
        }
        for attempts in [TRIES, TRIES + 1] {
            let expected = saw("deleted", &[DELETED]);
            assert_eq!(act(&pauser, &server, attempts).await, expected, "{method} {code} {attempts}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_may_not_be_read_the_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    server.refuse(Method::GET, DEPLOYMENT, 403);
    let pauser = pauser(&server);
    let first = act(&pauser, &server, 0).await;
    assert_eq!(first, saw("failed: failed to read Deployment web (apps/v1)", &[]), "it may be of passage");
    tokio::time::advance(Duration::from_secs(5)).await;
    for attempts in 1..TRIES {
        let (result, changes) = act(&pauser, &server, attempts).await;
        assert!(result.starts_with("failed: not allowed to get Deployment web (apps/v1)"), "{result}");
        assert!(changes.is_empty(), "{changes:?}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn where_a_pod_outlives_the_pause_of_its_owner_the_one_below_is_paused_before_the_pod_is_deleted() {
    let server = Server::new();
    let pauser = pauser(&server);
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
    for attempts in 1..TRIES {
        assert_eq!(act(&pauser, &server, attempts).await, saw("paused before", &[]), "{attempts}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}

/// A user may have paused and resumed the owner in between: it has another run then.
#[tokio::test(start_paused = true)]
async fn an_owner_whose_pod_goes_while_the_owner_is_read_is_not_paused() {
    let server = Server::new();
    server.lose_after(POD, 1);
    assert_eq!(act(&pauser(&server), &server, 0).await, saw("the pod is gone or exempt", &[]));
}

#[tokio::test(start_paused = true)]
async fn where_a_pod_outlives_the_pause_of_all_its_owners_it_is_deleted_after_all_tries() {
    let server = Server::new();
    for owner in [DEPLOYMENT, SET] {
        server.merge(owner, &json!({"spec": {"replicas": 0}}));
    }
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        assert_eq!(act(&pauser, &server, attempts).await, saw("paused before", &[]), "{attempts}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn where_the_pause_of_an_owner_is_set_back_each_time_the_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        let expected = saw("paused Deployment", &["PATCH deployments/web"]);
        assert_eq!(act(&pauser, &server, attempts).await, expected, "{attempts}");
        server.merge(DEPLOYMENT, &json!({"spec": {"replicas": 1}}));
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_is_held_in_deletion_the_next_one_is_paused_before_the_pod_is_deleted() {
    let server = Server::new();
    server.merge(DEPLOYMENT, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        assert_eq!(
            act(&pauser, &server, attempts).await,
            saw("an owner is being deleted", &[]),
            "{attempts}"
        );
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}
