//! The rules for workloads that don't get ready: the checks of a `waitForPodsReady` block of a
//! queue or the configuration.

use tenure_types::runai::v3alpha1::{RequeuingStrategy, WaitForPodsReady};

use super::durations::{LEAVE_OUT, positive};
use crate::{field::FieldError, requeue::factor};

/// Checks a block at this path, and adds its errors. Fields that Kueue has and Tenure doesn't
/// support are refused.
pub(crate) fn wait_for_pods_ready(path: &str, wait: &WaitForPodsReady, errors: &mut Vec<FieldError>) {
    // a timeout that is left out has its default
    positive(&format!("{path}.timeout"), wait.timeout.as_ref(), "set enable: false for none", errors);
    positive(&format!("{path}.recoveryTimeout"), wait.recovery_timeout.as_ref(), LEAVE_OUT, errors);
    if wait.block_admission == Some(true) {
        let detail =
            "must be false or left out: Tenure admits no workloads, so none can wait until another is ready";
        errors.push(FieldError::invalid(format!("{path}.blockAdmission"), true, detail));
    }
    if let Some(strategy) = &wait.requeuing_strategy {
        requeuing_strategy(&format!("{path}.requeuingStrategy"), strategy, errors);
    }
}

fn requeuing_strategy(path: &str, strategy: &RequeuingStrategy, errors: &mut Vec<FieldError>) {
    at_least(0, &format!("{path}.backoffLimitCount"), strategy.backoff_limit_count, errors);
    at_least(1, &format!("{path}.backoffBaseSeconds"), strategy.backoff_base_seconds, errors);
    at_least(1, &format!("{path}.backoffMaxSeconds"), strategy.backoff_max_seconds, errors);
    // a maximum that is too small has an error already
    if let (Some(base), Some(max)) =
        (strategy.backoff_base_seconds, strategy.backoff_max_seconds.filter(|max| *max > 0))
        && base > max
    {
        let detail = format!("must not be more than backoffMaxSeconds, {max}");
        errors.push(FieldError::invalid(format!("{path}.backoffBaseSeconds"), base, detail));
    }
    if let Some(timeout) = strategy.backoff_limit_timeout {
        let detail = "must be left out: set backoffLimitCount; kubectl tenure requeue-schedule shows how long that many returns take";
        errors.push(FieldError::invalid(format!("{path}.backoffLimitTimeout"), timeout, detail));
    }
    if let Some(text) = strategy.backoff_factor.as_deref().filter(|text| factor(text).is_none()) {
        let detail = "must be a decimal number of at least 1, such as \"1.5\"";
        errors.push(FieldError::invalid(format!("{path}.backoffFactor"), text, detail));
    }
}

pub(super) fn at_least(least: i32, field: &str, value: Option<i32>, errors: &mut Vec<FieldError>) {
    if let Some(value) = value.filter(|value| *value < least) {
        errors.push(FieldError::invalid(field, value, format!("must be at least {least}")));
    }
}
