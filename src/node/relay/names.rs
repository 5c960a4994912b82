//! Asks the machine's own name servers for the addresses of a name, in plain DNS (RFC 1035): the name service of the C library
//! cannot be called from a static program. Believes nothing: what comes out is judged as an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

/// How long one server may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Servers that are asked, in the order of `resolv.conf`.
const MAX_SERVERS: usize = 3;

/// Addresses that are taken from one answer.
const MAX_ADDRESSES: usize = 16;

const HEAD: usize = 12;
/// Types of records: IPv4 and IPv6 addresses.
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

/// The addresses of a name, IPv4 first: of the machine's hosts file where it is there, else of the first name server that
/// answers. None where there are none.
pub(super) async fn resolve(name: &str) -> Option<Vec<IpAddr>> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let known = base::addresses::of_host(name, &read("/etc/hosts"));
    if !known.is_empty() {
        return Some(known);
    }
    for server in servers(&read("/etc/resolv.conf")) {
        let (four, six) = tokio::join!(ask(server, name, A), ask(server, name, AAAA));
        if let (Err(_), Err(_)) = (&four, &six) {
            continue;
        }
        let answers = four.into_iter().chain(six).flatten();
        let found: Vec<IpAddr> = answers.take(MAX_ADDRESSES).collect();
        return (!found.is_empty()).then_some(found);
    }
    None
}

/// The name servers of a `resolv.conf`; that of this machine where it names none.
fn servers(text: &str) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let address = words.next().filter(|_| is_server)?;
        Some(SocketAddr::new(address.parse().ok()?, 53))
    });
    let mut servers: Vec<SocketAddr> = named.take(MAX_SERVERS).collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
    }
    servers
}

