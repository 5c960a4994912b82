//! A sample world with a bit of everything: busy and free rows, a waiting session, a failed one, a paused one,
//! long names, and the empty states. Sums are consistent: 16 cores, 64 GiB.

use api::apps::AppState;
use askama::Template as _;

use server::actions::settings::SettingStanding;
use server::actions::system::Diagnostic;

use super::super::about::AboutPage;
use super::super::access_keys::{AccessKeysPage, OwnKeyRow, ShownKey};
use super::super::announced::{AnnouncedPage, AnnouncedRow, BareAnnouncedPage};
use super::super::approvals::{ApprovalLine, ApprovalsPage};
use super::super::apps::{AppPage, AppRow, AppShareRow, AppsPage, SessionLink, SharedAppPage};
use super::super::attention;
use super::super::awaited::{AwaitedSession, AwaitedSessions};
use super::super::branding::{BrandingFields, BrandingPage};
use super::super::break_glass::{BreakGlassForm, BreakGlassLine, BreakGlassPage};
use super::super::charts;
use super::super::choice_field::ChoiceField;
use super::super::commits::{CommitJob, CommitLook, CommitPage, SecretRow};
use super::super::components::{
    self, Alert, BarRow, Block, BlockKind, CheckRow, Choice, Fill, FormFieldError, IconFact, Markup,
};
use super::super::dialog::{DialogForm, DialogLink, DialogPage};
use super::super::docs::DocsPage;
use super::super::folder_browsing::{
    FolderEditPage, FolderSearchPage, FolderUsagePage, SubfolderRow, TextConflict,
};
use super::super::folder_files::{
    FolderEntryPage, FolderFileRow, FolderFilesPage, FolderRemovedPage, NotebookOutput,
    NotebookRow, PathCrumb, RemovedFileRow, SortLink,
};
use super::super::folder_owners::{FolderOwnerPage, FolderTransferRow};
use super::super::folder_selection::FolderSelectionPage;
use super::super::folder_shares::{FolderSessionRow, FolderShareRow, FolderSharesPage};
use super::super::folder_snapshots::{
    FolderSnapshotPage, FolderSnapshotRow, FolderSnapshotsPage, SnapshotCount, SnapshotFileRow,
};
use super::super::folders::{
    FolderInvitationRow, FolderSpace, FoldersPage, OwnFolderRow, SharedFolderRow,
};
use super::super::gpus::{self, GpuPage, GpusPage};
use super::super::history;
use super::super::holidays::{HolidayCalendarCard, HolidaysPage};
use super::super::hues;
use super::super::images::environments::{
    EnvironmentDetailPage, EnvironmentImageLine, EnvironmentLine, EnvironmentsPage,
};
use super::super::images::{ImageDetailPage, ImageLimitField, ImageUse, ImagesPage, ImportRow};
use super::super::launch::{
    self, LaunchFields, LaunchPage, NamedSize, SizePicker, Slider, UsualRuntime,
};
use super::super::layout::{AnnouncementBanner, Nav, PageLayout, SignedInUser, SiteLook, Theme};
use super::super::login::{LoginCodePage, LoginPage};
use super::super::me::{MePage, OwnActRow, OwnMail, OwnTokenRow};
use super::super::overview::{
    self, Attention, Figure, FloorPlanRow, Legend, NodeRow, OverviewEvent, OverviewPage,
};
use super::super::presenter::Preview;
use super::super::presenter::{SessionEnd, SmallerRequest, TimelineStep, Wait};
use super::super::problem::{BareProblemPage, ProblemPage};
use super::super::queue::{self, PlanRow, QueuePage};
use super::super::request_context::LocalClock;
use super::super::rosters;
use super::super::second_factor::{OfferedKey, SecondFactorPage};
use super::super::self_tests::{self, SelfTestPage};
use super::super::session::{SessionDetailPage, SessionTab, Strip, Verbs};
use super::super::sessions::SessionsPage;
use super::super::settings;
use super::super::setup::SetupPage;
use super::super::sign_in_links::{LinkedAccount, LoginLinkPage, ShownLink, SignInLinkPage};
use super::super::sign_ins::SignInRow;
use super::super::sign_ups::{SignUpForm, SignUpLine, SignUpPage, SignUpRuleLine, SignUpsPage};
use super::super::ssh_keys::{OwnSshKeyRow, ReachedBySsh, SshKeysPage};
use super::super::start_up::{KeptItemRow, StartUpPage};
use super::super::storage_use::{BigFolderRow, OwnerUseRow, StorageUseRows};
use super::super::system::{self, SystemPage};
use super::super::table::{
    self, DataTable, EmptyTable, FilterBar, FilterExample, FilterPicker, RowAction, RowMark,
    TableCell, TableColumn, TableLine, TableState, ViewLink,
};
use super::super::tls::{self, TlsPage};
use super::super::trust::{self, TrustPage};
use super::super::user;
use super::super::user_roles;
use super::super::volumes::{NewVolumeForm, OwnDiskRow, PoolRow, VolumeLine, VolumesPage};
use super::super::webhooks::{NewWebhookForm, WebhookLine, WebhooksPage};
use super::super::wizard::{self, WizardPage, WizardView};
use crate::doors::launch_texts::LaunchTexts;
use crate::doors::text::{Language, Text};

/// 09:41 on 28 November 2026.
const LINK_ENDS: rules::units::Timestamp = rules::units::Timestamp::from_millis(1_795_858_860_000);

