//! `cargo ci deb`: the Debian package, by dpkg-deb and nothing else. Two runs over one tree and one
//! binary give the same bytes. Never touches the machine it runs on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::contents::{Contents, SETTINGS, Scratch, gzip, read, write};
use crate::failure::Failure;
use crate::program::{self, Program};

pub(crate) const MAINTAINER: &str = "fardel maintainers <maintainers@fardel.invalid>";
/// Scripts that dpkg runs, from packaging/debian.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// What the words after `cargo ci deb` ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DebOptions {
    /// Another number for the package; the program inside keeps its own.
    pub(crate) version: Option<String>,
    /// A binary that was built already; otherwise the release binary is built.
    pub(crate) binary: Option<PathBuf>,
    /// Where the package goes; otherwise `debian` in cargo's target directory.
    pub(crate) into: Option<PathBuf>,
}

impl DebOptions {
    /// Reads `--version X`, `--binary FILE` and `--into FOLDER`.
    pub(crate) fn read(words: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let value = rest
                .next()
                .ok_or_else(|| Failure::new(format!("{word} needs a value")))?;
            match *word {
                "--version" => options.version = Some((*value).to_owned()),
                "--binary" => options.binary = Some(value.into()),
                "--into" => options.into = Some(value.into()),
                other => return Err(Failure::new(format!("there is no {other} here"))),
            }
        }
        // What dpkg takes as the version of a native package.
        let good = |v: &String| {
            v.starts_with(|c: char| c.is_ascii_digit())
                && v.chars()
                    .all(|c| c.is_ascii_alphanumeric() || ".+~".contains(c))
        };
        match &options.version {
            Some(version) if !good(version) => Err(Failure::new(format!(
                "{version} is no version of a package"
            ))),
            _ => Ok(options),
        }
    }
}

/// Makes the package and prints its path as the last line.
///
/// Paths are meant from where the caller stood.
pub(crate) fn command(words: &[&str], came_from: &Path) -> Result<(), Failure> {
    let mut options = DebOptions::read(words)?;
    for path in [&mut options.binary, &mut options.into]
        .into_iter()
        .flatten()
    {
        *path = came_from.join(&path);
    }
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            Program::cargo().words("build --release --locked").run()?;
            program::built("release")?
        }
    };
    let path = make(&binary, &options)?;
    println!("{}", path.display());
    Ok(())
}

/// Makes the package from a binary; gives its path.
pub(crate) fn make(binary: &Path, options: &DebOptions) -> Result<PathBuf, Failure> {
    let mut contents = Contents::collect(binary, options.version.as_deref())?;
    if contents.version != contents.program_version {
        println!(
            "the package says {}, the program inside says {}: for tests of upgrades only",
            contents.version, contents.program_version
        );
    }
    let scratch = Scratch::new("deb")?;
    let changelog = scratch.0.join("changelog");
    write(&changelog, 0o644, self::changelog(&contents)?.as_bytes())?;
    contents.put(
        "usr/share/doc/fardel/changelog.gz",
        0o644,
        gzip(&changelog)?,
    );
    let overrides = read(Path::new("packaging/debian/lintian-overrides"))?;
    contents.put("usr/share/lintian/overrides/fardel", 0o644, overrides);
    contents.items.sort_by(|a, b| a.path.cmp(&b.path));

    let root = scratch.0.join("root");
    contents.write_below(&root)?;
    let folder = root.join("DEBIAN");
    for script in SCRIPTS {
        let bytes = read(&Path::new("packaging/debian").join(script))?;
        write(&folder.join(script), 0o755, &bytes)?;
    }
    write(
        &folder.join("control"),
        0o644,
        control(&contents).as_bytes(),
    )?;
    write(
        &folder.join("conffiles"),
        0o644,
        format!("/{SETTINGS}\n").as_bytes(),
    )?;
    let mut sums = Program::named("md5sum").inside(&root);
    for item in contents.items.iter().filter(|item| item.path != SETTINGS) {
        sums = sums.argument(&item.path);
    }
    write(&folder.join("md5sums"), 0o644, sums.output()?.as_bytes())?;

    let into = match &options.into {
        Some(into) => into.clone(),
        None => program::target_directory()?.join("debian"),
    };
    fs::create_dir_all(&into)
        .map_err(|error| Failure::new(format!("{} cannot be made: {error}", into.display())))?;
    let package = into.join(format!("fardel_{}_amd64.deb", contents.version));
    // No test of upgrades is about its size, and packing well is most of the time.
    let level = if contents.version == contents.program_version {
        "-z6"
    } else {
        "-z1"
    };
    Program::named("dpkg-deb")
        .words("--root-owner-group -Zxz")
        .words(level)
        .words("--build")
        .argument(&root)
        .argument(&package)
        .variable("SOURCE_DATE_EPOCH", contents.epoch.to_string())
        // Several threads cut the data into blocks, and how many depends on the machine.
        .variable("DPKG_DEB_THREADS_MAX", "1")
        .output()?;
    Ok(package)
}

fn control(contents: &Contents) -> String {
    // As dpkg counts: every file in whole KiB.
    let size: u64 = contents
        .items
        .iter()
        .map(|item| (item.bytes.len() as u64).div_ceil(1024))
        .sum();
    format!(
        "Package: fardel\n\
         Version: {}\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {size}\n\
         Section: admin\n\
         Priority: optional\n\
         Description: private AI cloud for one GPU server, with no network\n \
         People open a page, launch a session and work in its terminal or notebook;\n \
         scripts do the same over REST or with the command line. One program brings\n \
         the console, the scheduler, the catalog and the container runtime, and asks\n \
         the machine for a Linux kernel and nothing else.\n",
        contents.version
    )
}

fn changelog(contents: &Contents) -> Result<String, Failure> {
    let date = Program::named("date")
        .words("--utc --rfc-email")
        .argument(format!("--date=@{}", contents.epoch))
        .variable("LC_ALL", "C")
        .output()?;
    let what = if contents.version == contents.program_version {
        format!("Version {}.", contents.version)
    } else {
        format!(
            "Packaged under this number for a test of upgrades; the program inside is {}.",
            contents.program_version
        )
    };
    Ok(format!(
        "fardel ({}) unstable; urgency=medium\n\n  * {what}\n\n -- {MAINTAINER}  {}\n",
        contents.version,
        date.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_a_version_that_dpkg_would_not_take_is_refused() {
        let options =
            DebOptions::read(&["--version", "0.2.0~rc1", "--into", "/x"]).expect("good words");
        assert_eq!(options.version.as_deref(), Some("0.2.0~rc1"));
        assert_eq!(options.into, Some("/x".into()));
        for words in [&["--version", "1/2"][..], &["--version"], &["--verse", "1"]] {
            assert!(DebOptions::read(words).is_err(), "{words:?} was taken");
        }
    }
}
