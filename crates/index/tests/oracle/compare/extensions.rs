//! Asks both for the run of each request for more time, and for the decision about the request.

use jiff::SignedDuration;
use tenure_policy::extension::{ExtensionDecision, GoingRun, RequestedRun, decide};

use super::{Pair, Result, same};
use crate::{
    naive::{Allowed, Going, Requested, Verdict},
    wire,
    world::{Denier, ExtensionObj, MILLI, Nanos, timestamp},
};

impl Pair {
    /// Compares each request, and a further one of this moment for the same workload.
    pub(super) fn compare_extensions(&mut self) -> Result {
        let Self { index, model, seen, .. } = self;
        let now = model.now.div_euclid(MILLI);
        for known in model.extensions.values() {
            let further = ExtensionObj { asked: now, granted: None, denied: None, ..known.clone() };
            for of in [known, &further] {
                let (namespace, workload) = (wire::namespace(of.namespace), wire::uid(of.workload));
                let run = index.requested_run(&namespace, workload, timestamp(of.asked * MILLI));
                let given = (requested(&run), verdict(&decide(&wire::extension(of), &run)));
                let expected = (model.requested(of), model.verdict(of));
                same(format_args!("request {:x} at {}", of.uid, of.asked), &given, &expected)?;
                let (Requested::Going(run), verdict) = expected else { continue };
                let is_other_denied = |other: &ExtensionObj| {
                    let is_same = (other.namespace, other.workload) == (of.namespace, of.workload);
                    is_same && other.denied == Some(Denier::Person)
                };
                let was_denied = !run.is_denied && model.extensions.values().any(is_other_denied);
                let without = Going { is_denied: false, ..run }.verdict(of.duration * 1_000);
                let is_held = verdict == Verdict::Await && without != Verdict::Await;
                seen.note("denied", usize::from(run.is_denied));
                seen.note("denied in an earlier run", usize::from(was_denied));
                seen.note("granted at once", usize::from(matches!(verdict, Verdict::Grant(_))));
                seen.note("held by a denial", usize::from(is_held));
            }
        }
        Ok(())
    }
}

fn nanos(of: SignedDuration) -> Nanos {
    of.as_nanos() as Nanos
}

fn requested(run: &RequestedRun) -> Requested {
    let GoingRun { queue: _, limited_by: _, has_ceiling, allowance, count, total, is_denied } = match run {
        RequestedRun::Going(run) => run,
        RequestedRun::WithoutQueue(_) => return Requested::WithoutQueue,
        RequestedRun::Over => return Requested::Over,
        RequestedRun::Unknown => return Requested::Unknown,
    };
    let allowed = Allowed {
        at_once: nanos(allowance.auto_approve.to_signed()),
        total: nanos(allowance.max_total.to_signed()),
        count: allowance.max_count,
    };
    let (has_ceiling, is_denied) = (*has_ceiling, *is_denied);
    Requested::Going(Going { has_ceiling, allowed, count: *count, total: nanos(*total), is_denied })
}

fn verdict(decision: &ExtensionDecision) -> Verdict {
    match decision {
        ExtensionDecision::Keep => Verdict::Keep,
        ExtensionDecision::Await(_) => Verdict::Await,
        ExtensionDecision::Grant(time) => Verdict::Grant(nanos(*time)),
        ExtensionDecision::Deny(_) => Verdict::Deny,
        ExtensionDecision::End => Verdict::End,
    }
}
