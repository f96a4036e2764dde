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
    cluster::{ClusterReader, ConnectArgs, explain, is_forbidden},
    print::{OutputArgs, Reported, Table, with_causes},
};
use inspect::Inspector;

/// Check whether Tenure works: keeper, webhook, certificates, queues
///
/// Each line is OK, PROBLEM or UNKNOWN, with a remedy. UNKNOWN means that you may not read an object: the line names the
/// missing right. The webhook is checked by a dry run of a Queue, which isn't stored. The exit code is 1 if there is a
/// problem.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure status
  kubectl tenure status --tenure-namespace tenure-system   # with rights in that namespace alone
  kubectl tenure status -o json | jq -r '.[] | select(.status != \"OK\") | .message'")]
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
    fn new(name: &'static str, finding: Finding) -> Self {
        let (status, message, remedy) = match finding {
            Ok(message) => (Status::Ok, message, None),
            Err(Fault { status, message, remedy }) => (status, message, Some(remedy)),
        };
        Self { name, status, message, remedy }
    }
}

/// What a check has found: a message if all is well.
type Finding = Result<String, Fault>;

/// The reason why something doesn't work, or can't be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    status: Status,
    message: String,
    remedy: String,
}

impl Fault {
    fn problem(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Problem, message: message.into(), remedy: remedy.into() }
    }

    fn unknown(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Unknown, message: message.into(), remedy: remedy.into() }
    }

    /// The user lacks a right.
    fn forbidden(right: &str) -> Self {
        Self::unknown(format!("you may not {right}"), format!("ask an admin for the right to {right}"))
    }

    /// A read that failed: for want of this right, or since the API server didn't answer.
    fn unread(error: kube::Error, right: &str) -> Self {
        if is_forbidden(&error) {
            return Self::forbidden(right);
        }
        let error = with_causes(&explain(error));
        Self::problem(format!("can't {right}: {error}"), "see whether the API server works")
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
            Check::new("leader", Ok("keeper-0 leads".into())),
            Check::new("webhook", Err(Fault::problem("no endpoint is ready", "kubectl get pods"))),
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
