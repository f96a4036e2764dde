//! The page, embedded, and as one file with all that it shows.
//!
//! Called by the server for each of the page's files, and by `ui --export`. The files are part of
//! the program: nothing is loaded from another host.

use anyhow::Result;

use super::content::PageLook;

pub const PAGE: &str = include_str!("page/index.html");
pub const SIGN_IN: &str = include_str!("page/sign-in.html");
/// The answer to a code. It stores the key where pages and servers of other ports don't see it, and
/// opens the page.
pub const SIGNED_IN: &str = "<!doctype html><meta charset=utf-8><title>Tenure</title><body data-key=KEY><script src=signed-in.js></script>";
/// The script of that answer.
pub const SIGNED_IN_SCRIPT: &str =
    "localStorage.setItem(\"tenure-key\", document.body.dataset.key); location.replace(\"/\");\n";
pub const SCRIPT: &str = include_str!("page/page.js");
pub const STYLE: &str = include_str!("page/page.css");
/// Preact with htm.
pub const VENDOR: &str = include_str!("page/vendor/htm-preact.js");

/// The Content-Security-Policy of the page: it may load its own files alone.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                          form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The links of the page to its other files, with the texts of these.
const LINKS: [(&str, &str); 3] = [
    ("<link rel=\"stylesheet\" href=\"page.css\">", STYLE),
    ("<script src=\"vendor.js\" defer></script>", VENDOR),
    ("<script src=\"page.js\" defer></script>", SCRIPT),
];

/// Returns the page as one file, which loads nothing, with the data of a read in it.
pub fn exported(content: &PageLook) -> Result<String> {
    // only `<` could end the script in which the data stands
    let data = serde_json::to_string(content)?.replace('<', "\\u003c");
    let [style, vendor, script] = LINKS.map(|(_, text)| text);
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";
    let head = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let data = format!("<script type=\"application/json\" id=\"exported\">{data}</script>");
    let ends = format!("{data}<script>{vendor}</script><script>{script}</script></body>");
    let mut page = PAGE.replace("<meta charset=\"utf-8\">", &format!("<meta charset=\"utf-8\">{head}"));
    for (link, _) in LINKS {
        page = page.replace(link, "");
    }
    Ok(page.replace("</head>", &format!("<style>{style}</style></head>")).replace("</body>", &ends))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_exported_page_is_one_file_whose_data_can_not_end_its_script() {
        let name = "</script><script>alert(1)</script>";
        let content =
            PageLook { rows: [(name.to_owned(), json!({"queue": name}))].into(), ..PageLook::default() };
        let page = exported(&content).unwrap();
        assert!(!page.contains("alert(1)</script>"), "{page}");
        assert!(LINKS.iter().all(|(link, _)| PAGE.contains(link) && !page.contains(link)));
        assert!(!page.contains("src=\""));
    }

    #[test]
    fn all_files_of_the_page_are_small() {
        let bytes: usize = [PAGE, SIGN_IN, SCRIPT, STYLE, VENDOR].iter().map(|text| text.len()).sum();
        assert!(bytes <= 150_000, "{bytes}");
    }
}
