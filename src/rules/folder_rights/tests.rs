//! Every verb by every user that a folder knows, with every right, accepted, offered and ended.

use uuid::Uuid;

use super::*;
use crate::folder::{FolderKind, FolderName, FolderState};
use crate::tenancy::DomainId;

const OWNER: UserId = UserId(Uuid::from_u128(1));
const OTHER: UserId = UserId(Uuid::from_u128(2));
const PROJECT: ProjectId = ProjectId(Uuid::from_u128(3));
const ELSEWHERE: DomainId = DomainId(Uuid::from_u128(4));

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).plus_seconds(seconds)
}

fn folder() -> Folder {
    Folder {
        id: FolderId(Uuid::from_u128(7)),
        owner: OWNER.into(),
        domain: DomainId::DEFAULT,
        members: MountAccess::Ro,
        is_closed: false,
        is_cloneable: true,
        name: FolderName::parse("data").expect("a name"),
        kind: FolderKind::General,
        state: FolderState::Ready,
        volume: None,
        created_at: at(0),
        used_at: None,
        trashed_at: None,
        counted: None,
        own_limit: None,
        generation: 1,
    }
}

fn subject(user: UserId, grants: Vec<Grant>) -> Subject {
    Subject {
        user,
        grants,
        domain: DomainId::DEFAULT,
        scopes: None,
    }
}

fn share(with: ShareTarget, right: FolderRight) -> FolderShare {
    FolderShare {
        id: FolderShareId(Uuid::from_u128(8)),
        folder: folder().id,
        with,
        right,
        accepted_at: Some(at(0)),
        created_at: at(0),
        ends_at: Some(at(60)),
    }
}

/// The code of each verb, in their order; `done` where it is allowed.
fn codes(subject: &Subject, shares: &[FolderShare], now: Timestamp) -> [String; 7] {
    codes_of(subject, &folder(), shares, now)
}

fn codes_of(
    subject: &Subject,
    folder: &Folder,
    shares: &[FolderShare],
    now: Timestamp,
) -> [String; 7] {
    FolderVerb::ALL.map(
        |verb| match check_right(subject, folder, shares, verb, now) {
            Ok(_) => "done".to_owned(),
            Err(refusal) => refusal.code.as_str().to_owned(),
        },
    )
}

const GONE: &str = "folder.not-found";
const FILES: &str = "folder.files-own";
const LESS: &str = "folder.right-missing";
const ROLE: &str = "role.permission-missing";
const OWNS: &str = "folder.owner-only";

const STRANGER: [&str; 7] = [GONE; 7];

/// See, read, write, manage, share, clone, transfer.
fn by_right(right: FolderRight) -> [&'static str; 7] {
    match right {
        FolderRight::Ro => ["done", "done", LESS, LESS, LESS, "done", OWNS],
        FolderRight::Rw => ["done", "done", "done", LESS, LESS, "done", OWNS],
        FolderRight::Rwd => ["done", "done", "done", "done", "done", "done", OWNS],
    }
}

