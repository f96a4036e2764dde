//! The writes of keepers, from the API server's audit log: the writer, the object and the time.
//! Each read continues where the last one ended.

use std::{
    collections::HashSet,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use tenure_testbed::Cluster;

use super::pair::CREDENTIAL;
use crate::policies::keeper_user;

/// The writes that were read so far.
pub(super) struct Journal {
    log: PathBuf,
    /// The bytes of the log that were read.
    read: u64,
    /// The writes of the Lease that succeeded, by the time of their answer.
    terms: Vec<Write>,
    /// All other writes of keepers.
    writes: Vec<Write>,
}

/// A write by a keeper.
struct Write {
    /// The credential of the writer, which a keeper has from its start to its end.
    by: String,
    verb: String,
    resource: String,
    namespace: String,
    name: String,
    is_success: bool,
    /// True if the write only shows when a run ends.
    shows_end: bool,
    received: Timestamp,
    answered: Timestamp,
}

/// Writes that the API server got from one keeper after another had taken the lease. Some are on
/// the way when a leader is struck, which no lease can prevent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Writes that were refused, because the new leader had been first, or that were dropped,
    /// because the sender had given up.
    pub failed: usize,
    /// Writes that succeeded before the new leader wrote the object.
    pub through: usize,
}

impl Journal {
    /// Returns a journal that has read nothing yet.
    pub fn of(cluster: &Cluster) -> Self {
        Self { log: cluster.audit_log(), read: 0, terms: Vec::new(), writes: Vec::new() }
    }

    /// Reads the new entries of the log.
    pub fn read_on(&mut self) -> Result<()> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut news = Vec::new();
        file.read_to_end(&mut news)?;
        // the last line may be half written
        let end = news.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.read += u64::try_from(end)?;
        let user = keeper_user();
        for line in String::from_utf8_lossy(&news[..end]).lines().filter(|line| line.contains(&user)) {
            if let Some(write) = Write::of(&serde_json::from_str(line)?, &user) {
                match write.resource.as_str() {
                    "leases" if write.is_success => self.terms.push(write),
                    "leases" => {}
                    _ => self.writes.push(write),
                }
            }
        }
        self.terms.sort_by_key(|write| write.answered);
        Ok(())
    }

    fn writes(&self, namespace: &str) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |write| write.namespace == namespace)
    }

    /// Returns the successful patches in a namespace. Patches that write the end of a run are left out.
    /// On a slow machine, an owner gets one of these before its pause.
    fn patches(&self, namespace: &str) -> impl Iterator<Item = &Write> {
        self.writes(namespace).filter(|write| write.verb == "patch" && write.is_success && !write.shows_end)
    }

    /// Returns complaints about owners that were patched twice.
    pub fn twice_patched(&self, namespace: &str) -> Vec<String> {
        let mut seen = HashSet::new();
        let twice = self.patches(namespace).filter(|write| !seen.insert(&write.name));
        twice.map(|write| format!("{} was patched twice", write.name)).collect()
    }

    /// Returns the time from `struck` until the first patch by one of these credentials was done.
    /// None: they have patched no object since.
    pub fn first_patch(
        &self,
        namespace: &str,
        struck: Timestamp,
        is_theirs: impl Fn(&str) -> bool,
    ) -> Option<Duration> {
        let theirs = self.patches(namespace).filter(|write| write.answered > struck && is_theirs(&write.by));
        Duration::try_from(theirs.map(|write| write.answered).min()?.duration_since(struck)).ok()
    }

    /// Counts late writes. If an owner is paused without a patch that was answered with success,
    /// one of its unanswered patches has paused it.
    pub fn late(&self, namespace: &str) -> Late {
        let patched: HashSet<&str> = self.patches(namespace).map(|write| write.name.as_str()).collect();
        let mut late = Late::default();
        for write in self.writes(namespace).filter(|write| !self.led(write)) {
            let is_alone = write.verb == "patch" && !patched.contains(write.name.as_str());
            *(if write.is_success || is_alone { &mut late.through } else { &mut late.failed }) += 1;
        }
        late
    }

    /// True if the writer had been the last to take the lease when the write came.
    fn led(&self, write: &Write) -> bool {
        let taken = self.terms.partition_point(|term| term.answered < write.received);
        taken.checked_sub(1).is_some_and(|last| self.terms[last].by == write.by)
    }
}

impl Write {
    /// Reads an entry of the log. None: the entry is no finished write of this user.
    fn of(entry: &Value, user: &str) -> Option<Self> {
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let credential = format!("/user/extra/{}/0", CREDENTIAL.replace('/', "~1"));
        let is_write = ["create", "update", "patch", "delete"].contains(&text("/verb"));
        if !is_write || text("/stage") != "ResponseComplete" || text("/user/username") != user {
            return None;
        }
        Some(Self {
            by: text(&credential).into(),
            verb: text("/verb").into(),
            resource: text("/objectRef/resource").into(),
            namespace: text("/objectRef/namespace").into(),
            name: text("/objectRef/name").into(),
            shows_end: text("/requestURI").contains("fieldManager=tenure-shown-end"),
            is_success: entry.pointer("/responseStatus/code")?.as_u64()? < 300,
            received: text("/requestReceivedTimestamp").parse().ok()?,
            answered: text("/stageTimestamp").parse().ok()?,
        })
    }
}
