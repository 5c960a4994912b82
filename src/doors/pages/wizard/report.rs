//! The last page of the wizard: what was installed and checked, and what an administrator does next.

use rules::units::Timestamp;
use server::Failure;
use server::access::Caller;
use server::actions::installation::Report;
use server::actions::{backups, users};

use super::super::PagesContext;
use super::super::attention::{self, AttentionRow};
use super::super::request_context::RequestContext;
use super::{Looked, NextTask, WizardView, facts};
use crate::doors::text::{Text, codes};

/// What an administrator does next, with where it stands.
pub(super) async fn next_tasks(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    report: &Report,
) -> Result<Vec<NextTask>, Failure> {
    let accounts = users::list(&console.server, caller).await?.len() as u64;
    let backed_up = backups::standing(&console.server, caller).await;
    let backups = match backed_up {
        Ok(standing) if standing.due_at.is_some() => match standing.passphrase_fault {
            None => t.wizard_next_backups_on(),
            Some(_) => t.wizard_next_backups_locked(),
        },
        _ => t.wizard_next_backups_off(),
    };
    let gpus = report
        .machines
        .iter()
        .map(|machine| machine.devices.len() as u64)
        .sum::<u64>();
    let task = |href, icon, name, lead| NextTask {
        href,
        icon,
        name,
        lead,
    };
    let mut tasks = vec![
        task(
            "/sessions/new",
            "plus",
            t.launch_title(),
            t.wizard_next_launch().to_owned(),
        ),
        task(
            "/images",
            "package",
            t.wizard_environment_import(),
            t.wizard_next_images(report.images as u64),
        ),
        task(
            "/users",
            "users",
            t.wizard_next_users(),
            t.wizard_next_users_lead(accounts),
        ),
        task(
            "/system/backups",
            "save",
            t.backups_title(),
            backups.to_owned(),
        ),
        task(
            "/system/settings",
            "sliders-horizontal",
            t.wizard_next_settings(),
            t.wizard_next_settings_lead().to_owned(),
        ),
    ];
    if gpus > 0 {
        tasks.push(task(
            "/gpus",
            "microchip",
            t.wizard_next_gpus(),
            t.wizard_next_gpus_lead(gpus),
        ));
    }
    if report.fingerprint.is_some() {
        tasks.push(task(
            "/trust",
            "shield-check",
            t.trust_title(),
            t.wizard_next_trust().to_owned(),
        ));
    }
    tasks.push(task(
        "/docs",
        "book-open",
        t.nav_docs(),
        t.wizard_next_manual().to_owned(),
    ));
    Ok(tasks)
}

/// Its GPUs by machine and model, the first model first.
fn devices(t: Text, report: &Report) -> Vec<(String, String)> {
    let mut found: Vec<(String, String, bool, u64)> = Vec::new();
    for machine in &report.machines {
        for device in &machine.devices {
            let same = found.iter_mut().find(|(name, model, simulated, _)| {
                *name == machine.name && *model == device.model && *simulated == device.simulated
            });
            match same {
                Some((.., count)) => *count += 1,
                None => found.push((
                    machine.name.clone(),
                    device.model.clone(),
                    device.simulated,
                    1,
                )),
            }
        }
    }
    found
        .into_iter()
        .map(|(machine, model, simulated, count)| {
            let made_up = if simulated {
                format!(", {}", t.gpu_simulated())
            } else {
                String::new()
            };
            (machine, format!("{count} × {model}{made_up}"))
        })
        .collect()
}

/// What is not well in one line, with what would mend it.
fn looked(row: AttentionRow) -> Looked {
    let text = match row.text.is_empty() {
        true => row.title,
        false => format!("{}: {}", row.title, row.text),
    };
    let remedy = match row.fix.is_empty() {
        true => row.commands.join(", "),
        false => row.fix,
    };
    Looked {
        icon: row.icon,
        tone: row.tone,
        text: match text.contains(&remedy) {
            true => text,
            false => format!("{text} {remedy}"),
        },
    }
}

/// The page from what was found.
pub(super) fn report(
    t: Text,
    visit: &RequestContext,
    caller: &Caller,
    report: Report,
    next: Vec<NextTask>,
) -> WizardView {
    let when = |at: Timestamp| format!("{} {}", visit.clock.day(at), visit.clock.second(at));
    let fingerprint = report.fingerprint.clone().unwrap_or_else(|| "–".to_owned());
    let unwell = attention::rows(t, &report.attention);
    let unwell = unwell.into_iter().map(looked);
    WizardView::Report {
        facts: vec![
            (
                t.wizard_report_at(),
                format!("{} ({})", when(report.at), visit.clock.name()),
            ),
            (t.wizard_report_by(), caller.name.to_string()),
            (
                t.wizard_report_version(),
                format!("fardel {}", report.version),
            ),
            (t.wizard_report_box(), report.installation_id.to_string()),
            (t.wizard_report_addresses(), report.origins.join(", ")),
            (t.trust_fingerprint(), fingerprint),
            (
                t.nav_images(),
                match report.images {
                    0 => t.wizard_report_no_images().to_owned(),
                    images => images.to_string(),
                },
            ),
        ],
        machines: report
            .machines
            .iter()
            .map(|machine| {
                let room =
                    t.wizard_report_room(machine.cpu, machine.memory, machine.devices.len() as u64);
                (machine.name.clone(), room)
            })
            .collect(),
        measured: report
            .measured
            .as_ref()
            .map(|m| facts(t, m))
            .unwrap_or_default(),
        checks: report
            .checks
            .iter()
            .map(|check| Looked {
                icon: "circle-check",
                tone: "ok",
                text: codes::notice(t, &check.code, &check.text, ""),
            })
            .chain(unwell)
            .collect(),
        devices: devices(t, &report),
        next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_report_says_what_would_mend_it_and_says_it_once() {
        let row = AttentionRow {
            title: "File watches".into(),
            text: "One user can have 128 inotify instances.".into(),
            ..AttentionRow::default()
        };
        let told = |fix: &str, commands: &[&str]| {
            let commands = commands.iter().map(|&command| command.to_owned());
            let row = AttentionRow {
                fix: fix.to_owned(),
                commands: commands.collect(),
                ..row.clone()
            };
            looked(row).text
        };
        let found = "File watches: One user can have 128 inotify instances.";
        assert_eq!(told("", &[]), found);
        assert_eq!(
            told("", &["sysctl -w a=1"]),
            format!("{found} sysctl -w a=1")
        );
        assert_eq!(told("Raise it.", &["sysctl"]), format!("{found} Raise it."));
    }
}
