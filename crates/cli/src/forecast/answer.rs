//! The text of a forecast, for people and programs.
//!
//! Called by `forecast`, and by `ui` for the GPUs that come free. Amounts are in the units of
//! [`Amounts`].

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::repeat_n,
};

use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    bound::room_by,
    demand::{demands, room},
    room::ClusterRoom,
};
use crate::{
    input::Document,
    print::{cell, human, moment, table},
    snapshot::occupants::{Amounts, Occupant, add},
};

/// The amounts that come free, by time, and the pods that no ceiling ends.
#[derive(Debug, Serialize)]
pub struct Forecast {
    now: Timestamp,
    bound: &'static str,
    free: Vec<FreedAmounts>,
    stays: Vec<StayingPods>,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    workload: Option<WorkloadRoom>,
}

/// The amounts that have come free by a time, since now.
#[derive(Debug, Serialize)]
struct FreedAmounts {
    /// A time at which at least one pod has ended.
    by: Timestamp,
    /// The node. None: the amounts are of all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The number of pods that end between the row before and this time.
    pods: usize,
    /// All that has come free since now: CPUs in thousandths, all else in whole units.
    free: Amounts,
}

/// The pods that no ceiling ends, by reason and queue.
#[derive(Debug, Serialize)]
struct StayingPods {
    reason: &'static str,
    queue: Option<String>,
    pods: usize,
    held: Amounts,
}

/// The time by which there is room for a workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadRoom {
    workload: String,
    pods: usize,
    /// The time. Null: ceilings alone make no room.
    by: Option<Timestamp>,
    /// The number of nodes on which the workload's pods may run.
    nodes: usize,
    /// The number of pods on these nodes that a floor protects from preemption.
    protected: usize,
    /// The last end of such a floor. Null: no pod there is protected.
    protected_until: Option<Timestamp>,
    /// Reasons why the time may be no bound.
    caveats: Vec<&'static str>,
}

impl Forecast {
    /// Returns the forecast. `wanted` is a workload for which room is searched. The error is about
    /// that workload.
    pub fn new(cluster: &ClusterRoom, by_node: bool, wanted: Option<&Document>) -> Result<Self> {
        let ClusterRoom { now, occupants, .. } = cluster;
        Ok(Self {
            now: *now,
            bound: "at the latest, by ceilings alone",
            free: free_by(occupants, *now, by_node),
            stays: staying(occupants),
            workload: wanted.map(|document| WorkloadRoom::of(document, cluster)).transpose()?,
        })
    }

    /// Returns the forecast as tables, with these resources, or the usual ones if there are none, and
    /// at most this number of rows.
    pub fn text(&self, resources: Vec<String>, rows: usize) -> String {
        let resources = if resources.is_empty() { self.usual() } else { resources };
        let amounts = |of: &Amounts| resources.iter().map(|name| amount(name, of)).collect::<Vec<_>>();
        let part = |above: &str, first: &str, rows: Vec<Vec<String>>| {
            let headers = format!("{first}|{}", resources.join("|").to_uppercase());
            let headers: Vec<&str> = headers.split('|').collect();
            (!rows.is_empty()).then(|| format!("{above}{}", table(&headers, rows)))
        };
        let mut parts: Vec<String> = self.workload.iter().map(|room| room.text(self.now)).collect();
        let free = self.free.iter().take(rows).map(|row| {
            let when = [moment(row.by), human(row.by.duration_since(self.now)), row.pods.to_string()];
            row.node.clone().into_iter().chain(when).chain(amounts(&row.free)).collect()
        });
        let node = if self.free.iter().any(|row| row.node.is_some()) { "NODE|" } else { "" };
        parts.extend(part(BOUND, &format!("{node}FREE BY|IN|PODS"), free.collect()));
        let more = self.free.len().saturating_sub(rows);
        if more > 0 {
            parts.push(format!("And {more} rows more: --rows shows them.\n"));
        }
        let stays = self.stays.iter().map(|of| {
            let first = [of.reason.to_owned(), cell(of.queue.as_deref()), of.pods.to_string()];
            first.into_iter().chain(amounts(&of.held)).collect()
        });
        let above = if parts.is_empty() { "" } else { "\n" };
        parts.extend(part(above, "NO CEILING ENDS|QUEUE|PODS", stays.collect()));
        if parts.is_empty() { "No pod is on a node.\n".into() } else { parts.concat() }
    }

    /// Returns the resources that are shown if none is asked for: all GPUs, or CPUs.
    fn usual(&self) -> Vec<String> {
        let amounts = self.free.iter().map(|of| &of.free).chain(self.stays.iter().map(|of| &of.held));
        let gpus = amounts.flat_map(|of| of.keys()).filter(|of| of.ends_with("/gpu"));
        let gpus: BTreeSet<&String> = gpus.collect();
        if gpus.is_empty() { vec!["cpu".into()] } else { gpus.into_iter().cloned().collect() }
    }
}

/// The text above the table of amounts that come free.
const BOUND: &str =
    "A bound: by each time at the latest, ceilings alone have freed these amounts in all.\n\n";

