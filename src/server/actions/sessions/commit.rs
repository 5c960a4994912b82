//! An image of a session, as its owner asks for it: what would be in it, and the beginning of the work.
//! `jobs::commit` does it.

use std::time::Duration;

use api::commits::{CommitPreview, CommitRequest};
use api::operations::OperationView;
use base::link::streams::{LayerOutput, LayerRequest};
use rules::codes::BREAK_GLASS_NEEDED;
use rules::commit::{LayerSurvey, MAX_LAYER_BYTES, check_excluded, own_reference};
use rules::image::CatalogImage;
use rules::names::OperationId;
use rules::permissions::{Permission, Subject};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{Session, SessionEnvironment, SessionState};
use rules::units::Timestamp;

use super::find::find;
use crate::access::Caller;
use crate::actions::operations::show;
use crate::actions::storage::images_limit;
use crate::actions::system::refuse_unwell;
use crate::actions::{IdempotencyKey, Once, once, own_key};
use crate::catalog::job_kinds::{CommitInput, SESSION_COMMIT};
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server, ServerFault};

/// How long a look may take. Longer: a request is held. Shorter: a session with many small files cannot be looked through.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);
/// Work that may wait. More is a loop in a script.
const MAX_OPEN: usize = 64;

/// What an image of a session would hold now, and which of its files look like secrets. Nothing stands still, so files that
/// are being written may come out otherwise.
///
/// Errors: as `commit`, but for what looks like secrets; `commit.stalled` where looking takes too long.
pub async fn preview_commit(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: CommitRequest,
) -> Result<CommitPreview, Failure> {
    let (session, image, reference) =
        server
            .catalog()
            .read_now("look at a session to commit", |view| {
                let (session, image) = to_commit(view, caller, id)?;
                let reference = checked(caller, &request)?;
                refuse_name(view, caller, &reference, server.clock().now())?;
                Ok((session, image, reference))
            })?;
    let streams = server
        .streams()
        .ok_or_else(refusals::commit_not_possible_there)?;
    let wanted = LayerRequest {
        exclude: request.exclude,
        most_bytes: MAX_LAYER_BYTES,
        look_only: true,
    };
    let look = async {
        let mut stream = streams.layer(session.container(), wanted).await?;
        match stream.output.recv().await {
            Some(LayerOutput::Found(survey)) => Ok(survey),
            Some(LayerOutput::Refused(refusal)) => Err(refusal),
            Some(LayerOutput::Bytes(_) | LayerOutput::End) | None => {
                Err(refusals::commit_reading_failed())
            }
        }
    };
    let survey = tokio::time::timeout(LOOK_TIMEOUT, look)
        .await
        .map_err(|_| refusals::commit_stalled(LOOK_TIMEOUT.as_secs()))??;
    Ok(preview(reference, image.reference, survey))
}

fn preview(reference: String, base: String, survey: LayerSurvey) -> CommitPreview {
    CommitPreview {
        reference,
        base,
        bytes: survey.bytes,
        entries: survey.entries,
        removed: survey.removed,
        skipped: survey.skipped,
        secrets: survey.secrets.into_iter().map(Into::into).collect(),
        more_secrets: survey.more_secrets,
    }
}

