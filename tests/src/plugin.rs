//! `kubectl tenure`, as an administrator or another user calls it. The plugin of this workspace is
//! built first.

use std::{
    path::Path,
    process::{Output, Stdio},
};

use tenure_testbed::program;
use tokio::{process::Command, task::spawn_blocking};

use crate::World;

/// Runs the plugin in a namespace. Returns its success, its standard output and its standard error.
pub async fn plugin(world: &World, namespace: &str, arguments: &[&str]) -> (bool, String, String) {
    plugin_of(world, world.cluster.kubeconfig(), namespace, arguments).await
}

/// Runs the plugin as the user of a kubeconfig, like [`plugin`].
pub async fn plugin_of(
    world: &World,
    kubeconfig: &Path,
    namespace: &str,
    arguments: &[&str],
) -> (bool, String, String) {
    let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let mut command = Command::new(plugin);
    command.args(arguments).args(["-n", namespace]).stdin(Stdio::null());
    command.env("KUBECONFIG", kubeconfig).env("HOME", world.cluster.directory());
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

/// Runs the plugin, which must succeed. Returns its standard output.
pub async fn plugin_prints(world: &World, namespace: &str, arguments: &[&str]) -> String {
    let (is_success, stdout, stderr) = plugin(world, namespace, arguments).await;
    assert!(is_success, "{arguments:?}: {stdout}{stderr}");
    stdout
}
