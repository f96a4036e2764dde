//! Lists in pages.

use std::fmt::Debug;

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use kube::{Api, api::ListParams, core::ObjectList};
use serde::de::DeserializeOwned;

/// The number of objects that `kubectl get` asks for at a time.
const PAGE: u32 = 500;

/// Objects, page by page.
pub type Pages<K> = BoxStream<'static, kube::Result<Vec<K>>>;

/// The objects that an API has.
pub fn objects<K>(api: Api<K>, fields: Option<&'static str>) -> Pages<K>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let list = move |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    };
    pages(fields, list).boxed()
}

/// The objects of a list, page by page. `list` asks for one page.
pub fn pages<K: Clone, F: Future<Output = kube::Result<ObjectList<K>>>>(
    fields: Option<&'static str>,
    list: impl Fn(ListParams) -> F,
) -> impl Stream<Item = kube::Result<Vec<K>>> {
    let first = ListParams { field_selector: fields.map(str::to_owned), ..ListParams::default().limit(PAGE) };
    stream::try_unfold((Some(first), list), async |(next, list)| {
        let Some(mut params) = next else { return Ok(None) };
        let page = match list(params.clone()).await {
            Err(error) if params.continue_token.is_some() => {
                // the token was too old; the answer has one to go on with from the same place
                params.continue_token = Some(newer_token(error)?);
                list(params.clone()).await?
            }
            page => page?,
        };
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        let next = token.map(|token| ListParams { continue_token: Some(token), ..params });
        Ok(Some((page.items, (next, list))))
    })
}

fn newer_token(error: kube::Error) -> kube::Result<String> {
    match &error {
        kube::Error::Api(status) if status.code == 410 => {
            let token = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
            token.filter(|token| !token.is_empty()).ok_or(error)
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use kube::core::{Status, TypeMeta};
    use serde_json::{Value, json};

    use super::*;

    fn page(items: &[u8], token: &str) -> ObjectList<u8> {
        let metadata: Value = json!({"continue": token});
        ObjectList {
            types: TypeMeta::default(),
            metadata: serde_json::from_value(metadata).unwrap(),
            items: items.to_vec(),
        }
    }

    async fn all(list: impl AsyncFn(&str) -> kube::Result<ObjectList<u8>>) -> Option<Vec<u8>> {
        let list = &list;
        let pages = pages(None, |params| async move {
            assert_eq!(params.limit, Some(PAGE));
            list(params.continue_token.as_deref().unwrap_or("")).await
        });
        pages.try_concat().await.ok()
    }

    #[tokio::test]
    async fn all_pages_are_read() {
        let list = async |token: &str| match token {
            "" => Ok(page(&[1, 2], "a")),
            _ => Ok(page(&[3], "")),
        };
        assert_eq!(all(list).await, Some(vec![1, 2, 3]));
    }

    fn gone(token: Option<&str>) -> kube::Error {
        let status = json!({"code": 410, "metadata": {"continue": token}});
        kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
    }

    #[tokio::test]
    async fn a_list_that_takes_too_long_goes_on() {
        let list = async |token: &str| match token {
            "" => Ok(page(&[1], "old")),
            "old" => Err(gone(Some("new"))),
            _ => Ok(page(&[2], "")),
        };
        assert_eq!(all(list).await, Some(vec![1, 2]));
        assert_eq!(all(async |_| Err(gone(Some("new")))).await, None);
        let list = async |token: &str| if token.is_empty() { Ok(page(&[1], "old")) } else { Err(gone(None)) };
        assert_eq!(all(list).await, None);
    }
}
