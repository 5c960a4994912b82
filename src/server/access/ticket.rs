//! Tickets: what the server says of a user, handed to the user's own client for some minutes and proven by the box's
//! key when it comes back. So a second step needs no row and no memory. A ticket authenticates nobody by itself.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rules::names::UserId;
use rules::units::Timestamp;
use uuid::Uuid;

use super::secret::same;
use crate::Server;

/// What a ticket is good for; one of another purpose proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TicketPurpose {
    /// The password was right, or a sign-in link, whose hash it carries; the code is still to come.
    SecondStep,
    /// The password was right, and the secret that it carries is to become the second factor.
    SetUp,
}

/// Longest ticket that is read: one that carries a secret has some hundred characters.
const MAX_TICKET: usize = 200;

/// A ticket as it came, not proven yet.
pub(crate) struct Ticket {
    pub(super) user: UserId,
    pub(super) ends_at: Timestamp,
    /// What it carries, readable for its holder.
    pub(crate) body: Vec<u8>,
    signature: [u8; 32],
}

impl TicketPurpose {
    /// The box's key signs cursors and devices too; these words begin like none of them does.
    fn words(self) -> &'static [u8] {
        match self {
            Self::SecondStep => b"second step: ",
            Self::SetUp => b"second factor: ",
        }
    }
}

/// A new ticket of a user. It holds while `bound` stays the same.
pub(super) fn issue(
    server: &Server,
    purpose: TicketPurpose,
    (user, ends_at): (UserId, Timestamp),
    body: &[u8],
    bound: &[u8],
) -> String {
    let mut ticket = Ticket {
        user,
        ends_at,
        body: body.to_vec(),
        signature: [0; 32],
    };
    ticket.signature = ticket.sign(server, purpose, bound);
    let ends = ends_at.as_millis().to_be_bytes();
    let bytes = [user.0.as_bytes().as_slice(), &ends, body, &ticket.signature];
    URL_SAFE_NO_PAD.encode(bytes.concat())
}

impl Ticket {
    /// None for what is no ticket at all.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_TICKET {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (user, rest) = bytes.split_first_chunk::<16>()?;
        let (ends, rest) = rest.split_first_chunk::<8>()?;
        let (body, signature) = rest.split_last_chunk::<32>()?;
        Some(Self {
            user: UserId(Uuid::from_bytes(*user)),
            ends_at: Timestamp::from_millis(i64::from_be_bytes(*ends)),
            body: body.to_vec(),
            signature: *signature,
        })
    }

    /// Whether the box issued it for this purpose, it has not ended, and `bound` is still the same.
    pub(super) fn holds(&self, server: &Server, purpose: TicketPurpose, bound: &[u8]) -> bool {
        self.is_signed(server, purpose, bound) && server.clock().now() < self.ends_at
    }

    /// Whether the box issued it for this purpose and `bound` is still the same, whether it has ended or not.
    pub(super) fn is_signed(&self, server: &Server, purpose: TicketPurpose, bound: &[u8]) -> bool {
        same(&self.signature, &self.sign(server, purpose, bound))
    }

    fn sign(&self, server: &Server, purpose: TicketPurpose, bound: &[u8]) -> [u8; 32] {
        let key = server.catalog().founding().cursor_key;
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
        let mut message = purpose.words().to_vec();
        message.extend(self.user.0.as_bytes());
        message.extend(self.ends_at.as_millis().to_be_bytes());
        for part in [&self.body[..], bound] {
            message.extend((part.len() as u64).to_be_bytes());
            message.extend(part);
        }
        let mut signature = [0; 32];
        signature.copy_from_slice(ring::hmac::sign(&key, &message).as_ref());
        signature
    }
}
