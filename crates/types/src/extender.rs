//! The request of kube-scheduler to its extender, and the response: `ExtenderPreemptionArgs` and
//! `ExtenderPreemptionResult` of `k8s.io/kube-scheduler/extender/v1`. Their Go types have no JSON tags, so keys are the
//! names of the Go fields, in any case.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, value::RawValue};

/// The most candidate nodes in a request: more than any cluster has.
pub const MOST_NODES: usize = 100_000;

/// The most victims in a request, on all of its nodes together: ten on each of 20,000 nodes.
pub const MOST_VICTIMS: usize = 200_000;

/// Initial capacity of a node's list of victims: most nodes lose no more.
const FEW: usize = 16;

/// The longest name of a node.
const LONGEST_NAME: usize = 253;

/// An object or a list in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
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
    /// Its metadata.
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
    /// An object or a list, of which some is read.
    Part(Part),
}

impl Part {
    /// Returns the part that the value of a key here holds; none if the value is skipped. This is the only list of keys
    /// that are read.
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
    pub nodes: Vec<Offer<'b>>,
}

/// The victims on a candidate node.
#[derive(Debug)]
pub struct Offer<'b> {
    /// The name of the node.
    pub node: Cow<'b, str>,
    /// The uids of the victims.
    pub victims: Vec<Cow<'b, str>>,
    /// The number of victims whose eviction violates a disruption budget; never negative.
    pub pdb_violations: i64,
}

impl<'b> Args<'b> {
    /// Reads the request in a body. Of a key that appears twice the last counts, as in Go.
    pub fn read(body: &'b [u8]) -> serde_json::Result<Self> {
        // to check all of it at once takes less time than each text by itself
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

/// A text that is borrowed unless it has escapes: a question has thousands. Null is the empty one.
struct Text<'b>(Cow<'b, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text(Cow::default()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// A key of a part, which decodes to the field that its value holds.
struct Key(Part);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
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
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Args<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ExtenderPreemptionArgs: a map with Pod and either NodeNameToVictims or NodeNameToMetaVictims")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Args<'de>, M::Error> {
                let (mut args, mut bounds) = (Args::default(), Bounds::default());
                while let Some(field) = map.next_key_seed(Key(Part::Args))? {
                    match field {
                        Some(Field::Preemptor) => {
                            let pod = map.next_value::<Option<&'de RawValue>>()?;
                            args.pod = pod.filter(|raw| raw.get() != "null");
                        }
                        Some(Field::Part(Part::Nodes)) => {
                            args.nodes.append(&mut map.next_value_seed(Nodes(&mut bounds))?);
                        }
                        // named, so that a key that is added is read here or skipped on purpose
                        None
                        | Some(
                            Field::PdbViolations
                            | Field::Uid
                            | Field::Part(Part::Args | Part::Victims | Part::Pods | Part::Pod | Part::Metadata),
                        ) => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(args)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// The number of nodes and victims that the rest of the request may still have, in all of its lists together.
struct Bounds {
    nodes: usize,
    victims: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { nodes: MOST_NODES, victims: MOST_VICTIMS }
    }
}

impl Bounds {
    fn node<E: Error>(&mut self) -> Result<(), E> {
        let less = self.nodes.checked_sub(1);
        self.nodes = less.ok_or_else(|| E::custom(format_args!("more than {MOST_NODES} nodes")))?;
        Ok(())
    }

    fn victim<E: Error>(&mut self) -> Result<(), E> {
        let less = self.victims.checked_sub(1);
        let more = || E::custom(format_args!("more than {MOST_VICTIMS} victims, all nodes together"));
        self.victims = less.ok_or_else(more)?;
        Ok(())
    }
}

/// A map of candidate nodes, or null.
struct Nodes<'s>(&'s mut Bounds);

impl<'de> DeserializeSeed<'de> for Nodes<'_> {
    type Value = Vec<Offer<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = Vec<Offer<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from the names of nodes to their victims")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut offers = Vec::new();
        while let Some(Text(node)) = map.next_key()? {
            self.0.node()?;
            if node.len() > LONGEST_NAME {
                return Err(M::Error::custom(format_args!(
                    "a node's name of {} bytes: none is longer than {LONGEST_NAME}",
                    node.len()
                )));
            }
            let (victims, pdb_violations) = map.next_value_seed(Victims(self.0))?;
            offers.push(Offer { node, victims, pdb_violations });
        }
        Ok(offers)
    }
}

/// The victims of a node, and how many of them a disruption budget would rather keep; or null.
struct Victims<'s>(&'s mut Bounds);

