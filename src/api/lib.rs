//! Room 6, pure: what is asked of the API and what it answers, each type once. The server's actions give
//! them, the pages show them, the API writes them, its document describes them, and the CLI reads them back.
//! Pure: reads no clock, file or row, and checks nothing that a type cannot say.

pub mod allowances;
pub mod announcements;
pub mod apps;
pub mod audit;
pub mod branding;
pub mod budgets;
pub mod certificates;
pub mod commits;
pub mod courses;
pub mod events;
pub mod fair_share;
pub mod folders;
pub mod gpus;
pub mod history;
pub mod idle_rules;
pub mod images;
pub mod invitations;
pub mod mail;
pub mod mounts;
pub mod nodes;
pub mod notices;
pub mod operations;
pub mod page;
pub mod policies;
pub mod presets;
pub mod problem;
pub mod queue_rehearsal;
pub mod reservations;
pub mod resource_groups;
pub mod rosters;
pub mod schema;
pub mod second_factor;
pub mod secret;
pub mod sessions;
pub mod settings;
pub mod ssh;
pub mod start_up;
pub mod statements;
pub mod storage;
pub mod tenancy;
pub mod usage;
pub mod users;
mod values;
pub mod volumes;
pub mod webhooks;
