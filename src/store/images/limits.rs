//! How much of anything an archive may hold before it is refused. Numbers only; who counts is the
//! code that reads. Every limit has a refusal with its own code.

/// Bounds of one import. `Default` is right for a GPU server; tests and small boxes pass their own.
#[derive(Debug, Clone)]
pub struct ImportLimits {
    /// Unpacked bytes of one whole image. Higher: one archive may fill the disk down to the reserve.
    /// Lower: large model images (60 GiB is seen) are refused.
    pub unpacked_bytes: u64,
    /// Free bytes that always stay on the disk of the state, for the catalog, logs and stops.
    pub reserve_bytes: u64,
    /// Unpacked bytes per compressed byte of one layer, counted once `ratio_grace_bytes` are out.
    /// gzip reaches 1032 only on constant bytes; real layers lie between 2 and 12.
    pub ratio: u64,
    /// Below this many unpacked bytes the ratio does not matter: a layer of a few empty files
    /// compresses a hundredfold and is harmless.
    pub ratio_grace_bytes: u64,
    /// Members of one layer. Real ones: Debian with Python 20,000; CUDA toolkits 60,000.
    pub members: u64,
    /// Members of the outer archive (layers, configurations, legacy links).
    pub archive_members: u64,
    /// Bytes of a name in the outer archive, all of which are in memory together. Producers need
    /// 76 (`<64 digits>/layer.tar`).
    pub archive_name_bytes: usize,
    /// Layers of one image; other engines stop at 127.
    pub layers: usize,
    /// Images in one archive; their configurations are in memory together.
    pub images: usize,
    /// Bytes of a path and of a link target; the kernel's own PATH_MAX less its final zero.
    pub path_bytes: usize,
    /// Directories above a file. Higher: a check of a kept layer holds one descriptor per level.
    pub depth: usize,
    /// Bytes of names of directories remembered until a layer ends, the only memory that grows with
    /// the archive. Real layers need a few MiB.
    pub directory_name_bytes: usize,
    /// Bytes of all extended headers of one member together (long names, attributes).
    pub header_bytes: u64,
    /// Extended headers of one member. Producers write at most three: a long name, a long link and one of
    /// attributes.
    pub headers: usize,
    /// Bytes of a manifest, an index or an image configuration.
    pub document_bytes: u64,
    /// Environment variables of an image.
    pub variables: usize,
    /// Bytes of one variable or argument; the kernel's own limit (MAX_ARG_STRLEN) less its zero.
    pub argument_bytes: usize,
    /// Bytes of all variables and arguments together.
    pub arguments_bytes: usize,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self {
            unpacked_bytes: 512 << 30,
            reserve_bytes: 1 << 30,
            ratio: 200,
            ratio_grace_bytes: 256 << 20,
            members: 1_000_000,
            archive_members: 100_000,
            archive_name_bytes: 512,
            layers: 127,
            images: 16,
            path_bytes: 4095,
            depth: 256,
            directory_name_bytes: 64 << 20,
            header_bytes: 1 << 20,
            headers: 16,
            document_bytes: 4 << 20,
            variables: 10_000,
            argument_bytes: 131_071,
            arguments_bytes: 1 << 20,
        }
    }
}