/// Returns a row for each end of pods, with the sum of all amounts up to then, in all or by node.
fn free_by(occupants: &[Occupant], now: Timestamp, by_node: bool) -> Vec<FreedAmounts> {
    let ends = occupants.iter();
    let ends = ends.filter_map(|of| Some((by_node.then_some(&of.node), of.until?.max(now), &of.requests)));
    let (mut ends, mut rows): (Vec<_>, Vec<FreedAmounts>) = (ends.collect(), Vec::new());
    ends.sort_by_key(|(node, by, _)| (*node, *by));
    for (node, by, requests) in ends {
        let before = rows.pop_if(|row| row.node.as_ref() == node && row.by == by);
        let mut row = before.unwrap_or_else(|| {
            let sum = rows.last().filter(|row| row.node.as_ref() == node).map(|row| row.free.clone());
            FreedAmounts { by, node: node.cloned(), pods: 0, free: sum.unwrap_or_default() }
        });
        row.pods += 1;
        add(&mut row.free, requests, 1);
        rows.push(row);
    }
    rows
}

/// Returns the pods that no ceiling ends, counted by reason and queue.
fn staying(occupants: &[Occupant]) -> Vec<StayingPods> {
    let mut all = BTreeMap::new();
    for Occupant { requests, queue, stays, .. } in occupants {
        let Some(reason) = *stays else { continue };
        let new = || StayingPods { reason, queue: queue.clone(), pods: 0, held: Amounts::new() };
        let of: &mut StayingPods = all.entry((reason, queue)).or_insert_with(new);
        of.pods += 1;
        add(&mut of.held, requests, 1);
    }
    all.into_values().collect()
}

impl WorkloadRoom {
    /// Searches room for a workload on the nodes on which all its pods may run.
    fn of(document: &Document, cluster: &ClusterRoom) -> Result<Self> {
        let ClusterRoom { now, occupants, nodes, claims, namespace } = cluster;
        let mut demands = demands(document)?;
        let namespace = document.namespace().unwrap_or(namespace);
        let mut has_devices = false;
        for (demand, _) in &mut demands {
            has_devices |= demand.claim(claims, namespace);
        }
        // each pod of the workload may run on each of these nodes
        let nodes = nodes.iter().filter(|node| demands.iter().all(|(demand, _)| demand.may_run_on(node)));
        let nodes: BTreeMap<String, Amounts> = nodes.map(room).collect();
        let all = demands.iter().flat_map(|(demand, pods)| repeat_n(&demand.requests, *pods));
        let all: Vec<&Amounts> = all.collect();
        let there = occupants.iter().filter(|of| nodes.contains_key(&of.node));
        let floors: Vec<Timestamp> = there.filter_map(|of| of.floor_until).collect();
        let needs = demands.iter().any(|(demand, _)| demand.needs.is_some()).then_some(NEEDS);
        let devices = has_devices.then_some(DEVICES);
        Ok(Self {
            workload: format!("{}/{}", document.kind.to_lowercase(), document.name().unwrap_or_default()),
            pods: all.len(),
            by: room_by(&nodes, occupants, all, *now),
            nodes: nodes.len(),
            protected: floors.len(),
            protected_until: floors.into_iter().max(),
            caveats: needs.into_iter().chain(devices).collect(),
        })
    }

    /// Returns the answer in sentences.
    fn text(&self, now: Timestamp) -> String {
        let Self { workload, pods, by, nodes, protected, protected_until, caveats } = self;
        let of = format!("{workload} (pods: {pods}; nodes that it may run on: {nodes})");
        let first = match by {
            Some(by) if *by <= now => format!("There is room for {of} now, if nothing else takes it.\n"),
            Some(by) => {
                let (at, from_now) = (moment(*by), human(by.duration_since(now)));
                format!(
                    "There is room for {of} by {at} at the latest, in {from_now}: a bound by ceilings alone, if nothing else takes the room.\n"
                )
            }
            None => format!("Ceilings alone make no room for {of}.\n"),
        };
        let floors = protected_until.map(moment).map(|until| {
            format!("A preemption can't take {protected} pods there now: floors protect them, until {until} at most.\n")
        });
        let caveats = caveats.iter().map(|caveat| format!("Note: {caveat}.\n"));
        [first].into_iter().chain(floors).chain(caveats).chain(["\n".to_owned()]).collect()
    }
}

/// The reason why the time may be no bound if pods have needs besides their requests.
const NEEDS: &str = "it also needs ports, volumes, devices or other pods, which the forecast ignores: the time may be too early";

/// The reason why the time may be no bound if pods have claims of devices.
const DEVICES: &str = "the devices that it claims count by their classes alone, without the selectors and constraints of claims: the time may be too early";

/// Returns an amount for people: cores, GiB, and whole units of other resources.
fn amount(resource: &str, of: &Amounts) -> String {
    let amount = of.get(resource).copied().unwrap_or(0);
    #[allow(clippy::cast_precision_loss, reason = "to a tenth")]
    let over = |unit: i64| format!("{:.1}", amount as f64 / unit as f64);
    match resource {
        "cpu" => over(1000),
        "memory" | "ephemeral-storage" => format!("{}Gi", over(1 << 30)),
        _ => amount.to_string(),
    }
}
