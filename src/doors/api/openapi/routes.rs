//! Every route of the API, one row each. A handler without a row fails the tests, and so does a row
//! without a handler.

use rules::permissions::Permission;

use super::{DocumentedRoute, Needs, SuccessReply};

const READ: Needs = Needs::Verb(Permission::SessionsRead);
const WRITE: Needs = Needs::Verb(Permission::SessionsWrite);
const ENTER: Needs = Needs::Verb(Permission::SessionsEnter);

const ROUTE: DocumentedRoute = DocumentedRoute {
    method: "GET",
    path: "",
    operation: "",
    tag: "sessions",
    summary: "",
    needs: Needs::SignIn,
    query: &[],
    body: None,
    status: 200,
    answer: SuccessReply::Json,
    dry_run: None,
    refusals: &[],
};

const USERS_READ: Needs = Needs::Verb(Permission::UsersRead);
const USERS_WRITE: Needs = Needs::Verb(Permission::UsersWrite);
const IMAGES_READ: Needs = Needs::Verb(Permission::ImagesRead);
const IMAGES_WRITE: Needs = Needs::Verb(Permission::ImagesWrite);
const PROJECTS_READ: Needs = Needs::Verb(Permission::ProjectsRead);
const PROJECTS_WRITE: Needs = Needs::Verb(Permission::ProjectsWrite);
const ME: Needs = Needs::Verb(Permission::Me);
const AUDIT: Needs = Needs::Verb(Permission::AuditRead);
const SYSTEM: Needs = Needs::Verb(Permission::SystemRead);
const SYSTEM_WRITE: Needs = Needs::Verb(Permission::SystemWrite);

const SESSION: SuccessReply = SuccessReply::Schema("Session");

