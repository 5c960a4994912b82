//! Renders every page from a sample world, in both languages, and holds the markup to the rules of the
//! console. With `FARDEL_PAGES_OUT=folder` the pages and their files are written there for a browser to open.
//! Never needs a server.

mod agreement;
mod gone;
mod lint;
mod pictured;
mod sample;
mod whole;
mod words;

use askama::Template as _;
use serde_json::json;
use server::actions::settings::SettingStanding;

use super::layout::PageLayout;
use super::{assets, settings};
use crate::doors::text::{Language, Text};

const LANGUAGES: [Language; 2] = [Language::English, Language::Korean];

/// The sample world, and pages at greater counts, which have no budget of bytes.
fn every_page(language: Language) -> impl Iterator<Item = (String, String)> {
    let t = Text::new(language);
    let sampled = sample::pages(t).into_iter();
    let named = sampled.map(|(name, html)| (name.to_owned(), html));
    named.chain(pictured::pages(t))
}

#[test]
fn every_page_keeps_the_rules_of_markup() {
    for language in LANGUAGES {
        for (name, html) in every_page(language) {
            let faults = lint::page(&html);
            assert!(
                faults.is_empty(),
                "{name} ({language}):\n{}",
                faults.join("\n")
            );
        }
    }
}

#[test]
fn a_fragment_is_exactly_what_the_page_contains() {
    let page = sample::overview(Text::default());
    let whole = page.render().expect("sample renders");
    for (block, html) in [
        ("kpis", page.as_kpis().render()),
        ("plan", page.as_plan().render()),
        ("waiting", page.as_waiting().render()),
        ("events", page.as_events().render()),
    ] {
        let html = html.expect("block renders");
        assert!(
            !html.trim().is_empty(),
            "{block} is not empty in the sample"
        );
        assert!(
            whole.contains(html.trim()),
            "{block} is not in the page as it is sent alone"
        );
    }
}

#[test]
fn who_only_reads_settings_has_no_button_that_sends_mail() {
    let mut page = sample::settings_page(Text::default());
    page.groups[0].tries_mail = true;
    page.refused_mail = 2;
    for may in [true, false] {
        page.may_send_mail = may;
        let html = page.render().expect("sample renders");
        for action in ["mail-test", "mail-retry"] {
            let form = format!("/system/settings/{action}");
            assert_eq!(html.contains(&form), may, "{action}");
        }
        // That mail was refused is for all who may look.
        assert!(html.contains(&page.t.mail_refused(2_u64)), "{may}");
    }
}

#[test]
fn what_came_of_a_test_mail_is_said_at_its_form() {
    let f = PageLayout {
        notice: Some("it was sent".to_owned()),
        ..sample::settings_page(Text::default()).f
    };
    let standing = SettingStanding {
        key: "mail_server",
        variable: "FARDEL_MAIL_SERVER",
        needs_restart: false,
        value: None,
        default: None,
        waiting: None,
        source: None,
        may_change: true,
        undo: None,
    };
    let asked = serde_json::from_value(json!({"notice": "mail-works"})).expect("a query");
    let mut page = settings::page(f, &[standing], &asked, None, String::new());
    page.may_send_mail = true;
    let html = page.render().expect("sample renders");
    assert_eq!(html.matches("it was sent").count(), 1, "{html}");
    let said = html.find("it was sent").expect("it is said");
    assert!(said < html.find("id=\"mail-trial\"").expect("the form"));
}

#[test]
fn korean_pages_speak_korean() {
    for (name, html) in every_page(Language::Korean) {
        assert!(html.contains("<html lang=\"ko\""), "{name}");
        // Every English sentence of the menu would betray a text outside the catalogue.
        for english in [
            "Overview",
            "Sessions",
            "Launch session",
            "Sign in",
            "Memory<",
            "Waiting",
        ] {
            assert!(!html.contains(english), "{name} says {english:?} in Korean");
        }
    }
}

#[test]
fn pages_stay_within_their_bytes() {
    for language in LANGUAGES {
        for (name, html) in sample::pages(Text::new(language)) {
            let size = compressed(html.as_bytes());
            assert!(
                size <= 15 * 1024,
                "{name} ({language}) takes {size} bytes compressed; the budget is 15 KiB"
            );
        }
    }
}

#[test]
#[ignore = "writes files for a user to look at: FARDEL_PAGES_OUT=folder, -- --ignored"]
fn pages_are_written_for_the_browser_when_asked() {
    let folder = std::env::var_os("FARDEL_PAGES_OUT").map(std::path::PathBuf::from);
    let folder = folder.expect("FARDEL_PAGES_OUT names a folder");
    for language in LANGUAGES {
        let place = folder.join(language.code());
        std::fs::create_dir_all(&place).expect("folder");
        for (name, html) in every_page(language) {
            std::fs::write(place.join(format!("{name}.html")), html).expect("page");
        }
    }
    for (name, bytes) in assets::all() {
        let path = folder.join("a").join(assets::BUILD).join(&name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder");
        std::fs::write(path, bytes).expect("file");
    }
}

fn compressed(bytes: &[u8]) -> usize {
    use std::io::Write as _;
    let mut packed = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut packed, 1 << 14, 6, 22);
    writer.write_all(bytes).expect("writing to memory");
    drop(writer);
    packed.len()
}
