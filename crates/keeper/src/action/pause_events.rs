//! The events of a pause: on the object that was paused, and on the `CronJob` above it.
//!
//! `Pauser::pause` completes them after the write.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::Uid;
use tenure_policy::{
    naming::PausedObject,
    pause::{self, ResumeCondition},
};
use tenure_types::paused::PausedRecord;

use super::{CaseWork, Pauser, act_events};
use crate::{events::EventRecord, handles::Handles};

impl Pauser {
    /// Completes the events of a pause: adds the one on the `CronJob`, and sets the cause of each.
    /// Notes in the outbox that this keeper writes them. A dry run keeps only the first. A Job that
    /// comes back by itself gets no event on its `CronJob`.
    pub(super) async fn complete_pause_events(
        &self,
        work: &CaseWork<'_>,
        record: &PausedRecord,
        known: &PausedObject,
        until: &ResumeCondition,
        events: &mut Vec<EventRecord>,
    ) {
        if !self.handles.dry_run && !matches!(until, ResumeCondition::Requeued(_)) {
            let cron_job = work.found().and_then(|found| pause::cron_job_of(&known.object, &found.metadata));
            if let Some(cron_job) = cron_job {
                events.extend(self.cron_job_event(work, &cron_job, known, record.at).await);
            }
        }
        self.handles.cluster.outbox.note_written(known, record.at);
        for event in &mut *events {
            event.cause = Some(work.cause());
        }
        if self.handles.dry_run {
            act_events::of_dry_run(events, Some(work.batch.first.deadline));
        }
    }

    /// Returns the event on the `CronJob` of a Job that was paused. None: the `CronJob` can't be
    /// read, no watch shows Jobs, or the `CronJob` replaces its Jobs.
    async fn cron_job_event(
        &self,
        work: &CaseWork<'_>,
        cron_job: &OwnerReference,
        known: &PausedObject,
        at: Timestamp,
    ) -> Option<EventRecord> {
        let Handles { cluster, objects, .. } = &*self.handles;
        let (namespace, job) = (&work.batch.first.namespace, known.object.uid.as_deref()?);
        let found = objects.live(namespace, cron_job).await.ok()??;
        let (uid, job) = (Uid::of(&cron_job.uid), Uid::of(job));
        let source = cluster.source_of_jobs()?;
        let beside = cluster.with(|index| index.paused_beside(namespace, uid, job, source));
        act_events::of_cron_job((cron_job, &found), known, at, beside, work.case.config.paused_history_limit)
    }
}
