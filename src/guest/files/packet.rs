//! Packets of SFTP: numbers, strings with their lengths before them. Never reads beyond what is there.

/// A request that ends before it should.
#[derive(Debug)]
pub(crate) struct CutRequest;

/// What is left of a request.
pub(crate) struct RequestReader<'p>(&'p [u8]);

impl<'p> RequestReader<'p> {
    pub(crate) fn new(packet: &'p [u8]) -> Self {
        Self(packet)
    }

    pub(crate) fn number(&mut self) -> Result<u32, CutRequest> {
        let (bytes, rest) = self.0.split_first_chunk::<4>().ok_or(CutRequest)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    pub(crate) fn long(&mut self) -> Result<u64, CutRequest> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(CutRequest)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*bytes))
    }

    pub(crate) fn string(&mut self) -> Result<&'p [u8], CutRequest> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(CutRequest)?;
        self.0 = rest;
        Ok(text)
    }
}

/// An answer that is being written.
pub(crate) struct ReplyWriter(Vec<u8>);

impl ReplyWriter {
    pub(crate) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(crate) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn string(&mut self, text: &[u8]) {
        self.number(text.len() as u32);
        self.0.extend_from_slice(text);
    }

    /// Appends the whole packet.
    pub(crate) fn finish(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.0.len() as u32).to_be_bytes());
        into.extend_from_slice(&self.0);
    }
}
