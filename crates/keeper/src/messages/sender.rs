//! Sends the messages while this keeper leads.
//!
//! `Args::lead` runs the [`MessageSender`], which spawns a task for each receiver of the
//! configuration. The controllers run in another task, so a slow receiver doesn't hold them up.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tenure_policy::{config::Config, message::Receiver};
use tenure_service::{
    config::Current,
    leadership::Leadership,
    work::{Lease, WorkLoop},
};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Messages,
    post::{PostError, Poster},
    queue::{QueuedMessage, ReceiverQueue},
};

/// The time for sending the remaining messages at the end. The Lease is given back meanwhile.
const FOR_MESSAGES: Duration = Duration::from_secs(5);

/// Sends the messages, in a task for each receiver.
pub struct MessageSender(pub Messages);

/// The tasks of all receivers. The drop aborts them.
#[derive(Default)]
struct Tasks {
    set: JoinSet<()>,
    /// The tasks by the names of their receivers.
    sending: BTreeMap<String, SenderTask>,
}

/// The task of one receiver.
struct SenderTask {
    queue: Arc<ReceiverQueue>,
    /// The settings at the last check of the configuration.
    settings: Receiver,
    task: AbortHandle,
}

impl MessageSender {
    /// Works whenever this keeper leads. Once `ended` is cancelled, no more messages come, and the
    /// rest is sent within five seconds.
    pub async fn run(&self, lead: &Leadership, ended: &CancellationToken) {
        let Self(messages) = self;
        let tasks = Mutex::<Tasks>::default();
        let lost = || {
            *tasks.lock() = Tasks::default();
            *messages.leads_since.lock() = None;
            messages.drop_all("this keeper leads no longer");
        };
        // the messages that wait at the end are of this keeper's term, and are sent after it has
        // given back the Lease
        let never = CancellationToken::new();
        tokio::select! {
            () = lead.work(&never, async || work(messages, &tasks, ended).await, lost) => {}
            () = ended.cancelled() => {}
        }
        let mut set = std::mem::take(&mut tasks.lock().set);
        let all = async { while set.join_next().await.is_some() {} };
        drop(tokio::time::timeout(FOR_MESSAGES, all).await);
        messages.drop_all("this keeper ends");
    }
}

/// Notes that this keeper leads from now on, and follows the configuration. Never returns.
async fn work(messages: &Messages, tasks: &Mutex<Tasks>, ended: &CancellationToken) {
    *messages.leads_since.lock() = Some(messages.clock.now());
    let mut config = messages.config.clone();
    loop {
        tasks.lock().follow(messages, ended);
        config.changed().await;
    }
}

impl Tasks {
    /// Starts the tasks of new receivers, and ends those of receivers that are gone.
    fn follow(&mut self, messages: &Messages, ended: &CancellationToken) {
        let Self { set, sending } = self;
        let queues = messages.follow_config();
        sending.retain(|_, of| {
            let is_left = queues.iter().any(|queue| Arc::ptr_eq(queue, &of.queue));
            if !is_left {
                of.task.abort();
            }
            is_left
        });
        for queue in queues {
            let Some(settings) = settings(&messages.config, &queue.receiver) else { continue };
            match sending.get_mut(&queue.receiver) {
                Some(of) if of.settings == settings => {}
                Some(of) => {
                    of.settings = settings;
                    queue.reset();
                }
                None => {
                    let task = set.spawn(send(Arc::clone(&queue), messages.config.clone(), ended.clone()));
                    sending.insert(queue.receiver.clone(), SenderTask { queue, settings, task });
                }
            }
        }
    }
}

/// Sends the messages of a receiver, until no more come and all are sent.
async fn send(queue: Arc<ReceiverQueue>, config: Current<Config>, ended: CancellationToken) {
    let poster = Poster::default();
    let run = WorkLoop { queue: &queue.work, gate: None, end: &ended, drains: true };
    let post = async |lease| post(&queue, &poster, &config, lease).await;
    run.work(|| {}, std::future::pending::<()>, post).await;
}

/// Posts a message by the settings of this moment.
async fn post(queue: &ReceiverQueue, poster: &Poster, config: &Current<Config>, lease: Lease<QueuedMessage>) {
    let Some(lease) = queue.begin(lease) else { return };
    let result = match settings(config, &queue.receiver) {
        Some(receiver) => poster.post(&receiver, &lease.work.message).await,
        // its queue is dropped in a moment
        None => Err(PostError::NoReceiver),
    };
    queue.tried(lease, &result);
}

/// Returns the settings of a receiver as they are now. None: the configuration doesn't have it any
/// more.
fn settings(config: &Current<Config>, receiver: &str) -> Option<Receiver> {
    config.get().receivers.iter().find(|of| of.name == receiver).cloned()
}
