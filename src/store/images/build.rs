//! Builds an environment of a recipe without a container engine: Debian's own `mmdebstrap` makes the tree, `pip` puts
//! locked wheels into it, each step becomes a layer, and the image goes through an import into a bundle. The same recipe
//! with the same packages gives the same bytes. Needs root; writes into its own directory alone, and decides nothing
//! about who is trusted.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use base::signing::SigningKey;
use rules::environment::{BundleManifest, InstalledPackage, MAX_TEXT_BYTES, debian_packages};
use rules::recipe::{
    HASH, MAX_RECIPE_BYTES, Recipe, RecipeApps, RecipeArchive, RecipeWheels, debian_licences,
    listed_digest, locked_wheels, wheel_licence,
};
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::Mode;
use serde_json::{Value, json};

use super::archive::Archive;
use super::digest::{Hashing, Sha256Digest};
use super::environment::{BundlePlan, PlannedImage, into_new_file};
use super::failure::{Doing, ImageError};
use super::limits::ImportLimits;
use super::tree::{TreeSnapshot, WrittenLayer, directory_in, text_in, write_in};
use super::{ArchiveImport, ImageStore, lower};

/// Names of files that a refusal lists. More: a message that no person reads.
const MAX_SHOWN_DIFFERENCES: usize = 20;
/// Bytes of the status file of dpkg, and of one text about a package.
const MAX_STATUS_BYTES: u64 = 32 << 20;
const MAX_COPYRIGHT_BYTES: u64 = 1 << 20;
/// Where wheels lie while they are installed; it is in no layer.
const WHEELS: &str = "tmp/wheels";
/// Variables of who builds that Debian's own programs get.
const KEPT_VARIABLES: [&str; 7] = [
    "PATH",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The oldest and the newest GNU C library whose wheels are taken: that of the recipes' own suites.
const C_LIBRARIES: std::ops::RangeInclusive<u32> = 5..=36;

/// What a bundle is built of.
pub struct BuildPlan<'a> {
    pub recipe: &'a Recipe,
    /// The recipe's own directory.
    pub folder: &'a Path,
    /// A directory with the wheels; None: they are fetched.
    pub wheels: Option<&'a Path>,
    /// None: it is not signed.
    pub key: Option<&'a SigningKey>,
    /// It is built again beside itself, and the two must have the same bytes.
    pub twice: bool,
}

/// One build.
struct EnvironmentBuild<'a> {
    plan: &'a BuildPlan<'a>,
    recipe: &'a Recipe,
    /// An empty directory on a disk with room for the environment four times.
    work: &'a Path,
}

/// What a build does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStep {
    Base,
    Packages,
    Wheels,
    Archives,
    Files,
    Image,
    Bundle,
}

impl fmt::Display for BuildStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "base",
            Self::Packages => "packages",
            Self::Wheels => "wheels",
            Self::Archives => "archives",
            Self::Files => "files",
            Self::Image => "image",
            Self::Bundle => "bundle",
        })
    }
}

/// What was built.
#[derive(Debug)]
pub struct BuiltEnvironment {
    pub manifest: BundleManifest,
    /// The layers, lowest first, with the step that made each.
    pub layers: Vec<(BuildStep, WrittenLayer)>,
}

/// One line for each layer: its step, its bytes, its digest.
impl fmt::Display for BuiltEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, layer) in &self.layers {
            writeln!(f, "{step}  {} bytes  {}", layer.bytes, layer.digest)?;
        }
        Ok(())
    }
}

/// A lock file as it was read once: what is installed is what was checked.
#[derive(Default)]
struct BuildLock {
    text: String,
    wheels: Vec<InstalledPackage>,
}

/// A tree and the layers that it came to be by.
struct BuiltTree {
    root: PathBuf,
    layout: PathBuf,
    snapshot: TreeSnapshot,
    layers: Vec<(BuildStep, WrittenLayer)>,
}

