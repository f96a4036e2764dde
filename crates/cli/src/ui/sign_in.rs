//! Signs browsers in. The code goes from this process to the browser in a file that only its user may read, and from there in the
//! body of a request: it stands in no command line, no history and no Referer.

use std::{env, fmt::Write as _, fs::OpenOptions, io::Write as _, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;

/// The number of random bytes of a code and of a cookie.
const BYTES: usize = 24;

/// The code for the next browser, and the cookie and the key of each browser that has signed in.
#[derive(Debug)]
pub struct SignIn {
    code: Mutex<String>,
    cookie: String,
    cookie_name: String,
    /// Browsers send cookies to each port of a host, also to one where another user listens. Only the page has this key.
    key: String,
    file: Mutex<Option<PathBuf>>,
}

impl SignIn {
    pub fn new(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            code: Mutex::new(random()?),
            cookie: random()?,
            cookie_name: format!("tenure-ui-{}", address.port()),
            key: random()?,
            file: Mutex::default(),
        })
    }

    pub fn code(&self) -> String {
        self.code.lock().clone()
    }

    /// Returns the cookie and the key for the browser that has the code. Each code is taken once: the next browser needs another.
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

    /// True if this is the key of the page.
    pub fn is_key(&self, key: &str) -> bool {
        is_equal(key, &self.key)
    }

    /// Writes the file that signs a browser in. Only its user may read it, and it is removed once it was used.
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

    fn remove_file(&self) {
        if let Some(path) = self.file.lock().take() {
            // it may be gone
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for SignIn {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Opens a file in the browser of the user: in that of `$BROWSER`, if that is set.
pub fn open(path: &PathBuf) -> Result<()> {
    match env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        Some(browser) => open::with_detached(path, browser.to_string_lossy())?,
        None => open::that_detached(path)?,
    }
    Ok(())
}

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

/// Compares in a time that doesn't depend on where the texts differ.
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