#[test]
fn each_verb_is_for_those_whose_right_holds_it() {
    let on = |role, scope| vec![Grant { role, scope }];
    let of_domain = GrantScope::Domain(DomainId::DEFAULT);
    let of_project = GrantScope::Project(PROJECT);
    let member = subject(OTHER, on(GrantRole::Member, of_project));
    let viewer = subject(OTHER, on(GrantRole::Viewer, of_project));
    let lead = subject(OTHER, on(GrantRole::Lead, of_project));
    let auditor = subject(OTHER, on(GrantRole::Auditor, of_domain));
    let administrator = subject(OTHER, on(GrantRole::Administrator, of_domain));
    let plain = subject(OTHER, vec![]);
    let owner = subject(OWNER, vec![]);
    let sees = ["done", FILES, FILES, ROLE, FILES, FILES, OWNS];
    let manages = ["done", FILES, FILES, "done", FILES, FILES, OWNS];
    for (name, who, expected) in [
        ("owner", &owner, ["done"; 7]),
        ("stranger", &plain, STRANGER),
        ("member", &member, STRANGER),
        ("lead", &lead, STRANGER),
        ("auditor", &auditor, sees),
        ("administrator", &administrator, manages),
    ] {
        assert_eq!(codes(who, &[], at(1)), expected, "{name} without a share");
    }
    for right in FolderRight::ALL {
        let own = share(ShareTarget::User(OTHER), right);
        let expected = by_right(right);
        for (name, who) in [("user", &plain), ("member", &member), ("viewer", &viewer)] {
            let shares = [own.clone()];
            assert_eq!(codes(who, &shares, at(59)), expected, "{name} {right:?}");
            assert_eq!(
                codes(who, &shares, at(60)),
                STRANGER,
                "{name} {right:?} ended"
            );
        }
        let offered = FolderShare {
            accepted_at: None,
            ..own.clone()
        };
        assert_eq!(
            codes(&plain, &[offered], at(1)),
            STRANGER,
            "offered {right:?}"
        );
        let of_project = share(ShareTarget::Project(PROJECT), right);
        for (name, who, expected) in [
            ("member", &member, expected),
            ("lead", &lead, expected),
            ("viewer", &viewer, STRANGER),
            ("stranger", &plain, STRANGER),
        ] {
            let shares = [of_project.clone()];
            assert_eq!(
                codes(who, &shares, at(1)),
                expected,
                "{name} {right:?} of a project"
            );
        }
        // Who manages folders of the owner and is given a right has both.
        let both = codes(&administrator, std::slice::from_ref(&own), at(1));
        let mut expected = by_right(right);
        expected[3] = "done";
        assert_eq!(both, expected, "administrator {right:?}");
        let reads = codes(&auditor, std::slice::from_ref(&own), at(1));
        assert_eq!(reads, by_right(right), "auditor {right:?}");
        let moved = Subject {
            domain: ELSEWHERE,
            ..plain.clone()
        };
        assert_eq!(
            codes(&moved, std::slice::from_ref(&own), at(1)),
            STRANGER,
            "moved {right:?}"
        );
        let of_another = FolderShare {
            folder: FolderId(Uuid::from_u128(9)),
            ..own
        };
        assert_eq!(
            codes(&plain, &[of_another], at(1)),
            STRANGER,
            "another folder"
        );
    }
}

#[test]
fn the_strongest_of_several_shares_holds() {
    let on = Grant {
        role: GrantRole::Member,
        scope: GrantScope::Project(PROJECT),
    };
    let member = subject(OTHER, vec![on]);
    let shares = [
        share(ShareTarget::User(OTHER), FolderRight::Ro),
        share(ShareTarget::Project(PROJECT), FolderRight::Rw),
    ];
    let right = effective_right(&member, &folder(), &shares, at(1)).expect("shared");
    assert_eq!(right.files, Some(FolderRight::Rw));
    assert!(!right.manages && !right.owns);
}

#[test]
fn a_token_does_no_more_than_its_scopes() {
    let token = |scopes: &[Permission]| Subject {
        scopes: Some(scopes.to_vec()),
        ..subject(OTHER, vec![])
    };
    let shares = [share(ShareTarget::User(OTHER), FolderRight::Rwd)];
    let scope = "token.scope-missing";
    let reads = token(&[Permission::SessionsRead]);
    let expected = ["done", scope, scope, scope, scope, scope, scope];
    assert_eq!(codes(&reads, &shares, at(1)), expected);
    assert_eq!(codes(&reads, &[], at(1)), STRANGER);
    let images = token(&[Permission::ImagesRead]);
    assert_eq!(codes(&images, &shares, at(1)), [scope; 7]);
}

