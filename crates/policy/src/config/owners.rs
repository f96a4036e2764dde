//! Rows for the table of owners.

use tenure_types::runai::v3alpha1::OnReversal;

use super::fields::{Field, Problems};
use crate::{
    field::FieldError,
    owners::{OnExpiry, PauseRule},
    queue::ON_REVERSAL_EXPECTED,
};

/// The valid rows.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Vec<PauseRule> {
    let mut rules: Vec<PauseRule> = Vec::new();
    for item in field.list(problems) {
        let Some(rule) = row(&item, problems) else { continue };
        let is_same = |other: &PauseRule| {
            (&other.group, &other.kind, &other.field) == (&rule.group, &rule.kind, &rule.field)
        };
        if rules.iter().any(is_same) {
            let (PauseRule { group, kind, field, .. }, path) = (&rule, &item.path);
            let twice = format!("{path}: {kind} of group {group:?} has a row for {field} already");
            problems.add(item.node.line, twice);
        } else {
            rules.push(rule);
        }
    }
    rules
}

fn row(item: &Field<'_>, problems: &mut Problems) -> Option<PauseRule> {
    let mut fields = item.fields(problems)?;
    let text = |field: Option<Field<'_>>, problems: &mut Problems| {
        field?.text("must be a text", problems).map(str::to_owned)
    };
    let group = match fields.take("group") {
        Some(group) => text(Some(group), problems),
        None => Some(String::new()),
    };
    let kind = fields.require("kind", problems);
    let path = fields.require("path", problems);
    let value = fields.require("value", problems);
    let decides_activation = match fields.take("decidesActivation") {
        Some(field) => field.boolean(problems),
        None => Some(false),
    };
    let on_reversal = match fields.take("onReversal") {
        Some(field) => on_reversal(&field, problems).map(Some),
        None => Some(None),
    };
    let on_expiry = match fields.take("onExpiry") {
        Some(field) => on_expiry(&field, problems),
        None => Some(OnExpiry::default()),
    };
    fields.end(problems);
    let (kind, path) = (text(kind, problems), text(path, problems));
    let rule = PauseRule {
        group: group?,
        kind: kind?,
        field: path?,
        value: value?.node.to_json(),
        decides_activation: decides_activation?,
        on_reversal: on_reversal?,
        on_expiry: on_expiry?,
    };
    if let Err(FieldError { field, value, detail }) = rule.check() {
        let line = item.node.get(&field).map_or(item.node.line, |node| node.line);
        let path = format!("{}.{field}", item.path);
        problems.add(line, FieldError::invalid_json(path, &value, detail));
        return None;
    }
    Some(rule)
}

fn on_reversal(field: &Field<'_>, problems: &mut Problems) -> Option<OnReversal> {
    let value = serde_json::from_value(field.node.to_json());
    value.map_err(|_| field.refuse(ON_REVERSAL_EXPECTED, problems)).ok()
}

fn on_expiry(field: &Field<'_>, problems: &mut Problems) -> Option<OnExpiry> {
    let value = serde_json::from_value(field.node.to_json());
    value.map_err(|_| field.refuse("must be Pause or Delete", problems)).ok()
}
