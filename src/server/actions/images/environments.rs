//! What a user may do with environments that come as bundles: look at them, import one, remove one. Each version is kept
//! until it is removed; what sessions start from is never touched.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::AtomicBool;

use api::environments::{EnvironmentDetailView, EnvironmentImageView, EnvironmentView};
use base::settings::Settings;
use base::signing::{MAX_KEY_FILE_BYTES, TrustedKey, trusted_keys};
use rules::environment::{BundleManifest, compare};
use store::images::digest::Sha256Digest;
use store::images::environment::BundleCheck;

use super::*;
use crate::catalog::environments::EnvironmentRow;
use crate::catalog::job_kinds::BundleChoice;

/// Every version that brought an image which the caller sees, by name and then the newest first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<EnvironmentView>, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    server
        .catalog()
        .read_now("list environments", |view| seen(view, &caller.subject))
}

/// One version with its texts: `NAME`, which is the newest, or `NAME:VERSION`. Errors: `environment.not-found`.
pub async fn get(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<EnvironmentDetailView, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    server.catalog().read_now("show an environment", |view| {
        let environment = named(view, &caller.subject, which)?;
        let texts = view.environment_texts(&environment.name, &environment.version)?;
        let texts = texts.ok_or_else(refusals::environment_not_found)?;
        Ok(EnvironmentDetailView {
            environment,
            sbom: texts.sbom,
            licences: texts.licences,
        })
    })
}

/// Begins to import a bundle, at most once for the same key, and gives its operation.
///
/// Errors: as `images::import_once`; those of the manifest and the signature, `environment.older`,
/// `environment.version-differs`, `environment.keys`. The operation ends with those of the other members.
pub async fn import(
    server: &Server,
    caller: &Caller,
    source: ImportSource,
    accept_unsigned: bool,
    allow_older: bool,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let key = own_key(caller, key)?;
    if let Some(before) = answered_before(server, key.as_ref()).await? {
        return Ok(before);
    }
    refuse_unwell(server)?;
    let source = origin(caller, source)?;
    let file = look_at(server, source.clone()).await?;
    look_into(server, source.clone(), accept_unsigned, allow_older).await?;
    let input = ImportInput {
        source,
        reference: None,
        file,
        bundle: Some(BundleChoice {
            accept_unsigned,
            allow_older,
        }),
    };
    begin(server, caller, input, key).await
}

/// Refuses at once what the manifest and the signature of a bundle are refused for.
async fn look_into(
    server: &Server,
    source: ImportOrigin,
    accept_unsigned: bool,
    allow_older: bool,
) -> Result<(), Failure> {
    uploads::blocking(server, move |server| {
        let archive = match &source {
            ImportOrigin::Upload { id, owner } => {
                let upload = server.uploads()?.complete(*id, owner, None);
                Archive::File(upload.map_err(upload_failure)?.file)
            }
            ImportOrigin::Path(path) => Archive::at(path).map_err(image_failure)?,
            ImportOrigin::Pushed { .. } | ImportOrigin::Registry { .. } => return Ok(()),
        };
        let Archive::File(file) = &archive else {
            return Err(refusals::environment_not_a_bundle().into());
        };
        let check = BundleCheck {
            file,
            trusted: &trusted(&server.settings())?,
            accept_unsigned,
            cancelled: &AtomicBool::new(false),
        };
        let head = check.look().map_err(image_failure)?;
        server.catalog().read_now("look for environments", |view| {
            may_follow(view, &head.manifest, &head.digest, allow_older)
        })
    })
    .await
}

/// The keys that the setting names. Errors: `environment.keys`, also for a file that every user may write.
pub(crate) fn trusted(settings: &Settings) -> Result<Vec<TrustedKey>, Failure> {
    let Some(path) = &settings.environment_keys_file else {
        return Ok(Vec::new());
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        let about = file.metadata()?;
        if !about.is_file() || about.mode() & 0o002 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text)
    });
    if let Err(error) = read {
        tracing::warn!(%error, path = %path.display(), "the trusted keys cannot be read");
        return Err(refusals::environment_keys().into());
    }
    Ok(trusted_keys(&text).ok_or_else(refusals::environment_keys)?)
}

