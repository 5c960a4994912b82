//! What clients of Backend.AI send, read here and nowhere else: their words go no further. So far how they sign.

pub(super) mod signing;
