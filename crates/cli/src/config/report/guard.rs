use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use serde::Serialize;
use tenure_policy::guard::Guarded;

use super::table;

/// Who is guarded against, and who never is.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    schedulers: BTreeSet<String>,
    exempt_users: BTreeSet<String>,
    exempt_groups: BTreeSet<String>,
    exempt_namespaces: BTreeSet<String>,
}

impl Guard {
    pub fn of(guarded: &Guarded) -> Self {
        let Guarded { schedulers, exempt_users, exempt_groups, exempt_namespaces } = guarded.clone();
        Self { schedulers, exempt_users, exempt_groups, exempt_namespaces }
    }

    pub fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { schedulers, exempt_users, exempt_groups, exempt_namespaces } = self;
        let lists = [
            (schedulers, "scheduler"),
            (exempt_users, "exempt user"),
            (exempt_groups, "exempt group"),
            (exempt_namespaces, "exempt namespace"),
        ];
        let rows = lists
            .into_iter()
            .flat_map(|(names, what)| names.iter().map(move |name| vec![name.clone(), what.to_owned()]));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        table(&["GUARD", "AS"], rows.into_iter(), out)
    }
}