/// Whether a bundle may come to what is here. Errors: `environment.version-differs`, `environment.older`.
pub(crate) fn may_follow(
    view: &ReadTransaction<'_>,
    manifest: &BundleManifest,
    digest: &Sha256Digest,
    allow_older: bool,
) -> Result<(), Failure> {
    let (name, version) = (&manifest.name, &manifest.version);
    let mut here = view.environments()?;
    here.retain(|row| row.name == *name);
    let same = here
        .iter()
        .find(|row| compare(&row.version, version).is_eq());
    if same.is_some_and(|row| row.digest != digest.to_string()) {
        return Err(refusals::environment_version_differs(version, name).into());
    }
    let newest = here
        .iter()
        .max_by(|one, other| compare(&one.version, &other.version));
    match newest {
        Some(newest) if compare(&newest.version, version).is_gt() && !allow_older => {
            Err(refusals::environment_older(version, name, &newest.version).into())
        }
        _ => Ok(()),
    }
}

/// Removes a version, `NAME:VERSION`, and the images that no other version has. The newest has to be named too: a request
/// that is sent again must not remove the version before.
///
/// Errors: `environment.not-found`; `environment.in-use` while live sessions start from one of its images.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<EnvironmentView, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    if !which.contains(':') {
        return Err(refusals::environment_not_found().into());
    }
    let (actor, which, subject) = (
        caller.name.clone(),
        which.to_owned(),
        caller.subject.clone(),
    );
    let removed = server
        .catalog()
        .write(Lane::Requests, "remove an environment", move |rows| {
            let environment = named(rows, &subject, &which)?;
            let (name, version) = (&environment.name, &environment.version);
            let mut alone = Vec::new();
            let mut users = 0;
            for row in rows.environment_images(name, version)? {
                let Some(image) = rows.image(row.image)? else {
                    continue;
                };
                if !image.is_kept_by(&subject) {
                    return Err(refusals::environment_not_found().into());
                }
                if rows.environments_of_image(image.id)? == 1 {
                    users += rows.image_users(image.id)?;
                    alone.push(image);
                }
            }
            if users > 0 {
                return Err(refusals::environment_in_use(users).into());
            }
            rows.remove_environment(name, version)?;
            for image in &alone {
                rows.remove_image(image.id)?;
                rows.note(NewEvent {
                    actor: actor.as_str(),
                    topic: "images",
                    object: &image.id.to_string(),
                    scope: image.scope(),
                    code: "image.removed",
                    before: &image.reference,
                    after: "",
                })?;
            }
            let what = format!("{name} {version}");
            rows.note(NewEvent {
                actor: actor.as_str(),
                topic: "images",
                object: name,
                scope: rules::tenancy::Scope::domain(rules::tenancy::DomainId::DEFAULT),
                code: "environment.removed",
                before: &what,
                after: "",
            })?;
            Ok(environment)
        })
        .await?;
    free(server).await;
    Ok(removed)
}

/// The version that is meant, where the subject sees it.
fn named(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    which: &str,
) -> Result<EnvironmentView, Failure> {
    let (name, version) = match which.split_once(':') {
        Some((name, version)) => (name, Some(version)),
        None => (which, None),
    };
    let mut all = seen(view, subject)?.into_iter();
    let found = all.find(|one| match version {
        Some(version) => one.name == name && one.version == version,
        None => one.name == name && one.newest,
    });
    Ok(found.ok_or_else(refusals::environment_not_found)?)
}

/// Costs a look at all images of the subject's reach.
fn seen(view: &ReadTransaction<'_>, subject: &Subject) -> Result<Vec<EnvironmentView>, Failure> {
    let reach = rules::permissions::reach(subject, Permission::ImagesRead);
    let images: BTreeMap<ImageId, CatalogImage> = view
        .images(&reach)?
        .into_iter()
        .filter(|image| image.is_seen_by(subject))
        .map(|image| (image.id, image))
        .collect();
    let mut rows: Vec<EnvironmentRow> = view.environments()?;
    rows.sort_by(|one, other| {
        let by_name = one.name.cmp(&other.name);
        by_name.then_with(|| compare(&other.version, &one.version))
    });
    let mut all: Vec<EnvironmentView> = Vec::new();
    for row in rows {
        let mut shown = Vec::new();
        for part in view.environment_images(&row.name, &row.version)? {
            if let Some(image) = images.get(&part.image) {
                shown.push(EnvironmentImageView {
                    reference: image.reference.clone(),
                    digest: image.digest.clone(),
                    shm: part.recommended.shm,
                    memory: part.recommended.memory,
                    ports: part.recommended.ports,
                });
            }
        }
        if shown.is_empty() {
            continue;
        }
        let newest = all.last().is_none_or(|before| before.name != row.name);
        all.push(EnvironmentView {
            name: row.name,
            version: row.version,
            about: row.about,
            digest: row.digest,
            signer: row.signer,
            newest,
            imported_at: row.imported_at,
            images: shown,
        });
    }
    Ok(all)
}
