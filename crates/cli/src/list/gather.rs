//! Reads the objects of a list from the API server.
//!
//! Called by `list`, `queue`, `forecast`, `ui`, `simulate`, the completion, and changes in bulk; by
//! a watch again and again. Kinds that the user may not list are left out, with a warning. An owner
//! that can't be read counts as forbidden, never as absent.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    iter,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::{climb::OwnerLookup, config::Config, expiry::Family, pause::OwnerObject};
use tenure_types::{extension, selector::Selector};

use super::{row::WorkloadRow, view::ListView};
use crate::{
    cluster::{
        AT_ONCE, ClusterReader, ConnectArgs, OwnersByName, ResourceKind, ResourceKinds, explain, is_forbidden,
    },
    print::{warn, with_causes},
    snapshot::{NotListed, Snapshot},
};

/// The number of owners that are read one by one before the climbs continue with the answers.
const ROUND: usize = 64;

/// The most owners of a kind in a namespace that are read one by one. Any tenant may name thousands:
/// beyond that, all objects of the kind in the namespace are listed.
const ONE_BY_ONE: usize = 500;

/// The longest time for which a watch misses a kind that was installed later.
const BETWEEN_DISCOVERIES: Duration = Duration::from_mins(1);

/// Reads views of a cluster, and remembers between them the kinds and the warnings.
pub struct Gatherer {
    pub cluster: ClusterReader,
    discovered: Instant,
    /// The namespace of workloads. None: all namespaces.
    pub namespace: Option<String>,
    t9k_system_namespace: String,
    config: Config,
    /// Selects workloads by their own labels.
    pub selector: Option<Selector>,
    /// The warnings that were printed.
    printed: HashSet<String>,
    /// The warnings since a caller emptied this set.
    pub warnings: BTreeSet<String>,
    /// The error of the last read of queues, unless it was a missing right. No queue is known then.
    /// None: queues were read.
    pub queues_failed: Option<String>,
    /// True to print no warnings.
    pub is_silent: bool,
}

impl Gatherer {
    /// Returns a gatherer that selects all workloads and prints its warnings.
    pub fn new(
        cluster: ClusterReader,
        namespace: Option<String>,
        t9k_system_namespace: String,
        config: Config,
    ) -> Self {
        let (printed, warnings, queues_failed) = Default::default();
        Self {
            cluster,
            discovered: Instant::now(),
            namespace,
            t9k_system_namespace,
            config,
            selector: None,
            printed,
            warnings,
            queues_failed,
            is_silent: false,
        }
    }

    /// Connects to the cluster. Returns a gatherer for the namespace that is named, or for all
    /// namespaces; if the user may not list the pods of all, for that of the context.
    pub async fn of_pods(connect: ConnectArgs, t9k_system_namespace: &str, config: &Config) -> Result<Self> {
        let named = connect.named_namespace().map(str::to_owned);
        let cluster = connect.connect().await?;
        let namespace = cluster.namespace_of_pods(named).await?;
        Ok(Self::new(cluster, namespace, t9k_system_namespace.to_owned(), config.clone()))
    }

    /// Returns the present time of the API server's clock.
    pub fn now(&self) -> Timestamp {
        self.cluster.clock.now()
    }

    /// Prints a warning on standard error, unless it was printed before.
    pub fn warn(&mut self, what: String) {
        self.warnings.insert(what.clone());
        if !self.is_silent && !self.printed.contains(&what) {
            warn(&what);
            self.printed.insert(what);
        }
    }

    /// Reads everything that a list shows.
    pub async fn view(&mut self) -> Result<ListView> {
        let mut view = self.without_pods().await?;
        view.list_pods(&self.cluster, self.namespace.as_deref()).await.map_err(explain)?;
        self.complete(&mut view).await;
        Ok(view)
    }

    /// Lists all objects that pods depend on: queues, groups, extensions and owners. The caller
    /// adds pods, and then calls [`complete`](Self::complete).
    pub async fn without_pods(&mut self) -> Result<ListView> {
        if self.discovered.elapsed() > BETWEEN_DISCOVERIES {
            self.cluster.kinds = ResourceKinds::discover(&self.cluster.client).await.map_err(explain)?;
            self.discovered = Instant::now();
        }
        let mut view = self.empty();
        // before the pods: the queues, groups and owners that they name
        let (kinds, namespace) = (&self.cluster.kinds, self.namespace.as_deref());
        let extensions = kinds.find(extension::GROUP, "Extension").map(|kind| (kind, namespace));
        let lists = kinds.queues_and_groups(&self.t9k_system_namespace, namespace).chain(extensions);
        let not_listed = view.snapshot.list(&self.cluster, lists, self.owners()).await;
        let failed = not_listed.iter().find(|of| !of.is_forbidden && of.kind.resource.kind == "Queue");
        self.queues_failed = failed.map(|of| with_causes(&of.error));
        self.warn_not_listed(&not_listed, "what they say isn't shown");
        Ok(view)
    }

