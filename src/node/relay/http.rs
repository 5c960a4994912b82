//! The proxy of a session: CONNECT for everything, and plain HTTP requests with a whole address. One request a connection;
//! what follows goes to the same server. Judges nothing, `reach` does; keeps nothing of what passes.

use std::time::Duration;

use rules::egress::EgressOutcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::reach::reach;
use super::served::ServedSession;

/// How long a client may take to say where it wants to go.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request's head. More: a client fills memory. Fewer: requests with large cookies are refused.
const MAX_HEAD: usize = 32 << 10;

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    host: String,
    port: u16,
    /// What the server is sent first; None for CONNECT, which the client is answered.
    forward: Option<Vec<u8>>,
}

/// Serves one connection of a client.
pub(super) async fn serve(served: &ServedSession, mut client: TcpStream) {
    let head = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut client)).await;
    let Ok(Some((head, rest))) = head else {
        return;
    };
    let Some(request) = parse(&head) else {
        refuse(&mut client, "400 Bad Request", "egress.request-invalid").await;
        return;
    };
    let mut reached = match reach(served, &request.host, request.port).await {
        Ok(reached) => reached,
        Err(outcome) => {
            let status = match outcome {
                EgressOutcome::NotListed | EgressOutcome::AddressRefused => "403 Forbidden",
                _ => "502 Bad Gateway",
            };
            let code = format!("egress.{}", outcome.word());
            refuse(&mut client, status, &code).await;
            return;
        }
    };
    let begun = match &request.forward {
        Some(forward) => reached.server.write_all(forward).await,
        None => {
            let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
            client.write_all(established).await
        }
    };
    // What the client sent behind its head, before it was answered.
    if begun.is_ok() && reached.server.write_all(&rest).await.is_ok() {
        reached.carry(served, client).await;
    }
}

/// The head of a request, its last line ended, and what came behind it; None where it is too long or never ends.
async fn read_head(client: &mut TcpStream) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = client.read(&mut buffer).await.ok()?;
        if count == 0 {
            return None;
        }
        // The end may lie across two reads.
        let from = read.len().saturating_sub(3);
        read.extend_from_slice(&buffer[..count]);
        let end = read[from..].windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let rest = read.split_off(from + end + 4);
            return Some((read, rest));
        }
        if read.len() > MAX_HEAD {
            return None;
        }
    }
}

/// Understands the head of a request, which ends with an empty line.
fn parse(head: &[u8]) -> Option<ProxyRequest> {
    let text = std::str::from_utf8(head).ok()?;
    let text = text.strip_suffix("\r\n\r\n")?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_legal = words.next().is_none()
        && matches!(version, "HTTP/1.1" | "HTTP/1.0")
        && !method.is_empty()
        && method.bytes().all(is_token)
        && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_legal {
        return None;
    }
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        return Some(ProxyRequest {
            host,
            port,
            forward: None,
        });
    }
    let rest = target.strip_prefix("http://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority_text, path) = rest.split_at(end);
    let (host, port) = authority(authority_text, Some(80))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut forward = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority_text}\r\n");
    for line in lines {
        let (name, value) = line.split_once(':')?;
        // A line that goes on in the next, or ends otherwise, is two requests to some servers.
        if name.is_empty()
            || !name.bytes().all(is_token)
            || value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
        {
            return None;
        }
        let name = name.to_ascii_lowercase();
        if name.starts_with("proxy-")
            || matches!(name.as_str(), "host" | "connection" | "keep-alive")
        {
            continue;
        }
        forward.push_str(line);
        forward.push_str("\r\n");
    }
    forward.push_str("Connection: close\r\n\r\n");
    Some(ProxyRequest {
        host,
        port,
        forward: Some(forward.into_bytes()),
    })
}

/// Host and port of `HOST:PORT`; without user names.
fn authority(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        // The last part of an IPv6 address without a port.
        Some((_, end)) if end.ends_with(']') => (text, usual?),
        // A sign, which `parse` takes, is not taken.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, port.parse().ok()?)
        }
        Some(_) => return None,
        None => (text, usual?),
    };
    let is_legal = !host.is_empty() && !host.contains('@') && port > 0;
    is_legal.then(|| (host.to_owned(), port))
}

async fn refuse(client: &mut TcpStream, status: &str, code: &str) {
    let body = format!("{code}\n");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    // A client that is gone needs no answer.
    let _ = client.write_all(answer.as_bytes()).await;
    let _ = client.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::super::reach::bare;
    use super::*;

    #[test]
    fn connect_and_whole_addresses_are_understood() {
        let asked = parse(b"CONNECT index.example:443 HTTP/1.1\r\nHost: x\r\n\r\n").expect("legal");
        assert_eq!((asked.host.as_str(), asked.port), ("index.example", 443));
        assert_eq!(asked.forward, None);
        let asked = parse(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n").expect("legal");
        assert_eq!((bare(&asked.host), asked.port), ("2001:db8::1", 443));
        let head = b"GET http://index.example/a?b HTTP/1.1\r\nHost: other\r\nAccept: */*\r\n\
                     Proxy-Authorization: Basic eA==\r\nConnection: keep-alive\r\n\r\n";
        let asked = parse(head).expect("legal");
        assert_eq!((asked.host.as_str(), asked.port), ("index.example", 80));
        let forward = asked.forward.map(String::from_utf8);
        let sent =
            "GET /a?b HTTP/1.1\r\nHost: index.example\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(forward, Some(Ok(sent.to_owned())));
        let asked = parse(b"GET http://index.example:8080?x HTTP/1.0\r\n\r\n").expect("legal");
        assert_eq!(asked.port, 8080);
        let forward = asked.forward.expect("plain");
        assert!(forward.starts_with(b"GET /?x HTTP/1.1\r\n"));
    }

    #[test]
    fn what_two_programs_could_understand_differently_is_refused() {
        for head in [
            &b"CONNECT index.example HTTP/1.1\r\n\r\n"[..],
            b"CONNECT index.example:0 HTTP/1.1\r\n\r\n",
            b"CONNECT index.example:+443 HTTP/1.1\r\n\r\n",
            b"CONNECT index.example:443 HTTP/1.1 x\r\n\r\n",
            b"CONNECT user@index.example:443 HTTP/1.1\r\n\r\n",
            b"CONNECT index.example:443 HTTP/2\r\n\r\n",
            b"GET /here HTTP/1.1\r\nHost: index.example\r\n\r\n",
            b"GET https://index.example/ HTTP/1.1\r\n\r\n",
            b"GET http://a@index.example/ HTTP/1.1\r\n\r\n",
            b"GET http://index.example/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            b"GET http://index.example/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            b"GET http://index.example/ HTTP/1.1\r\nA : b\r\n\r\n",
            b"G\nET http://index.example/ HTTP/1.1\r\n\r\n",
            b"\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert_eq!(parse(head), None, "{:?}", String::from_utf8_lossy(head));
        }
    }
}
