//! Finds the node of a container and opens streams there: terminals, commands, logs and ports. Asks no
//! permission; `actions::sessions::enter` did.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::link::streams::{
    AppFile, BoxFuture, ByteStream, ContainerProcess, ExecRequest, LayerRequest, LogStream,
    SessionLayerStream, Streams, TermStream,
};
use rules::names::{ContainerName, NodeId, SessionId};
use tokio::sync::mpsc::Receiver;

use crate::Server;
use crate::catalog::Catalog;

/// The streams of every node that has a link.
pub struct StreamRouter {
    catalog: Catalog,
    nodes: BTreeMap<NodeId, Arc<dyn Streams>>,
    /// The node that is asked where the container's own has no link: it refuses, as one without the container.
    first: Arc<dyn Streams>,
}

impl StreamRouter {
    /// Routes to a single node.
    pub fn to(server: &Server, node: NodeId, streams: Arc<dyn Streams>) -> Self {
        Self {
            catalog: server.catalog().clone(),
            nodes: BTreeMap::from([(node, Arc::clone(&streams))]),
            first: streams,
        }
    }

    /// Adds the streams of a node, in place of earlier ones of the same node.
    pub fn add(&mut self, node: NodeId, streams: Arc<dyn Streams>) {
        self.nodes.insert(node, streams);
    }

    /// The streams of a container's node. Reads one row where there are several nodes.
    fn of(&self, container: ContainerName) -> &dyn Streams {
        if self.nodes.len() == 1 {
            return &*self.first;
        }
        let row = self
            .catalog
            .read_now("find the node of a container", |view| {
                view.session(container.session)
            });
        let node = row.ok().flatten().and_then(|row| {
            let mut all = row.containers().iter();
            all.find(|each| each.index == container.index)
                .map(|each| each.node)
        });
        node.and_then(|node| self.nodes.get(&node))
            .map_or(&*self.first, |streams| &**streams)
    }
}

impl Streams for StreamRouter {
    fn attach(&self, container: ContainerName, size: Option<(u16, u16)>) -> BoxFuture<TermStream> {
        self.of(container).attach(container, size)
    }

    fn exec(&self, container: ContainerName, request: ExecRequest) -> BoxFuture<TermStream> {
        self.of(container).exec(container, request)
    }

    fn logs(&self, container: ContainerName, since: u64, follow: bool) -> BoxFuture<LogStream> {
        self.of(container).logs(container, since, follow)
    }

    fn dial(&self, container: ContainerName, port: u16) -> BoxFuture<ByteStream> {
        self.of(container).dial(container, port)
    }

    fn processes(&self, container: ContainerName) -> BoxFuture<Vec<ContainerProcess>> {
        self.of(container).processes(container)
    }

    fn listening(&self, container: ContainerName) -> BoxFuture<Vec<u16>> {
        self.of(container).listening(container)
    }

    fn neighbours(&self, container: ContainerName) -> BoxFuture<Receiver<ByteStream>> {
        self.of(container).neighbours(container)
    }

    fn inner_door(&self, container: ContainerName) -> BoxFuture<Receiver<ByteStream>> {
        self.of(container).inner_door(container)
    }

    fn programs(&self, container: ContainerName, wanted: Vec<String>) -> BoxFuture<Vec<String>> {
        self.of(container).programs(container, wanted)
    }

    fn app_files(&self, container: ContainerName) -> BoxFuture<Vec<AppFile>> {
        self.of(container).app_files(container)
    }

    fn layer(
        &self,
        container: ContainerName,
        request: LayerRequest,
    ) -> BoxFuture<SessionLayerStream> {
        self.of(container).layer(container, request)
    }

    fn forget_logs(&self, sessions: Vec<SessionId>) -> BoxFuture<()> {
        let told: Vec<_> = self
            .nodes
            .values()
            .map(|node| node.forget_logs(sessions.clone()))
            .collect();
        Box::pin(async move {
            for told in told {
                told.await?;
            }
            Ok(())
        })
    }
}
