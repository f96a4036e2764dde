//! The HTTP server of the page.
//!
//! Started by `ui`, on loopback. It serves its own page alone: other hosts, other origins and
//! browsers that haven't signed in get nothing. Changes of the cluster come from the page itself,
//! with a key that other pages don't have.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Form, Query, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use futures::stream;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Mutex, broadcast::error::RecvError},
    time::timeout,
};

use super::{
    assets,
    child::{Child, ChildObject, EXPLAIN},
    connections::{self, PageConnection},
    content::shown,
    live::Live,
    rights::{self, verb_of},
    sign_in::{self, SignIn},
    simulation::TriedLimits,
};
use crate::{
    floors::duration,
    print::{print_message, with_causes},
};

/// The server, bound to its port.
pub struct UiServer {
    listener: TcpListener,
    address: SocketAddr,
    page: Arc<PageState>,
}

/// The state that all requests share.
struct PageState {
    live: Arc<Live>,
    sign_in: SignIn,
    child: Child,
    /// The cluster, for requests about one workload. None: the page shows files.
    client: Option<Client>,
    /// Locked by the simulation that runs. Each reads the whole past, so only one runs at a time.
    simulates: Mutex<()>,
}

type SharedPage = State<Arc<PageState>>;

/// The header with the key of the page.
const KEY: &str = "x-tenure-key";

/// The most bytes of the body of a request. The page sends some hundreds.
const BODY_BYTES: usize = 4096;

/// The timeout for the body of a sign-in, which anyone may send.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(5);

/// A change that the user has confirmed.
#[derive(Debug, Deserialize)]
struct ConfirmedChange {
    /// The row of the workload, and the verb that the page has shown.
    id: String,
    verb: String,
    /// The time that `extend` asks for. None: another verb.
    #[serde(default)]
    duration: Option<String>,
}

/// The form of the sign-in.
#[derive(Debug, Deserialize)]
struct SignInCode {
    code: String,
}

/// The workload that the page shows.
#[derive(Debug, Deserialize)]
struct WorkloadQuery {
    id: String,
}

impl UiServer {
    /// Binds a port on 127.0.0.1. 0: any free port.
    pub async fn bind(port: u16, live: Arc<Live>, child: Child, client: Option<Client>) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.with_context(|| format!("cannot listen on {address}: give another --port"))?;
        let address = listener.local_addr()?;
        let sign_in = SignIn::new(address)?;
        Ok(Self {
            listener,
            address,
            page: Arc::new(PageState { live, sign_in, child, client, simulates: Mutex::default() }),
        })
    }

    /// Opens the browser, and prints the other ways to reach the page.
    pub fn announce(&self, no_browser: bool) {
        let Self { address, page, .. } = self;
        let (port, code) = (address.port(), page.sign_in.code());
        print_message(&format!("The page is at http://{address}/ until Ctrl-C."));
        let file = page.sign_in.write_file(*address);
        match &file {
            Ok(file) if no_browser => {
                print_message(&format!("On this machine, open {} in a browser.", file.display()));
            }
            Ok(file) => {
                if let Err(error) = sign_in::open(file) {
                    print_message(&format!("No browser can be opened: {error}"));
                }
            }
            Err(error) => print_message(&format!("No browser is opened: {}", with_causes(error))),
        }
        if no_browser {
            print_message(&format!("From another machine: ssh -L {port}:127.0.0.1:{port} HOST"));
        }
        print_message(&format!("Or open http://127.0.0.1:{port}/ and sign in with the code {code}"));
    }

    /// Serves requests. Never returns.
    pub async fn serve(self) {
        let Self { listener, page, .. } = self;
        let signed_in = Router::new()
            .route("/events", get(events))
            .route("/workload", get(workload))
            .route("/change", post(change))
            .route("/simulation", get(simulation))
            .route_layer(middleware::from_fn_with_state(Arc::clone(&page), only_signed_in));
        let router = Router::new()
            .route("/", get(index))
            .route("/page.js", get(|| async { asset("text/javascript", assets::SCRIPT) }))
            .route("/vendor.js", get(|| async { asset("text/javascript", assets::VENDOR) }))
            .route("/signed-in.js", get(|| async { asset("text/javascript", assets::SIGNED_IN_SCRIPT) }))
            .route("/page.css", get(|| async { asset("text/css", assets::STYLE) }))
            .route("/sign-in", post(exchange).layer(middleware::from_fn(in_time)))
            .merge(signed_in)
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn(own_requests))
            .with_state(page);
        connections::serve(listener, router).await;
    }
}

