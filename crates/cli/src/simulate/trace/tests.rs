use std::io::Cursor;

use super::*;
use crate::simulate::past::{Fate, PastRun, Unit};

fn options(columns: &str) -> TraceOptions {
    TraceOptions {
        columns: (!columns.is_empty()).then(|| super::columns(columns).unwrap()),
        zone: TimeZone::UTC,
        now: "2026-02-01T00:00:00Z".parse().unwrap(),
    }
}

fn read_bytes(bytes: &[u8], columns: &str) -> Result<Trace, String> {
    read("t", &mut Cursor::new(bytes), &options(columns)).map_err(|error| error.to_string())
}

fn read_text(text: &str) -> Result<Trace, String> {
    read_bytes(text.as_bytes(), "")
}

const CSV: &str = "id,submit,start,end,gpus,queue,user,priority,state\n";
const SACCT: &str = "JobID|User|Partition|Submit|Start|End|State|Priority|AllocTRES|NCPUS\n";
const SWF: &str = "; UnixStartTime: 1735689600\n";

const GOOD_CSV: &str = "\
1,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,8,a,ann,10,COMPLETED
2,2026-01-01T00:00:00Z,2026-01-01T02:00:00Z,2026-01-01T03:00:00Z,1,b,ben,0,PREEMPTED
";
const GOOD_SACCT: &str = "\
1|ann|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|billing=8,cpu=8,gres/gpu=2,mem=64G|8
2|ben|gpu|2026-01-01T00:00:00|2026-01-01T02:00:00|Unknown|RUNNING|100|cpu=8,gres/gpu:a100=4|8
";
const GOOD_SWF: &str = "\
1 0 10 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1
2 60 0 1800 8 -1 -1 8 3600 -1 1 4 1 -1 1 -1 -1 -1
";

fn run(trace: &Trace, number: usize) -> PastRun {
    trace.past.runs[number].clone()
}

#[test]
fn csv_is_read_by_its_headers_or_by_those_that_a_person_maps() {
    let trace = read_text(&format!("{CSV}{GOOD_CSV}")).unwrap();
    let (first, second) = (run(&trace, 0), run(&trace, 1));
    assert_eq!((trace.past.source.kind, trace.broken.total), (super::CSV, 0));
    assert_eq!((first.start - first.submit, first.end - first.start, first.gpus), (3_600, 7_200, 8.0));
    assert_eq!((second.fate, first.priority), (Fate::Preempted, 10));
    assert_eq!((trace.past.queue_name(&second), trace.past.user_name(&second)), ("b", "ben"));
    let mapped = "Begin;Finish;\"GPUs; all\"\n1767225600;1767229200.5;2\n\"2026-01-01 01:00:00\";\"2026-01-01T03:00:00+01:00\";\"1\"\n";
    let trace = read_bytes(mapped.as_bytes(), "start=Begin,end=Finish,gpus=GPUs; all").unwrap();
    assert_eq!((run(&trace, 0).end - run(&trace, 0).start, run(&trace, 0).gpus), (3_600, 2.0));
    assert_eq!(run(&trace, 1).end - run(&trace, 1).start, 3_600);
    assert_eq!(trace.past.queue_name(&run(&trace, 0)), "all", "no column names a queue");
}

#[test]
fn sacct_is_read_with_its_gpus_and_without_its_steps() {
    let steps = "1.batch||||2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED||cpu=8|8\n3|cy|gpu|2026-01-01T00:00:00|Unknown|Unknown|PENDING|1||0\n";
    let trace = read_text(&format!("{SACCT}{GOOD_SACCT}{steps}")).unwrap();
    assert_eq!(
        (trace.past.source.kind, trace.past.steps, trace.past.source.never_started),
        (super::SACCT, 1, 1)
    );
    let (first, second) = (run(&trace, 0), run(&trace, 1));
    assert_eq!((first.gpus, first.cpus, second.gpus, second.fate), (2.0, 8.0, 4.0, Fate::Running));
    assert_eq!(second.end, first.end, "it goes on until the end of what is known");
    assert_eq!(trace.past.unit(), Unit::Gpu);
}

#[test]
fn gpus_are_counted_in_all_forms_that_sacct_has() {
    for (column, text, gpus) in [
        ("AllocGRES", "gpu:2", 2.0),
        ("AllocGRES", "gpu:a100:2,gpu:v100:1,nvme:9", 3.0),
        ("AllocGRES", "nvme:9", 0.0),
        ("AllocGRES", "", 0.0),
        ("AllocTRES", "cpu=8,gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1,gres/nvme=9", 3.0),
        ("ReqTRES", "cpu=8,gres/gpu:a100=2,gres/gpu:v100=1", 3.0),
        ("ReqTRES", "billing=8,cpu=8,mem=64G", 0.0),
    ] {
        let text = format!("JobID|Start|End|{column}\n1|2026-01-01T00:00:00|2026-01-01T01:00:00|{text}\n");
        let trace = read_text(&text).unwrap();
        assert_eq!((run(&trace, 0).gpus, trace.broken.total), (gpus, 0), "{text}");
    }
    let clock = "start,end,gpus\n1,2,1\n1,2,01:00:00\n";
    assert_eq!(read_text(clock).unwrap().broken.total, 1, "a time of a clock is no list");
}

