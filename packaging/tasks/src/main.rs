//! tasks
fn main(){}
