//! Appends rows to a file, one line of JSON each, and ends when they are on the disk. The file is opened by its name for each
//! batch: after a rotation rows go to the new one. No half line stays behind a failure.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use base::settings::Settings;

use super::HandOverFault;
use crate::catalog::audit::AuditRow;

pub(super) async fn send(
    settings: &Arc<Settings>,
    rows: Vec<AuditRow>,
) -> Result<(), HandOverFault> {
    let path = settings.audit_to_file.clone();
    let path = path.ok_or(HandOverFault::Address)?;
    let written = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        for row in rows {
            text.push_str(&row.statement);
            text.push('\n');
        }
        append(&path, &text)
    });
    written.await.unwrap_or(Err(HandOverFault::Late))
}

/// Opens the file and writes nothing; says so.
pub(super) async fn tried(settings: &Arc<Settings>) -> Result<String, HandOverFault> {
    let path = settings.audit_to_file.clone();
    let path = path.ok_or(HandOverFault::Address)?;
    let opened = tokio::task::spawn_blocking(move || open(&path).map(drop));
    opened.await.unwrap_or(Err(HandOverFault::Late))?;
    Ok("can be written".to_owned())
}

fn open(path: &Path) -> Result<File, HandOverFault> {
    // A pipe without a reader would be waited for; a link by who may write to the directory would lead root's lines to a file
    // of their choice.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(HandOverFault::File(format!(
            "{}: it is no plain file",
            path.display()
        ))),
    }
}

fn append(path: &Path, lines: &str) -> Result<(), HandOverFault> {
    let mut file = open(path)?;
    let before = file.metadata()?.len();
    let mut last = [b'\n'];
    if let Some(at) = before.checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    let mut text = String::with_capacity(lines.len() + 1);
    // A machine that lost its power may have left half a line.
    if last != [b'\n'] {
        text.push('\n');
    }
    text.push_str(lines);
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_data());
    if let Err(error) = written {
        // The lines come again. That they cannot be taken back is no reason to say something else.
        let _ = file.set_len(before);
        return Err(error.into());
    }
    if before == 0
        && let Some(folder) = path.parent()
    {
        // A new file is on the disk once its name is.
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_behind_each_other_also_after_half_a_line_and_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        append(&path, "one\ntwo\n").unwrap();
        std::fs::write(&path, "one\ntw").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\ntwo\n");
        let rotated = folder.path().join("audit.jsonl.1");
        std::fs::rename(&path, &rotated).unwrap();
        append(&path, "three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\ntw\ntwo\n");
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_directory_a_pipe_or_a_link_is_no_place_for_lines() {
        let folder = tempfile::tempdir().unwrap();
        assert!(append(folder.path(), "one\n").is_err());
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(append(&pipe, "one\n").is_err());
        let aim = folder.path().join("aim");
        std::fs::write(&aim, "before\n").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&aim, &link).unwrap();
        assert!(append(&link, "one\n").is_err());
        assert_eq!(std::fs::read_to_string(&aim).unwrap(), "before\n");
    }
}
