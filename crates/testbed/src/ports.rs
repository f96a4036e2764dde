//! Ports of 127.0.0.1 for servers, unique among all processes of this workspace that run at the
//! same time.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use crate::directory::target_directory;

/// The range of ports, below the kernel's range for outgoing connections: a port of the latter
/// could be taken between its choice and the server's start.
const PORTS: Range<u16> = 20_000..32_000;

/// The locks of the ports that this process was given. The kernel drops the locks with the process.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Returns a port on 127.0.0.1 that no program listens on. No other process of this workspace gets
/// it while this process lives.
///
/// # Errors
/// If no port of the range is free.
pub fn free_port() -> Result<u16> {
    let directory = target_directory().join("testbed/.ports");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // each process begins elsewhere
    let first = usize::try_from(process::id())?.wrapping_mul(61) % PORTS.len();
    for port in PORTS.cycle().skip(first).take(PORTS.len()) {
        let lock = File::create(directory.join(port.to_string()))?;
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.push(lock);
            return Ok(port);
        }
    }
    bail!("no port from {} to {} is free on 127.0.0.1", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let ports: BTreeSet<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 20);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
