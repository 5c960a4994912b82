//! Images across the link, in the direction that containers' streams do not go: a node asks its server for
//! the image of a digest that it does not have. The server implements `ImageSource`; a node holds it as a
//! trait object and never learns whether a network lies between. Knows neither the manifest nor the bytes.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::streams::BoxFuture;

/// Gives images by digest. All digests are written `sha256:…`.
pub trait ImageSource: Send + Sync {
    /// What the image consists of: JSON of `store::images::transfer::TransferManifest`.
    ///
    /// May read every layer once, so it may take minutes for an image that no node has asked for before.
    /// Refuses `image.not-found`, `image.sends-busy`.
    fn manifest(&self, image: String) -> BoxFuture<Bytes>;

    /// The packed bytes of one layer of the image, from byte `offset` on. Refuses `image.sends-busy`.
    fn layer(&self, image: String, layer: String, offset: u64) -> BoxFuture<ImageBytes>;

    /// Those of these images that the server still has.
    fn kept(&self, images: Vec<String>) -> BoxFuture<Vec<String>>;
}

/// Bytes of a layer on their way. The stream closes at its end and where it was cut off: the
/// manifest says how many bytes there are. Dropping it ends the sending.
#[derive(Debug)]
pub struct ImageBytes {
    pub chunks: mpsc::Receiver<Bytes>,
}
