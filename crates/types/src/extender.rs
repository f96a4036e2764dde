//! What kube-scheduler asks its extender, and the answer: `ExtenderPreemptionArgs` and `ExtenderPreemptionResult` of
//! `k8s.io/kube-scheduler/extender/v1`. They have no names of their own on the wire, so Go's are used, in whatever case.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// More nodes than any cluster has, and more victims than any node.
const MOST: usize = 100_000;

/// What the scheduler asks.
#[derive(Debug, Default)]
pub struct Args<'b> {
    /// Who wants room: a whole Pod.
    pub pod: Option<&'b RawValue>,
    /// What each candidate node would lose.
    pub nodes: Vec<Offer>,
}

/// What a candidate node would lose.
#[derive(Debug)]
pub struct Offer {
    /// Its name.
    pub node: String,
    /// The uids of those that would go.
    pub victims: Vec<String>,
    /// How many of them a disruption budget would rather keep.
    pub pdb_violations: i64,
}

impl<'b> Args<'b> {
    /// The arguments in a body.
    pub fn read(body: &'b [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
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
                let mut args = Args::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key.eq_ignore_ascii_case("Pod") {
                        args.pod =
                            map.next_value::<Option<&'de RawValue>>()?.filter(|raw| raw.get() != "null");
                    } else if key.eq_ignore_ascii_case("NodeNameToVictims")
                        || key.eq_ignore_ascii_case("NodeNameToMetaVictims")
                    {
                        // one of the two is null
                        args.nodes
                            .extend(map.next_value::<Option<Offers>>()?.map(|of| of.0).unwrap_or_default());
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(args)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

struct Offers(Vec<Offer>);

impl<'de> Deserialize<'de> for Offers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nodes;

        impl<'de> Visitor<'de> for Nodes {
            type Value = Offers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from the names of nodes to their victims")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Offers, M::Error> {
                let mut offers = Vec::new();
                while let Some(node) = map.next_key::<String>()? {
                    if offers.len() == MOST {
                        return Err(M::Error::custom("more nodes than any cluster has"));
                    }
                    let Victims { uids, pdb_violations } =
                        map.next_value::<Option<Victims>>()?.unwrap_or_default();
                    offers.push(Offer { node, victims: uids, pdb_violations });
                }
                Ok(Offers(offers))
            }
        }

        deserializer.deserialize_map(Nodes)
    }
}

#[derive(Default)]
struct Victims {
    uids: Vec<String>,
    pdb_violations: i64,
}

impl<'de> Deserialize<'de> for Victims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Victims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("victims: a map with Pods and NumPDBViolations")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Victims, M::Error> {
                let mut victims = Victims::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key.eq_ignore_ascii_case("Pods") {
                        victims.uids = map.next_value::<Option<Uids>>()?.map(|of| of.0).unwrap_or_default();
                    } else if key.eq_ignore_ascii_case("NumPDBViolations") {
                        victims.pdb_violations = map.next_value::<Option<i64>>()?.unwrap_or_default();
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(victims)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Of pods in either form: only a uid, or a whole Pod.
struct Uids(Vec<String>);

impl<'de> Deserialize<'de> for Uids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pods;

        impl<'de> Visitor<'de> for Pods {
            type Value = Uids;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of pods")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut pods: S) -> Result<Uids, S::Error> {
                let mut uids = Vec::with_capacity(pods.size_hint().unwrap_or_default().min(MOST));
                while let Some(uid) = pods.next_element_seed(Uid { within_metadata: false })? {
                    if uids.len() == MOST {
                        return Err(S::Error::custom("more pods than any node has"));
                    }
                    uids.push(uid);
                }
                Ok(Uids(uids))
            }
        }

        deserializer.deserialize_seq(Pods)
    }
}

/// A pod's uid: its `UID`, or that of its `metadata`. A pod without one can't be meant, and is nobody.
struct Uid {
    within_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Uid {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Uid {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pod, or its UID")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut uid = String::new();
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case("uid") {
                uid = map.next_value::<Option<String>>()?.unwrap_or_default();
            } else if !self.within_metadata && key == "metadata" {
                let own = map.next_value_seed(Self { within_metadata: true })?;
                if uid.is_empty() {
                    uid = own;
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(uid)
    }
}

/// The answer: the nodes that hold, and what each of them loses.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Answer<'a> {
    /// Never null, and no node of it is.
    pub node_name_to_meta_victims: BTreeMap<&'a str, MetaVictims<'a>>,
}

/// What a node loses.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetaVictims<'a> {
    /// At least one, in descending priority.
    pub pods: Vec<MetaPod<'a>>,
    /// How many of them a disruption budget would rather keep.
    #[serde(rename = "NumPDBViolations")]
    pub pdb_violations: i64,
}

/// A pod.
#[derive(Debug, Serialize)]
pub struct MetaPod<'a> {
    /// Its uid.
    #[serde(rename = "UID")]
    pub uid: &'a str,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn offers(args: &Value) -> Result<Vec<(String, Vec<String>, i64)>, String> {
        let body = args.to_string();
        let args = Args::read(body.as_bytes()).map_err(|error| error.to_string())?;
        let of = |offer: Offer| (offer.node, offer.victims, offer.pdb_violations);
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
        ] {
            assert!(offers(&args).is_err(), "{args}");
        }
    }

    #[test]
    fn the_answer_has_the_names_of_go() {
        let pods = vec![MetaPod { uid: "a" }];
        let answer = Answer {
            node_name_to_meta_victims: BTreeMap::from([("n", MetaVictims { pods, pdb_violations: 1 })]),
        };
        let expected = r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"a"}],"NumPDBViolations":1}}}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), expected);
        let empty = r#"{"NodeNameToMetaVictims":{}}"#;
        assert_eq!(serde_json::to_string(&Answer::default()).unwrap(), empty);
    }
}