#[test]
fn standard_workload_format_counts_from_its_begin() {
    let trace = read_text(&format!(
        "{SWF}; Computer: x\n{GOOD_SWF}3 70 -1 -1 8 -1 -1 8 3600 -1 5 4 1 -1 1 -1 -1 -1\n"
    ))
    .unwrap();
    let first = run(&trace, 0);
    assert_eq!(
        (trace.past.source.kind, first.submit, first.start),
        (super::SWF, 1_735_689_600, 1_735_689_610)
    );
    assert_eq!((first.cpus, trace.past.queue_name(&first)), (16.0, "queue-2"));
    assert_eq!((trace.past.source.never_started, trace.past.unit()), (1, Unit::Core));
}

#[test]
fn a_job_of_partial_executions_counts_once() {
    let partial = "1 0 10 1800 16 -1 -1 16 7200 -1 2 3 1 -1 2 -1 -1 -1\n1 -1 60 1800 16 -1 -1 16 7200 -1 3 3 1 -1 2 -1 -1 -1\n";
    let trace = read_text(&format!("{SWF}{GOOD_SWF}{partial}")).unwrap();
    assert_eq!((trace.past.runs.len(), trace.past.steps, trace.broken.total), (2, 2, 0));
    assert_eq!(run(&trace, 0).end - run(&trace, 0).start, 3_600);
}

#[test]
fn a_time_without_a_zone_is_of_the_zone_that_is_named() {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let options = TraceOptions { zone, ..options("") };
    let text = "start,end\n2026-01-01T01:00:00,2026-01-01T03:00:00\n";
    let trace = read("t", &mut Cursor::new(text), &options).unwrap();
    assert_eq!(run(&trace, 0).start, 1_767_225_600);
}

/// A line that is broken, and a part of the reason.
type BadLine = (&'static str, &'static str);

const BAD_CSV: &[BadLine] = &[
    ("3", "columns than the header"),
    ("3,,,", "columns than the header"),
    ("3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z", "columns than the header"),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED,more",
        "columns than the header",
    ),
    (
        "3;2026-01-01T00:00:00Z;2026-01-01T01:00:00Z;2026-01-01T03:00:00Z;1;a;x;0;COMPLETED",
        "columns than the header",
    ),
    (
        "3\t2026-01-01T00:00:00Z\t2026-01-01T01:00:00Z\t2026-01-01T03:00:00Z\t1\ta\tx\t0\tCOMPLETED",
        "columns than the header",
    ),
    ("3 2026-01-01T00:00:00Z 2026-01-01T01:00:00Z", "columns than the header"),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,\"2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "a quote isn't closed",
    ),
    ("\"", "a quote isn't closed"),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T03:00:00Z,2026-01-01T01:00:00Z,1,a,x,0,COMPLETED",
        "ends before it starts",
    ),
    (
        "3,2026-01-01T02:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "starts before it is submitted",
    ),
    ("3,2026-01-01T00:00:00Z,-5,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,-5,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,-5,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,1969-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "before 1970"),
    ("3,yesterday,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "a time can't be read"),
    (
        "3,2026-01-01T00:00:00Z,2026-13-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "a time can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-32T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "a time can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T25:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "a time can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,01.01.2026 01:00,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED",
        "a time can't be read",
    ),
    ("3,2026-01-01T00:00:00Z,1e9,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,2026-01-01T00:00:00Z,.,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,1,1767225600000,1767225600000,1,a,x,0,COMPLETED", "out of range"),
    ("3,1,99999999999999999999,2,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,2026-01-01T00:00:00Z,2030-01-01T01:00:00Z,2030-01-01T03:00:00Z,1,a,x,0,COMPLETED", "in the future"),
    ("3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2099-01-01T03:00:00Z,1,a,x,0,COMPLETED", "in the future"),
    ("3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,,1,a,x,0,COMPLETED", "a time can't be read"),
    ("3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,Unknown,1,a,x,0,FAILED", "a time can't be read"),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,-1,a,x,0,COMPLETED",
        "an amount is negative",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,NaN,a,x,0,COMPLETED",
        "an amount is negative",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,inf,a,x,0,COMPLETED",
        "an amount is negative",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1e99,a,x,0,COMPLETED",
        "an amount is negative",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,many,a,x,0,COMPLETED",
        "an amount can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,gres/gpu=x,a,x,0,COMPLETED",
        "an amount can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,high,COMPLETED",
        "a priority can't be read",
    ),
    (
        "3,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,1.5,COMPLETED",
        "a priority can't be read",
    ),
    ("1,2026-01-01T00:00:00Z,2026-01-01T02:00:00Z,2026-01-01T04:00:00Z,1,a,x,0,COMPLETED", "overlaps"),
    ("1,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,8,a,ann,10,COMPLETED", "overlaps"),
    ("1,2026-01-01T00:00:00Z,2026-01-01T02:00:00Z,2026-01-01T02:00:00Z,1,a,x,0,COMPLETED", "overlaps"),
    ("id,submit,start,end,gpus,queue,user,priority,state", "a time can't be read"),
    ("<html><body>502</body></html>", "columns than the header"),
    ("total,,,,,,,,", "never"),
];

