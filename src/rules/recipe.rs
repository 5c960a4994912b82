//! Recipes of environments: what one may say, which wheels its lock file names, which variables and labels its image has.
//! Reads no file and runs no program.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::app::{APPS_LABEL, AppSource, MAX_APPS_LABEL, apps_of_image};
use crate::environment::{
    InstalledPackage, MAX_ABOUT_BYTES, MAX_PORTS, RecommendedOptions, check_name, check_version,
};
use crate::refusal::Refusal;
use crate::refusals;

/// Bytes of a recipe, and of its lock file. Higher: a list that no person reviews. Lower: hundreds of wheels do not fit.
pub const MAX_RECIPE_BYTES: u64 = 256 << 10;
/// Packages of each list of a recipe, mirrors, files, variables and labels. Higher: longer command lines. Lower: a recipe
/// with many tools is refused.
pub const MAX_RECIPE_WORDS: usize = 500;
/// Bytes of one package, mirror, path, variable or label.
pub const MAX_RECIPE_TEXT: usize = 4096;
/// What stands before the digest of a wheel in a lock file.
pub const HASH: &str = "--hash=sha256:";
/// Where a snapshot of Debian is kept.
const SNAPSHOTS: &str = "http://snapshot.debian.org/archive/debian";

/// How one environment is built.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub name: String,
    pub version: String,
    pub title: RecipeTitle,
    /// A sentence for people; may be empty.
    #[serde(default)]
    pub about: String,
    /// As Debian calls them: `amd64`, `arm64`.
    pub architectures: Vec<String>,
    /// The directory that commands begin in; empty: `/`.
    #[serde(default)]
    pub workdir: String,
    /// What a session runs where its user names nothing; empty: the product's own choice.
    #[serde(default)]
    pub command: Vec<String>,
    /// Debian packages above the base, with all that they depend on.
    #[serde(default)]
    pub packages: Vec<String>,
    pub base: RecipeBase,
    #[serde(default)]
    pub wheels: Option<RecipeWheels>,
    #[serde(default, rename = "archive")]
    pub archives: Vec<RecipeArchive>,
    #[serde(default, rename = "file")]
    pub files: Vec<RecipeFile>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default, rename = "app")]
    pub apps: Vec<AppSource>,
    #[serde(default)]
    pub recommended: RecommendedOptions,
}

/// What people read instead of the name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeTitle {
    pub en: String,
    pub ko: String,
}

/// The lowest layer: a Debian suite, or a directory that is a root already.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeBase {
    /// Such as `bookworm`.
    #[serde(default)]
    pub suite: String,
    /// A time of the archive, `20260601T000000Z`: the same packages on every day.
    #[serde(default)]
    pub snapshot: String,
    /// Addresses of mirrors; none: the snapshot's, or Debian's own.
    #[serde(default)]
    pub mirrors: Vec<String>,
    /// Debian packages of the lowest layer; recipes with the same ones share it.
    #[serde(default)]
    pub packages: Vec<String>,
    /// A directory, from the recipe's own, in place of a suite.
    #[serde(default)]
    pub root: String,
    /// Seconds since 1970: no file of the image is newer.
    pub epoch: u32,
}

/// Python packages, into an environment of their own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeWheels {
    /// Where, such as `/opt/jupyter`.
    pub into: String,
    /// Version of the image's Python, such as `3.11`.
    pub python: String,
    /// The lock file, from the recipe's own directory.
    pub lock: String,
}

/// What comes neither as a Debian package nor as a wheel: a tar file beside the recipe, unpacked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeArchive {
    /// Name and version for the list of packages.
    pub name: String,
    pub version: String,
    pub licence: String,
    /// From the recipe's own directory.
    pub file: String,
    /// The file with its digest as `sha256sum` writes it, from the recipe's own directory.
    pub hashes: String,
    /// Where it is unpacked, such as `/opt/code-server`.
    pub into: String,
}

/// A file of the image.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    pub path: String,
    pub text: String,
    #[serde(default)]
    pub executable: bool,
}

/// The label of an image's apps, as the product reads it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct RecipeApps<'a>(pub &'a [AppSource]);

