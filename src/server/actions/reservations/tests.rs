//! Reservations through the actions that doors call: who books for whom, who asks and who decides, who sees which, what is
//! refused, and what a launch that names one gets.

use std::net::{IpAddr, Ipv4Addr};

use api::reservations::ReservedResources;
use api::sessions::LaunchRequest;
use rules::grants::GrantRole;
use rules::resources::Device;
use rules::session::SessionKind;
use rules::units::{CpuShare, GpuShare};
use rules::users::Role;

use super::super::notices::{self, NoticeKind};
use super::super::{sessions, tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::catalog::reservations::MAX_EXPIRED_AT_ONCE;
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// Boss administers the site; lead leads the project `cells`, abe is a member there, mina is not.
struct Site {
    server: Server,
    boss: Caller,
    lead: Caller,
    abe: Caller,
    mina: Caller,
}

impl Site {
    async fn open() -> Self {
        Self::on(Server::for_tests()).await
    }

    async fn on(server: Server) -> Self {
        server.put_test_node("one");
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let boss = boss.caller;
        let project = tenancy::create_project(&server, &boss, None, "cells", "", None).await;
        let cells = project.unwrap().value.id.to_string();
        let mut others = Vec::new();
        for (name, role) in [
            ("lead", Some(GrantRole::Lead)),
            ("abe", Some(GrantRole::Member)),
            ("mina", None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, None, None)
                .await
                .unwrap();
            if let Some(role) = role {
                tenancy::put_member(&server, &boss, &cells, name, role, None)
                    .await
                    .unwrap();
            }
            others.push(sign_in(&server, name, GOOD, HERE).await.unwrap().caller);
        }
        let [lead, abe, mina] = others.try_into().expect("three callers");
        Self {
            server,
            boss,
            lead,
            abe,
            mina,
        }
    }

    /// In so many days, as it is typed in UTC.
    fn day(&self, days: u64) -> String {
        let at = self.server.clock().now().plus_seconds(days * 86_400);
        written(at, &TimeZone::UTC)
    }

    /// Two cores for the project, from the second to the third day.
    fn lecture(&self) -> NewReservationBody {
        NewReservationBody {
            name: "lecture".to_owned(),
            project: Some("cells".to_owned()),
            resources: ReservedResources {
                cpu: CpuShare(200),
                ..ReservedResources::default()
            },
            from: self.day(2),
            to: self.day(3),
            ..NewReservationBody::default()
        }
    }

    /// Two GPUs for the machine, each with half of its cores and memory.
    fn with_gpus(self) -> Self {
        self.server
            .catalog()
            .write_now(Lane::Loops, "GPUs", |rows| {
                let mut node = rows.nodes()?.remove(0);
                let gpus = (0..2).map(|index| Device {
                    uuid: format!("GPU-{index}"),
                    ..Device::new(index, "H100")
                });
                node.capacity.devices = gpus.collect();
                rows.put_node(&node)
            })
            .unwrap();
        self
    }

    /// A GPU for the project, for a day.
    fn seminar(&self, name: &str, day: u64) -> NewReservationBody {
        NewReservationBody {
            name: name.to_owned(),
            project: Some("cells".to_owned()),
            resources: ReservedResources {
                gpu: GpuShare(100),
                ..ReservedResources::default()
            },
            from: self.day(day),
            to: self.day(day + 1),
            ..NewReservationBody::default()
        }
    }

    async fn quota(&self, hours: &str) {
        let set = set_quota(&self.server, &self.boss, "cells", hours).await;
        set.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Used and left of the quota.
    async fn rest(&self) -> (String, String) {
        let quota = quota(&self.server, &self.abe, "cells").await.unwrap();
        (quota.used, quota.left)
    }

    /// How many times take room.
    fn live(&self) -> usize {
        let live = self.server.catalog();
        let live = live.read_now("look", |view| view.live_reservations());
        live.unwrap().len()
    }

    /// The names that the list has still once it forgot what is over but for so many.
    async fn remembered(&self, but: usize) -> Vec<String> {
        self.server
            .catalog()
            .write_now(Lane::Loops, "forget", move |rows| {
                rows.mute_acts();
                rows.forget_ended_reservations(but)
            })
            .unwrap();
        let mut names = self.listed(&self.boss).await;
        names.sort_unstable();
        names
    }

    /// So many more requests like that one.
    fn ask_again(&self, like: &ReservationView, count: usize) {
        let like = ReservationId(like.id);
        self.server
            .catalog()
            .write_now(Lane::Loops, "requests", move |rows| {
                rows.mute_acts();
                let like = rows.reservation(like)?.expect("it was asked for");
                let spans = spans_of(&like.times);
                for at in 0..count {
                    let request = ReservationRecord {
                        id: ReservationId::make(rows.now, base::observe::random()),
                        name: TenantName::parse(&format!("request-{at}")).expect("a good name"),
                        ..like.clone()
                    };
                    rows.insert_reservation(&request)?;
                    rows.put_reservation_times(request.id, &spans, ReservationState::Asked)?;
                }
                Ok(())
            })
            .unwrap();
    }

    /// Says the days off of the site.
    async fn off(&self, list: &str) {
        let body = api::holidays::HolidaysBody {
            domain: None,
            list: list.to_owned(),
        };
        let set = super::holidays::set(&self.server, &self.boss, body, None).await;
        set.unwrap();
    }

    async fn told(&self, caller: &Caller) -> Vec<NoticeKind> {
        let all = notices::list(&self.server, caller).await.unwrap();
        all.into_iter().map(|one| one.about).collect()
    }

    /// Mina again, now a lead of another project.
    async fn other_lead(&self) -> Caller {
        let made = tenancy::create_project(&self.server, &self.boss, None, "labs", "", None).await;
        let labs = made.unwrap().value.id.to_string();
        tenancy::put_member(
            &self.server,
            &self.boss,
            &labs,
            "mina",
            GrantRole::Lead,
            None,
        )
        .await
        .unwrap();
        let signed_in = sign_in(&self.server, "mina", GOOD, HERE).await;
        signed_in.unwrap().caller
    }

    async fn booked(&self, caller: &Caller, asked: NewReservationBody) -> ReservationView {
        let made = book(&self.server, caller, asked, None).await;
        made.unwrap_or_else(|failure| panic!("{failure}")).value
    }

    async fn refused(&self, caller: &Caller, asked: NewReservationBody) -> String {
        code(book(&self.server, caller, asked, None).await).to_string()
    }

    async fn listed(&self, caller: &Caller) -> Vec<String> {
        let all = list(&self.server, caller).await.unwrap();
        all.into_iter().map(|one| one.name.to_string()).collect()
    }
}

/// A change of what a booking asks for.
type AskedDifferently<'a> = &'a dyn Fn(&mut NewReservationBody);

#[tokio::test]
async fn administrators_book_and_strangers_see_nothing_of_a_project() {
    let site = Site::open().await;
    let lecture = site.lecture();
    assert_eq!(
        site.refused(&site.mina, lecture.clone()).await,
        "role.administrator-needed"
    );
    assert_eq!(
        site.refused(&site.abe, lecture.clone()).await,
        "role.administrator-needed"
    );
    let maintenance = NewReservationBody {
        name: "fans".to_owned(),
        project: None,
        maintenance: true,
        ..lecture.clone()
    };
    assert_eq!(
        site.refused(&site.lead, maintenance.clone()).await,
        "role.administrator-needed"
    );
    let made = site.booked(&site.boss, lecture).await;
    assert_eq!(made.state, ReservationState::Booked);
    assert_eq!(made.project.as_deref(), Some("default/cells"));
    site.booked(&site.boss, maintenance).await;
    assert_eq!(site.listed(&site.abe).await.len(), 2);
    assert_eq!(site.listed(&site.mina).await, ["fans"]);
    assert_eq!(
        code(get(&site.server, &site.mina, "lecture").await),
        "reservation.not-found"
    );
    assert_eq!(
        code(cancel(&site.server, &site.lead, "fans").await),
        "role.administrator-needed"
    );
    let both = site.server.catalog().read_now("look", |view| view.world());
    assert_eq!(both.unwrap().reservations.len(), 2);
    assert_eq!(
        code(cancel(&site.server, &site.abe, "lecture").await),
        "role.administrator-needed"
    );
    // What is cancelled is free for all: a lead may, of their own project.
    cancel(&site.server, &site.lead, "lecture").await.unwrap();
    let gone = get(&site.server, &site.lead, "lecture").await.unwrap();
    assert_eq!(gone.state, ReservationState::Cancelled);
    let left = site.server.catalog().read_now("look", |view| view.world());
    assert_eq!(left.unwrap().reservations.len(), 1);
}

#[tokio::test]
async fn what_is_no_reservation_is_refused_by_name() {
    let site = Site::open().await;
    let lecture = site.lecture();
    let refused = async |change: AskedDifferently<'_>| {
        let mut asked = lecture.clone();
        change(&mut asked);
        site.refused(&site.boss, asked).await
    };
    let cases: [(AskedDifferently<'_>, &str); 9] = [
        (
            &|asked| asked.name = "A lecture".to_owned(),
            "reservation.name-invalid",
        ),
        (&|asked| asked.maintenance = true, "reservation.holder"),
        (&|asked| asked.project = None, "reservation.holder"),
        (
            &|asked| asked.from = "2020-01-01T09:00".to_owned(),
            "reservation.too-long",
        ),
        (
            &|asked| {
                asked.from = "2020-01-01T09:00".to_owned();
                asked.to = "2020-01-01T10:00".to_owned();
            },
            "reservation.past",
        ),
        (&|asked| asked.repeats = Some(61), "reservation.repeats"),
        (
            &|asked| asked.resources.cpu = CpuShare(500),
            "reservation.too-large",
        ),
        (
            &|asked| asked.time_zone = Some("Nowhere/Else".to_owned()),
            "time-zone.unknown",
        ),
        (
            &|asked| asked.resources = ReservedResources::default(),
            "reservation.empty",
        ),
    ];
    for (change, told) in cases {
        assert_eq!(refused(change).await, told);
    }
    site.booked(&site.boss, lecture.clone()).await;
    assert_eq!(refused(&|_| {}).await, "reservation.name-taken");
    let beside = |asked: &mut NewReservationBody| {
        asked.name = "other".to_owned();
        asked.resources.cpu = CpuShare(300);
    };
    assert_eq!(refused(&beside).await, "reservation.conflict");
}

#[tokio::test]
async fn a_change_is_seen_and_written_down() {
    let site = Site::open().await;
    let made = site.booked(&site.boss, site.lecture()).await;
    let patch = ReservationPatchBody {
        name: Some("seminar".to_owned()),
        to: Some(site.day(4)),
        repeats: Some(2),
        ..ReservationPatchBody::default()
    };
    let stale = change(&site.server, &site.boss, "lecture", patch.clone(), Some(7)).await;
    assert_eq!(code(stale), "reservation.stale");
    let changed = change(&site.server, &site.boss, "lecture", patch, Some(1)).await;
    let changed = changed.unwrap();
    assert_eq!((changed.id, changed.times.len()), (made.id, 2));
    assert!(changed.to > made.to && changed.generation == 2);
    // The week that was warned of stays as it is; the next one changes.
    let id = ReservationId(made.id);
    site.server
        .catalog()
        .write_now(Lane::Loops, "warn", move |rows| {
            rows.mute_acts();
            let time = rows.live_reservations()?.into_iter().next();
            let mut time = time.expect("it is booked");
            time.state = ReservationState::Warned;
            rows.record_reservation(&crate::catalog::reservations::ReservationChange {
                was: ReservationState::Booked,
                time,
                warned: Vec::new(),
            })
        })
        .unwrap();
    let which = id.to_string();
    let larger = ReservationPatchBody {
        resources: Some(Object(ReservedResources {
            cpu: CpuShare(300),
            ..ReservedResources::default()
        })),
        ..ReservationPatchBody::default()
    };
    let begun = change(&site.server, &site.boss, &which, larger, None).await;
    assert_eq!(code(begun), "reservation.begun");
    let later = ReservationPatchBody {
        to: Some(site.day(12)),
        ..ReservationPatchBody::default()
    };
    let later = change(&site.server, &site.boss, &which, later, None).await;
    let times = later.unwrap().times;
    let day = |time: &ReservationTimeView| time.to.seconds_since(time.from) / 86_400;
    assert_eq!(times.iter().map(day).collect::<Vec<_>>(), [2, 3]);
    let name = ReservationPatchBody {
        name: Some("lab".to_owned()),
        ..ReservationPatchBody::default()
    };
    let named = change(&site.server, &site.boss, &which, name, None).await;
    assert_eq!(named.unwrap().state, ReservationState::Warned);
    cancel(&site.server, &site.boss, &which).await.unwrap();
    let told = site
        .server
        .catalog()
        .read_now("look", |view| {
            view.events_after(&reach(&site.boss.subject, Permission::SystemRead), 0, 100)
        })
        .unwrap()
        .0;
    let told: Vec<String> = told
        .into_iter()
        .map(|event| event.code)
        .filter(|code| code.starts_with("reservation."))
        .collect();
    let (changed, moved) = ("reservation.changed", "reservation.moved");
    assert_eq!(
        told,
        [
            "reservation.booked",
            changed,
            moved,
            changed,
            changed,
            "reservation.cancelled"
        ]
    );
}

#[tokio::test]
async fn a_launch_that_names_a_reservation_starts_with_it() {
    let site = Site::open().await;
    let made = site.booked(&site.boss, site.lecture()).await;
    let asked = LaunchRequest {
        kind: SessionKind::Batch,
        command: vec!["true".to_owned()],
        reservation: Some("lecture".to_owned()),
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(&site.server, &site.abe, asked.clone(), None).await;
    let one = launched.unwrap().sessions.remove(0);
    assert_eq!(one.start_at, Some(made.from));
    assert_eq!(one.labels["reservation"], "lecture");
    let stranger = sessions::launch(&site.server, &site.mina, asked.clone(), None).await;
    assert_eq!(code(stranger), "reservation.not-found");
    let elsewhere = LaunchRequest {
        project: Some("default".to_owned()),
        ..asked.clone()
    };
    let other = sessions::launch(&site.server, &site.abe, elsewhere, None).await;
    assert_eq!(code(other), "reservation.others");
    let twice = LaunchRequest {
        start_at: Some(made.to),
        ..asked.clone()
    };
    let twice = sessions::launch(&site.server, &site.abe, twice, None).await;
    assert_eq!(code(twice), "reservation.start-twice");
    // One for maintenance of the same name is not meant; and who waits follows the reservation.
    let maintenance = NewReservationBody {
        project: None,
        maintenance: true,
        ..site.lecture()
    };
    site.booked(&site.boss, maintenance).await;
    let second = sessions::launch(&site.server, &site.abe, asked.clone(), None).await;
    assert_eq!(second.unwrap().sessions[0].start_at, Some(made.from));
    let starts = || {
        let world = site.server.catalog().read_now("look", |view| view.world());
        let sessions = world.unwrap().sessions;
        let starts: Vec<_> = sessions.iter().map(|one| one.spec.start_at).collect();
        starts
    };
    let (which, later) = (made.id.to_string(), site.day(3));
    let patch = ReservationPatchBody {
        from: Some(later),
        to: Some(site.day(4)),
        ..ReservationPatchBody::default()
    };
    let moved = change(&site.server, &site.boss, &which, patch, None).await;
    assert_eq!(starts(), [Some(moved.unwrap().from); 2]);
    cancel(&site.server, &site.boss, &which).await.unwrap();
    assert_eq!(starts(), [None; 2]);
    let asked = LaunchRequest {
        reservation: Some(which),
        ..asked
    };
    let closed = sessions::launch(&site.server, &site.abe, asked, None).await;
    assert_eq!(code(closed), "reservation.closed");
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[tokio::test]
async fn a_cancelled_reservation_leaves_one_line_and_its_name() {
    let site = Site::open().await;
    let weeks = NewReservationBody {
        repeats: Some(60),
        ..site.lecture()
    };
    let made = site.booked(&site.boss, weeks.clone()).await;
    assert_eq!(made.times.len(), 60);
    cancel(&site.server, &site.boss, "lecture").await.unwrap();
    let gone = get(&site.server, &site.boss, "lecture").await.unwrap();
    assert_eq!(gone.state, ReservationState::Cancelled);
    assert_eq!(gone.times.len(), 1);
    let again = site.booked(&site.boss, weeks).await;
    let found = get(&site.server, &site.boss, "lecture").await.unwrap();
    assert_eq!(
        found.id, again.id,
        "one of which something is left is meant"
    );
    cancel(&site.server, &site.boss, "lecture").await.unwrap();
    site.server
        .catalog()
        .write_now(Lane::Loops, "forget", |rows| {
            rows.mute_acts();
            rows.forget_ended_reservations(1)
        })
        .unwrap();
    assert_eq!(site.listed(&site.boss).await.len(), 1, "the newest");
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[tokio::test]
async fn a_change_keeps_the_zone_of_the_booking() {
    let site = Site::open().await;
    let morning = format!("{}T09:00", &site.day(2)[..10]);
    let berlin = NewReservationBody {
        from: morning.clone(),
        to: morning.replace("T09", "T11"),
        repeats: Some(40),
        time_zone: Some("Europe/Berlin".to_owned()),
        ..site.lecture()
    };
    let made = site.booked(&site.boss, berlin).await;
    assert_eq!(made.time_zone, "Europe/Berlin");
    let longer = ReservationPatchBody {
        to: Some(morning.replace("T09", "T12")),
        ..ReservationPatchBody::default()
    };
    let changed = change(&site.server, &site.boss, "lecture", longer, None).await;
    let changed = changed.unwrap();
    assert_eq!(changed.time_zone, "Europe/Berlin");
    let begins = |one: &ReservationView| -> Vec<Timestamp> {
        one.times.iter().map(|time| time.from).collect()
    };
    assert_eq!(begins(&changed), begins(&made));
    let hours = |time: &ReservationTimeView| time.to.seconds_since(time.from) / 3_600;
    assert!(changed.times.iter().all(|time| hours(time) == 3));
}

#[tokio::test]
async fn a_reservation_that_begins_with_fewer_gpus_says_so() {
    let site = Site::open().await;
    site.booked(&site.boss, site.lecture()).await;
    site.server
        .catalog()
        .write_now(Lane::Loops, "begin", |rows| {
            rows.mute_acts();
            let mut time = rows.live_reservations()?.remove(0);
            // As booked when more of them were there.
            let amount = ReservationAmount {
                gpu: rules::units::GpuShare(200),
                ..time.amount
            };
            let row = rows.reservation(time.id)?.expect("it is booked");
            rows.put_reservation(&ReservationRecord { amount, ..row })?;
            time.amount = amount;
            time.state = ReservationState::Active;
            rows.record_reservation(&crate::catalog::reservations::ReservationChange {
                was: ReservationState::Booked,
                time,
                warned: Vec::new(),
            })
        })
        .unwrap();
    let told = site
        .server
        .catalog()
        .read_now("look", |view| {
            view.events_after(&reach(&site.boss.subject, Permission::SystemRead), 0, 100)
        })
        .unwrap()
        .0;
    let short = told.iter().find(|event| event.code == "reservation.short");
    let short = short.expect("it is told");
    assert_eq!((short.before.as_str(), short.after.as_str()), ("2", "0"));
}

#[tokio::test]
async fn an_archived_project_keeps_nothing_reserved() {
    let site = Site::open().await;
    site.booked(&site.boss, site.lecture()).await;
    let archived = api::tenancy::ProjectPatchBody {
        state: Some(rules::tenancy::TenantState::Archived),
        title: None,
    };
    let done = tenancy::change_project(&site.server, &site.boss, "cells", archived, None).await;
    done.unwrap();
    let gone = get(&site.server, &site.boss, "lecture").await.unwrap();
    assert_eq!(gone.state, ReservationState::Cancelled);
}

#[tokio::test]
async fn a_lead_books_within_the_quota_and_asks_beyond() {
    let site = Site::open().await.with_gpus();
    // Without a quota everything is asked for, and keeps nothing.
    let first = site.booked(&site.lead, site.seminar("first", 2)).await;
    assert_eq!(first.state, ReservationState::Asked);
    assert_eq!(first.asked_by.as_deref(), Some("lead"));
    assert_eq!(site.live(), 0);
    assert_eq!(site.listed(&site.abe).await, ["first"], "members see it");
    assert_eq!(
        site.refused(&site.lead, site.seminar("first", 8)).await,
        "reservation.name-taken"
    );
    assert_eq!(
        code(set_quota(&site.server, &site.lead, "cells", "30").await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(set_quota(&site.server, &site.abe, "cells", "30").await),
        "role.permission-missing"
    );
    assert_eq!(
        code(set_quota(&site.server, &site.boss, "cells", "many").await),
        "reservation.quota-invalid"
    );
    site.quota("30").await;
    assert_eq!(site.rest().await, ("0.00".to_owned(), "30.00".to_owned()));
    let second = site.booked(&site.lead, site.seminar("second", 3)).await;
    assert_eq!(second.state, ReservationState::Booked);
    assert_eq!(site.live(), 1);
    assert_eq!(site.rest().await, ("24.00".to_owned(), "6.00".to_owned()));
    let third = site.booked(&site.lead, site.seminar("third", 4)).await;
    assert_eq!(third.state, ReservationState::Asked);
    // In other 30 days the quota is whole.
    let later = site.booked(&site.lead, site.seminar("later", 40)).await;
    assert_eq!(later.state, ReservationState::Booked);
    // More cores than come with the GPU, and cores alone, are asked for with any quota.
    site.quota("1000").await;
    let mut cores = site.seminar("cores", 6);
    cores.resources.cpu = CpuShare(201);
    let cores = site.booked(&site.lead, cores).await;
    assert_eq!(cores.state, ReservationState::Asked);
    let alone = site.booked(&site.lead, site.lecture()).await;
    assert_eq!(alone.state, ReservationState::Asked);
    // So is one that keeps others away a day before.
    let mut fit = site.seminar("fit", 6);
    fit.before = Some(BeforeReservation::Fit);
    let fit = site.booked(&site.lead, fit).await;
    assert_eq!(fit.state, ReservationState::Asked);
    // What was cancelled before anybody was warned is not used.
    cancel(&site.server, &site.lead, "second").await.unwrap();
    assert_eq!(site.rest().await.0, "0.00");
    // A lead books for no user and no maintenance, and changes nothing.
    let own = NewReservationBody {
        project: None,
        user: Some("lead".to_owned()),
        ..site.seminar("own", 9)
    };
    assert_eq!(site.refused(&site.lead, own).await, "user.not-found");
    let patch = ReservationPatchBody {
        name: Some("newer".to_owned()),
        ..ReservationPatchBody::default()
    };
    let changed = change(&site.server, &site.lead, "later", patch.clone(), None).await;
    assert_eq!(code(changed), "role.administrator-needed");
    let changed = change(&site.server, &site.boss, "third", patch, None).await;
    assert_eq!(code(changed), "reservation.asked-for");
    let cancelled = cancel(&site.server, &site.boss, "third").await;
    assert_eq!(code(cancelled), "reservation.asked-for");
}

#[tokio::test]
async fn a_lead_asks_for_what_begins_within_the_notice_of_the_site() {
    let none = base::settings::SettingsLayer {
        reservation_notice_hours: Some(0),
        ..base::settings::SettingsLayer::default()
    };
    for (server, hours, expected) in [
        (Server::for_tests(), 23, ReservationState::Asked),
        (Server::for_tests(), 24, ReservationState::Booked),
        (Server::for_tests_with(none), 1, ReservationState::Booked),
    ] {
        let site = Site::on(server).await.with_gpus();
        site.quota("100").await;
        let at = |hours: u64| {
            let at = site.server.clock().now().plus_seconds(hours * 3_600);
            written(at, &TimeZone::UTC)
        };
        let asked = NewReservationBody {
            from: at(hours),
            to: at(hours + 1),
            ..site.seminar("seminar", 2)
        };
        let made = site.booked(&site.lead, asked.clone()).await;
        assert_eq!(made.state, expected, "in {hours} hours");
        let own = NewReservationBody {
            name: "own".to_owned(),
            ..asked
        };
        let own = site.booked(&site.boss, own).await;
        assert_eq!(own.state, ReservationState::Booked, "an administrator");
    }
}

#[tokio::test]
async fn so_many_times_of_a_project_are_booked_and_asked_for() {
    let site = Site::open().await.with_gpus();
    let mut left = MAX_TIMES_OF_PROJECT;
    while left > 0 {
        let weeks = left.min(60);
        let asked = NewReservationBody {
            repeats: Some(u32::try_from(weeks).unwrap()),
            ..site.seminar(&format!("weekly-{left}"), 2)
        };
        site.booked(&site.lead, asked).await;
        left -= weeks;
    }
    assert_eq!(
        site.refused(&site.lead, site.seminar("more", 2)).await,
        "reservation.too-many-of-project"
    );
    let more = site.booked(&site.boss, site.seminar("more", 2)).await;
    assert_eq!(
        more.state,
        ReservationState::Booked,
        "an administrator books"
    );
}

#[tokio::test]
async fn so_many_requests_wait_for_administrators() {
    let site = Site::open().await.with_gpus();
    let (server, boss) = (&site.server, &site.boss);
    let other = site.other_lead().await;
    let first = site.booked(&site.lead, site.seminar("first", 2)).await;
    site.ask_again(&first, MAX_REQUESTS - 1);
    let more = |name: &str| NewReservationBody {
        project: Some("labs".to_owned()),
        ..site.seminar(name, 2)
    };
    assert_eq!(
        site.refused(&other, more("more")).await,
        "reservation.too-many-requests"
    );
    let room = async |caller: &Caller| {
        let why = no_room(server, caller).await.unwrap();
        why.map(|refusal| refusal.code)
    };
    // Its form says so before it is filled in; administrators book on.
    let full = room(&other).await;
    assert_eq!(full.as_deref(), Some("reservation.too-many-requests"));
    let full = room(&site.lead).await;
    assert_eq!(full.as_deref(), Some("reservation.too-many-of-project"));
    assert_eq!((room(boss).await, room(&site.abe).await), (None, None));
    // Administrators read no more of them than a page holds.
    assert_eq!(site.told(boss).await.len(), 50);
    assert_eq!(
        notices::unread(server, boss),
        u64::from(notices::MAX_COUNTED)
    );
    // What is within the quota is no request, and a place is free again once one was withdrawn.
    set_quota(server, boss, "labs", "24").await.unwrap();
    let within = site.booked(&other, more("within")).await;
    assert_eq!(within.state, ReservationState::Booked);
    assert_eq!(room(&other).await, None, "it has a quota");
    set_quota(server, boss, "labs", "0").await.unwrap();
    assert!(room(&other).await.is_some());
    withdraw(server, &site.lead, "first").await.unwrap();
    assert_eq!(room(&other).await, None);
    let asked = site.booked(&other, more("more")).await;
    assert_eq!(asked.state, ReservationState::Asked);
}

#[tokio::test]
async fn one_project_takes_no_more_requests_than_its_own_from_the_site() {
    let site = Site::open().await.with_gpus();
    let other = site.other_lead().await;
    let first = site.booked(&site.lead, site.seminar("first", 2)).await;
    assert_eq!(first.state, ReservationState::Asked);
    site.ask_again(&first, MAX_REQUESTS_OF_PROJECT - 1);
    assert_eq!(
        site.refused(&site.lead, site.seminar("more", 2)).await,
        "reservation.too-many-requests-of-project"
    );
    let of_labs = NewReservationBody {
        project: Some("labs".to_owned()),
        ..site.seminar("labs", 2)
    };
    let asked = site.booked(&other, of_labs).await;
    assert_eq!(asked.state, ReservationState::Asked);
    // A place is free again once one was withdrawn.
    withdraw(&site.server, &site.lead, "first").await.unwrap();
    let more = site.booked(&site.lead, site.seminar("more", 2)).await;
    assert_eq!(more.state, ReservationState::Asked);
}

#[tokio::test]
async fn a_cancelled_time_counts_once_others_were_warned_of_it() {
    let site = Site::open().await.with_gpus();
    site.quota("30").await;
    site.booked(&site.lead, site.seminar("seminar", 2)).await;
    site.server
        .catalog()
        .write_now(Lane::Loops, "warn", |rows| {
            rows.mute_acts();
            let mut time = rows.live_reservations()?.remove(0);
            time.state = ReservationState::Warned;
            time.warned_at = Some(rows.now);
            rows.record_reservation(&crate::catalog::reservations::ReservationChange {
                was: ReservationState::Booked,
                time,
                warned: Vec::new(),
            })
        })
        .unwrap();
    cancel(&site.server, &site.lead, "seminar").await.unwrap();
    assert_eq!(site.rest().await, ("24.00".to_owned(), "6.00".to_owned()));
    // Nor does the list forget it, so that the quota does not either.
    site.server
        .catalog()
        .write_now(Lane::Loops, "forget", |rows| {
            rows.mute_acts();
            rows.forget_ended_reservations(0)
        })
        .unwrap();
    assert_eq!(site.rest().await.0, "24.00");
}

#[tokio::test]
async fn a_loop_of_bookings_forgets_nothing_of_others() {
    let site = Site::open().await.with_gpus();
    let (server, boss, lead) = (&site.server, &site.boss, &site.lead);
    let later = || {
        let now = server.clock().now();
        server.clock().set(now.plus_seconds(1));
    };
    let fans = NewReservationBody {
        name: "fans".to_owned(),
        project: None,
        maintenance: true,
        ..site.seminar("", 2)
    };
    site.booked(boss, fans).await;
    cancel(server, boss, "fans").await.unwrap();
    later();
    let lab = site.booked(lead, site.seminar("lab", 2)).await;
    let refused = refuse(server, boss, &lab.id.to_string(), "The lab is closed.").await;
    refused.unwrap();
    for name in ["one", "two", "three"] {
        later();
        site.booked(lead, site.seminar(name, 2)).await;
        withdraw(server, lead, name).await.unwrap();
    }
    assert_eq!(site.remembered(3).await, ["fans", "lab", "three"]);
    site.quota("100").await;
    for name in ["four", "five"] {
        later();
        let made = site.booked(lead, site.seminar(name, 2)).await;
        assert_eq!(made.state, ReservationState::Booked);
        cancel(server, lead, name).await.unwrap();
    }
    assert_eq!(site.remembered(2).await, ["fans", "five"]);
}

#[tokio::test]
async fn a_request_is_decided_by_administrators_and_its_lead_is_told() {
    let site = Site::open().await.with_gpus();
    let stranger = site.other_lead().await;
    let (server, boss) = (&site.server, &site.boss);
    let seminar = site.booked(&site.lead, site.seminar("seminar", 2)).await;
    let which = seminar.id.to_string();
    assert_eq!(
        site.refused(&stranger, site.seminar("other", 2)).await,
        "project.not-found"
    );
    for hidden in [
        code(approve(server, &stranger, "seminar", "").await),
        code(refuse(server, &stranger, "seminar", "no").await),
        code(withdraw(server, &stranger, "seminar").await),
        code(get(server, &stranger, "seminar").await),
    ] {
        assert_eq!(hidden, "reservation.not-found");
    }
    assert_eq!(
        code(approve(server, &site.lead, "seminar", "").await),
        "role.administrator-needed"
    );
    assert_eq!(
        code(withdraw(server, boss, "seminar").await),
        "reservation.not-asker"
    );
    let listed_by = |caller: Caller| async move {
        let all = listed(server, &caller).await.unwrap();
        let one = &all[0];
        (one.decides, one.cancels, one.withdraws)
    };
    assert_eq!(listed_by(boss.clone()).await, (true, false, false));
    assert_eq!(listed_by(site.lead.clone()).await, (false, false, true));
    assert_eq!(listed_by(site.abe.clone()).await, (false, false, false));
    // Administrators are told until they decide.
    let asked = NoticeKind::ReservationAsked("default/cells".to_owned());
    assert_eq!(site.told(boss).await, std::slice::from_ref(&asked));
    assert_eq!(notices::unread(server, boss), 1);
    notices::mark_read(server, boss).await.unwrap();
    assert_eq!(notices::unread(server, boss), 0);
    assert_eq!(site.told(boss).await, [asked]);
    assert_eq!(site.told(&site.lead).await, []);
    assert_eq!(
        code(refuse(server, boss, &which, " ").await),
        "reservation.reason-missing"
    );
    let long = "x".repeat(reservation_quota::MAX_REASON_LENGTH + 1);
    assert_eq!(
        code(approve(server, boss, &which, &long).await),
        "reservation.reason-invalid"
    );
    let refused = refuse(server, boss, &which, "The lab is closed.").await;
    let refused = refused.unwrap();
    assert_eq!(refused.state, ReservationState::Refused);
    assert_eq!(refused.reason.as_deref(), Some("The lab is closed."));
    assert_eq!(site.told(boss).await, []);
    let why = NoticeKind::ReservationRefused("The lab is closed.".to_owned());
    assert_eq!(site.told(&site.lead).await, [why]);
    assert_eq!(notices::unread(server, &site.lead), 1);
    for decided in [
        code(approve(server, boss, "seminar", "").await),
        code(refuse(server, boss, "seminar", "no").await),
        code(withdraw(server, &site.lead, "seminar").await),
    ] {
        assert_eq!(decided, "reservation.decided");
    }
    // The name is free again; a weekly request is granted whole.
    let weekly = NewReservationBody {
        repeats: Some(3),
        ..site.seminar("seminar", 2)
    };
    let again = site.booked(&site.lead, weekly).await;
    let which = again.id.to_string();
    let approved = approve(server, boss, &which, "").await.unwrap();
    assert_eq!(approved.state, ReservationState::Booked);
    assert_eq!((approved.times.len(), site.live()), (3, 3));
    let granted = NoticeKind::ReservationApproved(String::new());
    assert_eq!(site.told(&site.lead).await[0], granted);
}

#[tokio::test]
async fn a_request_is_decided_by_its_id_not_by_its_name() {
    let site = Site::open().await.with_gpus();
    let (server, boss) = (&site.server, &site.boss);
    let seen = site.booked(&site.lead, site.seminar("seminar", 2)).await;
    // The lead asks for more under the name that the administrator saw.
    withdraw(server, &site.lead, "seminar").await.unwrap();
    let mut more = site.seminar("seminar", 2);
    more.resources.gpu = GpuShare(200);
    let more = site.booked(&site.lead, more).await;
    for by_name in [
        code(approve(server, boss, "seminar", "").await),
        code(refuse(server, boss, "seminar", "Too late.").await),
    ] {
        assert_eq!(by_name, "reservation.by-id");
    }
    let late = approve(server, boss, &seen.id.to_string(), "").await;
    assert_eq!(code(late), "reservation.decided");
    assert_eq!(site.live(), 0);
    let booked = approve(server, boss, &more.id.to_string(), "").await;
    assert_eq!(booked.unwrap().state, ReservationState::Booked);
}

#[tokio::test]
async fn an_approval_looks_for_conflicts_again_and_a_request_blocks_nobody() {
    let site = Site::open().await.with_gpus();
    let (server, boss) = (&site.server, &site.boss);
    let mut both = site.seminar("both", 2);
    both.resources.gpu = GpuShare(200);
    let asked = site.booked(&site.lead, both.clone()).await;
    let which = asked.id.to_string();
    let maintenance = NewReservationBody {
        name: "fans".to_owned(),
        project: None,
        maintenance: true,
        ..both
    };
    site.booked(boss, maintenance).await;
    let late = approve(server, boss, &which, "").await;
    assert_eq!(code(late), "reservation.conflict");
    let found = get(server, &site.lead, "both").await.unwrap();
    assert_eq!(found.state, ReservationState::Asked, "it waits still");
    cancel(server, boss, "fans").await.unwrap();
    let booked = approve(server, boss, &which, "").await.unwrap();
    assert_eq!(booked.state, ReservationState::Booked);
}

#[tokio::test]
async fn weeks_that_begin_on_a_holiday_are_left_out_and_stay_out() {
    let site = Site::open().await;
    let (server, boss) = (&site.server, &site.boss);
    let weekly = |name: &str, skip_holidays| NewReservationBody {
        name: name.to_owned(),
        repeats: Some(4),
        skip_holidays,
        ..site.lecture()
    };
    let day = |days: u64| site.day(days)[..10].to_owned();
    site.off(&format!("{}\n{} Second", day(2), day(9))).await;
    let booked = site.booked(boss, weekly("late", true)).await;
    let begins = |one: &ReservationView| -> Vec<String> {
        let times = one.times.iter();
        times
            .map(|time| written(time.from, &TimeZone::UTC))
            .collect()
    };
    assert_eq!(begins(&booked), [site.day(16), site.day(23)]);
    let patch = ReservationPatchBody {
        to: Some(written(booked.to.plus_seconds(3_600), &TimeZone::UTC)),
        ..ReservationPatchBody::default()
    };
    let moved = change(server, boss, "late", patch, None).await.unwrap();
    assert_eq!(begins(&moved), begins(&booked));
    cancel(server, boss, "late").await.unwrap();
    assert_eq!(site.booked(boss, weekly("all", false)).await.times.len(), 4);
    site.off(&[2, 9, 16, 23].map(day).join("\n")).await;
    let none = book(server, boss, weekly("none", true), None).await;
    assert_eq!(code(none), "reservation.holidays");
}

#[tokio::test]
async fn a_request_is_withdrawn_or_expires() {
    let site = Site::open().await.with_gpus();
    let server = &site.server;
    site.booked(&site.lead, site.seminar("early", 2)).await;
    let gone = withdraw(server, &site.lead, "early").await.unwrap();
    assert_eq!(gone.state, ReservationState::Cancelled);
    assert_eq!(site.told(&site.boss).await, []);
    let weekly = NewReservationBody {
        repeats: Some(5),
        ..site.seminar("late", 2)
    };
    let late = site.booked(&site.lead, weekly).await;
    let catalog = server.catalog();
    let before = Timestamp::from_millis(late.from.as_millis() - 1);
    catalog.expire_requests(before).await.unwrap();
    let found = get(server, &site.lead, "late").await.unwrap();
    assert_eq!(found.state, ReservationState::Asked);
    catalog.expire_requests(late.from).await.unwrap();
    let found = get(server, &site.lead, "late").await.unwrap();
    assert_eq!(found.state, ReservationState::Expired);
    assert_eq!(found.times.len(), 1);
    assert_eq!(
        site.told(&site.lead).await,
        [NoticeKind::ReservationExpired]
    );
    // A project that is archived asks for nothing any more.
    site.booked(&site.lead, site.seminar("last", 3)).await;
    let archived = api::tenancy::ProjectPatchBody {
        state: Some(rules::tenancy::TenantState::Archived),
        title: None,
    };
    let done = tenancy::change_project(server, &site.boss, "cells", archived, None).await;
    done.unwrap();
    let found = get(server, &site.lead, "last").await.unwrap();
    assert_eq!(found.state, ReservationState::Cancelled);
    assert_eq!(
        site.refused(&site.lead, site.seminar("none", 3)).await,
        "project.archived"
    );
}

#[tokio::test]
async fn requests_that_begin_together_expire_in_some_passes() {
    let site = Site::open().await.with_gpus();
    let first = site.booked(&site.lead, site.seminar("first", 2)).await;
    site.ask_again(&first, MAX_EXPIRED_AT_ONCE);
    let waiting = || {
        let counted = site.server.catalog();
        let counted = counted.read_now("count", |view| view.count_asked_reservations());
        counted.unwrap()
    };
    assert_eq!(waiting(), MAX_EXPIRED_AT_ONCE + 1);
    let catalog = site.server.catalog();
    catalog.expire_requests(first.from).await.unwrap();
    assert_eq!(waiting(), 1);
    catalog.expire_requests(first.from).await.unwrap();
    assert_eq!(waiting(), 0);
}

#[tokio::test]
async fn an_administrator_of_a_domain_books_within_the_quotas_of_its_projects() {
    let site = Site::open().await.with_gpus();
    let (server, all) = (&site.server, GrantRole::Administrator);
    let given = tenancy::grant(server, &site.boss, "mina", all, Some("default"), None).await;
    given.unwrap();
    let chief = sign_in(server, "mina", GOOD, HERE).await.unwrap().caller;
    assert_eq!(
        code(set_quota(server, &chief, "cells", "30").await),
        "role.administrator-needed"
    );
    // Machines are the site's: an own project gives no more than its quota.
    let beyond = site.booked(&chief, site.seminar("beyond", 2)).await;
    assert_eq!(beyond.state, ReservationState::Asked);
    assert_eq!(
        code(approve(server, &chief, "beyond", "").await),
        "role.administrator-needed"
    );
    assert_eq!(site.told(&chief).await, []);
    let own = NewReservationBody {
        project: None,
        user: Some("lead".to_owned()),
        ..site.seminar("own", 9)
    };
    assert_eq!(site.refused(&chief, own).await, "role.administrator-needed");
    site.quota("30").await;
    let within = site.booked(&chief, site.seminar("within", 3)).await;
    assert_eq!(within.state, ReservationState::Booked);
    cancel(server, &chief, "within").await.unwrap();
}

#[tokio::test]
async fn leads_leave_room_for_administrators() {
    let site = Site::open().await.with_gpus();
    site.quota("100000").await;
    // A hundredth of a core for maintenance, each week, until leads may add one time only.
    let mut left = MAX_TIMES_OF_LEADS - 1;
    while left > 0 {
        let weeks = left.min(60);
        let asked = NewReservationBody {
            name: format!("fans-{left}"),
            project: None,
            maintenance: true,
            repeats: Some(u32::try_from(weeks).unwrap()),
            resources: ReservedResources {
                cpu: CpuShare(1),
                ..ReservedResources::default()
            },
            ..site.seminar("", 2)
        };
        site.booked(&site.boss, asked).await;
        left -= weeks;
    }
    let last = site.booked(&site.lead, site.seminar("last", 2)).await;
    assert_eq!(last.state, ReservationState::Booked);
    let more = site.booked(&site.lead, site.seminar("more", 4)).await;
    assert_eq!(more.state, ReservationState::Asked);
    let own = site.booked(&site.boss, site.seminar("own", 4)).await;
    assert_eq!(own.state, ReservationState::Booked);
}

#[tokio::test]
async fn reservations_of_who_leaves_go_to_another_user_all_or_none() {
    let site = Site::open().await;
    let own = |name: &str, user: &str, day: u64| NewReservationBody {
        name: name.to_owned(),
        project: None,
        user: Some(user.to_owned()),
        from: site.day(day),
        to: site.day(day + 1),
        ..site.lecture()
    };
    for (name, user, day) in [("first", "abe", 2), ("same", "abe", 4), ("same", "mina", 6)] {
        book(&site.server, &site.boss, own(name, user, day), None)
            .await
            .unwrap();
    }
    let hand_over = async |by: &Caller, who: &str, to: &str| {
        let over = users::departure::hand_over_reservations(&site.server, by, who, to).await;
        match over {
            Ok(plan) => plan.reservations.to_string(),
            refused => code(refused),
        }
    };
    let holders = async || {
        let all = list(&site.server, &site.boss).await.unwrap();
        let mut all: Vec<(String, String)> = all
            .into_iter()
            .map(|one| (one.name.to_string(), one.user.unwrap_or_default()))
            .collect();
        all.sort();
        all
    };
    let before = holders().await;
    assert_eq!(
        hand_over(&site.mina, "abe", "lead").await,
        "role.administrator-needed"
    );
    for to in ["", "none", "abe", "boss"] {
        assert_eq!(
            hand_over(&site.boss, "abe", to).await,
            "reservation.receiver-unknown"
        );
    }
    assert_eq!(
        hand_over(&site.boss, "abe", "mina").await,
        "reservation.name-taken"
    );
    assert_eq!(holders().await, before, "nothing is half done");
    let taken = site.live();
    assert_eq!(hand_over(&site.boss, "abe", "lead").await, "0");
    assert_eq!(site.live(), taken, "their times stay");
    let after = [("first", "lead"), ("same", "lead"), ("same", "mina")];
    let after = after.map(|(name, user)| (name.to_owned(), user.to_owned()));
    assert_eq!(holders().await, after);
}