/// One question to one server. Errors: it gives no answer that belongs to the question.
async fn ask(server: SocketAddr, name: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Number and port are drawn by chance, and only the server's own packets arrive: an answer cannot be guessed.
    let number = u16::from_be_bytes(base::observe::random());
    let question = question(number, name, kind);
    let question = question.ok_or(io::ErrorKind::InvalidInput)?;
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let listening = async {
        let mut buffer = [0; 4096];
        loop {
            let count = socket.recv(&mut buffer).await?;
            if let Some(found) = addresses(&buffer[..count], &question, kind) {
                return Ok::<Vec<IpAddr>, io::Error>(found);
            }
        }
    };
    let heard = tokio::time::timeout(ANSWER_TIMEOUT, listening).await;
    heard.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The packet that asks for records of a name; None for what is no name.
fn question(number: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut packet = number.to_be_bytes().to_vec();
    // Recursion is wanted; one question.
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok();
        packet.push(length.filter(|length| (1..=63).contains(length))?);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend(INTERNET.to_be_bytes());
    (packet.len() <= 512).then_some(packet)
}

/// The addresses that an answer to `question` has, empty where the name has none; None for what is no answer to it.
fn addresses(answer: &[u8], question: &[u8], kind: u16) -> Option<Vec<IpAddr>> {
    let number = |at: usize| {
        let two = answer.get(at..at + 2)?;
        Some(u16::from_be_bytes([two[0], two[1]]))
    };
    let asked = &question[HEAD..];
    let is_answer = answer.get(..2)? == &question[..2]
        && answer.get(2)? & 0x80 != 0
        && number(4)? == 1
        && answer
            .get(HEAD..HEAD + asked.len())?
            .eq_ignore_ascii_case(asked);
    if !is_answer {
        return None;
    }
    // No such name, and no addresses, are answers; a server that cannot answer is none.
    if !matches!(answer.get(3)? & 0x0f, 0 | 3) {
        return None;
    }
    let mut found = Vec::new();
    let mut at = HEAD + asked.len();
    for _ in 0..number(6)? {
        let Some((record, data, next)) = record(answer, at) else {
            // Cut short: what is whole counts.
            break;
        };
        at = next;
        let address = match (record, kind) {
            (A, A) => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
            (AAAA, AAAA) => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
            _ => None,
        };
        found.extend(address);
        if found.len() >= MAX_ADDRESSES {
            break;
        }
    }
    Some(found)
}

/// Type and data of the record at a place, and where the next begins; None where it is not whole.
fn record(packet: &[u8], mut at: usize) -> Option<(u16, &[u8], usize)> {
    // Its name: labels, or a pointer, which ends it.
    loop {
        let length = usize::from(*packet.get(at)?);
        match length {
            0 => {
                at += 1;
                break;
            }
            length if length & 0xc0 == 0xc0 => {
                at += 2;
                break;
            }
            length if length < 64 => at += 1 + length,
            _ => return None,
        }
    }
    let head = packet.get(at..at + 10)?;
    let (kind, class) = (
        u16::from_be_bytes([head[0], head[1]]),
        u16::from_be_bytes([head[2], head[3]]),
    );
    let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
    let data = packet.get(at + 10..at + 10 + length)?;
    let kind = if class == INTERNET { kind } else { 0 };
    Some((kind, data, at + 10 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to a question: the alias `b` first, then these addresses of that alias.
    fn answer(question: &[u8], code: u8, found: &[IpAddr]) -> Vec<u8> {
        let mut packet = question.to_vec();
        packet[2] = 0x81;
        packet[3] = 0x80 | code;
        packet[7] = found.len() as u8 + 1;
        packet.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 3, 1, b'b', 0]);
        for address in found {
            let (kind, bytes) = match address {
                IpAddr::V4(four) => (A, four.octets().to_vec()),
                IpAddr::V6(six) => (AAAA, six.octets().to_vec()),
            };
            packet.extend([1, b'b', 0]);
            packet.extend(kind.to_be_bytes());
            packet.extend([0, 1, 0, 0, 0, 60, 0, bytes.len() as u8]);
            packet.extend(bytes);
        }
        packet
    }

    #[test]
    fn addresses_are_taken_behind_an_alias_and_from_no_other_question() {
        let asked = question(7, "index.example", A).expect("a name");
        let four: IpAddr = "9.9.9.9".parse().expect("an address");
        let six: IpAddr = "2620:fe::fe".parse().expect("an address");
        let told = answer(&asked, 0, &[four, six]);
        assert_eq!(addresses(&told, &asked, A), Some(vec![four]));
        let none = answer(&asked, 3, &[]);
        assert_eq!(addresses(&none, &asked, A), Some(vec![]));
        assert_eq!(addresses(&answer(&asked, 2, &[four]), &asked, A), None);
        for other in [
            question(8, "index.example", A),
            question(7, "other.example", A),
            question(7, "index.example", AAAA),
        ] {
            assert_eq!(addresses(&told, &other.expect("a name"), A), None);
        }
        assert_eq!(
            addresses(&asked, &asked, A),
            None,
            "a question is no answer"
        );
    }

    #[test]
    fn an_answer_that_is_cut_or_points_at_itself_ends() {
        let asked = question(7, "index.example", A).expect("a name");
        let told = answer(&asked, 0, &["9.9.9.9".parse().expect("an address")]);
        for length in 0..told.len() {
            let found = addresses(&told[..length], &asked, A);
            assert!(found.is_none_or(|found| found.is_empty()), "{length}");
        }
        let mut many = answer(&asked, 0, &[]);
        many[6] = 0xff;
        assert_eq!(addresses(&many, &asked, A), Some(vec![]));
        for name in ["", "a..b", &"x".repeat(64), &"x.".repeat(400)] {
            assert_eq!(question(7, name, A), None, "{name}");
        }
    }

    #[test]
    fn name_servers_are_those_of_the_machine() {
        let text = "# nameserver 9.9.9.9\nsearch a.example\nnameserver 10.0.0.2\nnameserver fd00::2 \nnameserver x\n";
        let found: Vec<String> = servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.2:53", "[fd00::2]:53"]);
        assert_eq!(servers("").len(), 1);
    }

    #[tokio::test]
    async fn a_name_server_is_asked_and_its_answer_is_taken() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let at = server.local_addr().expect("bound");
        let answering = tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (count, from) = server.recv_from(&mut buffer).await.expect("asked");
            let asked = buffer[..count].to_vec();
            server.send_to(b"nonsense", from).await.expect("sent");
            let told = answer(&asked, 0, &["127.0.0.1".parse().expect("an address")]);
            server.send_to(&told, from).await.expect("sent");
        });
        let found = ask(at, "lies.example", A).await.expect("answered");
        assert_eq!(found, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        answering.await.expect("no panic");
    }
}
