//! The keys of Tenure's configuration file: one row each.
//!
//! `check` refuses every key that has no row in [`KEYS`], and checks each value by its row.
//! `written` reads the values: a new key needs a row here and a field there.

use std::str::FromStr;

use tenure_types::{DurationError, ExtendedDuration};

use super::names::{
    is_label_key, is_label_part, is_local_queue, is_namespace, is_of, is_program, is_subdomain, is_trimmed,
    reason,
};
use crate::{message::NO_URL, notice::NoticePoints, usage::MOST_RESOURCES};

/// The key of the default floor against preemption, here and in KAI's file.
pub const PREEMPT: &str = "defaultPreemptMinRuntime";
/// The key of the default floor against reclaim, here and in KAI's file.
pub const RECLAIM: &str = "defaultReclaimMinRuntime";
/// The key that says at which queue the search for a floor against reclaim begins, here and in
/// KAI's file.
pub const METHOD: &str = "reclaimResolveMethod";

/// The rule for a duration, as in messages.
pub const DURATION: &str = "must be a duration such as 10m, 1h30m or 1d";
const POINTS: &str = "must be a duration such as 10m, 1h30m or 1d, or up to 8 of them, such as 1h,10m";
const LABEL_KEY: &str = "must be the key of a label, such as kai.scheduler/node-pool: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends; the name of a domain and '/' may come first";
const POOL: &str = "must be the value of a label, such as a100: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
const USER: &str = "must be the name of a user, such as system:serviceaccount:kai-scheduler:scheduler, without spaces around it";
const SCHEDULER: &str = "must be the name of one user: letters, digits and . _ : / @ + = # ~ % -, where a service account is system:serviceaccount:NAMESPACE:NAME; give each scheduler an entry of its own";
const GROUP: &str = "must be the name of a group of users, such as system:masters, without spaces around it";
const NAMESPACE: &str = "must be the name of a namespace, such as kube-system: at most 63 lower case letters, digits and '-', with a letter or digit at both ends";
const OBJECT: &str = "must be the name of an object: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters";
const QUEUE: &str = "must be the name of a queue of scheduling.run.ai: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters";
const LOCAL_QUEUE: &str =
    "must be the name of a LocalQueue, or its namespace, a slash and its name: team-a/main";
const DATA: &str = "must be a key of a ConfigMap, such as config.yaml: letters, digits, '-', '_' and '.'";
const RESOURCE: &str =
    "must be the name of a resource, such as nvidia.com/gpu or cpu: at most 253 letters, digits and . _ - /";
const RECEIVER: &str = "must be a name in metrics and logs: at most 63 lower case letters, digits and '-', with a letter or digit at both ends";
const SOURCE: &str = "must be a name of the cluster for receivers, such as /clusters/gpu-1: at most 253 letters, digits and . _ : / ? & = % ~ -";
const FILE: &str = "must be the path of a file, from / on";
const FACTOR: &str = "must be a decimal number in quotes, such as \"1.5\"";
const TEXT: &str = "must be a string";

/// A row of the table: a key of the file, or the items of a list.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The path in the file. `[]` stands for the items of a list: `nodePools[].name`.
    pub path: &'static str,
    pub form: Form,
    /// The rule for the value, as in messages.
    pub expected: &'static str,
    /// True if the map that has this key must set it.
    pub is_required: bool,
    /// True if messages don't show the value, which may be a secret.
    pub is_hidden: bool,
    /// The key that no two items of a list may share. An item without this key is compared as a
    /// whole; the empty key compares all items so. None: items aren't compared here.
    pub unique: Option<&'static str>,
    /// The most items of a list, and the noun for them in messages. None: any number.
    pub most: Option<(usize, &'static str)>,
}

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Any value.
    Anything,
    Boolean,
    /// A whole number of 32 bits, with a sign.
    Number,
    /// A text for which this function returns true.
    Text(fn(&str) -> bool),
    /// A text that this function can read. An error says why not.
    Parsed(fn(&str) -> Result<(), String>),
    /// A map, whose keys have rows of their own.
    Map,
    /// A map, or a text in place of a map with only a `name`. This function returns true for a good
    /// name.
    MapOrName(fn(&str) -> bool),
    /// A list. The row with `[]` after the path of the list, if there is one, checks each item.
    List,
}