impl Recipe {
    /// Whether a build can begin with it.
    ///
    /// Errors: `environment.name`, `environment.version`, `environment.recipe-field`, those of apps.
    pub fn check(&self) -> Result<(), Refusal> {
        check_name(&self.name)?;
        check_version(&self.version)?;
        let wrong = refusals::environment_recipe_field;
        let (title, base) = (&self.title, &self.base);
        let about = [&title.en, &title.ko, &self.about];
        let is_said = about
            .iter()
            .all(|text| text.len() <= MAX_ABOUT_BYTES && !text.chars().any(char::is_control));
        if !is_said || title.en.is_empty() || title.ko.is_empty() {
            return Err(wrong("title"));
        }
        let architectures = &self.architectures;
        let is_known = |name: &String| ["amd64", "arm64"].contains(&name.as_str());
        if architectures.is_empty() || !architectures.iter().all(is_known) {
            return Err(wrong("architectures"));
        }
        if base.suite.is_empty() == base.root.is_empty() {
            return Err(wrong("base"));
        }
        if !base.suite.is_empty() && !is_word(&base.suite) {
            return Err(wrong("base.suite"));
        }
        if !base.snapshot.is_empty() && !is_snapshot(&base.snapshot) {
            return Err(wrong("base.snapshot"));
        }
        let needs_suite = base.packages.len() + base.mirrors.len() + self.packages.len();
        if !base.root.is_empty() && (needs_suite > 0 || !base.snapshot.is_empty()) {
            return Err(wrong("base.root"));
        }
        let is_mirror = |mirror: &String| {
            let known = ["http://", "https://", "file:/", "copy:/"];
            // A password of a mirror would stand in the image's own list of sources.
            let is_open = !mirror.contains('@');
            is_open && known.iter().any(|scheme| mirror.starts_with(scheme)) && is_plain(mirror)
        };
        if !fits(&base.mirrors, is_mirror) {
            return Err(wrong("base.mirrors"));
        }
        if !fits(&base.packages, |name| is_word(name)) {
            return Err(wrong("base.packages"));
        }
        if !fits(&self.packages, |name| is_word(name)) {
            return Err(wrong("packages"));
        }
        if let Some(wheels) = &self.wheels {
            let numbers = wheels.python.strip_prefix("3.");
            let is_python = numbers.is_some_and(|minor| {
                (1..=2).contains(&minor.len()) && minor.bytes().all(|b| b.is_ascii_digit())
            });
            if !is_place(&wheels.into) || !is_python || !is_own(&wheels.lock) {
                return Err(wrong("wheels"));
            }
        }
        let is_archive = |archive: &RecipeArchive| {
            is_own(&archive.file)
                && is_own(&archive.hashes)
                && is_place(&archive.into)
                && is_word(&archive.name)
                && is_word(&archive.version)
                && archive.licence.len() <= MAX_ABOUT_BYTES
                && !archive.licence.chars().any(char::is_control)
        };
        if self.archives.len() > MAX_RECIPE_WORDS || !self.archives.iter().all(is_archive) {
            return Err(wrong("archive"));
        }
        let mut paths = BTreeSet::new();
        let is_file =
            |file: &RecipeFile| is_place(&file.path) && file.text.len() as u64 <= MAX_RECIPE_BYTES;
        if self.files.len() > MAX_RECIPE_WORDS
            || !self
                .files
                .iter()
                .all(|file| is_file(file) && paths.insert(&file.path))
        {
            return Err(wrong("file"));
        }
        if !self.workdir.is_empty() && !is_place(&self.workdir) {
            return Err(wrong("workdir"));
        }
        if !fits(&self.command, |word| is_plain(word)) {
            return Err(wrong("command"));
        }
        let is_name =
            |name: &String| !name.is_empty() && name.len() <= 128 && !name.contains(['=', '\0']);
        let named = |map: &BTreeMap<String, String>| {
            map.len() <= MAX_RECIPE_WORDS
                && map.iter().all(|(name, value)| {
                    is_name(name) && value.len() <= MAX_RECIPE_TEXT && !value.contains('\0')
                })
        };
        if !named(&self.environment) {
            return Err(wrong("environment"));
        }
        if !named(&self.labels) || self.labels.contains_key(APPS_LABEL) {
            return Err(wrong("labels"));
        }
        let recommended = &self.recommended.ports;
        if recommended.len() > MAX_PORTS || recommended.contains(&0) {
            return Err(wrong("recommended"));
        }
        apps_of_image(self.apps.clone()).map(drop)
    }

