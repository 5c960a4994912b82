//! Makes an image of a session: has its node read what it wrote, puts that on top of its image in the store, then writes
//! the row. A crash anywhere leaves an open row and nothing in the store that a start does not remove; the next start does
//! all of it again while the session runs.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::link::streams::{LayerOutput, LayerRequest, Streams};
use bytes::Bytes;
use rules::commit::{COMMITTED_FROM, LayerSurvey, MAX_LAYER_BYTES};
use rules::image::CatalogImage;
use rules::image_limits::ImageLimits;
use rules::names::{ImageId, UserId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Bytes as ByteCount;
use serde_json::{Value, json};
use store::images::digest::Sha256Digest;
use store::images::failure::carry;
use store::images::{ImportedImage, LayerCommit};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::import::old_name;
use super::outcome::{JobFailure, JobProgress, JobResult};
use super::runner::{JobKind, RunningJob};
use crate::actions::storage::images_limit;
use crate::appliance::lazy_stores::image_failure;
use crate::appliance::unnamed_images::forget_unnamed_of_commit;
use crate::catalog::Rows;
use crate::catalog::events::NewEvent;
use crate::catalog::job_kinds::{CommitInput, SESSION_COMMIT};
use crate::catalog::jobs::OperationRow;
use crate::{Failure, Server, ServerFault, WeakServer};

/// Commits that run at once. More: sessions stand still for longer, since they share one disk. Fewer: there is none.
const AT_ONCE: usize = 1;
/// How often a commit that waits for the node looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(200);
/// Between two looks at the rights of its user. Longer: who may no more gets more. Shorter: more reads.
const RIGHTS_LOOK: Duration = Duration::from_secs(1);
/// How long a server that has just started may be without a way into sessions.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the node may bring nothing. Longer: a commit hangs. Shorter: looking through many files ends it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the node may take to let the session go on. Longer: a server that stops waits for a node that hangs. Shorter:
/// it leaves a session that stands still until the next start.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The commits of one server.
pub(crate) struct CommitJobs(pub(crate) WeakServer);

impl JobKind for CommitJobs {
    fn name(&self) -> &'static str {
        SESSION_COMMIT
    }

    fn thread(&self) -> &'static str {
        "commits"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.0.upgrade().ok_or(JobFailure::Interrupted)?;
        let input = input(job.row)?;
        let (base, secrets, image) = made(&server, job, &input)?;
        let user = job.row.user;
        Ok(Box::new(move |rows| {
            keep(rows, user, &input, &base, &image, secrets)
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::commit_cancelled()
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(JobProgress {
            step: "waiting".to_owned(),
            done: 0,
            total: 0,
        })
    }

    /// An image that was made and got no name, because it was refused one or the work was cancelled, goes.
    fn discard(&self, row: &OperationRow, _refusal: &Refusal) {
        self.forget_unnamed(row);
    }

    /// An image that lost its last name to this one goes.
    fn tidy(&self, row: &OperationRow) {
        self.forget_unnamed(row);
    }
}

impl CommitJobs {
    fn forget_unnamed(&self, row: &OperationRow) {
        let Some(server) = self.0.upgrade() else {
            return;
        };
        let forgotten = server
            .image_store()
            .and_then(|images| forget_unnamed_of_commit(server.catalog(), &images, row.id));
        if let Err(failure) = forgotten {
            tracing::warn!(error = %base::observe::chain(&failure), "images without a name stay");
        }
    }
}

fn input(row: &OperationRow) -> Result<CommitInput, ServerFault> {
    serde_json::from_value(row.input.clone())
        .map_err(|error| ServerFault::new("read what to commit", error))
}

/// The image below, how many files look like secrets, and the new image, which lies in the store without a row.
fn made(
    server: &Server,
    job: &RunningJob<'_>,
    input: &CommitInput,
) -> Result<(CatalogImage, u64, ImportedImage), JobFailure> {
    let base = server
        .catalog()
        .read_now("look at the image below", |view| {
            still_allowed(view, job.row.user, input)?;
            view.image(input.base)
        })?;
    let base = base.ok_or_else(|| refusals::image_removed(&input.reference))?;
    let digest = Sha256Digest::parse(&base.digest)
        .ok_or_else(|| ServerFault::new("read the digest of an image", base.digest.clone()))?;
    let streams = way_into_sessions(server, job)?;
    // Its own, so that it ends with its thread and never with requests under way.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServerFault::new("begin a commit", error))?;
    let request = LayerRequest {
        exclude: input.exclude.clone(),
        most_bytes: MAX_LAYER_BYTES,
        look_only: false,
    };
    job.report(JobProgress {
        step: "looking through the session".to_owned(),
        done: 0,
        total: 0,
    });
    let stopped = async {
        while !job.is_stopped() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let opened = runtime.block_on(async {
        tokio::select! {
            biased;
            () = job.closing() => Err(JobFailure::Interrupted),
            () = stopped => Err(JobFailure::from(refusals::commit_cancelled())),
            opened = streams.layer(input.container, request) => Ok(opened?),
        }
    })?;
    let allowed = || {
        let look = "look whether a commit may go on";
        let read = server
            .catalog()
            .read_now(look, |view| still_allowed(view, job.row.user, input));
        read.map_err(|failure| match failure {
            Failure::Refusal(refusal) => refusal,
            Failure::Fault(fault) => {
                tracing::error!(error = %base::observe::chain(&fault), "it is not known whether a commit may go on");
                refusals::commit_reading_failed()
            }
        })
    };
    let mut layer = CommitReader {
        job,
        runtime: &runtime,
        allowed: &allowed,
        looked_at: Instant::now(),
        output: opened.output,
        over: opened.over,
        chunk: Bytes::new(),
        done: 0,
        total: 0,
        is_over: false,
    };
    let survey = layer.survey()?;
    let secrets = survey.secret_count();
    if secrets > 0 && !input.accept_secrets {
        let first = survey.secrets.first().map(|secret| secret.path.clone());
        return Err(refusals::commit_secrets_found(secrets, first.unwrap_or_default()).into());
    }
    layer.total = survey.bytes;
    let session = input.container.session.to_string();
    let images = server.image_store()?;
    let made = images.commit(LayerCommit {
        base: &digest,
        layer: Box::new(layer),
        bytes: survey.bytes,
        reference: &input.reference,
        now: server.clock().now(),
        label: (COMMITTED_FROM, &session),
        cancelled: job.stop(),
    });
    let image = made.map_err(image_failure)?;
    Ok((base, secrets, image))
}

/// The way into sessions; a server that has just started is given it soon.
fn way_into_sessions(server: &Server, job: &RunningJob<'_>) -> Result<Arc<dyn Streams>, Refusal> {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(streams) = server.streams() {
            return Ok(streams);
        }
        if job.is_stopped() {
            return Err(refusals::commit_cancelled());
        }
        if Instant::now() >= until {
            return Err(refusals::commit_not_possible_there());
        }
        std::thread::sleep(LOOK);
    }
}

/// Refuses work for a user whose rights have ended, or on a session that is not the one that was asked about.
fn still_allowed(
    view: &crate::catalog::ReadTransaction<'_>,
    user: UserId,
    input: &CommitInput,
) -> Result<(), Failure> {
    let is_active = view.user(user)?.is_some_and(|user| !user.suspended);
    let session = view.session(input.container.session)?;
    let is_same =
        session.is_some_and(|row| row.owner == user && row.container() == input.container);
    match is_active && is_same {
        true => Ok(()),
        false => Err(refusals::commit_not_running().into()),
    }
}

/// A session's layer as it comes from the node.
struct CommitReader<'a> {
    job: &'a RunningJob<'a>,
    runtime: &'a Runtime,
    /// Whether its user may still have it.
    allowed: &'a dyn Fn() -> Result<(), Refusal>,
    looked_at: Instant,
    output: mpsc::Receiver<LayerOutput>,
    over: oneshot::Receiver<()>,
    chunk: Bytes,
    done: u64,
    total: u64,
    is_over: bool,
}