const fn key(path: &'static str, form: Form, expected: &'static str) -> ConfigKey {
    ConfigKey { path, form, expected, is_required: false, is_hidden: false, unique: None, most: None }
}

const fn boolean(path: &'static str) -> ConfigKey {
    key(path, Form::Boolean, "must be true or false")
}

const fn number(path: &'static str) -> ConfigKey {
    key(path, Form::Number, "must be a whole number")
}

const fn text(path: &'static str, expected: &'static str, is_good: fn(&str) -> bool) -> ConfigKey {
    key(path, Form::Text(is_good), expected)
}

const fn duration(path: &'static str) -> ConfigKey {
    key(path, Form::Parsed(parse::<ExtendedDuration>), DURATION)
}

/// A duration in `waitForPodsReady`, a block that queues have as well. `written` checks the block
/// by the rules for queues.
const fn later(path: &'static str) -> ConfigKey {
    text(path, DURATION, any)
}

const fn map(path: &'static str) -> ConfigKey {
    key(path, Form::Map, "must be a map of fields")
}

/// A list in which no two items share the key `unique`. Empty: no two items are the same.
const fn list(path: &'static str, unique: &'static str) -> ConfigKey {
    ConfigKey { unique: Some(unique), ..rows(path) }
}

/// A list whose items this table doesn't compare.
const fn rows(path: &'static str) -> ConfigKey {
    key(path, Form::List, "must be a list")
}

impl ConfigKey {
    /// The same key, which its map must set.
    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The same key, whose value messages don't show. `expected` is the rule for the value.
    const fn hidden(self, expected: &'static str) -> Self {
        Self { is_hidden: true, expected, ..self }
    }

    /// The same list, with at most this number of items.
    const fn at_most(self, most: usize, noun: &'static str) -> Self {
        Self { most: Some((most, noun)), ..self }
    }
}

const fn any(_: &str) -> bool {
    true
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
}

