//! Pages of reference name what the code and the chart have, and nothing else.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tenure_policy::{
    owner_table::{EndedWhen, KINDS, PausableKinds, PauseCommand, is_shown},
    pause::held_fields,
    reason::EventReason,
};
use tenure_tests::pages::{Page, Step};
use tenure_types::runai::{FLOOR_ANNOTATIONS, SPEC_ANNOTATIONS};

/// Set to write what is generated instead of comparing it.
const WRITE: &str = "TENURE_WRITE_DOCS";

const BEFORE_THE_VALUES: &str = "\
# Values of the chart

Every value, with its default. [The chart's README](../charts/tenure/README.md) explains those that matter, and
[values.yaml](../charts/tenure/values.yaml) has comments. A value that doesn't exist is refused, so a typo can't go unnoticed.

This page is written from `values.yaml` and `values.schema.json`: see [development.md](development.md).

| value | default | |
| --- | --- | --- |
";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap()
}

#[test]
fn every_value_of_the_chart_is_on_its_page() {
    let schema: Value = serde_json::from_str(&read("charts/tenure/values.schema.json")).unwrap();
    let values: Value = serde_saphyr::from_str(&read("charts/tenure/values.yaml")).unwrap();
    let mut rows = Vec::new();
    add_rows(&schema, &schema, &values, "", &mut rows);
    assert!(rows.len() > 80, "{}", rows.len());
    let page = BEFORE_THE_VALUES.to_owned() + &rows.concat();
    assert_written("docs/values.md", &page);
}

/// The file has this text, or gets it.
fn assert_written(path: &str, text: &str) {
    if env::var_os(WRITE).is_some() {
        fs::write(workspace().join(path), text).unwrap();
    }
    let found = fs::read_to_string(workspace().join(path)).unwrap_or_default();
    let differs = text.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(text == found, "{path} is stale: run `make docs`: {differs:?}");
}

/// Adds the rows of the values in the properties of a part of the schema.
fn add_rows(schema: &Value, part: &Value, defaults: &Value, path: &str, rows: &mut Vec<String>) {
    let properties = part["properties"].as_object().unwrap();
    // Helm's own
    for (name, property) in properties.iter().filter(|(name, _)| *name != "global") {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let default = &defaults[name];
        if property.get("properties").is_some() {
            add_rows(schema, property, default, &path, rows);
            continue;
        }
        let definition = property["$ref"].as_str().and_then(|of| schema.pointer(of.trim_start_matches('#')));
        let mut described = [Some(property), definition].into_iter().flatten();
        let description = described.find_map(|of| of["description"].as_str());
        assert!(description.is_some(), "{path} has no description in the schema");
        let description = description.unwrap_or_default();
        let choices = property["enum"].as_array().map(Vec::as_slice).unwrap_or_default();
        // YAML reads Off as false
        let is_said = |choice: &&Value| **choice != json!(false) || !choices.contains(&json!("Off"));
        let text = |choice: &Value| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        let choices: Vec<String> = choices.iter().filter(is_said).map(text).collect();
        let choices =
            if choices.is_empty() { String::new() } else { format!(" One of `{}`.", choices.join("`, `")) };
        rows.push(format!("| `{path}` | `{default}` | {}{choices} |\n", description.replace('|', "\\|")));
    }
}