#[test]
fn a_projects_folder_is_its_leads_and_read_or_written_by_its_members() {
    let on = |role, scope| subject(OTHER, vec![Grant { role, scope }]);
    let of_project = GrantScope::Project(PROJECT);
    let of_another = GrantScope::Project(ProjectId(Uuid::from_u128(11)));
    let of_domain = GrantScope::Domain(DomainId::DEFAULT);
    let sees = ["done", FILES, FILES, ROLE, FILES, FILES, OWNS];
    let manages = ["done", FILES, FILES, "done", FILES, FILES, OWNS];
    for members in [MountAccess::Ro, MountAccess::Rw] {
        for is_closed in [false, true] {
            let folder = Folder {
                owner: PROJECT.into(),
                members,
                is_closed,
                ..folder()
            };
            let held = match (members, is_closed) {
                (MountAccess::Rw, false) => FolderRight::Rw,
                (MountAccess::Ro, _) | (MountAccess::Rw, true) => FolderRight::Ro,
            };
            for (name, who, expected) in [
                ("lead", on(GrantRole::Lead, of_project), ["done"; 7]),
                ("member", on(GrantRole::Member, of_project), by_right(held)),
                ("viewer", on(GrantRole::Viewer, of_project), sees),
                ("lead of another", on(GrantRole::Lead, of_another), STRANGER),
                (
                    "member of another",
                    on(GrantRole::Member, of_another),
                    STRANGER,
                ),
                ("stranger", subject(OTHER, vec![]), STRANGER),
                ("its former owner", subject(OWNER, vec![]), STRANGER),
                ("auditor", on(GrantRole::Auditor, of_domain), sees),
                (
                    "administrator",
                    on(GrantRole::Administrator, of_domain),
                    manages,
                ),
            ] {
                assert_eq!(
                    codes_of(&who, &folder, &[], at(1)),
                    expected,
                    "{name} {members:?} {is_closed}"
                );
            }
            // A share gives a member more, until the project is archived.
            for right in FolderRight::ALL {
                let shares = [share(ShareTarget::User(OTHER), right)];
                let member = on(GrantRole::Member, of_project);
                let held = match is_closed {
                    true => FolderRight::Ro,
                    false => held.max(right),
                };
                let mut expected = by_right(held);
                assert_eq!(
                    codes_of(&member, &folder, &shares, at(1)),
                    expected,
                    "member {right:?} {members:?} {is_closed}"
                );
                let plain = subject(OTHER, vec![]);
                let held = match is_closed {
                    true => FolderRight::Ro,
                    false => right,
                };
                expected = by_right(held);
                assert_eq!(
                    codes_of(&plain, &folder, &shares, at(1)),
                    expected,
                    "stranger {right:?} {members:?} {is_closed}"
                );
            }
        }
    }
}

#[test]
fn a_folder_is_taken_by_its_new_owner_or_by_leads_of_the_project() {
    let of_project = GrantScope::Project(PROJECT);
    let on = |role| {
        let scope = of_project;
        subject(OTHER, vec![Grant { role, scope }])
    };
    for (who, owner, expected) in [
        (subject(OWNER, vec![]), FolderOwner::User(OWNER), true),
        (subject(OTHER, vec![]), OWNER.into(), false),
        (on(GrantRole::Lead), PROJECT.into(), true),
        (on(GrantRole::Member), PROJECT.into(), false),
        (on(GrantRole::Viewer), PROJECT.into(), false),
        (on(GrantRole::Lead), OWNER.into(), false),
    ] {
        assert_eq!(speaks_for(&who, owner), expected, "{who:?} {owner}");
    }
}

#[test]
fn a_folder_whose_owner_keeps_copies_to_themselves_is_cloned_by_them_alone() {
    let kept = Folder {
        is_cloneable: false,
        ..folder()
    };
    let code = |user: UserId, shares: &[FolderShare], folder: &Folder| {
        let subject = subject(user, Vec::new());
        let checked = check_right(&subject, folder, shares, FolderVerb::Clone, at(1));
        checked.map_or_else(|refusal| refusal.code, |_| "done".to_owned())
    };
    assert_eq!(code(OWNER, &[], &kept), "done");
    for right in FolderRight::ALL {
        let shares = [share(ShareTarget::User(OTHER), right)];
        assert_eq!(code(OTHER, &shares, &folder()), "done");
        assert_eq!(code(OTHER, &shares, &kept), "folder.not-cloneable");
    }
    assert_eq!(code(OTHER, &[], &kept), "folder.not-found", "a stranger");
}
