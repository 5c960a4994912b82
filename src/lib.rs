//! fardel: the doors people and programs come in by, and the roles one binary can play. Nothing else
//! lives here; what the product does is in the six rooms.

pub mod doors;
pub mod roles;
