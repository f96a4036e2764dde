//! Rules of all task pages, and of the texts that they quote.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;
use tenure_tests::pages::{Page, workspace};

/// Each task page, with the number of its blocks that can't be run on a control plane without kubelets and clouds.
const PAGES: [(&str, usize); 20] = [
    ("alerts.md", 0),
    ("choosing.md", 2),
    ("compatibility.md", 0),
    ("costs.md", 0),
    ("drains.md", 0),
    ("exceptions.md", 0),
    ("faq.md", 0),
    ("first-rollout.md", 1),
    ("floors-on-kind.md", 2),
    ("gitops.md", 2),
    ("kai.md", 1),
    ("kueue.md", 0),
    ("messages.md", 3),
    ("monitoring.md", 3),
    ("outages.md", 0),
    ("paused.md", 0),
    ("quickstart.md", 2),
    ("troubleshooting.md", 0),
    ("ui.md", 4),
    ("upgrade.md", 1),
];

/// The longest that a task page is.
const LINES: usize = 100;

/// Pages with tables of messages.
const WITH_MESSAGES: [&str; 2] = ["troubleshooting.md", "upgrade.md"];

/// Messages of Kubernetes and Helm, and one of a policy that the chart puts together.
const OF_OTHERS: [&str; 13] = [
    "missing property",
    "missing properties",
    "additional properties",
    "conflict with \"kubectl\"",
    "failed calling webhook \"runai-queues.tenure.dev\"",
    "x509: certificate signed by unknown authority",
    "conversion webhook for scheduling.run.ai/v3alpha1, Kind=Queue failed",
    "no matches for kind \"Queue\" in version \"scheduling.run.ai/v2\"",
    "unknown field \"spec.maxDuration\"",
    "when strategy is not set to Webhook",
    "once the pod is bound to a node",
    "Job/tenure-system/tenure-uninstall not ready",
    "pre-delete hooks failed",
];

fn pages() -> impl Iterator<Item = (Page, usize)> {
    PAGES.into_iter().map(|(name, not_run)| (Page::read(name), not_run))
}

#[test]
fn task_page_is_short_says_first_when_to_read_it_and_ends_with_links() {
    let index = Page::read("README.md").text;
    let (_, tasks) = index.split_once("## Tasks").unwrap();
    let (tasks, _) = tasks.split_once("\n## ").unwrap();
    for (Page { name, text }, _) in pages() {
        assert!(text.lines().count() <= LINES, "{name} has {} lines", text.lines().count());
        let mut lines = text.lines().filter(|line| !line.is_empty());
        assert!(lines.next().unwrap().starts_with("# "), "{name}");
        let when = lines.next().unwrap();
        assert!(when.starts_with("Read this ") && when.contains('.'), "{name}: {when}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("See also: [") && last.ends_with(")."), "{name}: {last}");
        assert!(tasks.contains(&format!("]({name})")), "{name} isn't among the tasks");
    }
}

#[test]
fn block_that_cannot_be_run_says_why_and_each_file_of_a_page_is_used_by_a_command() {
    for (page, expected) in pages() {
        let name = &page.name;
        let blocks = page.blocks();
        let not_run: Vec<_> = blocks.iter().filter_map(|block| block.not_run.as_deref()).collect();
        assert!(not_run.iter().all(|why| why.len() > 5), "{name}: {not_run:?}");
        assert_eq!(not_run.len(), expected, "{name}: {not_run:?}");
        for block in blocks.iter().filter(|block| block.language == "yaml" && block.not_run.is_none()) {
            let file = block.file().unwrap_or_else(|| panic!("{name}: no file: {}", block.text));
            let (last, among_others) = (format!("-f {file}"), format!(" {file} "));
            let mut commands = blocks.iter().filter(|block| block.is_for_a_shell()).map(|block| &block.text);
            let is_used = commands.any(|text| text.contains(&last) || text.contains(&among_others));
            assert!(is_used, "{name}: no command uses {file}");
        }
    }
}

/// The headings of a runbook.
const OF_RUNBOOK: [&str; 4] = ["Meaning", "Likely causes", "Look at", "Remedy"];

#[test]
fn each_alert_has_a_row_and_a_runbook() {
    let rules = fs::read_to_string(workspace().join("charts/tenure/files/monitoring/alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: BTreeSet<(String, String)> = rules
        .map(|rule| {
            (rule["alert"].as_str().unwrap().into(), rule["labels"]["severity"].as_str().unwrap().into())
        })
        .collect();
    let page = Page::read("alerts.md");
    let rows = page.text.lines().filter_map(|line| line.strip_prefix("| [`Tenure"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 3), "{rows:?}");
    let listed = rows.iter().map(|row| {
        let (name, link) = row[0].split_once("`](").unwrap();
        assert_eq!(link, format!("runbooks/Tenure{name}.md)"));
        (format!("Tenure{name}"), row[1].to_owned())
    });
    assert_eq!(alerts, listed.collect());
    assert_eq!(alerts.len(), rows.len());
    let files = fs::read_dir(workspace().join("docs/runbooks")).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, alerts.iter().map(|(alert, _)| format!("{alert}.md")).collect());
    for (alert, _) in &alerts {
        let Page { name, text } = Page::read(&format!("runbooks/{alert}.md"));
        assert!(text.starts_with(&format!("# {alert}\n")), "{name}");
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, OF_RUNBOOK, "{name}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("See also: [") && last.ends_with(")."), "{name}: {last}");
    }
}

#[test]
fn message_that_a_page_quotes_is_in_the_sources() {
    let mut sources = BTreeMap::new();
    for directory in ["crates", "charts"] {
        read_all(&workspace().join(directory), &mut sources);
    }
    let mut quoted = 0;
    for page in WITH_MESSAGES.map(Page::read) {
        let cells = page.text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        for message in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
            let known = OF_OTHERS.contains(&message) || sources.values().any(|text| text.contains(message));
            assert!(known, "{}: {message:?} is in no source", page.name);
            quoted += 1;
        }
    }
    assert!(quoted > 25, "{quoted}");
    for file in fs::read_dir(workspace().join("docs/runbooks")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        // what the log says begins with a capital letter, and has several words
        let quoted = text.split('`').skip(1).step_by(2).filter(|text| text.starts_with(char::is_uppercase));
        for message in quoted.filter(|text| text.contains(' ')) {
            assert!(sources.values().any(|text| text.contains(message)), "{message:?} is in no source");
        }
    }
}

fn read_all(directory: &Path, texts: &mut BTreeMap<String, String>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            read_all(&path, texts);
        } else if let Ok(text) = fs::read_to_string(&path) {
            texts.insert(path.display().to_string(), text.replace("\\\"", "\""));
        }
    }
}

