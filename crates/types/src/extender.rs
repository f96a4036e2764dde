//! The request of kube-scheduler to its extender, and the response: `ExtenderPreemptionArgs` and
//! `ExtenderPreemptionResult` of `k8s.io/kube-scheduler/extender/v1`.
//!
//! The webhook reads and writes them. Their Go types have no JSON tags, so keys are the names of
//! the Go fields, in upper or lower case. Only the fields that a decision needs are read, and the
//! number of nodes and victims is bounded.

mod nodes;
mod response;

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use nodes::Nodes;
pub use response::PreemptionResult;

/// The most candidate nodes in a request: more than any cluster has.
pub const MOST_NODES: usize = 100_000;

/// The most victims in a request, on all of its nodes together: ten on each of 20,000 nodes.
pub const MOST_VICTIMS: usize = 200_000;

/// The initial capacity of a node's list of victims: most nodes lose no more.
const FEW: usize = 16;

/// An object or a list in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPart {
    /// The whole request.
    Args,
    /// A map from the names of nodes to their victims.
    Nodes,
    /// The victims of one node.
    Victims,
    /// A list of pods.
    Pods,
    /// A pod that would go.
    Pod,
    /// The metadata of such a pod.
    Metadata,
}

/// The part of a request that a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// A value that is read as a whole: the pod that wants room.
    Preemptor,
    /// A value that is read as a whole: a number.
    PdbViolations,
    /// A value that is read as a whole: a text.
    Uid,
    /// An object or a list that is read in part.
    Part(RequestPart),
}

impl RequestPart {
    /// Returns the field that the value of a key holds. None: the value is skipped. No other list
    /// has the keys that are read.
    fn field(self, key: &[u8]) -> Option<Field> {
        let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
        match self {
            Self::Args if is("Pod") => Some(Field::Preemptor),
            // one of the two is null
            Self::Args if is("NodeNameToVictims") || is("NodeNameToMetaVictims") => {
                Some(Field::Part(Self::Nodes))
            }
            Self::Nodes => Some(Field::Part(Self::Victims)),
            Self::Victims if is("Pods") => Some(Field::Part(Self::Pods)),
            Self::Victims if is("NumPDBViolations") => Some(Field::PdbViolations),
            Self::Pod if key == b"metadata" => Some(Field::Part(Self::Metadata)),
            Self::Pod | Self::Metadata if is("uid") => Some(Field::Uid),
            Self::Args | Self::Victims | Self::Pods | Self::Pod | Self::Metadata => None,
        }
    }
}

/// The scheduler's request.
#[derive(Debug, Default)]
pub struct Args<'b> {
    /// The preemptor: a whole Pod.
    pub pod: Option<&'b RawValue>,
    /// The victims on each candidate node. Each node appears once.
    pub nodes: Vec<OfferedVictims<'b>>,
}

/// The victims on a candidate node.
#[derive(Debug)]
pub struct OfferedVictims<'b> {
    /// The name of the node.
    pub node: Cow<'b, str>,
    /// The uids of the victims.
    pub victims: Vec<Cow<'b, str>>,
    /// The number of victims whose eviction violates a disruption budget; never negative.
    pub pdb_violations: i64,
}

impl<'b> Args<'b> {
    /// Reads the request in a body. Nodes are sorted by name. Of a key that appears twice the last
    /// counts, as in Go. Fails for a body of another shape, or beyond the bounds.
    pub fn read(body: &'b [u8]) -> serde_json::Result<Self> {
        // to check the whole body as UTF-8 at once takes less time than each text by itself
        let mut args: Self = match str::from_utf8(body) {
            Ok(text) => serde_json::from_str(text)?,
            Err(_) => serde_json::from_slice(body)?,
        };
        args.nodes.reverse();
        args.nodes.sort_by(|one, other| one.node.cmp(&other.node));
        args.nodes.dedup_by(|one, other| one.node == other.node);
        Ok(args)
    }
}

/// Lets a visitor read a value of any shape that the visitor knows.
struct Seed<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Seed<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_any(self.0)
    }
}

/// A key of a part, which decodes to the field that its value holds.
struct PartKey(RequestPart);

