//! Room 1, pure: what exists, what may follow what, and what should happen next.
//!
//! Nothing here reads a clock, a file, the environment or random numbers; the caller brings the world,
//! the time and the random bytes. The lints of this package forbid the rest.

pub mod announcement;
pub mod assignment;
pub mod audit;
pub mod blocker;
pub mod blockers;
pub mod budget;
pub mod checks;
pub mod codes;
pub mod continuity;
pub mod course;
pub mod devices;
pub mod directory;
pub mod doctor;
pub mod fair_share;
pub mod findings;
pub mod grants;
pub mod hand_over;
pub mod housekeeping;
pub mod idleness;
pub mod image;
pub mod incident;
pub mod mail;
pub mod messages;
pub mod metering;
pub mod names;
pub mod notice;
pub mod notices;
pub mod object;
pub mod partitioning;
pub mod permissions;
pub mod placement;
pub mod policy;
pub mod preset;
pub mod progress;
pub mod provider;
pub mod quota;
pub mod reason;
pub mod reasons;
pub mod refusal;
pub mod refusals;
pub mod reservation;
pub mod reservation_quota;
pub mod resource_group;
pub mod resources;
pub mod self_test;
pub mod session;
pub mod statement;
pub mod tenancy;
pub mod translations;
pub mod units;
pub mod users;
pub mod workload;
pub mod world;