/// Parses a text only for the error.
fn parse<T: FromStr<Err = DurationError>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// All keys, in the order in which messages name them.
pub const KEYS: &[ConfigKey] = &[
    duration(PREEMPT),
    duration(RECLAIM),
    text(METHOD, "must be lca (the default) or queue", |text| matches!(text, "lca" | "queue")),
    text("nodePoolLabelKey", LABEL_KEY, is_label_key),
    list("nodePools", "name"),
    map("nodePools[]"),
    text("nodePools[].name", POOL, is_label_part).required(),
    duration("nodePools[].defaultPreemptMinRuntime"),
    duration("nodePools[].defaultReclaimMinRuntime"),
    key("expiryNotice", Form::Parsed(parse::<NoticePoints>), POINTS),
    boolean("noticeOnPods"),
    boolean("floorOnPods"),
    duration("graceOnChange"),
    key("pausedHistoryLimit", Form::Number, "must be a whole number of at least 0"),
    rows("owners"),
    map("owners[]"),
    text("owners[].group", TEXT, any),
    text("owners[].kind", TEXT, any).required(),
    text("owners[].path", TEXT, any).required(),
    key("owners[].value", Form::Anything, "").required(),
    map("owners[].command"),
    text("owners[].command.pause", TEXT, any),
    text("owners[].command.resume", TEXT, any),
    boolean("owners[].decidesActivation"),
    text("owners[].onReversal", "must be Pause or DeletePods", |text| matches!(text, "Pause" | "DeletePods")),
    text("owners[].onExpiry", "must be Pause or Delete", |text| matches!(text, "Pause" | "Delete")),
    list("trustedWriters", ""),
    text("trustedWriters[]", USER, is_trimmed),
    duration("longestFormation"),
    map("waitForPodsReady"),
    boolean("waitForPodsReady.enable"),
    later("waitForPodsReady.timeout"),
    text("waitForPodsReady.countFrom", "must be Scheduled (the default) or Creation", |text| {
        matches!(text, "Scheduled" | "Creation")
    }),
    later("waitForPodsReady.recoveryTimeout"),
    map("waitForPodsReady.requeuingStrategy"),
    text(
        "waitForPodsReady.requeuingStrategy.timestamp",
        "must be Eviction (the default) or Creation",
        |text| matches!(text, "Eviction" | "Creation"),
    ),
    number("waitForPodsReady.requeuingStrategy.backoffLimitCount"),
    number("waitForPodsReady.requeuingStrategy.backoffBaseSeconds"),
    text("waitForPodsReady.requeuingStrategy.backoffFactor", FACTOR, any),
    number("waitForPodsReady.requeuingStrategy.backoffMaxSeconds"),
    boolean("waitForPodsReady.requeuingStrategy.onCapacity"),
    number("waitForPodsReady.requeuingStrategy.backoffLimitTimeout"),
    boolean("waitForPodsReady.blockAdmission"),
    map("guard"),
    list("guard.schedulers", "name"),
    key("guard.schedulers[]", Form::MapOrName(is_program), SCHEDULER),
    text("guard.schedulers[].name", SCHEDULER, is_program).required(),
    text("guard.schedulers[].unknownPreemptor", "must be stricter (the default) or weaker", |text| {
        matches!(text, "stricter" | "weaker")
    }),
    list("guard.exemptUsers", ""),
    text("guard.exemptUsers[]", USER, is_trimmed),
    list("guard.exemptGroups", ""),
    text("guard.exemptGroups[]", GROUP, is_trimmed),
    list("guard.exemptNamespaces", ""),
    text("guard.exemptNamespaces[]", NAMESPACE, is_namespace),
    map("tenancy"),
    list("tenancy.trustedWriters", ""),
    text("tenancy.trustedWriters[]", USER, is_trimmed),
    map("tenancy.defaultQueue"),
    text("tenancy.defaultQueue.runai", OBJECT, is_subdomain),
    text("tenancy.defaultQueue.tensorstack", OBJECT, is_subdomain),
    map("kueue"),
    boolean("kueue.enabled"),
    rows("kueue.queues"),
    map("kueue.queues[]"),
    text("kueue.queues[].localQueue", LOCAL_QUEUE, is_local_queue),
    text("kueue.queues[].clusterQueue", OBJECT, is_subdomain),
    text("kueue.queues[].queue", OBJECT, is_subdomain).required(),
    map("kai"),
    map("kai.configMap"),
    text("kai.configMap.namespace", NAMESPACE, is_namespace).required(),
    text("kai.configMap.name", OBJECT, is_subdomain).required(),
    text("kai.configMap.key", DATA, |key| is_of(key, usize::MAX, "-_.")),
    boolean("kai.shards"),
    map("delegation"),
    list("delegation.bounds", "queue"),
    map("delegation.bounds[]"),
    text("delegation.bounds[].queue", QUEUE, is_subdomain).required(),
    duration("delegation.bounds[].preemptMinRuntime"),
    duration("delegation.bounds[].reclaimMinRuntime"),
    map("usage"),
    list("usage.resources", "").at_most(MOST_RESOURCES, "resources"),
    text("usage.resources[]", RESOURCE, |name| is_of(name, 253, "._-/")),
    list("receivers", "name")
        .at_most(8, "receivers")
        .hidden("must be a list of maps with name, format, and url or urlFile"),
    map("receivers[]").hidden("must be a map with name, format, and url or urlFile"),
    text("receivers[].name", RECEIVER, is_namespace).required(),
    text("receivers[].format", "must be CloudEvents or Slack", |text| {
        matches!(text, "CloudEvents" | "Slack")
    })
    .required(),
    text("receivers[].url", NO_URL, any).hidden(NO_URL),
    text("receivers[].urlFile", FILE, is_path).hidden(FILE),
    text("receivers[].tokenFile", FILE, is_path).hidden(FILE),
    text("receivers[].caFile", FILE, is_path).hidden(FILE),
    text("receivers[].source", SOURCE, |source| is_of(source, 253, "._:/?&=%~-")),
    rows("receivers[].reasons"),
    key("receivers[].reasons[]", Form::Parsed(reason), "must be the reason of an event"),
    boolean("receivers[].allowHTTP"),
];
