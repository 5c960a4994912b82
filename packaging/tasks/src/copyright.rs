//! The copyright file: who made what is inside, under which terms, with every text that a licence asks
//! to be carried along. Texts that Debian keeps on every machine are named instead of repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::packages::{self, Linked};
use crate::vendored;

/// How files with terms begin, whatever follows and in whatever case.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
const APACHE: &str = "[The Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0]";

/// The whole file.
pub(crate) fn text() -> Result<String, Failure> {
    let linked = packages::all_linked()?;
    let parts = vendored::parts()?;
    let mut file = String::from(
        "fardel\n======\n\n\
         Copyright the authors of fardel.\n\
         Licensed under the Apache License, Version 2.0; on Debian its text is in\n\
         /usr/share/common-licenses/Apache-2.0.\n\n\
         The program is one file that contains all of the following. Texts of licences are at the end,\n\
         each with the parts it came with.\n\n\
         Linked libraries\n----------------\n\n",
    );
    for library in vendored::libraries(&linked)? {
        file.push_str(&format!(
            "{} {} ({})\n    {}\n",
            library.name, library.version, library.licence, library.notice
        ));
    }
    file.push_str("\nFiles for browsers\n------------------\n\n");
    // Text, with its blanks evened out as the key, and who came with it.
    let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut keep = |text: &str, whose: &str| {
        let text = without_manual_licence(&without_apache(text));
        if text.trim() == APACHE {
            return;
        }
        let key = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, owners) = texts.entry(key).or_insert_with(|| (text, Vec::new()));
        if owners.last().is_none_or(|last| last != whose) {
            owners.push(whose.to_owned());
        }
    };
    for part in &parts {
        file.push_str(&format!(
            "{} {} ({})\n",
            part.name, part.version, part.licence
        ));
        let path = Path::new(vendored::FOLDER).join(&part.text);
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
        keep(&text, &part.name);
    }
    file.push_str("\nRust packages\n-------------\n\n");
    for package in linked.iter().filter(|package| !package.ours) {
        let whose = format!("{} {}", package.name, package.version);
        file.push_str(&format!("{whose} ({})\n", package.licence));
        for author in &package.authors {
            file.push_str(&format!("    {author}\n"));
        }
        let carried = carried(package)?;
        if carried.is_empty() {
            file.push_str("    (carries no text of its licence)\n");
        }
        for text in carried {
            keep(&text, &whose);
        }
    }
    file.push_str("\nTexts\n-----\n");
    for (text, owners) in texts.into_values() {
        file.push_str(&format!(
            "\n\n---- {}\n\n{}\n",
            owners.join(", "),
            text.trim_matches('\n')
        ));
    }
    Ok(file)
}

/// The texts that lie at the top of a package.
fn carried(package: &Linked) -> Result<Vec<String>, Failure> {
    let fault = |error: std::io::Error| {
        Failure::new(format!(
            "{} cannot be read: {error}",
            package.folder.display()
        ))
    };
    let mut paths: Vec<_> = fs::read_dir(&package.folder)
        .and_then(|entries| {
            entries
                .map(|e| e.map(|e| e.path()))
                .collect::<Result<_, _>>()
        })
        .map_err(fault)?;
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        // Where GNU's licence is offered beside another one, the other one is taken; Debian keeps its
        // texts anyway.
        let gnu = name.contains("GPL");
        if path.is_file() && !gnu && NAMES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path).map_err(fault)?;
            texts.push(String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }
    Ok(texts)
}

/// The text with the Apache License, where it stands in full, replaced by where Debian keeps it.
/// Names and notices around it stay.
fn without_apache(text: &str) -> String {
    const END: &str = "END OF TERMS AND CONDITIONS";
    const APPENDIX: &str = "APPENDIX: How to apply";
    const LAST: &str = "limitations under the License.";
    let Some(terms) = text.find("TERMS AND CONDITIONS FOR USE, REPRODUCTION") else {
        return text.to_owned();
    };
    let Some(begin) = text[..terms].rfind("Apache License") else {
        return text.to_owned();
    };
    let mut end = text.find(END).map_or(text.len(), |at| at + END.len());
    if let Some(at) = text[end..].find(APPENDIX)
        && let Some(last) = text[end + at..].find(LAST)
    {
        // Some fill their name into the appendix; that line is a notice and stays.
        let appendix = &text[end..end + at + last];
        let notices: String = appendix
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("Copyright ") && !line.contains(['[', '{']))
            .map(|line| format!("{line}\n"))
            .collect();
        end += at + last + LAST.len();
        return format!(
            "{}{APACHE}\n{notices}{}",
            &text[..begin].trim_start(),
            text[end..].trim()
        );
    }
    format!(
        "{}{APACHE}\n{}",
        &text[..begin].trim_start(),
        text[end..].trim()
    )
}

/// The same for the licence of manuals that one package quotes in full.
fn without_manual_licence(text: &str) -> String {
    const LAST: &str = "to permit their use in free software.";
    let begin = text
        .match_indices("GNU Free Documentation License")
        .map(|(at, _)| at)
        .find(|at| {
            text[*at..]
                .lines()
                .nth(1)
                .is_some_and(|l| l.trim().starts_with("Version 1.2,"))
        });
    let Some(begin) = begin else {
        return text.to_owned();
    };
    let end = text[begin..]
        .find(LAST)
        .map_or(text.len(), |at| begin + at + LAST.len());
    format!(
        "{}[The GNU Free Documentation License, Version 1.2: /usr/share/common-licenses/GFDL-1.2]\n{}",
        &text[..begin],
        text[end..].trim_start()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licence_of_manuals_is_named_where_it_is_quoted_and_kept_where_it_is_mentioned() {
        let quoted = "Under the GNU Free Documentation License.\n\n  GNU Free Documentation License\n  \
            Version 1.2, November 2002\n 0. PREAMBLE\n to permit their use in free software.\n\nAfter.";
        let left = without_manual_licence(quoted);
        assert!(
            left.starts_with("Under the GNU Free Documentation License."),
            "{left}"
        );
        assert!(
            left.contains("GFDL-1.2]") && left.ends_with("After."),
            "{left}"
        );
        assert!(!left.contains("PREAMBLE"), "{left}");
        let mentioned = "See the GNU Free Documentation License.\nBye.";
        assert_eq!(without_manual_licence(mentioned), mentioned);
    }

    #[test]
    fn the_apache_licence_is_named_and_what_stands_around_it_stays() {
        let licence = "   Apache License\n Version 2.0\n\n TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND\n\
            1. Definitions.\n END OF TERMS AND CONDITIONS\n";
        assert_eq!(without_apache(licence).trim(), APACHE);
        let appendix = format!(
            "{licence}\n APPENDIX: How to apply the Apache License\n Copyright 2019 Mina\n\
             Licensed ... limitations under the License.\n"
        );
        assert_eq!(
            without_apache(&appendix).trim(),
            format!("{APACHE}\nCopyright 2019 Mina")
        );
        let template = appendix.replace("2019 Mina", "[yyyy] [name]");
        assert_eq!(without_apache(&template).trim(), APACHE);
        let both =
            format!("MIT or Apache\n\n{licence}\nCopyright 2020 Jae\nPermission is granted\n");
        let left = without_apache(&both);
        assert!(
            left.starts_with("MIT or Apache") && left.contains("Copyright 2020 Jae"),
            "{left}"
        );
        assert_eq!(
            without_apache("Permission is granted"),
            "Permission is granted"
        );
    }
}