    /// Reads the owners that are missing once all pods were added, and prints warnings.
    pub async fn complete(&mut self, view: &mut ListView) {
        self.ask(view).await;
        for warning in view.snapshot.warnings() {
            self.warn(warning);
        }
        // some clusters have the queues of one family alone: the other family matters if a pod
        // names its queue
        let mut absent = Family::ALL.to_vec();
        absent.retain(|family| self.cluster.kinds.queues(*family).is_none());
        if let [family] = absent[..] {
            absent.retain(|_| view.queues_of_pods().any(|(of, ..)| of == family));
        }
        for family in absent {
            let group = family.row().group;
            self.warn(format!("the cluster has no queues.{group}: pods that name one have no ceiling"));
        }
    }

    /// Returns a view without objects.
    fn empty(&self) -> ListView {
        let mut snapshot = Snapshot::new(&self.config, Some(&self.t9k_system_namespace), self.now());
        snapshot.selected.selector.clone_from(&self.selector);
        ListView::new(snapshot)
    }

    /// Returns the kinds that may be above pods, each with the namespace in which it is listed.
    fn owners(&self) -> impl Iterator<Item = (&ResourceKind, Option<&str>)> {
        let (kinds, namespace) = (&self.cluster.kinds, self.namespace.as_deref());
        let owners = self.config.table.ancestors();
        owners.filter_map(move |(group, kind, _)| Some((kinds.find(group, kind)?, namespace)))
    }

    /// Warns about kinds that aren't listed. `so` says what follows from a missing right.
    fn warn_not_listed(&mut self, not_listed: &[NotListed], so: &str) {
        let (forbidden, failed): (Vec<_>, Vec<_>) = not_listed.iter().partition(|of| of.is_forbidden);
        for NotListed { error, .. } in failed {
            self.warn(with_causes(error));
        }
        if !forbidden.is_empty() {
            let kinds = forbidden.iter().map(|of| of.kind.plural()).collect::<Vec<_>>();
            self.warn(format!("you may not list {}: {so}", kinds.join(", ")));
        }
    }

    /// Returns the workloads that have a record of a pause, without reading pods, and true if a
    /// kind couldn't be listed though the user may. An error if no kind could be listed.
    pub async fn paused(&mut self) -> Result<(Vec<WorkloadRow>, bool)> {
        let mut view = self.empty();
        let wanted = self.owners().count();
        let mut not_listed = view.snapshot.list(&self.cluster, iter::empty(), self.owners()).await;
        if not_listed.len() == wanted && wanted > 0 {
            return Err(not_listed.swap_remove(0).error);
        }
        self.warn_not_listed(&not_listed, "what is paused of them is left out");
        self.ask(&mut view).await;
        Ok((view.rows(self.now()), not_listed.iter().any(|of| !of.is_forbidden)))
    }

    /// Reads the owners that no list had, until all climbs have ended. An owner that can't be read
    /// counts as forbidden.
    async fn ask(&mut self, view: &mut ListView) {
        let mut reads = OwnerReads::default();
        loop {
            let asks = view.asks();
            if asks.is_empty() {
                return;
            }
            for of in reads.crowded(&asks) {
                let (namespace, api_version, kind) = &of;
                let listed = self.cluster.list_owners(namespace, api_version, kind).await;
                let listed = listed.inspect_err(|error| self.warn(with_causes(error))).ok();
                reads.listed.insert(of, listed);
            }
            let is_listed = |(namespace, owner): &(String, OwnerReference)| {
                reads.listed.contains_key(&of_kind(namespace, owner))
            };
            let (listed, mut others): (Vec<_>, Vec<_>) = asks.into_iter().partition(is_listed);
            for (namespace, owner) in listed {
                let Some(Some(all)) = reads.listed.get(&of_kind(&namespace, &owner)) else {
                    view.snapshot.owners.learn(&namespace, &owner, OwnerLookup::Forbidden);
                    continue;
                };
                let met = all.get(&owner.name).map(|(metadata, has_ended)| (metadata, *has_ended));
                view.snapshot.learn(&namespace, &owner, met);
            }
            others.truncate(ROUND);
            self.read_owners(others, &mut reads, view).await;
        }
    }

