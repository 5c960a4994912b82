//! fardel
fn main() {}
