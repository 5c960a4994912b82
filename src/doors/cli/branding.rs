//! The commands on how the site looks.

use std::path::Path;

use api::branding::BrandingView;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use rules::branding::MAX_LOGO_BYTES;
use serde_json::{Map, Value};

use super::answer::Answer;
use super::args::BrandingCommand;
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::print;

const PATH: &str = "/api/v1/branding";

pub(super) async fn branding(
    client: &HttpClient,
    view: &OutputStyle,
    request: BrandingCommand,
) -> Result<u8, CliError> {
    let answer = match request {
        BrandingCommand::Show => client.read::<BrandingView>(PATH).await?,
        BrandingCommand::Reset => {
            let reset = client.call(Method::DELETE, PATH, Extra::default()).await?;
            Answer::of(reset.json()?)?
        }
        BrandingCommand::Set(wanted) => {
            let mut patch = Map::new();
            for (name, value) in [
                ("name", wanted.name),
                ("footer", wanted.footer),
                ("footer_ko", wanted.footer_korean),
                ("sign_in", wanted.sign_in),
                ("sign_in_ko", wanted.sign_in_korean),
            ] {
                patch.extend(value.map(|value| (name.to_owned(), Value::from(value))));
            }
            if let Some(hue) = wanted.hue {
                let hue = match hue.as_str() {
                    "none" => Value::Null,
                    hue => hue.parse::<u8>().map_or_else(|_| hue.into(), Value::from),
                };
                patch.insert("hue".to_owned(), hue);
            }
            if let Some(logo) = &wanted.logo {
                patch.insert("logo".to_owned(), encoded_logo(logo)?);
            }
            let now = client.call(Method::GET, PATH, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, PATH, extra).await?;
            Answer::of(changed.json()?)?
        }
    };
    print(&view.said(&answer.body, &told(&answer.read))?);
    Ok(0)
}

/// The file in base64; `none` takes the logo away.
fn encoded_logo(file: &Path) -> Result<Value, CliError> {
    if file.as_os_str() == "none" {
        return Ok(Value::Null);
    }
    let shown = file.display();
    let size =
        std::fs::metadata(file).map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
    if size.len() > MAX_LOGO_BYTES as u64 {
        let most = MAX_LOGO_BYTES / 1024;
        return Err(CliError::usage(format!(
            "{shown} is larger than {most} KiB."
        )));
    }
    let bytes =
        std::fs::read(file).map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
    Ok(STANDARD.encode(bytes).into())
}

/// What is the site's own, a line each.
fn told(branding: &BrandingView) -> String {
    let mut lines = String::new();
    let hue = branding.hue.map(|hue| hue.to_string()).unwrap_or_default();
    let logo = if branding.has_logo { "own" } else { "" };
    for (title, value) in [
        ("name", branding.name.as_str()),
        ("logo", logo),
        ("hue", hue.as_str()),
        ("footer", branding.footer.as_str()),
        ("footer, Korean", branding.footer_ko.as_str()),
        ("sign-in", branding.sign_in.as_str()),
        ("sign-in, Korean", branding.sign_in_ko.as_str()),
    ] {
        let value = if value.is_empty() { "-" } else { value };
        lines.push_str(&format!("{title:<16} {value}\n"));
    }
    lines
}
