//! Reads from the API server what a list is made of.

use std::{
    collections::HashSet,
    fmt::Debug,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource,
    core::{DeserializeGuard, DynamicObject, NamespaceResourceScope, PartialObjectMeta},
};
use serde::de::DeserializeOwned;
use tenure_policy::{climb::Answer, config::Config, expiry::Family};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{self, Pod, RunaiQueue, RunaiQueueV2, TensorstackQueue},
};

use super::{
    row::Row,
    view::{Page, View},
};
use crate::{
    kinds::{Kind, Kinds},
    pages::pages,
    server::{Clock, code, explain},
    target::is_segment,
    tell::{warn, with_causes},
};

/// Requests under way at once.
const AT_ONCE: usize = 8;

/// Owners that are asked for one by one before a look at what they have answered.
const ROUND: usize = 64;

/// How long a kind that comes later goes unseen by a watch.
const BETWEEN_DISCOVERIES: Duration = Duration::from_mins(1);

/// Nothing is to be said of pods that have ended, and old clusters are full of them.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Lists workloads, again and again.
pub struct Gatherer {
    client: Client,
    /// None: all.
    namespace: Option<String>,
    t9k_system_namespace: String,
    config: Config,
    kinds: Kinds,
    discovered: Option<Instant>,
    told: HashSet<String>,
}

impl Gatherer {
    /// By the servers' configuration.
    pub fn new(
        client: Client,
        namespace: Option<String>,
        t9k_system_namespace: String,
        config: Config,
    ) -> Self {
        Self {
            client,
            namespace,
            t9k_system_namespace,
            config,
            kinds: Kinds::default(),
            discovered: None,
            told: HashSet::new(),
        }
    }

    /// Says something on standard error, but only once.
    pub fn warn(&mut self, what: String) {
        if !self.told.contains(&what) {
            warn(&what);
            self.told.insert(what);
        }
    }

    /// All workloads as they are now.
    pub async fn gather(&mut self, clock: Clock) -> Result<Vec<Row>> {
        Ok(self.view().await?.rows(clock.now()))
    }

    /// All that is known of them.
    pub async fn view(&mut self) -> Result<View> {
        if self.discovered.is_none_or(|at| at.elapsed() > BETWEEN_DISCOVERIES) {
            self.kinds = Kinds::discover(&self.client).await.map_err(explain)?;
            self.discovered = Some(Instant::now());
        }
        let mut view = View::new(&self.config);
        // before the pods: what they are in, and whose they are
        let mut sources = stream::iter(self.sources()).flatten_unordered(AT_ONCE);
        while let Some((source, page)) = sources.next().await {
            match page {
                Ok(page) => view.take(page),
                Err(error) => self.skip(&mut view, &source, error),
            }
        }
        self.pods(&mut view).await?;
        self.ask(&mut view).await;
        for warning in view.warnings() {
            self.warn(warning);
        }
        for family in self.missing(&view) {
            self.warn(format!(
                "the cluster has no {}: pods that name one have no ceiling",
                queues_of(family)
            ));
        }
        Ok(view)
    }

    fn skip(&mut self, view: &mut View, source: &Source, error: kube::Error) {
        if let Some((group, kind)) = &source.owners {
            view.owners.not_listed(group, kind);
        }
        self.warn(format!("can't list {}: {}", source.name, with_causes(&explain(error))));
    }

