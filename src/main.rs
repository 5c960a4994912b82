//! fardel
fn main(){}
