//! Reads layers that are made here as overlayfs makes them, and looks at the archive that comes of them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rules::commit::{FoundSecret, SecretKind};
use rustix::fs::{CWD, XattrFlags};
use tempfile::TempDir;

use super::super::lower::OPAQUE;
use super::*;

const IDS: SessionIds = SessionIds {
    base: 200_000,
    size: 65_536,
    mapped: None,
};

/// An upper directory; None, with the reason told, where none can be made.
fn upper(test: &str) -> Option<TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let opened = File::open(directory.path()).unwrap();
    let marked = rustix::fs::fsetxattr(&opened, OPAQUE, b"n", XattrFlags::empty());
    let owned = chown(directory.path(), Some(IDS.base), Some(IDS.base));
    match (marked, owned) {
        (Ok(()), Ok(())) => Some(directory),
        (marked, owned) => {
            skips::skip(
                test,
                &format!("no layer can be made: {marked:?}, {owned:?}"),
            );
            None
        }
    }
}

fn whiteout(path: &Path) {
    let mode = Mode::from_raw_mode(0o000);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, 0).unwrap();
}

fn order<T>(
    directory: &Path,
    exclusions: &LayerExclusions,
    most_bytes: u64,
    act: impl FnOnce(&UpperLayer<'_>) -> T,
) -> T {
    let opened = File::open(directory).unwrap();
    act(&UpperLayer {
        directory: opened.as_fd(),
        ids: IDS,
        exclusions,
        most_bytes,
        proceed: &|| Ok(()),
    })
}

/// Kind, owner and link of each member.
fn members(archive: &[u8]) -> BTreeMap<String, (EntryType, u64, String)> {
    let mut read = tar::Archive::new(archive);
    let entries = read.entries().unwrap();
    let member = entries.map(|entry| {
        let entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let link = entry.link_name_bytes().unwrap_or_default().into_owned();
        let header = entry.header();
        let link = String::from_utf8(link).unwrap();
        (name, (header.entry_type(), header.uid().unwrap(), link))
    });
    member.collect()
}

#[test]
fn a_layer_is_written_as_an_image_has_it() {
    let Some(place) = upper("a_layer_is_written_as_an_image_has_it") else {
        return;
    };
    let at = |name: &str| place.path().join(name);
    for folder in ["etc", "opt", "opt/own", "home", "home/mina"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::write(at("etc/of-root"), "a").unwrap();
    chown(at("etc/of-root"), Some(IDS.base), Some(IDS.base)).unwrap();
    fs::write(at("opt/of-work"), "b").unwrap();
    chown(
        at("opt/of-work"),
        Some(IDS.base + 1000),
        Some(IDS.base + 1000),
    )
    .unwrap();
    fs::set_permissions(at("opt/of-work"), fs::Permissions::from_mode(0o4755)).unwrap();
    // Of the machine's root: no id of the session.
    fs::write(at("opt/strange"), "c").unwrap();
    fs::hard_link(at("opt/of-work"), at("opt/zweitname")).unwrap();
    symlink("/etc/of-root", at("opt/link")).unwrap();
    whiteout(&at("etc/gone"));
    let own = File::open(at("opt/own")).unwrap();
    rustix::fs::fsetxattr(&own, OPAQUE, b"y", XattrFlags::empty()).unwrap();
    let _socket = UnixListener::bind(at("opt/socket")).unwrap();
    fs::write(at("opt/.wh.etc"), "no whiteout").unwrap();
    fs::write(at("home/mina/note"), "private").unwrap();
    let out = LayerExclusions::with([]);
    let (survey, archive) = order(place.path(), &out, 1 << 20, |layer| {
        let mut archive = Vec::new();
        let survey = layer.survey().unwrap();
        layer.write(&mut archive).unwrap();
        (survey, archive)
    });
    let all = members(&archive);
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "./",
            "etc",
            "etc/.wh.gone",
            "etc/of-root",
            "opt",
            "opt/link",
            "opt/of-work",
            "opt/own",
            "opt/own/.wh..wh..opq",
            "opt/strange",
            "opt/zweitname",
        ]
    );
    let owner = |name: &str| all[name].1;
    assert_eq!((owner("etc/of-root"), owner("opt/of-work")), (0, 1000));
    assert_eq!(owner("opt/strange"), u64::from(NOBODY));
    let link = &all["opt/zweitname"];
    assert_eq!((link.0, link.2.as_str()), (EntryType::Link, "opt/of-work"));
    assert_eq!(all["opt/link"].2, "/etc/of-root");
    // A socket, and a name that would be read as a whiteout.
    assert_eq!((survey.removed, survey.skipped), (1, 2));
    assert_eq!(fs::metadata(at("opt/of-work")).unwrap().nlink(), 2);
}

