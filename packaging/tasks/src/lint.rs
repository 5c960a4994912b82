//! Reads the page templates for what the content security policy, a screen reader or a browser
//! without script would stumble over. Knows HTML's tags, not askama's logic: expressions count as a
//! word, blocks as nothing.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const FOLDER: &str = "web/templates";

/// Checks every template below `web/templates`.
pub(crate) fn templates() -> Result<(), Failure> {
    let mut files = Vec::new();
    collect(Path::new(FOLDER), &mut files)
        .map_err(|error| Failure::new(format!("{FOLDER} cannot be read: {error}")))?;
    files.sort();
    let mut told = String::new();
    for file in &files {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", file.display())))?;
        for (line, sentence) in faults(&text) {
            // Writing to a string cannot fail.
            let _ = writeln!(told, "{}:{line}: {sentence}", file.display());
        }
    }
    println!("{} templates", files.len());
    if told.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!("\n{told}")))
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            files.push(path);
        }
    }
    Ok(())
}

struct Tag {
    name: String,
    line: usize,
    attributes: Vec<(String, String)>,
    /// Where the text behind the tag begins.
    end: usize,
}

impl Tag {
    fn value(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Lists what is wrong in one template, with line numbers.
fn faults(template: &str) -> Vec<(usize, String)> {
    let html = without_askama(template);
    let mut found = Vec::new();
    for tag in tags(&html) {
        let mut tell = |sentence: &str| found.push((tag.line, sentence.to_owned()));
        for (name, value) in &tag.attributes {
            let handler = name.starts_with("on") && name[2..].chars().all(char::is_alphabetic);
            if name == "style" {
                tell("style= is refused by the content security policy: use a class");
            } else if (handler && name.len() > 2) || name.starts_with("hx-on") {
                tell(&format!(
                    "{name}= is refused by the content security policy: use a script file"
                ));
            }
            let trimmed = value.trim_start();
            if trimmed.starts_with("javascript:") || trimmed.starts_with("js:") {
                tell(&format!(
                    "{name}= holds script, which the content security policy refuses"
                ));
            }
            let address = matches!(
                name.as_str(),
                "href" | "src" | "action" | "formaction" | "poster" | "srcset" | "data"
            ) || (name.starts_with("hx-") && !name.starts_with("hx-vals"));
            let absolute = ["http://", "https://", "//"];
            if address && absolute.iter().any(|start| trimmed.starts_with(start)) {
                tell(&format!(
                    "{name}= leads to another host, and there is no network"
                ));
            }
        }
        match tag.name.as_str() {
            "style" => {
                tell("<style> is refused by the content security policy: use the style sheet")
            }
            "script" => {
                let body = html[tag.end..].split("</script").next().unwrap_or_default();
                if !body.trim().is_empty() {
                    tell("<script> has a body, which the content security policy refuses");
                }
            }
            "svg" => {
                let hidden = tag.value("aria-hidden") == Some("true");
                let labelled =
                    tag.value("aria-label").is_some() || tag.value("aria-labelledby").is_some();
                if !hidden && !labelled {
                    tell("<svg> is neither hidden from a screen reader nor labelled");
                }
            }
            "img" if tag.value("alt").is_none() => tell("<img> has no alt="),
            "form" => {
                let dialog = tag.value("method") == Some("dialog");
                if !dialog && (tag.value("method").is_none() || tag.value("action").is_none()) {
                    tell("<form> has no method= or no action=, so it does nothing without script");
                }
            }
            _ => {}
        }
    }
    found
}

/// The template with expressions as a word and blocks and comments as blanks; lines stay.
fn without_askama(template: &str) -> String {
    let mut html = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(begin) = rest.find('{') {
        let end = match rest.as_bytes()[begin..] {
            [b'{', b'{', ..] => "}}",
            [b'{', b'%', ..] => "%}",
            [b'{', b'#', ..] => "#}",
            _ => {
                html.push_str(&rest[..=begin]);
                rest = &rest[begin + 1..];
                continue;
            }
        };
        html.push_str(&rest[..begin]);
        let length = rest[begin..]
            .find(end)
            .map_or(rest.len() - begin, |at| at + 2);
        let inside = &rest[begin..begin + length];
        html.push_str(if end == "}}" { "x" } else { " " });
        html.extend(inside.chars().filter(|&letter| letter == '\n'));
        rest = &rest[begin + length..];
    }
    html.push_str(rest);
    html
}

fn tags(html: &str) -> Vec<Tag> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = html[at..].find('<').map(|offset| at + offset) {
        if html[begin..].starts_with("<!--") {
            at = html[begin..]
                .find("-->")
                .map_or(html.len(), |offset| begin + offset + 3);
            continue;
        }
        let name: String = html[begin + 1..]
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        if name.is_empty() {
            at = begin + 1;
            continue;
        }
        let line = html[..begin].matches('\n').count() + 1;
        let (attributes, end) = attributes(html, begin + 1 + name.len());
        found.push(Tag {
            name: name.to_ascii_lowercase(),
            line,
            attributes,
            end,
        });
        at = end;
    }
    found
}

/// The attributes from `at` on, and the index behind the closing `>`.
fn attributes(html: &str, mut at: usize) -> (Vec<(String, String)>, usize) {
    let mut found = Vec::new();
    loop {
        let rest = &html[at..];
        let Some(first) = rest.find(|letter: char| !letter.is_whitespace() && letter != '/') else {
            return (found, html.len());
        };
        at += first;
        if html[at..].starts_with('>') {
            return (found, at + 1);
        }
        let length = html[at..]
            .find(|letter: char| letter.is_whitespace() || matches!(letter, '=' | '>' | '/'))
            .unwrap_or(html.len() - at)
            // A stray sign is taken as a name of its own, so that the scan goes on.
            .max(1);
        let name = html[at..at + length].to_ascii_lowercase();
        at += length;
        let mut value = String::new();
        if html[at..].starts_with('=') {
            at += 1;
            let quote = html[at..]
                .chars()
                .next()
                .filter(|letter| matches!(letter, '"' | '\''));
            match quote {
                Some(quote) => {
                    let inside = &html[at + 1..];
                    let length = inside.find(quote).unwrap_or(inside.len());
                    value.push_str(&inside[..length]);
                    at = (at + length + 2).min(html.len());
                }
                None => {
                    let length = html[at..]
                        .find(|letter: char| letter.is_whitespace() || letter == '>')
                        .unwrap_or(html.len() - at);
                    value.push_str(&html[at..at + length]);
                    at += length;
                }
            }
        }
        found.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: &[(usize, &str)]) {
        let found = faults(template);
        let found: Vec<(usize, &str)> = found
            .iter()
            .map(|(line, sentence)| (*line, sentence.as_str()))
            .collect();
        assert_eq!(found.len(), expected.len(), "{template}: {found:?}");
        for ((line, sentence), (wanted_line, part)) in found.iter().zip(expected) {
            assert!(
                line == wanted_line && sentence.contains(part),
                "{template}: {found:?}"
            );
        }
    }

    #[test]
    fn a_clean_page_has_no_fault() {
        check(
            "{% extends \"base.html\" %}\n\
             <form method=\"post\" action=\"/sessions/{{ id }}/stop\" {% if a > b %}hidden{% endif %}>\n\
             <svg aria-hidden=\"true\" xmlns=\"http://www.w3.org/2000/svg\"><use href=\"#i\"/></svg>\n\
             <svg aria-label='{{ t(\"x\") }}'></svg><script type=module src=\"/a/app.js\"></script>\n\
             <a href=\"/one\">on style= hx-on</a><dialog><form method=\"dialog\"></form></dialog>\n\
             <!-- <div style=\"x\"> --><input name=\"on\" data-style=\"x\"></form>",
            &[],
        );
    }

    #[test]
    fn each_fault_is_told_with_its_line() {
        let table: [(&str, &[(usize, &str)]); 12] = [
            ("<p>\n<p style=\"color:red\">", &[(2, "style=")]),
            ("<b\n onclick=go()>", &[(1, "onclick=")]),
            ("<b hx-on:click=\"go()\">", &[(1, "hx-on:click=")]),
            ("<b hx-vals='js:{a: 1}'>", &[(1, "holds script")]),
            ("<a href=\"javascript:go()\">", &[(1, "holds script")]),
            (
                "{# \n #}<a href=https://example.com>",
                &[(2, "another host")],
            ),
            (
                "<img alt=\"\" src=\"//example.com/x.png\">",
                &[(1, "another host")],
            ),
            ("<script>go()</script>", &[(1, "has a body")]),
            ("<style>p{}</style>", &[(1, "<style>")]),
            (
                "{% if x %}\n{% endif %}<svg role=\"img\"></svg>",
                &[(2, "neither hidden")],
            ),
            ("<form action=\"/x\"></form>", &[(1, "no method=")]),
            ("<img src=\"{{ src }}\">", &[(1, "no alt=")]),
        ];
        for (template, expected) in table {
            check(template, expected);
        }
    }

    #[test]
    fn a_broken_page_ends_the_scan_without_a_panic() {
        for template in [
            "<",
            "<a",
            "<a href",
            "<a href=",
            "<a href=\"x",
            "{{",
            "{%",
            "<a =>",
            "<가 한=글>",
        ] {
            let _ = faults(template);
        }
    }
}
