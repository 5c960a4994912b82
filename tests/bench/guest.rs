//! What this program does inside the sessions of a bench: makes many files, writes and tells how long each write waited,
//! serves as an app, or takes what a listed server sends. It comes in as an image that holds this one file; nothing of the
//! machine is needed inside.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::figures::{milliseconds, ms, quantile, round};
use fardel::doors::bench::launches::import;
use serde_json::{Value, json};

use super::exchange::noise;
use super::subject::{BenchServer, ScratchDirectory};
use super::tiny::{tar, write_archive};

pub(super) const IMAGE: &str = "bench-guest:1";
/// Where the program lies in that image.
pub(super) const PROGRAM: &str = "/bin/bench";
/// The word after which the program's arguments are those of a guest.
pub(super) const WORD: &str = "guest";
/// The writer ends once this is there beside its files.
pub(super) const STOP: &str = "stop";
/// Bytes of the app's page.
const PAGE: usize = 1024;
/// The key of a WebSocket's client and what answers to it, as the protocol's own text has them (RFC 6455, 1.3).
pub(super) const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const SOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// What is printed once all is written that a session is to be filled with.
pub(super) const FILLED: &str = "filled";
/// Bytes of one file of it. Each holds the same noise, so it is more than a compressor looks back.
const FILLED_FILE: u64 = 64 << 20;
/// Between two writes of the writer, and how many of them there are between two that wait for the disk.
const PAUSE: Duration = Duration::from_millis(5);
const DURABLE_EACH: u64 = 20;
const WRITE: usize = 4096;
/// Bytes of one read of what a server sends.
const TAKEN: usize = 256 << 10;
/// The writer begins its file again at this length.
const MAX_WRITTEN: u64 = 64 << 20;

/// An archive of the image, and the directory that it lies in.
pub(super) struct GuestImage(ScratchDirectory);

impl GuestImage {
    pub(super) fn make() -> io::Result<Self> {
        let place = ScratchDirectory::new("guest")?;
        let root = place.path().join("root");
        for name in [
            "bin", "proc", "dev", "sys", "tmp", "run", "etc", "root", "data",
        ] {
            fs::create_dir_all(root.join(name))?;
        }
        fs::write(
            root.join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/bench\n",
        )?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        fs::copy("/proc/self/exe", root.join("bin/bench"))?;
        let layer = place.path().join("layer.tar");
        tar(&root, &layer, &["."])?;
        write_archive(
            place.path(),
            &[layer],
            IMAGE,
            &place.path().join("image.tar"),
        )?;
        Ok(Self(place))
    }

    /// Brings it into a server.
    pub(super) fn import(&self, subject: &BenchServer) -> io::Result<()> {
        import(&mut subject.local()?, &self.0.path().join("image.tar")).map(drop)
    }
}

/// The command of a session that does this.
pub(super) fn command(words: &[&str]) -> Vec<String> {
    [&[PROGRAM, WORD][..], words]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Does what the words after `guest` say; prints what it found as JSON.
pub(super) fn run(words: &[String]) -> io::Result<Value> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().map_err(io::Error::other);
    match words.as_slice() {
        ["files", directory, count, bytes] => {
            files(Path::new(directory), number(count)?, number(bytes)?)
        }
        ["write", directory] => write(Path::new(directory)),
        ["fill", directory, bytes] => {
            fill(Path::new(directory), number(bytes)?)?;
            println!("{FILLED}");
            loop {
                std::thread::park();
            }
        }
        ["serve", port] => {
            let port = u16::try_from(number(port)?).map_err(io::Error::other)?;
            serve(TcpListener::bind(("127.0.0.1", port))?)
        }
        ["take", host, port] => {
            let port = u16::try_from(number(port)?).map_err(io::Error::other)?;
            take_from(SocketAddr::new(host_address(host)?, port))
        }
        _ => Err(io::Error::other("a guest does not know that")),
    }
}

/// Makes a directory with so many files of so many bytes.
fn files(directory: &Path, count: u64, bytes: u64) -> io::Result<Value> {
    let began = Instant::now();
    fs::create_dir_all(directory)?;
    let content = vec![b'x'; usize::try_from(bytes).map_err(io::Error::other)?];
    for number in 0..count {
        let mut file = File::create(directory.join(format!("file-{number:07}")))?;
        file.write_all(&content)?;
    }
    Ok(json!({"files": count, "seconds": round(began.elapsed().as_secs_f64())}))
}

/// Makes files of noise with so many bytes together.
fn fill(directory: &Path, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let size = usize::try_from(FILLED_FILE).map_err(io::Error::other)?;
    let content = noise(size);
    let (mut left, mut number) = (bytes, 0);
    while left > 0 {
        let now = usize::try_from(left.min(FILLED_FILE)).map_err(io::Error::other)?;
        fs::write(
            directory.join(format!("noise-{number:05}")),
            &content[..now],
        )?;
        left -= now as u64;
        number += 1;
    }
    Ok(())
}

