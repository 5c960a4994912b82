//! Who writes days off, and what windows and reservations make of them.

use std::net::{IpAddr, Ipv4Addr};

use rules::users::Role;

use super::super::{tenancy, users};
use super::*;
use crate::access::{set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

fn body(domain: Option<&str>, list: &str) -> HolidaysBody {
    HolidaysBody {
        domain: domain.map(str::to_owned),
        list: list.to_owned(),
    }
}

#[tokio::test]
async fn administrators_write_lists_and_users_read_those_that_are_theirs() {
    let server = Server::for_tests();
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    users::create_once(&server, &boss, "mina", Role::User, GOOD, None, None)
        .await
        .unwrap();
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    tenancy::create_domain(&server, &boss, "biology", "", None)
        .await
        .unwrap();

    let site = body(None, "2026-12-25 Christmas\n2027-01-01");
    let refused = set(&server, &mina, site.clone(), None).await;
    assert_eq!(code(refused), "role.administrator-needed");
    let made = set(&server, &boss, site.clone(), Some(0)).await.unwrap();
    assert_eq!((made.days.len(), made.generation), (2, 1));
    let again = set(&server, &boss, site, Some(1)).await.unwrap();
    assert_eq!(again, made, "the same list changes nothing");
    let stale = set(&server, &boss, body(None, ""), Some(0)).await;
    assert_eq!(code(stale), "holiday.stale");
    let wrong = set(&server, &boss, body(None, "2027-01-01\nsoon 1"), None).await;
    assert_eq!(code(wrong), "holiday.row-invalid");
    let named = set(&server, &boss, body(Some("biology"), "2026-10-09"), None).await;
    assert_eq!(named.unwrap().domain.as_deref(), Some("biology"));

    let names = |all: Vec<HolidayCalendarView>| -> Vec<Option<String>> {
        all.into_iter().map(|one| one.domain).collect()
    };
    let seen = list(&server, &mina).await.unwrap();
    assert_eq!(seen[0].days, made.days);
    assert!(!seen[0].may_change);
    assert_eq!(names(seen), [None, Some("default".to_owned())]);
    let foreign = set(&server, &mina, body(Some("biology"), ""), None).await;
    assert_eq!(code(foreign), "domain.not-found");
    let all = list(&server, &boss).await.unwrap();
    assert_eq!(names(all).len(), 3);
    let off = own(&server, &mina).await.unwrap();
    assert_eq!(off.len(), 2, "no day of another domain");
}