/// Every page with a name for its file.
pub(super) fn pages(t: Text) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("overview", overview(t).render()),
        ("overview-empty", overview_empty(t).render()),
        ("sessions", sessions(t, true).render()),
        ("sessions-empty", sessions(t, false).render()),
        ("dialog-question", dialog(t, true).render()),
        ("dialog-verbs", dialog(t, false).render()),
        ("launch", launch(t, false).render()),
        ("launch-refused", launch(t, true).render()),
        (
            "session",
            session(t, SessionTab::Terminal, SampleMoment::Running).render(),
        ),
        (
            "session-logs",
            session(t, SessionTab::Logs, SampleMoment::Running).render(),
        ),
        (
            "session-processes",
            session(t, SessionTab::Processes, SampleMoment::Running).render(),
        ),
        (
            "session-metrics",
            session(t, SessionTab::Metrics, SampleMoment::Running).render(),
        ),
        (
            "session-waiting",
            session(t, SessionTab::Terminal, SampleMoment::Waiting).render(),
        ),
        (
            "session-preparing",
            session(t, SessionTab::Terminal, SampleMoment::Preparing).render(),
        ),
        (
            "session-ended",
            session(t, SessionTab::Terminal, SampleMoment::Ended).render(),
        ),
        ("shared-app", shared_app(t, true).render()),
        ("shared-app-rests", shared_app(t, false).render()),
        ("history", history_page(t, false).render()),
        ("history-empty", history_page(t, true).render()),
        ("gpus", gpus(t, false).render()),
        ("gpus-empty", gpus(t, true).render()),
        ("gpu", gpu(t).render()),
        ("gpu-test", report(t, true).render()),
        ("gpu-test-empty", report(t, false).render()),
        ("queue", queue(t, true).render()),
        ("queue-empty", queue(t, false).render()),
        ("images", images(t).render()),
        ("image", image(t).render()),
        ("environments", environments(t, false).render()),
        ("environments-empty", environments(t, true).render()),
        ("environment", environment(t).render()),
        ("me", me(t).render()),
        (
            "system-checks",
            system(t, system::SystemTab::Checks, true).render(),
        ),
        ("system-settings", settings_page(t).render()),
        (
            "system-backups",
            system(t, system::SystemTab::Backups, true).render(),
        ),
        (
            "system-backups-off",
            system(t, system::SystemTab::Backups, false).render(),
        ),
        (
            "system-support",
            system(t, system::SystemTab::Support, true).render(),
        ),
        ("docs", docs(t, None).render()),
        ("docs-search", docs(t, Some("docker")).render()),
        (
            "docs-cli",
            super::super::docs::chapter(layout(t, Nav::Docs, false), "cli")
                .expect("a chapter")
                .render(),
        ),
        ("user", user_page(t).render()),
        ("roster", roster(t, None, None).render()),
        (
            "roster-plan",
            roster(t, Some(roster_plan(t)), None).render(),
        ),
        (
            "roster-slips",
            roster(t, None, Some(roster_slips(t))).render(),
        ),
        ("about", about(t).render()),
        ("announced", announced(t).render()),
        ("announced-bare", announced_bare(t).render()),
        ("trust", trust_page(t, true).render()),
        ("trust-off", trust_page(t, false).render()),
        ("tls", tls_page(t, false).render()),
        ("tls-request", tls_page(t, true).render()),
        ("wizard-time", wizard_page(t, 0).render()),
        ("wizard-certificate", wizard_page(t, 1).render()),
        ("wizard-environment", wizard_page(t, 2).render()),
        ("wizard-test", wizard_page(t, 3).render()),
        ("wizard-report", wizard_page(t, 4).render()),
        ("second-factor", factor_page(t, 0).render()),
        ("second-factor-key", factor_page(t, 1).render()),
        ("second-factor-codes", factor_page(t, 2).render()),
        ("second-factor-on", factor_page(t, 3).render()),
        ("problem", problem(t).render()),
    ];
    let bare = |refused| LoginPage {
        t,
        f: stranger(t),
        name: "mina".into(),
        next: "/".into(),
        alert: None,
        refused,
        directory: false,
        signs_up: refused,
        providers: Vec::new(),
    };
    all.push(("login", bare(false).render()));
    all.push(("login-refused", bare(true).render()));
    all.push((
        "login-code",
        LoginCodePage {
            t,
            f: stranger(t),
            ticket: "AZp".into(),
            next: "/".into(),
            alert: None,
            refused: false,
        }
        .render(),
    ));
    for (name, linked) in [("login-link", true), ("login-link-spent", false)] {
        let account = LinkedAccount {
            name: "jae".into(),
            until: LocalClock::of(t, "").element(LINK_ENDS),
        };
        let page = LoginLinkPage {
            t,
            f: stranger(t),
            code: "AZp".into(),
            linked: linked.then_some(account),
            alert: (!linked).then(|| components::Alert::warning(t.problem_missing())),
        };
        all.push((name, page.render()));
    }
    for (name, made, full) in [
        ("access-keys", false, false),
        ("access-keys-made", true, false),
        ("access-keys-full", false, true),
    ] {
        let key = ShownKey {
            key: "QW7K2M9XHB4TNC5RVZ8D".into(),
            secret: "AZp".into(),
        };
        let own = OwnKeyRow {
            id: "0199f0a3-6c1e-7d40".into(),
            name: "nightly".into(),
            key: "QW7K2M9XHB4TNC5RVZ8D".into(),
            scopes: t.me_scope_all().into(),
            networks: "10.1.0.0/16".into(),
            ends: "28 Feb 2027".into(),
            used: t.common_ago("3 min"),
        };
        let page = AccessKeysPage {
            t,
            f: layout(t, Nav::Me, false),
            made: made.then_some(key),
            full: match full {
                true => t.me_token_oldest("nightly"),
                false => String::new(),
            },
            keys: (made || full).then_some(own).into_iter().collect(),
            name: String::new(),
            networks: String::new(),
            scopes: vec![components::Choice::new("all", t.me_scope_all(), true)],
            lifetimes: vec![components::Choice::new("90", t.me_days_n(90_u64), true)],
        };
        all.push((name, page.render()));
    }
    for (name, many, off) in [
        ("ssh-keys", false, false),
        ("ssh-keys-full", true, false),
        ("ssh-keys-off", false, true),
    ] {
        let own = OwnSshKeyRow {
            id: "0199f0a3-6c1e-7d40".into(),
            name: "laptop".into(),
            kind: "ssh-ed25519".into(),
            fingerprint: "SHA256:NWzrYSgOvAuFvfSw/YsPp1MrDu3JDInpo/A71xW7hG0".into(),
            ends: t.common_never().into(),
            used: t.common_ago("3 min"),
        };
        let server = ReachedBySsh {
            line: "ssh train@fardel-01 -p 7822".into(),
            fingerprint: "SHA256:uNiVztksCsDhcc0u9e8BrqURzdVxNf8sxGhFrq8MT1E".into(),
        };
        let page = SshKeysPage {
            t,
            f: layout(t, Nav::Me, false),
            server: (!off).then_some(server),
            keys: (!off).then_some(own).into_iter().collect(),
            full: match many {
                true => t.me_token_oldest("laptop"),
                false => String::new(),
            },
            public_key: String::new(),
            name: String::new(),
            lifetimes: vec![components::Choice::new("0", t.ssh_keys_for_good(), true)],
        };
        all.push((name, page.render()));
    }
    for (name, is_empty) in [("start-up", false), ("start-up-none", true)] {
        let kept = |name: &str, note: &str| KeptItemRow {
            name: name.into(),
            note: note.into(),
            changed: t.common_ago("3 min"),
            edit: match note.is_empty() {
                true => String::new(),
                false => format!("/me/startup?path={name}"),
            },
            remove: "/me/startup/remove?kind=dotfile&name=.bashrc".into(),
        };
        let page = StartUpPage {
            t,
            f: layout(t, Nav::Me, false),
            files: match is_empty {
                true => Vec::new(),
                false => vec![kept(".bashrc", "644 · 310 B")],
            },
            path: String::new(),
            mode: "600".into(),
            content: String::new(),
            script: match is_empty {
                true => String::new(),
                false => "pip install --user -q einops".into(),
            },
            has_script: !is_empty,
            ends_session: !is_empty,
            variables: match is_empty {
                true => Vec::new(),
                false => vec![kept("WANDB_API_KEY", "")],
            },
            name: String::new(),
        };
        all.push((name, page.render()));
    }
    app_pages(t, &mut all);
    commit_pages(t, &mut all);
    for (name, is_empty) in [("folders", false), ("folders-none", true)] {
        let one = |name: &str, purged: &str| OwnFolderRow {
            id: "0199f0a3-6c1e-7d40".into(),
            name: name.into(),
            note: String::new(),
            volume: "big".into(),
            size: "1.2 GiB".into(),
            entries: "1024".into(),
            counted: t.common_ago("3 min"),
            used: t.common_ago("3 min"),
            purged: purged.into(),
            is_back: !purged.is_empty(),
            work: match name {
                "copy" => t.folder_owner_copying(40),
                _ => String::new(),
            },
            operation: match name {
                "copy" => "0199f0a3-6c1e-7d44".into(),
                _ => String::new(),
            },
        };
        let page = FoldersPage {
            t,
            f: layout(t, Nav::Folders, false),
            folders: match is_empty {
                true => Vec::new(),
                false => vec![one("data", ""), one("copy", "")],
            },
            pager: match is_empty {
                true => table::one_page(t, "/folders", "", vec![(); 1]).1,
                false => table::Pager::new(t, &TableState::read("/folders", &[], &[]), 50, 120),
            },
            trash: (!is_empty)
                .then(|| one("old", "28 Feb 10:00"))
                .into_iter()
                .collect(),
            shared: (!is_empty)
                .then(|| SharedFolderRow {
                    id: "0199f0a3-6c1e-7d41".into(),
                    name: "images".into(),
                    owner: "kim".into(),
                    right: t.folder_shares_ro(),
                    size: "1.2 GiB".into(),
                    is_left: false,
                    is_of_project: true,
                    work: String::new(),
                    operation: String::new(),
                    is_ready: true,
                    trashes: true,
                    gives: false,
                    is_back: false,
                })
                .into_iter()
                .collect(),
            invitations: (!is_empty)
                .then(|| FolderInvitationRow {
                    id: "0199f0a3-6c1e-7d42".into(),
                    name: "texts".into(),
                    owner: "kim".into(),
                    right: t.folder_shares_rw(),
                    until: "28 Feb 10:00".into(),
                })
                .into_iter()
                .collect(),
            transfers: (!is_empty)
                .then(|| FolderTransferRow {
                    id: "0199f0a3-6c1e-7d45".into(),
                    name: "corpus".into(),
                    owner: "kim".into(),
                    to: t.folder_owner_of_project("vision"),
                    size: "1.2 GiB".into(),
                })
                .into_iter()
                .collect(),
            owners: match is_empty {
                true => Vec::new(),
                false => vec![components::Choice::new("", t.folder_owner_all(), true)],
            },
            is_narrowed: false,
            projects: (!is_empty)
                .then(|| "vision".to_owned())
                .into_iter()
                .collect(),
            project: String::new(),
            members_write: false,
            space: FolderSpace {
                text: t.folders_space_of("41 GiB", "50 GiB"),
                percent: 82,
                tone: "w",
                note: t.folders_space_near(),
                biggest: match is_empty {
                    true => String::new(),
                    false => "data 12 GiB, old 3 GiB".into(),
                },
            },
            name: String::new(),
            volumes: (!is_empty).then(|| "big".to_owned()).into_iter().collect(),
            volume: String::new(),
        };
        all.push((name, page.render()));
    }
    for (name, offered) in [("folder-owner", ""), ("folder-owner-offered", "lee")] {
        let page = FolderOwnerPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            folder: "data".into(),
            owner: t.folder_owner_of_project("vision"),
            copies: true,
            clones: true,
            owns: true,
            offered: offered.into(),
            members: vec![components::Choice::new("ro", t.folder_shares_ro(), true)],
            cloning: vec![components::Choice::new(
                "owner",
                t.folder_owner_cloning_owner(),
                true,
            )],
            limits: true,
            adds: !offered.is_empty(),
            on_volume: false,
            projects: vec!["vision".to_owned()],
            limit: "20 GiB".into(),
            name: String::new(),
            of: String::new(),
            user: String::new(),
            project: String::new(),
        };
        all.push((name, page.render()));
    }
    snapshot_pages(t, &mut all);
    for (name, is_empty) in [("folder-shares", false), ("folder-shares-none", true)] {
        let page = FolderSharesPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            folder: "data".into(),
            owner: "kim".into(),
            shares_on: true,
            detaches: true,
            shares: (!is_empty)
                .then(|| FolderShareRow {
                    id: "0199f0a3-6c1e-7d43".into(),
                    with: "lee".into(),
                    right: t.folder_shares_ro(),
                    until: "28 Feb 10:00".into(),
                    is_accepted: false,
                })
                .into_iter()
                .collect(),
            sessions: (!is_empty)
                .then(|| FolderSessionRow {
                    name: "train".into(),
                    owner: "lee".into(),
                    access: t.folder_shares_rw(),
                    is_over: true,
                    is_stuck: false,
                })
                .into_iter()
                .collect(),
            rights: vec![components::Choice::new("ro", t.folder_shares_ro(), true)],
            lifetimes: vec![components::Choice::new(
                "0",
                t.folder_shares_for_good(),
                true,
            )],
            user: String::new(),
            project: String::new(),
        };
        all.push((name, page.render()));
    }
    let crumbs = |names: &[&str]| -> Vec<PathCrumb> {
        let one = |name: &&str| PathCrumb {
            name: (*name).into(),
            href: "/folders/0199f0a3-6c1e-7d40/files?path=train".into(),
        };
        names.iter().map(one).collect()
    };
    for (name, is_empty) in [("folder-files", false), ("folder-files-none", true)] {
        let row = |name: &str, icon: &'static str, kind: &str, download: &str| FolderFileRow {
            name: name.into(),
            path: format!("train/{name}"),
            href: "/folders/0199f0a3-6c1e-7d40/files?path=train".into(),
            icon,
            kind: kind.into(),
            size: "1.2 GiB".into(),
            modified: "28 Feb 10:00".into(),
            details: "/folders/0199f0a3-6c1e-7d40/entry?path=train".into(),
            removal: "/folders/0199f0a3-6c1e-7d40/remove?path=train".into(),
            download: download.into(),
        };
        let sorted = |order| SortLink {
            href: "/folders/0199f0a3-6c1e-7d40/files?path=train&sort=size".into(),
            order,
        };
        let page = FolderFilesPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            folder: "data".into(),
            whose: String::new(),
            manages: true,
            gives: true,
            writes: true,
            launch: Some("/sessions/new?mounts=data".into()),
            crumbs: crumbs(&[t.folders_title(), "data", "train"]),
            here: "train".into(),
            words: String::new(),
            sort: "-size".into(),
            by_name: sorted("none"),
            by_size: sorted("descending"),
            by_time: sorted("none"),
            subfolders: "/folders/0199f0a3-6c1e-7d40/usage?path=train".into(),
            total: t.folder_files_total(2),
            usage: t.folder_files_usage("1.2 GiB", 1024, t.common_ago("3 min")),
            cut: match is_empty {
                true => String::new(),
                false => t.folder_files_cut().into(),
            },
            rows: match is_empty {
                true => Vec::new(),
                false => vec![
                    row("images", "folder", t.folder_files_directory(), ""),
                    row(
                        "a.csv",
                        "scroll-text",
                        t.folder_files_file(),
                        "/api/v1/folders/0199f0a3-6c1e-7d40/files?path=a.csv",
                    ),
                ],
            },
            first: (!is_empty).then(|| "/folders/0199f0a3-6c1e-7d40/files?path=".into()),
            next: (!is_empty).then(|| "/folders/0199f0a3-6c1e-7d40/files?cursor=x".into()),
            zip: "/api/v1/folders/0199f0a3-6c1e-7d40/archive?format=zip".into(),
            tar: "/api/v1/folders/0199f0a3-6c1e-7d40/archive?format=tar".into(),
            directory: String::new(),
            undo: (!is_empty).then_some(1_772_272_800_000),
        };
        all.push((name, page.render()));
    }
    for (name, is_empty) in [("folder-removed", false), ("folder-removed-none", true)] {
        let row = RemovedFileRow {
            id: "0199f0a3-6c1e-7d40".into(),
            path: "train/a.csv".into(),
            icon: "scroll-text",
            kind: t.folder_files_file().into(),
            size: "1.2 GiB".into(),
            removed: "28 Feb 10:00".into(),
            purged: "30 Mar 10:00".into(),
        };
        let page = FolderRemovedPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            writes: true,
            crumbs: crumbs(&[t.folders_title(), "data"]),
            rows: (!is_empty).then_some(row).into_iter().collect(),
            pager: table::one_page(t, "/folders/0199f0a3-6c1e-7d40/removed", "2", vec![(); 120]).1,
        };
        all.push((name, page.render()));
    }
    for (name, is_rename) in [
        ("folder-selection", false),
        ("folder-selection-rename", true),
    ] {
        let page = FolderSelectionPage {
            t,
            f: layout(t, Nav::Folders, false),
            title: match is_rename {
                true => t.folder_selection_rename_title("a.csv"),
                false => t.folder_selection_move_title(2),
            },
            lead: match is_rename {
                true => String::new(),
                false => t.folder_selection_to_help().into(),
            },
            items: match is_rename {
                true => Vec::new(),
                false => vec!["images".into(), "a.csv".into()],
            },
            more: match is_rename {
                true => String::new(),
                false => t.stop_more(3),
            },
            action: "/folders/0199f0a3-6c1e-7d40/selection".into(),
            fields: vec![("verb", "move".into()), ("id", "train/a.csv".into())],
            label: t.folder_selection_to().into(),
            to: "train/images".into(),
            is_new: true,
            icon: "folder",
            go: t.folder_files_move_go().into(),
            back: "/folders/0199f0a3-6c1e-7d40/files?path=train".into(),
        };
        all.push((name, page.render()));
    }
    folder_browsing(t, &mut all);
    for name in [
        "folder-entry",
        "folder-entry-table",
        "folder-entry-image",
        "folder-entry-notebook",
    ] {
        let is_notebook = name == "folder-entry-notebook";
        let is_table = name == "folder-entry-table";
        let is_image = name == "folder-entry-image";
        let page = FolderEntryPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            writes: true,
            crumbs: crumbs(&[t.folders_title(), "data"]),
            name: "a.csv".into(),
            path: "train/a.csv".into(),
            facts: vec![(t.folder_files_kind().into(), t.folder_files_file().into())],
            download: "/api/v1/folders/0199f0a3-6c1e-7d40/files?path=a.csv".into(),
            zip: String::new(),
            removal: "/folders/0199f0a3-6c1e-7d40/remove?path=a.csv".into(),
            edit: "/folders/0199f0a3-6c1e-7d40/edit?path=a.csv".into(),
            text: (!is_table && !is_image && !is_notebook).then(|| "one line\n".into()),
            numbers: "1\n".into(),
            cells: is_notebook.then(|| {
                let output = |text: &str, image: &str, is_hidden| NotebookOutput {
                    text: text.into(),
                    image: image.into(),
                    is_hidden,
                };
                vec![NotebookRow {
                    is_code: true,
                    source: "1 + 1".into(),
                    outputs: vec![
                        output("2", "", false),
                        output("", "data:image/gif;base64,R0lGODlhAQABAAAAACw=", false),
                        output("", "", true),
                    ],
                }]
            }),
            table: is_table.then(|| vec![vec!["epoch".into(), "loss".into()]]),
            image: match is_image {
                true => "/api/v1/folders/0199f0a3-6c1e-7d40/files?path=a.png".into(),
                false => String::new(),
            },
            note: t.folder_files_preview_cut().into(),
            to: "train/a.csv".into(),
        };
        all.push((name, page.render()));
    }
    for (name, may_change) in [("holidays", true), ("holidays-read", false)] {
        let calendar = |key: &str, days: &[(&str, &str)]| HolidayCalendarCard {
            key: key.into(),
            title: match key {
                "site" => t.holidays_site().into(),
                _ => t.holidays_domain(key),
            },
            action: format!("/holidays?domain={key}"),
            domain: key.into(),
            generation: "3".into(),
            count: days.len() as u64,
            list: "2026-12-25 Christmas".into(),
            days: days
                .iter()
                .map(|(day, name)| ((*day).to_owned(), (*name).to_owned()))
                .collect(),
            may_change,
        };
        let page = HolidaysPage {
            t,
            f: layout(t, Nav::Reservations, false),
            calendars: vec![
                calendar("site", &[("2026-12-25", "Christmas"), ("2027-01-01", "")]),
                calendar("biology", &[]),
            ],
        };
        all.push((name, page.render()));
    }
    for (name, is_empty) in [("sign-ups", false), ("sign-ups-none", true)] {
        let line = |id: &str, is_taken| SignUpLine {
            id: id.into(),
            name: "mina".into(),
            facts: "Mina Han · mina@lab.example · default · 192.0.2.7 · 28 Feb 10:00".into(),
            note: "I join the lab in March.".into(),
            is_taken,
        };
        let page = SignUpsPage {
            t,
            f: layout(t, Nav::Users, false),
            waiting: match is_empty {
                true => Vec::new(),
                false => vec![line("0199f0a3-1", false), line("0199f0a3-2", true)],
            },
            declined: match is_empty {
                true => Vec::new(),
                false => vec![line("0199f0a3-3", false)],
            },
            rules: vec![SignUpRuleLine {
                domain: "default".into(),
                addresses: "@lab.example".into(),
                action: "/sign-ups/rule?domain=default".into(),
            }],
            may_change: true,
        };
        all.push((name, page.render()));
    }
    for (name, is_on) in [("approvals", true), ("approvals-none", false)] {
        let act = |id: &str, facts: String, is_decidable| ApprovalLine {
            id: id.into(),
            act: t.approvals_policy_change(),
            object: "small".into(),
            facts,
            detail: r#"{"policy-change":{"which":"small","patch":{"sudo":true}}}"#.into(),
            is_decidable,
            is_declinable: true,
        };
        let waits = || t.approvals_waits("ada", "28 Feb 10:00", "1 Mar 10:00");
        let page = ApprovalsPage {
            t,
            f: layout(t, Nav::System, is_on),
            alert: None,
            is_on,
            may_change: true,
            waiting: match is_on {
                true => vec![
                    act("0199f0a3-1", waits(), true),
                    act("0199f0a3-2", waits(), false),
                ],
                false => Vec::new(),
            },
            past: match is_on {
                true => vec![act(
                    "0199f0a3-3",
                    t.approvals_done("ada", "28 Feb 10:00", "grace"),
                    false,
                )],
                false => Vec::new(),
            },
        };
        all.push((name, page.render()));
    }
    for (name, may_open) in [("break-glass", true), ("break-glass-own", false)] {
        let look = |id: &str, is_open| BreakGlassLine {
            id: id.into(),
            name: "vit-ablation".into(),
            href: "/sessions/0199f0a3-6c1e-7d40".into(),
            facts: match is_open {
                true => t.break_glass_open("ada", "mina", "28 Feb 10:00", "28 Feb 11:00"),
                false => t.break_glass_over("ada", "mina", "28 Feb 10:00", "28 Feb 10:20"),
            },
            reason: "The job fills the disk of its node.".into(),
            is_open,
            is_theirs: may_open,
        };
        let page = BreakGlassPage {
            t,
            f: layout(t, Nav::Sessions, may_open),
            form: may_open.then(|| BreakGlassForm {
                is_folder: false,
                of: "vit-ablation".into(),
                reason: String::new(),
                minutes: "60".into(),
                longest: 200,
            }),
            looks: match may_open {
                true => vec![look("0199f0a3-1", true), look("0199f0a3-2", false)],
                false => Vec::new(),
            },
        };
        all.push((name, page.render()));
    }
    for (name, is_asked) in [("sign-up", false), ("sign-up-asked", true)] {
        let page = SignUpPage {
            t,
            f: stranger(t),
            form: (!is_asked).then(|| SignUpForm {
                domains: vec![components::Choice::new("default", "default", true)],
                name: "mina".into(),
                full_name: String::new(),
                email: String::new(),
                note: String::new(),
                shortest: 10,
                longest: 300,
            }),
        };
        all.push((name, page.render()));
    }
    for (name, is_own) in [("branding", false), ("branding-own", true)] {
        let look = SiteLook {
            logo: Some("/branding/logo?v=1".into()),
            hue: Some(3),
            footer: "Vision Lab · gpu@lab.example".into(),
            ..SiteLook::default()
        };
        let page = BrandingPage {
            t,
            f: PageLayout {
                look: if is_own { look } else { SiteLook::default() },
                ..layout(t, Nav::System, false)
            },
            may_change: true,
            fields: BrandingFields::default(),
            hues: vec![components::Choice::new("", t.branding_hue_usual(), true)],
            has_logo: is_own,
            is_own,
            longest: (40, 200, 500),
        };
        all.push((name, page.render()));
    }
    for (name, is_empty) in [("volumes", false), ("volumes-none", true)] {
        let line = |name: &str, state, tone, note, goes| VolumeLine {
            here: format!("/storage/{name}"),
            name: name.into(),
            path: format!("/mnt/{name}"),
            state,
            tone,
            note,
            room: t.volumes_room("41 GiB", "9 GiB"),
            percent: 82,
            access: t.volumes_everyone().into(),
            folders: t.volumes_folders(3_u64),
            goes,
        };
        let page = VolumesPage {
            t,
            f: layout(t, Nav::Storage, false),
            rows: match is_empty {
                true => Vec::new(),
                false => vec![
                    line("big", t.volumes_ready(), " ok", "", true),
                    line(
                        "nfs",
                        t.volumes_hung(),
                        " bad",
                        t.volumes_hung_note(),
                        false,
                    ),
                ],
            },
            form: Some(NewVolumeForm::default()),
            own: Some(OwnDiskRow {
                held: match is_empty {
                    true => t.volumes_held_image(),
                    false => t.volumes_held_pool(),
                },
                pool: (!is_empty).then(|| PoolRow {
                    room: t.volumes_pool_room("96 GiB", "128 GiB", "400 GiB"),
                    percent: 75,
                    disk: t.volumes_pool_disk("300 GiB", "500 GiB"),
                    most: "378 GiB".into(),
                    typed: String::new(),
                }),
                is_to_come: false,
            }),
            used: Some(match is_empty {
                true => StorageUseRows::default(),
                false => StorageUseRows {
                    owners: vec![OwnerUseRow {
                        owner: "kim".into(),
                        text: t.folders_space_of("41 GiB", "50 GiB"),
                        percent: 82,
                        seen: t.common_ago("3 min"),
                    }],
                    folders: vec![BigFolderRow {
                        name: "kim/data".into(),
                        volume: "big".into(),
                        size: "12 GiB".into(),
                        counted: t.common_ago("3 min"),
                        used: t.common_never().into(),
                    }],
                },
            }),
        };
        all.push((name, page.render()));
    }
    for (name, made) in [("webhooks", false), ("webhooks-made", true)] {
        let line = |name: &str, active| WebhookLine {
            here: format!("/system/webhooks/{name}"),
            name: name.into(),
            address: "https://10.1.0.9/fardel".into(),
            kinds: "budget.warned, session.ended".into(),
            active,
            delivered: t.webhooks_delivered("28 Nov 09:41"),
            lost: t.webhooks_lost(3),
            problem: t.webhooks_problem("28 Nov 09:12", "status 500"),
        };
        let page = WebhooksPage {
            t,
            f: layout(t, Nav::System, false),
            made: made.then(|| "fardel_hook_AZp".into()),
            rows: match made {
                true => vec![line("pager", true), line("log", false)],
                false => Vec::new(),
            },
            form: Some(NewWebhookForm::default()),
        };
        all.push((name, page.render()));
    }
    for (name, made) in [("sign-in-link", false), ("sign-in-link-made", true)] {
        let link = ShownLink {
            link: "https://box:7860/login/link?code=AZp".into(),
            picture: String::new(),
        };
        let page = SignInLinkPage {
            t,
            f: layout(t, Nav::Users, false),
            name: "jae".into(),
            back: "/users/a".into(),
            made: made.then_some(link),
            open: match made {
                true => t.sign_in_link_open_told("mina", "28 Nov 2026 09:41"),
                false => String::new(),
            },
            lifetimes: vec![components::Choice::new("1440", "24 h", true)],
        };
        all.push((name, page.render()));
    }
    all.push(("setup", setup(t, false).render()));
    all.push(("setup-closed", setup(t, true).render()));
    let f = stranger(t);
    all.push((
        "problem-bare",
        BareProblemPage {
            t,
            f,
            status: 404,
            icon: "search",
            title: t.problem_missing().into(),
            detail: t.problem_missing_lead().into(),
            hint: None,
            code: "route.not-found".into(),
            request: Some("0199f0a3-6c1e".into()),
        }
        .render(),
    ));
    all.into_iter()
        .map(|(name, html)| (name, html.expect("sample renders")))
        .collect()
}