impl BuildPlan<'_> {
    /// Builds the environment and writes its bundle into `file`, which must not exist. Works in a directory beside it,
    /// `FILE.work`, which needs room for the environment four times. `progress` hears of each step. A refusal or a fault
    /// leaves neither.
    ///
    /// Errors: `environment.architecture`, `environment.tool`, `environment.lock`, `environment.step`,
    /// `environment.differs`, `environment.recipe-field`, `environment.file`, `image.needs-root`, those of an import and of
    /// a bundle.
    pub fn write(
        &self,
        file: &Path,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<BuiltEnvironment, ImageError> {
        let mut name = file.as_os_str().to_owned();
        name.push(".work");
        let work = PathBuf::from(name);
        into_new_file(file, |out| {
            let unusable = |error: io::Error| refusals::environment_file(work.display(), error);
            DirBuilder::new()
                .mode(0o700)
                .create(&work)
                .map_err(unusable)?;
            let build = EnvironmentBuild {
                plan: self,
                recipe: self.recipe,
                work: &work,
            };
            let built = build.run(progress, out);
            // What was built matters more than what could not be removed; its user sees the directory.
            let _ = fs::remove_dir_all(&work);
            built
        })
    }
}

impl EnvironmentBuild<'_> {
    fn run(
        &self,
        progress: &mut dyn FnMut(BuildStep),
        out: &mut dyn Write,
    ) -> Result<BuiltEnvironment, ImageError> {
        self.recipe.check_architecture(architecture())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        if now.is_ok_and(|now| now.as_secs() < u64::from(self.recipe.base.epoch)) {
            // Times of this build would not be cut, and those of the next one differ.
            return Err(refusals::environment_recipe_field("base.epoch").into());
        }
        let store = ImageStore::open(&self.work.join("store"), ImportLimits::default())?;
        store.can_unpack()?;
        self.check_tools(&std::env::var_os("PATH").unwrap_or_default())?;
        let lock = self.lock()?;
        // The mask of who builds decides nothing: programs of a build make files as those of a Debian do.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let built = self.tree("one", &lock, progress)?;
        if self.plan.twice {
            let again = self.tree("two", &lock, progress)?;
            same(&built, &again)?;
            remove(&again.root)?;
            remove(&again.layout)?;
        }
        progress(BuildStep::Image);
        let licences = self.licences(&built)?;
        remove(&built.root)?;
        self.lay_out(&built)?;
        let import = ArchiveImport {
            archive: Archive::at(&built.layout)?,
            name: None,
            now: self.time(),
            cancelled: None,
        };
        let imported = store.import(import, &mut |_| {})?;
        let first = imported.first().ok_or_else(refusals::image_not_found)?;
        progress(BuildStep::Bundle);
        let archives = self.recipe.archives.iter();
        let others: Vec<InstalledPackage> = lock
            .wheels
            .iter()
            .cloned()
            .chain(archives.map(|archive| InstalledPackage {
                name: archive.name.clone(),
                version: archive.version.clone(),
            }))
            .collect();
        let images = [PlannedImage {
            id: first.record.id.clone(),
            reference: self.recipe.reference(),
            recommended: self.recipe.recommended.clone(),
        }];
        let plan = BundlePlan {
            name: &self.recipe.name,
            version: &self.recipe.version,
            about: &self.recipe.about,
            images: &images,
            others: &others,
            licences,
            key: self.plan.key,
        };
        Ok(BuiltEnvironment {
            manifest: store.write_bundle(plan, out)?,
            layers: built.layers,
        })
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(i64::from(self.recipe.base.epoch) * 1000)
    }

    /// What the recipe needs of this machine. Errors: `environment.tool`.
    fn check_tools(&self, path: &OsStr) -> Result<(), ImageError> {
        let mut needed = Vec::new();
        match self.recipe.base.root.is_empty() {
            true => needed.extend([("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux")]),
            false => needed.push(("cp", "coreutils")),
        }
        if !self.recipe.archives.is_empty() {
            needed.extend([("tar", "tar"), ("cp", "coreutils")]);
        }
        if self.recipe.wheels.is_some() {
            needed.extend([("unshare", "util-linux"), ("chroot", "coreutils")]);
            if self.plan.wheels.is_none() {
                needed.push(("python3", "python3-pip"));
            }
        }
        for (tool, package) in needed {
            let mut places = std::env::split_paths(path);
            if !places.any(|place| place.join(tool).is_file()) {
                return Err(refusals::environment_tool(tool, package).into());
            }
        }
        if self.recipe.wheels.is_some() && self.plan.wheels.is_none() {
            let asked = Command::new("python3")
                .args(["-I", "-m", "pip", "--version"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if !asked.is_ok_and(|status| status.success()) {
                return Err(refusals::environment_tool("pip", "python3-pip").into());
            }
        }
        Ok(())
    }

    /// The wheels of the lock file; none where the recipe has none. Errors: `environment.lock`, `environment.recipe-field`.
    fn lock(&self) -> Result<BuildLock, ImageError> {
        let Some(wheels) = &self.recipe.wheels else {
            return Ok(BuildLock::default());
        };
        let folder = directory(self.plan.folder)?;
        let text = text_in(folder.as_fd(), Path::new(&wheels.lock), MAX_RECIPE_BYTES);
        let text = text.ok_or_else(|| refusals::environment_recipe_field("wheels.lock"))?;
        let lock = BuildLock {
            wheels: locked_wheels(&text)?,
            text,
        };
        // The one that installs all of them comes out of the lock file as well.
        match lock.wheels.iter().any(|wheel| wheel.name == "pip") {
            true => Ok(lock),
            false => Err(refusals::environment_recipe_field("wheels.lock").into()),
        }
    }

    /// Makes the tree, and a layer of each step, in the directory `name` of the work.
    fn tree(
        &self,
        name: &str,
        lock: &BuildLock,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<BuiltTree, ImageError> {
        let place = self.work.join(name);
        let mut tree = BuiltTree {
            root: place.join("root"),
            layout: place.join("layout"),
            snapshot: TreeSnapshot::default(),
            layers: Vec::new(),
        };
        let making = || format!("make {}", place.display());
        fs::create_dir_all(tree.layout.join("blobs/sha256")).doing(making)?;
        let recipe = self.recipe;
        progress(BuildStep::Base);
        match recipe.base.root.is_empty() {
            true => self.debian(BuildStep::Base, &tree.root, &recipe.base.packages)?,
            false => {
                let mut copy = Command::new("cp");
                copy.arg("-a").arg("--");
                copy.arg(self.plan.folder.join(&recipe.base.root))
                    .arg(&tree.root);
                run(BuildStep::Base, copy)?;
            }
        }
        tree.keep(BuildStep::Base, recipe.base.epoch)?;
        if !recipe.packages.is_empty() {
            progress(BuildStep::Packages);
            // A tree with all of them, made as the base was: no package of a step knows of the steps before.
            remove(&tree.root)?;
            let all = [recipe.base.packages.as_slice(), &recipe.packages].concat();
            self.debian(BuildStep::Packages, &tree.root, &all)?;
            tree.keep(BuildStep::Packages, recipe.base.epoch)?;
        }
        if let Some(wheels) = &recipe.wheels {
            progress(BuildStep::Wheels);
            self.install(&tree.root, wheels, lock)?;
            tree.keep(BuildStep::Wheels, recipe.base.epoch)?;
        }
        if !recipe.archives.is_empty() {
            progress(BuildStep::Archives);
            for archive in &recipe.archives {
                self.unpack(&tree.root, archive)?;
            }
            tree.keep(BuildStep::Archives, recipe.base.epoch)?;
        }
        if !recipe.files.is_empty() {
            progress(BuildStep::Files);
            let root = directory(&tree.root)?;
            for file in &recipe.files {
                write_in(root.as_fd(), &file.path, &file.text, file.executable)?;
            }
            tree.keep(BuildStep::Files, recipe.base.epoch)?;
        }
        Ok(tree)
    }

    /// Makes a Debian of these packages and what they depend on.
    fn debian(&self, step: BuildStep, root: &Path, packages: &[String]) -> Result<(), ImageError> {
        let base = &self.recipe.base;
        // What it mounts into the tree ends with it, also where it is killed: a removal of the tree never meets the
        // machine's own devices.
        let mut make = Command::new("unshare");
        make.args(["--mount", "mmdebstrap"]);
        make.args(["--mode=root", "--variant=minbase", "--format=directory"])
            .args(["--quiet", "--skip=output/dev"])
            .arg(format!("--architectures={}", architecture()))
            .arg("--dpkgopt=path-exclude=/usr/share/man/*")
            .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
            .arg("--dpkgopt=path-include=/usr/share/locale/locale.alias");
        if !base.snapshot.is_empty() {
            // What a snapshot signed was valid for a week of its own time.
            make.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
        }
        if !packages.is_empty() {
            make.arg(format!("--include={}", packages.join(",")));
        }
        make.arg(&base.suite).arg(root).args(base.sources());
        // Scripts of packages see no variable of who builds but those of proxies.
        make.env_clear().env("HOME", "/root");
        for name in KEPT_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                make.env(name, value);
            }
        }
        self.settle(&mut make);
        run(step, make)
    }

    /// Puts the locked wheels into an environment of their own, without a network.
    fn install(
        &self,
        root: &Path,
        wheels: &RecipeWheels,
        lock: &BuildLock,
    ) -> Result<(), ImageError> {
        let step = BuildStep::Wheels;
        let outside = || refusals::environment_recipe_field("wheels");
        let place = place_in(root, WHEELS)?.ok_or_else(outside)?;
        let making = || format!("make {}", place.display());
        let file = place.join("lock");
        fs::write(&file, &lock.text).doing(making)?;
        match self.plan.wheels {
            Some(folder) => {
                let listed = lock.text.to_ascii_lowercase();
                for entry in fs::read_dir(folder).doing(making)? {
                    let path = entry.doing(making)?.path();
                    if let (Some("whl"), Some(name)) = (
                        path.extension().and_then(|end| end.to_str()),
                        path.file_name(),
                    ) {
                        let copied = place.join(name);
                        let hex = copy(&path, &copied)?;
                        // pip is run before it can look at itself, so what the lock file does not list stays out.
                        if !listed.contains(&format!("{HASH}{hex}")) {
                            fs::remove_file(&copied).doing(making)?;
                        }
                    }
                }
            }
            None => {
                let mut fetch = Command::new("python3");
                // `-I`: no module of the directory that root happens to stand in is run.
                fetch.args(["-I", "-m", "pip", "download", "--quiet", "--no-deps"]);
                fetch.args(["--require-hashes", "--only-binary=:all:", "--no-cache-dir"]);
                fetch.args(["--implementation", "cp", "--python-version", &wheels.python]);
                let abi = format!("cp{}", wheels.python.replace('.', ""));
                for abi in [abi.as_str(), "abi3", "none"] {
                    fetch.args(["--abi", abi]);
                }
                for platform in platforms() {
                    fetch.args(["--platform", &platform]);
                }
                fetch
                    .arg("--dest")
                    .arg(&place)
                    .arg("--requirement")
                    .arg(&file);
                run(step, fetch)?;
            }
        }
        let pip = lock.wheels.iter().find(|wheel| wheel.name == "pip");
        let pip = pip.map_or("", |wheel| wheel.version.as_str());
        let python = format!("{}/bin/python", wheels.into);
        let mut make = self.inside(root);
        make.args([
            "/usr/bin/python3",
            "-m",
            "venv",
            "--without-pip",
            &wheels.into,
        ]);
        run(step, make)?;
        let mut install = self.inside(root);
        install
            .arg(&python)
            .arg(format!("/{WHEELS}/pip-{pip}-py3-none-any.whl/pip"))
            .args([
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                "--no-cache-dir",
            ])
            .args([
                "--no-compile",
                "--root-user-action=ignore",
                "--require-hashes",
            ])
            .arg(format!("--find-links=/{WHEELS}"))
            .arg(format!("--requirement=/{WHEELS}/lock"));
        run(step, install)?;
        // Byte code that names no time: the first start of a session compiles nothing, and two builds agree.
        let mut compile = self.inside(root);
        compile
            .arg(&python)
            .args(["-S", "-m", "compileall", "-q", "-j1"])
            .arg("--invalidation-mode=unchecked-hash")
            .arg(format!("{}/lib", wheels.into));
        compile.stdin(Stdio::null()).stdout(Stdio::null());
        // Some packages carry templates that are no Python; they stay without byte code, and it says so by its end.
        compile.status().doing(|| "start compileall".into())?;
        remove(&place)
    }

    /// Unpacks a tar file that has the digest that its list says. Errors: `environment.archive`, `environment.step`.
    fn unpack(&self, root: &Path, archive: &RecipeArchive) -> Result<(), ImageError> {
        let other = || refusals::environment_archive(&archive.file, &archive.hashes);
        let folder = directory(self.plan.folder)?;
        let list = text_in(folder.as_fd(), Path::new(&archive.hashes), MAX_RECIPE_BYTES);
        let list = list.ok_or_else(other)?;
        let listed = listed_digest(&list, &archive.file).ok_or_else(other)?;
        // What is unpacked is what was hashed, also where another user writes beside the recipe.
        let (file, unpacked) = (self.work.join("archive"), self.work.join("unpacked"));
        let path = self.plan.folder.join(&archive.file);
        if !path.is_file() || copy(&path, &file)? != listed.to_ascii_lowercase() {
            return Err(other().into());
        }
        // A link of the tree must not lead the archive out of it: tar unpacks into an empty directory, where it holds its own
        // links back, and cp puts no directory behind a link and writes through none.
        let outside = || refusals::environment_recipe_field("archive");
        let place = place_in(root, &archive.into)?.ok_or_else(outside)?;
        let making = || format!("make {}", unpacked.display());
        fs::create_dir(&unpacked).doing(making)?;
        let as_there = fs::metadata(&place).doing(making)?.permissions();
        fs::set_permissions(&unpacked, as_there).doing(making)?;
        let mut unpack = Command::new("tar");
        unpack
            .args(["--extract", "--no-same-owner", "--directory"])
            .arg(&unpacked);
        unpack.arg("--file").arg(&file);
        run(BuildStep::Archives, unpack)?;
        let mut put = Command::new("cp");
        put.args(["-a", "--remove-destination", "--"])
            .arg(unpacked.join("."))
            .arg(&place);
        run(BuildStep::Archives, put)?;
        fs::remove_file(&file).doing(|| format!("remove {}", file.display()))?;
        remove(&unpacked)
    }

    /// A program of the tree, without a network and with few variables.
    fn inside(&self, root: &Path) -> Command {
        let mut command = Command::new("unshare");
        // With processes of its own, so that none is left when it ends and none of the machine is met.
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
            .arg("chroot")
            .arg(root);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", "/root")
            .env("PIP_CONFIG_FILE", "/dev/null")
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        self.settle(&mut command);
        command
    }

    /// What makes programs give the same bytes.
    fn settle(&self, command: &mut Command) {
        command
            .env("SOURCE_DATE_EPOCH", self.recipe.base.epoch.to_string())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("PYTHONHASHSEED", "0");
    }

    /// One line for each package: its name, its version, its licences.
    fn licences(&self, tree: &BuiltTree) -> Result<String, ImageError> {
        let root = directory(&tree.root)?;
        let read = |path: &str, most| text_in(root.as_fd(), Path::new(path), most);
        let status = read("var/lib/dpkg/status", MAX_STATUS_BYTES).unwrap_or_default();
        let mut lines = Vec::new();
        for package in debian_packages(&status) {
            let (name, version) = (&package.name, &package.version);
            let place = format!("usr/share/doc/{name}/copyright");
            let text = read(&place, MAX_COPYRIGHT_BYTES).unwrap_or_default();
            let named: Vec<String> = debian_licences(&text).into_iter().collect();
            let named = match named.is_empty() {
                true => format!("see /{place}"),
                false => named.join(", "),
            };
            lines.push(format!("{name} {version}: {named}"));
        }
        if let Some(wheels) = &self.recipe.wheels {
            let place = format!("{}/lib/python{}/site-packages", wheels.into, wheels.python);
            let place = place.trim_start_matches('/');
            let listing = || format!("list {place}");
            let mut names = Vec::new();
            for entry in fs::read_dir(tree.root.join(place)).doing(listing)? {
                let name = entry.doing(listing)?.file_name();
                names.extend(name.to_str().map(str::to_owned));
            }
            names.sort_unstable();
            for name in names
                .iter()
                .filter_map(|name| name.strip_suffix(".dist-info"))
            {
                let metadata = format!("{place}/{name}.dist-info/METADATA");
                let text = read(&metadata, MAX_COPYRIGHT_BYTES).unwrap_or_default();
                let named = match wheel_licence(&text) {
                    none if none.is_empty() => format!("see /{place}/{name}.dist-info"),
                    named => named,
                };
                lines.push(format!("{}: {named}", name.replacen('-', " ", 1)));
            }
        }
        for archive in &self.recipe.archives {
            let (name, version) = (&archive.name, &archive.version);
            lines.push(format!("{name} {version}: {}", archive.licence));
        }
        let most = usize::try_from(MAX_TEXT_BYTES).unwrap_or(usize::MAX);
        let mut text = String::new();
        for line in lines {
            if text.len() + line.len() < most {
                text.push_str(&line);
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Writes configuration, manifest and index beside the layers.
    ///
    /// Rule: OCI image specification 1.1, "Image Layout" and "Image Configuration".
    fn lay_out(&self, tree: &BuiltTree) -> Result<(), ImageError> {
        let recipe = self.recipe;
        let writing = || "write the layout of an image".to_owned();
        let mut variables = recipe.environment.clone();
        variables.entry("PATH".to_owned()).or_insert_with(|| {
            let wheels = recipe.wheels.as_ref();
            wheels.map_or_else(
                || SYSTEM_PATH.to_owned(),
                |wheels| format!("{}/bin:{SYSTEM_PATH}", wheels.into),
            )
        });
        let variables: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let apps = serde_json::to_string(&RecipeApps(&recipe.apps)).doing(writing)?;
        let created = self.time().to_string();
        let layers = &tree.layers;
        let history = layers.iter().map(|(step, _)| {
            json!({"created": created, "created_by": format!("fardel environment build: {step}")})
        });
        let mut run = json!({"Env": variables, "Labels": recipe.labels(apps)?});
        if !recipe.command.is_empty() {
            run["Cmd"] = json!(recipe.command);
        }
        if !recipe.workdir.is_empty() {
            run["WorkingDir"] = json!(recipe.workdir);
        }
        let digests = layers.iter().map(|(_, layer)| json!(layer.digest));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "created": created,
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": digests.collect::<Vec<_>>()},
            "history": history.collect::<Vec<_>>(),
        });
        let (config, config_size) = tree.blob(&config)?;
        let layers = layers.iter().map(|(_, layer)| {
            json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.digest,
                "size": layer.bytes,
            })
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config,
                "size": config_size,
            },
            "layers": layers.collect::<Vec<_>>(),
        });
        let (manifest, size) = tree.blob(&manifest)?;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest,
                "size": size,
                "annotations": {"org.opencontainers.image.ref.name": recipe.reference()},
            }],
        });
        fs::write(tree.layout.join("index.json"), index.to_string()).doing(writing)?;
        let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
        fs::write(tree.layout.join("oci-layout"), layout).doing(writing)
    }
}

