//! How values of `rules` look in the API's document. The values themselves are written and read by their own
//! `serde` derives; `rules` knows no document, so their schemas stand here. A field or a variant that is
//! added there does not compile until it stands here too.

use std::collections::BTreeMap;

use rules::announcement::AnnouncementLevel;
use rules::blocker::PlacementBlocker;
use rules::calendar::{OnHolidays, WeekDay};
use rules::code_run::{CodeLanguage, ConsoleStream};
use rules::course::CourseState;
use rules::egress::NetworkMode;
use rules::fair_share::QueueOrder;
use rules::folder::{FolderKind, FolderState, MountAccess};
use rules::folder_path::FolderEntryKind;
use rules::folder_rights::FolderRight;
use rules::folder_snapshot::{SnapshotOrigin, SnapshotState};
use rules::grants::GrantRole;
use rules::idleness::{IdleAction, IdleLevel, IdleMatch};
use rules::image::CatalogImage;
use rules::image_limits::ImageLimits;
use rules::messages::DeviceUse;
use rules::placement::explain::{
    Alternative, DeviceRoom, Eta, LikelyOutlook, NodeRoom, PlacementCheck, ReplicaStarts,
};
use rules::placement::{Explanation, Verdict};
use rules::policy::{BackfillMode, PreemptionMode, SharePolicy, Spreading};
use rules::quota::{PolicyLevel, TenantLevel};
use rules::reason::Reason;
use rules::reservation::{BeforeReservation, ReservationState};
use rules::resources::{Demand, DeviceShare};
use rules::self_test::{Statement, TestFinding};
use rules::session::{DesiredState, Outcome, SessionKind, SessionState};
use rules::storage::{StorageEnforcement, StorageLevel};
use rules::tenancy::TenantState;
use rules::users::{Role, User};
use rules::volume::VolumeState;
use utoipa::ToSchema;

