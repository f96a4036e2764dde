//! What any caller of the port gets: nothing, unless it is a browser that its user has signed in, on the page itself.

use std::{fs, path::Path};

use serde_json::json;
use tenure_tests::{DEADLINE, served::Ui};

use super::files::written;

async fn of_files(name: &str) -> Ui {
    let file = written(name, &[]);
    Ui::start(None, &["-f", file.to_str().unwrap()]).await
}

#[tokio::test]
async fn a_browser_signs_in_once_with_the_file_or_the_code_and_no_one_else_reads_anything() {
    let ui = of_files("signs-in").await;
    let page = fs::read_to_string(&ui.file).unwrap();
    assert!(page.contains(&ui.code) && page.contains("method=post"), "{page}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&ui.file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for path in ["/events", "/workload?id=a", "/simulation?maxDuration=2d"] {
        // servers of other ports get the cookie, too, and not the key
        for cookie in ["X: y", "Cookie: tenure-ui=1", &format!("Cookie: tenure-ui-{}={}", ui.port, ui.code)] {
            let answer = ui.request(&format!("GET {path}"), &[cookie], "").await;
            assert_eq!((answer.status, answer.body.trim()), (401, "sign in first"), "{path} {cookie}");
        }
    }
    assert!(ui.request("GET /", &[], "").await.body.contains("Sign in"));
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(ui.request("POST /sign-in", &form, "code=guessed").await.status, 401);
    let cookie = ui.sign_in().await;
    assert!(!ui.file.exists(), "it was used");
    let (alone, _) = cookie.split_once("\r\n").unwrap();
    for path in ["/events", "/workload?id=a", "/simulation?maxDuration=2d"] {
        assert_eq!(ui.request(&format!("GET {path}"), &[alone], "").await.status, 401, "without the key");
    }
    assert_eq!(ui.request("POST /sign-in", &form, &format!("code={}", ui.code)).await.status, 401);
    assert!(ui.request("GET /", &[&cookie], "").await.body.contains("page.js"));
    assert_eq!(ui.first_event(&cookie).await["all"], json!(true));
    let head = ui.request("GET /", &[&cookie], "").await.head;
    for header in
        ["default-src 'none'", "x-frame-options: deny", "nosniff", "no-referrer", "cache-control: no-store"]
    {
        assert!(head.contains(header), "{header}: {head}");
    }
}

#[tokio::test]
async fn a_name_that_a_rebinding_attack_resolves_to_this_machine_gets_nothing() {
    let ui = of_files("rebinding").await;
    let cookie = ui.sign_in().await;
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.1@evil", ""]
    {
        for line in ["GET /", "GET /events", "GET /page.js", "POST /sign-in", "POST /change"] {
            let answer = ui.request(line, &[&format!("Host: {host}"), &cookie], "").await;
            assert_eq!(answer.status, 403, "{host} {line}");
        }
    }
    for host in ["localhost:7000", "127.0.0.1:9"] {
        let answer = ui.request("GET /", &[&format!("Host: {host}"), &cookie], "").await;
        assert_eq!(answer.status, 200, "by ssh -L: {host}");
    }
}

#[tokio::test]
async fn another_site_reads_and_changes_nothing_even_with_the_cookie() {
    let ui = of_files("other-site").await;
    let cookie = ui.sign_in().await;
    let (json, change) = ("Content-Type: application/json", r#"{"id": "a", "verb": "resume"}"#);
    let own = format!("Origin: http://127.0.0.1:{}", ui.port);
    let port = ui.port + 1;
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        &format!("Origin: http://127.0.0.1:{port}"),
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        for line in [
            "GET /events",
            "GET /workload?id=a",
            "GET /simulation?maxDuration=1h",
            "GET /page.js",
            "POST /change",
        ] {
            let answer = ui.request(line, &[&cookie, foreign, json], change).await;
            assert_eq!(answer.status, 403, "{foreign} {line}");
        }
    }
    assert_eq!(ui.request("POST /change", &[&cookie, json], change).await.status, 403, "no Origin");
    let plain = "Content-Type: text/plain";
    assert_eq!(ui.request("POST /change", &[&cookie, &own, plain], change).await.status, 415);
    let upgrade =
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AA=="];
    let headers = [&[&*cookie, "Origin: http://evil.example"], &upgrade[..]].concat();
    assert_eq!(ui.request("GET /events", &headers, "").await.status, 403);
    let refused = ui.request("POST /change", &[&cookie, &own, json], change).await;
    assert_eq!((refused.status, refused.body.contains("the workload is gone")), (400, true), "{refused:?}");
    let preflight = ui.request("OPTIONS /change", &["Origin: http://evil.example"], "").await;
    assert!(preflight.status == 403 && !preflight.head.contains("access-control"), "{preflight:?}");
}

#[tokio::test]
async fn only_loopback_is_listened_on_and_a_port_that_is_taken_is_named() {
    let ui = of_files("loopback").await;
    let file = written("loopback", &[]);
    let port = ui.port.to_string();
    let plugin = tenure_testbed::program("kubectl-tenure").unwrap();
    let mut second = tokio::process::Command::new(plugin);
    second.args(["ui", "--no-browser", "--port", &port, "-f"]).arg(&file);
    second.env("KUBECONFIG", Path::new("/nonexistent"));
    let output = tokio::time::timeout(DEADLINE, second.output()).await.unwrap().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}: give another --port")), "{error}");
    let listening = fs::read_to_string("/proc/net/tcp").unwrap();
    let of_port =
        listening.lines().filter(|line| line.contains(&format!(":{:04X} 00000000:0000 0A", ui.port)));
    let addresses: Vec<&str> = of_port.map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(addresses, [format!("0100007F:{:04X}", ui.port)]);
}
