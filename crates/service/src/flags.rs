//! Flags in the format of Go programs, for the keeper's command line.

use std::ffi::{OsStr, OsString};

/// Gives long flags of a single dash (`-kube-path=file`) a second one, so that command lines for
/// programs in Go work. The rest stays: the program's name, flags of one letter such as `-h`,
/// negative numbers, and arguments after `--`.
pub fn go_style(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags = true;
    let rewrite = |(position, argument): (usize, OsString)| {
        flags = flags && argument != "--";
        if position > 0 && flags && is_single_dashed(&argument) { dashed(&argument) } else { argument }
    };
    arguments.enumerate().map(rewrite).collect()
}

/// True for a dash, a letter, and another character than an equals sign.
fn is_single_dashed(argument: &OsStr) -> bool {
    match argument.as_encoded_bytes() {
        [b'-', first, second, ..] => first.is_ascii_alphabetic() && *second != b'=',
        _ => false,
    }
}

/// Returns an argument with one more dash.
fn dashed(argument: &OsStr) -> OsString {
    let mut flag = OsString::from("-");
    flag.push(argument);
    flag
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn rewritten(line: &str) -> String {
        let arguments = go_style(line.split(' ').map(OsString::from));
        arguments.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn long_flags_of_a_single_dash_get_a_second() {
        for (given, expected) in [
            ("keeper", "keeper"),
            ("keeper -kube-path x", "keeper --kube-path x"),
            ("keeper -kube-path=x", "keeper --kube-path=x"),
            ("keeper -kube-path= -threadiness 4", "keeper --kube-path= --threadiness 4"),
            ("keeper -t9kSystemNamespace=foo", "keeper --t9kSystemNamespace=foo"),
            ("keeper -metrics-addr :8080", "keeper --metrics-addr :8080"),
            ("keeper -help", "keeper --help"),
        ] {
            assert_eq!(rewritten(given), expected, "{given}");
        }
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for line in [
            "keeper --kube-path x --log-level=debug",
            "keeper -h",
            "keeper -V",
            "keeper -h=x",
            "keeper - x",
            "keeper value x-y",
            "keeper --kube-path -x",
            "keeper --threadiness -1",
            "keeper --threadiness -10",
            "keeper -- -kube-path x -- -log-level",
            "-bash",
        ] {
            assert_eq!(rewritten(line), line);
        }
    }

    #[test]
    fn flags_need_not_be_text() {
        let given = OsString::from_vec(b"-kube-path=\xff".into());
        let expected = OsString::from_vec(b"--kube-path=\xff".into());
        assert_eq!(go_style(["keeper".into(), given].into_iter()), [OsString::from("keeper"), expected]);
    }
}
