use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    runai::{FLOOR_ANNOTATIONS, QueueVersion, SPEC_ANNOTATIONS, conversion::convert},
};

/// The fields that only v3alpha1 has and the floors, with their annotations.
fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    FLOOR_ANNOTATIONS.into_iter().chain(SPEC_ANNOTATIONS)
}

/// The annotations of the fields and of the status, and both carriers.
fn known_annotations() -> Vec<&'static str> {
    let others =
        [keys::QUEUE_STATUS_ANNOTATION, keys::QUEUE_FROM_V2_ANNOTATION, keys::QUEUE_FROM_V3ALPHA1_ANNOTATION];
    table().map(|(_, key)| key).chain(others).collect()
}

fn known_fields() -> Vec<&'static str> {
    table().map(|(field, _)| field).collect()
}

const TEXTS: [&str; 16] = [
    "",
    "0s",
    "1h",
    "90m0s",
    "2d",
    "48h0m0s",
    "1w",
    "168h0m0s",
    "1.5d",
    "36h0m0s",
    "-5m",
    "+2d",
    "10 s",
    "Pause",
    "1\u{b5}s2d",
    "☂ \"\\\n\u{0}\u{2028}",
];

const MAPS: [&str; 11] = [
    "{}",
    r#"{"timeout":"5m"}"#,
    r#"{ "timeout" : "5m" }"#,
    r#"{"timeout":"5m","requeuingStrategy":{"backoffFactor":"1.5","backoffLimitCount":3}}"#,
    r#"{"countFrom":"Creation","enable":false,"requeuingStrategy":{"onCapacity":true}}"#,
    r#"{"b":[1.50,-0.0,1e400,123456789012345678901234567890],"a":null}"#,
    r#"{"a":null,"b":[1.50,-0.0,1e400,0.1234567890123456789]}"#,
    r#"{"running":3,"protected":1,"paused":0,"requeueing":0}"#,
    r#"{"running":1,"runs":[{"startedBefore":"2026-11-21T20:00:00Z","workloads":1}]}"#,
    r#"{"\u0061":"\u00fc\ud83e\udd80","a\n":"\ud800"}"#,
    r#"{"deep":[[[[[[[[[[[[[[[[[[[[{"b":1, "a":2}]]]]]]]]]]]]]]]]]]]]}"#,
];

const VALUES: [&str; 11] = [
    "null",
    "true",
    "5",
    "1.0",
    "1e400",
    "[]",
    "[1, 2]",
    r#""\u0031h""#,
    r#""2\u0064""#,
    r#""\ud800""#,
    r#""2026-11-21T20:00:00Z""#,
];

/// Numbers that are the same for the same seed (`SplitMix64`).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd605_1e4d_0b7a_35c7))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn pick<'p>(&mut self, pool: &[&'p str]) -> &'p str {
        pool[self.below(pool.len())]
    }
}

type Fields = BTreeMap<String, String>;

fn json(fields: &Fields) -> String {
    let fields: Vec<_> =
        fields.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str()))).collect();
    format!("{{{}}}", fields.join(","))
}

fn fields(json: &str) -> Fields {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(json).unwrap_or_default();
    fields.into_iter().map(|(key, raw)| (key, raw.get().to_owned())).collect()
}

