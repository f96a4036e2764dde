//! Events on what was paused or deleted.

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tenure_policy::pause::MAX_DURATION_EXCEEDED;

use crate::api::{ApiError, call, persist};

const CONTROLLER: &str = "tenure.dev/keeper";

/// Writes events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    instance: String,
}

/// What happened to an object, and when.
pub struct Happening {
    /// The object.
    pub object: ObjectReference,
    /// What was done, as a CamelCase verb.
    pub action: &'static str,
    /// What was done, for people.
    pub note: String,
    /// When.
    pub at: Timestamp,
}

impl Events {
    pub fn new(client: Client) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self { client, instance: instance.unwrap_or_else(|| "tenure-keeper".into()) }
    }

    /// Writes a Warning event for an exceeded ceiling, unless it is there already: its name follows from the
    /// object and the time, so that it can be written again after an error or a crash without becoming two.
    pub async fn max_duration_exceeded(&self, happening: Happening) -> Result<(), ApiError> {
        let Happening { object, action, note, at } = happening;
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".into());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name(&object, at)),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some(action.into()),
            event_time: Some(MicroTime(at)),
            note: Some(note),
            reason: Some(MAX_DURATION_EXCEEDED.into()),
            regarding: Some(object),
            reporting_controller: Some(CONTROLLER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some("Warning".into()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match persist(async || call(api.create(&PostParams::default(), &event)).await).await {
            Err(ApiError::Stale(_)) => Ok(()),
            result => result.map(drop),
        }
    }
}

fn name(object: &ObjectReference, at: Timestamp) -> String {
    let of = |text: &Option<String>, length: usize| {
        text.as_deref().unwrap_or_default().chars().take(length).collect::<String>()
    };
    let (name, uid) = (of(&object.name, 200), of(&object.uid, 8));
    format!("{}.{uid}{:x}", name.trim_end_matches(['-', '.']), at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_name_follows_from_object_and_time_and_is_never_too_long() {
        let object = |name: String, uid: &str| ObjectReference {
            name: Some(name),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let at = Timestamp::from_millisecond(255).unwrap();
        assert_eq!(name(&object("test".into(), "6ccd780c-baba"), at), "test.6ccd780cff");
        assert_ne!(name(&object("test".into(), "00000000-baba"), at), "test.6ccd780cff");
        let long = name(&object(format!("{}-rest", "x".repeat(199)), "u"), at);
        assert!(long.len() < 253 && !long.contains("-."), "{long}");
    }
}
