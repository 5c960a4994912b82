//! Finishes the style sheet: the system theme, the width classes, and a small minifier.
//! Knows just enough CSS for our own sheets; a sheet from elsewhere belongs in `web/vendor`.

/// The sheet a browser gets: sources in order, dark rules repeated for "as the system says", `.w-0` to
/// `.w-100` with `.t-1` to `.t-9`, white space removed.
pub(crate) fn finish(sheets: &str) -> String {
    let plain = without_comments(sheets);
    let mut whole = plain.clone();
    whole.push_str(&system_theme(&plain));
    for percent in 0..=100 {
        whole.push_str(&format!(
            ".w-{percent}{{width:calc({percent}% + var(--tenth,0%))}}"
        ));
    }
    // Tenths of a per cent beside it, and not for what lies inside.
    for tenth in 1..10 {
        whole.push_str(&format!(".t-{tenth}{{--tenth:.{tenth}%}}"));
    }
    whole.push_str(".sl i{--tenth:0%}");
    squeeze(&whole)
}

/// Every rule for the dark theme once more, for `data-theme=system` when the system is dark. Written once
/// in the sources, so the two can never differ.
fn system_theme(sheet: &str) -> String {
    const DARK: &str = ":root[data-theme=dark]";
    let mut rules = String::new();
    let mut rest = sheet;
    while let Some(start) = rest.find(DARK) {
        let rule = &rest[start..];
        let end = rule.find('}').expect("every rule ends") + 1;
        rules.push_str(&rule[..end].replace(DARK, ":root[data-theme=system]"));
        rest = &rule[end..];
    }
    format!("@media (prefers-color-scheme:dark){{{rules}}}")
}

fn without_comments(sheet: &str) -> String {
    let mut kept = String::with_capacity(sheet.len());
    let mut rest = sheet;
    while let Some(start) = rest.find("/*") {
        kept.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        rest = &after[after.find("*/").expect("every comment ends") + 2..];
    }
    kept.push_str(rest);
    kept
}

/// Removes white space that means nothing. Strings stay as they are; a space inside a selector or a value
/// (`a b`, `calc(1px + 2px)`) stays one space.
fn squeeze(sheet: &str) -> String {
    let mut out = String::with_capacity(sheet.len());
    let mut quote: Option<char> = None;
    let mut gap = false;
    for c in sheet.chars() {
        if let Some(open) = quote {
            out.push(c);
            if c == open {
                quote = None;
            }
            continue;
        }
        if c.is_whitespace() {
            gap = true;
            continue;
        }
        if gap {
            let tight = |c: char| matches!(c, '{' | '}' | ';' | ',' | '>');
            if !tight(c) && !out.ends_with(tight) && !out.ends_with(':') && !out.is_empty() {
                out.push(' ');
            }
            gap = false;
        }
        if c == '}' && out.ends_with(';') {
            out.pop();
        }
        if c == '"' || c == '\'' {
            quote = Some(c);
        }
        out.push(c);
    }
    out
}
