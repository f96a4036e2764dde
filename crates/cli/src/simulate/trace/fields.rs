//! The fields of a run, and the columns that have them.
//!
//! Called by `--columns` of the command line, and by the reader of tables.

use std::str::FromStr;

/// A field of a run. The order is that of [`FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunField {
    Id,
    Submit,
    Start,
    End,
    Gpus,
    Cpus,
    Queue,
    User,
    Priority,
    State,
}

/// Each field, its name on the command line and in CSV, and the columns of sacct that may have it,
/// the best first.
pub const FIELDS: [(RunField, &str, &[&str]); 10] = [
    (RunField::Id, "id", &["JobID", "JobIDRaw"]),
    (RunField::Submit, "submit", &["Submit"]),
    (RunField::Start, "start", &["Start"]),
    (RunField::End, "end", &["End"]),
    (RunField::Gpus, "gpus", &["AllocTRES", "AllocGRES", "ReqTRES"]),
    (RunField::Cpus, "cpus", &["AllocCPUS", "NCPUS"]),
    (RunField::Queue, "queue", &["Partition", "QOS"]),
    (RunField::User, "user", &["User"]),
    (RunField::Priority, "priority", &["Priority"]),
    (RunField::State, "state", &["State"]),
];

/// The columns that the user has named: `start=Begin,end=Finish`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(Vec<(RunField, String)>);

impl Columns {
    /// Returns the column that the user has named for a field. None: no such name.
    pub fn of(&self, field: RunField) -> Option<&str> {
        self.0.iter().find(|(of, _)| *of == field).map(|(_, column)| column.as_str())
    }
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns: Vec<(RunField, String)> = Vec::new();
        for part in text.split(',') {
            let (name, column) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?}: must be FIELD=COLUMN, such as start=Begin"))?;
            let field = FIELDS.iter().find(|(_, known, _)| *known == name.trim());
            let (field, ..) = field.ok_or_else(|| {
                let known: Vec<&str> = FIELDS.iter().map(|(_, name, _)| *name).collect();
                format!("{name:?} is no field: must be one of {}", known.join(", "))
            })?;
            if columns.iter().any(|(known, _)| known == field) {
                return Err(format!("{name:?} is there twice"));
            }
            columns.push((*field, column.trim().to_owned()));
        }
        Ok(Self(columns))
    }
}