impl Visitor<'_> for PartKey {
    type Value = Option<Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(key.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Args<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgsVisitor;

        impl<'de> Visitor<'de> for ArgsVisitor {
            type Value = Args<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ExtenderPreemptionArgs: a map with Pod and either NodeNameToVictims or NodeNameToMetaVictims")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Args<'de>, M::Error> {
                let mut args = Args::default();
                let mut bounds = RemainingLimits { nodes: MOST_NODES, victims: MOST_VICTIMS };
                while let Some(field) = map.next_key_seed(Seed(PartKey(RequestPart::Args)))? {
                    match field {
                        Some(Field::Preemptor) => {
                            let pod = map.next_value::<Option<&'de RawValue>>()?;
                            args.pod = pod.filter(|raw| raw.get() != "null");
                        }
                        Some(Field::Part(RequestPart::Nodes)) => {
                            args.nodes.append(&mut map.next_value_seed(Seed(Nodes(&mut bounds)))?);
                        }
                        // named, so that a key that is added is read here or skipped on purpose
                        None
                        | Some(
                            Field::PdbViolations
                            | Field::Uid
                            | Field::Part(
                                RequestPart::Args
                                | RequestPart::Victims
                                | RequestPart::Pods
                                | RequestPart::Pod
                                | RequestPart::Metadata,
                            ),
                        ) => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(args)
            }
        }

        deserializer.deserialize_map(ArgsVisitor)
    }
}

/// The number of nodes and victims that the rest of the request may still have, in all of its lists
/// together.
struct RemainingLimits {
    nodes: usize,
    victims: usize,
}

impl RemainingLimits {
    /// Counts a node. Fails beyond [`MOST_NODES`].
    fn node<E: Error>(&mut self) -> Result<(), E> {
        let less = self.nodes.checked_sub(1);
        self.nodes = less.ok_or_else(|| E::custom(format_args!("more than {MOST_NODES} nodes")))?;
        Ok(())
    }

    /// Counts a victim. Fails beyond [`MOST_VICTIMS`].
    fn victim<E: Error>(&mut self) -> Result<(), E> {
        let less = self.victims.checked_sub(1);
        let more = || E::custom(format_args!("more than {MOST_VICTIMS} victims, all nodes together"));
        self.victims = less.ok_or_else(more)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn offers(args: &Value) -> Result<Vec<(String, Vec<String>, i64)>, String> {
        let body = args.to_string();
        let args = Args::read(body.as_bytes()).map_err(|error| error.to_string())?;
        let of = |offer: OfferedVictims<'_>| {
            let victims = offer.victims.into_iter().map(Cow::into_owned).collect();
            (offer.node.into_owned(), victims, offer.pdb_violations)
        };
        Ok(args.nodes.into_iter().map(of).collect())
    }

    #[test]
    fn both_forms_say_the_same() {
        let expected = vec![("n".to_owned(), vec!["a".to_owned(), "b".to_owned()], 1)];
        let uids = json!([{"UID": "a"}, {"UID": "b"}]);
        let pods = json!([{"metadata": {"name": "x", "uid": "a"}, "spec": {}}, {"metadata": {"uid": "b"}}]);
        let of =
            |name: &str, pods: &Value| json!({"Pod": {}, name: {"n": {"Pods": pods, "NumPDBViolations": 1}}});
        assert_eq!(offers(&of("NodeNameToMetaVictims", &uids)).as_ref(), Ok(&expected));
        assert_eq!(offers(&of("NodeNameToVictims", &pods)).as_ref(), Ok(&expected));
    }

    #[test]
    fn names_are_read_in_any_case_and_what_is_not_known_is_passed_over() {
        let args = json!({
            "pod": {"metadata": {}}, "nodenametometavictims": {"n": {"pods": [{"uid": "a", "x": 1}], "numPdbViolations": 2, "y": []}},
            "NodeNameToVictims": null, "z": {"a": 1},
        });
        assert_eq!(offers(&args), Ok(vec![("n".to_owned(), vec!["a".to_owned()], 2)]));
    }

    #[test]
    fn null_is_nothing() {
        assert_eq!(offers(&json!({"Pod": null, "NodeNameToVictims": null})), Ok(vec![]));
        let nothing = Ok(vec![("n".to_owned(), vec![], 0)]);
        assert_eq!(offers(&json!({"NodeNameToVictims": {"n": null}})), nothing);
        assert_eq!(
            offers(&json!({"NodeNameToVictims": {"n": {"Pods": null, "NumPDBViolations": null}}})),
            nothing
        );
        assert_eq!(
            offers(&json!({"NodeNameToVictims": {"n": {"Pods": [{"metadata": {"uid": null}}]}}})),
            Ok(vec![("n".to_owned(), vec![String::new()], 0)])
        );
    }

    #[test]
    fn escapes_are_read() {
        let text = r#"{"\u0050od": {}, "NodeNameTo\u004detaVictims": {"\u006e": {"Pods": [{"\u0055ID": "\u0061"}]}}}"#;
        let args = Args::read(text.as_bytes()).unwrap();
        assert!(args.pod.is_some());
        assert_eq!((&*args.nodes[0].node, &*args.nodes[0].victims[0]), ("n", "a"));
    }