#[test]
fn every_event_is_on_its_page_with_its_type() {
    let page = read("docs/events.md");
    assert_eq!(first_cells(&page), EventReason::ALL.iter().map(|reason| reason.name()).collect());
    for reason in EventReason::ALL {
        let row = format!(
            "| `{}` | {} |",
            reason.name(),
            if reason.properties().is_normal { "Normal" } else { "Warning" }
        );
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn every_reason_of_the_guard_is_on_its_page() {
    let source = read("crates/policy/src/guard.rs");
    let (_, names) = source.split_once("impl VerdictReason {").unwrap();
    let (names, _) = names.split_once("impl GuardVerdict {").unwrap();
    let names: BTreeSet<&str> =
        names.split(" => \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 15, "{names:?}");
    let page = read("docs/kube-scheduler.md");
    let (_, table) = page.split_once("| reason | verdict | |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`')).collect();
    assert_eq!(listed, names);
}

#[test]
fn every_label_and_annotation_is_on_its_page() {
    let source = read("crates/types/src/keys.rs");
    let texts = source.split(": &str =").skip(1).filter_map(|rest| rest.split('"').nth(1));
    // the queue of PodGroups that name none is no key
    let keys: BTreeSet<&str> = texts.filter(|text| *text != "default").collect();
    assert!(keys.len() > 30, "{keys:?}");
    let page = read("docs/labels-and-annotations.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let prefix = page.lines().filter(|line| line.starts_with("All keys of a PriorityClass begin with"));
    let listed: BTreeSet<&str> =
        cells.chain(prefix).flat_map(|text| text.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, keys);
    let fields = read("docs/queues.md");
    for (field, key) in SPEC_ANNOTATIONS.into_iter().chain(FLOOR_ANNOTATIONS) {
        let mut rows = fields.lines().filter(|line| line.starts_with(&format!("| `{field}")));
        assert!(rows.any(|row| row.contains(&format!("| `{key}` |"))), "docs/queues.md lacks {field}: {key}");
    }
}

const BEFORE_THE_KINDS: &str = "\
# The kinds that are paused. Written by `make docs` from crates/policy/src/owner_table/kinds.rs. Do not edit.
# kinds: each with its resource. fields: all that a pause or its resume writes, in the order in which they are tried. actions: the
# Commands of Volcano that pause and resume.
";

/// The table of kinds in `docs/owners.md` stands between these lines.
const KINDS_BEGIN: &str = "<!-- kinds: written by make docs -->\n";
const KINDS_END: &str = "<!-- end of kinds -->\n";

#[test]
fn the_page_of_owners_has_every_kind_that_is_paused() {
    let page = read("docs/owners.md");
    let (before, rest) = page.split_once(KINDS_BEGIN).unwrap();
    let (_, after) = rest.split_once(KINDS_END).unwrap();
    let rows: String = KINDS.iter().map(row_of_kinds).collect();
    let table = format!("| API group | kinds | pause | has ended |\n| --- | --- | --- | --- |\n{rows}");
    assert_written("docs/owners.md", &format!("{before}{KINDS_BEGIN}{table}{KINDS_END}{after}"));
}

fn row_of_kinds(row: &PausableKinds) -> String {
    let PausableKinds { group, versions: _, kinds, pauses, ended, shape: _, obeys: _ } = row;
    let texts = |texts: &[&str]| texts.iter().map(|of| format!("`{of}`")).collect::<Vec<_>>().join(" or ");
    let pauses = pauses.iter().map(|(field, value)| {
        if let Some(PauseCommand { pause, resume }) = value.command() {
            return format!("Command `{pause}`, back by `{resume}`: `{field}: {}`", plain(&value.json()));
        }
        let value = value.json();
        format!("`{field}: {}`", plain(&value))
    });
    let ended = match ended {
        EndedWhen::Never => "never".into(),
        EndedWhen::Condition(types) => format!("condition {}", texts(types)),
        EndedWhen::Text(path, values) => format!("`{path}`: {}", texts(values)),
    };
    let pauses = pauses.collect::<Vec<_>>().join(", else ");
    format!("| `{group}` | {} | {pauses} | {ended} |\n", kinds.join(", "))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

type FieldsOfKinds<'k> = BTreeMap<&'k str, Vec<&'k str>>;

#[test]
fn the_chart_has_every_kind_that_is_paused() {
    let mut groups: BTreeMap<&str, (BTreeSet<&str>, FieldsOfKinds<'_>, Vec<String>)> = BTreeMap::new();
    for row in KINDS {
        let (versions, kinds, actions) = groups.entry(row.group).or_default();
        versions.extend(row.versions);
        for kind in row.kinds {
            let written = row.pauses.iter().filter(|(field, _)| !is_shown(field)).map(|(field, _)| *field);
            kinds.entry(kind).or_default().extend(written.chain(held_fields(row.group, kind)));
            for PauseCommand { pause, resume } in row.pauses.iter().filter_map(|(_, of)| of.command()) {
                actions.push(format!("    {kind}: [{pause}, {resume}]\n"));
            }
        }
    }
    let entries = groups.into_iter().map(|(group, (versions, kinds, actions))| {
        let versions = Vec::from_iter(versions).join(", ");
        let resource = |kind: &&str| format!("    {kind}: {}\n", PausableKinds::resource(kind));
        let resources: String = kinds.keys().map(resource).collect();
        let fields = kinds.iter().map(|(kind, fields)| format!("    {kind}: [{}]\n", fields.join(", ")));
        let fields: String = fields.collect();
        let actions =
            if actions.is_empty() { String::new() } else { format!("  actions:\n{}", actions.concat()) };
        format!(
            "- group: {group:?}\n  versions: [{versions}]\n  kinds:\n{resources}  fields:\n{fields}{actions}"
        )
    });
    let entries: String = entries.collect();
    assert_written("charts/tenure/files/owners.yaml", &format!("{BEFORE_THE_KINDS}{entries}"));
}

#[test]
fn every_field_of_a_queue_is_on_its_page() {
    let pages = read("docs/queues.md") + &read("docs/requeue.md");
    // a field of a field may stand behind it: `extensions.maxTotal`
    let named: BTreeSet<&str> =
        pages.split('`').skip(1).step_by(2).flat_map(|name| name.split('.')).collect();
    let fields_of = |schema: &Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let mut fields = Vec::new();
    for file in ["scheduling.run.ai_queues.yaml", "scheduler.tensorstack.dev_queues.yaml"] {
        let crd: Value = serde_saphyr::from_str(&read(&format!("charts/tenure/files/crds/{file}"))).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        for (field, schema) in fields_of(spec) {
            // selectors are Kubernetes' own
            if !field.ends_with("Selector") {
                let within = fields_of(&schema);
                fields.extend(
                    within.values().flat_map(|schema| fields_of(schema).into_iter()).map(|(name, _)| name),
                );
                fields.extend(within.into_iter().map(|(name, _)| name));
            }
            fields.push(field);
        }
    }
    assert!(fields.len() > 40, "{fields:?}");
    let missing: Vec<_> = fields.iter().filter(|field| !named.contains(field.as_str())).collect();
    assert!(missing.is_empty(), "docs/queues.md and docs/requeue.md lack {missing:?}");
}

#[test]
fn every_metric_that_a_page_names_is_on_the_page_of_metrics() {
    let metrics = read("docs/metrics.md");
    let listed: BTreeSet<&str> = metrics.split('`').skip(1).step_by(2).collect();
    let mut pages = sources(&workspace().join("docs"));
    pages.extend(sources(&workspace().join("charts/tenure/files/monitoring")));
    pages.extend(["README.md", "charts/tenure/README.md", "charts/tenure/templates/NOTES.txt"].map(read));
    let is_part_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut named = 0;
    for name in pages.iter().flat_map(|page| page.split(|c| !is_part_of_name(c))) {
        // one that ends so stands for a family: tenure_webhook_…
        if !(name.starts_with("tenure_keeper_") || name.starts_with("tenure_webhook_")) || name.ends_with('_')
        {
            continue;
        }
        let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        assert!(listed.contains(name) || of_histogram.is_some_and(|of| listed.contains(of)), "{name}");
        named += 1;
    }
    assert!(named > 40, "{named}");
}

/// The texts of the files in a directory, and in those below it. Pictures have none.
fn sources(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.flat_map(|path| {
        if path.is_dir() { sources(&path) } else { fs::read_to_string(path).into_iter().collect() }
    });
    texts.collect()
}

/// The names in the first cells of a page's tables.
fn first_cells(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

const BEFORE_THE_API: &str = "\
# API reference

Every field of the objects that Tenure's CRDs define. This page is written from `charts/tenure/files/crds`: see
[development.md](development.md). [queues.md](queues.md) and [extensions.md](extensions.md) explain the fields and have examples.
";

/// Adds the rows of the fields below a part of a schema.
fn add_fields(part: &Value, path: &str, rows: &mut Vec<String>) {
    if let Some(properties) = part["properties"].as_object() {
        let required: Vec<_> = part["required"].as_array().into_iter().flatten().collect();
        for (name, field) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let kind = if field["x-kubernetes-int-or-string"] == true {
                "integer or string"
            } else {
                field["type"].as_str().unwrap_or("any")
            };
            let kind =
                field["format"].as_str().map_or(kind.to_owned(), |format| format!("{kind} ({format})"));
            let needed = if required.contains(&&json!(name)) { ", required" } else { "" };
            let text = field["description"].as_str().unwrap_or_default().replace('|', "\\|");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            rows.push(format!("| `{path}` | {kind}{needed} | {text} |\n"));
            add_fields(field, &path, rows);
        }
    }
    if part["items"].is_object() {
        add_fields(&part["items"], &format!("{path}[]"), rows);
    }
    if part["additionalProperties"].is_object() {
        add_fields(&part["additionalProperties"], &format!("{path}.KEY"), rows);
    }
}

#[test]
fn every_field_of_the_crds_is_on_its_page() {
    let directory = workspace().join("charts/tenure/files/crds");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut page = BEFORE_THE_API.to_owned();
    for file in files {
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let (group, kind) =
            (crd["spec"]["group"].as_str().unwrap(), crd["spec"]["names"]["kind"].as_str().unwrap());
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut rows = Vec::new();
            for part in ["spec", "status"] {
                add_fields(&schema["properties"][part], part, &mut rows);
            }
            let name = version["name"].as_str().unwrap();
            let text = schema["description"].as_str().unwrap_or_default();
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            write!(
                page,
                "\n## {kind}, {group}/{name}\n\n{text}\n\n| field | type | |\n| --- | --- | --- |\n"
            )
            .unwrap();
            page += &rows.concat();
        }
    }
    assert!(page.contains("| `spec.maxDuration` |"), "{page}");
    assert_written("docs/api.md", &page);
}

/// The widest line of the picture of a terminal, in letters: the README shows it at 900 pixels.
const COLUMNS: usize = 105;

const TERMINAL: &str = r"  <style>
    .page { fill: #ffffff; stroke: #d0d7de; }
    text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }
    .command { font-weight: bold; fill: #0969da; }
    .output { fill: #1f2328; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #3d444d; }
      .command { fill: #4493f8; }
      .output { fill: #f0f6fc; }
    }
  </style>
";

/// What the quickstart prints, which the test of that page compares with a cluster: all sessions that are narrow enough.
#[test]
fn picture_of_a_terminal_is_what_the_quickstart_prints() {
    let page = Page::read("quickstart.md");
    let steps = ["3. Watch it end", "4. Get it back"].into_iter().flat_map(|heading| page.steps(heading));
    let sessions = steps.filter_map(|step| match step {
        Step::See { command, output } => Some((command, output)),
        Step::Run(command) => Some((command.trim_end().to_owned(), Vec::new())),
        Step::Save { .. } => None,
    });
    let mut lines = Vec::new();
    for (command, output) in sessions {
        let session: Vec<_> = [("command", format!("$ {command}"))]
            .into_iter()
            .chain(output.into_iter().map(|line| ("output", line)))
            .collect();
        if session.iter().all(|(_, line)| line.chars().count() <= COLUMNS) {
            lines.extend(session);
        }
    }
    assert!(lines.len() > 5, "{lines:?}");
    let height = 20 * lines.len() + 24;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {height}\" role=\"img\" aria-labelledby=\"title\">\n  \
         <title id=\"title\">A terminal: a Job is paused at its ceiling, and resumed</title>\n{TERMINAL}  \
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"899\" height=\"{}\" rx=\"8\"/>\n",
        height - 1
    );
    for (number, (class, line)) in lines.iter().enumerate() {
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        writeln!(svg, "  <text class=\"{class}\" x=\"16\" y=\"{}\">{text}</text>", 20 * number + 27).unwrap();
    }
    assert_written("docs/terminal.svg", &(svg + "</svg>\n"));
}
