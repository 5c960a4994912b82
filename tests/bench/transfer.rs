//! Large files: one stream into a folder beside a plain write of this machine with the same syncs, and one out of it beside
//! nginx, plain and under TLS. Both sides of a comparison take turns, so that they meet the same load.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use base::figures::{quantile, ratio, round};
use serde_json::{Value, json};

use super::exchange::{Exchange, noise};
use super::member::{Member, purged};
use super::nginx::Nginx;
use super::subject::{BenchServer, ScratchDirectory};

/// Bytes between two syncs of an upload in the product, and of the plain write beside it.
const SYNC_BYTES: u64 = 64 << 20;
const PIECE: usize = 1 << 20;
/// `data.bin` and `true`, as tus writes words.
const WORDS: &str = "upload-metadata: filename ZGF0YS5iaW4=,overwrite dHJ1ZQ==\r\n";
const FILE: &str = "data.bin";

/// Bytes a second, in millions.
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1_000_000.0
}

fn rates(samples: &[f64]) -> Value {
    let all: Vec<f64> = samples.iter().copied().map(round).collect();
    json!({"unit": "MB/s", "median": quantile(samples, 0.5).map(round), "samples": all})
}

fn times(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    ratio(quantile(ours, 0.5), quantile(theirs, 0.5))
}

/// One file of `bytes` into a folder by one PATCH of tus, until it stands there under its name.
pub(super) fn upload(bytes: u64, rounds: usize) -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("upload")?;
    let member = Member::first(&subject)?;
    let folder = member.folder(&subject, "bench")?;
    let piece = noise(PIECE);
    let plain = subject.data().join("plain.bin");
    let (mut ours, mut disk) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        disk.push(rate(bytes, written(&plain, bytes, &piece)?));
        fs::remove_file(&plain)?;
        ours.push(rate(
            bytes,
            sent(&subject, &member, &folder, bytes, &piece)?,
        ));
        member.remove(&subject, &folder, FILE)?;
        purged(&subject, &folder)?;
    }
    Ok(json!({
        "what": "one stream of tus over loopback into a folder, in turns with a plain write of the same bytes on the same disk, a sync each 64 MiB and at the end",
        "bytes": bytes,
        "upload": rates(&ours),
        "plain_write": rates(&disk),
        "ratio_to_plain_write": times(&ours, &disk),
    }))
}

/// Sends a file; gives the time from the first request to the last answer.
fn sent(
    subject: &BenchServer,
    member: &Member,
    folder: &str,
    bytes: u64,
    piece: &[u8],
) -> io::Result<Duration> {
    let mut exchange = Exchange::plain(subject.listen())?;
    let who = member.authorization();
    let began = Instant::now();
    let head = format!("{who}tus-resumable: 1.0.0\r\nupload-length: {bytes}\r\n{WORDS}");
    let uploads = format!("/api/v1/folders/{folder}/uploads");
    let made = exchange
        .send("POST", &uploads, &head, (0, &[]))?
        .with_status(201, "begin an upload")?;
    let place = made.header("location").unwrap_or_default().to_owned();
    let head = format!(
        "{who}tus-resumable: 1.0.0\r\nupload-offset: 0\r\ncontent-type: application/offset+octet-stream\r\n"
    );
    exchange
        .send("PATCH", &place, &head, (bytes, piece))?
        .with_status(204, "upload")?;
    Ok(began.elapsed())
}

/// Writes as many bytes as an upload does, with the same syncs.
fn written(to: &Path, bytes: u64, piece: &[u8]) -> io::Result<Duration> {
    let began = Instant::now();
    let mut file = File::create(to)?;
    let (mut at, mut synced) = (0, 0);
    while at < bytes {
        let now = (bytes - at).min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        at += now;
        if at - synced >= SYNC_BYTES {
            file.sync_data()?;
            synced = at;
        }
    }
    file.sync_all()?;
    if let Some(above) = to.parent() {
        File::open(above)?.sync_all()?;
    }
    Ok(began.elapsed())
}