pub(super) fn layout(t: Text, here: Nav, live: bool) -> PageLayout {
    PageLayout {
        text: t,
        theme: Theme::System,
        here,
        host: "fardel-01".into(),
        look: SiteLook::default(),
        address: "fardel-01.lab.internal".into(),
        version: "0.1.0",
        user: Some(SignedInUser::new("mina.park", t.me_role_administrator())),
        projects: true,
        administrator: true,
        nonce: "c2FtcGxl".into(),
        path: "/sample".into(),
        sessions: 7,
        waiting: 2,
        unread: 3,
        offered: 0,
        attention: 2,
        audits: true,
        announces: true,
        courses: true,
        presets: true,
        budgets: true,
        announcements: Vec::new(),
        more_announcements: 0,
        maintenance: Vec::new(),
        live: live.then(|| "/live".into()),
        notice: None,
        notice_warns: false,
        keys: true,
        encrypted: true,
    }
}

pub(super) fn stranger(t: Text) -> PageLayout {
    PageLayout {
        user: None,
        administrator: false,
        ..layout(t, Nav::Nowhere, false)
    }
}

fn block(name: &str, note: &str, weight: u64, owner: &str, busy: u8) -> Block {
    Block {
        kind: BlockKind::Session,
        name: name.into(),
        note: note.into(),
        hue: hues::hue(owner),
        busy: Some(busy),
        fill: Fill::Foot,
        weight,
        href: Some("/sessions/0199f0a3".into()),
        label: format!("{busy}%"),
        partition: None,
    }
}

fn free(t: Text, left: &str, weight: u64) -> Block {
    Block::plain(BlockKind::Free, t.common_free(left), weight)
}

fn wave(count: usize, middle: f64, swing: f64, seed: f64) -> Vec<f64> {
    (0..count)
        .map(|n| {
            let x = n as f64;
            middle + swing * ((x * 0.7 + seed).sin() * 0.6 + (x * 0.23 + seed * 3.0).sin())
        })
        .collect()
}

fn cpu_row(t: Text) -> BarRow {
    BarRow {
        name: t.plan_cpu().into(),
        note: t.common_cores(16),
        blocks: vec![
            block("vit-ablation", "6.00 · mina", 600, "mina", 84),
            block("whisper-ft", "4.00 · jae", 400, "jae", 91),
            Block {
                kind: BlockKind::Paused,
                ..block("nb-scratch", t.state_paused(), 150, "mina", 0)
            },
            block("ci", "0.50", 50, "ops", 22),
            free(t, "4.00", 400),
        ],
        busy: "57%".into(),
        busy_word: t.plan_busy().into(),
        trend: components::trend(
            &wave(36, 57.0, 9.0, 1.0),
            "ci",
            &t.plan_trend(t.plan_cpu(), 57),
        ),
        figure: "9.1".into(),
        figure_of: t.common_of_cores(16),
        figure_note: t.common_free("4.00"),
        ..BarRow::default()
    }
}

fn memory_row(t: Text) -> BarRow {
    BarRow {
        name: t.plan_memory().into(),
        note: "64 GiB".into(),
        blocks: vec![
            block("vit-ablation", "24 GiB · mina", 24, "mina", 63),
            block("whisper-ft", "16 GiB · jae", 16, "jae", 88),
            Block {
                kind: BlockKind::Paused,
                ..block("nb-scratch", t.state_paused(), 8, "mina", 12)
            },
            block("ci", "2 GiB", 2, "ops", 41),
            free(t, "14 GiB", 14),
        ],
        busy: "49%".into(),
        busy_word: t.plan_in_use().into(),
        trend: components::trend(
            &wave(36, 49.0, 3.0, 2.0),
            "ca",
            &t.plan_trend(t.plan_memory(), 49),
        ),
        figure: "31.2".into(),
        figure_of: t.common_of("64 GiB"),
        figure_note: t.common_free("14 GiB"),
        ..BarRow::default()
    }
}

/// One chart of two points, and its table.
fn charted(t: Text) -> history::HistoryView {
    let curve = charts::Curve {
        name: t.history_busy().into(),
        hue: "ca",
        filled: true,
        values: vec![Some(1.0), Some(2.0)],
    };
    history::HistoryView {
        figures: vec![charts::ChartFigure {
            title: t.history_cpu().into(),
            note: t.common_of("4.00"),
            keys: vec![("ca", t.history_busy().into())],
            drawing: charts::draw(&[curve], 4.0, Some(3.0), t.history_cpu()),
            y: charts::ticks(charts::Scale::Number, 4.0),
            x: vec!["14:00".into(), t.metrics_now().into()],
            columns: "1".into(),
        }],
        head: vec![t.history_time().into(), t.history_busy().into()],
        rows: vec![
            vec!["14:00".into(), "1.00".into()],
            vec!["14:10".into(), "2.00".into()],
        ],
        period: t.history_period("21 Nov 14:00", "22 Nov 14:00"),
        sums: vec![(
            t.history_gpu_hours().into(),
            t.history_hours_allocated("12.50"),
        )],
        holders: Some(history::HolderTable {
            rows: vec![history::HolderRow {
                href: "/sessions/0199f0a3-6c1e-7d40".into(),
                name: "train".into(),
                user: "mina".into(),
                gpu_hours: "12.50".into(),
                from: "21 Nov 14:00".into(),
                until: String::new(),
            }],
            is_cut: true,
        }),
    }
}

fn history_page(t: Text, empty: bool) -> history::HistoryPage {
    history::HistoryPage {
        t,
        f: layout(t, Nav::History, true),
        of: "gpu:SIMULATED-H100-2".into(),
        name: "GPU 2".into(),
        range: "day",
        ranges: history::ranges(t, "gpu:SIMULATED-H100-2", Default::default()),
        gpus: vec![components::Choice::new(
            "gpu:SIMULATED-H100-2",
            "GPU 2",
            true,
        )],
        users: vec![components::Choice::new("user:mina", "mina", false)],
        subject: empty.then(|| {
            many_projects(t, "user:nobody").refused("user:nobody", waiting_sentence(t).into())
        }),
        simulated: true,
        sees_all: !empty,
        view: match empty {
            true => history::HistoryView::default(),
            false => charted(t),
        },
    }
}