/// Begins to make an image of a running session and gives the operation, whose result names the image. It is its owner's
/// alone until that one shares it.
///
/// Errors: `session.not-found`, `commit.owner-only`, `commit.not-running`, `commit.host-environment`, `image.removed`,
/// `image.reference-invalid`, `commit.exclude-invalid`, `commit.exclude-many`, `commit.reference-taken`,
/// `commit.image-limit`, `commit.busy`, `commit.not-possible-there`, `disk.full`, `operation.too-many`.
pub async fn commit(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: CommitRequest,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    // Who may not even see the session is told nothing else.
    let reference = server
        .catalog()
        .read_now("look at a session to commit", |view| {
            // Not whether it runs: a request that was answered is answered again when it has ended.
            owned(view, caller, id)?;
            Ok(checked(caller, &request)?)
        })?;
    let key = own_key(caller, key)?;
    refuse_unwell(server)?;
    if server.streams().is_none() {
        return Err(refusals::commit_not_possible_there().into());
    }
    let (caller, id) = (caller.clone(), id.to_owned());
    let now = server.clock().now();
    let begun = server
        .catalog()
        .write(Lane::Requests, "begin a commit", move |rows| {
            let begun = once::<OperationId>(rows, key.as_ref(), || {
                let (session, image) = to_commit(rows, &caller, &id)?;
                refuse_name(rows, &caller, &reference, rows.now)?;
                let open = rows.open_operations()?;
                if open.len() >= MAX_OPEN {
                    return Err(refusals::operation_too_many(open.len())
                        .retry_after(60)
                        .into());
                }
                let container = session.container();
                let is_same = |other: &OperationRow| {
                    other.kind == SESSION_COMMIT
                        && other.input["container"] == container.to_string().as_str()
                };
                if open.iter().any(is_same) {
                    return Err(refusals::commit_reading_other().into());
                }
                let input = CommitInput {
                    container,
                    base: image.id,
                    reference: reference.clone(),
                    exclude: request.exclude.clone(),
                    accept_secrets: request.accept_secrets,
                    file: reference.clone(),
                };
                let input = serde_json::to_value(&input)
                    .map_err(|error| ServerFault::new("keep what to commit", error))?;
                let row = OperationRow::asked(now, SESSION_COMMIT, caller.subject.user, input);
                rows.insert_operation(&row, caller.name.as_str())?;
                Ok(row.id)
            })?;
            let row = rows
                .operation(begun.value)?
                .ok_or_else(|| ServerFault::new("begin a commit", "its row is gone"))?;
            Ok(Once {
                value: row,
                replayed: begun.replayed,
            })
        })
        .await?;
    server.jobs().wake(SESSION_COMMIT)?;
    Ok(Once {
        value: show(server, begun.value),
        replayed: begun.replayed,
    })
}

/// What the image will be called. Errors: `image.reference-invalid`, `commit.exclude-invalid`, `commit.exclude-many`.
fn checked(caller: &Caller, request: &CommitRequest) -> Result<String, Refusal> {
    check_excluded(&request.exclude)?;
    own_reference(caller.name.as_str(), &request.reference)
}

/// The session that is meant, for its owner, where it started from an image.
fn owned(view: &ReadTransaction<'_>, caller: &Caller, id: &str) -> Result<Session, Failure> {
    let session = find(view, caller, Permission::SessionsEnter, id);
    let session = session.map_err(|failure| match failure {
        // A reason would not help.
        Failure::Refusal(refusal) if refusal.code == BREAK_GLASS_NEEDED => {
            refusals::commit_owner_only().into()
        }
        failure => failure,
    })?;
    if !matches!(session.spec.environment, SessionEnvironment::Image { .. }) {
        return Err(refusals::commit_host_environment().into());
    }
    caller.subject.token_allows(Permission::ImagesWrite)?;
    match session.owner == caller.subject.user {
        true => Ok(session),
        false => Err(refusals::commit_owner_only().into()),
    }
}

/// The session that is meant and the image below it, for its owner, while it runs.
fn to_commit(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    id: &str,
) -> Result<(Session, CatalogImage), Failure> {
    let session = owned(view, caller, id)?;
    let SessionEnvironment::Image { id, reference } = &session.spec.environment else {
        return Err(refusals::commit_host_environment().into());
    };
    if session.state() != SessionState::Running {
        return Err(refusals::commit_not_running().into());
    }
    let image = view.image(*id)?;
    let image = image.ok_or_else(|| refusals::image_removed(reference))?;
    Ok((session, image))
}

/// Refuses a name that the caller's image cannot get.
fn refuse_name(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    reference: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let Subject { user, domain, .. } = caller.subject;
    match view.image_called(reference)? {
        Some(known) if known.owner == Some(user) => Ok(()),
        Some(_) => Err(refusals::commit_reference_taken(reference)
            .at("/reference")
            .into()),
        None => {
            let most = images_limit(view, user, domain, now)?;
            match view.images_of(user)? >= most {
                true => Err(refusals::commit_image_limit(most).into()),
                false => Ok(()),
            }
        }
    }
}
