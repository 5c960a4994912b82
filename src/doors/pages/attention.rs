//! What needs attention, in words: one row for each item of `server::actions::attention`, the same on the overview, the
//! checks and the report of the installation. Decides nothing.

use server::actions::attention::{AttentionItem, AttentionList};
use server::actions::diagnostic_check::DiagnosticCheck;
use server::actions::system::Diagnostic;

use crate::doors::text::{Language, Text, codes};

/// One thing that is not well, or a check that passed.
#[derive(Debug, Clone, Default)]
pub struct AttentionRow {
    pub icon: &'static str,
    pub tone: &'static str,
    pub title: String,
    /// What is so and what would mend it; empty where the title says all.
    pub text: String,
    /// What would mend it, where the text does not say that.
    pub fix: String,
    /// Values of the text that its language does not name, such as a path.
    pub values: String,
    /// Commands of the fix, to be copied.
    pub commands: Vec<String>,
    /// The stable code or id.
    pub code: String,
    pub href: Option<String>,
    /// The page with the form that mends it, and what the page is called.
    pub form: Option<(&'static str, &'static str)>,
    /// The words are English on a page of another language: no translation has them.
    pub is_foreign: bool,
}

/// A row for each item, in their order: what has failed first.
pub fn rows(t: Text, all: &AttentionList) -> Vec<AttentionRow> {
    all.items.iter().map(|item| row(t, item)).collect()
}

/// `42 checks passed, 2 warnings, 1 failed`.
pub fn summary(t: Text, all: &AttentionList) -> String {
    t.system_summary(all.passed.len(), all.warnings(), all.failed())
}

fn row(t: Text, item: &AttentionItem) -> AttentionRow {
    let (icon, tone) = match item.has_failed() {
        true => ("circle-x", "bad"),
        false => ("triangle-alert", "warn"),
    };
    let row = AttentionRow {
        icon,
        tone,
        ..AttentionRow::default()
    };
    match item {
        AttentionItem::Server(check) => of_server(t, check, row),
        AttentionItem::Node { name, problem } => AttentionRow {
            title: name.clone(),
            is_foreign: t.language != Language::English
                && codes::reason(t, problem) == problem.text,
            text: codes::reason(t, problem),
            code: problem.code.clone(),
            href: Some(format!("/nodes/{name}")),
            ..row
        },
        AttentionItem::Maintenance { name, note } => AttentionRow {
            title: name.clone(),
            text: match note.as_str() {
                "" => t.attention_maintenance().to_owned(),
                note => t.attention_maintenance_note(note),
            },
            code: rules::codes::NODE_MAINTENANCE.to_owned(),
            href: Some(format!("/nodes/{name}")),
            ..row
        },
        AttentionItem::Cordoned {
            id,
            index,
            node,
            note,
        } => AttentionRow {
            title: t.attention_gpu(index, node),
            text: match note.as_str() {
                "" => t.attention_cordoned().to_owned(),
                note => t.attention_cordoned_note(note),
            },
            code: "gpu.cordoned".to_owned(),
            href: Some(format!("/gpus/{id}")),
            ..row
        },
        AttentionItem::Finding(finding) => AttentionRow {
            title: t.attention_catalog().to_owned(),
            text: codes::notice(t, &finding.code, &finding.text, ""),
            code: finding.code.clone(),
            ..row
        },
        AttentionItem::Check(check) => AttentionRow {
            href: Some("/system/checks".to_owned()),
            ..checked(t, check, row)
        },
    }
}

fn of_server(t: Text, check: &DiagnosticCheck, row: AttentionRow) -> AttentionRow {
    let (title, href) = match check.code.split('.').next().unwrap_or_default() {
        "audit" => (t.audit_title(), Some("/audit#targets".to_owned())),
        "certificate" | "tls" => (t.tls_title(), Some("/system/tls".to_owned())),
        "clock" => (t.attention_clock(), None),
        "backup" => (t.backups_title(), Some("/system/backups".to_owned())),
        "machine" => (t.attention_silent(), None),
        "disk" => (t.attention_disk(), None),
        _ => (t.attention_state(), None),
    };
    AttentionRow {
        title: title.to_owned(),
        text: codes::notice(t, &check.code, &check.text, &check.hint),
        commands: commands(&check.hint),
        code: check.code.clone(),
        href,
        ..row
    }
}

