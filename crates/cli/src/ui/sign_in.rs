//! Signs browsers in.
//!
//! Called by the server. The code goes from this process to the browser in a file that only its user may
//! read, and from there in the body of a request: it appears in no command line, no history and no Referer.

use std::{env, fmt::Write as _, fs::OpenOptions, io::Write as _, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;

/// The number of random bytes of a code and of a cookie.
const BYTES: usize = 24;

/// The code for the next browser, and the cookie and the key of each browser that has signed in.
#[derive(Debug)]
pub struct SignIn {
    /// The code for the next browser. Changed once it is used.
    code: Mutex<String>,
    /// The cookie of all browsers that have signed in.
    cookie: String,
    /// The name of the cookie, with the port: several pages may be served on one machine.
    cookie_name: String,
    /// The key of the page. Browsers send cookies to each port of a host, also to one where another
    /// user listens. Only the page has this key.
    key: String,
    /// The file that signs a browser in. None: not written, or removed.
    file: Mutex<Option<PathBuf>>,
}

impl SignIn {
    /// Returns new secrets for a server with this address.
    pub fn new(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            code: Mutex::new(random()?),
            cookie: random()?,
            cookie_name: format!("tenure-ui-{}", address.port()),
            key: random()?,
            file: Mutex::default(),
        })
    }

    /// Returns the code for the next browser.
    pub fn code(&self) -> String {
        self.code.lock().clone()
    }

    /// Returns the value of header Set-Cookie and the key of the page for a browser that has the
    /// code. None: the code is wrong. Each code is good once: the next browser needs another one.
    pub fn exchange(&self, code: &str) -> Result<Option<(String, &str)>> {
        let mut known = self.code.lock();
        if !is_equal(&known, code.trim()) {
            return Ok(None);
        }
        *known = random()?;
        drop(known);
        self.remove_file();
        let Self { cookie_name, cookie, key, .. } = self;
        Ok(Some((format!("{cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict"), key)))
    }

    /// True if a request with these cookies is of a browser that has signed in.
    pub fn knows(&self, cookies: &str) -> bool {
        let mut cookies = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        cookies.any(|(name, value)| name == self.cookie_name && is_equal(value, &self.cookie))
    }

    /// True if a text is the key of the page.
    pub fn is_key(&self, key: &str) -> bool {
        is_equal(key, &self.key)
    }

    /// Writes the file that signs a browser in, and returns its path. Only its user may read it. It
    /// is removed after its use, or when the server ends.
    pub fn write_file(&self, address: SocketAddr) -> Result<PathBuf> {
        let path = env::temp_dir().join(format!("tenure-ui-{}.html", random()?));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let failed = || format!("cannot write {}", path.display());
        let mut file = options.open(&path).with_context(failed)?;
        *self.file.lock() = Some(path.clone());
        file.write_all(
            format!(
                "<!doctype html><meta charset=utf-8><title>Tenure</title>\n\
                 <form method=post action=\"http://{address}/sign-in\"><input type=hidden name=code value={}>\
                 <button>Open Tenure</button></form>\n<script>document.forms[0].submit()</script>\n",
                self.code()
            )
            .as_bytes(),
        )
        .with_context(failed)?;
        Ok(path)
    }

    /// Removes the file, if there is one.
    fn remove_file(&self) {
        if let Some(path) = self.file.lock().take() {
            // the file may be gone already
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for SignIn {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Opens a file in the user's browser: that of `$BROWSER`, if it is set.
pub fn open(path: &PathBuf) -> Result<()> {
    match env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        Some(browser) => open::with_detached(path, browser.to_string_lossy())?,
        None => open::that_detached(path)?,
    }
    Ok(())
}

/// Returns 24 random bytes as hexadecimal text.
fn random() -> Result<String> {
    let mut bytes = [0; BYTES];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| anyhow!("the system has no random numbers"))?;
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// Compares texts of equal length in a time that doesn't depend on the place of their first difference.
fn is_equal(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_exchanged_once_for_a_cookie_that_no_other_port_gave() {
        let sign_in = SignIn::new(SocketAddr::from(([127, 0, 0, 1], 8001))).unwrap();
        let code = sign_in.code();
        for bad in ["", "x", &code[1..], &format!("{code}0")] {
            assert_eq!(sign_in.exchange(bad).unwrap(), None, "{bad}");
        }
        let (cookie, key) = sign_in.exchange(&code).unwrap().unwrap();
        assert!(sign_in.is_key(key) && !sign_in.is_key(&code) && !cookie.contains(key));
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"));
        assert_eq!(sign_in.exchange(&code).unwrap(), None, "it was taken");
        let (pair, _) = cookie.split_once(';').unwrap();
        assert!(sign_in.knows(pair) && sign_in.knows(&format!("a=b; {pair}")));
        let (name, value) = pair.split_once('=').unwrap();
        assert_eq!(name, "tenure-ui-8001");
        for bad in ["", value, name, &format!("{name}="), &format!("{name}={code}"), &format!("x{pair}")] {
            assert!(!sign_in.knows(bad), "{bad}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_for_its_user_alone_and_goes_with_its_use() {
        use std::os::unix::fs::PermissionsExt;
        let address = SocketAddr::from(([127, 0, 0, 1], 8001));
        let sign_in = SignIn::new(address).unwrap();
        let path = sign_in.write_file(address).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().contains(&sign_in.code()));
        assert!(sign_in.exchange(&sign_in.code()).unwrap().is_some());
        assert!(!path.exists());
    }
}
