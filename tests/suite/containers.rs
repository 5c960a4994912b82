//! Real containers through the node's runtime, with the product's own binary as their shim. Needs
//! root, control groups and user namespaces; elsewhere each test says what is missing.

mod apps;
mod code;
mod commit;
mod crash;
mod disk;
mod edges;
mod environments;
mod folder_limits;
pub(crate) mod ground;
mod hold;
mod homes;
mod idle;
mod images;
mod inside;
mod life;
mod limits;
mod mounted_folders;
mod neighbours;
mod networks;
mod ssh;
mod start_up;
mod sudo;
mod supervision;
mod two_owners;
mod unified;
mod volumes;
mod whole;