/// An object of either version.
pub fn object(random: &mut Random) -> String {
    let version = random.pick(&["v2", "v3alpha1"]);
    let mut metadata = Fields::from([("name".into(), "\"q\"".into())]);
    if random.percent(20) {
        metadata.insert("managedFields".into(), r#"[{"fieldsV1": {"f:spec":{"f:b":{},"f:a":{}}}}]"#.into());
    }
    let annotations = annotations(random, 10);
    slot(&mut metadata, "annotations", &annotations, random);
    let mut object = Fields::from([
        ("apiVersion".into(), format!("\"scheduling.run.ai/{version}\"")),
        ("kind".into(), "\"Queue\"".into()),
        ("metadata".into(), json(&metadata)),
    ]);
    let (spec, status) = (spec(random, 20), status(random));
    slot(&mut object, "spec", &spec, random);
    slot(&mut object, "status", &status, random);
    json(&object)
}

fn slot(parent: &mut Fields, key: &str, fields: &Fields, random: &mut Random) {
    let value = match random.below(10) {
        0 => "null".into(),
        1 => "{}".into(),
        2..4 => return,
        _ => json(fields),
    };
    parent.insert(key.into(), value);
}

fn annotations(random: &mut Random, chance: usize) -> Fields {
    let mut fields = Fields::new();
    for key in known_annotations() {
        if random.percent(chance) {
            let text = annotation(random);
            fields.insert(key.into(), text);
        }
    }
    for key in ["note", "tenure.dev/other", "", "☂\"\n"] {
        if random.percent(15) {
            let text = quoted(&text(random));
            fields.insert(key.into(), text);
        }
    }
    fields
}

fn spec(random: &mut Random, chance: usize) -> Fields {
    let mut fields = Fields::new();
    for key in known_fields() {
        if random.percent(chance) {
            fields.insert(key.into(), value(random));
        }
    }
    for (key, value) in
        [("parentQueue", "\"root\""), ("priority", "1.0"), ("maxDuration ", "{\"b\": 1, \"a\":2}")]
    {
        if random.percent(20) {
            fields.insert(key.into(), value.into());
        }
    }
    fields
}

fn status(random: &mut Random) -> Fields {
    let mut fields = Fields::new();
    for key in ["workloads", "nextExpiry"] {
        if random.percent(25) {
            fields.insert(key.into(), value(random));
        }
    }
    if random.percent(20) {
        fields.insert("conditions".into(), "[ {\"type\":\"Orphan\"} ]".into());
    }
    fields
}

fn text(random: &mut Random) -> String {
    match random.below(10) {
        0 => {
            (0..random.below(8)).filter_map(|_| char::from_u32((random.next() % 0x11_0000) as u32)).collect()
        }
        1 if random.percent(2) => "long \"text\" ".repeat(1_000),
        _ => random.pick(&TEXTS).to_owned(),
    }
}

fn value(random: &mut Random) -> String {
    match random.below(10) {
        0..2 => random.pick(&VALUES).to_owned(),
        2..4 => random.pick(&MAPS).to_owned(),
        _ => quoted(&text(random)),
    }
}

fn annotation(random: &mut Random) -> String {
    let text = match random.below(10) {
        0..4 => text(random),
        4..6 => random.pick(&MAPS).to_owned(),
        6 => value(random),
        7 => json(&status(random)),
        _ => forged(random),
    };
    quoted(&text)
}

/// The contents of a carrier, valid or not.
fn forged(random: &mut Random) -> String {
    let mut parts = Fields::new();
    let (annotations, spec, status) = (annotations(random, 5), spec(random, 15), status(random));
    slot(&mut parts, "annotations", &annotations, random);
    slot(&mut parts, "spec", &spec, random);
    slot(&mut parts, "status", &status, random);
    if random.percent(30) {
        parts.insert(random.pick(&["annotations", "spec", "status"]).into(), "\"absent\"".into());
    }
    json(&parts)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// An object after one or several edits by clients of either version.
pub fn edited(object: &str, random: &mut Random) -> String {
    let mut object = fields(object);
    for _ in 0..=random.below(2) {
        edit(&mut object, random);
    }
    json(&object)
}

fn edit(object: &mut Fields, random: &mut Random) {
    let mut metadata = fields(&object["metadata"]);
    let mut annotations = metadata.get("annotations").map_or_else(Fields::new, |json| fields(json));
    match random.below(8) {
        0 => {
            let version = random.pick(&["v2", "v3alpha1"]);
            object.insert("apiVersion".into(), format!("\"scheduling.run.ai/{version}\""));
            return;
        }
        1 => {
            let (key, value) = (random.pick(&known_fields()), value(random));
            let mut spec = object.get("spec").map_or_else(Fields::new, |json| fields(json));
            spec.insert(key.into(), value);
            object.insert("spec".into(), json(&spec));
            return;
        }
        2 => {
            let key = random.pick(&["spec", "status"]);
            let value = random.pick(&["null", "{}"]);
            object.insert(key.into(), value.into());
            return;
        }
        3 => _ = annotations.remove(random.pick(&known_annotations())),
        4 => _ = annotations.insert(random.pick(&known_annotations()).into(), annotation(random)),
        5 => swap(&mut annotations),
        6 => carry_on(object, &mut annotations, random),
        _ => respelled(&mut annotations, random),
    }
    metadata.insert("annotations".into(), json(&annotations));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    object.insert("metadata".into(), json(&metadata));
}

/// Carriers of the wrong version.
fn swap(annotations: &mut Fields) {
    let [one, other] = [keys::QUEUE_FROM_V2_ANNOTATION, keys::QUEUE_FROM_V3ALPHA1_ANNOTATION];
    let (first, second) = (annotations.remove(one), annotations.remove(other));
    annotations.extend(first.map(|text| (other.to_owned(), text)));
    annotations.extend(second.map(|text| (one.to_owned(), text)));
}

/// Puts the carrier of the object's image on the object itself.
fn carry_on(object: &Fields, annotations: &mut Fields, random: &mut Random) {
    let text = json(object);
    let raw: &RawValue = serde_json::from_str(&text).unwrap();
    let to = if random.percent(50) { QueueVersion::V2 } else { QueueVersion::V3alpha1 };
    let there = serde_json::to_string(&convert(raw, to).unwrap()).unwrap();
    let mut theirs = fields(&fields(&fields(&there)["metadata"]).remove("annotations").unwrap_or_default());
    // texts double with each level
    let short = |text: &String| text.len() < 20_000;
    for key in [keys::QUEUE_FROM_V2_ANNOTATION, keys::QUEUE_FROM_V3ALPHA1_ANNOTATION] {
        annotations.extend(theirs.remove(key).filter(short).map(|text| (key.to_owned(), text)));
    }
}

/// A carrier that says the same, but isn't as conversion writes it; or hardly.
fn respelled(annotations: &mut Fields, random: &mut Random) {
    for key in [keys::QUEUE_FROM_V2_ANNOTATION, keys::QUEUE_FROM_V3ALPHA1_ANNOTATION] {
        let Some(text) = annotations.get_mut(key) else { continue };
        let plain: String = serde_json::from_str(text).unwrap_or_default();
        let (from, to) = [("{", "{ "), ("h", "m"), ("}", ",\"more\":{}}"), ("spec", "spic"), ("\"a", "\"b")]
            [random.below(5)];
        *text = quoted(&plain.replacen(from, to, 1));
    }
}