/// Writes a little all the time until it is told to stop; says how long the writes waited.
fn write(directory: &Path) -> io::Result<Value> {
    let path = directory.join("written");
    let durable = |number: u64| -> PathBuf { directory.join(format!("durable-{}", number % 2)) };
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let (mut plain, mut kept) = (Vec::new(), Vec::new());
    let mut number = 0_u64;
    while !directory.join(STOP).exists() {
        if (number * WRITE as u64).is_multiple_of(MAX_WRITTEN) {
            file.set_len(0)?;
        }
        let began = Instant::now();
        file.write_all(&[7; WRITE])?;
        plain.push(ms(began.elapsed()));
        if number.is_multiple_of(DURABLE_EACH) {
            let began = Instant::now();
            let mut one = File::create(durable(number / DURABLE_EACH))?;
            one.write_all(&[7; WRITE])?;
            one.sync_all()?;
            kept.push(ms(began.elapsed()));
        }
        number += 1;
        std::thread::sleep(PAUSE);
    }
    Ok(json!({"write": without_samples(&plain), "durable_write": without_samples(&kept)}))
}

/// Thousands of spans say no more than their quantiles.
pub(super) fn without_samples(spans: &[f64]) -> Value {
    let mut figure = milliseconds(spans);
    if let Some(all) = figure.as_object_mut() {
        all.remove("samples");
        all.insert("p999".into(), json!(quantile(spans, 0.999).map(round)));
    }
    figure
}

/// An app: a page of 1 KiB for every request, and a WebSocket that says each message again.
pub(super) fn serve(listener: TcpListener) -> io::Result<Value> {
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // A client that goes is no fault.
            let _ = answer(stream);
        });
    }
    Ok(Value::Null)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut page =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {PAGE}\r\n\r\n");
    page.extend(std::iter::repeat_n('x', PAGE));
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut is_socket, mut line) = (false, String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let word = line.trim().to_ascii_lowercase();
            if word.is_empty() {
                break;
            }
            is_socket |= word.starts_with("upgrade:") && word.ends_with("websocket");
        }
        if is_socket {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n";
            stream.write_all(
                format!("{head}sec-websocket-accept: {SOCKET_ACCEPT}\r\n\r\n").as_bytes(),
            )?;
            return echo(&mut reader, &mut stream);
        }
        stream.write_all(page.as_bytes())?;
    }
}

/// Says each short message again.
fn echo(reader: &mut BufReader<TcpStream>, stream: &mut TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; 6];
        reader.read_exact(&mut head)?;
        let length = usize::from(head[1] & 0x7f);
        if length > 125 || head[0] & 0x0f == 8 {
            return Ok(());
        }
        let mut frame = vec![0; 2 + length];
        frame[0] = head[0];
        frame[1] = head[1] & 0x7f;
        reader.read_exact(&mut frame[2..])?;
        for (at, byte) in frame[2..].iter_mut().enumerate() {
            *byte ^= head[2 + at % 4];
        }
        stream.write_all(&frame)?;
    }
}

/// The address of a name in the session's own list of hosts; no other resolver is asked.
fn host_address(name: &str) -> io::Result<IpAddr> {
    fs::read_to_string("/etc/hosts")?
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(_, names)| names.split_whitespace().any(|one| one == name))
        .and_then(|(address, _)| address.parse().ok())
        .ok_or_else(|| io::Error::other(format!("no host {name}")))
}

/// Connects, and takes as many bytes as it is told in eight bytes before them, answers with one, and again until the server
/// ends the connection.
pub(super) fn take_from(address: SocketAddr) -> io::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; TAKEN];
    loop {
        let mut length = [0; 8];
        match stream.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Value::Null),
            Err(error) => return Err(error),
        }
        let mut left = u64::from_le_bytes(length);
        while left > 0 {
            let most = left.min(TAKEN as u64) as usize;
            let count = stream.read(&mut buffer[..most])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= count as u64;
        }
        stream.write_all(&[1])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Exchange;

    #[test]
    fn an_app_gives_its_page_and_says_each_message_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener));
        let mut exchange = Exchange::plain(address).unwrap();
        for _ in 0..2 {
            assert_eq!(exchange.get("/", "").unwrap().bytes, PAGE as u64);
        }
        let upgraded = exchange.get("/", "Upgrade: websocket\r\n").unwrap();
        assert_eq!(upgraded.status, 101);
        // A text of two letters, masked by 1, 2, 3, 4.
        exchange
            .write(&[0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2])
            .unwrap();
        let mut said = [0; 4];
        exchange.read(&mut said).unwrap();
        assert_eq!(said, [0x81, 2, b'h', b'i']);
    }

    #[test]
    fn a_writer_ends_when_it_is_told_and_files_are_as_many_as_asked() {
        let place = ScratchDirectory::new("guest-test").unwrap();
        let many = place.path().join("many");
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        run(&words(format!("files {} 30 5", many.display()))).unwrap();
        assert_eq!(fs::read_dir(&many).unwrap().count(), 30);
        fs::create_dir(place.path().join(STOP)).unwrap();
        let said = run(&words(format!("write {}", place.path().display()))).unwrap();
        assert_eq!(said["write"]["count"], json!(0));
        assert!(run(&words("lunch".into())).is_err());
    }

    #[test]
    fn a_session_is_filled_with_as_many_bytes_as_asked() {
        let place = ScratchDirectory::new("guest-fill").unwrap();
        fill(place.path(), FILLED_FILE + 5).unwrap();
        let mut sizes: Vec<u64> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [5, FILLED_FILE]);
    }
}
