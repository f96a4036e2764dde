//! Faults from their beginning to their end, as the plans for keepers and for webhooks commit them.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::future::{join_all, try_join_all};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::{
    Diary,
    fault::{Blow, Fault, Moment, What, halt},
    servers::Server,
};
use crate::proxy::{Active, ApiProxy};

/// The longest wait for the request at which a blow is to come.
const PATIENCE: Duration = Duration::from_secs(15);

/// A fault that is over.
pub(super) struct Committed {
    /// The time at which it began, or at which its blow was dealt.
    pub struck: Timestamp,
    /// The settings of clocks: from which time on, and the seconds ahead on connections of even and
    /// of odd numbers.
    pub clocks: Vec<(Timestamp, [i64; 2])>,
}

/// Commits a fault on these servers now, and returns at its end.
pub(super) async fn commit(servers: &[&Server], fault: &Fault, diary: &Diary) -> Result<Committed> {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    diary.note(format!("fault for {:?} on {}: {:?}", fault.lasts, names.join(", "), fault.what));
    let proxies = || servers.iter().map(|server| &server.proxy);
    let mut committed = Committed { struck: Timestamp::now(), clocks: Vec::new() };
    match &fault.what {
        What::Rule(rule) => {
            let active: Vec<_> = proxies().map(|proxy| proxy.add(rule.clone())).collect();
            sleep(fault.lasts).await;
            proxies().zip(&active).for_each(|(proxy, active)| proxy.lift(active));
        }
        What::Cut => {
            proxies().for_each(ApiProxy::cut);
            sleep(fault.lasts).await;
            proxies().for_each(ApiProxy::heal);
        }
        What::Strand => proxies().for_each(ApiProxy::strand),
        What::Sever => proxies().for_each(ApiProxy::sever),
        What::Clocks(ahead) => {
            proxies().for_each(|proxy| proxy.set_clocks(*ahead));
            committed.clocks.push((Timestamp::now(), *ahead));
            sleep(fault.lasts).await;
        }
        What::Blow(blow, moment) => {
            let struck = join_all(servers.iter().map(|server| inject(server, *blow, *moment, diary))).await;
            let detained = struck.into_iter().collect::<Result<Vec<_>>>()?;
            committed.struck = Timestamp::now();
            sleep(fault.lasts).await;
            // a write of a process that was stopped arrives before the process goes on
            for (proxy, active) in proxies().zip(detained) {
                if let Some(active) = active {
                    proxy.lift(&active);
                }
            }
            try_join_all(servers.iter().map(|server| server.recover(*blow))).await?;
        }
    }
    diary.note(format!("end of the fault on {}", names.join(", ")));
    Ok(committed)
}

/// Deals a blow at its moment, or after `PATIENCE`. Returns the rule by which a request waits for
/// the end of the fault.
async fn inject(server: &Server, blow: Blow, moment: Moment, diary: &Diary) -> Result<Option<Arc<Active>>> {
    let Some((rule, halted)) = halt(blow, moment) else {
        server.inject(blow).await?;
        return Ok(None);
    };
    let active = server.proxy.add(rule);
    if timeout(PATIENCE, halted.notified()).await.is_err() {
        diary.note("no such request has come");
    }
    server.inject(blow).await?;
    if blow == Blow::Stop {
        return Ok(Some(active));
    }
    server.proxy.lift(&active);
    Ok(None)
}