const BAD_SACCT: &[BadLine] = &[
    ("3|cy|gpu", "columns than the header"),
    (
        "3,cy,gpu,2026-01-01T00:00:00,2026-01-01T01:00:00,2026-01-01T03:00:00,COMPLETED,100,cpu=8,8",
        "columns than the header",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=8|8|9",
        "columns than the header",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-03-29T03:10:00|2026-03-29T02:50:00|COMPLETED|100|cpu=8|8",
        "ends before it starts",
    ),
    (
        "3|cy|gpu|2026-01-01T02:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=8|8",
        "starts before it is submitted",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|Unknown|COMPLETED|100|cpu=8|8",
        "a time can't be read",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|1e3|cpu=8|8",
        "a priority can't be read",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|gres/gpu=two|8",
        "an amount can't be read",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|gres/gpu=-2|8",
        "an amount is negative",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=8|eight",
        "an amount can't be read",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|8 GPUs|8",
        "an amount can't be read",
    ),
    ("3|cy|gpu|2026-01-01|2026-01-01T01:00:00|01/02/2026|COMPLETED|100|cpu=8|8", "a time can't be read"),
    (
        "1|ann|gpu|2026-01-01T00:00:00|2026-01-01T02:00:00|2026-01-01T05:00:00|COMPLETED|100|cpu=8|8",
        "overlaps",
    ),
    ("2|ben|gpu|2026-01-01T00:00:00|2026-01-01T02:00:00|Unknown|RUNNING|100|cpu=8|8", "overlaps"),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=\"8|8",
        "a quote isn't closed",
    ),
    ("sacct: error: Slurm database is down", "columns than the header"),
    ("-----|----|---|---|-|-|-|-|-|-", "a time can't be read"),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2031-01-01T01:00:00|2031-01-01T03:00:00|COMPLETED|100|cpu=8|8",
        "in the future",
    ),
    (
        "3|cy|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=8|-8",
        "an amount is negative",
    ),
    (
        "3|cy|gpu|1960-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|100|cpu=8|8",
        "before 1970",
    ),
];