impl BuiltTree {
    /// Makes a layer of what the step changed.
    fn keep(&mut self, step: BuildStep, latest: u32) -> Result<(), ImageError> {
        let root = directory(&self.root)?;
        let snapshot = TreeSnapshot::of(root.as_fd())?;
        let writing = || "write a layer".to_owned();
        let blobs = self.layout.join("blobs/sha256");
        let begun = blobs.join("begun");
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&begun).doing(writing)?);
        let layer = snapshot.write_layer(&self.snapshot, root.as_fd(), latest, &mut file)?;
        drop(file);
        fs::rename(&begun, blobs.join(layer.digest.hex())).doing(writing)?;
        self.snapshot = snapshot;
        self.layers.push((step, layer));
        Ok(())
    }

    fn blob(&self, document: &Value) -> Result<(Sha256Digest, usize), ImageError> {
        let bytes = document.to_string().into_bytes();
        let digest = Sha256Digest::of(&bytes);
        let place = self.layout.join("blobs/sha256").join(digest.hex());
        fs::write(place, &bytes).doing(|| "write the layout of an image".into())?;
        Ok((digest, bytes.len()))
    }
}

/// Errors: `environment.differs`, with the first names.
fn same(one: &BuiltTree, other: &BuiltTree) -> Result<(), ImageError> {
    if one.layers == other.layers {
        return Ok(());
    }
    let mut names = one.snapshot.differences(&other.snapshot);
    if names.is_empty() {
        names.push("times of files".to_owned());
    }
    let count = names.len();
    names.truncate(MAX_SHOWN_DIFFERENCES);
    Err(refusals::environment_differs(count, names.join(", ")).into())
}