    /// Reads owners one by one.
    async fn read_owners(
        &mut self,
        owners: Vec<(String, OwnerReference)>,
        reads: &mut OwnerReads,
        view: &mut ListView,
    ) {
        let OwnerReads { forbidden, counts, .. } = reads;
        let read = owners.into_iter().map(async |(namespace, owner)| {
            if forbidden.contains(&(owner.api_version.clone(), owner.kind.clone())) {
                return (namespace, owner, None);
            }
            let read = self.cluster.find_owner(&namespace, &owner).await;
            (namespace, owner, Some(read))
        });
        let read: Vec<_> = stream::iter(read).buffer_unordered(AT_ONCE).collect().await;
        for (namespace, owner, read) in read {
            let count = counts.entry(of_kind(&namespace, &owner)).or_default();
            *count = count.saturating_add(1);
            match read {
                Some(Ok(met)) => {
                    let met = met.as_ref();
                    let met = met.map(|of| (&of.metadata, OwnerObject(&of.value).is_finished()));
                    view.snapshot.learn(&namespace, &owner, met);
                }
                None => view.snapshot.owners.learn(&namespace, &owner, OwnerLookup::Forbidden),
                Some(Err(error)) => {
                    let of_kind = (owner.api_version.clone(), owner.kind.clone());
                    // a refusal names its object, and has the same reason for each object of
                    // the kind
                    if !is_forbidden(&error) || forbidden.insert(of_kind) {
                        let error = with_causes(&explain(error));
                        self.warn(format!("can't get owners of kind {}: {error}", owner.kind));
                    }
                    view.snapshot.owners.learn(&namespace, &owner, OwnerLookup::Forbidden);
                }
            }
        }
    }
}

/// A kind of owners in a namespace: the namespace, the `apiVersion` and the kind.
type OwnersOfKind = (String, String, String);

fn of_kind(namespace: &str, owner: &OwnerReference) -> OwnersOfKind {
    (namespace.to_owned(), owner.api_version.clone(), owner.kind.clone())
}

/// The reads of the owners that no list had.
#[derive(Default)]
struct OwnerReads {
    /// The kinds that the user may not get, by `apiVersion` and kind.
    forbidden: HashSet<(String, String)>,
    /// The number of owners that were read one by one.
    counts: HashMap<OwnersOfKind, usize>,
    /// The owners that were listed instead. None: they can't be listed.
    listed: HashMap<OwnersOfKind, Option<OwnersByName>>,
}

impl OwnerReads {
    /// Returns the kinds that are to be listed: too many of their owners were read one by one, or
    /// would be for these pods and owners.
    fn crowded(&self, asks: &[(String, OwnerReference)]) -> Vec<OwnersOfKind> {
        let mut counts = self.counts.clone();
        for (namespace, owner) in asks {
            let count = counts.entry(of_kind(namespace, owner)).or_default();
            *count = count.saturating_add(1);
        }
        let is_crowded = |(of, count): &(OwnersOfKind, usize)| {
            let (_, api_version, kind) = of;
            let is_forbidden = self.forbidden.contains(&(api_version.clone(), kind.clone()));
            *count > ONE_BY_ONE && !is_forbidden && !self.listed.contains_key(of)
        };
        counts.into_iter().filter(is_crowded).map(|(of, _)| of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_owners_of_a_kind_in_a_namespace_than_are_read_one_by_one_are_listed_once() {
        let asks = |namespace: &str, count: usize| {
            let owner = |number: usize| OwnerReference {
                api_version: "ray.io/v1".into(),
                kind: "RayJob".into(),
                name: format!("job-{number}"),
                ..OwnerReference::default()
            };
            (0..count).map(|number| (namespace.to_owned(), owner(number))).collect::<Vec<_>>()
        };
        let jobs = |namespace: &str| (namespace.to_owned(), "ray.io/v1".to_owned(), "RayJob".to_owned());
        let mut reads = OwnerReads::default();
        let all = [asks("flood", ONE_BY_ONE + 1), asks("quiet", ONE_BY_ONE)].concat();
        assert_eq!(reads.crowded(&all), [jobs("flood")]);
        reads.listed.insert(jobs("flood"), None);
        assert!(reads.crowded(&all).is_empty());
        // earlier reads count as well
        reads.counts.insert(jobs("quiet"), ONE_BY_ONE);
        assert_eq!(reads.crowded(&asks("quiet", 1)), [jobs("quiet")]);
        reads.forbidden.insert(("ray.io/v1".into(), "RayJob".into()));
        assert!(reads.crowded(&asks("quiet", 1)).is_empty());
    }
}
