//! What no page may contain: style attributes, handlers, inline script, addresses elsewhere, unnamed pictures,
//! forms that need script, one id twice.

use std::collections::BTreeSet;

/// Every breach in one rendered page, in words; empty when it keeps the rules.
pub(super) fn page(html: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    let mut titles = 0;
    for tag in tags(html) {
        let name = tag
            .trim_start_matches('<')
            .split([' ', '>', '\n', '/'])
            .next()
            .unwrap_or_default()
            .to_owned();
        if name == "h1" {
            titles += 1;
        }
        for (attribute, value) in attributes(tag) {
            match attribute.as_str() {
                "style" => faults.push(format!("style attribute: {tag}")),
                "id" if !ids.insert(value.clone()) => {
                    faults.push(format!("id {value} twice: {tag}"))
                }
                a if a.starts_with("on") => faults.push(format!("handler: {tag}")),
                a if a.starts_with("hx-on") => faults.push(format!("hx-on: {tag}")),
                "href" | "src" | "action" if value.contains("//") => {
                    faults.push(format!("absolute address: {tag}"))
                }
                _ => {}
            }
            if value.trim_start().starts_with("js:")
                || value.trim_start().starts_with("javascript:")
            {
                faults.push(format!("script in a value: {tag}"));
            }
        }
        let has = |wanted: &str| {
            attributes(tag)
                .iter()
                .any(|(attribute, _)| attribute == wanted)
        };
        match name.as_str() {
            "svg" if !has("aria-hidden") && !has("aria-label") => {
                faults.push(format!("picture without words: {tag}"))
            }
            "form" if !has("action") || !has("method") => {
                faults.push(format!("form without action and method: {tag}"))
            }
            "style" => faults.push(format!("style element: {tag}")),
            "script" if !has("src") => faults.push(format!("inline script: {tag}")),
            _ => {}
        }
    }
    if titles != 1 {
        faults.push(format!("{titles} titles of the first level"));
    }
    for landmark in ["<main ", "<html lang=", "<title>"] {
        if !html.contains(landmark) {
            faults.push(format!("lacks {landmark}"));
        }
    }
    faults
}

/// Opening tags with their attributes, in order.
fn tags(html: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let tag = &rest[start..];
        let mut quote = None;
        let end = tag.char_indices().find_map(|(at, c)| match (quote, c) {
            (None, '"' | '\'') => {
                quote = Some(c);
                None
            }
            (Some(open), c) if c == open => {
                quote = None;
                None
            }
            (None, '>') => Some(at),
            _ => None,
        });
        let Some(end) = end else { break };
        if tag[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            found.push(&tag[..=end]);
        }
        rest = &tag[end + 1..];
    }
    found
}

fn attributes(tag: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let inside = tag
        .trim_start_matches('<')
        .trim_end_matches('>')
        .trim_end_matches('/');
    let mut rest = inside
        .split_once([' ', '\n'])
        .map_or("", |(_, rest)| rest)
        .trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', '\n']).unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let mut value = String::new();
        if let Some(after) = rest.strip_prefix('=') {
            if let Some(quoted) = after.strip_prefix('"') {
                let close = quoted.find('"').unwrap_or(quoted.len());
                value = quoted[..close].to_owned();
                rest = quoted.get(close + 1..).unwrap_or_default();
            } else {
                let close = after.find([' ', '\n']).unwrap_or(after.len());
                value = after[..close].to_owned();
                rest = &after[close..];
            }
        }
        if !name.is_empty() {
            found.push((name, value));
        }
        rest = rest.trim_start();
    }
    found
}

#[test]
fn the_lint_finds_planted_breaches() {
    let good = "<html lang=\"en\"><title>x</title><main id=\"m\"><h1>x</h1></main>";
    assert!(page(good).is_empty(), "{:?}", page(good));
    for planted in [
        "<p style=\"a\">",
        "<a onclick=\"x\">",
        "<a hx-on:click=\"x\">",
        "<script>x</script>",
        "<img src=\"https://x/\">",
        "<svg viewBox=\"0\">",
        "<form action=\"/x\">",
        "<p id=\"m\">",
        "<a hx-vals=\"js:x\">",
        "<h1>two</h1>",
        "<style>",
    ] {
        assert_eq!(page(&format!("{good}{planted}")).len(), 1, "{planted}");
    }
}

/// A reader finds an entry of the menu by its picture.
#[test]
fn no_two_places_of_the_administrators_menu_share_an_icon() {
    let menu = include_str!("../../../../web/templates/parts/menu.html");
    let own = menu.split("t.nav_group_box()").nth(1).expect("a group");
    let own = own.split("t.nav_group_help()").next().expect("its end");
    let mut icons = std::collections::BTreeMap::new();
    for entry in own.split("<a ").skip(1) {
        let between = |begin: &str| {
            let rest = entry.split(begin).nth(1).expect("it is there");
            rest.split('"').next().expect("it ends")
        };
        let (place, icon) = (between("href=\""), between("icon(\""));
        assert_eq!(icons.insert(icon, place), None, "{icon} of {place}");
    }
    assert!(icons.len() > 5, "{icons:?}");
}
