//! Chromium, without a window, as a person uses it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chromiumoxide::{
    Page,
    browser::{Browser, BrowserConfig},
    cdp::{
        browser_protocol::{
            accessibility::GetFullAxTreeParams,
            log::{EnableParams, EventEntryAdded},
            network::CookieParam,
            page::CaptureScreenshotFormat,
        },
        js_protocol::runtime::{EventConsoleApiCalled, EventExceptionThrown},
    },
    page::ScreenshotParams,
};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use tenure_tests::{DEADLINE, served::Ui};

/// The variable that continuous integration sets: there, a missing browser is a failure.
const CI: &str = "CI";

pub struct Chromium {
    name: String,
    browser: Browser,
    pub page: Page,
    /// What the page has complained about.
    complaints: Arc<Mutex<Vec<String>>>,
    directory: PathBuf,
}

/// The browser of the system.
fn installed() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).flat_map(|directory| names.map(|name| directory.join(name)));
    found.into_iter().find(|program| program.is_file())
}

impl Chromium {
    /// Starts a browser with an empty page. None, and a line that says so: there is none, and this isn't continuous integration.
    pub async fn open(name: &str) -> Option<Self> {
        let Some(program) = installed() else {
            assert!(env::var_os(CI).is_none(), "there is no Chromium: apt-get install chromium");
            println!("skipped: there is no Chromium");
            return None;
        };
        let directory = env::temp_dir().join(format!("tenure-chromium-{name}-{}", std::process::id()));
        let quiet = [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
        ];
        let config = BrowserConfig::builder()
            .chrome_executable(program)
            .no_sandbox()
            .user_data_dir(&directory)
            .env("TZ", "UTC")
            .launch_timeout(DEADLINE)
            .viewport(None)
            .window_size(1280, 900)
            .args(quiet);
        let (browser, mut events) = Browser::launch(config.build().unwrap()).await.unwrap();
        tokio::spawn(async move { while events.next().await.is_some() {} });
        let page = browser.new_page("about:blank").await.unwrap();
        let opened = Self { name: name.into(), browser, page, complaints: Arc::default(), directory };
        opened.listen().await;
        Some(opened)
    }

    /// Notes what the page complains about on the console.
    async fn listen(&self) {
        self.page.execute(EnableParams::default()).await.unwrap();
        let note = |complaints: &Arc<Mutex<Vec<String>>>, what: String| {
            complaints.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        };
        let (mut entries, mut thrown, mut calls) = (
            self.page.event_listener::<EventEntryAdded>().await.unwrap(),
            self.page.event_listener::<EventExceptionThrown>().await.unwrap(),
            self.page.event_listener::<EventConsoleApiCalled>().await.unwrap(),
        );
        let complaints = Arc::clone(&self.complaints);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(entry) = entries.next() => note(&complaints, format!("{:?}", entry.entry.text)),
                    Some(thrown) = thrown.next() => note(&complaints, format!("{:?}", thrown.exception_details)),
                    Some(call) = calls.next() => note(&complaints, format!("{:?}", call.args)),
                    else => return,
                }
            }
        });
    }

    /// Another tab of the same browser.
    pub async fn tab(&self, url: &str) -> Page {
        self.browser.new_page(url).await.unwrap()
    }

    /// Signs in by the file that the server has written for that.
    pub async fn sign_in(&mut self, ui: &Ui) {
        self.goto(&format!("file://{}", ui.file.display())).await;
    }

    /// Signs in by a cookie and a key that the server has given before.
    pub async fn cookie(&self, ui: &Ui, headers: &str) {
        let (cookie, key) = headers.split_once("\r\nX-Tenure-Key: ").unwrap();
        let (name, value) = cookie.strip_prefix("Cookie: ").unwrap().split_once('=').unwrap();
        // without the cookie: the page itself would ask with no key
        self.page.goto(format!("http://127.0.0.1:{}/", ui.port)).await.unwrap();
        self.value::<bool>(&format!("localStorage.setItem('tenure-key', '{key}') ?? true")).await;
        let mut cookie = CookieParam::new(name, value);
        cookie.url = Some(format!("http://127.0.0.1:{}/", ui.port));
        self.page.set_cookie(cookie).await.unwrap();
    }

    pub async fn goto(&mut self, url: &str) {
        self.page.goto(url).await.unwrap();
    }

    /// The value of an expression of the page.
    pub async fn value<T: DeserializeOwned>(&self, expression: &str) -> T {
        self.page.evaluate(expression).await.unwrap().into_value().unwrap()
    }

    /// Waits until an expression of the page is true. A picture of the page is kept if it isn't.
    pub async fn holds(&self, expression: &str) {
        let begun = Instant::now();
        loop {
            let value = self.page.evaluate(expression).await.ok();
            if value.and_then(|value| value.into_value::<bool>().ok()) == Some(true) {
                return;
            }
            if begun.elapsed() > DEADLINE {
                let picture = self.picture().await;
                let text: String = self.value("document.body.innerText").await;
                panic!("{expression}: {text}\n{:?}\n{}", self.complaints, picture.display());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows a text.
    pub async fn sees(&self, text: &str) {
        self.holds(&format!("document.body.innerText.replaceAll('\\u00a0', ' ').includes({text:?})")).await;
    }

    pub async fn click(&self, selector: &str) {
        self.holds(&format!("document.querySelector({selector:?}) !== null")).await;
        self.page.find_element(selector).await.unwrap().click().await.unwrap();
    }

    /// Clicks on the line of the list that has this text.
    pub async fn click_text(&self, text: &str) {
        self.holds(&format!(
            "(() => {{ const line = [...document.querySelectorAll('.line')].find((line) => line.innerText.includes({text:?}) && line.ariaLabel);\
             if (line) line.click(); return Boolean(line); }})()"
        ))
        .await;
    }

    /// The names that a screen reader reads, by role.
    pub async fn accessible_names(&self, role: &str) -> Vec<String> {
        let tree = self.page.execute(GetFullAxTreeParams::default()).await.unwrap();
        let text = |value: &Option<chromiumoxide::cdp::browser_protocol::accessibility::AxValue>| {
            value.as_ref().and_then(|of| of.value.as_ref()?.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let nodes = tree.result.nodes.iter().filter(|node| !node.ignored && text(&node.role) == role);
        nodes.map(|node| text(&node.name)).collect()
    }

    /// A picture of the page, in the directory of the programs.
    pub async fn picture(&self) -> PathBuf {
        let plugin = tenure_testbed::program("kubectl-tenure").unwrap();
        let directory = plugin.parent().unwrap_or(Path::new(".")).join("ui-failures");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("{}.png", self.name));
        let how = ScreenshotParams::builder().format(CaptureScreenshotFormat::Png).build();
        self.page.save_screenshot(how, &path).await.unwrap();
        path
    }

    /// Ends the browser. The page must not have complained.
    pub async fn close(mut self) {
        let complaints = std::mem::take(&mut *self.complaints.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = self.browser.close().await;
        let _ = self.browser.wait().await;
        let _ = fs::remove_dir_all(&self.directory);
        assert_eq!(complaints, Vec::<String>::new(), "{}", self.name);
    }
}