pub(super) fn overview(t: Text) -> OverviewPage {
    OverviewPage {
        t,
        plan: Some(plan(t, "/")),
        f: layout(t, Nav::Overview, true),
        machine: t.overview_machine(16, "64 GiB", components::span(t, 3_542_400)),
        figures: vec![
            Figure {
                name: t.overview_cpu_given(),
                value: "12.00".into(),
                of: t.common_of_cores(16),
                tone: "",
                percent: 75,
                note: t.overview_cpu_note(5),
            },
            Figure {
                name: t.overview_cpu_busy(),
                value: "57%".into(),
                of: String::new(),
                tone: "a",
                percent: 57,
                note: t.overview_busy_note("4.00"),
            },
            Figure {
                name: t.overview_memory_given(),
                value: "50".into(),
                of: t.common_of("64 GiB"),
                tone: "",
                percent: 78,
                note: t.overview_memory_note("14 GiB"),
            },
            Figure {
                name: t.overview_running(),
                value: "5".into(),
                of: t.overview_of_live(7),
                tone: "o",
                percent: 71,
                note: t.overview_running_note(12),
            },
            Figure {
                name: t.overview_waiting(),
                value: t.overview_sessions_n(2),
                of: String::new(),
                tone: "w",
                percent: 12,
                note: t.overview_waiting_note(components::span(t, 130)),
            },
            Figure {
                name: t.overview_disk(),
                value: "182".into(),
                of: t.common_of("614 GiB"),
                tone: "",
                percent: 30,
                note: t.overview_disk_note("31 GiB"),
            },
        ],
        gpus: Vec::new(),
        simulated: false,
        rows: vec![FloorPlanRow {
            hue: 2,
            href: "/sessions/0199f0a3".into(),
            name: "vit-ablation".into(),
            facts: "6.00 · 24 GiB · mina".into(),
        }],
        rows_total: 41,
        view: charted(t).into(),
        ranges: history::ranges(t, "site", Default::default()),
        nodes: vec![NodeRow {
            title: t.plan_node("fardel-01", t.plan_ready()),
            rows: vec![cpu_row(t), memory_row(t)],
        }],
        legend: [("mina", "7.50"), ("jae", "4.00"), ("ops", "0.50")]
            .map(|(name, share)| Legend {
                hue: hues::hue(name),
                name: name.into(),
                share: share.into(),
                href: None,
            })
            .into(),
        ended: t.overview_ended_note(5, 1),
        recent: [
            (
                "vit-ablation",
                "host · 6.00 · 24 GiB",
                "ok",
                t.state_running(),
            ),
            (
                "whisper-ft",
                "pytorch:2.9 · 4.00 · 16 GiB",
                "ok",
                t.state_running(),
            ),
            ("nb-scratch", "host · 1.50 · 8 GiB", "", t.state_paused()),
            (
                "bert-probe",
                "pytorch:2.9 · 2.00 · 8 GiB",
                "bad",
                t.state_failed(),
            ),
        ]
        .map(|(name, facts, tone, state)| overview::RecentSession {
            hue: hues::hue(name),
            href: "/sessions/0199f0a3".into(),
            name: name.into(),
            facts: facts.into(),
            tone,
            state: state.into(),
        })
        .into(),
        events: [
            ("13:52", "", "vit-ablation", t.timeline_running(), "mina"),
            ("13:47", "a", "whisper-ft", t.timeline_limits(), "jae"),
            ("13:31", "i", "nb-scratch", t.timeline_paused(), "mina"),
            ("13:10", "w", "bert-probe", t.timeline_ended(), "jae"),
        ]
        .map(|(when, tone, subject, what, who)| OverviewEvent {
            when: when.into(),
            tone,
            subject: subject.into(),
            what: what.into(),
            who: who.into(),
        })
        .into(),
        waiting_none: t.waiting_none(),
        waiting_shown: t.queue_count_of(2, 202),
        waiting: vec![
            overview::WaitingRow {
                hue: 7,
                href: "/sessions/0199f0a4".into(),
                name: "llama3-sft".into(),
                since: components::span(t, 2820),
                why: waiting_sentence(t).into(),
                hint: Some(t.queue_starts_by("16:40", "vit-ablation")),
            },
            overview::WaitingRow {
                hue: 3,
                href: "/sessions/0199f0a5".into(),
                name: "ocr-train-nightly".into(),
                since: t.queue_scheduled().into(),
                why: t.launch_start_help().into(),
                hint: None,
            },
        ],
        attention: vec![Attention {
            icon: "triangle-alert",
            tone: "warn",
            title: "bert-probe".into(),
            text: t.ended_killed_memory_lead("8 GiB"),
            href: Some("/sessions/0199f0a6".into()),
        }],
    }
}

fn smaller_requests(t: Text) -> Vec<SmallerRequest> {
    let of = |words: String, gpu: &str, limit: Option<String>| SmallerRequest {
        words,
        cpu: "8".into(),
        memory: "17179869184b".into(),
        gpu: gpu.into(),
        limit,
    };
    let limit = t.queue_time_limit_of(t.common_minutes(46));
    vec![
        of("0.5 GPU, 8 cores, 16 GiB".into(), "0.5", None),
        of(limit, "1", Some("46m".into())),
    ]
}

fn waiting_sentence(t: Text) -> &'static str {
    match t.language {
        Language::English => "Needs 8 cores; 4 are free on fardel-01.",
        Language::Korean => "8코어가 필요한데 fardel-01에 4코어가 남아 있습니다.",
    }
}

fn card(t: Text) -> BarRow {
    let block = |kind, name: &str, weight| Block {
        kind,
        name: name.into(),
        note: "0.35 · mina".into(),
        hue: 2,
        busy: None,
        fill: Fill::Foot,
        weight,
        href: Some("/sessions/x".into()),
        label: String::new(),
        partition: None,
    };
    BarRow {
        name: "GPU 2".into(),
        note: "80 GiB".into(),
        blocks: vec![
            block(BlockKind::Session, "vit-ablation", 35),
            block(BlockKind::Paused, "whisper-ft", 30),
            Block {
                href: None,
                ..block(BlockKind::Free, &t.common_free("0.35"), 35)
            },
        ],
        busy: "0.65".into(),
        figure: "52 GiB".into(),
        figure_of: t.common_of("80 GiB"),
        figure_note: t.gpu_simulated().into(),
        ..BarRow::default()
    }
}

fn plan(t: Text, page: &str) -> gpus::FloorPlan {
    gpus::FloorPlan {
        idle: true,
        ..gpus::FloorPlan::new(
            t,
            gpus::By::Load,
            page,
            &[],
            rules::units::Timestamp::default(),
        )
    }
}

fn gpus(t: Text, empty: bool) -> GpusPage {
    GpusPage {
        t,
        f: layout(t, Nav::Gpus, true),
        lead: "8 × NVIDIA H100 80GB".into(),
        simulated: !empty,
        plan: plan(t, "/gpus"),
        list: None,
        groups: if empty {
            Vec::new()
        } else {
            vec![gpus::DeviceGroup {
                title: t.gpu_socket(0),
                rows: vec![gpus::DeviceCard {
                    href: "/gpus/SIMULATED-H100-2".into(),
                    partitioned: false,
                    closed_why: t.gpu_cordoned_why("a fan is loud"),
                    row: card(t),
                }],
            }]
        },
        troubles: Vec::new(),
        others: vec![(
            "AMD Instinct and Radeon (ROCm)".into(),
            t.gpu_others_of(2, "fardel-01"),
        )],
        rules: vec![(t.gpu_least().into(), "0.01".into())],
    }
}

fn gpu(t: Text) -> GpuPage {
    GpuPage {
        t,
        f: layout(t, Nav::Gpus, true),
        alert: None,
        id: "SIMULATED-H100-2".into(),
        name: "GPU 2".into(),
        full_name: t.attention_gpu(2, "fardel-01"),
        simulated: true,
        standing: Some(("warn", t.self_test_untested().into())),
        cordoned: true,
        note: "a fan is loud".into(),
        may_write: true,
        row: card(t),
        facts: vec![(t.gpu_model().into(), "NVIDIA H100 80GB".into())],
        slices: vec![gpus::SliceRow {
            hue: 2,
            href: Some("/sessions/x".into()),
            name: "vit-ablation".into(),
            owner: "mina".into(),
            owner_href: Some("/users/mina".into()),
            stop: Some("/sessions/stop?id=x".into()),
            share: "0.35".into(),
            memory: "28 GiB".into(),
            sms: t.gpu_sms_of(46, 132),
            doing: t.gpu_idle_for("12 min"),
            tone: "ok",
            state: t.state_running().into(),
        }],
        view: charted(t),
        ranges: history::ranges(t, "gpu:x", Default::default()),
        ends: vec!["vit-ablation".into()],
        planned: Some(gpus::partitions::Planned {
            words: t.gpu_partitions_planned("3g.40gb"),
            lead: t.gpu_partitions_by_hand("fardel-01"),
            commands: vec!["nvidia-smi -i GPU-1 -mig 1".into()],
            back: vec![("1g.10gb".into(), 2)],
        }),
        partitions: Some(gpus::partitions::PartitionForm {
            profiles: vec![gpus::partitions::Profile {
                name: "3g.40gb".into(),
                note: t.gpu_partitions_size(40, 3),
                number: 1,
            }],
            answer: gpus::partitions::PartitionPreview {
                tone: "wait",
                icon: "hourglass",
                verdict: t.gpu_partitions_ends(1),
                detail: t.gpu_partitions_by_machine("fardel-01"),
                row: Some(card(t)),
                ends: vec!["vit-ablation".into()],
                blocked: false,
            },
        }),
    }
}

fn report(t: Text, tested: bool) -> SelfTestPage {
    let line =
        |held, name: &str, subject: &str, measured: &str, wanted: &str| self_tests::TestRow {
            held,
            name: name.into(),
            subject: subject.into(),
            measured: measured.into(),
            wanted: wanted.into(),
        };
    SelfTestPage {
        t,
        f: layout(t, Nav::Gpus, true),
        alert: None,
        id: "GPU-1".into(),
        name: "GPU 0".into(),
        standing: ("warn", t.self_test_untested().into()),
        never: (!tested).then(|| t.self_test_never_simulated().into()),
        images: ChoiceField::of(t, vec![Choice::new("pytorch:2.9", "pytorch:2.9", true)], ""),
        may_write: true,
        running: tested.then(|| self_tests::TestProgress {
            step: "memory plain × 4".into(),
            figure: t.common_of_two(3, 34),
            percent: 9,
            may_cancel: true,
        }),
        found: tested.then(|| self_tests::TestOutcome {
            passed: false,
            verdict: t.self_test_some_failed(1, 2),
            facts: vec![(t.self_test_driver().into(), "580.159.03".into())],
            lines: vec![
                line(
                    true,
                    t.self_test_memory(),
                    "plain × 4",
                    "1 of 1, then code 2",
                    "code 2",
                ),
                line(
                    false,
                    t.self_test_share(),
                    "",
                    "52.10 %, 14.56 points off",
                    "66.66 %",
                ),
            ],
            fingerprint: "AB:CD".into(),
            signature: "MEUCIQ==".into(),
        }),
    }
}

fn overview_empty(t: Text) -> OverviewPage {
    OverviewPage {
        f: PageLayout {
            sessions: 0,
            waiting: 0,
            ..layout(t, Nav::Overview, true)
        },
        nodes: Vec::new(),
        legend: Vec::new(),
        rows: Vec::new(),
        rows_total: 0,
        view: history::HistoryView::default().into(),
        ranges: Vec::new(),
        recent: Vec::new(),
        events: Vec::new(),
        waiting: Vec::new(),
        attention: Vec::new(),
        ..overview(t)
    }
}

fn sessions(t: Text, full: bool) -> SessionsPage {
    let query = if full { "" } else { "jae" };
    let asked = [("q".to_owned(), query.to_owned())];
    let mut state = TableState::read("/sessions", &["q"], &asked);
    let column = |key, name: &str| TableColumn::new(key, name);
    let columns = vec![
        column("name", t.sessions_name())
            .sorted_by("name")
            .class("first"),
        column("state", t.sessions_state()).class("why"),
        column("image", t.sessions_image()).class("wide"),
        column("gpu", t.gpu_share()).sorted_by("-gpu").class("wide"),
        column("cpu", t.sessions_cpu()).sorted_by("-cpu").class("u"),
        column("memory", t.sessions_memory()).class("u"),
        column("age", t.sessions_age())
            .sorted_by("-created_at")
            .class("num"),
    ];
    state.columns = columns.iter().map(|column| column.key).collect();
    let line = |name: &str, tone, state: &str, reason: &str, percent: u8, live: bool| TableLine {
        id: format!("s-{}", name.split(' ').next().unwrap_or_default()),
        mark: live.then(|| RowMark {
            value: "0199f0a3".into(),
            label: t.sessions_mark(name),
            count: 1,
        }),
        cells: vec![
            TableCell::Link {
                href: "/sessions/0199f0a3".into(),
                text: name.into(),
                note: "mina".into(),
            },
            TableCell::Pill {
                tone,
                text: state.into(),
                note: reason.into(),
            },
            TableCell::text("pytorch:2.9"),
            match live {
                true => TableCell::Text {
                    text: "0.35".into(),
                    note: "GPU 0 · 28 GiB".into(),
                },
                false => TableCell::Empty,
            },
            match percent {
                0 => TableCell::text("6.00"),
                percent => TableCell::Bar {
                    text: format!("{:.1} / 6.00", f64::from(percent) * 0.06),
                    percent,
                    accent: true,
                },
            },
            TableCell::Bar {
                text: "15 / 24 GiB".into(),
                percent: 63,
                accent: false,
            },
            TableCell::text(components::span(t, 11_520)),
        ],
        action: Some(RowAction {
            href: "/sessions/0199f0a3/menu".into(),
            icon: "ellipsis",
            label: t.sessions_verbs_of(name),
            dialog: true,
        }),
    };
    let rows = if full {
        vec![
            line("vit-ablation", "ok", t.state_running(), "", 84, true),
            line("whisper-ft", "ok", t.state_running(), "", 91, true),
            line("nb-scratch", "", t.state_paused(), "", 0, true),
            line(
                "train ×500",
                "warn",
                t.state_waiting(),
                waiting_sentence(t),
                0,
                true,
            ),
            line(
                "bert-probe-with-a-rather-long-name-27",
                "bad",
                t.state_failed(),
                t.ended_killed_memory(),
                0,
                false,
            ),
            line("tokenise-3", "", t.state_finished(), "", 0, false),
        ]
    } else {
        Vec::new()
    };
    let empty = EmptyTable {
        icon: "search",
        title: t.sessions_no_match("jae"),
        lead: t.sessions_no_match_lead().into(),
        href: "/sessions".into(),
        go: t.sessions_clear().into(),
    };
    let mut table = DataTable::new(t, &state, &columns, "", rows, 506, empty);
    table.csv = full.then(|| "/sessions.csv".into());
    table.other = full.then(|| ("/sessions?group=off".into(), t.sessions_ungroup().into()));
    table.fault = (!full).then(|| t.table_unread().into());
    SessionsPage {
        t,
        f: layout(t, Nav::Sessions, true),
        simulated: full,
        count: t.sessions_count(5, 2, 31),
        filter: FilterBar {
            t,
            module: super::super::assets::address("table.js"),
            table: "sessions",
            path: "/sessions",
            here: "/sessions".into(),
            q: query.into(),
            hint: t.sessions_filter_hint().into(),
            label: t.sessions_filter().into(),
            pickers: vec![FilterPicker {
                name: "state",
                label: t.sessions_state().into(),
                choices: vec![
                    Choice::new("", t.sessions_any(), true),
                    Choice::new("ended", t.sessions_ended(), false),
                ],
            }],
            hidden: vec![("sort", "name".into())],
            columns: table::column_choices(&state, &columns),
            views: vec![ViewLink {
                name: t.sessions_view_mine().into(),
                href: "/sessions?scope=mine".into(),
                current: full,
                own: full,
            }],
            examples: vec![FilterExample {
                typed: "state:running",
                finds: t.filter_help_state().into(),
            }],
            target: "list",
        },
        table,
    }
}

