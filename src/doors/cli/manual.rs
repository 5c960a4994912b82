//! Manual pages and shell completion, from the same description that parses the command line.

use std::collections::BTreeMap;

use super::print;
use super::tree::{Man, Words};
use super::trouble::{FAILED, NOT_FOUND, Trouble};
use clap::CommandFactory;

pub(super) fn completion(shell: clap_complete::Shell) -> Result<(), Trouble> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Words::command(), "fardel", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Prints one page as roff (for `man -l -`), or writes all into a directory.
pub(super) fn page(request: &Man, description: clap::Command) -> Result<(), Trouble> {
    let pages = pages(description)?;
    if let Some(folder) = &request.all {
        let failed = |e: std::io::Error| {
            Trouble::new(
                FAILED,
                "man.not-written",
                format!("{}: {e}.", folder.display()),
            )
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        for (name, text) in &pages {
            std::fs::write(folder.join(format!("{name}.1")), text).map_err(failed)?;
        }
        print(&format!("{} pages in {}\n", pages.len(), folder.display()));
        return Ok(());
    }
    let wanted = request.page.trim_end_matches(".1").replace(' ', "-");
    let found = pages
        .get(&wanted)
        .or_else(|| pages.get(&format!("fardel-{wanted}")));
    match found {
        Some(text) => {
            print(text);
            Ok(())
        }
        None => Err(Trouble::new(
            NOT_FOUND,
            "man.unknown",
            format!("There is no page {wanted}."),
        )
        .hint("fardel, fardel-run and fardel-session-ls are some; --all DIR writes every one.")),
    }
}

/// Every page by its name, `fardel-session-ls` for `fardel session ls`.
fn pages(description: clap::Command) -> Result<BTreeMap<String, String>, Trouble> {
    let mut built = description;
    built.build();
    let mut pages = BTreeMap::new();
    collect(&built, "", &mut pages)
        .map_err(|e| Trouble::new(FAILED, "man.failed", format!("A page cannot be made: {e}.")))?;
    Ok(pages)
}

fn collect(
    command: &clap::Command,
    above: &str,
    pages: &mut BTreeMap<String, String>,
) -> std::io::Result<()> {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let shown = command.clone().display_name(name.clone());
    let mut roff = Vec::new();
    clap_mangen::Man::new(shown)
        .manual("fardel")
        .render(&mut roff)?;
    pages.insert(name.clone(), String::from_utf8_lossy(&roff).into_owned());
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        collect(inner, &name, pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let pages = pages(Words::command()).expect("written");
        for name in [
            "fardel",
            "fardel-run",
            "fardel-session-ls",
            "fardel-image-import",
        ] {
            assert!(pages.contains_key(name), "no page {name}");
        }
        assert!(pages["fardel-run"].contains("copies"));
        assert!(pages["fardel"].contains("Exit codes"));
    }
}