    /// Errors: `environment.architecture`.
    pub fn check_architecture(&self, ours: &str) -> Result<(), Refusal> {
        match self.architectures.iter().any(|one| one == ours) {
            true => Ok(()),
            false => Err(refusals::environment_architecture(ours)),
        }
    }

    /// What the image is called.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }

    /// Labels of the image, with its titles and the JSON of its apps. Errors: `environment.recipe-field` where the apps are
    /// too long.
    pub fn labels(&self, apps: String) -> Result<BTreeMap<String, String>, Refusal> {
        if apps.len() > MAX_APPS_LABEL {
            return Err(refusals::environment_recipe_field("app"));
        }
        let mut labels = self.labels.clone();
        let title = "org.opencontainers.image.title";
        labels.insert(title.to_owned(), self.title.en.clone());
        labels.insert("fardel.title.ko".to_owned(), self.title.ko.clone());
        if !self.about.is_empty() {
            let about = "org.opencontainers.image.description";
            labels.insert(about.to_owned(), self.about.clone());
        }
        let version = "org.opencontainers.image.version";
        labels.insert(version.to_owned(), self.version.clone());
        if !self.apps.is_empty() {
            labels.insert(APPS_LABEL.to_owned(), apps);
        }
        Ok(labels)
    }
}

impl RecipeBase {
    /// Lines of a list of sources, main part alone; empty where the base is a directory.
    pub fn sources(&self) -> Vec<String> {
        if self.suite.is_empty() {
            return Vec::new();
        }
        let own = match self.snapshot.is_empty() {
            true => "http://deb.debian.org/debian".to_owned(),
            false => format!("{SNAPSHOTS}/{}", self.snapshot),
        };
        let mirrors = match self.mirrors.is_empty() {
            true => vec![own],
            false => self.mirrors.clone(),
        };
        let line = |mirror: String| format!("deb {mirror} {} main", self.suite);
        mirrors.into_iter().map(line).collect()
    }
}

/// The wheels that a lock file names, each `NAME==VERSION --hash=sha256:…` on one line; what follows `#` is a remark.
///
/// Errors: `environment.lock` with the number of the line.
pub fn locked_wheels(text: &str) -> Result<Vec<InstalledPackage>, Refusal> {
    let mut wheels = Vec::new();
    let mut names = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wheel = locked_wheel(line).filter(|wheel| names.insert(wheel.name.clone()));
        wheels.push(wheel.ok_or_else(|| refusals::environment_lock(at + 1))?);
    }
    match wheels.is_empty() {
        true => Err(refusals::environment_lock(1)),
        false => Ok(wheels),
    }
}

fn locked_wheel(line: &str) -> Option<InstalledPackage> {
    let mut words = line.split_whitespace();
    let (name, version) = words.next()?.split_once("==")?;
    let mut hashes = 0;
    for word in words {
        let hex = word.strip_prefix(HASH)?;
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        hashes += 1;
    }
    let is_version = !version.is_empty()
        && version
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+!-_".contains(&b));
    (hashes > 0 && is_word(name) && is_version).then(|| InstalledPackage {
        name: name.to_owned(),
        version: version.to_owned(),
    })
}

/// The digest, 64 hexadecimal digits, that a list as `sha256sum` writes it has for a file.
pub fn listed_digest<'a>(list: &'a str, file: &str) -> Option<&'a str> {
    list.lines().find_map(|line| {
        let (hex, name) = line.split_once(' ')?;
        let name = name.trim_start().trim_start_matches('*');
        let is_hex = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        (is_hex && name == file).then_some(hex)
    })
}

/// The licences that a `copyright` file of Debian names, each once; empty where it has another form.
pub fn debian_licences(copyright: &str) -> BTreeSet<String> {
    let lines = copyright.lines();
    let named = lines.filter_map(|line| line.strip_prefix("License:"));
    let named = named.map(|text| text.trim().to_owned());
    named.filter(|text| !text.is_empty()).collect()
}