/// An image of a session: the form, what it would hold, and the work in each state.
fn commit_pages(t: Text, all: &mut Vec<(&'static str, Result<String, askama::Error>)>) {
    let page = |look: Option<CommitLook>, job: Option<CommitJob>| CommitPage {
        t,
        f: layout(t, Nav::Sessions, false),
        id: "0199f0a3-6c1e-7d40".into(),
        session: "vit-ablation".into(),
        reference: "tools:1".into(),
        exclude: "/opt/data".into(),
        accept: false,
        look,
        job,
    };
    let look = |secrets: Vec<SecretRow>, more: String| CommitLook {
        reference: "mina/tools:1".into(),
        sentence: t.commit_holds("1.4 GiB", 52_000, "pytorch:2.9"),
        secrets,
        more,
    };
    let secret = SecretRow {
        path: "/opt/app/.env".into(),
        kind: t.commit_environment_file(),
        ticked: true,
    };
    let found = look(vec![secret], t.commit_more(3));
    all.push(("commit", page(None, None).render()));
    all.push((
        "commit-look",
        page(Some(look(Vec::new(), String::new())), None).render(),
    ));
    all.push(("commit-secrets", page(Some(found), None).render()));
    for (name, tone, state, cancelable, image) in [
        ("commit-running", "a", t.commit_running(), true, ""),
        ("commit-failed", "b", t.jobs_failed(), false, ""),
        ("commit-done", "o", t.jobs_done(), false, "/images/0199"),
    ] {
        let job = CommitJob {
            id: "0199f0a3".into(),
            name: "mina/tools:1".into(),
            tone,
            state,
            percent: 40,
            step: t.commit_read("0.6 GiB", "1.4 GiB"),
            cancelable,
            image: image.into(),
        };
        all.push((name, page(None, Some(job)).render()));
    }
}

/// The apps of a session, and one of them in each state.
fn app_pages(t: Text, all: &mut Vec<(&'static str, Result<String, askama::Error>)>) {
    let session = || SessionLink {
        id: "0199f0a3-6c1e-7d40".into(),
        name: "vit-ablation".into(),
    };
    let row = |state: AppState, startable: bool| AppRow {
        name: if startable { "jupyter" } else { "8000" }.into(),
        title: if startable { "JupyterLab" } else { "8000" }.into(),
        port: if startable { 8888 } else { 8000 },
        state,
        tone: match state {
            AppState::Stopped => "",
            AppState::Starting => "warn",
            AppState::Ready => "ok",
            AppState::Failed => "bad",
        },
        words: match state {
            AppState::Stopped => t.apps_stopped(),
            AppState::Starting => t.apps_starting(),
            AppState::Ready => t.apps_ready(),
            AppState::Failed => t.apps_failed(),
        },
        startable,
        address_port: if startable { "8443" } else { "" }.into(),
        address_name: String::new(),
    };
    for (name, is_running, has) in [
        ("apps", true, true),
        ("apps-none", true, false),
        ("apps-not-running", false, false),
    ] {
        let rows = vec![row(AppState::Stopped, true), row(AppState::Ready, false)];
        let page = AppsPage {
            t,
            f: layout(t, Nav::Sessions, false),
            session: session(),
            apps: if has { rows } else { Vec::new() },
            is_running,
            port: String::new(),
        };
        all.push((name, page.render()));
    }
    for (name, state, startable, leads_on) in [
        ("app-stopped", AppState::Stopped, true, false),
        ("app-own", AppState::Stopped, false, false),
        ("app-starting", AppState::Starting, true, false),
        ("app-failed", AppState::Failed, true, false),
        ("app-ready", AppState::Ready, true, true),
        ("app-answers", AppState::Ready, false, false),
    ] {
        let has_lines = matches!(state, AppState::Starting | AppState::Failed);
        let page = AppPage {
            t,
            f: layout(t, Nav::Sessions, false),
            session: session(),
            app: row(state, startable),
            to: String::new(),
            leads_on,
            problem: match state {
                AppState::Failed => "The app ended with code 1 before it answered.".into(),
                _ => String::new(),
            },
            shares: if has_lines {
                Vec::new()
            } else {
                vec![AppShareRow {
                    id: "0199f0a3-6c1e-7d41".into(),
                    with: t.apps_share_project().into(),
                    until: "28 Feb".into(),
                }]
            },
            user: String::new(),
            lines: if has_lines {
                "Traceback (most recent call last):"
            } else {
                ""
            }
            .into(),
        };
        all.push((name, page.render()));
    }
}

/// The page of a visitor of an app.
fn shared_app(t: Text, leads_on: bool) -> SharedAppPage {
    SharedAppPage {
        t,
        f: layout(t, Nav::Sessions, false),
        title: "Gradio".into(),
        owner: "mina".into(),
        leads_on,
    }
}

fn snapshot_pages(t: Text, all: &mut Vec<(&'static str, Result<String, askama::Error>)>) {
    let crumb = |name: &str| PathCrumb {
        name: name.into(),
        href: "/folders/0199f0a3-6c1e-7d40/snapshots".into(),
    };
    for (name, is_empty) in [("folder-snapshots", false), ("folder-snapshots-none", true)] {
        let one = |number: u32, is_frozen: bool| FolderSnapshotRow {
            number,
            made: "28 Feb 10:00".into(),
            origin: t.folder_snapshots_daily(),
            size: "1.2 GiB".into(),
            is_ready: number != 3,
            is_frozen,
        };
        let count = |name: &'static str, label: &'static str, most: u32| SnapshotCount {
            name,
            label,
            value: "7".into(),
            most,
        };
        let page = FolderSnapshotsPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            folder: "data".into(),
            files: "/folders/0199f0a3-6c1e-7d40/files?path=".into(),
            manages: true,
            offered: !is_empty,
            work: match is_empty {
                true => String::new(),
                false => t.folder_snapshots_making(40),
            },
            operation: "0199f0a3-6c1e-7d44".into(),
            usage: t.folder_snapshots_usage("3.1 GiB", "25 GiB"),
            rows: match is_empty {
                true => Vec::new(),
                false => vec![one(3, false), one(2, false), one(1, true)],
            },
            counts: [
                count("hourly", t.folder_snapshots_hourly(), 48),
                count("daily", t.folder_snapshots_daily(), 31),
                count("weekly", t.folder_snapshots_weekly(), 52),
            ],
        };
        all.push((name, page.render()));
    }
    for (name, taken) in [("folder-snapshot", ""), ("folder-snapshot-taken", "a.csv")] {
        let row = |name: &str, href: &str| SnapshotFileRow {
            name: name.into(),
            path: name.into(),
            href: href.into(),
            icon: match href.is_empty() {
                true => "scroll-text",
                false => "folder",
            },
            size: "1.2 GiB".into(),
            modified: "28 Feb 10:00".into(),
            download: match href.is_empty() {
                true => "/api/v1/folders/data/snapshots/3/files?path=a.csv".into(),
                false => String::new(),
            },
        };
        let page = FolderSnapshotPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            number: 3,
            crumbs: vec![
                crumb(t.folders_title()),
                crumb("data"),
                crumb(t.folder_snapshots_title()),
                crumb("#3"),
            ],
            here: String::new(),
            writes: true,
            total: t.folder_files_total(2),
            rows: vec![
                row("train", "/folders/data/snapshots/3?path=train"),
                row("a.csv", ""),
            ],
            first: None,
            next: None,
            taken: taken.into(),
            projects: vec!["vision".to_owned()],
            name: String::new(),
            of: String::new(),
        };
        all.push((name, page.render()));
    }
}

/// What is found and counted below a directory, and a text that is edited.
fn folder_browsing(t: Text, all: &mut Vec<(&'static str, Result<String, askama::Error>)>) {
    const FILES: &str = "/folders/0199f0a3-6c1e-7d40/files?path=train";
    let crumbs = || {
        let one = |name: &str| PathCrumb {
            name: name.into(),
            href: FILES.into(),
        };
        vec![one(t.folders_title()), one("data")]
    };
    for (name, is_empty) in [("folder-search", false), ("folder-search-none", true)] {
        let row = FolderFileRow {
            name: "train/a.csv".into(),
            path: "train/a.csv".into(),
            href: "/folders/0199f0a3-6c1e-7d40/entry?path=train/a.csv".into(),
            icon: "scroll-text",
            kind: t.folder_files_file().into(),
            size: "1.2 GiB".into(),
            modified: "28 Feb 10:00".into(),
            details: "/folders/0199f0a3-6c1e-7d40/entry?path=train/a.csv".into(),
            removal: "/folders/0199f0a3-6c1e-7d40/remove?path=train/a.csv".into(),
            download: "/api/v1/folders/0199f0a3-6c1e-7d40/files?path=train/a.csv".into(),
        };
        let page = FolderSearchPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            writes: true,
            crumbs: crumbs(),
            here: "train".into(),
            back: FILES.into(),
            words: "a".into(),
            rows: (!is_empty).then_some(row).into_iter().collect(),
            looked: t.folder_browsing_looked(1234),
            notes: match is_empty {
                true => Vec::new(),
                false => vec![
                    t.folder_browsing_stopped().into(),
                    t.folder_browsing_left_out().into(),
                ],
            },
            next: (!is_empty).then(|| "/folders/0199f0a3-6c1e-7d40/search?cursor=x".into()),
        };
        all.push((name, page.render()));
    }
    let row = |name: String, href: &str, percent| SubfolderRow {
        name,
        href: href.into(),
        icon: "folder",
        size: "1.2 GiB".into(),
        entries: "1024".into(),
        percent,
    };
    let page = FolderUsagePage {
        t,
        f: layout(t, Nav::Folders, false),
        crumbs: crumbs(),
        back: FILES.into(),
        rows: vec![
            row(
                "images".into(),
                "/folders/0199f0a3-6c1e-7d40/usage?path=images",
                84,
            ),
            row(t.folder_browsing_others(3), "", 10),
            row(t.folder_browsing_here().into(), "", 6),
        ],
        counted: t.folder_browsing_counted(t.common_ago("3 min")),
        note: t.folder_browsing_partly().into(),
        fresh: "/folders/0199f0a3-6c1e-7d40/usage?path=train&fresh=true".into(),
    };
    all.push(("folder-usage", page.render()));
    for name in ["folder-edit", "folder-edit-new", "folder-edit-conflict"] {
        let is_new = name == "folder-edit-new";
        let conflict = (name == "folder-edit-conflict").then(|| TextConflict {
            first: 2,
            theirs: "lr = 0.1".into(),
            own: "lr = 0.2".into(),
            is_cut: true,
        });
        let page = FolderEditPage {
            t,
            f: layout(t, Nav::Folders, false),
            id: "0199f0a3-6c1e-7d40".into(),
            crumbs: crumbs(),
            title: match is_new {
                true => t.folder_browsing_new().into(),
                false => "notes.md".into(),
            },
            path: "train/notes.md".into(),
            is_new,
            name: String::new(),
            text: "epoch = 3\nlr = 0.2\n".into(),
            tag: "2a-9-1.0-1.0".into(),
            ending: "lf",
            conflict,
            back: FILES.into(),
        };
        all.push((name, page.render()));
    }
}

/// A question before sessions end, or the verbs of one.
fn dialog(t: Text, question: bool) -> DialogPage {
    DialogPage {
        t,
        f: layout(t, Nav::Sessions, true),
        title: t.stop_n_title(14),
        lead: t.stop_lead().into(),
        items: vec!["vit-ablation · mina".into()],
        more: t.stop_more(13),
        links: match question {
            true => Vec::new(),
            false => vec![DialogLink {
                href: "/sessions/stop?id=x".into(),
                icon: "power",
                words: t.verb_stop_ask().into(),
                asks: true,
                ends: true,
            }],
        },
        form: question.then(|| DialogForm {
            action: "/sessions/stop".into(),
            fields: vec![("id", "x".into())],
            icon: "power",
            go: t.stop_graceful().into(),
            ends: true,
            force: Some(t.stop_force().into()),
        }),
        why: match question {
            true => t.stop_why(),
            false => "",
        },
        back: "/sessions".into(),
    }
}

fn card_field(t: Text, refused: bool) -> launch::GpuPicker {
    let typed = if refused { "1.01" } else { "0.35" };
    launch::GpuPicker {
        share: Some(Slider {
            name: "gpu",
            title: t.gpu_share(),
            note: String::new(),
            unit: "GPU",
            least: "0".into(),
            most: "1".into(),
            step: "0.01".into(),
            value: typed.into(),
            typed: typed.into(),
        }),
        gib: "80.00".into(),
        sms: 132,
        idle: t.gpu_share_free("0.50"),
        now: t.gpu_share_is("28", 46, 132),
        sizes: [
            ("0", t.gpu_size_none(), ""),
            ("0.5", "0.5", "40 GiB"),
            ("1", "1", "80 GiB"),
        ]
        .map(|(value, name, note)| launch::NamedShare {
            value: value.into(),
            name: name.into(),
            note: note.into(),
            chosen: false,
        })
        .into(),
        memory: String::new(),
        partitions: [
            ("", t.gpu_partition_none(), String::new()),
            ("1g.10gb", "1g.10gb", t.gpu_partition_free(1, 2)),
        ]
        .map(|(value, name, note)| launch::PartitionChoice {
            value: value.into(),
            name: name.into(),
            note,
            chosen: value.is_empty(),
        })
        .into(),
        simulated: true,
    }
}

fn launch(t: Text, refused: bool) -> LaunchPage {
    let ghost =
        |note: &str, weight| Block::plain(BlockKind::Ghost, t.preview_your_share(note), weight);
    let mini = |row: BarRow, ghost: Block, left: &str| BarRow {
        blocks: {
            let mut blocks = row.blocks;
            blocks.pop();
            for block in &mut blocks {
                block.href = None;
                block.busy = None;
            }
            blocks.push(ghost);
            blocks.push(free(t, left, 100));
            blocks
        },
        left: left.into(),
        hit: true,
        ..row
    };
    let preview = if refused {
        Preview {
            grants: vec!["GPU 2: 0.35 = 28 GiB, 46 of 132 SMs".into()],
            simulated: true,
            tone: "never",
            icon: "circle-x",
            verdict: t.preview_never().into(),
            detail: waiting_sentence(t).into(),
            rows: Vec::new(),
            checks: vec![CheckRow::new(
                false,
                t.preview_check_cpu("fardel-01"),
                "40 / 16",
            )],
            outlook: Some(t.queue_starts_by_others("16:40")),
            what_if: vec![t.preview_what_if_less(t.common_cores(16))],
            command_line: "fardel session create --image host --cpu 40 --mem 8g".into(),
            go: t.launch_go().into(),
            blocked: true,
        }
    } else {
        Preview {
            grants: vec!["GPU 2: 0.35 = 28 GiB, 46 of 132 SMs".into()],
            simulated: true,
            tone: "",
            icon: "circle-check",
            outlook: None,
            verdict: t.preview_starts_now("fardel-01"),
            detail: t.preview_starts_now_detail().into(),
            rows: vec![
                mini(cpu_row(t), ghost("2.00", 200), "2.00"),
                mini(memory_row(t), ghost("8 GiB", 8), "6 GiB"),
            ],
            checks: vec![
                CheckRow::new(
                    true,
                    t.preview_check_cpu("fardel-01"),
                    t.preview_before_after("12.00", "14.00", "16"),
                ),
                CheckRow::new(
                    true,
                    t.preview_check_memory("fardel-01"),
                    t.preview_before_after("50", "58", "64 GiB"),
                ),
                CheckRow::new(true, t.preview_check_image(), t.preview_image_ready()),
                CheckRow::new(true, t.preview_check_name(), t.preview_name_free()),
            ],
            what_if: Vec::new(),
            command_line: "fardel session create vit-ablation-2 --image host --cpu 2 --mem 8g"
                .into(),
            go: t.launch_go().into(),
            blocked: false,
        }
    };
    let choice = |value: &str, name: &str, note: &str, foot: &str, icon, chosen| Choice {
        note: note.into(),
        foot: foot.into(),
        icon,
        ..Choice::new(value, name, chosen)
    };
    LaunchPage {
        projects: match refused {
            true => many_projects(t, "default/vision-lab"),
            false => ChoiceField::of(
                t,
                vec![
                    Choice::new("vision-lab", "Vision Lab", true),
                    Choice::new("default", "default", false),
                ],
                "",
            ),
        },
        for_members: true,
        changed: refused.then(|| t.launch_more_memory("vit-ablation", "4 GiB", "8 GiB")),
        card: Some(card_field(t, refused)),
        t,
        f: layout(t, Nav::Launch, false),
        alert: refused.then(|| {
            Alert::bad(t.problem_refused())
                .detail(waiting_sentence(t))
                .code("placement.never-fits")
        }),
        typed_faults: if refused {
            vec![FormFieldError {
                field: "cpu".into(),
                message: waiting_sentence(t).into(),
            }]
        } else {
            Vec::new()
        },
        recent: vec![launch::RecentLaunch {
            href: "/sessions/new?from=0199".into(),
            name: "vit-ablation".into(),
            facts: "host · 6.00 · 24 GiB".into(),
        }],
        kinds: vec![
            choice(
                "interactive",
                t.launch_interactive(),
                t.launch_interactive_note(),
                "",
                "square-terminal",
                true,
            ),
            choice(
                "batch",
                t.launch_batch(),
                t.launch_batch_note(),
                "",
                "play",
                false,
            ),
        ],
        images: vec![
            choice(
                "host",
                "host",
                t.launch_host_note(),
                t.launch_host_foot(),
                "server",
                true,
            ),
            choice(
                "pytorch:2.9",
                "pytorch:2.9",
                "Python 3.12",
                &t.launch_on_disk("9.8 GiB"),
                "package",
                false,
            ),
            choice(
                "python-ml:1",
                "python-ml:1",
                "numpy, scikit-learn",
                &t.launch_on_disk("412 MiB"),
                "package",
                false,
            ),
        ],
        more_images: vec![choice(
            "tensorflow:2.20",
            "tensorflow:2.20",
            "Python 3.12",
            &t.launch_on_disk("4.1 GiB"),
            "package",
            false,
        )],
        all_images: t.launch_all_images(4),
        other_images: 1,
        sizes: SizePicker {
            sizes: [
                ("small", t.launch_small(), "1", "2"),
                ("medium", t.launch_medium(), "2", "8"),
                ("large", t.launch_large(), "4", "16"),
                ("half", t.launch_half(), "8", "32"),
            ]
            .map(|(value, name, cpu, memory)| NamedSize {
                value: value.into(),
                name: name.into(),
                note: format!("{cpu} CPU · {memory} GiB"),
                fill: format!("{{\"cpu\":\"{cpu}\",\"memory\":\"{memory}\"}}"),
                chosen: value == "medium",
            })
            .into(),
            is_list: false,
            picked: None,
        },
        sliders: vec![
            Slider {
                name: "cpu",
                title: t.sessions_cpu(),
                note: t.launch_cpu_free("4.00"),
                unit: t.launch_cores_unit(),
                least: "0.1".into(),
                most: "16".into(),
                step: "0.1".into(),
                value: "2".into(),
                typed: if refused { "40" } else { "2" }.into(),
            },
            Slider {
                name: "memory",
                title: t.sessions_memory(),
                note: t.launch_memory_free("14 GiB"),
                unit: "GiB",
                least: "0.5".into(),
                most: "64".into(),
                step: "0.5".into(),
                value: "8".into(),
                typed: "8".into(),
            },
        ],
        form: LaunchFields {
            name: "vit-ablation-2".into(),
            replicas: "1".into(),
            offers_sudo: true,
            has_homes: true,
            ..LaunchFields::default()
        },
        texts: LaunchTexts::default().boxes(t),
        groups: Vec::new(),
        mounts: [
            ("home", "/home/work"),
            ("data", "/folders/data"),
            ("kim/images:ro", "/folders/images"),
        ]
        .map(|(mount, place)| launch::FolderChip {
            mount: mount.into(),
            place: place.into(),
        })
        .into(),
        name_hint: "calm-otter".into(),
        runtime: UsualRuntime {
            hint: "12h".into(),
            told: t.launch_max_runtime_usual("12 h", "default"),
        },
        preview,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SampleMoment {
    Waiting,
    Preparing,
    Running,
    Ended,
}

fn session(t: Text, tab: SessionTab, moment: SampleMoment) -> SessionDetailPage {
    let (tone, state) = match moment {
        SampleMoment::Waiting => ("warn", t.state_waiting()),
        SampleMoment::Preparing => ("acc", t.state_preparing()),
        SampleMoment::Running => ("ok", t.state_running()),
        SampleMoment::Ended => ("bad", t.state_failed()),
    };
    let alive = moment == SampleMoment::Running;
    let steps = || {
        let mut steps = vec![
            ("10:42:07", "a", t.timeline_accepted().to_owned(), 12_000),
            ("10:42:19", "a", t.timeline_placed("fardel-01"), 4),
            ("10:42:19", "a", t.timeline_prepared().to_owned(), 118),
            ("10:42:19", "", t.timeline_running().to_owned(), 62),
        ];
        if moment == SampleMoment::Waiting {
            steps.truncate(1);
        }
        if moment == SampleMoment::Preparing {
            steps.truncate(3);
        }
        steps
            .into_iter()
            .map(|(when, tone, what, took)| TimelineStep {
                when: when.into(),
                tone,
                what,
                took: components::took(t, took),
            })
            .collect::<Vec<_>>()
    };
    let strip = |name, value: &str, of: String, hue, most, limit| Strip {
        name,
        value: value.into(),
        of,
        chart: components::strip(
            &wave(60, most * 0.66, most * 0.1, 1.0),
            most,
            hue,
            limit,
            &t.strip_chart(name, value, "6"),
        ),
    };
    let mut row = cpu_row(t);
    row.blocks[0].kind = BlockKind::Mine;
    let mut memory = memory_row(t);
    memory.blocks[0].kind = BlockKind::Mine;
    SessionDetailPage {
        limit_gpu: Some(super::super::session::Fraction {
            typed: "0.35".into(),
            memory: String::new(),
            gib: "80.00".into(),
            sms: 132,
            now: t.gpu_share_is("28", 46, 132),
        }),
        limit_fixed: false,
        t,
        f: layout(t, Nav::Sessions, true),
        alert: None,
        idle: None,
        refused: None,
        is_connected: true,
        connections: vec![super::super::session::ConnectionLine {
            host: "warehouse.plant:3306".into(),
            said: t.connections_opened(),
            tone: "",
            count: 12,
            bytes: "1.2 MiB".into(),
            when: "16:40".into(),
        }],
        processes: vec![super::super::session::ProcessRow {
            pid: 12,
            name: "python3".into(),
            state: t.processes_runs(),
            cpu: components::took(t, 61_000),
            memory: "1.2 GiB".into(),
        }],
        remote: match alive {
            true => vec![(0, "fardel login https://fardel-01".into()), (1, "fardel attach vit-ablation".into())],
            false => Vec::new(),
        },
        lacks_ssh_key: alive,
        program: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
        awaited: (moment == SampleMoment::Waiting).then(|| AwaitedSessions {
            sessions: vec![AwaitedSession {
                href: "/sessions/0199f0a4".into(),
                name: "llama3-sft".into(),
                facts: format!("{} · {}", t.gpu_wanted("1"), t.queue_ends_by("16:40")),
            }],
            more: t.queue_ends_others(2),
            lead: t.queue_ends_enough().to_owned(),
        }),
        instead: match moment {
            SampleMoment::Waiting => smaller_requests(t),
            _ => Vec::new(),
        },
        id: "0199f0a3".into(),
        terminal: "/api/v1/sessions/0199f0a3/attach".into(),
        name: "vit-ablation".into(),
        description: "Ablation of the patch size, with <b>32</b> heads. ".repeat(10),
        owner: "mina".into(),
        is_own: false,
        owner_href: "/users/mina".into(),
        tone,
        state: state.into(),
        can: match moment {
            SampleMoment::Waiting => Verbs { cancel: true, hold: true, rename: true, ..Verbs::default() },
            SampleMoment::Preparing => Verbs { stop: true, rename: true, ..Verbs::default() },
            SampleMoment::Running => {
                Verbs { pause: true, restart: true, limits: true, rename: true, stop: true, ..Verbs::default() }
            }
            SampleMoment::Ended => Verbs { restart: true, rename: true, remove: true, ..Verbs::default() },
        },
        restart_place: t.restart_place().to_owned(),
        kept: true,
        facts: [
            ("notebook-pen", t.session_interactive().to_owned()),
            ("package", "pytorch:2.9".into()),
            ("clock", components::span(t, 11_520)),
            ("cpu", t.where_given("6.00", "24 GiB")),
            ("server", "fardel-01".into()),
        ]
        .map(|(icon, text)| IconFact { icon, text })
        .into(),
        strips: if alive {
            vec![
                strip(t.strip_cpu(), "5.1", t.common_of_cores("6.00"), "ci", 6.0, Some(6.0)),
                strip(t.strip_memory(), "15.2", t.common_of("24 GiB"), "ca", 24.0, Some(24.0)),
            ]
        } else {
            Vec::new()
        },
        tab,
        attachable: alive,
        no_terminal: (t.terminal_none(), t.terminal_none_lead()),
        no_processes: (t.processes_none(), t.processes_none_lead()),
        by_reason: !alive,
        own_shell: true,
        containers: Vec::new(),
        within: String::new(),
        waiting: (moment == SampleMoment::Waiting).then(|| Wait {
            verdict: t.preview_waits().into(),
            sentence: waiting_sentence(t).into(),
            checks: vec![
                CheckRow::new(false, t.preview_check_cpu("fardel-01"), "8.00 / 4.00"),
                CheckRow::new(true, t.preview_check_memory("fardel-01"), "14 / 14 GiB"),
            ],
            hints: vec![t.preview_what_if_less(t.common_cores(4))],
        }),
        steps: if moment == SampleMoment::Preparing { steps() } else { Vec::new() },
        ended: (moment == SampleMoment::Ended).then(|| SessionEnd {
            tone: "never",
            icon: "circle-x",
            verdict: t.ended_killed_memory().into(),
            reason: t.ended_killed_memory_lead("24 GiB"),
            facts: vec![
                (t.ended_exit().into(), "137".into()),
                (t.ended_ran().into(), components::span(t, 11_520)),
                (t.ended_peak_memory().into(), "24 GiB".into()),
            ],
            last_lines: "epoch 4   step 1480/5004   loss 2.7466\nsaved checkpoint-1480\nKilled\n".into(),
        }),
        log_query: String::new(),
        log_note: t.logs_lines(3),
        log_wraps: true,
        log_other: "/sessions/0199f0a3/logs?wrap=off".into(),
        log_text: "[13:54:39] epoch 4   step 1440/5004   loss 2.7581\n[13:55:07] epoch 4   step 1480/5004   loss 2.7466\n[13:55:12] saved checkpoint-1480 <to> /home/work\n".into(),
        view: charted(t),
        spans: super::super::session_charts::spans(t, "0199f0a3", Default::default()),
        neighbours: if moment == SampleMoment::Waiting { Vec::new() } else { vec![row, memory] },
        limits: vec![
            (t.where_cpu_memory().into(), t.where_given("6.00", "24 GiB")),
            (t.where_shm().into(), "64 MiB".into()),
            (t.where_network().into(), t.where_loopback().into()),
        ],
        sees_slice: alive,
        limit_cpu: "6".into(),
        limit_memory: "24".into(),
        timeline: steps(),
        why: vec![
            CheckRow::new(true, t.preview_check_cpu("fardel-01"), t.common_free("4.00")),
            CheckRow::new(true, t.preview_check_memory("fardel-01"), t.common_free("14 GiB")),
        ],
        after: Vec::new(),
        settings: vec![
            (t.settings_command().into(), "python train.py --config ablate/patch14.yaml".into()),
            (t.settings_env("EPOCHS"), "3".into()),
        ],
    }
}

fn queue(t: Text, full: bool) -> QueuePage {
    let mut rows = vec![cpu_row(t), memory_row(t)];
    for (row, left) in rows.iter_mut().zip(["4.00", "14"]) {
        row.left = left.into();
    }
    QueuePage {
        t,
        f: layout(t, Nav::Queue, true),
        alert: None,
        simulated: full,
        shown: t.queue_count_of(2, 202),
        plan_more: t.queue_plan_more(3),
        order: t.queue_order_turns(),
        backfill: t.queue_backfill_timed(),
        own_rules: full,
        others: Some(t.queue_others(3)),
        filter: FilterBar {
            t,
            module: super::super::assets::address("table.js"),
            table: "queue",
            path: "/queue",
            here: "/queue".into(),
            q: String::new(),
            hint: t.queue_filter_hint().into(),
            label: t.queue_filter().into(),
            pickers: Vec::new(),
            hidden: Vec::new(),
            columns: Vec::new(),
            views: Vec::new(),
            examples: Vec::new(),
            target: "queue",
        },
        unmatched: false,
        may_cancel: full,
        pager: table::Pager::new(t, &TableState::read("/queue", &[], &[]), 2, 202),
        waiting: if full {
            vec![
                queue::QueueRow {
                    id: "0199f0a4".into(),
                    mark: "all:0199f0a4".into(),
                    count: 8,
                    position: "1".into(),
                    hue: 7,
                    href: "/sessions/0199f0a4".into(),
                    name: "llama3-sft".into(),
                    replicas: Some(t.queue_replicas(7, "llama3-sft-8")),
                    state: t.queue_next().into(),
                    since: t.queue_since("13:15"),
                    why: waiting_sentence(t).into(),
                    besides: vec![waiting_sentence(t).into(), t.attention_more(2)],
                    facts: t.queue_asks("mina", "1 GPU, 8 cores, 16 GiB"),
                    hint: Some(t.queue_starts_by("16:40", "vit-ablation")),
                    instead: smaller_requests(t),
                    held: false,
                    may_change: true,
                },
                queue::QueueRow {
                    id: "0199f0a5".into(),
                    mark: "0199f0a5".into(),
                    count: 1,
                    position: "–".into(),
                    hue: 3,
                    href: "/sessions/0199f0a5".into(),
                    name: "ocr-train-nightly".into(),
                    replicas: None,
                    state: t.queue_scheduled().into(),
                    since: t.queue_since("13:50"),
                    why: t.launch_start_help().into(),
                    besides: Vec::new(),
                    facts: t.queue_asks("jae", "2 cores, 8 GiB"),
                    hint: None,
                    instead: Vec::new(),
                    held: false,
                    may_change: false,
                },
            ]
        } else {
            Vec::new()
        },
        room: rows,
        axis: [t.queue_now().into(), "16:00".into(), "18:00".into()],
        plan: if full {
            vec![PlanRow {
                href: "/sessions/0199f0a3".into(),
                name: "vit-ablation".into(),
                hue: 3,
                runs: true,
                from: t.queue_runs().into(),
                until: "16:40".into(),
                why: t.queue_limit_reached().into(),
                at: 0,
                length: 620,
                open: false,
            }]
        } else {
            Vec::new()
        },
    }
}

pub(super) fn images(t: Text) -> ImagesPage {
    let columns = vec![
        TableColumn::new("name", t.images_name())
            .sorted_by("name")
            .class("first"),
        TableColumn::new("what", t.images_what()).class("why"),
        TableColumn::new("size", t.images_size())
            .sorted_by("-size")
            .class("num"),
        TableColumn::new("used", t.images_used()).class("num wide"),
    ];
    let mut state = TableState::read("/images", &["q"], &[]);
    state.columns = columns.iter().map(|column| column.key).collect();
    let row = |name: &str, what: &str, note: &str, size: &str, used: &str| TableLine {
        id: format!("i-{}", name.replace([':', '.'], "-")),
        mark: (name != "host").then(|| RowMark {
            value: "0199".into(),
            label: t.sessions_mark(name),
            count: 1,
        }),
        cells: vec![
            TableCell::Link {
                href: format!("/images/{name}"),
                text: name.into(),
                note: String::new(),
            },
            TableCell::Text {
                text: what.into(),
                note: note.into(),
            },
            TableCell::text(size),
            TableCell::text(used),
        ],
        action: Some(RowAction {
            href: format!("/sessions/new?image={name}"),
            icon: "play",
            label: t.images_launch_named(name),
            dialog: false,
        }),
    };
    let (embedded, imported) = (t.images_embedded(), t.images_imported());
    let rows = vec![
        row("host", embedded, t.images_embedded_note(), "", "2"),
        row("pytorch:2.9", imported, "docker", "9.8 GiB", "1"),
        row("python-ml:1", imported, "OCI", "412 MiB", "0"),
    ];
    let empty = EmptyTable {
        icon: "search",
        title: t.images_no_match().into(),
        lead: t.sessions_no_match_lead().into(),
        href: "/images".into(),
        go: t.sessions_clear().into(),
    };
    ImagesPage {
        t,
        f: layout(t, Nav::Images, true),
        alert: None,
        summary: t.images_summary(2, "10.2 GiB"),
        clearable: true,
        may_import: true,
        filter: FilterBar {
            t,
            module: super::super::assets::address("table.js"),
            table: "images",
            path: "/images",
            here: "/images".into(),
            q: String::new(),
            hint: t.images_filter_hint().into(),
            label: t.images_filter().into(),
            pickers: Vec::new(),
            hidden: Vec::new(),
            columns: table::column_choices(&state, &columns),
            views: Vec::new(),
            examples: Vec::new(),
            target: "list",
        },
        table: DataTable::new(t, &state, &columns, "host", rows, 3, empty),
        only_host: false,
        import_name: String::new(),
        import_upload: None,
        registries: vec!["registry.lab".into()],
        pull_image: String::new(),
        pull_reference: String::new(),
        jobs: vec![
            ImportRow {
                id: "1".into(),
                name: "vllm-0.14.tar".into(),
                state: t.jobs_running(62),
                tone: "a",
                percent: 62,
                step: "sha256:77aa10 · 3 / 7".into(),
            },
            ImportRow {
                id: "2".into(),
                name: "python-ml.tar".into(),
                state: t.jobs_done().into(),
                tone: "o",
                percent: 100,
                step: "412 MiB".into(),
            },
        ],
    }
}

fn environment_line(t: Text, version: &str, is_newest: bool) -> EnvironmentLine {
    EnvironmentLine {
        href: format!("/environments/jupyter:{version}"),
        name: "jupyter".into(),
        version: version.into(),
        about: "Python 3.13 with JupyterLab".into(),
        is_newest,
        signer: match is_newest {
            true => t.environments_signed_by("lab"),
            false => t.environments_unsigned().into(),
        },
        imported: "2 d".into(),
    }
}

fn environments(t: Text, is_empty: bool) -> EnvironmentsPage {
    EnvironmentsPage {
        t,
        f: layout(t, Nav::Images, false),
        rows: match is_empty {
            true => Vec::new(),
            false => vec![
                environment_line(t, "1.2", true),
                environment_line(t, "1.1", false),
            ],
        },
        may_import: true,
        import_upload: None,
        accept_unsigned: false,
        allow_older: false,
    }
}

fn environment(t: Text) -> EnvironmentDetailPage {
    EnvironmentDetailPage {
        t,
        f: layout(t, Nav::Images, false),
        line: environment_line(t, "1.2", true),
        may_remove: true,
        remove_title: t.remove_title("jupyter 1.2"),
        images: vec![EnvironmentImageLine {
            href: "/images/jupyter:1.2".into(),
            launch: "/sessions/new?image=jupyter%3A1.2".into(),
            reference: "jupyter:1.2".into(),
            recommended: [t.environments_memory("4 GiB"), t.environments_port(8888)].join(" · "),
        }],
        packages: vec![
            ("libc6".into(), "2.36-9".into()),
            ("python3".into(), "3.13.1-2".into()),
        ],
        more: 40,
        licences: "BSD 3-Clause, MIT".into(),
    }
}

fn image(t: Text) -> ImageDetailPage {
    ImageDetailPage {
        t,
        f: layout(t, Nav::Images, false),
        alert: None,
        id: "0199".into(),
        value: "pytorch:2.9".into(),
        name: "pytorch:2.9".into(),
        what: t.images_imported().into(),
        may_remove: true,
        sharing: Some(false),
        impact: t.image_impact(1, "9.8 GiB"),
        facts: vec![
            IconFact {
                icon: "hard-drive",
                text: "9.8 GiB".into(),
            },
            IconFact {
                icon: "clock",
                text: t.common_ago(components::span(t, 259_200)),
            },
        ],
        starts: vec![
            (t.image_entrypoint().into(), "/usr/bin/tini --".into()),
            (t.image_command().into(), "bash".into()),
            (t.image_user().into(), "work".into()),
            (t.image_directory().into(), "/home/work".into()),
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ],
        used_by: vec![ImageUse {
            href: "/sessions/0199f0a3".into(),
            name: "whisper-ft".into(),
            tone: "ok",
            state: t.state_running().into(),
        }],
        labels: vec![("org.opencontainers.image.version".into(), "2.9".into())],
        pull: Some("docker pull box.lab/pytorch:2.9".into()),
        may_limit: true,
        limits_by: t.image_limits_of_labels(),
        limits: vec![
            ImageLimitField {
                key: "min_cpu",
                label: t.image_min_cpu(),
                value: "2".into(),
            },
            ImageLimitField {
                key: "max_gpu",
                label: t.image_max_gpu(),
                value: "1".into(),
            },
        ],
    }
}

fn me(t: Text) -> MePage {
    MePage {
        t,
        f: layout(t, Nav::Me, false),
        alert: None,
        who: format!("mina.park · {}", t.me_role_administrator()),
        user: "mina.park".into(),
        shortest: 10,
        password_first: false,
        password_elsewhere: false,
        second_factor: true,
        sign_ins: signed_in(t),
        limits: vec![user::LimitRow::plain((
            t.policies_gpu(),
            t.common_of_two("0.5", "2"),
        ))],
        mail: Some(OwnMail {
            address: Some("mina.park@lab.example".into()),
            kinds: vec![
                Choice::new("will-end", t.mail_will_end(), true),
                Choice::new("started", t.mail_started(), false),
            ],
            by_default: true,
        }),
        acts: vec![OwnActRow {
            when: "2026-11-27 09:41:12".into(),
            what: t.audit_signed_in().into(),
            detail: String::new(),
            address: "192.0.2.7".into(),
        }],
        new_token: Some("fardel_3kQ9sample".into()),
        tokens: vec![OwnTokenRow {
            id: "1".into(),
            name: "nightly".into(),
            hint: "fardel_3kQ9…".into(),
            scopes: t.me_scope_all().into(),
            ends: t.me_days_n(30),
            used: t.common_ago(components::span(t, 3600)),
        }],
        pager: table::Pager::new(t, &TableState::read("/me", &[], &[]), 50, 100),
        full: String::new(),
        token_name: String::new(),
        token_networks: String::new(),
        scopes: vec![
            Choice::new("all", t.me_scope_all(), true),
            Choice::new("read", t.me_scope_read(), false),
        ],
        lifetimes: vec![
            Choice::new("30", t.me_days_n(30), true),
            Choice::new("90", t.me_days_n(90), false),
        ],
        languages: [Language::English, Language::Korean]
            .map(|l| Choice::new(l.code(), l.own_name(), l == t.language))
            .into(),
        themes: Theme::ALL
            .map(|theme| Choice::new(theme.code(), theme.name(t), theme == Theme::System))
            .into(),
        zones: vec![
            Choice::new("", t.me_zone_browser(), true),
            Choice::new("Asia/Seoul", "Asia/Seoul", false),
        ],
        zone_note: t.me_zone_note("23:05"),
        keys: true,
    }
}

/// Off, with a key that waits for its first code, with new recovery codes, on.
fn factor_page(t: Text, stage: u8) -> SecondFactorPage {
    SecondFactorPage {
        t,
        f: layout(t, Nav::Me, false),
        alert: None,
        user: "mina.park".into(),
        enabled: stage > 1,
        required: false,
        since: "21 Nov 14:02".into(),
        left: "9".into(),
        offer: (stage == 1).then(|| OfferedKey {
            key: "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ".into(),
            picture: super::super::qr::picture(
                "otpauth://totp/fardel:mina?secret=GEZDGNBVGY3TQOJQ",
            ),
            ticket: "AZp".into(),
            until: "14:17".into(),
        }),
        codes: match stage {
            2 => vec!["ABCD-EFGH-JKLM-NPQR".into(); 10],
            _ => Vec::new(),
        },
        again: None,
    }
}

fn docs(t: Text, q: Option<&str>) -> DocsPage {
    let f = layout(t, Nav::Docs, false);
    match q {
        Some(q) => super::super::docs::search(f, q),
        None => super::super::docs::chapter(f, "first-steps").expect("a chapter"),
    }
}

fn about(t: Text) -> AboutPage {
    super::super::about::about(layout(t, Nav::Nowhere, false))
}

const PRINT: &str = "9F:2C:7A:41:03:BB:60:12:9F:2C:7A:41:03:BB:60:12:9F:2C:7A:41:03:BB:60:12:9F:2C:7A:41:03:BB:60:12";

fn announced_rows(t: Text) -> Vec<AnnouncedRow> {
    let row = |key: &str, is_warning, is_closed| AnnouncedRow {
        banner: AnnouncementBanner {
            key: key.into(),
            is_warning,
            seconds_left: is_warning.then_some(7_200),
            text: t.launch_on_disk("412 MiB"),
            link: None,
        },
        when: "21:00 – 23:00".into(),
        is_closed,
    };
    vec![row("a-1", true, false), row("b-1", false, true)]
}

fn announced(t: Text) -> AnnouncedPage {
    AnnouncedPage {
        t,
        f: layout(t, Nav::Nowhere, false),
        all: announced_rows(t),
    }
}

fn announced_bare(t: Text) -> BareAnnouncedPage {
    BareAnnouncedPage {
        t,
        f: PageLayout {
            announcements: announced_rows(t)
                .into_iter()
                .map(|row| row.banner)
                .collect(),
            more_announcements: 47,
            ..stranger(t)
        },
        all: Vec::new(),
    }
}

fn trust_page(t: Text, encrypted: bool) -> TrustPage {
    TrustPage {
        t,
        f: stranger(t),
        authority: encrypted.then(|| trust::AuthorityView {
            subject: "fardel fardel-01 9F2C".into(),
            fingerprint: PRINT.into(),
            groups: PRINT
                .split(':')
                .collect::<Vec<_>>()
                .chunks(4)
                .map(|g| g.join(" "))
                .collect(),
            put_aside: true,
        }),
        ssh: encrypted.then(|| "SHA256:NWzrYSgOvAuFvfSw/YsPp1MrDu3JDInpo/A71xW7hG0".into()),
        systems: trust::systems(t, "fardel-01.lab.internal", "Windows"),
        back: "/login",
    }
}

fn wizard_page(t: Text, at: usize) -> WizardPage {
    let environments = || {
        ["host", "pytorch:2.9-with-a-rather-long-name-for-a-phone"]
            .map(|name| wizard::EnvironmentChoice {
                name: name.into(),
                note: t.wizard_environment_host().into(),
            })
            .into()
    };
    let facts = || {
        vec![
            (t.wizard_started_in(), components::took(t, 84)),
            (t.wizard_limit_held(), t.wizard_yes().to_owned()),
            (t.trust_fingerprint(), PRINT.to_owned()),
        ]
    };
    let view = match at {
        0 => WizardView::Time {
            now: "14:02:11".into(),
            zone: "Asia/Seoul".into(),
            warning: Some("1970".into()),
        },
        1 => WizardView::Certificate {
            authority: trust_page(t, true).authority,
        },
        2 => WizardView::Environment {
            environments: environments(),
            ready: false,
        },
        3 => WizardView::Test {
            environments: ChoiceField::of(t, vec![Choice::new("host", "host", true)], ""),
            result: Some(wizard::TrialOutcome {
                class: "ok",
                icon: "circle-check",
                title: t.wizard_test_passed(),
                text: "0".into(),
                facts: facts(),
                href: "/sessions/0199f0a3".into(),
            }),
        },
        _ => WizardView::Report {
            facts: facts(),
            machines: vec![(
                "fardel-01".into(),
                t.wizard_report_room("16", "64 GiB", 4u64),
            )],
            measured: facts(),
            checks: vec![wizard::Looked {
                icon: "circle-check",
                tone: "ok",
                text: "A node answers.".into(),
            }],
            devices: vec![("fardel-01".into(), "4 × H100 80GB".into())],
            next: vec![wizard::NextTask {
                href: "/images",
                icon: "package",
                name: t.wizard_environment_import(),
                lead: t.wizard_next_images(3u64),
            }],
        },
    };
    WizardPage {
        t,
        f: stranger(t),
        stairs: wizard::stairs_of(t, at, at),
        view,
        zones: vec![Choice::new("Asia/Seoul", "Asia/Seoul", true)],
        moment: 0,
        step: "time",
        before: Some("/setup/time"),
        go: t.wizard_next(),
        main: true,
        last: at > 3,
    }
}

fn tls_page(t: Text, asked: bool) -> TlsPage {
    TlsPage {
        t,
        f: layout(t, Nav::Nowhere, false),
        alert: (!asked).then(|| Alert::bad("tls.chain-order")),
        served: Some(tls::ServedView {
            site: true,
            subject: "fardel-01.lab.internal".into(),
            issuer: "Lab issuing authority 2".into(),
            names: vec!["fardel-01.lab.internal".into(), "10.1.4.20".into()],
            from: "1".into(),
            until: "2".into(),
            left: components::span(t, 12 * 86_400),
            tone: "warn",
            fingerprint: PRINT.into(),
            previous: Some(t.tls_previous("fardel-01", "3")),
            requested: Some("fardel-01.lab.internal".into()),
        }),
        request: asked.then(|| {
            "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n"
                .to_owned()
        }),
        names: "fardel-01.lab.internal\n10.1.4.20".into(),
        organisation: "Lab".into(),
        certificate: String::new(),
        name: String::new(),
    }
}

fn setup(t: Text, closed: bool) -> SetupPage {
    SetupPage {
        t,
        f: stranger(t),
        code: if closed {
            String::new()
        } else {
            "7KQ4-M2XD".into()
        },
        name: "mina".into(),
        shortest: 10,
        closed,
        alert: closed.then(|| Alert::warning(t.setup_expired())),
        refused: false,
    }
}

fn problem(t: Text) -> ProblemPage {
    ProblemPage {
        t,
        f: layout(t, Nav::Nowhere, false),
        status: 500,
        icon: "triangle-alert",
        title: t.problem_fault().into(),
        detail: t.problem_fault_lead().into(),
        hint: None,
        code: "fault.internal".into(),
        request: Some("0199f0a3-6c1e-7d40".into()),
        back: None,
    }
}

/// Keeps the type used where a strip has nothing to draw.
#[test]
fn an_empty_strip_still_is_a_picture_with_words() {
    let drawn: Markup = components::strip(&[], 1.0, "ci", None, "nothing yet");
    assert!(drawn.as_str().contains("nothing yet"));
}

fn roster(
    t: Text,
    plan: Option<rosters::ShownPlan>,
    applied: Option<rosters::ShownSlips>,
) -> rosters::RosterPage {
    let past = |undone: String| rosters::PastRoster {
        id: "0199f0a3-6c1e-7d40".into(),
        when: "14:22".into(),
        facts: t.rosters_facts("mina", t.rosters_new_accounts(79)),
        suspended: t.rosters_suspended(2),
        may_suspend: undone.is_empty(),
        may_restore: undone.is_empty(),
        undone,
    };
    rosters::RosterPage {
        t,
        f: layout(t, Nav::Users, false),
        project: match applied.is_some() {
            // Of very many one is typed.
            true => rosters::ProjectField::Typed(many_projects(t, "default/ml-2027")),
            false => rosters::ProjectField::Listed(vec![
                components::Choice::new("a", "default / default", false),
                components::Choice::new("b", "default / ml-2027", true),
            ]),
        },
        plan,
        applied,
        past: vec![past(String::new()), past(t.rosters_undone("14:30"))],
    }
}

/// More projects than a page lists.
fn many_projects(t: Text, typed: &str) -> ChoiceField {
    let project = |n: usize| {
        let path = format!("default/course-{n:03}");
        components::Choice::new(path.clone(), path, false)
    };
    ChoiceField::of(t, (0..200).map(project).collect(), typed)
}

fn roster_plan(t: Text) -> rosters::ShownPlan {
    let row = |line: u32, name: &str, faults: Vec<String>| rosters::ShownRow {
        line,
        name: name.into(),
        full_name: "Mina Han".into(),
        email: format!("{name}@lab.example"),
        project: "ml-2027".into(),
        role: t.projects_role_member().into(),
        policy: "gpu-0.5".into(),
        until: "28 Feb 2027".into(),
        tone: if faults.is_empty() { "ok" } else { "bad" },
        action: match faults.is_empty() {
            true => t.rosters_create(),
            false => t.rosters_fault(),
        },
        faults,
    };
    rosters::ShownPlan {
        sum: t.rosters_sum(1, 0, 0, 0),
        alert: Some(components::Alert::bad(t.rosters_faulty(1))),
        rows: vec![
            row(3, "Mina", vec!["name: …".into()]),
            row(2, "jae", Vec::new()),
        ],
        more: t.rosters_more(12),
        apply: Some(rosters::AppliedFields {
            csv: "bmFtZQ==".into(),
            project: String::new(),
            digest: "0".into(),
            go: t.rosters_apply(1),
        }),
    }
}

fn roster_slips(t: Text) -> rosters::ShownSlips {
    let slip = |name: &str| (name.into(), "Mina Han".into(), "k7mq-x3pd-9rth".into());
    rosters::ShownSlips {
        title: t.rosters_done(t.rosters_new_accounts(2)),
        slips: vec![slip("mina"), slip("jae")],
        none: String::new(),
        address: "https://gpu.lab".into(),
    }
}

fn user_page(t: Text) -> user::UserPage {
    user::UserPage {
        t,
        f: layout(t, Nav::Users, false),
        id: "0199f0a3-6c1e-7d40".into(),
        name: "mina".into(),
        full_name: "Mina Han".into(),
        email: "mina@lab.example".into(),
        kept: String::new(),
        roles: vec![
            user_roles::RoleRow {
                role: t.projects_role_lead(),
                scope: "default / ml-2027".into(),
                until: String::new(),
                revoke: String::new(),
                project: "/projects/a".into(),
            },
            user_roles::RoleRow {
                role: t.projects_role_auditor(),
                scope: t.users_roles_site().into(),
                until: "28 Feb 2027".into(),
                revoke: "/users/a/grants/revoke?role=auditor&domain=".into(),
                project: String::new(),
            },
        ],
        scopes: ChoiceField::of(
            t,
            vec![components::Choice::new("", t.users_roles_site(), false)],
            "",
        ),
        offered: vec![components::Choice::new(
            "auditor",
            t.projects_role_auditor(),
            true,
        )],
        state: ("ok", t.users_active()),
        suspended: false,
        may_change: true,
        password_href: "/users/0199f0a3-6c1e-7d40/password".into(),
        facts: vec![(t.users_role(), t.me_role_user().into())],
        limits: vec![
            user::LimitRow::plain((t.users_limit_gpus(), t.gpu_no_limit().into())),
            user::LimitRow {
                raise: "/allowances?subject=mina&key=sessions".into(),
                ..user::LimitRow::plain((t.policies_sessions(), t.common_of_two("3", "8")))
            },
        ],
        policy_href: "/policies/new?subject=user:mina".into(),
        live: vec![user::UserSessionRow {
            href: "/sessions/x".into(),
            name: "vit-ablation".into(),
            tone: "ok",
            state: t.state_running(),
            asked: t.gpu_wanted("0.35"),
            since: t.common_ago("3 min"),
        }],
        more: 4,
        sessions_href: "/sessions?q=owner%3Amina".into(),
        events_href: "/events?q=user%3Amina".into(),
        expires: "2026-12-31".into(),
        networks: "10.1.0.0/16".into(),
        generation: "3".into(),
        sign_ins: signed_in(t),
        link_href: "/users/0199f0a3-6c1e-7d40/sign-in-link".into(),
        view: charted(t),
        ranges: history::ranges(t, "user:mina", Default::default()),
        csv: "/history/export?of=user%3Amina".into(),
    }
}

fn signed_in(t: Text) -> Vec<SignInRow> {
    let row = |own: bool| SignInRow {
        source: "10.1.4.20".into(),
        browser: "Firefox, Windows".into(),
        since: "21 Nov 14:02".into(),
        used: t.common_ago("3 min"),
        own,
        end: match own {
            true => String::new(),
            false => "/me/sign-ins/x/end".into(),
        },
    };
    vec![row(true), row(false)]
}

pub(super) fn settings_page(t: Text) -> settings::SettingsPage {
    let standing = |key, value: &str, waiting: Option<&str>| SettingStanding {
        key,
        variable: "FARDEL_X",
        needs_restart: true,
        value: Some(value.into()),
        default: None,
        waiting: waiting.map(|value| Some(value.into())),
        source: Some("/etc/fardel/conf.d/20-site.toml".into()),
        may_change: key != "listen",
        undo: (key == "gpu_each").then(|| "\"2\"".into()),
    };
    let all = [
        standing("listen", "0.0.0.0:7860", None),
        standing("gpu_each", "4", Some("8")),
        standing("gpu_mode", "hard", None),
    ];
    let refusal = rules::refusals::setting_value_no_count();
    let f = layout(t, Nav::System, false);
    settings::page(
        f,
        &all,
        &Default::default(),
        Some(("gpu_each", "x", &refusal)),
        "/etc/fardel/fardel.toml".into(),
    )
}

pub(super) fn system(t: Text, tab: system::SystemTab, well: bool) -> SystemPage {
    const FOUND: &str = "The newest backup is of 2026-11-18T02:00:00Z; one is due every 24 hours.";
    let line = |id: &str, state: &str, fix: &str| {
        let check = Diagnostic {
            id: id.into(),
            state: state.into(),
            found: FOUND.into(),
            fix: fix.into(),
        };
        attention::check(t, &check)
    };
    let backup = |day: u8| system::BackupLine {
        name: format!("fardel-202611{day}T020000Z.backup"),
        made: format!("{day} Nov 02:00"),
        size: "150.7 MiB".into(),
    };
    SystemPage {
        t,
        f: layout(t, Nav::System, false),
        alert: (!well).then(|| {
            Alert::bad(t.backups_failed("21 Nov 02:00"))
                .detail("The disk of /mnt/backups is full; no backup was made.")
                .code("disk.full")
        }),
        tab,
        checks: system::Checks {
            unwell: vec![line(
                "backups",
                "warn",
                "fardel backup now says what stands in the way.",
            )],
            well: vec![system::CheckGroup {
                title: t.plan_memory(),
                rows: vec![line("schema", "ok", ""), line("disk", "ok", "")],
            }],
            passed: 2,
            summary: t.system_summary(2, 1, 0),
            made: t.system_made("14:02:11", t.common_now()),
        },
        backups: system::BackupOverview {
            directory: well.then(|| "/mnt/backups/fardel".to_owned()),
            is_scheduled: well,
            files: if well {
                vec![backup(21), backup(20)]
            } else {
                Vec::new()
            },
            plan: t.backups_plan(24, 7, "02:00"),
            form: system::BackupFields {
                directory: "/mnt/backups/fardel".into(),
                every_hours: 24,
                keep: 7,
                has_passphrase: well,
                passphrase_fault: String::new(),
                open: !well,
            },
        },
        members: vec![system::BundleFileRow {
            name: "doctor.json".into(),
            size: "12 KB".into(),
            redacted: t.system_redacted(3),
            text: "{}".into(),
        }],
    }
}
