//! How long an import takes, beside `umoci unpack` of the same layers. An import also checks both
//! digests of every layer, stores layers once and writes a row; umoci unpacks a layout that lies
//! there already.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::figures::{milliseconds, ms, quantile, ratio};
use super::subject::{BenchServer, ScratchDirectory};
use super::tiny::{installed, output, tar, write_archive};
use fardel::doors::bench::launches::import;

/// Directories of the machine that make up the image when none is given: many small files.
const PARTS: [&str; 4] = [
    "usr/lib/python3",
    "usr/lib/python3.11",
    "usr/share/perl",
    "usr/share/zoneinfo",
];

pub(super) fn imports(count: usize, archives: Option<&Path>) -> io::Result<Value> {
    let work = ScratchDirectory::new("import")?;
    let archives = match archives {
        Some(folder) => {
            let mut found: Vec<PathBuf> = fs::read_dir(folder)?
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "tar"))
                .collect();
            found.sort();
            found
        }
        None => vec![small_image(&work)?],
    };
    let mut figures = Vec::new();
    for archive in archives {
        figures.push(one(&work, &archive, count)?);
    }
    Ok(json!(figures))
}

/// An image of some directories of this machine.
fn small_image(work: &ScratchDirectory) -> io::Result<PathBuf> {
    let there: Vec<&str> = PARTS
        .into_iter()
        .filter(|part| Path::new("/").join(part).is_dir())
        .collect();
    let layer = work.path().join("parts.tar");
    tar(Path::new("/"), &layer, &there)?;
    let archive = work.path().join("parts-image.tar");
    write_archive(work.path(), &[layer], "bench-parts:1", &archive)?;
    Ok(archive)
}

fn one(work: &ScratchDirectory, archive: &Path, count: usize) -> io::Result<Value> {
    let layout = work.path().join("layout");
    let _ = fs::remove_dir_all(&layout);
    let comparable = installed("umoci") && installed("skopeo");
    let mut from = archive.to_owned();
    if comparable {
        // Both get the same compressed layers.
        let source = format!("{}:{}", kind(archive)?, archive.display());
        output(
            Command::new("skopeo")
                .args(["copy", "--quiet", "--insecure-policy", &source])
                .arg(format!("oci:{}:bench", layout.display())),
        )?;
        from = work.path().join("oci.tar");
        tar(&layout, &from, &["."])?;
    }
    let (mut ours, mut umoci) = (Vec::new(), Vec::new());
    for number in 0..count {
        // A fresh store each time: layers are kept once, so a second import would have nothing to do.
        let (subject, _) = BenchServer::fresh(&format!("import{number}"))?;
        ours.push(ms(import(&mut subject.local()?, &from)?));
        drop(subject);
        if comparable {
            let bundle = work.path().join("bundle");
            let began = Instant::now();
            output(
                Command::new("umoci")
                    .arg("unpack")
                    .arg("--image")
                    .arg(format!("{}:bench", layout.display()))
                    .arg(&bundle),
            )?;
            umoci.push(ms(began.elapsed()));
            fs::remove_dir_all(&bundle)?;
        }
    }
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    Ok(json!({
        "archive": archive.file_name().map(|name| name.to_string_lossy().into_owned()),
        "archive_bytes": fs::metadata(&from)?.len(),
        "import": milliseconds(&ours),
        "umoci_unpack": comparable.then(|| milliseconds(&umoci)),
        "p50_ratio_to_umoci": ratio(p50(&ours), p50(&umoci)),
    }))
}

/// What skopeo calls this form of archive.
fn kind(archive: &Path) -> io::Result<&'static str> {
    let names = output(Command::new("tar").arg("-tf").arg(archive))?;
    let layout = names
        .lines()
        .any(|name| name.trim_start_matches("./") == "oci-layout");
    let docker = names
        .lines()
        .any(|name| name.trim_start_matches("./") == "manifest.json");
    Ok(if layout && !docker {
        "oci-archive"
    } else {
        "docker-archive"
    })
}
