use std::collections::BTreeSet;

/// The users that may set stamps, by their exact names, as the API server authenticates them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedWriters(BTreeSet<String>);

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

impl FromIterator<String> for TrustedWriters {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}
