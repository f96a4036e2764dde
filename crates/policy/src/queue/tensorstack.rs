//! The meaning of a Queue of T9k, the tensorstack family.

use tenure_types::{Grammar, Written, amount::Amount, duration::PointsGrammar, tensorstack::v1beta1};

use super::{
    NearestFields, RunaiQueue,
    durations::{LEAVE_OUT, duration, positive},
};
use crate::{field::FieldError, notice::NoticePoints};

impl RunaiQueue {
    /// Reads a queue of T9k as decisions need it: at the top, with a ceiling and a notice. Returns
    /// the errors of its fields beside it.
    pub fn read_t9k(spec: &v1beta1::QueueSpec) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let ceiling =
            positive("spec.maxDuration", unless_empty(spec.max_duration.as_ref()), LEAVE_OUT, &mut errors);
        let notice = duration("spec.expiryNotice", unless_empty(spec.expiry_notice.as_ref()), &mut errors);
        if let Some(priority) = spec.priority.filter(|priority| !(0..=100).contains(priority)) {
            errors.push(FieldError::invalid("spec.priority", priority, "must be from 0 to 100"));
        }
        // quantities below zero
        for (name, quantity) in spec.quota.iter().flat_map(|quota| &quota.requests).flatten() {
            if Amount::parse(&quantity.0).is_some_and(Amount::is_negative) {
                let field = format!("spec.quota.requests[{name}]");
                errors.push(FieldError::invalid(field, quantity.0.as_str(), "must not be negative"));
            }
        }
        let ceiling = ceiling.map(PointsGrammar::extended);
        let nearest = NearestFields { notice: notice.map(NoticePoints::from), ..NearestFields::default() };
        (Self { ceiling, nearest, ..Self::default() }, errors)
    }
}

/// Returns a field unless its text is empty: empty counts as left out.
fn unless_empty<D: Grammar>(written: Option<&Written<D>>) -> Option<&Written<D>> {
    written.filter(|text| !text.as_str().is_empty())
}