    /// Lists of everything but pods.
    fn sources(&self) -> Vec<BoxStream<'static, (Source, kube::Result<Page>)>> {
        let (namespace, client) = (self.namespace.as_deref(), &self.client);
        let mut sources = Vec::new();
        if self.serves::<RunaiQueue>() {
            sources.push(source(queues_of(Family::Runai), Api::all(client.clone()), Page::Runai));
        } else if self.serves::<RunaiQueueV2>() {
            sources.push(source(queues_of(Family::Runai), Api::all(client.clone()), Page::RunaiV2));
        }
        if self.serves::<TensorstackQueue>() {
            let here = Api::namespaced(client.clone(), &self.t9k_system_namespace);
            sources.push(source(queues_of(Family::Tensorstack), here, Page::Tensorstack));
        }
        sources.extend(self.kinds.pod_groups().map(|(of, kind)| groups(client, namespace, of, kind)));
        let kinds = self.config.table.ancestors().filter_map(|(group, kind, _)| self.kinds.find(group, kind));
        sources.extend((0u16..).zip(kinds).map(|(number, kind)| owners(client, namespace, number, kind)));
        sources
    }

    fn serves<K: Resource<DynamicType = ()>>(&self) -> bool {
        let reference = OwnerReference {
            api_version: K::api_version(&()).into(),
            kind: K::kind(&()).into(),
            ..OwnerReference::default()
        };
        self.kinds.of(&reference).is_some()
    }

    async fn pods(&self, view: &mut View) -> Result<()> {
        let api: Api<Pod> = scoped(&self.client, self.namespace.as_deref());
        let pods = pages(Some(LIVE), |params| {
            let api = api.clone();
            async move { api.list(&params).await }
        });
        let taken = pods.try_for_each(|page| {
            for pod in &page {
                view.pod(pod);
            }
            std::future::ready(Ok(()))
        });
        taken.await.map_err(explain)?;
        view.complete();
        Ok(())
    }

    /// Asks for the owners that no list had, until all climbs have come to their ends.
    async fn ask(&mut self, view: &mut View) {
        let mut forbidden = HashSet::new();
        loop {
            let mut owners = view.asks();
            if owners.is_empty() {
                return;
            }
            owners.truncate(ROUND);
            let looks = owners.into_iter().map(|(namespace, owner)| {
                let may = !forbidden.contains(&(owner.api_version.clone(), owner.kind.clone()));
                let look = self.look_up(&namespace, owner.clone(), may);
                async move { (owner, look.await) }
            });
            let answers: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
            for (owner, answer) in answers {
                if let Err(error) = &answer
                    && code(error) == Some(403)
                {
                    forbidden.insert((owner.api_version.clone(), owner.kind.clone()));
                }
                let answer = answer.unwrap_or_else(|error| {
                    let error = with_causes(&explain(error));
                    self.warn(format!("can't get owners of kind {}: {error}", owner.kind));
                    Answer::Forbidden
                });
                view.owners.learn(&owner, answer);
            }
        }
    }

    fn look_up(
        &self,
        namespace: &str,
        owner: OwnerReference,
        may: bool,
    ) -> impl Future<Output = kube::Result<Answer>> + use<> {
        let kind = self.kinds.of(&owner).filter(|_| is_segment(&owner.name));
        let api = kind.map(|kind| kind.api(&self.client, Some(namespace)));
        async move {
            let Some(api) = api else { return Ok(Answer::Absent) };
            if !may {
                return Ok(Answer::Forbidden);
            }
            let found = api.get_metadata_opt(&owner.name).await?;
            Ok(found.map_or(Answer::Absent, |found| Answer::Found {
                controller: projection::controller(&found.metadata).cloned(),
                deleting: found.metadata.deletion_timestamp.is_some(),
                uid: found.metadata.uid.unwrap_or_default(),
            }))
        }
    }

    /// Families whose queues the cluster doesn't have although somebody counts on them.
    fn missing(&self, view: &View) -> Vec<Family> {
        let absent = [
            (Family::Runai, !self.serves::<RunaiQueue>() && !self.serves::<RunaiQueueV2>()),
            (Family::Tensorstack, !self.serves::<TensorstackQueue>()),
        ];
        let all = absent.iter().all(|(_, absent)| *absent);
        let missed =
            absent.into_iter().filter(|(family, absent)| *absent && (all || view.counts_on(*family)));
        missed.map(|(family, _)| family).collect()
    }
}

/// What a list is of.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    /// Group and kind, if its objects may own pods.
    owners: Option<(String, String)>,
}

const fn queues_of(family: Family) -> &'static str {
    match family {
        Family::Runai => "queues.scheduling.run.ai",
        Family::Tensorstack => "queues.scheduler.tensorstack.dev",
    }
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// One object that can't be read must not hide all others.
fn source<K>(
    name: &str,
    api: Api<DeserializeGuard<K>>,
    page: fn(Vec<K>) -> Page,
) -> BoxStream<'static, (Source, kube::Result<Page>)>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let source = Source { name: name.into(), owners: None };
    let pages = pages(None, move |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    });
    let readable = move |guards: Vec<DeserializeGuard<K>>| {
        page(guards.into_iter().filter_map(|guard| guard.0.ok()).collect())
    };
    pages.map(move |found| (source.clone(), found.map(&readable))).boxed()
}

fn groups(
    client: &Client,
    namespace: Option<&str>,
    of: PodGroupKind,
    kind: &Kind,
) -> BoxStream<'static, (Source, kube::Result<Page>)> {
    let source = Source { name: kind.plural(), owners: None };
    let api: Api<PodGroup> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
        None => Api::all_with(client.clone(), &kind.resource),
    };
    let pages = pages(None, move |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    });
    pages.map(move |found| (source.clone(), found.map(|groups| Page::Groups(of, groups)))).boxed()
}

fn owners(
    client: &Client,
    namespace: Option<&str>,
    number: u16,
    kind: &Kind,
) -> BoxStream<'static, (Source, kube::Result<Page>)> {
    let (group, name) = (kind.resource.group.clone(), kind.resource.kind.clone());
    let source = Source { name: kind.plural(), owners: Some((group, name)) };
    let (api, kind) = (kind.api(client, namespace), kind.clone());
    let pages = pages(None, move |params| {
        let api = api.clone();
        async move { api.list_metadata(&params).await }
    });
    let page = move |found: Vec<PartialObjectMeta<DynamicObject>>| {
        let metadata = found.into_iter().map(|object| object.metadata).collect();
        Page::Owners(number, kind.clone(), metadata)
    };
    pages.map(move |found| (source.clone(), found.map(&page))).boxed()
}
