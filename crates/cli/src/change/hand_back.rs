//! Hands fields back to the field managers that had them before a pause.
//!
//! Called after each successful write of a command. The patch sets `managedFields` and removes the
//! note on the object, but changes no other value. After a failure, the keeper does it.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tenure_policy::pause::{self, HAND_BACK_MANAGER, OwnerObject};
use tenure_types::projection::WholeObject;
use tokio::time::sleep;

use super::{BETWEEN_TRIES, ChangeCommand, Changer, FIELD_MANAGER, ObjectName, TRIES, is_stale};
use crate::{cluster::explain, print::print_message};

impl<C: ChangeCommand> Changer<C> {
    /// Hands back the fields that a change has restored, in a write of its own. If the write fails,
    /// the keeper does it later, by the note on the object. Does nothing in a dry run.
    pub(super) async fn hand_back(&self, object: ObjectName<'_>, api: &Api<WholeObject>, changed: Value) {
        if self.dry_run {
            return;
        }
        if let Err(error) = try_to_hand_back(object.name, api, changed).await {
            let error = explain(error);
            print_message(&format!(
                "The fields of {object} are still managed by {FIELD_MANAGER} until the keeper hands them back: {error:#}"
            ));
        }
    }
}

/// Sends the patch, up to `TRIES` times while other writers change the object.
async fn try_to_hand_back(name: &str, api: &Api<WholeObject>, mut object: Value) -> kube::Result<()> {
    let how = PatchParams { field_manager: Some(HAND_BACK_MANAGER.into()), ..PatchParams::default() };
    let mut tries = 1;
    while let Some(patch) = pause::hand_back(OwnerObject(&object)) {
        match api.patch(name, &how, &Patch::Merge(&patch)).await {
            // the controllers of an owner that runs again change its status
            Err(error) if is_stale(&error) && tries < TRIES => sleep(BETWEEN_TRIES).await,
            written => return written.map(drop),
        }
        object = api.get(name).await?.value;
        tries = tries.saturating_add(1);
    }
    Ok(())
}