/// A check of the machine in the reader's language: what it looks at, what it found, and what would mend it.
pub fn check(t: Text, check: &Diagnostic) -> AttentionRow {
    let (icon, tone) = match check.state.as_str() {
        "ok" => ("circle-check", "ok"),
        "warn" => ("triangle-alert", "warn"),
        _ => ("circle-x", "bad"),
    };
    checked(
        t,
        check,
        AttentionRow {
            icon,
            tone,
            ..AttentionRow::default()
        },
    )
}

fn checked(t: Text, check: &Diagnostic, row: AttentionRow) -> AttentionRow {
    let form = form(t, &check.id);
    let mut commands = commands(&check.fix);
    // Without what the form asks for, reading the settings again mends nothing.
    if form.is_some() {
        commands.retain(|command| command != "fardel config reload");
    }
    let row = AttentionRow {
        form,
        commands,
        code: check.id.clone(),
        ..row
    };
    match codes::check(t, &check.id, &check.found) {
        Some((name, told)) if !told.is_empty() => AttentionRow {
            title: name.to_owned(),
            text: told.to_owned(),
            values: codes::check_values(&check.id, &check.found).join(" · "),
            ..row
        },
        told => AttentionRow {
            is_foreign: t.language != Language::English,
            title: told.map_or_else(|| check.found.clone(), |(name, _)| name.to_owned()),
            text: told.map_or_else(String::new, |_| check.found.clone()),
            // A fix that is one command stands below, where it is copied.
            fix: match &row.commands[..] {
                [only] if *only == check.fix => String::new(),
                _ => check.fix.clone(),
            },
            ..row
        },
    }
}

/// Where the console has a form for what a check asks for.
fn form(t: Text, id: &str) -> Option<(&'static str, &'static str)> {
    Some(match id {
        "backups" | "backup-disk" => ("/system/backups", t.backups_title()),
        "memory-pressure" | "swap" => ("/system/settings#memory", t.system_settings()),
        "gpu" => ("/gpus", t.nav_gpus()),
        _ => return None,
    })
}

/// Programs that a fix names as commands.
const PROGRAMS: [&str; 14] = [
    "fardel ",
    "sudo ",
    "systemctl ",
    "sysctl ",
    "mount ",
    "timedatectl ",
    "hostnamectl ",
    "modprobe ",
    "apt ",
    "chmod ",
    "chown ",
    "ss ",
    "hwclock ",
    "usermod ",
];
/// What stands in front of a command in a sentence.
const BEFORE: [&str; 5] = ["", ": ", "(", "`", ", then "];
/// What ends one.
const BEHIND: [&str; 9] = [
    "`", ") ", "),", ").", " (", ", then", ", and ", ", or ", "; ",
];

/// The commands in the words of a fix, in their order; empty where it names none.
pub fn commands(fix: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut from = 0;
    while let Some(begin) = next_command(fix, from) {
        let rest = &fix[begin..];
        let ends = BEHIND.iter().filter_map(|behind| rest.find(behind));
        let end = ends.min().unwrap_or(rest.len());
        let command = rest[..end].trim_end_matches(['.', ')', ' ']);
        if !found.iter().any(|known| known == command) {
            found.push(command.to_owned());
        }
        from = begin + end.max(1);
    }
    found
}

fn next_command(fix: &str, from: usize) -> Option<usize> {
    let places = fix[from..].char_indices().map(|(at, _)| from + at);
    let mut places = places.filter(|at| {
        let programs = PROGRAMS.iter();
        programs.clone().any(|name| fix[*at..].starts_with(name)) && is_command_at(fix, *at)
    });
    places.next()
}

