//! nginx as the peer of what carries bytes: its own processes on a temporary directory, with what its Debian package
//! configures for files. Ended when it is dropped.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::subject::ScratchDirectory;
use super::unpacked;

const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Nginx {
    process: Child,
    pub(super) listen: SocketAddr,
    pub(super) version: String,
    /// Its directory goes after its processes.
    _place: ScratchDirectory,
}

impl Nginx {
    /// Serves the files of a directory, under TLS with the key and certificates of one file where it is named; None where
    /// there is no nginx.
    pub(super) fn files(root: &Path, tls: Option<&Path>) -> io::Result<Option<Self>> {
        Self::start(|listen| {
            let (word, keys) = match tls {
                None => ("", String::new()),
                Some(file) => (
                    " ssl",
                    format!(
                        "ssl_certificate {0}; ssl_certificate_key {0}; ssl_protocols TLSv1.2 TLSv1.3;",
                        file.display()
                    ),
                ),
            };
            format!(
                "server {{ listen {listen}{word}; {keys} location / {{ root {}; }} }}",
                root.display()
            )
        })
    }

    /// Passes every request on, as a proxy of apps is set up: connections to the app are kept, and WebSockets go through.
    pub(super) fn before(app: SocketAddr) -> io::Result<Option<Self>> {
        Self::start(|listen| {
            format!(
                "map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
                upstream app {{ server {app}; keepalive 64; }}
                server {{
                    listen {listen};
                    location / {{
                        proxy_pass http://app;
                        proxy_http_version 1.1;
                        proxy_set_header Host $http_host;
                        proxy_set_header Upgrade $http_upgrade;
                        proxy_set_header Connection $connection_upgrade;
                        proxy_read_timeout 600s;
                    }}
                }}"
            )
        })
    }

    fn start(server: impl FnOnce(SocketAddr) -> String) -> io::Result<Option<Self>> {
        let Some(program) = unpacked::program("nginx") else {
            return Ok(None);
        };
        // Two of one run stand beside one another.
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let place = ScratchDirectory::new(&format!("nginx-{}", listen.port()))?;
        let file = place.path().join("nginx.conf");
        let said = place.path().join("said");
        fs::write(&file, configuration(place.path(), &server(listen)))?;
        let version = version(&program)?;
        let process = unpacked::command(&program)
            .arg("-e")
            .arg(&said)
            .arg("-p")
            .arg(place.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.path().join("refused"))?)
            .spawn()?;
        let mut nginx = Self {
            process,
            listen,
            version,
            _place: place,
        };
        let until = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(listen).is_err() {
            if nginx.process.try_wait()?.is_some() || Instant::now() > until {
                let said = fs::read_to_string(said).unwrap_or_default();
                return Err(io::Error::other(format!("nginx does not serve: {said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(nginx))
    }
}

fn version(program: &Path) -> io::Result<String> {
    let told = unpacked::command(program).arg("-v").output()?;
    Ok(String::from_utf8_lossy(&told.stderr).trim().to_owned())
}

/// Its own directories, and for files what Debian's package says: `sendfile`, and heads together with the first bytes.
fn configuration(place: &Path, server: &str) -> String {
    let at = place.display();
    format!(
        "daemon off;
        user root;
        worker_processes auto;
        pid {at}/pid;
        events {{ worker_connections 1024; }}
        http {{
            access_log off;
            sendfile on;
            tcp_nopush on;
            keepalive_requests 100000000;
            default_type application/octet-stream;
            client_body_temp_path {at}/body;
            proxy_temp_path {at}/proxy;
            fastcgi_temp_path {at}/fastcgi;
            uwsgi_temp_path {at}/uwsgi;
            scgi_temp_path {at}/scgi;
            {server}
        }}"
    )
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it, where it is asked.
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_it_writes_lies_in_its_own_directory() {
        let text = configuration(Path::new("/a/b"), "server { }");
        assert_eq!(text.matches("_temp_path /a/b/").count(), 5);
        assert!(text.contains("pid /a/b/pid;") && text.contains("server { }"));
    }
}