/// One file of `bytes` out of a folder, from memory, in turns with nginx: plain, then under TLS with the same certificate.
pub(super) fn download(bytes: u64, rounds: usize) -> io::Result<Value> {
    let (mut subject, _) = BenchServer::fresh("download")?;
    let member = Member::first(&subject)?;
    let folder = member.folder(&subject, "bench")?;
    let piece = noise(PIECE);
    sent(&subject, &member, &folder, bytes, &piece)?;
    let copy = ScratchDirectory::new("download-copy")?;
    written(&copy.path().join(FILE), bytes, &piece)?;
    let ours = Source {
        path: format!("/api/v1/folders/{folder}/files?path={FILE}"),
        head: member.authorization(),
        bytes,
    };
    let theirs = Source {
        path: format!("/{FILE}"),
        head: String::new(),
        bytes,
    };
    let nginx = Nginx::files(copy.path(), None)?;
    let plain = in_turns(rounds, &subject, &ours, nginx.as_ref(), &theirs, false)?;
    drop(nginx);
    subject.leave();
    subject.change(&[("FARDEL_TLS", "on")]);
    subject.start()?;
    let keys = subject.data().join("tls/own.pem");
    let nginx = Nginx::files(copy.path(), Some(&keys))?;
    let tls = in_turns(rounds, &subject, &ours, nginx.as_ref(), &theirs, true)?;
    Ok(json!({
        "what": "one file over loopback to a client that throws it away, from memory, in turns with nginx that serves the same bytes",
        "bytes": bytes,
        "nginx": nginx.as_ref().map(|nginx| &nginx.version),
        "plain": plain,
        "tls": tls,
    }))
}

/// A file on a server.
struct Source {
    path: String,
    head: String,
    bytes: u64,
}

impl Source {
    fn taken(&self, from: std::net::SocketAddr, is_encrypted: bool) -> io::Result<f64> {
        let mut exchange = match is_encrypted {
            true => Exchange::encrypted(from)?,
            false => Exchange::plain(from)?,
        };
        // Shakes hands before the clock runs.
        exchange.get("/healthz", "")?;
        let began = Instant::now();
        let got = exchange.get(&self.path, &self.head)?;
        let took = began.elapsed();
        let got = got.with_status(200, "download")?;
        match got.bytes == self.bytes {
            true => Ok(rate(self.bytes, took)),
            false => Err(io::Error::other(format!("{} bytes came", got.bytes))),
        }
    }
}

fn in_turns(
    rounds: usize,
    subject: &BenchServer,
    ours: &Source,
    nginx: Option<&Nginx>,
    theirs: &Source,
    is_encrypted: bool,
) -> io::Result<Value> {
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let now = ours.taken(subject.listen(), is_encrypted)?;
        let beside = match nginx {
            Some(nginx) => Some(theirs.taken(nginx.listen, is_encrypted)?),
            None => None,
        };
        // The first one brings the file into memory.
        if round > 0 {
            own.push(now);
            peer.extend(beside);
        }
    }
    Ok(json!({
        "download": rates(&own),
        "nginx": nginx.map(|_| rates(&peer)),
        "ratio_to_nginx": times(&own, &peer),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_write_has_all_its_bytes() {
        let place = ScratchDirectory::new("plain-write").unwrap();
        let file = place.path().join("file");
        written(&file, 2_500_000, &noise(PIECE)).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 2_500_000);
    }

    #[test]
    fn rates_are_told_by_their_middle() {
        assert_eq!(rates(&[1.0, 9.0, 3.0])["median"], json!(3.0));
        assert_eq!(times(&[8.0], &[10.0]), Some(0.8));
        assert_eq!(times(&[8.0], &[]), None);
        assert!((rate(5_000_000, Duration::from_secs(2)) - 2.5).abs() < 1e-9);
    }
}
