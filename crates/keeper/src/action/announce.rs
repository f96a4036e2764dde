//! Notes the end of a run on its object: an owner that can be paused, or else the pod.
//!
//! The `Pauser` announces, withdraws and shows ends here. The journal gets the act in the same
//! patch, so the event can be repaired if the keeper ends before it is written.

use tenure_index::Uid;
use tenure_policy::{
    judge::{Notice, NoticeChange},
    naming::{PausedObject, reference},
    pause::{self, SHOWN_END_MANAGER},
};
use tenure_service::call::ApiError;
use tenure_types::{
    journal::{GivenNotice, JournalAct},
    projection::WholeObject,
};

use crate::api::FIELD_MANAGER;

use super::{
    Act, ActResult, ActionFailure, CaseWork, EventRecord, OwnerObject, Pauser, Task, act_events, events_of,
    unread,
};

impl Pauser {
    /// Notes the end of a run on an object, or clears it, and returns the event. Writes nothing if
    /// the noted end is right. A dry run writes nothing, and only returns the event.
    pub(super) async fn announce(
        &self,
        work: &CaseWork<'_>,
        notice: &Notice,
    ) -> Result<ActResult, ActionFailure> {
        let Some(found) = work.found() else { return Ok(unread()) };
        let (first, object) = (&work.batch.first, OwnerObject(&found.value));
        let Notice { end, then, more, .. } = *notice;
        let given = |at| GivenNotice { queue: first.queue.clone(), end, at, then, more };
        let act = notice.announced_at.map(given).map(JournalAct::Noticed);
        let (patch, noted) = match notice.change {
            NoticeChange::Keep => (None, None),
            NoticeChange::Clear => (Some(pause::withdraw(object)), None),
            NoticeChange::Set(noted) => (Some(pause::announce(object, noted)), Some(noted)),
        };
        if let Some(patch) = patch.filter(|_| !self.handles.dry_run) {
            let manager = if work.batch.task == Task::Note { SHOWN_END_MANAGER } else { FIELD_MANAGER };
            let patch = pause::with_act(patch, &found.metadata, act.clone(), self.handles.now());
            // the event must be written if the patch was applied without an answer
            let is_done = |found: &WholeObject| OwnerObject(&found.value).announcement() == noted;
            let written = self
                .handles
                .objects
                .write_as(manager, &first.namespace, &notice.object, &patch, is_done)
                .await;
            written.map_err(ApiError::from)?;
        }
        self.show_on_pods(work, notice);
        let object = reference(&notice.object, found.metadata.namespace.as_deref());
        let known = PausedObject { object, workload: None };
        let mut events: Vec<EventRecord> = act.iter().flat_map(|act| events_of(act, &known)).collect();
        if self.handles.dry_run {
            // a dry run notes nothing: the event has the time of its notice point, so that a keeper
            // that starts again finds the event written
            let now = self.handles.now().max(first.handed_out);
            act_events::of_dry_run(&mut events, work.state.notice.last(notice.end, now).or(Some(notice.end)));
        } else if let Some(at) = notice.announced_at {
            self.handles.cluster.outbox.note_written(&known, at);
        }
        Ok(ActResult::new(Act::Announce(Box::new(notice.clone())), events))
    }

    /// Has the pods of an owner show the end that was announced on the owner, if the configuration
    /// has `noticeOnPods`. A dry run shows nothing.
    fn show_on_pods(&self, work: &CaseWork<'_>, notice: &Notice) {
        let is_pod = notice.object.api_version == "v1" && notice.object.kind == "Pod";
        // pods show the end from the first notice on
        let is_announced = work.batch.task != Task::Note;
        if !work.case.config.notice_on_pods || self.handles.dry_run || is_pod || !is_announced {
            return;
        }
        let (end, is_news) = match notice.change {
            NoticeChange::Keep if work.batch.task == Task::Withdraw => return,
            NoticeChange::Keep => (Some(notice.end), false),
            NoticeChange::Clear => (None, true),
            NoticeChange::Set(_) => (Some(notice.end), true),
        };
        let owner = (work.batch.first.namespace.as_str(), Uid::of(&notice.object.uid));
        self.handles.notified_workloads.note_end(owner, end, is_news, work.batch.pods());
    }
}