fn is_command_at(fix: &str, at: usize) -> bool {
    BEFORE.iter().any(|before| match before.is_empty() {
        true => at == 0,
        false => fix[..at].ends_with(before),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::findings::InvariantFinding;

    #[test]
    fn the_commands_of_a_fix_are_found_and_prose_is_not() {
        for (fix, expected) in [
            (
                "sysctl -w vm.overcommit_memory=0",
                "sysctl -w vm.overcommit_memory=0",
            ),
            (
                "timedatectl set-time '2026-11-21 14:02', then hwclock --systohc.",
                "timedatectl set-time '2026-11-21 14:02' | hwclock --systohc",
            ),
            (
                "Restore the newest backup (fardel backup restore), or go back to the copy beside it: fardel upgrade rollback.",
                "fardel backup restore | fardel upgrade rollback",
            ),
            (
                "Plug that disk in or mount it again, or set backup_dir.",
                "",
            ),
            ("Look at the output of `nvidia-smi`.", ""),
            ("Mount /proc.", ""),
            (
                "At a convenient time: fardel ps, then systemctl reboot.",
                "fardel ps | systemctl reboot",
            ),
            ("Give that account another id: usermod -u.", "usermod -u"),
            ("", ""),
        ] {
            assert_eq!(commands(fix).join(" | "), expected, "{fix}");
        }
    }

    #[test]
    fn a_check_is_told_once_in_the_readers_language_with_its_values() {
        let disk = Diagnostic {
            id: "disk".into(),
            state: "warn".into(),
            found: "Only 3 GiB free on /srv/fardel.".into(),
            fix: "Make room, or move the state: FARDEL_DATA=/big/disk/fardel.".into(),
        };
        let korean = check(Text::new(Language::Korean), &disk);
        assert_eq!(korean.title, "디스크 여유 공간");
        assert!(korean.text.contains("여유 공간이 너무 적습니다"));
        assert_eq!(korean.values, "3 GiB · /srv/fardel");
        assert!(korean.fix.is_empty() && !korean.is_foreign, "nothing twice");
        let english = check(Text::default(), &disk);
        assert_eq!(english.title, disk.found);
        assert_eq!(english.fix, disk.fix);
    }

    #[test]
    fn a_check_that_a_form_mends_leads_to_the_form() {
        for (id, form) in [
            ("backups", Some("/system/backups")),
            ("backup-disk", Some("/system/backups")),
            ("swap", Some("/system/settings#memory")),
            ("kernel", None),
        ] {
            let unwell = Diagnostic {
                id: id.into(),
                state: "warn".into(),
                found: "It is not well.".into(),
                fix: "Set it there, then: fardel config reload.".into(),
            };
            let row = check(Text::default(), &unwell);
            assert_eq!(row.form.map(|(href, _)| href), form, "{id}");
            assert_eq!(row.commands.is_empty(), form.is_some(), "{id}");
        }
    }

    #[test]
    fn a_dead_place_of_the_audit_log_leads_to_where_it_is_told() {
        let log = include_str!("../../../web/templates/pages/audit.html");
        assert!(log.contains(" id=\"targets\""));
        for code in [
            rules::codes::AUDIT_TARGET_DOWN,
            rules::codes::AUDIT_TARGET_LOST,
        ] {
            let all = AttentionList {
                items: vec![AttentionItem::Server(DiagnosticCheck {
                    code: code.into(),
                    ok: false,
                    minor: true,
                    text: "It takes no rows.".into(),
                    hint: String::new(),
                })],
                ..AttentionList::default()
            };
            let rows = rows(Text::default(), &all);
            assert_eq!(rows[0].title, "Audit log");
            assert_eq!(rows[0].href.as_deref(), Some("/audit#targets"));
        }
    }

    #[test]
    fn every_kind_of_item_has_a_row_with_words_in_both_languages() {
        let all = AttentionList {
            items: vec![
                AttentionItem::Maintenance {
                    name: "alpha".into(),
                    note: "disks".into(),
                },
                AttentionItem::Cordoned {
                    id: "gpu-0".into(),
                    index: 3,
                    node: "alpha".into(),
                    note: String::new(),
                },
                AttentionItem::Finding(InvariantFinding {
                    code: "x".into(),
                    text: "X.".into(),
                }),
            ],
            passed: Vec::new(),
            diagnosed_at: None,
        };
        for language in [Language::English, Language::Korean] {
            let rows = rows(Text::new(language), &all);
            assert!(
                rows.iter()
                    .all(|row| !row.title.is_empty() && !row.text.is_empty())
            );
            assert_eq!(rows[1].href.as_deref(), Some("/gpus/gpu-0"));
            assert!(rows[0].text.contains("disks"));
        }
    }
}