/// The routes, in the order of the document.
pub const ROUTES: &[DocumentedRoute] = &[
    DocumentedRoute {
        path: "/api/v1/sessions",
        operation: "listSessions",
        summary: "List sessions",
        needs: READ,
        query: &[
            (
                "q",
                "state:running outcome:failed owner:mina project:vision image:host name:vit label:team=vision kind:batch replicas:ID, or words",
            ),
            (
                "sort",
                "created_at, started_at, ended_at or name; a minus in front turns it round",
            ),
            ("limit", "1 to 500, 50 when left out"),
            ("cursor", "from the page before"),
            ("scope", "mine or all"),
        ],
        answer: SuccessReply::Schema("SessionPage"),
        refusals: &[400, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions",
        operation: "launch",
        summary: "Launch one session or several replicas",
        needs: WRITE,
        query: &[("dry_run", "true: explain what would happen, make nothing")],
        body: Some("LaunchRequest"),
        status: 201,
        answer: SuccessReply::Either("Session", "SessionPage"),
        dry_run: Some(SuccessReply::Schema("Explanation")),
        refusals: &[400, 404, 409, 413, 422, 429, 503],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}",
        operation: "getSession",
        summary: "Show one session",
        needs: READ,
        query: &[
            ("wait", "running or ended: answer when it is there"),
            ("patience", "seconds to wait, at most 60"),
        ],
        answer: SESSION,
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/sessions/{id}",
        operation: "changeSession",
        summary: "Change name, labels or limits",
        needs: WRITE,
        body: Some("SessionPatch"),
        answer: SESSION,
        refusals: &[400, 404, 409, 412, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/sessions/{id}",
        operation: "deleteSession",
        summary: "Remove an ended session and its log",
        needs: WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/stop",
        operation: "stopSession",
        summary: "End a session: TERM, then KILL",
        needs: WRITE,
        body: Some("StopRequest"),
        answer: SESSION,
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/kill",
        operation: "killSession",
        summary: "End a session at once",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/restart",
        operation: "restartSession",
        summary: "Restart a session",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/pause",
        operation: "pauseSession",
        summary: "Freeze a session",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/keep",
        operation: "keepSession",
        summary: "Keep a session that was warned of being idle",
        needs: WRITE,
        answer: SuccessReply::Schema("SessionIdle"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/resume",
        operation: "resumeSession",
        summary: "Let a frozen session go on",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/hold",
        operation: "holdSession",
        summary: "Keep a waiting session from starting",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/release",
        operation: "releaseSession",
        summary: "Queue a session that is on hold, behind all who wait",
        needs: WRITE,
        answer: SESSION,
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sessions/{id}/duplicate",
        operation: "duplicateSession",
        summary: "The request that would make another one like it",
        needs: READ,
        answer: SuccessReply::Schema("LaunchRequest"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/why",
        operation: "explainSession",
        summary: "Why it waits, runs where it runs, or ended",
        needs: READ,
        answer: SuccessReply::Schema("Explanation"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/events",
        operation: "listSessionEvents",
        summary: "What happened to a session",
        needs: READ,
        answer: SuccessReply::Schema("EventPage"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/logs",
        operation: "readLog",
        tag: "streams",
        summary: "What a session wrote",
        needs: READ,
        query: &[
            ("since", "first byte wanted"),
            ("follow", "1: stay until the session is over"),
        ],
        answer: SuccessReply::Text,
        refusals: &[400, 404, 409, 429],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/attach",
        operation: "attach",
        tag: "streams",
        summary: "The terminal of the main process",
        needs: ENTER,
        query: &[("cols", "columns"), ("rows", "rows")],
        status: 101,
        answer: SuccessReply::Socket("v1.term"),
        refusals: &[404, 409, 422, 426],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/exec",
        operation: "exec",
        tag: "streams",
        summary: "Run a command inside",
        needs: ENTER,
        query: &[
            ("command", "program, then arguments, one each"),
            ("env", "NAME=VALUE, several times"),
            ("cwd", "directory to start in"),
            ("user", "name, or uid[:gid]"),
            ("cols", "columns; with rows: gives it a terminal"),
            ("rows", "rows"),
        ],
        status: 101,
        answer: SuccessReply::Socket("v1.term"),
        refusals: &[404, 409, 413, 422, 426],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/ports/{port}",
        operation: "openPort",
        tag: "streams",
        summary: "A TCP connection to a port inside",
        needs: ENTER,
        status: 101,
        answer: SuccessReply::Socket("v1.tcp"),
        refusals: &[404, 409, 422, 426],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/queue",
        operation: "listQueue",
        summary: "What waits, in the order it will start, and why; 200 a page",
        needs: READ,
        query: &[("cursor", "from next_cursor")],
        answer: SuccessReply::Schema("WaitingPage"),
        refusals: &[422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/sessions/{id}/metrics",
        operation: "listSamples",
        summary: "Processor and memory use over time",
        needs: READ,
        query: &[("since", "RFC 3339; only what is later")],
        answer: SuccessReply::Schema("SamplePage"),
        refusals: &[400, 404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/gpus",
        operation: "listGpus",
        tag: "gpus",
        summary: "List devices with the slices of all users",
        needs: READ,
        answer: SuccessReply::Schema("Gpus"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/history",
        operation: "getHistory",
        tag: "gpus",
        summary: "What was given and used over an hour to a month",
        needs: READ,
        query: &[
            ("of", "site, me, gpu:ID or user:NAME; site when left out"),
            ("range", "hour, day, week or month; day when left out"),
        ],
        answer: SuccessReply::SchemaOrCsv("History"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/usage",
        operation: "getUsage",
        tag: "users",
        summary: "What users, projects or domains used over a time",
        needs: READ,
        query: &[
            (
                "month",
                "such as 2026-11, by your time zone; the present month when left out",
            ),
            ("from", "a date or RFC 3339, instead of a month"),
            (
                "until",
                "a date or RFC 3339, left out itself; the present when left out",
            ),
            ("by", "user, project, domain or member; user when left out"),
        ],
        answer: SuccessReply::SchemaOrCsv("Usage"),
        refusals: &[422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/gpus/{id}",
        operation: "getGpu",
        tag: "gpus",
        summary: "Show one device, by its name or index",
        needs: READ,
        answer: SuccessReply::Schema("Gpu"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/gpus/{id}/cordon",
        operation: "cordonGpu",
        tag: "gpus",
        summary: "Cordon a device",
        needs: SYSTEM_WRITE,
        body: Some("CordonRequest"),
        answer: SuccessReply::Schema("Gpu"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/gpus/{id}/uncordon",
        operation: "uncordonGpu",
        tag: "gpus",
        summary: "Let a device take new slices again",
        needs: SYSTEM_WRITE,
        answer: SuccessReply::Schema("Gpu"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/gpus/{id}/drain",
        operation: "drainGpu",
        tag: "gpus",
        summary: "Drain a device: end its sessions, take no new ones",
        needs: SYSTEM_WRITE,
        body: Some("DrainRequest"),
        answer: SuccessReply::Schema("Drained"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/gpus/{id}/partitions",
        operation: "partitionGpu",
        tag: "gpus",
        summary: "Divide a device into hardware partitions, or make it whole again",
        needs: SYSTEM_WRITE,
        body: Some("PartitionRequest"),
        answer: SuccessReply::Schema("Repartitioned"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/gpus/{id}/test",
        operation: "testGpu",
        tag: "gpus",
        summary: "Begin the self-test of a card",
        needs: SYSTEM_WRITE,
        body: Some("TestRequest"),
        status: 202,
        answer: SuccessReply::Schema("Operation"),
        refusals: &[400, 404, 409, 422, 503],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/gpus/{id}/self-test-report",
        operation: "getGpuSelfTestReport",
        tag: "gpus",
        summary: "What the newest self-test of a card found, signed",
        needs: READ,
        answer: SuccessReply::Schema("SelfTestReport"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/images",
        operation: "listImages",
        tag: "images",
        summary: "List images",
        needs: IMAGES_READ,
        answer: SuccessReply::Schema("ImagePage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/images/import",
        operation: "importImage",
        tag: "images",
        summary: "Bring in an archive that was uploaded",
        needs: IMAGES_WRITE,
        body: Some("ImportRequest"),
        status: 202,
        answer: SuccessReply::Schema("Operation"),
        refusals: &[400, 404, 409, 422, 503],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/images/{id}",
        operation: "getImage",
        tag: "images",
        summary: "Show one image, by id or reference",
        needs: IMAGES_READ,
        answer: SuccessReply::Schema("Image"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/images/{id}",
        operation: "removeImage",
        tag: "images",
        summary: "Remove an image that no live session uses",
        needs: IMAGES_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/operations",
        operation: "listOperations",
        tag: "images",
        summary: "List long work, newest first",
        needs: IMAGES_READ,
        answer: SuccessReply::Schema("OperationPage"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/operations/{id}",
        operation: "getOperation",
        tag: "images",
        summary: "Show one piece of long work",
        needs: IMAGES_READ,
        answer: SuccessReply::Schema("Operation"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/operations/{id}/cancel",
        operation: "cancelOperation",
        tag: "images",
        summary: "Call long work off; what it did is undone",
        needs: IMAGES_WRITE,
        answer: SuccessReply::Schema("Operation"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/uploads",
        operation: "listUploads",
        tag: "images",
        summary: "List your uploads under way",
        needs: IMAGES_WRITE,
        answer: SuccessReply::Schema("UploadPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "OPTIONS",
        path: "/api/v1/uploads",
        operation: "describeUploads",
        tag: "images",
        summary: "What this server knows of tus",
        needs: Needs::Nothing,
        status: 204,
        answer: SuccessReply::Nothing,
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/uploads",
        operation: "createUpload",
        tag: "images",
        summary: "Begin an upload (tus 1.0.0)",
        needs: IMAGES_WRITE,
        status: 201,
        answer: SuccessReply::Schema("Upload"),
        refusals: &[400, 409, 412, 413, 422, 429, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "HEAD",
        path: "/api/v1/uploads/{id}",
        operation: "getUpload",
        tag: "images",
        summary: "How far an upload is (tus 1.0.0)",
        needs: IMAGES_WRITE,
        answer: SuccessReply::Nothing,
        refusals: &[404, 412],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/uploads/{id}",
        operation: "appendUpload",
        tag: "images",
        summary: "Send a piece of an upload (tus 1.0.0)",
        needs: IMAGES_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[400, 404, 409, 412, 413, 415, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/uploads/{id}",
        operation: "abortUpload",
        tag: "images",
        summary: "Call an upload off (tus 1.0.0)",
        needs: IMAGES_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409, 412],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/users",
        operation: "listUsers",
        tag: "users",
        summary: "List users",
        needs: USERS_READ,
        answer: SuccessReply::Schema("UserPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/users",
        operation: "createUser",
        tag: "users",
        summary: "Add a user",
        needs: USERS_WRITE,
        body: Some("NewUser"),
        status: 201,
        answer: SuccessReply::Schema("User"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/users/{id}",
        operation: "getUser",
        tag: "users",
        summary: "Show one user",
        needs: USERS_READ,
        answer: SuccessReply::Schema("User"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/users/{id}",
        operation: "changeUser",
        tag: "users",
        summary: "Change a user's role, full name or e-mail address (needs If-Match)",
        needs: USERS_WRITE,
        body: Some("UserPatch"),
        answer: SuccessReply::Schema("User"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/users/{id}/password",
        operation: "setPassword",
        tag: "users",
        summary: "Set a user's password; ends their sign-ins and revokes their tokens",
        needs: USERS_WRITE,
        body: Some("NewPassword"),
        answer: SuccessReply::Schema("User"),
        refusals: &[400, 404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/users/{id}/suspend",
        operation: "suspendUser",
        tag: "users",
        summary: "Suspend a user, or admit them again",
        needs: USERS_WRITE,
        body: Some("SuspendRequest"),
        answer: SuccessReply::Schema("User"),
        refusals: &[400, 404, 409, 412],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/users/{id}/depart",
        operation: "departUser",
        tag: "users",
        summary: "Remove a user with their sessions, sign-ins and tokens",
        needs: USERS_WRITE,
        query: &[("dry_run", "true: answer what it would end, change nothing")],
        body: Some("DepartureRequest"),
        answer: SuccessReply::Schema("Departure"),
        dry_run: Some(SuccessReply::Schema("Departure")),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/users/{id}",
        operation: "removeUser",
        tag: "users",
        summary: "Remove a user who owns nothing any more",
        needs: USERS_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409, 412],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/users/{id}/grants",
        operation: "listGrants",
        tag: "tenancy",
        summary: "List a user's roles",
        needs: USERS_READ,
        answer: SuccessReply::Schema("RoleGrantPage"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PUT",
        path: "/api/v1/users/{id}/grants",
        operation: "putGrant",
        tag: "tenancy",
        summary: "Give a user a role on a domain or the whole site",
        needs: USERS_WRITE,
        body: Some("NewGrant"),
        answer: SuccessReply::Schema("RoleGrantPage"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/users/{id}/grants",
        operation: "revokeGrant",
        tag: "tenancy",
        summary: "Take a role away",
        needs: USERS_WRITE,
        query: &[
            ("role", "auditor or administrator"),
            ("domain", "name of the domain; left out: the whole site"),
        ],
        answer: SuccessReply::Schema("RoleGrantPage"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/domains",
        operation: "listDomains",
        tag: "tenancy",
        summary: "List domains",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("DomainPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/domains",
        operation: "createDomain",
        tag: "tenancy",
        summary: "Make a domain with a project called default",
        needs: PROJECTS_WRITE,
        body: Some("NewDomain"),
        status: 201,
        answer: SuccessReply::Schema("Domain"),
        refusals: &[400, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/domains/{id}",
        operation: "getDomain",
        tag: "tenancy",
        summary: "Show one domain",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("Domain"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/domains/{id}",
        operation: "changeDomain",
        tag: "tenancy",
        summary: "Change a domain's title (needs If-Match)",
        needs: PROJECTS_WRITE,
        body: Some("DomainPatch"),
        answer: SuccessReply::Schema("Domain"),
        refusals: &[400, 404, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/rosters",
        operation: "listRosters",
        tag: "tenancy",
        summary: "List rosters that were applied",
        needs: PROJECTS_WRITE,
        answer: SuccessReply::Schema("RosterPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/rosters",
        operation: "applyRoster",
        tag: "tenancy",
        summary: "Plan a roster of users, or apply it as planned",
        needs: PROJECTS_WRITE,
        query: &[
            ("project", "of rows that name none"),
            ("dry_run", "true: answer the plan, change nothing"),
            ("digest", "of the plan that is applied"),
        ],
        status: 201,
        answer: SuccessReply::Schema("AppliedRoster"),
        dry_run: Some(SuccessReply::Schema("RosterPlan")),
        refusals: &[400, 409, 412, 413, 415, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/rosters/{id}/undo",
        operation: "undoRoster",
        tag: "tenancy",
        summary: "Undo a roster whose users have not signed in",
        needs: PROJECTS_WRITE,
        answer: SuccessReply::Schema("Roster"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/projects",
        operation: "listProjects",
        tag: "tenancy",
        summary: "List projects",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("ProjectPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/projects",
        operation: "createProject",
        tag: "tenancy",
        summary: "Make a project",
        needs: PROJECTS_WRITE,
        body: Some("NewProject"),
        status: 201,
        answer: SuccessReply::Schema("Project"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/projects/{id}",
        operation: "getProject",
        tag: "tenancy",
        summary: "Show one project",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("Project"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/projects/{id}",
        operation: "changeProject",
        tag: "tenancy",
        summary: "Change a title, archive a project or restore it (needs If-Match)",
        needs: PROJECTS_WRITE,
        body: Some("ProjectPatch"),
        answer: SuccessReply::Schema("Project"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/projects/{id}/members",
        operation: "listMembers",
        tag: "tenancy",
        summary: "List the members of a project",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("MemberPage"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PUT",
        path: "/api/v1/projects/{id}/members/{user}",
        operation: "putMember",
        tag: "tenancy",
        summary: "Make a user a member, or give a member another role",
        needs: PROJECTS_WRITE,
        body: Some("NewMember"),
        answer: SuccessReply::Schema("Member"),
        refusals: &[400, 404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/projects/{id}/members/{user}",
        operation: "removeMember",
        tag: "tenancy",
        summary: "Remove a member",
        needs: PROJECTS_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/projects/{id}/invitations",
        operation: "listInvitations",
        tag: "tenancy",
        summary: "List the open invitations of a project",
        needs: PROJECTS_WRITE,
        answer: SuccessReply::Schema("InvitationPage"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/projects/{id}/invitations",
        operation: "createInvitation",
        tag: "tenancy",
        summary: "Make a link by which accounts join a project",
        needs: PROJECTS_WRITE,
        body: Some("NewInvitation"),
        status: 201,
        answer: SuccessReply::Schema("MadeInvitation"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/projects/{id}/invitations/{invitation}",
        operation: "revokeInvitation",
        tag: "tenancy",
        summary: "Revoke an invitation",
        needs: PROJECTS_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/invitations/accept",
        operation: "acceptInvitation",
        tag: "tenancy",
        summary: "Join the project of an invitation with your own account",
        needs: ME,
        body: Some("InvitationCode"),
        answer: SuccessReply::Schema("Member"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/policies",
        operation: "listPolicies",
        tag: "tenancy",
        summary: "List policies",
        needs: SYSTEM,
        answer: SuccessReply::Schema("PolicyPage"),
        refusals: &[],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/policies",
        operation: "createPolicy",
        tag: "tenancy",
        summary: "Make a policy",
        needs: SYSTEM_WRITE,
        body: Some("NewPolicy"),
        status: 201,
        answer: SuccessReply::Schema("Policy"),
        refusals: &[400, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/policies/{id}",
        operation: "getPolicy",
        tag: "tenancy",
        summary: "Show a policy",
        needs: SYSTEM,
        answer: SuccessReply::Schema("Policy"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/policies/{id}",
        operation: "changePolicy",
        tag: "tenancy",
        summary: "Change the name or the limits of a policy",
        needs: SYSTEM_WRITE,
        body: Some("PolicyPatch"),
        answer: SuccessReply::Schema("Policy"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/policies/{id}",
        operation: "removePolicy",
        tag: "tenancy",
        summary: "Remove a policy that is attached to nothing",
        needs: SYSTEM_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PUT",
        path: "/api/v1/policies/{id}/uses",
        operation: "attachPolicy",
        tag: "tenancy",
        summary: "Attach a policy to the site, a domain, a project, its members or a user",
        needs: SYSTEM_WRITE,
        body: Some("NewPolicyUse"),
        answer: SuccessReply::Schema("Policy"),
        refusals: &[400, 404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/policies/{id}/uses",
        operation: "detachPolicy",
        tag: "tenancy",
        summary: "Detach a policy",
        needs: SYSTEM_WRITE,
        query: &[
            ("level", "site, domain, project, member or user"),
            ("subject", "name or id of the domain, project or user"),
        ],
        answer: SuccessReply::Schema("Policy"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/allowances",
        operation: "listAllowances",
        tag: "tenancy",
        summary: "List limits that are raised for a while",
        needs: SYSTEM,
        answer: SuccessReply::Schema("AllowancePage"),
        refusals: &[],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/allowances",
        operation: "createAllowance",
        tag: "tenancy",
        summary: "Raise limits of a domain, a project or a user until a time",
        needs: SYSTEM_WRITE,
        body: Some("NewAllowance"),
        status: 201,
        answer: SuccessReply::Schema("Allowance"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/allowances/{id}",
        operation: "getAllowance",
        tag: "tenancy",
        summary: "Show an allowance",
        needs: SYSTEM,
        answer: SuccessReply::Schema("Allowance"),
        refusals: &[400, 404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/allowances/{id}",
        operation: "removeAllowance",
        tag: "tenancy",
        summary: "End an allowance before its time",
        needs: SYSTEM_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[400, 404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/idle-rules",
        operation: "listIdleRules",
        tag: "tenancy",
        summary: "List the rules that end idle sessions",
        needs: SYSTEM,
        answer: SuccessReply::Schema("IdleRulePage"),
        refusals: &[],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/idle-rules",
        operation: "createIdleRule",
        tag: "tenancy",
        summary: "Make a rule that ends idle sessions of the site, a domain or a project",
        needs: SYSTEM_WRITE,
        body: Some("NewIdleRule"),
        status: 201,
        answer: SuccessReply::Schema("IdleRule"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/idle-rules/dry-run",
        operation: "tryIdleRule",
        tag: "tenancy",
        summary: "Show what a rule would have done over the samples of the last week",
        needs: SYSTEM,
        body: Some("NewIdleRule"),
        answer: SuccessReply::Schema("IdleDryRun"),
        refusals: &[400, 404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/idle-rules/{id}",
        operation: "getIdleRule",
        tag: "tenancy",
        summary: "Show a rule, by id or name",
        needs: SYSTEM,
        answer: SuccessReply::Schema("IdleRule"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/idle-rules/{id}",
        operation: "changeIdleRule",
        tag: "tenancy",
        summary: "Change a rule; sessions that it warned are warned anew",
        needs: SYSTEM_WRITE,
        body: Some("IdleRulePatch"),
        answer: SuccessReply::Schema("IdleRule"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/idle-rules/{id}",
        operation: "removeIdleRule",
        tag: "tenancy",
        summary: "Remove a rule",
        needs: SYSTEM_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/fair-share",
        operation: "getFairShare",
        tag: "tenancy",
        summary: "Show the order of the queue, weights, and where users stand",
        needs: SYSTEM,
        answer: SuccessReply::Schema("FairShare"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/fair-share",
        operation: "changeFairShare",
        tag: "tenancy",
        summary: "Set the order of the queue, or the half-life of fair share",
        needs: SYSTEM_WRITE,
        body: Some("FairSharePatch"),
        answer: SuccessReply::Schema("FairShare"),
        refusals: &[400, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PUT",
        path: "/api/v1/fair-share/weights",
        operation: "setFairWeight",
        tag: "tenancy",
        summary: "Set the weight of a domain, a project or a user",
        needs: SYSTEM_WRITE,
        body: Some("FairWeight"),
        answer: SuccessReply::Schema("FairShare"),
        refusals: &[400, 404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/presets",
        operation: "listPresets",
        tag: "tenancy",
        summary: "List presets: those you see, or those that a launch in a project may name",
        needs: PROJECTS_READ,
        query: &[(
            "project",
            "id, name or DOMAIN/NAME: those that a launch there may name, in their order",
        )],
        answer: SuccessReply::Schema("PresetPage"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/presets",
        operation: "createPreset",
        tag: "tenancy",
        summary: "Make a preset of the site, a domain or a project that you administer or lead",
        needs: PROJECTS_WRITE,
        body: Some("NewPreset"),
        status: 201,
        answer: SuccessReply::Schema("Preset"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/presets/{id}",
        operation: "getPreset",
        tag: "tenancy",
        summary: "Show a preset, by id or name",
        needs: PROJECTS_READ,
        answer: SuccessReply::Schema("Preset"),
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/presets/{id}",
        operation: "changePreset",
        tag: "tenancy",
        summary: "Change a preset; its scope stays",
        needs: PROJECTS_WRITE,
        body: Some("PresetPatch"),
        answer: SuccessReply::Schema("Preset"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/presets/{id}",
        operation: "removePreset",
        tag: "tenancy",
        summary: "Remove a preset",
        needs: PROJECTS_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/announcements",
        operation: "listAnnouncements",
        tag: "system",
        summary: "List all announcements that you manage, also those that are over",
        needs: SYSTEM,
        answer: SuccessReply::Schema("AnnouncementPage"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/announcements/current",
        operation: "listCurrentAnnouncements",
        tag: "system",
        summary: "List the announcements that hold for you now, warnings first",
        needs: ME,
        answer: SuccessReply::Schema("AnnouncementPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/announcements",
        operation: "createAnnouncement",
        tag: "system",
        summary: "Announce something to all users, or to those of a domain (with users:write there)",
        needs: SYSTEM_WRITE,
        body: Some("NewAnnouncement"),
        status: 201,
        answer: SuccessReply::Schema("Announcement"),
        refusals: &[400, 404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/announcements/{id}",
        operation: "getAnnouncement",
        tag: "system",
        summary: "Show an announcement",
        needs: SYSTEM,
        answer: SuccessReply::Schema("Announcement"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/announcements/{id}",
        operation: "changeAnnouncement",
        tag: "system",
        summary: "Change an announcement; its domain stays",
        needs: SYSTEM_WRITE,
        body: Some("AnnouncementPatch"),
        answer: SuccessReply::Schema("Announcement"),
        refusals: &[400, 404, 409, 412, 422, 428],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/announcements/{id}",
        operation: "removeAnnouncement",
        tag: "system",
        summary: "Remove an announcement",
        needs: SYSTEM_WRITE,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/effective-limits",
        operation: "listLimits",
        tag: "tenancy",
        summary: "List the limits that hold for you, or for a user in a project",
        needs: ME,
        query: &[
            ("user", "name or id; yourself when left out"),
            ("project", "name or id; the first of the user when left out"),
        ],
        answer: SuccessReply::Schema("EffectiveLimitPage"),
        refusals: &[404, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/me",
        operation: "getMe",
        tag: "users",
        summary: "Who is calling",
        needs: ME,
        answer: SuccessReply::Schema("User"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "PATCH",
        path: "/api/v1/me",
        operation: "changeMe",
        tag: "users",
        summary: "Set language, theme or time zone",
        needs: ME,
        body: Some("Preferences"),
        answer: SuccessReply::Schema("User"),
        refusals: &[400, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/me/password",
        operation: "changePassword",
        tag: "users",
        summary: "Change your own password",
        needs: ME,
        body: Some("PasswordChange"),
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[400, 422, 429],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/me/tokens",
        operation: "listTokens",
        tag: "users",
        summary: "List your tokens",
        needs: ME,
        answer: SuccessReply::Schema("TokenPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/me/tokens",
        operation: "createToken",
        tag: "users",
        summary: "Make a token; its secret is in this answer only",
        needs: ME,
        body: Some("NewToken"),
        status: 201,
        answer: SuccessReply::Schema("MadeToken"),
        refusals: &[400, 409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/me/tokens/{id}",
        operation: "revokeToken",
        tag: "users",
        summary: "Revoke a token, by id or name",
        needs: ME,
        status: 204,
        answer: SuccessReply::Nothing,
        refusals: &[404, 409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/me/notices",
        operation: "listNotices",
        tag: "users",
        summary: "What you should know of your own sessions, what ends soon first",
        needs: ME,
        answer: SuccessReply::Schema("NoticePage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/me/notices/read",
        operation: "readNotices",
        tag: "users",
        summary: "Mark your notices as read",
        needs: ME,
        status: 204,
        answer: SuccessReply::Nothing,
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/sign-in",
        operation: "signIn",
        tag: "users",
        summary: "Trade name and password for a token",
        needs: Needs::Nothing,
        body: Some("SignInRequest"),
        status: 201,
        answer: SuccessReply::Schema("SignedIn"),
        refusals: &[400, 401, 409, 422, 429],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/setup",
        operation: "setUp",
        tag: "users",
        summary: "Make the first administrator, once",
        needs: Needs::Nothing,
        body: Some("SetupRequest"),
        status: 201,
        answer: SuccessReply::Schema("SignedIn"),
        refusals: &[400, 401, 403, 409, 422, 429],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/setup/link",
        operation: "drawSetupLink",
        tag: "users",
        summary: "Draw the link that makes the first administrator; root on the machine only",
        needs: USERS_WRITE,
        refusals: &[409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/events",
        operation: "followEvents",
        tag: "system",
        summary: "The journal as server-sent events; resumes after Last-Event-ID",
        needs: READ,
        query: &[
            (
                "topics",
                "sessions, images, users, projects, nodes, gpus, operations, system; comma separated",
            ),
            ("since", "number of the last change that is known"),
        ],
        answer: SuccessReply::Events,
        refusals: &[422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/events/search",
        operation: "searchEvents",
        tag: "system",
        summary: "Search the journal, newest first; as text/csv all that is found, at most 10,000 events",
        needs: READ,
        query: &[
            (
                "kind",
                "a topic such as sessions, or a code or its beginning such as session.ended",
            ),
            ("object", "id of a thing, or name of a session"),
            ("user", "who did it, or whose account it is about"),
            ("since", "RFC 3339; from then on"),
            ("until", "RFC 3339; up to then"),
            (
                "q",
                "words; each stands in the code, the object, its name, the user, or the state",
            ),
            ("limit", "1 to 500, 50 when left out"),
            ("cursor", "from the page before"),
        ],
        answer: SuccessReply::SchemaOrCsv("EventSearch"),
        refusals: &[400, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/audit",
        operation: "listAudit",
        tag: "system",
        summary: "Search the audit log, newest first: your own acts, or those of your projects, your domain or the site; as text/csv all that is found, at most 10,000 acts",
        needs: AUDIT,
        query: &[
            ("user", "who acted"),
            (
                "act",
                "an act such as session.stopping, or its beginning such as session",
            ),
            ("object", "id of a thing, or name of a session or a user"),
            ("since", "RFC 3339; from then on"),
            ("until", "RFC 3339; up to then"),
            ("limit", "1 to 500, 50 when left out"),
            ("cursor", "from the page before"),
        ],
        answer: SuccessReply::SchemaOrCsv("AuditPage"),
        refusals: &[400, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/audit/export",
        operation: "exportAudit",
        tag: "system",
        summary: "Take the audit log as JSON lines that verify without this server: what you may read, and digests of the rest",
        needs: AUDIT,
        query: &[
            ("since", "RFC 3339; from then on"),
            ("until", "RFC 3339; up to then"),
        ],
        answer: SuccessReply::File("application/jsonl"),
        refusals: &[400, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/audit/checkpoints",
        operation: "listAuditCheckpoints",
        tag: "system",
        summary: "List the signed checkpoints of the audit log, newest first",
        needs: AUDIT,
        answer: SuccessReply::Schema("AuditCheckpointPage"),
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/audit/checkpoints",
        operation: "signAudit",
        tag: "system",
        summary: "Sign the audit log up to its newest row",
        needs: SYSTEM_WRITE,
        status: 201,
        answer: SuccessReply::Schema("AuditCheckpoint"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/nodes",
        operation: "listNodes",
        tag: "system",
        summary: "List nodes: state, maintenance, what they have and what is held",
        needs: READ,
        answer: SuccessReply::Schema("NodePage"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/nodes/{name}",
        operation: "getNode",
        tag: "system",
        summary: "Show one node, and what its kernel says of it",
        needs: SYSTEM,
        answer: SuccessReply::Schema("NodeDetail"),
        refusals: &[404, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/nodes/{name}/maintenance",
        operation: "setMaintenance",
        tag: "system",
        summary: "Let a node take no new sessions, with a message, or take them again",
        needs: SYSTEM_WRITE,
        body: Some("MaintenanceRequest"),
        answer: SuccessReply::Schema("Node"),
        refusals: &[404, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/overview",
        operation: "getOverview",
        tag: "system",
        summary: "The machine at a glance",
        needs: READ,
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/capabilities",
        operation: "getCapabilities",
        tag: "system",
        summary: "What this server can do",
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/settings",
        operation: "getSettings",
        tag: "system",
        summary: "Every setting: value, default, source, what may be done",
        needs: SYSTEM,
        answer: SuccessReply::Schema("SettingPage"),
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/settings/{key}",
        operation: "getSetting",
        tag: "system",
        summary: "Show one setting",
        needs: SYSTEM,
        answer: SuccessReply::Schema("Setting"),
        refusals: &[422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "PUT",
        path: "/api/v1/settings/{key}",
        operation: "setSetting",
        tag: "system",
        summary: "Set a setting in the settings file, after all sources were checked with it",
        needs: SYSTEM_WRITE,
        query: &[("dry_run", "true: check it, write nothing")],
        body: Some("SettingRequest"),
        answer: SuccessReply::Schema("SettingChange"),
        dry_run: Some(SuccessReply::Schema("SettingChange")),
        refusals: &[409, 422, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "DELETE",
        path: "/api/v1/settings/{key}",
        operation: "unsetSetting",
        tag: "system",
        summary: "Set a setting back to its default",
        needs: SYSTEM_WRITE,
        query: &[("dry_run", "true: check it, write nothing")],
        answer: SuccessReply::Schema("SettingChange"),
        dry_run: Some(SuccessReply::Schema("SettingChange")),
        refusals: &[409, 422, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/settings/{key}/undo",
        operation: "undoSetting",
        tag: "system",
        summary: "Give a setting the value from before its last change here",
        needs: SYSTEM_WRITE,
        query: &[("dry_run", "true: check it, write nothing")],
        answer: SuccessReply::Schema("SettingChange"),
        dry_run: Some(SuccessReply::Schema("SettingChange")),
        refusals: &[409, 422, 503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/settings/reload",
        operation: "reloadSettings",
        tag: "system",
        summary: "Read the settings again; a fault in them changes nothing",
        needs: SYSTEM_WRITE,
        refusals: &[422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/backups",
        operation: "listBackups",
        tag: "system",
        summary: "Backups that the server makes by itself, and what failed last",
        needs: SYSTEM,
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/backups",
        operation: "makeBackup",
        tag: "system",
        summary: "Make a backup now; answers when it was verified",
        needs: SYSTEM_WRITE,
        status: 201,
        refusals: &[409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/backups/{name}",
        operation: "getBackup",
        tag: "system",
        summary: "One backup as a file; only its passphrase opens it",
        needs: SYSTEM_WRITE,
        answer: SuccessReply::File("application/octet-stream"),
        refusals: &[404],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/diagnostics",
        operation: "diagnose",
        tag: "system",
        summary: "Check the machine, as fardel doctor does",
        needs: SYSTEM,
        refusals: &[503],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/support-bundles",
        operation: "makeSupportBundle",
        tag: "system",
        summary: "Logs, checks and states in one file, without secrets",
        needs: SYSTEM_WRITE,
        query: &[("dry_run", "true: show what it would hold, make nothing")],
        answer: SuccessReply::File("application/gzip"),
        dry_run: Some(SuccessReply::Json),
        refusals: &[503],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/findings",
        operation: "listFindings",
        tag: "system",
        summary: "Broken invariants; empty for a sound box",
        needs: SYSTEM,
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/trust",
        operation: "getTrust",
        tag: "system",
        summary: "This machine's own certificate authority, and its fingerprint",
        needs: Needs::Nothing,
        answer: SuccessReply::Schema("Authority"),
        refusals: &[409],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/tls",
        operation: "getTls",
        tag: "system",
        summary: "The certificate that is served",
        needs: SYSTEM,
        answer: SuccessReply::Schema("Tls"),
        refusals: &[409],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/tls/request",
        operation: "requestCertificate",
        tag: "system",
        summary: "Make a key that stays here, and a request for its certificate",
        needs: SYSTEM_WRITE,
        body: Some("CertificateRequest"),
        refusals: &[409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/tls/certificate",
        operation: "importCertificate",
        tag: "system",
        summary: "Serve a site's certificate; one that does not fit changes nothing",
        needs: SYSTEM_WRITE,
        body: Some("CertificateImport"),
        answer: SuccessReply::Schema("Tls"),
        refusals: &[409, 413, 422],
        ..ROUTE
    },
    DocumentedRoute {
        method: "POST",
        path: "/api/v1/tls/reset",
        operation: "resetCertificate",
        tag: "system",
        summary: "Serve this machine's own certificate again, or the site's from before",
        needs: SYSTEM_WRITE,
        body: Some("CertificateReset"),
        answer: SuccessReply::Schema("Tls"),
        refusals: &[409, 422],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/healthz",
        operation: "alive",
        tag: "system",
        summary: "The process lives",
        needs: Needs::Nothing,
        answer: SuccessReply::Text,
        ..ROUTE
    },
    DocumentedRoute {
        path: "/readyz",
        operation: "ready",
        tag: "system",
        summary: "Whether it can do its work, check by check",
        needs: Needs::Nothing,
        refusals: &[503],
        ..ROUTE
    },
    DocumentedRoute {
        path: "/metrics",
        operation: "figures",
        tag: "system",
        summary: "Figures as OpenMetrics text",
        needs: SYSTEM,
        answer: SuccessReply::Figures,
        ..ROUTE
    },
    DocumentedRoute {
        path: "/version",
        operation: "version",
        tag: "system",
        summary: "Name and version",
        needs: Needs::Nothing,
        ..ROUTE
    },
    DocumentedRoute {
        path: "/api/v1/openapi.json",
        operation: "describe",
        tag: "system",
        summary: "This document",
        needs: Needs::Nothing,
        ..ROUTE
    },
];
