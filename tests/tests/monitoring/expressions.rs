//! The expressions of alerts and panels, with the labels that their texts show.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use tenure_tests::pages::workspace;

use crate::promql::{self, Selector};

const DIRECTORY: &str = "charts/tenure/files/monitoring";

/// An expression, where it is, and the labels of its result that a text shows.
#[derive(Clone)]
pub struct Shown {
    pub place: String,
    pub expression: String,
    pub labels: BTreeSet<String>,
}

fn read(file: &str) -> String {
    fs::read_to_string(workspace().join(DIRECTORY).join(file)).unwrap()
}

/// The file of alerts.
pub fn rules() -> String {
    read("alerts.yaml")
}

/// Each alert.
pub fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&rules()).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The names that follow `before` in a text.
fn names_after(text: &str, before: &str) -> BTreeSet<String> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(before).skip(1).filter_map(|rest| rest.split(ends).next()).map(str::to_owned).collect()
}

/// The expressions of all alerts.
pub fn of_alerts() -> Vec<Shown> {
    let of = |rule: Value| Shown {
        place: rule["alert"].as_str().unwrap().to_owned(),
        expression: rule["expr"].as_str().unwrap().to_owned(),
        labels: names_after(&rule["annotations"].to_string(), "$labels."),
    };
    alerts().into_iter().map(of).collect()
}

/// The expressions of all panels, and of the variables above them.
pub fn of_dashboard() -> Vec<Shown> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut shown = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            shown.push(Shown {
                place: panel["title"].as_str().unwrap().to_owned(),
                expression: target["expr"].as_str().unwrap().replace("$__rate_interval", "5m"),
                labels: names_after(target["legendFormat"].as_str().unwrap(), "{{"),
            });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"].as_str().unwrap().strip_prefix("label_values(");
        let Some((selector, label)) = query.and_then(|query| query.strip_suffix(')')?.rsplit_once(", "))
        else {
            continue;
        };
        shown.push(Shown {
            place: format!("variable {}", variable["name"]),
            expression: selector.to_owned(),
            labels: [label.to_owned()].into(),
        });
    }
    shown
}

/// The selectors of expressions, each with where it is. The labels that a text shows are among those of each selector.
pub fn selectors(shown: &[Shown]) -> Vec<(&str, Selector)> {
    let expressions: Vec<&str> = shown.iter().map(|shown| shown.expression.as_str()).collect();
    let mut all = Vec::new();
    for (shown, selectors) in shown.iter().zip(promql::selectors(&expressions)) {
        for mut selector in selectors {
            selector.labels.extend(shown.labels.iter().filter(|label| *label != "pod").cloned());
            all.push((shown.place.as_str(), selector));
        }
    }
    all
}
