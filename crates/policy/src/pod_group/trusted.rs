use std::collections::BTreeSet;

/// The users that may set stamps, by their exact names, as the API server authenticates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedWriters(BTreeSet<String>);

/// The account of KAI-Scheduler's scheduler. Not of its podgrouper, which copies annotations that a tenant gives a Job.
const KAI_SCHEDULER: &str = "system:serviceaccount:kai-scheduler:scheduler";

impl TrustedWriters {
    /// True if the user may set stamps.
    pub fn trusts(&self, user: &str) -> bool {
        self.0.contains(user)
    }

    /// Returns the names of all users, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Default for TrustedWriters {
    fn default() -> Self {
        Self::from_iter([KAI_SCHEDULER.to_owned()])
    }
}

impl FromIterator<String> for TrustedWriters {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}
