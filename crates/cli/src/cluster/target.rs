//! Objects as they are named on the command line.
//!
//! Called by the commands that change or explain an object. A name becomes a segment of a path of
//! the API server, so a name that would lead to another path is refused.

use anyhow::{Result, bail, ensure};
use tenure_policy::naming::is_segment;

/// A kind as the user has written it (`deploy`, `Deployment`, `deployments.apps`), and a name.
pub type KindAndName = (String, String);

/// Reads `KIND/NAME...` or `KIND NAME...`. The kinds aren't looked up.
pub fn targets(arguments: &[String]) -> Result<Vec<KindAndName>> {
    match arguments {
        [first, ..] if first.contains('/') => arguments.iter().map(|argument| pair(argument)).collect(),
        [kind, names @ ..] if !names.is_empty() => names.iter().map(|name| of_kind(kind, name)).collect(),
        [kind] => bail!("no name after {kind:?}: name an object as in deployment/test"),
        _ => bail!("no object: name one as in deployment/test"),
    }
}

/// Reads `KIND/NAME`.
fn pair(argument: &str) -> Result<KindAndName> {
    match argument.split_once('/') {
        Some((kind, name)) => of_kind(kind, name),
        None => bail!(
            "{argument:?} has no kind: name all objects as in deployment/test, or one kind and then names"
        ),
    }
}

/// Returns a target. Refuses an empty kind, and a name that can't be a segment of a path.
fn of_kind(kind: &str, name: &str) -> Result<KindAndName> {
    let is_object = !kind.is_empty() && is_segment(name);
    ensure!(is_object, "{kind}/{name} can't be an object: name it as in deployment/test");
    Ok((kind.into(), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Vec<(String, String)>> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        targets(&arguments).ok()
    }

    fn pair(kind: &str, name: &str) -> (String, String) {
        (kind.into(), name.into())
    }

    #[test]
    fn objects_are_named_as_kubectl_takes_them() {
        assert_eq!(parsed("deploy/a"), Some(vec![pair("deploy", "a")]));
        let two = vec![pair("deploy", "a"), pair("jobs.batch", "b")];
        assert_eq!(parsed("deploy/a jobs.batch/b"), Some(two));
        assert_eq!(parsed("deploy a b"), Some(vec![pair("deploy", "a"), pair("deploy", "b")]));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for line in ["", "deploy", "deploy/", "/a", "deploy/a b", "deploy a/b", "deploy/a/b", "deploy .."] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
