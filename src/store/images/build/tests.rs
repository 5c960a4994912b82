//! Builds of a directory that is a root already, without a network, and what is refused before anything is begun.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::AtomicBool;

use rules::environment::RecommendedOptions;
use rules::recipe::{RecipeBase, RecipeFile, RecipeTitle};
use tempfile::TempDir;

use super::super::environment::BundleCheck;
use super::super::tests::can_unpack;
use super::*;

fn recipe() -> Recipe {
    Recipe {
        name: "tiny".into(),
        version: "1.0".into(),
        title: RecipeTitle {
            en: "Tiny".into(),
            ko: "작은 환경".into(),
        },
        about: "One file".into(),
        architectures: vec![architecture().into()],
        workdir: "/srv".into(),
        command: vec!["/bin/tool".into()],
        packages: Vec::new(),
        base: RecipeBase {
            suite: String::new(),
            snapshot: String::new(),
            mirrors: Vec::new(),
            packages: Vec::new(),
            root: "root".into(),
            epoch: 1_750_000_000,
        },
        wheels: None,
        files: vec![RecipeFile {
            path: "/srv/hello".into(),
            text: "hello".into(),
            executable: false,
        }],
        environment: [("GREETING".to_owned(), "hello".to_owned())].into(),
        labels: BTreeMap::new(),
        apps: Vec::new(),
        recommended: RecommendedOptions {
            ports: vec![8888],
            ..RecommendedOptions::default()
        },
        archives: Vec::new(),
    }
}

/// A directory with a recipe's root in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::create_dir_all(root.join("var/log")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg")).unwrap();
    fs::create_dir_all(root.join("usr/share/doc/tool")).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::write(root.join("usr/bin/tool"), "run").unwrap();
    fs::set_permissions(root.join("usr/bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(
        root.join("var/log/made"),
        format!("{:?}", SystemTime::now()),
    )
    .unwrap();
    let status = "Package: tool\nStatus: install ok installed\nVersion: 2-1\n";
    fs::write(root.join("var/lib/dpkg/status"), status).unwrap();
    let copyright = "Files: *\nLicense: MIT\n";
    fs::write(root.join("usr/share/doc/tool/copyright"), copyright).unwrap();
    folder
}

fn built(
    recipe: &Recipe,
    folder: &TempDir,
    twice: bool,
) -> Result<(BuiltEnvironment, Vec<u8>), ImageError> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tiny.tar");
    let plan = BuildPlan {
        recipe,
        folder: folder.path(),
        wheels: None,
        key: None,
        twice,
    };
    let built = plan.write(&file, &mut |_| ())?;
    Ok((built, fs::read(&file).unwrap()))
}

/// Two builds of a recipe have the same bytes, or the build names the files that differ.
#[test]
fn two_builds_of_a_recipe_have_the_same_bytes() {
    if !can_unpack("two_builds_of_a_recipe_have_the_same_bytes") {
        return;
    }
    let recipe = recipe();
    let (first, bytes) = built(&recipe, &folder(), true).unwrap();
    let (_, again) = built(&recipe, &folder(), false).unwrap();
    assert!(
        bytes == again,
        "another directory, another time: the same bytes"
    );
    let steps: Vec<BuildStep> = first.layers.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [BuildStep::Base, BuildStep::Files]);

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let check = BundleCheck {
        file: &file,
        trusted: &[],
        accept_unsigned: true,
        cancelled: &AtomicBool::new(false),
    };
    let checked = check.run(&mut |_, _| ()).unwrap();
    assert_eq!(checked.licences, "tool 2-1: MIT\n");
    assert!(checked.sbom.contains("\"tool\""), "{}", checked.sbom);
    let image = &checked.manifest.images[0];
    assert_eq!(image.reference, "tiny:1.0");
    assert_eq!(image.recommended.ports, [8888]);

    let place = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&place.path().join("images"), ImportLimits::default()).unwrap();
    let request = ArchiveImport {
        archive: Archive::File(file),
        name: None,
        now: Timestamp::default(),
        cancelled: None,
    };
    let imported = store.import(request, &mut |_| {}).unwrap();
    let record = &imported[0].record;
    assert!(
        record.config.contains("GREETING=hello"),
        "{}",
        record.config
    );
    assert!(record.config.contains("\"fardel.title.ko\""));
    let layers = store.layers(&record.id).unwrap();
    let there = |name: &str| layers.iter().any(|layer| layer.join(name).is_file());
    assert!(there("usr/bin/tool") && there("srv/hello"));
    assert!(!there("var/log/made"), "a log is of one run");
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    if !can_unpack("what_cannot_be_built_is_refused_by_name") {
        return;
    }
    let folder = folder();
    let lock = format!("own==1 --hash=sha256:{}\n", "a".repeat(64));
    fs::write(folder.path().join("own.lock"), lock).unwrap();
    fs::write(folder.path().join("bad.lock"), "own\n").unwrap();
    type Fault = fn(&mut Recipe);
    let wheels = |lock: &str| RecipeWheels {
        into: "/opt/own".into(),
        python: "3.11".into(),
        lock: lock.into(),
    };
    let with_lock = |lock: &str| {
        let mut recipe = recipe();
        recipe.wheels = Some(wheels(lock));
        let plan = BuildPlan {
            recipe: &recipe,
            folder: folder.path(),
            wheels: Some(folder.path()),
            key: None,
            twice: false,
        };
        let place = tempfile::tempdir().unwrap();
        let refused = plan.write(&place.path().join("x"), &mut |_| ());
        let refused = refused.unwrap_err();
        refused.code().unwrap_or("fault").to_owned()
    };
    // A lock file without pip cannot install itself.
    assert_eq!(with_lock("own.lock"), "environment.recipe-field");
    assert_eq!(with_lock("none.lock"), "environment.recipe-field");
    assert_eq!(with_lock("bad.lock"), "environment.lock");
    let faults: [(&str, Fault); 4] = [
        ("environment.archive", |r| {
            r.archives.push(RecipeArchive {
                name: "tool".into(),
                version: "1".into(),
                licence: "MIT".into(),
                file: "own.lock".into(),
                hashes: "bad.lock".into(),
                into: "/opt/tool".into(),
            });
        }),
        ("environment.architecture", |r| {
            r.architectures = vec!["riscv64".into()];
        }),
        ("environment.recipe-field", |r| r.base.epoch = u32::MAX),
        ("environment.step", |r| r.base.root = "missing".into()),
    ];
    for (code, fault) in faults {
        let mut faulty = recipe();
        fault(&mut faulty);
        let refused = built(&faulty, &folder, false).unwrap_err();
        assert_eq!(refused.code(), Some(code));
    }
}

