//! One wish of a client of the proxy: judged by `rules::egress`, counted, opened and carried. The protocols of the proxy ask
//! here alone, so that the same rules hold for both.

use std::net::IpAddr;

use rules::egress::{EgressOutcome, SessionEgress, host_name};
use tokio::net::TcpStream;

use super::carry;
use super::served::{OpenConnection, ServedSession};

/// A server that a client of the proxy may speak to.
pub(super) struct ReachedServer<'s> {
    /// As the client wrote it.
    host: String,
    port: u16,
    pub(super) server: TcpStream,
    connection: OpenConnection<'s>,
    address: Option<IpAddr>,
}

/// Opens what a client asks for, where a target lists it.
///
/// Errors: the outcome that it has instead of `Opened`; it is counted too.
pub(super) async fn reach<'s>(
    served: &'s ServedSession,
    host: &str,
    port: u16,
) -> Result<ReachedServer<'s>, EgressOutcome> {
    let known = shown(host);
    let egress = served.egress();
    let opened = match egress.listed(host, port) {
        Some(target) => carry::open(&egress, target, bare(&known)).await,
        None => Err(EgressOutcome::NotListed),
    };
    match opened {
        Ok(server) => Ok(ReachedServer {
            host: host.to_owned(),
            port,
            connection: served.begin(&known, port),
            address: carry::address_of(&server),
            server,
        }),
        Err(outcome) => {
            served.count(&known, port, outcome);
            Err(outcome)
        }
    }
}

impl ReachedServer<'_> {
    /// Carries bytes both ways until one side is over, or the session may not reach it any more.
    pub(super) async fn carry(self, served: &ServedSession, client: TcpStream) {
        let is_admitted = |now: &SessionEgress| {
            let target = now.listed(&self.host, self.port);
            target.is_some_and(|target| carry::admits(now, target, self.address))
        };
        tokio::select! {
            () = carry::both(served, &self.connection, client, self.server) => {}
            () = served.refuses(is_admitted) => {}
        }
    }
}

/// Without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// A host as rows keep it; `?` for what is none.
fn shown(host: &str) -> String {
    match bare(host).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host_name(host).unwrap_or_else(|| "?".to_owned()),
    }
}