/// Lets requests pass that name this machine as their host and come from its own page, or from a
/// user who opens it. Adds the headers that protect the page.
async fn own_requests(request: Request, next: Next) -> Response {
    if let Some(why) = foreign(request.method(), request.uri().path(), request.headers()) {
        return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, assets::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the reason why a request isn't one of the server's own page. None: it is.
fn foreign(method: &Method, path: &str, headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host").unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !["127.0.0.1", "localhost"].contains(&name) {
        return Some("the Host must be 127.0.0.1 or localhost");
    }
    // the file that opens the page has no origin
    let is_entry = path == "/sign-in" || (path == "/" && method == Method::GET);
    let is_foreign = text("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site));
    let origin = text("origin");
    let is_of_other = origin.is_some_and(|origin| origin != format!("http://{host}"));
    if !is_entry && (is_foreign || is_of_other) {
        return Some("the request comes from another page");
    }
    let must_name = method == Method::POST && path != "/sign-in";
    (must_name && origin.is_none()).then_some("a change must name its Origin")
}

/// Lets requests pass that have the cookie and the key. Their connections keep their places.
async fn only_signed_in(
    State(page): SharedPage,
    Extension(connection): Extension<PageConnection>,
    request: Request,
    next: Next,
) -> Response {
    let key = request.headers().get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    if page.is_signed_in(request.headers()) && page.sign_in.is_key(key) {
        connection.keep();
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "sign in first\n").into_response()
    }
}

/// Refuses a sign-in whose body doesn't come in time.
async fn in_time(request: Request, next: Next) -> Response {
    let answer = timeout(SIGN_IN_TIMEOUT, next.run(request)).await;
    answer.unwrap_or_else(|_| (StatusCode::REQUEST_TIMEOUT, "the code takes too long\n").into_response())
}

impl PageState {
    /// True if a request has the cookie of a browser that has signed in.
    fn is_signed_in(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies.into_iter().any(|cookies| self.sign_in.knows(cookies))
    }
}

/// Returns the answer about a request that has failed.
fn failed(error: &anyhow::Error) -> Response {
    let error = json!({"error": with_causes(error)});
    (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response()
}

/// Returns a file of the page.
fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text)
}

/// Returns the page, or the one that signs in.
async fn index(
    State(page): SharedPage,
    Extension(connection): Extension<PageConnection>,
    headers: HeaderMap,
) -> Html<&'static str> {
    let is_signed_in = page.is_signed_in(&headers);
    if is_signed_in {
        connection.keep();
    }
    Html(if is_signed_in { assets::PAGE } else { assets::SIGN_IN })
}

/// Takes a code, and returns a cookie. The page in the answer opens the other page: browsers don't
/// send a cookie of this site alone along with a redirect that began at a file.
async fn exchange(
    State(page): SharedPage,
    Extension(connection): Extension<PageConnection>,
    Form(SignInCode { code }): Form<SignInCode>,
) -> Response {
    match page.sign_in.exchange(&code) {
        Ok(Some((cookie, key))) => {
            connection.keep();
            print_message(&format!(
                "A browser has signed in. The code for another one is {}",
                page.sign_in.code()
            ));
            ([(header::SET_COOKIE, cookie)], Html(assets::SIGNED_IN.replace("KEY", key))).into_response()
        }
        Ok(None) => (StatusCode::UNAUTHORIZED, Html(assets::SIGN_IN)).into_response(),
        Err(error) => failed(&error),
    }
}

