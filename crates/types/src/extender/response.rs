//! The response of the extender, which the webhook writes node by node.

/// An `ExtenderPreemptionResult`, the nodes that remain candidates and their victims, as JSON
/// without its end.
#[derive(Debug)]
pub struct PreemptionResult(Vec<u8>);

/// The approximate size of a pod in a response, in bytes.
const POD_BYTES: usize = 50;

impl PreemptionResult {
    /// Creates a response without nodes. `pods` is the expected number of victims in all.
    pub fn with_capacity(pods: usize) -> Self {
        let mut json = Vec::with_capacity(pods.saturating_mul(POD_BYTES));
        // never null, and no node of it is
        json.extend_from_slice(br#"{"NodeNameToMetaVictims":{"#);
        Self(json)
    }

    /// Adds a node that was not added before. `uids` are its victims in descending priority, at
    /// least one. `pdb_violations` is the number of victims that a disruption budget would rather
    /// keep.
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

/// Writes a string. Uids and names have nothing to escape: to see that for the whole text at once
/// takes the least time.
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