impl<'de> DeserializeSeed<'de> for Victims<'_> {
    type Value = (Vec<Cow<'de, str>>, i64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Victims<'_> {
    type Value = (Vec<Cow<'de, str>>, i64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("victims: a map with Pods and NumPDBViolations")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Self::Value::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (mut uids, mut pdb_violations) = Self::Value::default();
        while let Some(field) = map.next_key_seed(Key(Part::Victims))? {
            match field {
                Some(Field::Part(Part::Pods)) => uids = map.next_value_seed(Uids(self.0))?,
                Some(Field::PdbViolations) => {
                    pdb_violations = map.next_value::<Option<Number>>()?.as_ref().map_or(0, count);
                }
                None
                | Some(
                    Field::Preemptor
                    | Field::Uid
                    | Field::Part(Part::Args | Part::Nodes | Part::Victims | Part::Pod | Part::Metadata),
                ) => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((uids, pdb_violations))
    }
}

/// A number of pods. A value out of range becomes the nearest that a scheduler could write.
#[allow(clippy::cast_possible_truncation, reason = "what is too large is as large as can be")]
fn count(number: &Number) -> i64 {
    number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).unwrap_or_default().max(0)
}

/// A list of pods in either form, only a uid or a whole Pod; or null.
struct Uids<'s>(&'s mut Bounds);

impl<'de> DeserializeSeed<'de> for Uids<'_> {
    type Value = Vec<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Uids<'_> {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pods")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut pods: S) -> Result<Self::Value, S::Error> {
        let mut uids = Vec::with_capacity(FEW);
        while let Some(uid) = pods.next_element_seed(Uid(Part::Pod))? {
            self.0.victim()?;
            uids.push(uid);
        }
        Ok(uids)
    }
}

/// The uid of a pod: its `UID`, or that of its `metadata`. A pod without one can't be identified, and is skipped.
struct Uid(Part);

impl<'de> DeserializeSeed<'de> for Uid {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Uid {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pod, or its UID")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut uid = Cow::default();
        while let Some(field) = map.next_key_seed(Key(self.0))? {
            match field {
                Some(Field::Uid) => {
                    uid = map.next_value::<Text<'de>>()?.0;
                }
                Some(Field::Part(part)) => {
                    let own = map.next_value_seed(Self(part))?;
                    if uid.is_empty() {
                        uid = own;
                    }
                }
                None | Some(Field::Preemptor | Field::PdbViolations) => {
                    let IgnoredAny = map.next_value()?;
                }
            }
        }
        Ok(uid)
    }
}

/// The response, an `ExtenderPreemptionResult`: the nodes that remain candidates, and the victims of each. It is kept
/// as the JSON to be sent, but for its end.
#[derive(Debug)]
pub struct PreemptionResult(Vec<u8>);

/// The approximate size of a pod in a response, in bytes.
const POD_BYTES: usize = 50;

impl PreemptionResult {
    /// Creates a response without nodes, with room for about so many pods.
    pub fn with_capacity(pods: usize) -> Self {
        let mut json = Vec::with_capacity(pods.saturating_mul(POD_BYTES));
        // never null, and no node of it is
        json.extend_from_slice(br#"{"NodeNameToMetaVictims":{"#);
        Self(json)
    }

    /// Adds a node that was not added before: the uids of the pods that go, at least one, in descending priority, and how
    /// many of these a disruption budget would rather keep.
    pub fn add<'u>(&mut self, node: &str, uids: impl Iterator<Item = &'u str>, pdb_violations: i64) {
        let Self(json) = self;
        // a node ends with another byte
        if !json.ends_with(b"{") {
            json.push(b',');
        }
        write_text(json, node);
        json.extend_from_slice(br#":{"Pods":["#);
        for (place, uid) in uids.enumerate() {
            json.extend_from_slice(if place == 0 { &br#"{"UID":"#[..] } else { br#",{"UID":"# });
            write_text(json, uid);
            json.push(b'}');
        }
        json.extend_from_slice(br#"],"NumPDBViolations":"#);
        json.extend_from_slice(pdb_violations.to_string().as_bytes());
        json.push(b'}');
    }

    /// Returns the JSON to be sent.
    pub fn into_json(self) -> Vec<u8> {
        let Self(mut json) = self;
        json.extend_from_slice(b"}}");
        json
    }
}

/// Writes a string. Uids and names have nothing to escape: to see that for all of one at once takes the least time.
fn write_text(json: &mut Vec<u8>, text: &str) {
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
        // can't fail: a vector takes anything, and a string is one in JSON
        let _ = serde_json::to_writer(json, text);
        return;
    }
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn offers(args: &Value) -> Result<Vec<(String, Vec<String>, i64)>, String> {
        let body = args.to_string();
        let args = Args::read(body.as_bytes()).map_err(|error| error.to_string())?;
        let of = |offer: Offer<'_>| {
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