/// The licence that the metadata of a wheel names; empty where it names none.
pub fn wheel_licence(metadata: &str) -> String {
    let head = metadata.split("\n\n").next().unwrap_or_default();
    let field = |name: &str| {
        let mut lines = head.lines();
        let found = lines.find_map(|line| line.strip_prefix(name));
        found.map(str::trim).filter(|text| !text.is_empty())
    };
    let said = field("License-Expression:").or_else(|| field("License:"));
    let said = said.or_else(|| field("Classifier: License ::"));
    said.unwrap_or_default().to_owned()
}

fn fits(words: &[String], is_good: impl Fn(&String) -> bool) -> bool {
    words.len() <= MAX_RECIPE_WORDS && words.iter().all(is_good)
}

/// A name of a package, and no option of the program that gets it.
fn is_word(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-_:=~".contains(&b))
}

fn is_plain(text: &str) -> bool {
    let visible = |letter: char| !letter.is_control() && !letter.is_whitespace();
    !text.is_empty() && text.len() <= MAX_RECIPE_TEXT && text.chars().all(visible)
}

/// A whole path without `..`.
fn is_place(path: &str) -> bool {
    let inside = path.strip_prefix('/');
    inside.is_some_and(is_own)
}

/// A path from a directory, and not out of it.
fn is_own(path: &str) -> bool {
    is_plain(path)
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn is_snapshot(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    text.is_ascii()
        && text.len() == 16
        && digits(&text[..8])
        && &text[8..9] == "T"
        && digits(&text[9..15])
        && text.ends_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            name: "tiny".into(),
            version: "1.0".into(),
            title: RecipeTitle {
                en: "Tiny".into(),
                ko: "작은 것".into(),
            },
            about: String::new(),
            architectures: vec!["amd64".into()],
            workdir: String::new(),
            command: Vec::new(),
            packages: vec!["python3".into()],
            base: RecipeBase {
                suite: "bookworm".into(),
                snapshot: String::new(),
                mirrors: Vec::new(),
                packages: vec!["tini".into()],
                root: String::new(),
                epoch: 1_750_000_000,
            },
            wheels: Some(RecipeWheels {
                into: "/opt/tiny".into(),
                python: "3.11".into(),
                lock: "tiny.lock".into(),
            }),
            files: vec![RecipeFile {
                path: "/etc/motd".into(),
                text: "hello".into(),
                executable: false,
            }],
            environment: BTreeMap::new(),
            labels: BTreeMap::new(),
            apps: Vec::new(),
            recommended: RecommendedOptions::default(),
            archives: vec![RecipeArchive {
                name: "tool".into(),
                version: "1.2".into(),
                licence: "MIT".into(),
                file: "tool.tar.gz".into(),
                hashes: "tool.sha256".into(),
                into: "/opt/tool".into(),
            }],
        }
    }

    #[test]
    fn a_whole_recipe_passes_and_each_fault_is_named() {
        assert_eq!(recipe().check(), Ok(()));
        type Fault = fn(&mut Recipe);
        let faults: [(&str, Fault); 24] = [
            ("title", |r| r.title.ko.clear()),
            ("title", |r| r.about = "a\nb".into()),
            ("architectures", |r| r.architectures.clear()),
            ("architectures", |r| r.architectures[0] = "x86_64".into()),
            ("base", |r| r.base.suite.clear()),
            ("base", |r| r.base.root = "root".into()),
            ("base.suite", |r| r.base.suite = "--hook".into()),
            ("base.snapshot", |r| r.base.snapshot = "2026".into()),
            ("base.root", |r| {
                r.base.suite.clear();
                r.base.root = "root".into();
            }),
            ("base.mirrors", |r| {
                r.base.mirrors = vec!["http://a b".into()];
            }),
            ("base.mirrors", |r| {
                r.base.mirrors = vec!["http://me:secret@one/debian".into()];
            }),
            ("base.packages", |r| r.base.packages[0] = "-x".into()),
            ("packages", |r| r.packages[0] = "a,b".into()),
            ("packages", |r| {
                r.packages = vec!["a".into(); MAX_RECIPE_WORDS + 1];
            }),
            ("command", |r| {
                r.command = vec!["a".repeat(MAX_RECIPE_TEXT + 1)];
            }),
            ("wheels", |r| {
                r.wheels.as_mut().unwrap().lock = "../x".into();
            }),
            ("wheels", |r| {
                r.wheels.as_mut().unwrap().python = "2.7".into();
            }),
            ("archive", |r| r.archives[0].file = "/tool.tar".into()),
            ("archive", |r| r.archives[0].into = "opt".into()),
            ("file", |r| r.files[0].path = "/etc/../x".into()),
            ("file", |r| r.files.push(r.files[0].clone())),
            ("workdir", |r| r.workdir = "home".into()),
            ("environment", |r| {
                r.environment.insert("A=B".into(), String::new());
            }),
            ("labels", |r| {
                r.labels.insert(APPS_LABEL.into(), "[]".into());
            }),
        ];
        for (field, fault) in faults {
            let mut faulty = recipe();
            fault(&mut faulty);
            let refused = faulty.check().unwrap_err();
            assert_eq!(
                refused,
                refusals::environment_recipe_field(field),
                "{field}"
            );
        }
        let refused = recipe().check_architecture("arm64").unwrap_err();
        assert_eq!(refused.code, "environment.architecture");
    }

    #[test]
    fn a_snapshot_and_mirrors_become_sources() {
        let mut base = recipe().base;
        let lines = |base: &RecipeBase| base.sources().join("|");
        assert_eq!(
            lines(&base),
            "deb http://deb.debian.org/debian bookworm main"
        );
        base.snapshot = "20260601T000000Z".into();
        assert!(lines(&base).contains("/20260601T000000Z bookworm main"));
        base.mirrors = vec!["http://one/debian".into(), "file:/two".into()];
        assert_eq!(
            lines(&base),
            "deb http://one/debian bookworm main|deb file:/two bookworm main"
        );
    }

    #[test]
    fn a_lock_file_names_each_wheel_with_its_hash() {
        let hash = format!("{HASH}{}", "a".repeat(64));
        let text = format!("# wheels\njupyterlab==4.6.6 {hash} {hash}\n\npip==25.3 {hash} # own\n");
        let wheels = locked_wheels(&text).unwrap();
        assert_eq!((wheels.len(), wheels[0].name.as_str()), (2, "jupyterlab"));
        let faults = [
            (String::new(), "1"),
            ("pip".into(), "1"),
            ("pip==1".into(), "1"),
            (format!("pip==1 {HASH}00"), "1"),
            (format!("\n--index==1 {hash}"), "2"),
            (format!("pip==1 {hash}\npip==1 {hash}"), "2"),
            (format!("pip==1 {hash} --no-index"), "1"),
        ];
        for (text, line) in faults {
            let refused = locked_wheels(&text).unwrap_err();
            assert_eq!(refused.code, "environment.lock", "{text}");
            assert!(refused.text.contains(line), "{}", refused.text);
        }
    }

    #[test]
    fn the_digest_of_a_file_is_found_in_a_list() {
        let hex = "a".repeat(64);
        let list = format!(
            "{}  other\n{hex}  tool.tar.gz\n{hex} *bin\n",
            "b".repeat(64)
        );
        assert_eq!(listed_digest(&list, "tool.tar.gz"), Some(hex.as_str()));
        assert_eq!(listed_digest(&list, "bin"), Some(hex.as_str()));
        assert_eq!(listed_digest(&list, "tool"), None);
        assert_eq!(listed_digest("abc  tool", "tool"), None);
    }

    #[test]
    fn licences_are_read_where_they_are_named() {
        let copyright =
            "Format: x\n\nFiles: *\nLicense: MIT\n\nLicense: GPL-2+\n text\nLicense: MIT\n";
        let named: Vec<String> = debian_licences(copyright).into_iter().collect();
        assert_eq!(named, ["GPL-2+", "MIT"]);
        assert!(debian_licences("This is free.").is_empty());
        let metadata = "Name: a\nLicense: BSD\nLicense-Expression: BSD-3-Clause\n\nLicense: no";
        assert_eq!(wheel_licence(metadata), "BSD-3-Clause");
        let metadata = "Name: a\nClassifier: License :: OSI Approved :: MIT License\n";
        assert_eq!(wheel_licence(metadata), "OSI Approved :: MIT License");
        assert_eq!(wheel_licence("Name: a\n\nLicense: MIT"), "");
    }
}