#[test]
fn an_archive_of_the_listed_digest_is_unpacked() {
    if !can_unpack("an_archive_of_the_listed_digest_is_unpacked") {
        return;
    }
    let folder = folder();
    let archive = super::super::samples::Tar::default()
        .file("bin/editor", b"run")
        .end();
    let digest = Sha256Digest::of(&archive);
    fs::write(folder.path().join("editor.tar"), &archive).unwrap();
    let list = format!("{}  editor.tar\n", digest.hex());
    fs::write(folder.path().join("editor.sha256"), list).unwrap();
    let mut recipe = recipe();
    recipe.archives.push(RecipeArchive {
        name: "editor".into(),
        version: "4.1".into(),
        licence: "MIT".into(),
        file: "editor.tar".into(),
        hashes: "editor.sha256".into(),
        into: "/opt/editor".into(),
    });
    let (built, bytes) = built(&recipe, &folder, true).unwrap();
    assert_eq!(built.layers[1].0, BuildStep::Archives);
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("opt/editor/bin/editor"));
    assert!(text.contains("editor 4.1: MIT"));
    fs::write(folder.path().join("editor.tar"), b"other").unwrap();
    let refused = self::built(&recipe, &folder, false).unwrap_err();
    assert_eq!(refused.code(), Some("environment.archive"));
    // A link of the tree that leads out of it is not followed.
    fs::write(folder.path().join("editor.tar"), &archive).unwrap();
    symlink(folder.path(), folder.path().join("root/opt")).unwrap();
    let refused = self::built(&recipe, &folder, false).unwrap_err();
    assert_eq!(refused.code(), Some("environment.recipe-field"));
    assert!(!folder.path().join("editor").exists());
    // Neither is one below the place.
    let outside = tempfile::tempdir().unwrap();
    fs::remove_file(folder.path().join("root/opt")).unwrap();
    fs::create_dir_all(folder.path().join("root/opt/editor")).unwrap();
    symlink(outside.path(), folder.path().join("root/opt/editor/bin")).unwrap();
    let refused = self::built(&recipe, &folder, false).unwrap_err();
    assert_eq!(refused.code(), Some("environment.step"));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let mut recipe = recipe();
    recipe.base.root.clear();
    recipe.base.suite = "bookworm".into();
    let folder = folder();
    let plan = BuildPlan {
        recipe: &recipe,
        folder: folder.path(),
        wheels: None,
        key: None,
        twice: false,
    };
    let build = EnvironmentBuild {
        plan: &plan,
        recipe: &recipe,
        work: folder.path(),
    };
    let refused = build.check_tools(folder.path().as_os_str()).unwrap_err();
    assert_eq!(refused.code(), Some("environment.tool"));
    assert!(refused.to_string().contains("mmdebstrap"), "{refused}");
    for tool in ["mmdebstrap", "unshare"] {
        fs::write(folder.path().join(tool), "").unwrap();
    }
    assert!(build.check_tools(folder.path().as_os_str()).is_ok());
}

#[test]
fn two_trees_that_differ_are_told_apart_by_name() {
    let tree = |content: &str| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/made"), content).unwrap();
        let layout = folder.path().join("layout");
        fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
        let mut tree = BuiltTree {
            root,
            layout,
            snapshot: TreeSnapshot::default(),
            layers: Vec::new(),
        };
        tree.keep(BuildStep::Base, 1_750_000_000).unwrap();
        tree
    };
    assert!(same(&tree("one"), &tree("one")).is_ok());
    let refused = same(&tree("one"), &tree("two")).unwrap_err();
    assert_eq!(refused.code(), Some("environment.differs"));
    assert!(refused.to_string().contains("etc/made"), "{refused}");
}

#[test]
fn a_build_that_fails_leaves_neither_file_nor_work() {
    let (folder, place) = (folder(), tempfile::tempdir().unwrap());
    let mut recipe = recipe();
    recipe.architectures = vec!["riscv64".into()];
    let plan = BuildPlan {
        recipe: &recipe,
        folder: folder.path(),
        wheels: None,
        key: None,
        twice: false,
    };
    let file = place.path().join("tiny.tar");
    let refused = plan.write(&file, &mut |_| ()).unwrap_err();
    assert_eq!(refused.code(), Some("environment.architecture"));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    // What another build works on stays, and so does a file that is there.
    fs::create_dir(place.path().join("tiny.tar.work")).unwrap();
    let refused = plan.write(&file, &mut |_| ()).unwrap_err();
    assert_eq!(refused.code(), Some("environment.file"));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    fs::remove_dir(place.path().join("tiny.tar.work")).unwrap();
    fs::write(&file, "old").unwrap();
    let refused = plan.write(&file, &mut |_| ()).unwrap_err();
    assert_eq!(refused.code(), Some("environment.file"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}