#[test]
fn link_of_any_page_leads_to_a_file_and_a_heading_of_it() {
    let mut pages = BTreeMap::new();
    read_all(&workspace().join("docs"), &mut pages);
    for name in ["README.md", "CONTRIBUTING.md", "charts/tenure/README.md", "examples/README.md"] {
        let path = workspace().join(name);
        pages.insert(path.display().to_string(), fs::read_to_string(&path).unwrap());
    }
    let mut links = 0;
    for (path, text) in pages
        .iter()
        .filter(|(path, _)| Path::new(path).extension().is_some_and(|extension| extension == "md"))
    {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file =
                if file.is_empty() { path.into() } else { Path::new(path).parent().unwrap().join(file) };
            assert!(file.exists(), "{path}: {target}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                assert!(anchors(&text).contains(anchor), "{path}: {target}");
            }
            links += 1;
        }
    }
    assert!(links > 300, "{links}");
}

/// The groups of kinds that each cluster has, and Tenure's own.
const THERE: [&str; 6] = [
    "v1",
    "apps/v1",
    "batch/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "scheduling.run.ai/v3alpha1",
];

#[test]
fn example_says_in_its_first_lines_and_in_the_table_what_it_needs() {
    let directory = workspace().join("examples");
    let table = fs::read_to_string(directory.join("README.md")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split(" | ").collect()).collect();
    let mut files = BTreeMap::new();
    read_all(&directory, &mut files);
    for (path, text) in
        files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|of| of == "yaml"))
    {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let needs = head.iter().position(|line| line.starts_with("# Needs "));
        let name = Path::new(path).file_name().unwrap().to_str().unwrap();
        let row = rows.iter().find(|row| row[0].contains(&format!("({name})"))).unwrap();
        assert_eq!(row[2] != "|", needs.is_some(), "{name}: {row:?}");
        let kinds = text.lines().filter_map(|line| line.strip_prefix("apiVersion: "));
        let others: Vec<&str> = kinds.filter(|of| !THERE.contains(of)).collect();
        let says = needs.is_some_and(|at| head[at..].concat().contains("kubectl get "));
        assert!(others.is_empty() || says, "{name}: {others:?}");
    }
}

/// The names by which GitHub links to the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}
