use std::fs;

use super::*;

/// Reads files of a directory that is there for one test.
fn read_files(files: &[(&str, &str)], path: &str) -> Result<Vec<(String, String)>, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let path = directory.path().join(path).to_str().unwrap().trim_end_matches('/').to_owned();
    let place = format!("{}/", directory.path().to_str().unwrap());
    let relative = |text: &str| text.replace(&place, "").replace(place.trim_end_matches('/'), "DIR");
    let documents = read(&[path]).map_err(|error| relative(&format!("{error:#}")))?;
    Ok(documents.into_iter().map(|document| (relative(&document.source), document.kind)).collect())
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(source, kind)| ((*source).to_owned(), (*kind).to_owned())).collect()
}

#[test]
fn documents_are_named_by_file_and_line() {
    let text = "# first\napiVersion: v1\nkind: A\n---\n---\n{\"apiVersion\": \"v1\", \"kind\": \"B\"}\n{\"apiVersion\":\n\"v1\", \"kind\": \"C\"}\n---\nkind: DList\napiVersion: v1\nitems: [{}, {}]\n";
    let expected = [("f:2", "A"), ("f:6", "B"), ("f:7", "C"), ("f:10 item 1", "D"), ("f:10 item 2", "D")];
    assert_eq!(read_files(&[("f", text)], "f"), Ok(pairs(&expected)));
    assert_eq!(read_files(&[("f", &text.replace('\n', "\r\n"))], "f"), Ok(pairs(&expected)));
}

#[test]
fn of_a_directory_all_manifests_are_read_in_the_order_of_their_names() {
    let a = "apiVersion: v1\nkind: A";
    let files = [
        ("c.yml", a),
        ("a/z.json", "{\"apiVersion\": \"v1\", \"kind\": \"B\"}"),
        ("b.yaml", a),
        ("e.txt", a),
        (".git/x.yaml", a),
    ];
    assert_eq!(
        read_files(&files, ""),
        Ok(pairs(&[("a/z.json:1", "B"), ("b.yaml:1", "A"), ("c.yml:1", "A")]))
    );
}

#[test]
fn what_can_not_be_read_is_reported_with_its_place() {
    let good = "apiVersion: v1\nkind: A\n";
    for (text, expected) in [
        ("", "no objects in f"),
        ("# a\n---\n~\n", "no objects in f"),
        ("- 1\n", "f:1: an object was expected, with apiVersion, kind and metadata"),
        ("a: 1\n", "f:1: apiVersion is missing"),
        (&format!("{good}---\n\nspec: {{}}\nspec: {{}}\n"), "f:6: key \"spec\" appears twice"),
        (&format!("{good}---\n{{\n\"a\" 1}}\n"), "f:5: expected `:`"),
    ] {
        assert_eq!(read_files(&[("f", text)], "f").unwrap_err(), expected);
    }
    assert_eq!(read_files(&[("f", "")], "g").unwrap_err(), "the path \"g\" does not exist");
    assert_eq!(read_files(&[("f.txt", good)], "").unwrap_err(), "no objects in DIR");
    assert!(read(&["-".into(), "-".into()]).is_err());
}

#[test]
fn what_begins_like_json_may_be_yaml() {
    assert_eq!(read_files(&[("f", "{apiVersion: v1,\n kind: A}")], "f"), Ok(pairs(&[("f:1", "A")])));
}

#[test]
fn a_long_stream_keeps_its_order() {
    use std::fmt::Write;

    let mut text = String::new();
    for number in 0..20_000 {
        write!(text, "---\napiVersion: v1\nkind: K{number}\n").unwrap();
    }
    let found = read_files(&[("f", &text)], "f").unwrap();
    assert_eq!(found.len(), 20_000);
    for (number, (source, kind)) in found.iter().enumerate() {
        assert_eq!((source, kind), (&format!("f:{}", number * 3 + 2), &format!("K{number}")));
    }
}

#[test]
fn a_list_of_a_hundred_thousand_pods_is_read() {
    use std::fmt::Write;

    let mut yaml = "apiVersion: v1\nkind: PodList\nitems:\n".to_owned();
    let mut json = "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n".to_owned();
    for number in 0..100_000 {
        writeln!(yaml, "- metadata:\n    name: p{number}\n  spec:\n    priority: 5").unwrap();
        let comma = if number == 0 { "" } else { "," };
        writeln!(
            json,
            "{comma}{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"p{number}\"}}}}"
        )
        .unwrap();
    }
    json.push_str("]}");
    for text in [yaml, json] {
        let found = read_files(&[("f", &text)], "f").unwrap();
        assert_eq!((found.len(), found[99_999].0.as_str()), (100_000, "f:1 item 100000"));
    }
}

#[test]
fn a_time_has_a_zone() {
    assert_eq!(time("2026-01-02T03:04:05Z"), time("2026-01-02T04:04:05+01:00"));
    assert!(time("2026-01-02T03:04:05Z").is_ok());
    for bad in ["", "now", "2026-01-02", "2026-01-02T03:04:05", "5m"] {
        assert!(time(bad).unwrap_err().contains("such as"), "{bad}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert_eq!(decode("a", b"\xef\xbb\xbfkind: A".to_vec()).unwrap().1, "kind: A");
}

#[test]
fn what_is_not_utf_8_is_reported_with_its_line() {
    let error = decode("a.yaml", b"a: 1\nb: \xff\n".to_vec()).unwrap_err().to_string();
    assert_eq!(error, "a.yaml:2: not UTF-8: save the file in this encoding");
}
