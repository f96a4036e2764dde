//! The bound on the files that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the bound as far as this process may. Container runtimes leave it at 1,024, and each connection is a file.
pub fn raise() {
    let bound = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: bound.maximum, ..bound }) {
        warn!(%error, now = bound.current, "Failed to raise the number of files that may be open");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_as_many_files_open_as_it_can_be_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let low = Rlimit { current: Some(256), maximum };
        setrlimit(Resource::Nofile, low).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