#[test]
fn a_file_with_holes_costs_what_is_in_it() {
    let Some(place) = upper("a_file_with_holes_costs_what_is_in_it") else {
        return;
    };
    let file = File::create(place.path().join("holes")).unwrap();
    file.set_len(256 << 20).unwrap();
    file.write_all_at(b"end", (256 << 20) - 3).unwrap();
    let out = LayerExclusions::with([]);
    let length = order(place.path(), &out, 1 << 30, |layer| {
        let mut archive = Vec::new();
        layer.write(&mut archive).unwrap();
        archive.len()
    });
    assert!(length < 4 << 20, "{length} bytes");
}

#[test]
fn secrets_are_named_and_what_is_left_out_is_not() {
    let Some(place) = upper("secrets_are_named_and_what_is_left_out_is_not") else {
        return;
    };
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n";
    for (name, text) in [("a", key), ("b", "plain"), (".env", "X=1"), (".netrc", "")] {
        fs::write(place.path().join(name), text).unwrap();
    }
    let found = |exclude: &[&str]| {
        let exclude = exclude.iter().map(|path| (*path).to_owned());
        let out = LayerExclusions::with(exclude);
        order(place.path(), &out, 1 << 20, |layer| {
            layer.survey().unwrap().secrets
        })
    };
    let secret = |path: &str, kind| FoundSecret {
        path: path.to_owned(),
        kind,
    };
    // An empty file holds none.
    let both = [
        secret("/.env", SecretKind::EnvironmentFile),
        secret("/a", SecretKind::PrivateKey),
    ];
    assert_eq!(found(&[]), both);
    assert_eq!(found(&["/.env"]), both[1..]);
}

#[test]
fn a_layer_beyond_its_limits_is_refused_by_name() {
    let Some(place) = upper("a_layer_beyond_its_limits_is_refused_by_name") else {
        return;
    };
    let out = LayerExclusions::with([]);
    let code = |most: u64| {
        order(place.path(), &out, most, |layer| {
            let refused = layer.survey().unwrap_err();
            assert_eq!(
                layer.write(&mut Vec::new()).unwrap_err().code(),
                refused.code()
            );
            refused.code().map(str::to_owned)
        })
    };
    fs::write(place.path().join("large"), [0; 2000]).unwrap();
    assert_eq!(code(1999).as_deref(), Some("commit.layer-size"));
    let moved = File::create(place.path().join("moved")).unwrap();
    rustix::fs::fsetxattr(&moved, REDIRECTIONS[1], b"", XattrFlags::empty()).unwrap();
    assert_eq!(code(1 << 20).as_deref(), Some("commit.layer-redirected"));
    fs::remove_file(place.path().join("moved")).unwrap();
    let deep = ["d"; MAX_LAYER_DEPTH + 1].join("/");
    fs::create_dir_all(place.path().join(deep)).unwrap();
    assert_eq!(code(1 << 20).as_deref(), Some("commit.layer-deep"));
}

#[test]
fn ids_in_capabilities_and_lists_become_those_of_the_image() {
    let of = |root: u32| {
        let mut value = 0x0300_0001u32.to_le_bytes().to_vec();
        value.extend([0; 16]);
        value.extend(root.to_le_bytes());
        value
    };
    let own = capability_inside(&of(IDS.base), IDS);
    assert_eq!(
        (own.len(), &own[..4]),
        (20, &0x0200_0001u32.to_le_bytes()[..])
    );
    assert_eq!(capability_inside(&of(IDS.base + 5), IDS), of(5));
    assert_eq!(capability_inside(&own, IDS), own, "of no namespace");
    let list = |user: u32| {
        let mut value = 2u32.to_le_bytes().to_vec();
        value.extend([1, 0, 7, 0, 255, 255, 255, 255]);
        value.extend([2, 0, 6, 0]);
        value.extend(user.to_le_bytes());
        value
    };
    let mut value = list(IDS.base + 1000);
    acl_inside(&mut value, IDS);
    assert_eq!(value, list(1000));
}

#[test]
fn names_of_all_directories_count_together() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(place.path().join(name), "").unwrap();
    }
    let open = || OwnedFd::from(File::open(place.path()).unwrap());
    let mut listed = MAX_LAYER_ENTRIES - 2;
    list(open(), &mut listed).unwrap();
    let refused = list(open(), &mut listed).err().unwrap();
    assert_eq!(refused.code(), Some("commit.layer-entries"));
}