    #[test]
    fn of_what_comes_twice_the_last_counts() {
        let text = r#"{"NodeNameToVictims": {"n": {"Pods": [{"UID": "a"}]}, "m": null, "n": {"Pods": [{"UID": "b", "UID": "c"}]}}}"#;
        let args = Args::read(text.as_bytes()).unwrap();
        let names: Vec<_> = args.nodes.iter().map(|offer| &*offer.node).collect();
        assert_eq!((names, &*args.nodes[1].victims), (vec!["m", "n"], &[Cow::Borrowed("c")][..]));
    }

    #[test]
    fn what_is_no_number_of_pods_is_the_nearest() {
        for (written, read) in
            [("-1", 0), ("1.5", 1), ("-1.5", 0), ("9223372036854775808", i64::MAX), ("1e300", i64::MAX)]
        {
            let text = format!(r#"{{"NodeNameToVictims": {{"n": {{"NumPDBViolations": {written}}}}}}}"#);
            assert_eq!(Args::read(text.as_bytes()).unwrap().nodes[0].pdb_violations, read, "{written}");
        }
    }

    #[test]
    fn what_is_of_another_shape_is_refused() {
        for args in [
            json!([]),
            json!("x"),
            json!({"NodeNameToVictims": []}),
            json!({"NodeNameToVictims": {"n": []}}),
            json!({"NodeNameToVictims": {"n": {"Pods": {}}}}),
            json!({"NodeNameToVictims": {"n": {"Pods": ["a"]}}}),
            json!({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": 7}]}}}),
            json!({"NodeNameToMetaVictims": {"n": {"NumPDBViolations": "1"}}}),
            json!({"NodeNameToMetaVictims": {"n".repeat(254): null}}),
        ] {
            assert!(offers(&args).is_err(), "{args}");
        }
    }

    fn answer(nodes: &[(&str, &[&str], i64)]) -> String {
        let mut answer = PreemptionResult::with_capacity(nodes.len());
        for (node, uids, pdb_violations) in nodes {
            answer.add(node, uids.iter().copied(), *pdb_violations);
        }
        String::from_utf8(answer.into_json()).unwrap()
    }

    #[test]
    fn nodes_and_victims_are_bounded_wherever_they_are() {
        let pods = |count: usize| vec!["{}"; count].join(",");
        let of_one = |count| format!(r#"{{"NodeNameToVictims":{{"n":{{"Pods":[{}]}}}}}}"#, pods(count));
        assert_eq!(Args::read(of_one(MOST_VICTIMS).as_bytes()).unwrap().nodes[0].victims.len(), MOST_VICTIMS);
        let half = format!(r#"{{"Pods":[{}]}}"#, pods(MOST_VICTIMS / 2 + 1));
        let nodes = |count: usize| vec![r#""n":{}"#; count].join(",");
        for (text, why) in [
            (of_one(MOST_VICTIMS + 1), "more than 200000 victims"),
            (format!(r#"{{"NodeNameToVictims":{{"n":{half},"m":{half}}}}}"#), "more than 200000 victims"),
            (
                format!(r#"{{"NodeNameToVictims":{{"n":{half}}},"NodeNameToMetaVictims":{{"n":{half}}}}}"#),
                "more than 200000 victims",
            ),
            (
                format!(r#"{{"NodeNameToVictims":{{{0}}},"NodeNameToVictims":{{{0}}}}}"#, nodes(60_000)),
                "more than 100000 nodes",
            ),
        ] {
            let error = Args::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_answer_has_the_names_of_go() {
        let expected = r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"a"}],"NumPDBViolations":1}}}"#;
        assert_eq!(answer(&[("n", &["a"], 1)]), expected);
        assert_eq!(answer(&[]), r#"{"NodeNameToMetaVictims":{}}"#);
    }

    #[test]
    fn an_answer_is_json_for_any_uids_and_nodes() {
        let odd = ["", "\"", "\\", "\u{1f}\n", "é\u{2028}", "a\"b"];
        let all: Vec<(&str, &[&str], i64)> = odd.iter().map(|node| (*node, &odd[..], 2)).collect();
        let pods = json!(odd.map(|uid| json!({"UID": uid})));
        let nodes: Value =
            odd.iter().map(|node| (*node, json!({"Pods": pods, "NumPDBViolations": 2}))).collect();
        let read: Value = serde_json::from_str(&answer(&all)).unwrap();
        assert_eq!(read, json!({"NodeNameToMetaVictims": nodes}));
    }
}