const BAD_SWF: &[BadLine] = &[
    ("3", "fewer than 18 numbers"),
    ("3 0 10 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1", "fewer than 18 numbers"),
    ("3 0 10 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1 9", "more than 18 numbers"),
    ("3 -5 10 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "submission is negative"),
    ("3 0 -7 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "is negative"),
    ("3 0 10 -3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "is negative"),
    ("3 0 ten 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "a number can't be read"),
    ("3,0,10,3600,16,-1,-1,16,7200,-1,1,3,1,-1,2,-1,-1,-1", "a number can't be read"),
    ("3|0|10|3600|16|-1|-1|16|7200|-1|1|3|1|-1|2|-1|-1|-1", "a number can't be read"),
    ("3 0 10 9223372036854775807 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "out of range"),
    ("3 9223372036854775807 10 1 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "out of range"),
    ("3 9223372036854775808 10 1 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "a number can't be read"),
    ("3 0 10 99999999999 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "in the future"),
    ("3 0 10 NaN 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1", "a number can't be read"),
    ("# 3 0 10 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1", "a number can't be read"),
];

/// Whole files that are refused, and a part of the error.
const REFUSED: &[(&[u8], &str)] = &[
    (b"", "there is no line to read"),
    (b"\n\n\n", "there is no line to read"),
    (b"\xff\xfei\0d\0", "UTF-16"),
    (b"\xfe\xff\0i\0d", "UTF-16"),
    (b"i\0d\0,\0", "byte of zero"),
    (b"\x1f\x8b\x08\0\0", "compressed"),
    (b"\x89PNG\r\n", "isn't UTF-8"),
    (b"start\n1\n", "no column has the end of runs"),
    (b"end,user\n1,a\n", "no column has the start of runs"),
    (b"a,b,c\n1,2,3\n", "no column has the start of runs"),
    (b"JobID|User|State\n1|a|COMPLETED\n", "no column has the start of runs"),
    (b"JobID|Start|State\n1|2026-01-01T00:00:00|COMPLETED\n", "no column has the end of runs"),
    (b"<!DOCTYPE html>\n<html>\n", "no column has the start of runs"),
    (b"{\"start\": 1, \"end\": 2}\n", "no column has the start of runs"),
    (b"\"start,end\n1,2\n", "a quote isn't closed"),
    (b"start,end\nx,y\n", "1 of its lines can't be read"),
    (b"start,end\n1,2\nx,y\nx,y\n", "2 of its lines can't be read"),
    (b"start,end\r1,2\r3,4\r", "no column has the end of runs"),
    (b"1 2 3\n4 5 6\n", "no column has the start of runs"),
    (b"; a comment alone\n1 2\n3\n", "2 of its lines can't be read"),
    (b"JobID           Start      End\n1 2 3\n", "no column has the start of runs"),
];

fn skips(header: &str, good: &str, bad: &[BadLine]) -> usize {
    for (line, reason) in bad {
        let trace = read_text(&format!("{header}{good}{line}\n"));
        let trace = trace.unwrap_or_else(|error| panic!("{line}: {error}"));
        if *reason == "never" {
            assert_eq!((trace.broken.total, trace.past.source.never_started), (0, 1), "{line}");
            continue;
        }
        assert_eq!((trace.broken.total, trace.past.runs.len()), (1, 2), "{line}: {:?}", trace.broken);
        let [shown] = &trace.broken.first[..] else { panic!("{line}: {:?}", trace.broken) };
        assert!(shown.starts_with("line 4: ") && shown.contains(reason), "{line}: {shown}");
        let counted: Vec<_> = trace.broken.by_reason.iter().collect();
        assert!(matches!(counted[..], [(of, 1)] if of.contains(reason)), "{line}: {counted:?}");
    }
    bad.len()
}

#[test]
fn a_hundred_broken_traces_are_refused_or_skipped_with_line_and_reason_and_counted() {
    let mut tried = skips(CSV, GOOD_CSV, BAD_CSV);
    tried += skips(SACCT, GOOD_SACCT, BAD_SACCT);
    tried += skips(SWF, GOOD_SWF, BAD_SWF);
    for (bytes, reason) in REFUSED {
        let refused = read_bytes(bytes, "").unwrap_err();
        assert!(refused.starts_with("t:") && refused.contains(reason), "{}: {refused}", bytes.escape_ascii());
        tried += 1;
    }
    let mut bytes = format!("{CSV}{GOOD_CSV}").into_bytes();
    for broken in [&b"3,\xe9t\xe9,x\n"[..], &b"\xff\xff\n"[..], &b"3,\0,4\n"[..]] {
        bytes.extend_from_slice(broken);
        tried += 1;
    }
    // lines without an end: one that does end, and one at the end of the file
    bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
    bytes.extend_from_slice(
        b"\n4,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED\n",
    );
    bytes.extend_from_slice(
        b"5,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z,1,a,x,0,COMPLETED\n",
    );
    bytes.extend(std::iter::repeat_n(b',', 1 << 20));
    tried += 2;
    let trace = read_bytes(&bytes, "").unwrap_err();
    assert!(trace.contains("5 of its lines can't be read"), "{trace}");
    let times = "2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,2026-01-01T03:00:00Z";
    let good = (6..12).map(|id| format!("{id},{times},1,a,x,0,DONE\n")).collect::<Vec<_>>().concat();
    let trace = read_bytes(&[format!("{CSV}{good}").as_bytes(), &bytes[CSV.len()..]].concat(), "").unwrap();
    assert_eq!((trace.past.runs.len(), trace.broken.total), (10, 5));
    assert_eq!(trace.broken.by_reason["the line is longer than 64 KiB"], 2);
    assert_eq!(trace.broken.by_reason["the line isn't UTF-8"], 2);
    assert!(trace.broken.first[3].starts_with("line 13: the line is longer"), "{:?}", trace.broken);
    assert!(tried >= 100, "{tried}");
}

#[test]
fn a_column_that_is_mapped_and_not_there_is_refused_by_its_name() {
    let refused = read_bytes(b"a,b\n1,2\n", "start=a,end=Finish").unwrap_err();
    assert!(refused.contains("there is no column \"Finish\", which --columns names"), "{refused}");
    for (bad, expected) in
        [("start", "must be FIELD=COLUMN"), ("begin=a", "is no field"), ("end=a,end=b", "twice")]
    {
        let error = columns(bad).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_byte_order_mark_and_ends_of_lines_of_windows_are_no_fault() {
    let text = format!("\u{feff}{CSV}{GOOD_CSV}").replace('\n', "\r\n");
    let trace = read_text(&text).unwrap();
    assert_eq!((trace.past.runs.len(), trace.broken.total), (2, 0));
}
