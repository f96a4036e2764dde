//! The check of who may read `/metrics` over TLS, as Kubernetes' own components make it: the client
//! shows a token, and the API server says of which user it is, and if this user may get the path.
//!
//! `admin.rs` puts [`MetricsAccess::admit`] in front of the route. A user that was allowed stays so
//! for a minute. Unknown tokens are asked about one at a time. A token that was allowed lately
//! doesn't wait for them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use ring::digest::{Digest, SHA256, digest};

use crate::{
    call::{ApiError, call},
    log::with_causes,
};

/// The path that a user needs the right to get.
const PATH: &str = "/metrics";

/// The time for which an allowed token isn't asked about again.
const ALLOWED_FOR: Duration = Duration::from_mins(1);

/// The time for which a token that was allowed doesn't wait behind unknown ones.
const KNOWN_FOR: Duration = Duration::from_mins(10);

/// The time after a refusal before the API server is asked about another token. It bounds the cost
/// of a flood of unknown tokens.
const PAUSE: Duration = Duration::from_millis(20);

/// The most tokens that are remembered. A cluster has few servers that collect metrics.
const ALLOWED: usize = 16;

/// The clients that may read the metrics.
pub struct MetricsAccess {
    client: Client,
    /// The digests of the tokens that were allowed, and since when: the time of a comparison tells
    /// nothing about a token.
    allowed: Mutex<Vec<(Digest, Instant)>>,
    /// Held while the API server is asked.
    asks: tokio::sync::Mutex<()>,
}

/// The reason why a client gets no metrics.
#[derive(Debug)]
enum Refusal {
    /// The request has no token, or the API server doesn't accept it.
    Unauthenticated(&'static str),
    /// The user has no right to get the path.
    Forbidden(String),
    /// The API server can't be asked.
    Unanswered(ApiError),
}

impl MetricsAccess {
    /// Creates the check. The account of `client` needs the right to create `tokenreviews` and
    /// `subjectaccessreviews`.
    pub fn new(client: Client) -> Self {
        Self { client, allowed: Mutex::default(), asks: tokio::sync::Mutex::default() }
    }

    /// Answers a request of a client that may read the metrics, and refuses it otherwise: with 401,
    /// 403, or 503 if the API server can't be asked.
    pub async fn admit(State(this): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let token = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.to_str().ok()?));
        let result = match token.map(str::to_owned) {
            Some(token) => this.check(&token).await,
            None => {
                Err(Refusal::Unauthenticated("the request has no header \"Authorization: Bearer TOKEN\""))
            }
        };
        match result {
            Ok(()) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn check(&self, token: &str) -> Result<(), Refusal> {
        let of_token = digest(&SHA256, token.as_bytes());
        let is_known = self.was_allowed(&of_token, KNOWN_FOR);
        let _turn = if is_known { None } else { Some(self.asks.lock().await) };
        if self.was_allowed(&of_token, ALLOWED_FOR) {
            return Ok(());
        }
        let asked = self.ask(token).await;
        // an API server that doesn't answer takes no right from a token
        if !matches!(asked, Err(Refusal::Unanswered(_))) {
            self.allowed.lock().retain(|(known, _)| known.as_ref() != of_token.as_ref());
        }
        if let Err(refusal) = asked {
            tokio::time::sleep(PAUSE).await;
            return Err(refusal);
        }
        let mut allowed = self.allowed.lock();
        if allowed.len() >= ALLOWED {
            allowed.remove(0);
        }
        allowed.push((of_token, Instant::now()));
        Ok(())
    }

    /// True if a token was allowed within this time.
    fn was_allowed(&self, digest: &Digest, within: Duration) -> bool {
        let mut allowed = self.allowed.lock();
        allowed.retain(|(_, since)| since.elapsed() < KNOWN_FOR);
        allowed.iter().any(|(known, since)| since.elapsed() < within && known.as_ref() == digest.as_ref())
    }

    /// Asks the API server if the user of a token may get the path.
    async fn ask(&self, token: &str) -> Result<(), Refusal> {
        let user = self.user(token).await?;
        self.ensure_allowed(user).await
    }

    /// Returns the user of a token.
    async fn user(&self, token: &str) -> Result<UserInfo, Refusal> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = call(reviews.create(&PostParams::default(), &review)).await?;
        let status = review.status.filter(|status| status.authenticated == Some(true));
        let user = status.and_then(|status| status.user);
        user.ok_or(Refusal::Unauthenticated("the API server doesn't accept the token"))
    }

