//! Bundles made by hand and by the store itself, whole and with each fault.

use std::sync::atomic::AtomicBool;

use rules::units::Timestamp;

use super::super::archive::Archive;
use super::super::limits::ImportLimits;
use super::super::samples::{Producer, SampleImage, Tar};
use super::super::tests::can_unpack;
use super::super::{ArchiveImport, ImportedImage};
use super::*;

fn key() -> SigningKey {
    SigningKey::parse(&SigningKey::draw().unwrap()).unwrap()
}

fn trusted(key: &SigningKey) -> Vec<TrustedKey> {
    vec![TrustedKey {
        name: "lab".into(),
        key: key.public(),
    }]
}

/// The small documents that every bundle has, which name no image that exists.
fn documents() -> Vec<(String, Vec<u8>)> {
    let blob = b"a layer".to_vec();
    let path = format!("{BLOBS}{}", Sha256Digest::of(&blob).hex());
    vec![
        ("oci-layout".into(), b"{}".to_vec()),
        ("index.json".into(), b"{}".to_vec()),
        (SBOM.into(), b"{\"packages\":[]}".to_vec()),
        (LICENCES.into(), b"MIT".to_vec()),
        (path, blob),
    ]
}

fn manifest(members: &[(String, Vec<u8>)]) -> BundleManifest {
    BundleManifest {
        kind: KIND.into(),
        format: FORMAT,
        name: "tiny".into(),
        version: "1.0".into(),
        about: String::new(),
        images: vec![BundleImage {
            reference: "tiny:1".into(),
            digest: Sha256Digest::of(b"config").to_string(),
            recommended: RecommendedOptions::default(),
        }],
        members: members
            .iter()
            .map(|(path, bytes)| EnvironmentMember {
                path: path.clone(),
                bytes: bytes.len() as u64,
                sha256: Sha256Digest::of(bytes).hex().to_owned(),
            })
            .collect(),
    }
}

fn bundle(text: &[u8], signature: Option<&str>, members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, MANIFEST, text).unwrap();
    if let Some(line) = signature {
        put(&mut out, SIGNATURE, line.as_bytes()).unwrap();
    }
    for (name, bytes) in members {
        put(&mut out, name, bytes).unwrap();
    }
    out.extend(END_OF_ARCHIVE);
    out
}

fn signed(key: &SigningKey, members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let text = serde_json::to_vec(&manifest(&documents())).unwrap();
    bundle(&text, Some(&key.signature_line(&text)), members)
}

fn checked(
    bytes: &[u8],
    trusted: &[TrustedKey],
    accept_unsigned: bool,
) -> Result<CheckedBundle, ImageError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let check = BundleCheck {
        file: &file,
        trusted,
        accept_unsigned,
        cancelled: &AtomicBool::new(false),
    };
    check.run(&mut |_, _| ())
}

fn code(result: Result<CheckedBundle, ImageError>) -> String {
    result.unwrap_err().code().unwrap_or("fault").to_owned()
}

#[test]
fn a_whole_bundle_passes_and_names_its_signer() {
    let key = key();
    let whole = checked(&signed(&key, &documents()), &trusted(&key), false).unwrap();
    assert_eq!(whole.signer.as_deref(), Some("lab"));
    assert_eq!(whole.licences, "MIT");
    assert_eq!(whole.manifest, manifest(&documents()));
}

#[test]
fn a_bundle_without_a_trusted_signature_needs_a_word() {
    let (ours, theirs) = (key(), key());
    let text = serde_json::to_vec(&manifest(&documents())).unwrap();
    let unsigned = bundle(&text, None, &documents());
    assert_eq!(code(checked(&unsigned, &[], false)), "environment.unsigned");
    assert_eq!(checked(&unsigned, &[], true).unwrap().signer, None);
    let foreign = signed(&theirs, &documents());
    let refused = checked(&foreign, &trusted(&ours), false);
    assert_eq!(code(refused), "environment.signer-unknown");
    assert_eq!(checked(&foreign, &[], true).unwrap().signer, None);
    // A signature that does not fit is refused in any case.
    let wrong = bundle(&text, Some(&ours.signature_line(b"other")), &documents());
    for accept in [false, true] {
        let refused = checked(&wrong, &trusted(&ours), accept);
        assert_eq!(code(refused), "environment.signature-wrong");
    }
}

