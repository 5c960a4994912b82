//! The ports of apps: takes one when an app is first opened at it, and serves it from then on. Never chooses one.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use server::routes::AppListeners;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::doors::listener::{self, PortLimits, Purpose, ServesApps};

/// Serves ports of one address.
pub(crate) struct PortListeners {
    pub(crate) address: IpAddr,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) apps: Arc<dyn ServesApps>,
    pub(crate) limits: PortLimits,
    pub(crate) leaving: watch::Receiver<bool>,
    /// Ports that are served.
    pub(crate) served: Mutex<BTreeSet<u16>>,
}

impl AppListeners for PortListeners {
    fn serve(&self, port: u16) -> io::Result<()> {
        // A set is whole after every step.
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains(&port) {
            return Ok(());
        }
        let listener = std::net::TcpListener::bind((self.address, port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let serving = listener::serve(
            listener,
            self.tls.clone(),
            Purpose::Apps(Arc::clone(&self.apps)),
            self.limits.clone(),
            self.leaving.clone(),
        );
        // Owned by the process: it ends when the server leaves.
        tokio::spawn(serving);
        served.insert(port);
        Ok(())
    }
}
