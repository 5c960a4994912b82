//! By what this box is known over SSH: one Ed25519 key, drawn once, kept sealed in the catalog and so in its backups.
//! Never signs anything.

use api::secret::SecretText;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};

use super::ssh_key::fingerprint;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server, ServerFault};

/// The kind of key.
const KIND: &str = "ssh-ed25519";

/// The host key with its secret.
#[derive(Clone)]
pub struct SshHostKey {
    seed: [u8; 32],
    public: [u8; 32],
}

impl std::fmt::Debug for SshHostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SshHostKey {}", self.fingerprint())
    }
}

impl SshHostKey {
    fn of(seed: [u8; 32]) -> Result<Self, Failure> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|rejected| {
            ServerFault::new("use the host key of SSH", rejected.to_string())
        })?;
        let public = <[u8; 32]>::try_from(pair.public_key().as_ref())
            .map_err(|_| ServerFault::new("use the host key of SSH", "it has no 32 bytes"))?;
        Ok(Self { seed, public })
    }

    /// What signs; for the SSH server alone.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// `ssh-ed25519 AAAA…`, as a file of known hosts has it behind a name.
    pub fn line(&self) -> String {
        format!("{KIND} {}", STANDARD.encode(self.blob()))
    }

    /// As `ssh` asks about it at the first connection.
    pub fn fingerprint(&self) -> String {
        fingerprint(&Sha256::digest(self.blob()).into())
    }

    fn blob(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for part in [KIND.as_bytes(), &self.public] {
            let length = u32::try_from(part.len()).expect("both are short");
            all.extend(length.to_be_bytes());
            all.extend_from_slice(part);
        }
        all
    }
}

/// The host key; drawn and kept at the first call. Costs one row by key after that.
pub async fn ssh_host_key(server: &Server) -> Result<SshHostKey, Failure> {
    if let Some(known) = server
        .catalog()
        .read_now("read the host key of SSH", known)?
    {
        return Ok(known);
    }
    server
        .catalog()
        .write_of_server(Lane::Requests, "draw the host key of SSH", |rows| {
            // Another start may have been faster.
            if let Some(known) = known(rows)? {
                return Ok(known);
            }
            let seed: [u8; 32] = base::observe::random();
            rows.insert_ssh_host_secret(&SecretText::new(STANDARD.encode(seed)))?;
            SshHostKey::of(seed)
        })
        .await
}

/// The host key where it was drawn.
pub(crate) fn known(view: &ReadTransaction<'_>) -> Result<Option<SshHostKey>, Failure> {
    let Some(secret) = view.ssh_host_secret()? else {
        return Ok(None);
    };
    let seed = STANDARD
        .decode(secret.reveal())
        .map_err(|error| ServerFault::new("read the host key of SSH", error))?;
    let seed = <[u8; 32]>::try_from(seed.as_slice())
        .map_err(|_| ServerFault::new("read the host key of SSH", "it is no seed"))?;
    SshHostKey::of(seed).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_host_key_is_drawn_once_and_stands_nowhere_in_the_clear() {
        let server = Server::for_tests();
        let first = ssh_host_key(&server).await.expect("drawn");
        let again = ssh_host_key(&server).await.expect("kept");
        assert_eq!(first.line(), again.line());
        assert_eq!(first.seed(), again.seed());
        assert!(first.fingerprint().starts_with("SHA256:"));
        let shown = format!("{first:?}");
        assert!(!shown.contains(&STANDARD.encode(first.seed())));
    }

    /// A vector of RFC 8032: seed and public key.
    #[test]
    fn the_public_part_is_that_of_the_seed() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
                .collect()
        };
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let key = SshHostKey::of(seed.try_into().expect("32 bytes")).expect("a key");
        assert_eq!(
            key.public.to_vec(),
            hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        );
    }
}
