//! The fields of a run, and the columns that have them.
//!
//! Called by `--columns` of the command line, and by the reader of tables.

/// The name of each field on the command line and in CSV, and the columns of sacct that may have
/// it, the best first.
pub const FIELDS: [(&str, &[&str]); 10] = [
    ("id", &["JobID", "JobIDRaw"]),
    ("submit", &["Submit"]),
    ("start", &["Start"]),
    ("end", &["End"]),
    ("gpus", &["AllocTRES", "AllocGRES", "ReqTRES"]),
    ("cpus", &["AllocCPUS", "NCPUS"]),
    ("queue", &["Partition", "QOS"]),
    ("user", &["User"]),
    ("priority", &["Priority"]),
    ("state", &["State"]),
];

/// The columns that the user has named for [`FIELDS`]: `start=Begin,end=Finish`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub [Option<String>; FIELDS.len()]);

/// Reads `FIELD=COLUMN,...`.
pub fn columns(text: &str) -> Result<Columns, String> {
    let mut columns = Columns::default();
    for part in text.split(',') {
        let (name, column) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?}: must be FIELD=COLUMN, such as start=Begin"))?;
        let mut known = FIELDS.iter().zip(&mut columns.0);
        let (_, of) = known.find(|((field, _), _)| *field == name.trim()).ok_or_else(|| {
            format!("{name:?} is no field: must be one of {}", FIELDS.map(|(field, _)| field).join(", "))
        })?;
        if of.replace(column.trim().to_owned()).is_some() {
            return Err(format!("{name:?} is there twice"));
        }
    }
    Ok(columns)
}
