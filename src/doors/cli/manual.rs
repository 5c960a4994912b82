//! Manual pages and shell completion, from the same description that parses the command line; the
//! settings file with its page, from the same list that reads it.

use std::collections::BTreeMap;

use super::args::{CommandLine, Man};
use super::error::{CliError, FAILED, NOT_FOUND};
use super::print;
use base::settings::{FILE, KEYS};
use clap::CommandFactory;

pub(super) fn completion(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "fardel", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Prints one page as roff (for `man -l -`), or writes all into a directory.
pub(super) fn page(request: &Man, description: clap::Command) -> Result<(), CliError> {
    if request.page.trim_end_matches(".5") == "fardel.toml" && request.all.is_none() {
        print(&settings_page());
        return Ok(());
    }
    let pages = pages(description)?;
    if let Some(folder) = &request.all {
        let failed = |e: std::io::Error| {
            CliError::new(
                FAILED,
                "man.not-written",
                format!("{}: {e}.", folder.display()),
            )
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        for (name, text) in &pages {
            std::fs::write(folder.join(format!("{name}.1")), text).map_err(failed)?;
        }
        std::fs::write(folder.join("fardel.toml.5"), settings_page()).map_err(failed)?;
        print(&format!(
            "{} pages in {}\n",
            pages.len() + 1,
            folder.display()
        ));
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
        None => Err(CliError::new(
            NOT_FOUND,
            "man.unknown",
            format!("There is no page {wanted}."),
        )
        .hint("fardel, fardel-run, fardel-session-ls and fardel.toml are some; --all DIR writes every one.")),
    }
}

/// Every page by its name, `fardel-session-ls` for `fardel session ls`.
fn pages(description: clap::Command) -> Result<BTreeMap<String, String>, CliError> {
    let mut built = description;
    built.build();
    let mut pages = BTreeMap::new();
    collect(&built, "", &mut pages)
        .map_err(|e| CliError::new(FAILED, "man.failed", format!("A page cannot be made: {e}.")))?;
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

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|l| l.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// fardel.toml(5).
fn settings_page() -> String {
    let mut page = format!(
        ".TH fardel.toml 5 \"\" \"fardel {}\" \"fardel\"\n.SH NAME\nfardel.toml \\- settings of the fardel server\n\
         .SH SYNOPSIS\n{}\n.SH DESCRIPTION\n\
         A TOML file of keys and values, read when the server starts. Files that end in .toml in the\n\
         folder conf.d beside it are read after it, in the order of their names; then variables of the\n\
         environment, then flags. The last one wins. An unknown key is an error that names the nearest\n\
         known one.\n.PP\n.B fardel config validate\nsays whether a server would start with it,\n.B fardel config sample\nprints a file with every key,\n\
         .B systemctl reload fardel\nmakes a running server read it again.\n.SH KEYS\n",
        env!("CARGO_PKG_VERSION"),
        roff(FILE),
    );
    for key in KEYS {
        let default = if key.default.is_empty() {
            "none"
        } else {
            key.default
        };
        let when = if key.needs_restart {
            "A change takes a restart."
        } else {
            "A change takes a reload."
        };
        page.push_str(&format!(
            ".TP\n.B {}\n{}\nVariable {}. Default: {}. {when}\n",
            roff(key.key),
            roff(&sentence(key.about)),
            roff(key.variable),
            roff(default),
        ));
    }
    page.push_str(".SH SEE ALSO\n.BR fardel (1),\n.BR fardel-config-validate (1),\n.BR fardel-config-show (1)\n");
    page
}

/// Text as roff takes it: no escapes, no line that begins a request, hyphens that can be searched.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) {
        format!("\\&{escaped}")
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_settings_file_has_every_key() {
        let page = settings_page();
        for key in KEYS {
            assert!(
                page.contains(&format!(".B {}\n", roff(key.key))),
                "{} is missing",
                key.key
            );
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let pages = pages(CommandLine::command()).expect("written");
        for name in [
            "fardel",
            "fardel-run",
            "fardel-session-ls",
            "fardel-image-import",
        ] {
            assert!(pages.contains_key(name), "no page {name}");
        }
        assert!(pages["fardel-run"].contains("replicas"));
        assert!(pages["fardel"].contains("Exit codes"));
    }
}
