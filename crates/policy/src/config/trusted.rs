//! Reads the users that may set when a `PodGroup` started.

use super::{
    fields::{Field, Problems},
    names::{USER, names},
};
use crate::pod_group::TrustedWriters;

/// The valid names.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> TrustedWriters {
    names(field, USER, problems).into_iter().collect()
}