#[test]
fn each_change_of_a_bundle_has_its_code() {
    let key = key();
    let trusted = trusted(&key);
    let faulty = |fault: fn(&mut Vec<(String, Vec<u8>)>)| {
        let mut members = documents();
        fault(&mut members);
        code(checked(&signed(&key, &members), &trusted, false))
    };
    assert_eq!(faulty(|all| all[4].1[0] ^= 1), "environment.member-changed");
    assert_eq!(faulty(|all| all[3].1.push(0)), "environment.member-changed");
    assert_eq!(faulty(|all| drop(all.pop())), "environment.cut");
    assert_eq!(
        faulty(|all| all.push(("etc/passwd".into(), Vec::new()))),
        "environment.member-extra"
    );
    assert_eq!(
        faulty(|all| all.push(all[0].clone())),
        "environment.member-doubled"
    );
    let whole = signed(&key, &documents());
    // Cut inside the last member, which has one block, and its end of two.
    let cut = &whole[..whole.len() - 1024 - 510];
    assert_eq!(code(checked(cut, &trusted, false)), "environment.cut");
    for junk in [Vec::new(), vec![b'x'; 2000], whole[1024..].to_vec()] {
        let refused = checked(&junk, &trusted, false);
        assert_eq!(code(refused), "environment.not-a-bundle");
    }
}

#[test]
fn a_later_format_is_named_though_it_has_more_fields() {
    let key = key();
    let text = br#"{"kind":"fardel-environment","format":2,"more":true}"#;
    let later = bundle(text, Some(&key.signature_line(text)), &[]);
    let refused = checked(&later, &trusted(&key), false);
    assert_eq!(code(refused), "environment.format");
}

#[test]
fn a_cancelled_check_ends() {
    let key = key();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&signed(&key, &documents())).unwrap();
    let check = BundleCheck {
        file: &file,
        trusted: &trusted(&key),
        accept_unsigned: false,
        cancelled: &AtomicBool::new(true),
    };
    assert_eq!(code(check.run(&mut |_, _| ())), "image.cancelled");
}

fn store(folder: &tempfile::TempDir) -> ImageStore {
    let limits = ImportLimits {
        reserve_bytes: 0,
        ..ImportLimits::default()
    };
    ImageStore::open(&folder.path().join("images"), limits).unwrap()
}

fn imported(store: &ImageStore, bytes: &[u8]) -> Vec<ImportedImage> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let request = ArchiveImport {
        archive: Archive::File(file),
        name: None,
        now: Timestamp::default(),
        cancelled: None,
    };
    store.import(request, &mut |_| {}).unwrap()
}

#[test]
fn a_packed_image_comes_in_elsewhere_and_the_second_time_costs_nothing() {
    if !can_unpack("a_packed_image_comes_in_elsewhere_and_the_second_time_costs_nothing") {
        return;
    }
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (here, there) = (store(&one), store(&other));
    let status = "Package: tiny\nStatus: install ok installed\nVersion: 1\n";
    let below = Tar::default()
        .directory("var", 0o755)
        .directory("var/lib", 0o755)
        .directory("var/lib/dpkg", 0o755)
        .file("var/lib/dpkg/status", status.as_bytes())
        .file("gone", b"x")
        .end();
    let above = Tar::default().file(".wh.gone", b"").file("new", b"y").end();
    let sample = SampleImage::of(vec![below, above]);
    let first = imported(&here, &sample.pack(Producer::PodmanOci));
    let key = key();
    let images = [PlannedImage {
        id: first[0].record.id.clone(),
        reference: "lab/tiny:1".into(),
        recommended: RecommendedOptions {
            shm: Some(1 << 30),
            ..RecommendedOptions::default()
        },
    }];
    let written = || {
        let plan = BundlePlan {
            name: "tiny",
            version: "1.0",
            about: "A tiny one",
            images: &images,
            others: &[],
            licences: "MIT".into(),
            key: Some(&key),
        };
        let mut bytes = Vec::new();
        here.write_bundle(plan, &mut bytes).unwrap();
        bytes
    };
    let bytes = written();
    assert!(bytes == written(), "the same images give the same bytes");
    let whole = checked(&bytes, &trusted(&key), false).unwrap();
    assert!(whole.sbom.contains("\"tiny\""), "{}", whole.sbom);
    let came = imported(&there, &bytes);
    assert_eq!(came.len(), 1);
    assert_eq!(
        came[0].record.id.to_string(),
        whole.manifest.images[0].digest
    );
    assert_eq!(came[0].record.settings, first[0].record.settings);
    assert_eq!(came[0].record.total_bytes, first[0].record.total_bytes);
    let again = imported(&there, &bytes);
    assert!(again[0].known && again[0].new_bytes == 0);
}
