//! Writes objects to etcd directly, where the API server stores them: a hundred times faster than
//! through the API server. No admission and no defaulting takes place.

use anyhow::{Context, Result};
use futures::stream::{StreamExt, TryStreamExt, iter};
use http::{Request, header::CONTENT_TYPE};
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde_json::{Value, json};
use tenure_testbed::Cluster;

/// The number of writes in one transaction. etcd allows 128.
const PUTS: usize = 100;
/// The transactions that are under way at the same time.
const CONCURRENCY: usize = 4;

/// An object by its key, such as `/registry/pods/<namespace>/<name>`.
pub struct Stored {
    /// The key under which the API server stores it.
    pub key: String,
    /// The value as JSON, which the API server reads as well as its own format.
    pub value: String,
}

/// Stores objects. Objects of the same keys are overwritten.
pub async fn put_all(cluster: &Cluster, objects: impl Iterator<Item = Stored>) -> Result<()> {
    let client = Client::try_from(Config::new(cluster.etcd_url().parse()?))?;
    let mut objects = objects.peekable();
    let transactions = std::iter::from_fn(|| {
        objects.peek()?;
        Some(objects.by_ref().take(PUTS).map(put).collect::<Vec<Value>>())
    });
    iter(transactions).map(|puts| transact(&client, puts)).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Returns a write of a transaction, with key and value in base64.
fn put(object: Stored) -> Value {
    let Stored { key, value } = object;
    json!({"requestPut": {"key": ByteString(key.into_bytes()), "value": ByteString(value.into_bytes())}})
}

/// Commits writes in one transaction.
async fn transact(client: &Client, puts: Vec<Value>) -> Result<()> {
    let body = json!({"success": puts}).to_string().into_bytes();
    let request = Request::post("/v3/kv/txn").header(CONTENT_TYPE, "application/json").body(body)?;
    client.request_text(request).await.map(drop).context("etcd takes no objects")
}