/// What this machine is called in Debian.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The platforms of wheels that this machine's images take.
fn platforms() -> Vec<String> {
    let machine = std::env::consts::ARCH;
    let mut all: Vec<String> = C_LIBRARIES
        .rev()
        .map(|minor| format!("manylinux_2_{minor}_{machine}"))
        .collect();
    all.extend(
        ["manylinux2014", "manylinux2010", "manylinux1"].map(|old| format!("{old}_{machine}")),
    );
    all
}

/// Runs a program whose lines go to this one's own errors. Errors: `environment.step`.
fn run(step: BuildStep, mut command: Command) -> Result<(), ImageError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: &dyn fmt::Display| {
        let why = format!("{program}: {why}");
        ImageError::from(refusals::environment_step(step, why))
    };
    command.stdin(Stdio::null()).stdout(io::stderr());
    let status = command.status().map_err(|error| failed(&error))?;
    match status.success() {
        true => Ok(()),
        false => Err(failed(&status)),
    }
}

/// A directory of a tree, made where it is not there; None where a link of the tree leads to another one.
fn place_in(root: &Path, path: &str) -> Result<Option<PathBuf>, ImageError> {
    if directory_in(directory(root)?.as_fd(), path).is_err() {
        return Ok(None);
    }
    let finding = || format!("find {}", root.display());
    let top = root.canonicalize().doing(finding)?;
    let place = root.join(path.trim_start_matches('/')).canonicalize();
    let place = place.ok().filter(|place| place.starts_with(&top));
    Ok(place)
}

/// Copies a file, and gives the SHA-256 of the copy in hexadecimal digits.
fn copy(from: &Path, to: &Path) -> Result<String, ImageError> {
    let copying = || format!("copy {}", from.display());
    let mut hashing = Hashing::new(File::open(from).doing(copying)?);
    let mut out = File::create(to).doing(copying)?;
    io::copy(&mut hashing, &mut out).doing(copying)?;
    Ok(hashing.finish().0.hex().to_owned())
}

fn directory(path: &Path) -> Result<OwnedFd, ImageError> {
    lower::open_directory(rustix::fs::CWD, path.as_os_str().as_encoded_bytes())
}

fn remove(path: &Path) -> Result<(), ImageError> {
    fs::remove_dir_all(path).doing(|| format!("remove {}", path.display()))
}

#[cfg(test)]
mod tests;
