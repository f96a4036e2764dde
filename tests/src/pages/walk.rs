//! A person who follows a page. A command that reads is repeated until it prints what the page
//! shows, for at most [`DEADLINE`]; a command that changes something runs once.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::ensure;
use tenure_testbed::{eventually, program};
use tokio::{process::Command, task::spawn_blocking, time::timeout};

use super::{
    output,
    page::{Page, Step, workspace},
};
use crate::{DEADLINE, World};

/// A shell function for the logs of the programs: no kubelet serves them, since the programs run
/// beside the cluster.
const LOGS: &str = r#"
kubectl() {
  case " $* " in
    *" logs deployment/tenure-keeper "*) cat "$KEEPER_LOG" ;;
    *" logs deployment/tenure-webhook "*) cat "$WEBHOOK_LOG" ;;
    *) command kubectl "$@" ;;
  esac
}
"#;

/// Verbs that change nothing. A command with one of them is repeated until it prints what the page
/// shows; other commands run once.
const READS: [&str; 12] = [
    "auth", "describe", "explain", "get", "list", "logs", "matrix", "queue", "rollout", "status", "validate",
    "version",
];

/// Verbs that may have one of `READS` as an argument.
const CHANGES: [&str; 6] = ["annotate", "apply", "delete", "drain", "patch", "resume"];

/// A reader's way through a page, in a directory of its own in which the files of the page are
/// saved.
pub struct Walk<'w> {
    page: Page,
    world: &'w World,
    directory: PathBuf,
    kubeconfig: PathBuf,
    keeper_log: PathBuf,
    /// The texts of the page that are replaced, and their replacements.
    replaced: Vec<(&'static str, &'static str)>,
    /// The headings that were followed.
    followed: BTreeSet<String>,
}

impl<'w> Walk<'w> {
    /// Opens a page as an administrator.
    pub fn new(world: &'w World, page: &str) -> Self {
        let directory = world.cluster.directory().join(page);
        fs::create_dir(&directory).unwrap();
        for name in ["charts", "examples"] {
            symlink(workspace().join(name), directory.join(name)).unwrap();
        }
        Self {
            page: Page::read(page),
            world,
            directory,
            kubeconfig: world.cluster.kubeconfig().to_owned(),
            keeper_log: world.tenure.keeper_log().to_owned(),
            replaced: Vec::new(),
            followed: BTreeSet::new(),
        }
    }

    /// Acts with the rights of a kubeconfig.
    #[must_use]
    pub fn with_the_rights_of(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, ..self }
    }

    /// Replaces a text of the page, such as a duration of days. Panics if the page lacks the text.
    #[must_use]
    pub fn with(mut self, text: &'static str, other: &'static str) -> Self {
        assert!(self.page.text.contains(text), "{}: {text}", self.page.name);
        self.replaced.push((text, other));
        self
    }

    /// Sets the file of the keeper's log.
    pub fn read_log(&mut self, log: &Path) {
        log.clone_into(&mut self.keeper_log);
    }

    /// Does everything below a heading.
    pub async fn follow(&mut self, heading: &str) {
        assert!(self.followed.insert(heading.to_owned()), "{heading:?} was followed");
        for step in self.page.steps(heading) {
            match step {
                Step::Save { file, text } => {
                    fs::write(self.directory.join(file), self.replace(&text)).unwrap();
                }
                Step::Run(commands) => self.run(&commands).await,
                Step::See { command, output } => {
                    let output: Vec<String> = output.iter().map(|line| self.replace(line)).collect();
                    self.see(&command, &output).await;
                }
            }
        }
    }

    /// Asserts that all headings with commands were followed.
    pub fn end(self) {
        let left: Vec<_> =
            self.page.headings().into_iter().filter(|heading| !self.followed.contains(heading)).collect();
        assert!(left.is_empty(), "{}: not followed: {left:?}", self.page.name);
    }

    fn replace(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Runs commands that must succeed.
    async fn run(&self, commands: &str) {
        let printed = self.output(commands, false).await;
        assert!(printed.0, "{}: {commands}{}", self.page.name, printed.1);
    }

    /// Runs a command that must print these lines.
    async fn see(&self, command: &str, shown: &[String]) {
        let verb = command.split_whitespace().find(|word| READS.contains(word) || CHANGES.contains(word));
        let reads = verb.is_some_and(|verb| READS.contains(&verb));
        let what = format!("{}: `{command}` to print\n{}\n", self.page.name, shown.join("\n"));
        let seen = async || {
            let (_, printed) = self.output(command, true).await;
            let lines: Vec<_> = printed.trim_end().lines().collect();
            ensure!(output::matches(shown, &lines), "{what}, and not\n{printed}");
            Ok(Some(()))
        };
        if reads {
            eventually(&what, DEADLINE, seen).await.unwrap();
        } else {
            seen().await.unwrap();
        }
    }

    /// Runs commands in the directory. True if all of the commands succeeded, or if the output is
    /// what counts. Returns the output as well.
    async fn output(&self, commands: &str, is_shown: bool) -> (bool, String) {
        let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
        let mut path = vec![self.world.cluster.binaries().directory().to_owned()];
        path.extend(plugin.parent().map(PathBuf::from));
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        let script = format!("exec 2>&1\n{LOGS}\n{}", self.replace(commands));
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&self.directory)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.directory.join(".cache"))
            .env("HOME", self.world.cluster.directory())
            // as for commands of the cluster: they end before garbage collection pays
            .env("GOGC", "off")
            .env("PATH", env::join_paths(path).unwrap())
            .env("KEEPER_LOG", &self.keeper_log)
            .env("WEBHOOK_LOG", self.world.cluster.directory().join("tenure-webhook.log"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(DEADLINE, shell.output()).await;
        let output =
            output.unwrap_or_else(|_| panic!("{}: `{commands}` doesn't end", self.page.name)).unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        // a page may show a failure as well
        (output.status.success() || is_shown, printed)
    }
}
