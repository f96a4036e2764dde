//! Commands of pages that are not followed from the first to the last.

use std::{env, path::Path, process::Command};

use tenure_testbed::Cluster;
use tokio::task::spawn_blocking;

use super::page::{Page, workspace};

/// Returns the commands below a heading of a page, block by block.
pub fn commands(page: &str, heading: &str) -> Vec<String> {
    let Page { name, text } = Page::read(page);
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let blocks = section.split("```bash\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    let commands: Vec<_> = blocks.collect();
    assert!(!commands.is_empty(), "{name}: {heading}");
    commands
}

/// Runs commands in the workspace, as a person would. All must succeed.
pub async fn run(cluster: &Cluster, script: &str) {
    run_in(cluster, &workspace(), script).await;
}

/// Runs commands in a directory, as a person would. All must succeed.
pub async fn run_in(cluster: &Cluster, directory: &Path, script: &str) {
    let mut path = vec![cluster.binaries().directory().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut shell = Command::new("bash");
    shell
        .args(["-euxo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("HOME", cluster.directory())
        // as for commands of the cluster: they end before garbage collection pays
        .env("GOGC", "off")
        .env("PATH", env::join_paths(path).unwrap());
    let output = spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