impl CommitReader<'_> {
    fn survey(&mut self) -> Result<LayerSurvey, Refusal> {
        match self.next()? {
            LayerOutput::Found(survey) => Ok(survey),
            LayerOutput::Refused(refusal) => Err(refusal),
            LayerOutput::Bytes(_) | LayerOutput::End => Err(refusals::commit_reading_failed()),
        }
    }

    /// Waits for what comes next, for as long as it is wanted.
    fn next(&mut self) -> Result<LayerOutput, Refusal> {
        let mut waited = Duration::ZERO;
        loop {
            if self.job.is_stopped() {
                return Err(refusals::commit_cancelled());
            }
            if self.looked_at.elapsed() >= RIGHTS_LOOK {
                self.looked_at = Instant::now();
                (self.allowed)()?;
            }
            let output = &mut self.output;
            let next = self
                .runtime
                .block_on(async { tokio::time::timeout(LOOK, output.recv()).await });
            match next {
                Ok(Some(output)) => return Ok(output),
                Ok(None) => return Err(refusals::commit_reading_failed()),
                Err(_) if waited >= SILENCE_TIMEOUT => {
                    return Err(refusals::commit_reading_failed());
                }
                Err(_) => waited += LOOK,
            }
        }
    }
}

impl Drop for CommitReader<'_> {
    /// Ends the reading and waits until the session goes on: a server that stops leaves none that stands still.
    fn drop(&mut self) {
        self.output.close();
        let over = &mut self.over;
        let gone = self
            .runtime
            .block_on(async { tokio::time::timeout(END_TIMEOUT, over).await });
        if gone.is_err() {
            tracing::warn!("a session that was read for an image stands still for longer");
        }
    }
}