    /// Fails unless a user may get the path.
    async fn ensure_allowed(&self, user: UserInfo) -> Result<(), Refusal> {
        let UserInfo { extra, groups, uid, username } = user;
        let attributes = NonResourceAttributes { path: Some(PATH.into()), verb: Some("get".into()) };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            non_resource_attributes: Some(attributes),
            uid,
            user: username.clone(),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = call(reviews.create(&PostParams::default(), &review)).await?;
        let is_allowed = review.status.is_some_and(|status| status.allowed);
        if is_allowed { Ok(()) } else { Err(Refusal::Forbidden(username.unwrap_or_default())) }
    }
}

/// Returns the token of a header `Authorization: Bearer TOKEN`.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Unanswered(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthenticated(why) => {
                let scheme = [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
                (StatusCode::UNAUTHORIZED, scheme, format!("{why}\n")).into_response()
            }
            Self::Forbidden(user) => {
                let text = format!(
                    "user {user:?} may not get the path {PATH}: bind it to a ClusterRole with nonResourceURLs [\"{PATH}\"] and verbs [\"get\"]\n"
                );
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::Unanswered(error) => {
                let text = format!(
                    "can't ask the API server whether the token may read the metrics: {}\n",
                    with_causes(&error)
                );
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, io};

    use kube::client::Body;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    /// An API server that knows every token, and whose users may do everything.
    fn generous() -> Client {
        let service = tower::service_fn(async |_: http::Request<Body>| {
            let status = json!({"authenticated": true, "user": {"username": "scraper"}, "allowed": true});
            let review = json!({"metadata": {}, "spec": {}, "status": status});
            Ok::<_, Infallible>(http::Response::new(Body::from(review.to_string().into_bytes())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_token_that_was_allowed_lately_waits_for_no_turn() {
        let access = MetricsAccess::new(generous());
        let a_minute_ago = Instant::now().checked_sub(ALLOWED_FOR).unwrap();
        access.allowed.lock().push((digest(&SHA256, b"known"), a_minute_ago));
        // as a flood of unknown tokens would
        let turn = access.asks.lock().await;
        access.check("known").await.unwrap();
        assert!(timeout(PAUSE, access.check("unknown")).await.is_err(), "it waits for its turn");
        drop(turn);
        access.check("unknown").await.unwrap();
    }

    #[tokio::test]
    async fn a_token_that_was_allowed_lately_waits_for_no_turn_after_an_outage() {
        let service = tower::service_fn(async |_: http::Request<Body>| {
            Err::<http::Response<Body>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        });
        let access = MetricsAccess::new(Client::new(service, "default"));
        let a_minute_ago = Instant::now().checked_sub(ALLOWED_FOR).unwrap();
        access.allowed.lock().push((digest(&SHA256, b"known"), a_minute_ago));
        for token in ["known", "unknown"] {
            assert!(matches!(access.check(token).await, Err(Refusal::Unanswered(_))), "{token}");
        }
        for (token, is_known) in [("known", true), ("unknown", false)] {
            assert_eq!(
                access.was_allowed(&digest(&SHA256, token.as_bytes()), KNOWN_FOR),
                is_known,
                "{token}"
            );
        }
    }

    #[test]
    fn a_token_is_read_from_a_bearer_header_alone() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for other in ["Bearer", "Bearer ", "Basic abc", "abc", ""] {
            assert_eq!(bearer(other), None, "{other}");
        }
    }
}