/// The schema of a structure of `rules`, under the name that it has in the document.
macro_rules! structure {
    ($(#[$meta:meta])* $shape:ident as $name:ident of $value:ident {
        $($(#[$about:meta])* $field:ident: $kind:ty,)*
    } $(without $($left:ident),+)?) => {
        $(#[$meta])*
        #[derive(ToSchema)]
        #[schema(as = $name)]
        #[allow(dead_code, reason = "read by the derive, never made")]
        pub(crate) struct $shape {
            $($(#[$about])* $field: $kind,)*
        }

        impl $shape {
            /// Names every field, so that a new one is not forgotten; those after `without` are in no answer.
            #[allow(dead_code, reason = "compiled, never called")]
            fn names_all($value { $($field: _,)* $($($left: _,)+)? }: $value) {}
        }
    };
}

/// The schema of an enumeration of `rules` whose variants are words.
macro_rules! words {
    ($(#[$meta:meta])* $shape:ident as $name:ident of $value:ident { $($variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(ToSchema)]
        #[schema(as = $name, rename_all = "lowercase")]
        #[allow(dead_code, reason = "read by the derive, never made")]
        pub(crate) enum $shape {
            $($variant,)*
        }

        impl $shape {
            /// Names every variant, so that a new one is not forgotten.
            #[allow(dead_code, reason = "compiled, never called")]
            fn names_all(value: $value) {
                match value {
                    $($value::$variant => {})*
                }
            }
        }
    };
}

words! {
    /// What lies below a folder, by sort; `other` is a pipe, a socket or a device.
    FolderEntryKindShape as FolderEntryKind of FolderEntryKind {
        Directory,
        File,
        Link,
        Other,
    }
}

words! {
    FolderKindShape as FolderKind of FolderKind {
        General,
        Home,
    }
}

words! {
    VolumeStateShape as VolumeState of VolumeState {
        Ready,
        Absent,
        Hung,
        ReadOnly,
    }
}

words! {
    FolderRightShape as FolderRight of FolderRight {
        Ro,
        Rw,
        Rwd,
    }
}

words! {
    MountAccessShape as MountAccess of MountAccess {
        Ro,
        Rw,
    }
}

words! {
    CodeLanguageShape as CodeLanguage of CodeLanguage {
        Python,
        R,
        Shell,
    }
}

words! {
    ConsoleStreamShape as ConsoleStream of ConsoleStream {
        Stdout,
        Stderr,
        Media,
    }
}

words! {
    FolderStateShape as FolderState of FolderState {
        Ready,
        Copying,
        Transferring,
        Trashed,
        Purging,
    }
}

words! {
    SnapshotOriginShape as SnapshotOrigin of SnapshotOrigin {
        Hand,
        Hourly,
        Daily,
        Weekly,
    }
}

words! {
    SnapshotStateShape as SnapshotState of SnapshotState {
        Making,
        Ready,
        Removing,
    }
}

words! {
    StorageEnforcementShape as StorageEnforcement of StorageEnforcement {
        Native,
        Pool,
        Image,
        Counted,
    }
}

words! {
    StorageLevelShape as StorageLevel of StorageLevel {
        Free,
        Near,
        Close,
        Full,
    }
}

words! {
    StateShape as State of SessionState {
        Pending,
        Scheduled,
        Preparing,
        Running,
        Stopping,
        Ended,
    }
}

words! {
    /// What its owner wants of it.
    DesiredStateShape as DesiredState of DesiredState {
        Run,
        Stop,
        Kill,
    }
}

words! {
    NetworkModeShape as NetworkMode of NetworkMode {
        None,
        List,
        Proxy,
    }
}

words! {
    KindShape as Kind of SessionKind {
        Interactive,
        Batch,
    }
}

words! {
    OutcomeShape as Outcome of Outcome {
        Succeeded,
        Failed,
        Stopped,
        Refused,
        Lost,
    }
}

words! {
    VerdictShape as Verdict of Verdict {
        Now,
        Wait,
        Never,
        Settled,
    }
}

words! {
    SpreadingShape as Spreading of Spreading {
        Pack,
        Spread,
        RoundRobin,
    }
}

words! {
    OnHolidaysShape as OnHolidays of OnHolidays {
        Yes,
        No,
        Only,
    }
}

words! {
    PreemptionShape as Preemption of PreemptionMode {
        Off,
        Priority,
    }
}

words! {
    RoleShape as Role of Role {
        User,
        Administrator,
    }
}

structure! {
    /// What a session has: cores and devices with at most two decimals, bytes.
    ResourcesShape as Resources of Demand {
        cpu: f64,
        memory: u64,
        shm: u64,
        /// Bytes that it may write outside its folders; absent where nothing bounds that.
        #[schema(required = false)]
        disk: Option<u64>,
        /// 2.5 is two whole devices and half of a third.
        gpu: f64,
        /// Bytes; absent where the fraction has the same part of its card's memory.
        #[schema(required = false)]
        gpu_memory: Option<u64>,
        #[schema(required = false)]
        mig: Option<String>,
    }
}

structure! {
    /// A share of one device, in hundredths.
    DeviceShareShape as DeviceShare of DeviceShare {
        index: u32,
        share: f64,
        memory: u64,
        /// Number of the partition, where one was given.
        #[schema(required = false)]
        part: Option<u32>,
        /// The device does not exist.
        simulated: bool,
    }
}

structure! {
    /// The administrator's rules for shares of devices.
    SharePolicyShape as SharePolicy of SharePolicy {
        /// How many units one whole device counts as.
        units: u32,
        least: f64,
        step: f64,
        spreading: SpreadingShape,
        /// The most that one user holds at once.
        each: Option<f64>,
        order: QueueOrderShape,
    } without backfill
}

structure! {
    /// What a device is doing for all processes; null where unknown.
    GpuDoingShape as GpuDoing of DeviceUse {
        device: u32,
        /// Bytes in use, the driver's own included.
        memory: Option<u64>,
        /// Per cent of the time in which something ran.
        busy_percent: Option<u32>,
        celsius: Option<u32>,
        milliwatts: Option<u32>,
    }
}

structure! {
    SelfTestStatementShape as SelfTestStatement of Statement {
        /// 1
        version: u32,
        passed: bool,
        device: String,
        model: String,
        memory: u64,
        machine: String,
        driver: String,
        fardel: String,
        installation_id: String,
        by: String,
        #[schema(format = DateTime)]
        began_at: String,
        #[schema(format = DateTime)]
        ended_at: String,
        findings: Vec<SelfTestFindingShape>,
    }
}

structure! {
    /// One part of a self-test.
    SelfTestFindingShape as SelfTestFinding of TestFinding {
        /// `memory`, `way`, `control`, `cards`, `launch`, `share`, `neighbour` or `trespass`.
        code: String,
        /// Which one of them; empty where there is one only.
        subject: String,
        measured: String,
        wanted: String,
        /// `held` or `failed`.
        verdict: String,
    }
}

structure! {
    /// Why something is as it is.
    ReasonShape as Reason of Reason {
        /// Stable, dotted.
        code: String,
        /// One English sentence.
        text: String,
        #[schema(required = false)]
        params: BTreeMap<String, String>,
    }
}

structure! {
    /// The one answer to "would it start?" and "why is it waiting?".
    ExplanationShape as Explanation of Explanation {
        verdict: VerdictShape,
        /// One English sentence that says it all.
        sentence: String,
        eta: Option<EtaShape>,
        /// When it starts and why then, or why no time is known; null where it does not wait.
        #[schema(required = false)]
        outlook: Option<ReasonShape>,
        /// When it likely starts, by what ended sessions of its domain took; null where too little is known. Not guaranteed.
        #[schema(required = false)]
        likely: Option<LikelyOutlookShape>,
        /// Of a request for several replicas: how many start now.
        #[schema(required = false)]
        replicas: Option<ReplicaStartsShape>,
        /// Where it would go, or is.
        node: Option<String>,
        devices: Vec<DeviceShareShape>,
        reason: Option<ReasonShape>,
        /// 1 is next; null where it waits for no room: it is held, or waits for a time or another session.
        queue_position: Option<u32>,
        blockers: Vec<BlockerShape>,
        checks: Vec<CheckShape>,
        alternatives: Vec<AlternativeShape>,
        rooms: Vec<RoomShape>,
        /// Devices here do not exist: sessions get none, also where a share is listed.
        simulated: bool,
    }
}

structure! {
    /// How many replicas of one request start now.
    ReplicaStartsShape as ReplicaStarts of ReplicaStarts {
        now: u32,
        wait: u32,
    }
}

structure! {
    /// When a waiting session likely starts, by what ended sessions took.
    LikelyOutlookShape as LikelyOutlook of LikelyOutlook {
        /// As often before as after.
        #[schema(format = DateTime)]
        at: String,
        seconds: u64,
        /// By then it mostly has started; null where that is not known.
        #[schema(format = DateTime)]
        late: Option<String>,
        late_seconds: Option<u64>,
        /// What it rests on, one English sentence.
        basis: String,
    }
}

structure! {
    /// When a waiting session would start.
    EtaShape as Eta of Eta {
        p50_seconds: u64,
        p90_seconds: u64,
        basis: String,
        #[schema(format = DateTime)]
        at: String,
    }
}

structure! {
    /// Why a session has no place yet.
    BlockerShape as Blocker of PlacementBlocker {
        code: String,
        text: String,
        #[schema(required = false)]
        params: BTreeMap<String, String>,
        /// The session whose end would remove it.
        #[schema(required = false)]
        ends_with: Option<String>,
    }
}

structure! {
    /// One thing that was checked, before and after.
    CheckShape as Check of PlacementCheck {
        code: String,
        #[schema(required = false)]
        device: Option<u32>,
        before: String,
        after: String,
        limit: String,
        ok: bool,
    }
}

structure! {
    /// A nearby request with another answer.
    AlternativeShape as Alternative of Alternative {
        demand: ResourcesShape,
        verdict: VerdictShape,
        text: String,
        /// Why no more of what is free is offered: an earlier session has it reserved.
        #[schema(required = false)]
        because: Option<BlockerShape>,
    }
}

structure! {
    /// How full one machine is.
    RoomShape as Room of NodeRoom {
        node: String,
        name: String,
        cpu: f64,
        cpu_used: f64,
        memory: u64,
        memory_used: u64,
        /// What is free of each device.
        devices: Vec<DeviceRoomShape>,
        chosen: bool,
    }
}

structure! {
    DeviceRoomShape as DeviceRoom of DeviceRoom {
        index: u32,
        /// 0 where it takes no new sessions.
        free: f64,
        free_memory: u64,
    }
}

words! {
    /// A role on a scope: `member`, `viewer` and `lead` of a project; `auditor` and `administrator` of a domain or the site.
    GrantRoleShape as GrantRole of GrantRole {
        Member,
        Viewer,
        Lead,
        Auditor,
        Administrator,
    }
}

words! {
    /// How much an announcement matters.
    AnnouncementLevelShape as AnnouncementLevel of AnnouncementLevel {
        Info,
        Warning,
    }
}

words! {
    /// Which sessions may start before one that waits for room: those that take nothing it could get, or also those whose
    /// time limit leaves the first one that waits its latest start.
    BackfillModeShape as BackfillMode of BackfillMode {
        Strict,
        Timed,
    }
}

words! {
    /// A day of the week.
    WeekDayShape as WeekDay of WeekDay {
        Mon,
        Tue,
        Wed,
        Thu,
        Fri,
        Sat,
        Sun,
    }
}

words! {
    /// In which order waiting sessions are looked at.
    QueueOrderShape as QueueOrder of QueueOrder {
        Turns,
        Fifo,
        Lifo,
        Drf,
        Fair,
    }
}

words! {
    /// Whose weight or allowance it is, the widest first.
    TenantLevelShape as TenantLevel of TenantLevel {
        Domain,
        Project,
        User,
    }
}

words! {
    /// What a policy is attached to, the widest first; `member` is each member of a project.
    PolicyLevelShape as PolicyLevel of PolicyLevel {
        Site,
        Domain,
        Project,
        Member,
        User,
    }
}

words! {
    /// An archived project starts no session.
    TenantStateShape as TenantState of TenantState {
        Active,
        Archived,
    }
}

structure! {
    /// A user.
    UserShape as User of User {
        #[schema(format = Uuid)]
        id: String,
        name: String,
        /// What people call them; empty where nobody said.
        full_name: String,
        /// Signs in as the name does.
        email: Option<String>,
        /// The password is an initial one: the user sets their own before anything else.
        must_change_password: bool,
        /// Signs in with a code beside the password.
        second_factor: bool,
        role: RoleShape,
        /// `en`, `ko`, or empty for what the browser asks.
        language: String,
        /// `light`, `dark` or `system`.
        theme: String,
        /// IANA name; empty means UTC.
        time_zone: String,
        suspended: bool,
        /// Networks that they may come from, such as `10.1.0.0/16`; none: everywhere.
        networks: Vec<String>,
        /// The account is removed from then on, once its last session is over; null: it stays.
        #[schema(format = DateTime)]
        departs_at: Option<String>,
        /// The account ends then: it is suspended, and its sessions are stopped; null: it has no end.
        #[schema(format = DateTime)]
        expires_at: Option<String>,
        /// When they last signed in; null: never, or before it was kept. It makes no version.
        #[schema(format = DateTime)]
        signed_in_at: Option<String>,
        #[schema(format = DateTime)]
        created_at: String,
        /// Version, and ETag.
        generation: u64,
    } without domain, grants, source, password_set_at
}

structure! {
    /// One imported image.
    ImageShape as Image of CatalogImage {
        #[schema(format = Uuid)]
        id: String,
        /// What users call it: `name:tag`.
        reference: String,
        /// Digest of its configuration, `sha256:…`.
        digest: String,
        /// Bytes.
        size: u64,
        architecture: String,
        #[schema(format = DateTime)]
        created_at: String,
        #[schema(format = DateTime)]
        imported_at: String,
        labels: BTreeMap<String, String>,
        /// What it runs by itself: entry point, then default arguments.
        entrypoint: Vec<String>,
        command: Vec<String>,
        env: Vec<String>,
        user: String,
        working_directory: String,
        stop_signal: String,
        generation: u64,
        /// Who made it of a session; null for an imported one.
        #[schema(format = Uuid)]
        owner: Option<String>,
        /// Whether users of its domain beside the owner see it.
        shared: bool,
        limits: ImageLimitsShape,
        /// An administrator gave the limits; else its labels say them.
        limits_set: bool,
    } without domain
}

structure! {
    /// What each container of a session of an image may ask for; null: no bound.
    ImageLimitsShape as ImageLimits of ImageLimits {
        /// Cores.
        min_cpu: Option<f64>,
        max_cpu: Option<f64>,
        /// Bytes.
        min_memory: Option<u64>,
        max_memory: Option<u64>,
        /// Devices.
        min_gpu: Option<f64>,
        /// 0: it takes none.
        max_gpu: Option<f64>,
        /// Bytes of /dev/shm where a launch names none; never more than the memory of the session.
        shm: Option<u64>,
        /// What processes may have more than is usual, as `memlock=unlimited,stack=64m`, where a launch says nothing of it;
        /// empty: nothing.
        ulimits: String,
    }
}

/// `unknown`, `well`, `worn` or `failing`, the last two with a sentence.
#[derive(ToSchema)]
#[schema(as = GpuHealth)]
#[allow(dead_code, reason = "read by the derive, never made")]
pub(crate) struct GpuHealthShape {
    state: String,
    #[schema(required = false)]
    text: Option<String>,
}

words! {
    /// Whose sessions an idle rule judges, the widest first.
    IdleLevelShape as IdleLevel of IdleLevel {
        Site,
        Domain,
        Project,
    }
}

words! {
    /// Whether all measures or any of them must be below their thresholds.
    IdleMatchShape as IdleMatch of IdleMatch {
        All,
        Any,
    }
}

words! {
    /// What happens to an idle session after both warnings: its owner is told, it is stopped, it is paused, or it is stopped
    /// and waits in the queue again, behind all others.
    IdleActionShape as IdleAction of IdleAction {
        Notice,
        Stop,
        Pause,
        Requeue,
    }
}

words! {
    /// What becomes of others on the devices before a reservation begins: they start as ever and are stopped then, or
    /// from a day before only what ends in time starts there.
    BeforeReservationShape as BeforeReservation of BeforeReservation {
        Drain,
        Fit,
    }
}

words! {
    /// How far a course is.
    CourseStateShape as CourseState of CourseState {
        Draft,
        Open,
        Running,
        Closed,
        Archived,
    }
}

words! {
    /// How far one time of a reservation is.
    ReservationStateShape as ReservationState of ReservationState {
        Asked,
        Booked,
        Warned,
        Active,
        Over,
        Cancelled,
        Released,
        Refused,
        Expired,
    }
}