impl Read for CommitReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.is_over {
            match self.next().map_err(carry)? {
                LayerOutput::Bytes(bytes) => {
                    self.done += bytes.len() as u64;
                    self.chunk = bytes;
                    self.job.report(JobProgress {
                        step: "reading the session".to_owned(),
                        // Headers come on top of the files.
                        done: self.done.min(self.total),
                        total: self.total,
                    });
                }
                LayerOutput::End => self.is_over = true,
                LayerOutput::Refused(refusal) => return Err(carry(refusal)),
                LayerOutput::Found(_) => return Err(carry(refusals::commit_reading_failed())),
            }
        }
        let taken = buffer.len().min(self.chunk.len());
        buffer[..taken].copy_from_slice(&self.chunk.split_to(taken));
        Ok(taken)
    }
}

/// Writes the row of a new image, and gives what the operation says of it. A name that the same user gave moves, as tags do.
fn keep(
    rows: &Rows<'_>,
    user: UserId,
    input: &CommitInput,
    base: &CatalogImage,
    made: &ImportedImage,
    secrets: u64,
) -> Result<Value, Failure> {
    let actor = rows.user(user)?.filter(|user| !user.suspended);
    let Some(actor) = actor else {
        return Err(refusals::commit_not_running().into());
    };
    let (record, reference) = (&made.record, input.reference.as_str());
    let digest = record.id.to_string();
    let said = |id: ImageId| {
        json!({
            "images": [{
                "id": id,
                "reference": reference,
                "digest": digest,
                "known": made.known,
                "new_bytes": made.new_bytes,
                "warnings": record.warnings,
            }],
            "secrets": secrets,
        })
    };
    match rows.image_called(reference)? {
        Some(known) if known.owner != Some(user) => {
            return Err(refusals::commit_reference_taken(reference).into());
        }
        Some(known) if known.digest == digest => return Ok(said(known.id)),
        Some(known) if rows.image_users(known.id)? == 0 => {
            rows.remove_image(known.id)?;
        }
        Some(known) => rows.rename_image(known.id, &old_name(&known))?,
        None => {}
    }
    let most = images_limit(rows, user, actor.domain, rows.now)?;
    if rows.images_of(user)? >= most {
        return Err(refusals::commit_image_limit(most).into());
    }
    let settings = &record.settings;
    let image = CatalogImage {
        id: ImageId::make(rows.now, base::observe::random()),
        reference: reference.to_owned(),
        domain: base.domain,
        digest: digest.clone(),
        size: ByteCount(record.total_bytes),
        architecture: record.architecture.clone(),
        created_at: rows.now,
        imported_at: rows.now,
        // Else an administrator's limits would be left by a commit.
        limits: match base.limits_set {
            true => base.limits,
            false => ImageLimits::of_labels(&settings.labels),
        },
        limits_set: base.limits_set,
        labels: settings.labels.clone(),
        entrypoint: settings.entrypoint.clone(),
        command: settings.cmd.clone(),
        env: settings.env.clone(),
        user: settings.user.clone(),
        working_directory: settings.working_directory.clone(),
        stop_signal: settings.stop_signal.clone().unwrap_or_default(),
        generation: 1,
        owner: Some(user),
        shared: false,
    };
    rows.insert_image(&image)?;
    rows.note(NewEvent {
        actor: actor.name.as_str(),
        topic: "images",
        object: &image.id.to_string(),
        scope: image.scope(),
        code: "image.committed",
        before: &base.reference,
        after: reference,
    })?;
    Ok(said(image.id))
}