/// Sends all that is known, and then each change, as server-sent events.
async fn events(State(page): SharedPage) -> Response {
    let (first, messages) = page.live.open();
    let updates = stream::unfold((Some(first), messages), move |(first, mut messages)| {
        let live = Arc::clone(&page.live);
        async move {
            let message = match first {
                Some(first) => first,
                None => match messages.recv().await {
                    Ok(message) => message,
                    Err(RecvError::Lagged(_)) => {
                        let (all, from_here) = live.open();
                        messages = from_here;
                        all
                    }
                    Err(RecvError::Closed) => return None,
                },
            };
            Some((Ok::<_, Infallible>(format!("data: {message}\n\n")), (None, messages)))
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(updates)).into_response()
}

/// Returns the explanation of a workload, its events, and the verb that the user may apply to it.
async fn workload(State(page): SharedPage, Query(WorkloadQuery { id }): Query<WorkloadQuery>) -> Response {
    let Some(row) = page.live.row(&id) else {
        return Json(json!({"error": "the workload is gone"})).into_response();
    };
    match page.about(&row).await {
        Ok(about) => Json(about).into_response(),
        Err(error) => failed(&error),
    }
}

impl PageState {
    /// Returns the answer about the workload of a row. Without a cluster, only the explanation.
    async fn about(&self, row: &Value) -> Result<Value> {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let object = ChildObject::new(text("namespace"), text("workload"))?;
        let explained = self.child.read(EXPLAIN, &object);
        let Some(client) = &self.client else { return Ok(json!({"explained": explained.await?})) };
        let verb = verb_of(row);
        let may = async {
            match verb {
                Some(verb) => rights::may(client, verb, row).await,
                None => Ok(false),
            }
        };
        let (explained, may, events) = tokio::join!(explained, may, rights::events(client, row));
        Ok(json!({"explained": explained?, "verb": verb.filter(|_| may.unwrap_or(false)), "events": events}))
    }
}

/// Returns the report of a simulation of the cluster's past with the page's limits.
async fn simulation(State(page): SharedPage, Query(limits): Query<TriedLimits>) -> Response {
    let report = page.simulation(&limits).await;
    // a limit that the user has mistyped is not a failure of the server
    Json(report.unwrap_or_else(|error| json!({"error": with_causes(&error)}))).into_response()
}

impl PageState {
    /// Runs a simulation. An error: the page shows files, or another simulation runs.
    async fn simulation(&self, limits: &TriedLimits) -> Result<Value> {
        self.client.as_ref().context("the page shows files: simulate them with kubectl tenure simulate")?;
        let _alone = self.simulates.try_lock().context("another simulation runs: wait for its end")?;
        Ok(shown(self.child.simulate(&limits.flags()?).await?))
    }
}

/// Runs the command that the page has shown, and that the user has confirmed.
async fn change(State(page): SharedPage, Json(change): Json<ConfirmedChange>) -> Response {
    match page.change(&change).await {
        Ok(done) => Json(done).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, Json(json!({"error": with_causes(&error)}))).into_response(),
    }
}

impl PageState {
    /// Runs the command of a change. An error: the workload is gone, or its state has changed so
    /// that the verb isn't for it any more.
    async fn change(&self, ConfirmedChange { id, verb, duration: more }: &ConfirmedChange) -> Result<Value> {
        let row = self.live.row(id).context("the workload is gone")?;
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        self.client.as_ref().context("the page shows files: there is nothing to change")?;
        let known = verb_of(&row).filter(|known| known == verb);
        let verb = known.with_context(|| format!("{verb} isn't possible in state {}", text("state")))?;
        let more = match more {
            Some(more) if verb == "extend" => {
                Some(duration(more).map_err(|error| anyhow!(error))?.to_string())
            }
            _ => None,
        };
        let object = ChildObject::new(text("namespace"), text("workload"))?;
        Ok(serde_json::to_value(self.child.change(verb, &object, more.as_deref()).await?)?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
        net::TcpStream,
        time::{Instant, pause},
    };

    use super::*;
    use crate::ui::{
        connections::{CONNECTIONS, HEADER_TIMEOUT},
        content::PageLook,
    };

    /// Opens a connection, and sends a request.
    async fn send(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Returns all bytes from the server until it closes the connection. A reset is an end as well.
    async fn read(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let read = async { while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {} };
        timeout(2 * HEADER_TIMEOUT, read).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Waits for the next event of a stream.
    async fn next_event(lines: &mut Lines<BufReader<TcpStream>>) {
        while !lines.next_line().await.unwrap().unwrap().starts_with("data: ") {}
    }

    #[tokio::test]
    async fn connections_that_say_nothing_and_bodies_that_never_end_keep_no_page_waiting() {
        let live = Arc::new(Live::new(PageLook::default()));
        let child = Child { connect: Vec::new(), token: None, reading: Vec::new(), namespace: None };
        let server = UiServer::bind(0, Arc::clone(&live), child, None).await.unwrap();
        let (address, page) = (server.address, Arc::clone(&server.page));
        tokio::spawn(server.serve());
        let (cookie, key) = page.sign_in.exchange(&page.sign_in.code()).unwrap().unwrap();
        let of_user = format!("Host: localhost\r\nCookie: {cookie}\r\n{KEY}: {key}\r\n\r\n");
        let mut events =
            BufReader::new(send(address, &format!("GET /events HTTP/1.1\r\n{of_user}")).await).lines();
        next_event(&mut events).await;

        let begun = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            silent.push(send(address, "").await);
        }
        let entry = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let entry = read(&mut send(address, entry).await).await;
        assert!(entry.contains("Sign in"), "{entry}");
        assert_eq!(read(&mut silent[0]).await, "");
        assert!(begun.elapsed() < HEADER_TIMEOUT, "the oldest one makes way");

        pause();
        for stream in &mut silent {
            assert_eq!(read(stream).await, "");
        }
        let sign_in = async |length: usize, body: &str| {
            let form = "Content-Type: application/x-www-form-urlencoded";
            let head = format!("POST /sign-in HTTP/1.1\r\nHost: localhost\r\n{form}");
            let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
            read(&mut send(address, &request).await).await
        };
        let slow = sign_in(10, "code=").await;
        assert!(slow.starts_with("HTTP/1.1 408 "), "{slow}");
        let long = sign_in(BODY_BYTES + 1, &"a".repeat(BODY_BYTES + 1)).await;
        assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
        live.show(PageLook::default(), Duration::ZERO);
        next_event(&mut events).await;
    }
}
