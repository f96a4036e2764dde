//! Reads from the API server what a list is made of.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::{
    StreamExt, TryStreamExt,
    future::OptionFuture,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{climb::Answer, config::Config, expiry::Family};

use super::{row::Row, view::View};
use crate::{
    input::Document,
    kinds::{Kind, Kinds},
    server::{code, explain},
    snapshot::{Cluster, Snapshot, found},
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
    cluster: Cluster,
    discovered: Instant,
    /// None: all.
    namespace: Option<String>,
    t9k_system_namespace: String,
    config: Config,
    told: HashSet<String>,
}

/// A part of a list of one kind.
enum Page {
    Documents(Vec<Document>),
    Owners(Vec<ObjectMeta>),
}

impl Gatherer {
    /// By the servers' configuration.
    pub fn new(
        cluster: Cluster,
        namespace: Option<String>,
        t9k_system_namespace: String,
        config: Config,
    ) -> Self {
        let (discovered, told) = (Instant::now(), HashSet::new());
        Self { cluster, discovered, namespace, t9k_system_namespace, config, told }
    }

    /// What time the API server has.
    pub fn now(&self) -> Timestamp {
        self.cluster.clock.now()
    }

    /// Says something on standard error, but only once.
    pub fn warn(&mut self, what: String) {
        if !self.told.contains(&what) {
            warn(&what);
            self.told.insert(what);
        }
    }

    /// All workloads as they are now.
    pub async fn gather(&mut self) -> Result<Vec<Row>> {
        Ok(self.view().await?.rows(self.now()))
    }

    /// All that is known of them.
    pub async fn view(&mut self) -> Result<View> {
        if self.discovered.elapsed() > BETWEEN_DISCOVERIES {
            self.cluster.kinds = Kinds::discover(&self.cluster.client).await.map_err(explain)?;
            self.discovered = Instant::now();
        }
        let snapshot = Snapshot::new(&self.config, Some(&self.t9k_system_namespace), self.now());
        let mut view = View::new(snapshot);
        // before the pods: what they are in, and whose they are
        let mut lists = stream::iter(self.lists()).flatten_unordered(AT_ONCE);
        while let Some((kind, page)) = lists.next().await {
            match page {
                Ok(Page::Documents(found)) => view.snapshot.take(&found),
                Ok(Page::Owners(found)) => view.snapshot.take_owners(&kind, &found),
                Err(error) => {
                    view.snapshot.owners.not_listed(&kind.resource.group, &kind.resource.kind);
                    self.warn(format!("can't list {}: {}", kind.plural(), with_causes(&explain(error))));
                }
            }
        }
        let pods = self.cluster.pods(self.namespace.as_deref(), Some(LIVE)).try_for_each(|page| {
            view.pods(&page);
            std::future::ready(Ok(()))
        });
        pods.await.map_err(explain)?;
        view.complete();
        self.ask(&mut view).await;
        for warning in view.snapshot.warnings() {
            self.warn(warning);
        }
        // some clusters have the queues of one family alone: the other matters where somebody counts on it
        let is_absent = |family: &Family| self.cluster.kinds.queues(*family).is_none();
        let mut absent = vec![Family::Runai, Family::Tensorstack];
        absent.retain(is_absent);
        let is_alone = absent.len() == 1;
        for family in absent.into_iter().filter(|family| !is_alone || view.counts_on(*family)) {
            let group = family.group();
            self.warn(format!("the cluster has no queues.{group}: pods that name one have no ceiling"));
        }
        Ok(view)
    }

    /// Lists of everything but pods.
    fn lists(&self) -> Vec<BoxStream<'static, (Kind, kube::Result<Page>)>> {
        let (cluster, namespace) = (&self.cluster, self.namespace.as_deref());
        let runai = cluster.kinds.queues(Family::Runai).map(|kind| (kind, None));
        let tensorstack = cluster.kinds.queues(Family::Tensorstack);
        let tensorstack = tensorstack.map(|kind| (kind, Some(self.t9k_system_namespace.as_str())));
        let groups = cluster.kinds.pod_groups().map(|(_, kind)| (kind, namespace));
        let documents = runai.into_iter().chain(tensorstack).chain(groups).map(|(kind, place)| {
            let (pages, kind) = (cluster.documents(kind, place), kind.clone());
            pages.map(move |page| (kind.clone(), page.map(Page::Documents))).boxed()
        });
        let owners = self.config.table.ancestors();
        let owners = owners.filter_map(|(group, kind, _)| cluster.kinds.find(group, kind));
        let owners = owners.map(|kind| {
            let (pages, kind) = (cluster.metadata(kind, namespace), kind.clone());
            pages.map(move |page| (kind.clone(), page.map(Page::Owners))).boxed()
        });
        documents.chain(owners).collect()
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
                let look = OptionFuture::from(may.then(|| self.cluster.look_up(&namespace, &owner)));
                async move { (owner, look.await) }
            });
            let looks: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
            for (owner, look) in looks {
                let answer = match look {
                    None => Answer::Forbidden,
                    Some(Ok(met)) => met.as_ref().map_or(Answer::Absent, found),
                    Some(Err(error)) => {
                        if code(&error) == Some(403) {
                            forbidden.insert((owner.api_version.clone(), owner.kind.clone()));
                        }
                        let error = with_causes(&explain(error));
                        self.warn(format!("can't get owners of kind {}: {error}", owner.kind));
                        Answer::Forbidden
                    }
                };
                view.snapshot.owners.learn(&owner, answer);
            }
        }
    }
}
