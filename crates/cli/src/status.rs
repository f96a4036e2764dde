//! `kubectl tenure status`: checks that Tenure works in a cluster, and prints remedies for problems.

mod certificate;
mod inspect;
mod keeper;
mod queues;
mod webhook;

use anyhow::{Result, anyhow};
use clap::Args;
use serde::Serialize;

use crate::{
    cluster::ClusterReader,
    connect::ConnectArgs,
    output::OutputArgs,
    server::explain,
    table::Table,
    tell::{Reported, with_causes},
};
use inspect::Inspector;

/// Check whether Tenure works: keeper, webhook, certificates, queues
///
/// Each line is OK, PROBLEM or UNKNOWN, with a remedy. UNKNOWN means that you may not read an object: the line names the
/// missing right. The webhook is checked by a dry run of a Queue, which isn't stored. The exit code is 1 if there is a
/// problem.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// The namespace in which Tenure is installed; without it, those in the bindings of its cluster roles
    #[arg(long, value_name = "NAMESPACE")]
    tenure_namespace: Option<String>,

    /// The namespace in which queues of T9k count, as the keeper has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure status
  kubectl tenure status --tenure-namespace tenure-system   # with rights in that namespace alone
  kubectl tenure status -o json | jq -r '.[] | select(.status != \"OK\") | .message'";

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Ok,
    Problem,
    /// The user may not read an object that the check needs.
    Unknown,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    status: Status,
    message: String,
    /// A remedy, unless the status is OK.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, message: message.into(), remedy: None }
    }

    fn problem(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Status::Problem, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn unknown(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Status::Unknown, message: message.into(), remedy: Some(remedy.into()) }
    }

    /// A read that failed: for want of this right, or since the API server didn't answer.
    fn unread(name: &'static str, error: kube::Error, right: &str) -> Self {
        if crate::server::is_forbidden(&error) {
            let remedy = format!("ask an admin for the right to {right}");
            return Self::unknown(name, format!("you may not {right}"), remedy);
        }
        let error = with_causes(&explain(error));
        Self::problem(name, format!("can't {right}: {error}"), "see whether the API server works")
    }
}

impl StatusArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { tenure_namespace, t9k_system_namespace, output } = self;
        let cluster: ClusterReader = connect.connect().await?;
        let inspector = Inspector { cluster, tenure_namespace, t9k_system_namespace };
        let checks = inspector.checks().await;
        output.show(&checks, || text(&checks))?;
        let is_problem = checks.iter().any(|check| check.status == Status::Problem);
        if is_problem { Err(anyhow!(Reported)) } else { Ok(()) }
    }
}

/// Returns the checks as lines, each with its remedy below it.
fn text(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let status = match check.status {
            Status::Ok => "OK",
            Status::Problem => "PROBLEM",
            Status::Unknown => "UNKNOWN",
        };
        let remedy = check.remedy.iter().map(|remedy| [String::new(), String::new(), format!("-> {remedy}")]);
        let line = [status.to_owned(), check.name.to_owned(), check.message.clone()];
        std::iter::once(line).chain(remedy).map(Vec::from).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = checks.iter().flat_map(row).collect();
    let table = Table::fitting(&rows);
    rows.iter().map(|row| table.line(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_helps() {
        let checks = [
            Check::ok("leader", "keeper-0 leads"),
            Check::problem("webhook", "no endpoint is ready", "kubectl get pods"),
        ];
        let expected = "\
OK        leader    keeper-0 leads
PROBLEM   webhook   no endpoint is ready
                    -> kubectl get pods
";
        assert_eq!(text(&checks), expected);
        let json = serde_json::to_value(&checks).unwrap();
        assert_eq!((&json[0]["status"], &json[1]["remedy"]), (&"OK".into(), &"kubectl get pods".into()));
    }
}
