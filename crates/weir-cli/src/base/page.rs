//! An HTML page that needs nothing but itself.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page. `scripts` says whether the browser runs what is in it; it loads nothing. Text is escaped by the templates.
pub fn page(title: &str, style: &str, scripts: bool, body: &Markup) -> String {
    let scripts = if scripts { " script-src 'unsafe-inline';" } else { "" };
    let policy = format!("default-src 'none'; style-src 'unsafe-inline';{scripts} base-uri 'none'; form-action 'none'");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { (body) footer { "weir " (env!("CARGO_PKG_VERSION")) } }
        }
    };
    page.into_string() + "\n"
}
