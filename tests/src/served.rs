//! A server of the page that runs, and requests to it, byte by byte as an attacker sends them.
//! Tests of `kubectl tenure ui` check by it who may read what.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tenure_testbed::program;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, Command},
    task::spawn_blocking,
    time::timeout,
};

use crate::DEADLINE;

/// `kubectl tenure ui --no-browser`, as a person runs it. Its drop kills the process.
pub struct Ui {
    child: Child,
    /// The port on loopback.
    pub port: u16,
    /// The code that signs a browser in.
    pub code: String,
    /// The file that signs a browser in when it is opened.
    pub file: PathBuf,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    /// The code of HTTP.
    pub status: u16,
    /// The first line and the headers, in small letters.
    pub head: String,
    /// The text after the headers.
    pub body: String,
}

impl Ui {
    /// Starts the server, and waits until it has said how to sign in. Without a kubeconfig the
    /// `arguments` must name files.
    pub async fn start(kubeconfig: Option<&Path>, arguments: &[&str]) -> Self {
        let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
        let mut command = Command::new(plugin);
        command.args(["ui", "--no-browser"]).args(arguments).kill_on_drop(true).stderr(Stdio::piped());
        command.env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/nonexistent")));
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut port, mut file, mut said) = (0, PathBuf::new(), Vec::new());
        let code = loop {
            let line = timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
            let line = line.unwrap_or_else(|| panic!("it has ended: {said:?}"));
            if let Some(address) = line.strip_prefix("The page is at http://127.0.0.1:") {
                port = address.split('/').next().unwrap().parse().unwrap();
            } else if let Some((_, rest)) = line.split_once("On this machine, open ") {
                file = rest.split(" in a browser").next().unwrap().into();
            } else if let Some((_, code)) = line.split_once("sign in with the code ") {
                break code.to_owned();
            }
            said.push(line);
        };
        // a full pipe would stop the server
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, port, code, file }
    }

    /// Returns the id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends a request; the headers are lines. Waits for the end of the answer, or for the first
    /// event of a stream. `Host` is set unless the headers have it.
    pub async fn request(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let host = format!("Host: 127.0.0.1:{}", self.port);
        let host = if headers.iter().any(|of| of.starts_with("Host:")) { Vec::new() } else { vec![&*host] };
        let length = format!("Content-Length: {}", body.len());
        let lines = [&host[..], headers, &[&length, "Connection: close"]].concat().join("\r\n");
        stream.write_all(format!("{line} HTTP/1.1\r\n{lines}\r\n\r\n{body}").as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = async {
            while stream.read_buf(&mut bytes).await.unwrap() > 0 {
                let text = String::from_utf8_lossy(&bytes);
                if text.contains("text/event-stream") && text.contains("\n\n") && text.contains("data: ") {
                    break;
                }
            }
        };
        timeout(DEADLINE, read).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Signs in, and returns the header lines with the cookie and the key.
    pub async fn sign_in(&self) -> String {
        let form = ["Content-Type: application/x-www-form-urlencoded", "Origin: null"];
        let answer = self.request("POST /sign-in", &form, &format!("code={}", self.code)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie =
            answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
        assert!(cookie.ends_with("; path=/; httponly; samesite=strict"), "{cookie}");
        let (_, key) = answer.body.split_once("data-key=").unwrap();
        let key = key.split('>').next().unwrap();
        format!("Cookie: {}\r\nX-Tenure-Key: {key}", cookie.split(';').next().unwrap())
    }

    /// Opens a stream of events, as a page does. The stream goes on until it is dropped.
    pub async fn stream(&self, cookie: &str) -> Lines<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = format!("GET /events HTTP/1.1\r\nHost: localhost\r\n{cookie}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        BufReader::new(stream).lines()
    }

    /// Returns the first event, which has all that a page shows when it opens.
    pub async fn first_event(&self, cookie: &str) -> Value {
        let answer = self.request("GET /events", &[cookie], "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let data = answer.body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str(data).unwrap()
    }
}
