//! The flags that the chart passes to the programs.

use std::{fs, process::Command};

use serde_json::{Value, json};
use tenure_testbed::program;
use tokio::task::spawn_blocking;

use crate::{
    PEM, arguments, find,
    keeper::{CONFIG_FILE, config, everything_set, floors},
    render, shared, template,
};

#[tokio::test]
async fn programs_know_the_flags_that_the_chart_passes() {
    let of_extender = json!({"enabled": true, "allowAnonymous": true});
    for values in [
        json!({}),
        json!({"keeper": {"dryRun": true}}),
        json!({"keeper": everything_set(), "floors": floors(), "log": {"level": "error", "format": "logfmt"}}),
        json!({"guard": {"enabled": true}}),
        json!({"crds": {"install": false}}),
        json!({"schedulerExtender": {"enabled": true, "clientCA": PEM, "wakeUp": false}}),
        json!({
            "schedulerExtender": of_extender, "webhook": {"clientCA": PEM}, "log": {"level": "debug", "format": "json"},
        }),
        json!({"log": {"level": "warn", "format": "json"}}),
    ] {
        let objects = render("test", &values).await;
        for component in ["webhook", "keeper"] {
            let complaint = complaint(component, &objects).await;
            // the error comes after flags and configuration are understood
            assert!(complaint.contains("Error: --kubeconfig /not-there"), "{values}: {complaint}");
        }
    }
    let extra = json!({"extraArgs": ["--unheard-of"]});
    let objects = render("test", &json!({"webhook": extra, "keeper": extra})).await;
    for component in ["webhook", "keeper"] {
        let complaint = complaint(component, &objects).await;
        assert!(complaint.contains("unexpected argument '--unheard-of'"), "{complaint}");
    }
}

/// The error of a program that is run as its Deployment runs it, but with a kubeconfig that isn't there.
async fn complaint(component: &str, objects: &[Value]) -> String {
    let mut arguments = arguments(find(objects, "Deployment", &format!("test-tenure-{component}")));
    for argument in arguments.iter_mut().filter(|argument| argument.contains(CONFIG_FILE)) {
        let name = format!("chart-{component}.yaml");
        let file = shared().await.directory().join(name).display().to_string();
        fs::write(&file, config(objects)).unwrap();
        *argument = argument.replace(CONFIG_FILE, &file);
    }
    let name = format!("tenure-{component}");
    let output = spawn_blocking(move || {
        let mut command = Command::new(program(&name).unwrap());
        command.args(arguments).arg("--kubeconfig=/not-there").output()
    });
    String::from_utf8(output.await.unwrap().unwrap().stderr).unwrap()
}

#[tokio::test]
async fn extra_arguments_come_last_and_repeat_no_flag() {
    let extra = json!({"extraArgs": ["--kubeconfig=/there", "--verbose"]});
    let objects = render("test", &json!({"webhook": extra, "keeper": extra})).await;
    for component in ["webhook", "keeper"] {
        let arguments = arguments(find(&objects, "Deployment", &format!("test-tenure-{component}")));
        assert!(arguments.ends_with(&["--kubeconfig=/there".into(), "--verbose".into()]), "{arguments:?}");
    }

    for (component, argument, words) in [
        (
            "webhook",
            "--log-level=debug",
            "webhook.extraArgs must not have --log-level: set log.level instead",
        ),
        ("webhook", "--listen=:443", "webhook.extraArgs must not have --listen: set webhook.port instead"),
        ("keeper", "--burst", "keeper.extraArgs must not have --burst: set keeper.burst instead"),
        // the chart may set these, but doesn't with these values
        ("webhook", "--guard", "webhook.extraArgs must not have --guard: set guard.enabled instead"),
        ("keeper", "--schedulers=a", "must not have --schedulers: set keeper.schedulers instead"),
        ("keeper", "--dry-run", "must not have --dry-run: set keeper.dryRun instead"),
        (
            "keeper",
            "--config=/x",
            "must not have --config: set the values that docs/configuration.md names instead",
        ),
        (
            "keeper",
            "--leader-elect=false",
            "must not have --leader-elect: the chart sets it by itself, so remove it",
        ),
        (
            "keeper",
            "--metrics-addr=:9090",
            "must not have --metrics-addr: the chart sets it by itself, so remove it",
        ),
    ] {
        let values = json!({component: {"extraArgs": [argument]}});
        let output = template("test", &values, &[]).await;
        assert!(!output.status.success() && output.stderr.contains(words), "{values}: {}", output.stderr);
    }
    let twice = json!({"keeper": {"extraArgs": ["--verbose", "--verbose=true"]}});
    let output = template("test", &twice, &[]).await;
    assert!(
        output.stderr.contains("must not have --verbose: the list has it already, so remove one"),
        "{}",
        output.stderr
    );
}
