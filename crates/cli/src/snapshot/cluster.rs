//! Adds the objects of a cluster to a snapshot.
//!
//! Called by [`Snapshot::read`] for explanations, and by `list::gather` and `status` for whole
//! lists. Kinds are listed side by side, some as whole objects and some as metadata alone, which is
//! smaller.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Error, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{expiry::Family, kueue, naming::is_segment};
use tenure_types::{extension, podgroup::PodGroupKind, projection::Pod};

use super::{ExplanationScope, ListedOwner, NamespacedName, Snapshot, group_names, key};
use crate::{
    cluster::{
        AT_ONCE, ClusterReader, LIVE, MOST_LEFT_OUT, Pages, ResourceKind, cannot_list, explain, is_forbidden,
        objects,
    },
    input::Document,
    list::ended::missing,
    print::{warn, with_causes},
};

/// A kind that couldn't be listed.
pub struct NotListed {
    pub kind: ResourceKind,
    pub error: Error,
    /// True if a right was missing.
    pub is_forbidden: bool,
}

/// A page of a list. A whole object that can't be read is a warning.
enum Page {
    Whole(Vec<Result<Document, String>>),
    Metadata(Vec<ObjectMeta>),
}

impl Snapshot {
    /// Lists kinds in their namespaces, as whole objects or as metadata, and adds the objects. A
    /// namespace None: all namespaces. Objects that can't be read lead to warnings. Returns the kinds
    /// that couldn't be listed, with the errors, in the order of the arguments.
    pub async fn list<'k>(
        &mut self,
        cluster: &ClusterReader,
        whole: impl Iterator<Item = (&'k ResourceKind, Option<&str>)>,
        metadata: impl Iterator<Item = (&'k ResourceKind, Option<&str>)>,
    ) -> Vec<NotListed> {
        let whole = whole.map(|(kind, of)| (kind, cluster.documents(kind, of).map_ok(Page::Whole).boxed()));
        let metadata =
            metadata.map(|(kind, of)| (kind, cluster.metadata(kind, of).map_ok(Page::Metadata).boxed()));
        let lists = whole.chain(metadata).enumerate();
        let lists = lists.map(|(number, (kind, pages))| pages.map(move |page| (number, kind, page)));
        let mut lists = stream::iter(lists).flatten_unordered(AT_ONCE);
        let mut failed = BTreeMap::new();
        while let Some((number, kind, page)) = lists.next().await {
            match page {
                Ok(Page::Whole(found)) => self.take_whole(kind, found),
                Ok(Page::Metadata(found)) => self.take_metadata(kind, found),
                Err(error) => {
                    self.owners.not_listed(&kind.resource.group, &kind.resource.kind);
                    let is_forbidden = is_forbidden(&error);
                    let family = Family::of(&kind.resource.group).filter(|_| kind.resource.kind == "Queue");
                    if let Some(family) = family.filter(|_| is_forbidden) {
                        self.hidden[family] = true;
                    }
                    let error = cannot_list(kind, error);
                    failed.insert(number, NotListed { kind: kind.clone(), error, is_forbidden });
                }
            }
        }
        failed.into_values().collect()
    }

    /// Adds whole objects of a kind, and warns of objects that can't be read.
    fn take_whole(&mut self, kind: &ResourceKind, found: Vec<Result<Document, String>>) {
        let start = format!("{} ", kind.singular());
        let mut failed = self.left_out.iter().filter(|text| text.starts_with(&start)).count();
        for object in found {
            match object {
                Ok(document) => {
                    self.take([&document]);
                    continue;
                }
                Err(why) if failed < MOST_LEFT_OUT => self.left_out.push(why),
                Err(_) if failed == MOST_LEFT_OUT => {
                    self.left_out
                        .push(format!("{start}objects: others can't be read either, and are left out"));
                }
                Err(_) => {}
            }
            failed = failed.saturating_add(1);
        }
    }

    /// Adds the metadata of nodes, or of objects that may be above pods.
    pub fn take_metadata(&mut self, kind: &ResourceKind, found: Vec<ObjectMeta>) {
        for metadata in found {
            self.selected.take(metadata.uid.as_deref(), metadata.labels.as_ref());
            if kind.is("", "Node") {
                self.nodes.insert(metadata.name.clone().unwrap_or_default(), metadata);
                continue;
            }
            if kind.is(kueue::GROUP, kueue::WORKLOAD) {
                self.index.apply_workload(0, &metadata);
            } else {
                self.index.apply_owner(0, &metadata);
                self.owners.note(&metadata);
            }
            self.owners.extend(ListedOwner::read(kind, &metadata));
        }
    }

    /// Reads the pods of an explanation and all that their answer depends on. Queues and priority
    /// classes that can't be listed are an error, unless the caller can do without. Other kinds
    /// lead to a warning.
    pub(super) async fn explain(
        &mut self,
        cluster: &ClusterReader,
        wanted: &ExplanationScope<'_>,
    ) -> Result<()> {
        let mut pods = with_groups(cluster, wanted.pods).await?;
        if let Some(namespace) = wanted.namespace {
            let live: Pages<Pod> = objects(cluster.api(Some(namespace)), Some(LIVE));
            pods.extend(live.try_concat().await.map_err(explain)?);
        }
        self.pods.extend(pods.into_iter().map(|pod| (key(&pod.metadata), pod)));
        let kinds = &cluster.kinds;
        let classes = kinds.find("scheduling.k8s.io", "PriorityClass");
        let lists = kinds.queues(Family::Runai).into_iter().chain(classes).map(|kind| (kind, None));
        let of_t9k = kinds.queues(Family::Tensorstack).zip(wanted.t9k_system_namespace);
        let is_named = |of: PodGroupKind| self.pods.values().any(|pod| of.named_by(pod).is_some());
        let groups = kinds.pod_groups().filter(|(of, _)| *of == PodGroupKind::Runai || is_named(*of));
        let groups = groups.map(|(_, kind)| kind).chain(kinds.find(extension::GROUP, "Extension"));
        let groups: Vec<&ResourceKind> = groups.collect();
        let of_pods = wanted.pods.iter().map(|(namespace, _)| namespace.as_str());
        let namespaces: BTreeSet<&str> = of_pods.chain(wanted.namespace).collect();
        let groups = namespaces.iter().flat_map(|of| groups.iter().map(|kind| (*kind, Some(*of))));
        // the floors of node pools depend on the nodes of pods
        let needs_nodes = !self.floors.node_pools.is_empty() && wanted.floors.node_pool.is_none();
        let nodes = kinds.find("", "Node").filter(|_| needs_nodes).map(|kind| (kind, None));
        let mut owners = Vec::new();
        if let Some(namespace) = wanted.namespace {
            for (group, kind, _) in self.table.ancestors() {
                self.owners.listed(group, kind);
                owners.extend(kinds.find(group, kind).map(|kind| (kind, Some(namespace))));
            }
        }
        let metadata = nodes.into_iter().chain(owners);
        let lists = lists.chain(groups).chain(of_t9k.map(|(kind, place)| (kind, Some(place))));
        let mut hidden = Vec::new();
        for NotListed { kind, error, is_forbidden } in self.list(cluster, lists, metadata).await {
            match (kind.resource.group.as_str(), kind.resource.kind.as_str()) {
                (_, "Queue" | "PriorityClass") if is_forbidden && wanted.may_lack_queues => {
                    self.hides_classes |= kind.resource.kind == "PriorityClass";
                    hidden.push(kind.plural());
                }
                ("scheduling.run.ai", _) | (_, "PriorityClass") => return Err(error),
                (_, "Node") => warn(&format!("no node pool is known: {}", with_causes(&error))),
                _ => warn(&with_causes(&error)),
            }
        }
        if !hidden.is_empty() {
            warn(&format!("you may not list {}: what they say isn't shown", hidden.join(", ")));
        }
        Ok(())
    }
}

/// Reads these pods, and the other pods of their groups. Other pods of their namespaces are listed,
/// but not kept.
async fn with_groups(cluster: &ClusterReader, wanted: &[NamespacedName]) -> Result<Vec<Pod>> {
    let (mut pods, mut groups) = (Vec::new(), HashSet::new());
    let named = |pod: &Pod, namespace: &str| {
        let key = |(kind, name): (_, &str)| (kind, namespace.to_owned(), name.to_owned());
        group_names(pod).map(key).collect::<Vec<_>>()
    };
    for (namespace, name) in wanted {
        ensure!(is_segment(name) && is_segment(namespace), "{namespace}/{name} can't be a pod");
        let pod = match cluster.api::<Pod>(Some(namespace)).get(name).await {
            Ok(pod) => pod,
            Err(error) => return Err(missing(cluster, namespace, &format!("pod/{name}"), error).await),
        };
        groups.extend(named(&pod, namespace));
        pods.push(pod);
    }
    let crowded: BTreeSet<&str> = groups.iter().map(|(_, namespace, _)| namespace.as_str()).collect();
    for namespace in crowded {
        let is_wanted = |pod: &Pod| named(pod, namespace).iter().any(|group| groups.contains(group));
        let mut pages = objects(cluster.api(Some(namespace)), None);
        while let Some(page) = pages.try_next().await.map_err(explain)? {
            pods.extend(page.into_iter().filter(is_wanted));
        }
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::{pod_groups, with_one_too_large};

    #[test]
    fn an_object_that_is_too_large_hides_no_other_of_its_kind() {
        let mut snapshot = Snapshot::default();
        snapshot.take_whole(&pod_groups(), with_one_too_large());
        let groups: Vec<_> = snapshot.index.gangs().map(|group| group.key.name.to_string()).collect();
        let warnings: Vec<_> = snapshot.warnings().collect();
        assert_eq!((groups.len(), warnings.len()), (2, 1), "{groups:?} {warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains(" odd in namespace team can't be read")));
    }
}
