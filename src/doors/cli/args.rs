//! The words of the command line: every command, flag and help text. From this one description
//! come parsing, `--help`, manual pages and shell completion. Never talks to a server.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::doors::launch_texts::LaunchTexts;

/// A private AI cloud for one machine, in one file.
///
/// Start a server with `fardel serve`, then run something in it with
/// `fardel run host -- echo hello`. Every other command talks to that server: root on the same
/// machine needs no sign-in, other users sign in once with `fardel login`.
#[derive(Debug, Parser)]
#[command(
    name = "fardel",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 conflict,\n\
                  6 no room or quota, 7 time ran out, 8 server not reachable, 9 partly done, 130 interrupted.\n\
                  `run` and `exec` return the code of what they ran; 125 means that it never ran.\n\n\
                  Settings of the server: /etc/fardel/fardel.toml, or the file that FARDEL_CONFIG names.\n\
                  Learn more: `fardel COMMAND --help`, `fardel man`, or the manual at /docs of the server."
)]
pub struct CommandLine {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command understands.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// How to print: JSON and YAML are exactly what the API answers
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        env = "FARDEL_OUTPUT",
        default_value = "table",
        help_heading = "Global options"
    )]
    pub output: Format,
    /// Server to talk to: https://HOST, http://HOST:PORT, unix:/PATH
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "FARDEL_SERVER",
        help_heading = "Global options"
    )]
    pub server: Option<String>,
    /// Directory of the local server's socket; unset: the one of the data directory (FARDEL_DATA)
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "FARDEL_RUN",
        help_heading = "Global options"
    )]
    pub run: Option<PathBuf>,
    /// File that holds an API token (FARDEL_TOKEN holds the token itself)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FARDEL_TOKEN_FILE",
        help_heading = "Global options"
    )]
    pub token_file: Option<PathBuf>,
    /// File with the CA certificate to trust over HTTPS
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FARDEL_CA",
        help_heading = "Global options"
    )]
    pub ca: Option<PathBuf>,
    /// Columns of tables and CSV, by title: name,state,age
    #[arg(
        long,
        global = true,
        value_name = "NAMES",
        value_delimiter = ',',
        env = "FARDEL_COLUMNS",
        help_heading = "Global options"
    )]
    pub columns: Vec<String>,
    /// Print no colours (NO_COLOR does the same)
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_color: bool,
    /// Print only what scripts need: names and ids, no remarks
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// Print every HTTP call as a curl command on standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub explain: bool,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns fitted to the terminal
    Table,
    /// All columns, however wide
    Wide,
    /// The API's body
    Json,
    /// One JSON object a line
    Jsonl,
    Yaml,
    /// The columns of the table, comma separated
    Csv,
    /// Names only, one a line
    Name,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the server: pages, API, scheduler and this machine's sessions
    ///
    /// Binds 127.0.0.1:7860 unless told otherwise. Ends on SIGTERM without ending any session; the
    /// next server takes them over. Settings come from flags, then from variables, then from the settings file:
    /// /etc/fardel/fardel.toml and conf.d beside it. --config or FARDEL_CONFIG names another file.
    #[command(after_help = "Examples:\n  \
        fardel serve --data /srv/fardel --listen 0.0.0.0:7860\n  \
        fardel serve --simulate-gpus H100:2             two simulated GPUs\n  \
        fardel serve --config ./fardel.toml             another settings file")]
    Serve(Serve),
    /// Run a command or a shell in a new session
    ///
    /// Without -d, prints the output of the session and returns its exit code. Without a command, -it
    /// opens a shell. While the session waits in the queue, it says why, and Ctrl-C takes the session out.
    #[command(after_help = "Examples:\n  \
        fardel run host -- sh -c 'echo hi; exit 7'      prints hi, returns 7\n  \
        fardel run -it host                             a shell on the machine's own programs\n  \
        fardel run -d --name train --cpu 4 --mem 8g python-ml:1.2 -- python3 train.py\n  \
        fardel run --dry-run --cpu 64 host -- true      would it start, and if not, why")]
    Run(RunArguments),
    /// List live sessions (all with -a)
    #[command(visible_alias = "ls")]
    Ps(SessionLs),
    /// Everything about sessions
    #[command(subcommand, visible_alias = "sessions")]
    Session(SessionCommand),
    /// Run a command inside a running session
    #[command(after_help = "Examples:\n  \
        fardel exec train -- nvidia-smi\n  \
        fardel exec -it train                           a shell beside the session's own process")]
    Exec(Exec),
    /// Run code in an interpreter of a session that stays: what it defines is there for the next run
    ///
    /// Standard input is the code where neither -c nor a file is given. Ctrl-C interrupts the run. The exit code is the
    /// run's.
    #[command(after_help = "Examples:\n  \
        fardel code train -c 'x = 41'\n  \
        fardel code train -c 'x + 1'                    prints 42\n  \
        fardel code train plot.py --media pictures      keeps pictures in a directory\n  \
        fardel code train --language shell -c 'cd /tmp'\n  \
        fardel code train --build 'cc a.c' --exec ./a.out\n  \
        fardel code train --restart                     forgets all")]
    Code(CodeArguments),
    /// Print what a session wrote
    Logs(Logs),
    /// Attach to the main process of a session
    Attach(Attach),
    /// End sessions: TERM, ten seconds later KILL
    Stop(Several),
    /// End sessions at once
    Kill(Several),
    /// Keep sessions that were warned of being idle
    Keep(Several),
    /// Remove ended sessions and their logs from the list
    Rm(Removal),
    /// Explain why a session waits, where it was placed, or why it ended
    Why(Named),
    /// Environment images
    #[command(subcommand, visible_alias = "images")]
    Image(ImageCommand),
    /// Environments that come as bundles: import, ls, rm, pack, build
    #[command(subcommand, visible_alias = "environments")]
    Environment(EnvironmentCommand),
    /// Sessions that wait, in the order they will start
    Queue(QueueLs),
    /// GPUs, their slices, cordon, drain, partitions and self-test
    #[command(subcommand, visible_alias = "gpus")]
    Gpu(GpuCommand),
    /// Show the use of the machine and recent events
    Top,
    /// Events: search what happened, follow changes live
    #[command(subcommand, visible_alias = "events")]
    Event(EventCommand),
    /// The audit log: what users did, its export, and the proof that nothing of it was changed
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Your notices: sessions that started, ended, or soon end by their time limit
    Notices {
        /// Mark them as read afterwards
        #[arg(long)]
        read: bool,
    },
    /// Notices by mail: choose kinds, see how mail goes out, test the mail server
    #[command(subcommand)]
    Mail(MailCommand),
    /// Holidays of the site and of domains, for windows and reservations
    #[command(subcommand, visible_alias = "holidays")]
    Holiday(HolidayCommand),
    /// Branding: name, logo, hue and short texts of the site
    #[command(subcommand)]
    Branding(BrandingCommand),
    /// Webhooks: addresses of other programs that are told of events
    #[command(subcommand, visible_alias = "webhooks")]
    Webhook(WebhookCommand),
    /// Nodes: what each has, what its kernel says, maintenance
    #[command(subcommand, visible_alias = "nodes")]
    Node(NodeCommand),
    /// Show what was given and used over an hour to a month
    ///
    /// -o csv prints the file of the console: times in UTC, sizes in bytes.
    #[command(after_help = "Examples:\n  \
        fardel history --range week\n  \
        fardel history --of gpu:0 --range last-week --holders\n  \
        fardel history --of user:mina --range month -o csv > mina.csv")]
    History(HistoryArguments),
    /// Show what users, projects or domains used over a time
    ///
    /// Use is an amount times the time for which sessions held it. -o csv prints the file of the console: exact amounts,
    /// and their total.
    #[command(after_help = "Examples:\n  \
        fardel usage\n  \
        fardel usage --month 2026-10 --by project\n  \
        fardel usage --from 2026-11-01 --until 2026-11-08 --by member -o csv > week.csv")]
    Usage(UsageArguments),
    /// The statement of a closed month: what was used, in units that add up, signed
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  \
        fardel statement\n  \
        fardel statement --month 2026-10 --project vision -o csv > october.csv\n  \
        fardel statement --month 2026-10 -o json > october.json\n  \
        fardel statement verify october.json --key fardel.pem   # of `fardel trust > fardel.pem`"
    )]
    Statement(StatementArguments),
    /// Months: close one that is over, list closed ones, verify them
    #[command(subcommand, visible_alias = "months")]
    Month(MonthCommand),
    /// Prices of a GPU, a core and a GiB for an hour, which statements carry from the next close on
    #[command(subcommand, visible_alias = "prices")]
    Price(PriceCommand),
    /// Jobs such as imports
    #[command(subcommand, visible_alias = "operation")]
    Job(JobCommand),
    /// Users who may sign in
    #[command(subcommand, visible_alias = "users")]
    User(UserCommand),
    /// Files of users: plan, apply, undo
    #[command(subcommand, visible_alias = "rosters")]
    Roster(RosterCommand),
    /// Domains of the site: organisations with users and projects of their own
    #[command(subcommand, visible_alias = "domains")]
    Domain(DomainCommand),
    /// Projects and their members
    #[command(subcommand, visible_alias = "projects")]
    Project(ProjectCommand),
    /// Links by which accounts join a project
    #[command(subcommand, visible_alias = "invitations")]
    Invitation(InvitationCommand),
    /// Acts of administrators that wait until a second one approves them
    #[command(subcommand, visible_alias = "approvals")]
    Approval(ApprovalCommand),
    /// Look into a session or a folder of another user, with a reason that its owner is told
    #[command(subcommand)]
    BreakGlass(BreakGlassCommand),
    /// Requests of strangers for accounts, and who may ask
    #[command(subcommand, visible_alias = "sign-ups")]
    SignUp(SignUpCommand),
    /// Policies: named limits, attached to the site, a domain, a project, its members or a user
    #[command(subcommand, visible_alias = "policies")]
    Policy(PolicyCommand),
    /// Limits of a domain, a project or a user that are raised for a while
    #[command(subcommand, visible_alias = "allowances")]
    Allowance(AllowanceCommand),
    /// Rules that end idle sessions
    #[command(subcommand, visible_alias = "idle-rules")]
    IdleRule(IdleRuleCommand),
    /// The order of the queue, weights, and where users stand by fair share
    #[command(subcommand)]
    FairShare(FairShareCommand),
    /// Budgets: GPU-hours that a project or a user may use in a period
    #[command(subcommand, visible_alias = "budgets")]
    Budget(BudgetCommand),
    /// Courses: projects with a term, whose teachers act on all members at once
    #[command(subcommand, visible_alias = "courses")]
    Course(CourseCommand),
    /// Apps: programs in a session that are opened in a browser
    #[command(subcommand, visible_alias = "apps")]
    App(AppCommand),
    /// Folders: directories that outlive sessions, and that sessions mount
    #[command(subcommand, visible_alias = "folders")]
    Folder(FolderCommand),
    /// Snapshots: earlier states of folders, by hand and by schedule
    #[command(subcommand, visible_alias = "snapshots")]
    Snapshot(SnapshotCommand),
    /// Volumes: mounted file systems that folders lie on
    #[command(subcommand, visible_alias = "volumes")]
    Volume(VolumeCommand),
    /// Storage: what folders take, of each user and one by one
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Presets: amounts with a name, which launches may ask for
    #[command(subcommand, visible_alias = "presets")]
    Preset(PresetCommand),
    /// Resource groups: nodes that serve sessions of their own
    #[command(subcommand, visible_alias = "groups")]
    Group(GroupCommand),
    /// Reservations: GPUs, cores and memory that are booked from a start to an end
    #[command(subcommand, visible_alias = "reservations")]
    Reservation(ReservationCommand),
    /// Announcements: texts that users of the console see for a time
    #[command(subcommand, visible_alias = "announcements")]
    Announcement(AnnouncementCommand),
    /// Show the limits that hold, and which policy each comes from
    Limits {
        /// Of this user; yourself when left out
        #[arg(long = "for", value_name = "USER")]
        user: Option<String>,
        /// In this project; the user's first when left out
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Roles of users on a domain or the whole site
    #[command(subcommand, visible_alias = "roles")]
    Role(RoleCommand),
    /// Your API tokens
    #[command(subcommand, visible_alias = "tokens")]
    Token(TokenCommand),
    /// Your access keys, which sign requests
    #[command(subcommand, visible_alias = "keys")]
    Key(KeyCommand),
    /// Your public keys for SSH
    #[command(subcommand, visible_alias = "ssh-keys")]
    SshKey(SshKeyCommand),
    /// Files that your sessions have in their home
    #[command(subcommand, visible_alias = "dotfiles")]
    Dotfile(DotfileCommand),
    /// The script that runs in your sessions before their command
    #[command(subcommand)]
    Startup(StartupCommand),
    /// Variables that only your own sessions get
    #[command(subcommand, visible_alias = "variables")]
    Variable(VariableCommand),
    /// Print what ssh wants to know of this server, for ~/.ssh/config
    #[command(after_help = "Example:\n  \
        fardel ssh-config lab >> ~/.ssh/config && ssh my-session@lab")]
    SshConfig {
        /// What you call the server
        #[arg(value_name = "NAME", default_value = "fardel")]
        alias: String,
    },
    /// Browsers that are signed in
    #[command(subcommand)]
    SignIn(SignInCommand),
    /// Your own account
    #[command(subcommand)]
    Me(Me),
    /// Show the certificate and fingerprint of the server's own authority
    ///
    /// The fingerprint goes to standard error and the certificate to standard output:
    /// `fardel trust > fardel.pem`.
    Trust,
    /// The server's certificate: show, request, import, reset
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Sign in to a server and remember it
    Login(Login),
    /// Forget the remembered server and revoke its token
    Logout,
    /// Print the link that makes the first administrator, for root on the machine
    ///
    /// Each call draws a new code and voids the one before; a code works once, within an hour. Once
    /// the machine is set up, prints where to sign in.
    SetupLink,
    /// End every session of all users and wait until none is left
    ///
    /// Use it before you remove the package or decommission the machine. Waiting sessions end too;
    /// ended sessions stay on the list. For administrators.
    Drain {
        /// Time after which the remaining sessions are killed
        #[arg(long, value_name = "TIME", default_value = "60s")]
        timeout: String,
    },
    /// Check this machine and say how to fix what is missing
    ///
    /// Works without a server. Returns 1 when a check fails.
    Doctor(PlaceArguments),
    /// The screen of the machine itself: addresses, network, passwords, power
    ///
    /// Without a verb it opens on the whole terminal; every item of it is also a command here, for
    /// scripts and serial lines.
    Console(ConsoleArguments),
    /// One file for technical support
    #[command(subcommand)]
    Support(Support),
    /// Settings: show, validate, set, unset, undo
    #[command(subcommand, visible_alias = "settings")]
    Config(Config),
    /// Backups of catalog, settings and keys: create, verify, restore
    #[command(subcommand)]
    Backup(Backup),
    /// Roll back an upgrade
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Check that catalog and machine belong together; accept a catalog
    #[command(subcommand)]
    State(State),
    /// Run a scenario against the scheduler, without containers
    Rehearse(RehearseArguments),
    /// Measure this machine and this build; prints JSON with raw samples
    ///
    /// bench trace measures the rules of the queue instead: it plays a day of 2,000 jobs on 24 GPUs, always the same,
    /// through the scheduler.
    #[command(after_help = "Examples:\n  \
        fardel bench --quick\n  \
        fardel bench trace --order fair --backfill timed")]
    Bench(Rest),
    /// Call the API directly
    #[command(after_help = "Examples:\n  \
        fardel api GET /sessions?limit=2\n  \
        fardel api POST /sessions '{\"image\":\"host\",\"kind\":\"batch\",\"command\":[\"true\"]}'")]
    Api(ApiArguments),
    /// Print completion for a shell
    ///
    /// bash: `fardel completion bash > /etc/bash_completion.d/fardel`
    Completion {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Show a manual page, or write all of them
    Man(Man),
    /// Print the version of this program, and of the server with -o json or wide
    Version,
}

/// Where state, socket and address are; the same names as keys in fardel.toml.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceArguments {
    /// Directory of the state; its run directory follows it unless --run names one
    #[arg(long, value_name = "DIR", env = "FARDEL_DATA")]
    pub data: Option<PathBuf>,
    /// Address and port of pages and API
    #[arg(long, value_name = "ADDRESS", env = "FARDEL_LISTEN")]
    pub listen: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Settings file to read, in place of FARDEL_CONFIG and /etc/fardel/fardel.toml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Offer the machine's own programs as the environment `host`: true or false
    #[arg(long, value_name = "BOOL", env = "FARDEL_HOST_ENVIRONMENT")]
    pub host_environment: Option<bool>,
    /// Cores that sessions may have in all
    #[arg(long, value_name = "CORES", env = "FARDEL_CPU")]
    pub cpu: Option<String>,
    /// Memory that sessions may have in all
    #[arg(
        long,
        visible_alias = "memory",
        value_name = "SIZE",
        env = "FARDEL_MEMORY"
    )]
    pub mem: Option<String>,
    /// Simulated GPUs for demonstrations, a model and a number: H100:8. Sessions get no device, and every page says so
    #[arg(long, value_name = "DEVICES", env = "FARDEL_SIMULATE_GPUS")]
    pub simulate_gpus: Option<String>,
    /// Root directory of the vendor's GPU driver
    #[arg(long, value_name = "DIRECTORY", env = "FARDEL_DRIVER_ROOT")]
    pub driver_root: Option<PathBuf>,
    /// Days that logs and rows of ended sessions are kept
    #[arg(long, value_name = "DAYS", env = "FARDEL_KEEP_DAYS")]
    pub keep_days: Option<u32>,
    /// Write the log as JSON lines
    #[arg(long)]
    pub log_json: bool,
}

/// What a new session is.
#[derive(Debug, Clone, Args)]
pub struct LaunchArguments {
    /// `host` (the machine's own programs), or the reference or id of an image
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Program and arguments; put -- before them
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
    /// Name of the session; chosen automatically when left out
    #[arg(long)]
    pub name: Option<String>,
    /// Preset whose amounts hold where none are given here; `fardel preset ls` lists them
    #[arg(long, value_name = "PRESET", help_heading = "Resources")]
    pub preset: Option<String>,
    #[command(flatten)]
    pub texts: LaunchTexts,
    /// Cores, in hundredths: 0.5, 4 [default: 1]
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub cpu: Option<String>,
    /// Memory limit: 256m, 4g [default: 1g]
    #[arg(
        long,
        visible_alias = "memory",
        value_name = "SIZE",
        help_heading = "Resources"
    )]
    pub mem: Option<String>,
    /// Size of /dev/shm, part of the memory limit [default: 64m]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub shm: Option<String>,
    /// What it may write outside its folders: 20g [default: that of a policy, else of the site]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub disk: Option<String>,
    /// Share of a GPU in hundredths (0.35), whole GPUs (2), or both (2.5)
    #[arg(long, value_name = "SHARE", help_heading = "Resources")]
    pub gpu: Option<String>,
    /// GPU memory of the fraction [default: in proportion to the share]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub gpu_mem: Option<String>,
    /// One MIG partition of this profile instead of a share: 1g.10gb
    #[arg(long, value_name = "PROFILE", help_heading = "Resources")]
    pub mig: Option<String>,
    /// Variable inside: NAME=VALUE, or NAME to pass on your own
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Folder to mount: FOLDER[:/SUBPATH][:/PLACE][:ro]; `home` is your home folder, at /home/work
    #[arg(long, value_name = "MOUNT")]
    pub mount: Vec<String>,
    /// Label: NAME=VALUE
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// Project to run in: its name or DOMAIN/NAME [default: your first]
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Member of the project to launch for; for its leads and administrators
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Number of copies; the name gets -1, -2, …
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub replicas: u32,
    /// Containers of the session, on one node, each with these amounts; they reach one another as main1, sub1, …
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub containers: u32,
    /// How urgent it is, 0 to 100; more than 10 needs a policy that allows it [default: 10]
    #[arg(long, value_name = "NUMBER")]
    pub priority: Option<u32>,
    /// A session of higher priority may stop it where the resource group has preemption; it is queued again then
    #[arg(long)]
    pub yields: bool,
    /// Start without your dotfiles, your start-up script and your variables
    #[arg(long)]
    pub without_startup: bool,
    /// Start without your home folder and your folders whose names begin with a dot
    #[arg(long)]
    pub no_home: bool,
    /// Let `fardel exec --user root` be root inside, where a policy allows it and the session's user is another one
    #[arg(long)]
    pub sudo: bool,
    /// A command may run this long: 90s, 30m, 8h, 2d
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub timeout: Option<String>,
    /// Time limit: the session is stopped after this long
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub max_runtime: Option<String>,
    /// Not before this time: 2026-11-21T18:00:00Z, or +30m from now
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub start_at: Option<String>,
    /// Start only after these sessions ended well
    #[arg(
        long,
        value_name = "SESSION",
        value_delimiter = ',',
        help_heading = "Time"
    )]
    pub after: Vec<String>,
    /// A place to work in, or a command that ends by itself [default: by command and -it]
    #[arg(long, value_enum)]
    pub kind: Option<SessionKindArgument>,
    /// Show whether and where it would start, without creating it
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until it runs or has ended
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "running"
    )]
    pub wait: Option<WaitTarget>,
    /// Give up waiting after this long (the session stays)
    #[arg(long, value_name = "TIME")]
    pub wait_timeout: Option<String>,
    /// Idempotency key: a repeated call with the same key creates nothing
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionKindArgument {
    Interactive,
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitTarget {
    Running,
    Ended,
}

#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// Return at once and print the name
    #[arg(short, long)]
    pub detach: bool,
    /// Forward standard input
    #[arg(short, long)]
    pub interactive: bool,
    /// Allocate a terminal (with -i)
    #[arg(short, long)]
    pub tty: bool,
    /// Remove the session from the list once it has ended
    #[arg(long)]
    pub rm: bool,
    #[command(flatten)]
    pub order: LaunchArguments,
}

#[derive(Debug, Clone, Args)]
pub struct Named {
    /// Name, id, or the beginning of an id
    #[arg(value_name = "SESSION")]
    pub session: String,
}

#[derive(Debug, Clone, Args)]
pub struct Several {
    /// Names, ids, or beginnings of ids
    #[arg(value_name = "SESSION", required = true)]
    pub sessions: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Removal {
    #[command(flatten)]
    pub several: Several,
    /// End running ones first
    #[arg(short, long)]
    pub force: bool,
}

#[derive(Debug, Clone, Args)]
pub struct SessionLs {
    /// Ended sessions too
    #[arg(short, long)]
    pub all: bool,
    /// Search: state:running owner:mina group:lab image:host label:team=vision kind:batch, or a part of a name
    #[arg(long, value_name = "QUERY", default_value = "")]
    pub query: String,
    /// Order: created_at, name, state; a minus in front turns it round
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u32>,
    /// Sessions of all users (administrators)
    #[arg(long)]
    pub everybody: bool,
}

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List sessions
    Ls(SessionLs),
    /// Show one session
    Get(Named),
    /// Make a session and return at once
    Create(LaunchArguments),
    /// End sessions: TERM, ten seconds later KILL
    Stop(Several),
    /// End sessions at once
    Kill(Several),
    /// Restart sessions, ended or running
    Restart(Several),
    /// Give a session another name
    Rename {
        #[command(flatten)]
        session: Named,
        #[arg(value_name = "NAME")]
        name: String,
        /// Only when the session is still at this generation
        #[arg(long, value_name = "GENERATION")]
        if_match: Option<u64>,
    },
    /// Change limits and labels of a session while it runs, and the priority of one that waits
    Set {
        #[command(flatten)]
        session: Named,
        /// Cores: 0.5, 4
        #[arg(long, value_name = "CORES")]
        cpu: Option<String>,
        /// Memory limit: 256m, 4g
        #[arg(long, visible_alias = "memory", value_name = "SIZE")]
        mem: Option<String>,
        /// Share of its GPU: 0.35; only the fraction changes, and nothing restarts
        #[arg(long, value_name = "SHARE")]
        gpu: Option<String>,
        /// Memory of the fraction
        #[arg(long, value_name = "SIZE")]
        gpu_mem: Option<String>,
        /// Time limit of a waiting session: 30m, 4h; none removes it
        #[arg(long, value_name = "TIME")]
        max_runtime: Option<String>,
        /// How urgent a waiting session is, 0 to 100; more than 10 needs a policy that allows it
        #[arg(long, value_name = "NUMBER")]
        priority: Option<u32>,
        /// Label: NAME=VALUE sets it, NAME= removes it
        #[arg(short, long, value_name = "NAME=VALUE")]
        label: Vec<String>,
    },
    /// Keep waiting sessions from starting
    Hold(Several),
    /// Queue sessions that are on hold again, behind all who wait
    Release(Several),
    /// Pause sessions; they keep their memory
    Pause(Several),
    /// Resume paused sessions
    Resume(Several),
    /// Remove ended sessions and their logs from the list
    Rm(Removal),
    /// Show what happened to a session, with times
    Events(Named),
    /// Show what a session connects to outside, and what was refused
    Connections(Named),
    /// Explain why a session waits, where it was placed, or why it ended
    Why(Named),
    /// Print what a session wrote
    Logs(Logs),
    /// Run a command inside a running session
    Exec(Exec),
    /// Attach to the main process of a session
    Attach(Attach),
    /// Show processor and memory use over time
    Metrics {
        #[command(flatten)]
        session: Named,
        /// Only the last period: 5m, 1h
        #[arg(long, value_name = "TIME", default_value = "10m")]
        since: String,
    },
    /// Forward a local port to a port inside a session
    Forward {
        #[command(flatten)]
        container: InContainer,
        #[command(flatten)]
        session: Named,
        /// LOCAL:INSIDE, or one number for both
        #[arg(value_name = "PORTS")]
        ports: String,
    },
    /// Make an image of a running session
    ///
    /// The image is called USER/NAME:TAG and is yours alone until `fardel image share`. Homes, folders and what is temporary
    /// are left out. The session stands still while it is read.
    #[command(after_help = "Examples:\n  \
        fardel session commit train tools:1 --dry-run                    what it would hold, and what looks like secrets\n  \
        fardel session commit train tools:1 --exclude /opt/app/.env      without that file\n  \
        fardel session commit train tools:1 --accept-secrets -d          with all of them, in the background")]
    Commit {
        #[command(flatten)]
        session: Named,
        /// Name of the image, NAME[:TAG]
        #[arg(value_name = "REFERENCE")]
        reference: String,
        /// Path in the session to leave out, with all below it; may be repeated
        #[arg(long, value_name = "PATH")]
        exclude: Vec<String>,
        /// Make it even if files look like they hold secrets
        #[arg(long)]
        accept_secrets: bool,
        /// Print what it would hold, and make nothing
        #[arg(long)]
        dry_run: bool,
        /// Return at once; `fardel job` shows the progress
        #[arg(short, long)]
        detach: bool,
    },
    /// Make another session like this one
    Duplicate {
        #[command(flatten)]
        session: Named,
        /// Name of the new session; chosen automatically when left out
        #[arg(long)]
        name: Option<String>,
        /// Print the request instead of making it
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub struct Exec {
    /// Forward standard input
    #[arg(short, long)]
    pub interactive: bool,
    /// Allocate a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Variable inside: NAME=VALUE
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Directory to start in
    #[arg(short, long, value_name = "PATH")]
    pub workdir: Option<String>,
    /// User inside: a name, or UID[:GID]
    #[arg(short, long)]
    pub user: Option<String>,
    #[command(flatten)]
    pub container: InContainer,
    #[command(flatten)]
    pub session: Named,
    /// Program and arguments; a shell when left out
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct CodeArguments {
    #[command(flatten)]
    pub session: Named,
    /// File with the code; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub file: Option<PathBuf>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", allow_hyphen_values = true)]
    pub code: Option<String>,
    /// What runs it; each has an interpreter of its own
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value = "python")]
    pub language: CodeLanguageArgument,
    /// Command that makes a program; --exec runs after it if it went well
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["code", "file"])]
    pub build: Option<String>,
    /// Command that runs the program
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["code", "file"])]
    pub exec: Option<String>,
    /// End the interpreter first; what it knew is lost
    #[arg(long)]
    pub restart: bool,
    /// Directory that keeps pictures and other media
    #[arg(long, value_name = "DIRECTORY")]
    pub media: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CodeLanguageArgument {
    Python,
    R,
    Shell,
}

#[derive(Debug, Clone, Args)]
pub struct Logs {
    /// Follow the log until the session ends
    #[arg(short, long)]
    pub follow: bool,
    /// Begin at this byte of the log
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    pub since: u64,
    #[command(flatten)]
    pub container: InContainer,
    #[command(flatten)]
    pub session: Named,
}

#[derive(Debug, Clone, Default, Args)]
pub struct InContainer {
    /// Container of the session: main1, sub1, sub2, … [default: main1]
    #[arg(long, value_name = "CONTAINER")]
    pub container: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Attach {
    /// Show output only
    #[arg(long)]
    pub no_input: bool,
    #[command(flatten)]
    pub container: InContainer,
    #[command(flatten)]
    pub session: Named,
}

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List images
    Ls,
    /// Show one image
    Get {
        #[arg(value_name = "IMAGE")]
        image: String,
    },
    /// Import an archive: docker save, podman save, skopeo, umoci
    ///
    /// The archive is uploaded in chunks; the same command resumes an interrupted upload.
    Import {
        /// The archive; - reads standard input
        #[arg(value_name = "ARCHIVE")]
        archive: PathBuf,
        /// Reference, NAME:TAG [default: the name in the archive]
        #[arg(long, value_name = "REFERENCE")]
        name: Option<String>,
        /// Return after the upload; `fardel job` shows the progress of the import
        #[arg(short, long)]
        detach: bool,
    },
    /// Share an image that you made of a session with all users of your domain
    Share {
        #[arg(value_name = "IMAGE")]
        image: String,
    },
    /// Make an image that you made of a session private again
    Unshare {
        #[arg(value_name = "IMAGE")]
        image: String,
    },
    /// Pull an image of another registry: HOST/NAME:TAG
    ///
    /// The setting registries lists the hosts that may be pulled from. `fardel job cancel` cancels a pull.
    Pull {
        /// Where it is: HOST/NAME:TAG, or HOST/NAME@DIGEST
        #[arg(value_name = "HOST/NAME:TAG")]
        image: String,
        /// Reference, NAME:TAG [default: the name there, without the host]
        #[arg(long, value_name = "REFERENCE")]
        name: Option<String>,
        /// Return at once; `fardel job` shows the progress
        #[arg(short, long)]
        detach: bool,
    },
    /// Say what sessions of an image may ask for; the value none takes a limit out
    #[command(after_help = "Examples:\n  \
        fardel image limit pytorch:2.9 --min-mem 8g --min-gpu 0.25 --shm 4g\n  \
        fardel image limit pytorch:2.9 --of-labels")]
    Limit {
        #[arg(value_name = "IMAGE")]
        image: String,
        #[command(flatten)]
        flags: ImageLimitFlags,
    },
    /// Remove images that no session uses
    Rm {
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct ImageLimitFlags {
    /// Least cores of a container
    #[arg(long, value_name = "CORES")]
    pub min_cpu: Option<String>,
    /// Most cores
    #[arg(long, value_name = "CORES")]
    pub max_cpu: Option<String>,
    /// Least memory
    #[arg(long, value_name = "SIZE")]
    pub min_mem: Option<String>,
    /// Most memory
    #[arg(long, value_name = "SIZE")]
    pub max_mem: Option<String>,
    /// Least share of GPUs
    #[arg(long, value_name = "GPUS")]
    pub min_gpu: Option<String>,
    /// Most share of GPUs; 0: it takes none
    #[arg(long, value_name = "GPUS")]
    pub max_gpu: Option<String>,
    /// Size of /dev/shm where a launch names none
    #[arg(long, value_name = "SIZE")]
    pub shm: Option<String>,
    /// Limits of processes where a launch names none: memlock=unlimited,stack=64m
    #[arg(long, visible_alias = "ulimit", value_name = "LIMITS")]
    pub ulimits: Option<String>,
    /// As the labels of the image say
    #[arg(long, conflicts_with_all = ["min_cpu", "max_cpu", "min_mem", "max_mem", "min_gpu", "max_gpu", "shm", "ulimits"])]
    pub of_labels: bool,
}

#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// List environments, each version
    Ls,
    /// Show one version with its packages and licences
    Get {
        /// NAME, which is the newest, or NAME:VERSION
        #[arg(value_name = "ENVIRONMENT")]
        environment: String,
    },
    /// Import a bundle; nothing of it is unpacked before all of it is checked
    ///
    /// The bundle is uploaded in chunks. The setting environment_keys_file names the keys whose signature lets one in.
    Import {
        /// The bundle; - reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Take it without a signature of a trusted key
        #[arg(long)]
        accept_unsigned: bool,
        /// Take a version older than the newest one here
        #[arg(long)]
        allow_older: bool,
        /// Return after the upload; `fardel job` shows the progress of the import
        #[arg(short, long)]
        detach: bool,
    },
    /// Remove versions, with the images that no other version has
    Rm {
        #[arg(value_name = "NAME:VERSION", required = true)]
        environments: Vec<String>,
    },
    /// Write images of this machine into a bundle
    ///
    /// Reads the image store of this machine; for root.
    #[command(after_help = "Example:\n  \
        fardel environment pack jupyter:1.2 --as jupyter:1.2 --key lab.key -f /media/stick/jupyter-1.2.tar")]
    Pack(PackArguments),
    /// Build a bundle of Debian packages and Python wheels, as a recipe says
    ///
    /// Needs root, mmdebstrap, and pip where the recipe has wheels; no container engine. Works in FILE.work, with room for the
    /// environment four times. A build that is interrupted leaves FILE and FILE.work: remove them.
    #[command(after_help = "Example:\n  \
        fardel environment build jupyter.toml --out jupyter-1.0.tar --key lab.key --twice")]
    Build(BuildArguments),
    /// Make a key that signs bundles, and its public half in FILE.pub
    Key {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct BuildArguments {
    /// The recipe; its lock file lies beside it
    #[arg(value_name = "RECIPE")]
    pub recipe: PathBuf,
    /// Where to write the bundle; the file must not exist
    #[arg(long = "out", value_name = "FILE")]
    pub file: PathBuf,
    /// The key that signs it; without one it is not signed
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// A directory with the wheels of the lock file; without one they are fetched
    #[arg(long, value_name = "DIR")]
    pub wheels: Option<PathBuf>,
    /// Build it two times, and refuse where a byte differs
    #[arg(long)]
    pub twice: bool,
}

#[derive(Debug, Args)]
pub struct PackArguments {
    /// Images, as NAME:TAG or as digests
    #[arg(value_name = "IMAGE", required = true)]
    pub images: Vec<String>,
    /// Name and version of the environment; a version is up to four numbers with dots between them
    #[arg(long = "as", value_name = "NAME:VERSION")]
    pub environment: String,
    /// A sentence about it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub about: String,
    /// Where to write the bundle; the file must not exist
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: PathBuf,
    /// The key that signs it; without one it is not signed
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Texts of licences
    #[arg(long, value_name = "FILE")]
    pub licences: Option<PathBuf>,
    /// Recommended shared memory, such as 1g
    #[arg(long, value_name = "BYTES")]
    pub shm: Option<String>,
    /// Recommended memory, such as 4g
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<String>,
    /// A port that the images listen on; may be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Debug, Subcommand)]
pub enum Support {
    /// Write logs, checks, settings and states into one file, without secrets
    ///
    /// Works while the server is down. Holds no passwords, tokens, keys, names of users, or anything
    /// that sessions run or print.
    #[command(after_help = "Examples:\n  \
        fardel support bundle --preview | less     read everything before it leaves the machine\n  \
        fardel support bundle /media/stick/box.tar.gz")]
    Bundle {
        /// Where to write; - for standard output; fardel-support-DATE.tar.gz here when left out
        file: Option<PathBuf>,
        /// Print the contents, and write nothing
        #[arg(long)]
        preview: bool,
    },
}

/// The screen, or one item of it.
#[derive(Debug, Args)]
pub struct ConsoleArguments {
    #[command(subcommand)]
    pub verb: Option<ConsoleVerb>,
}

#[derive(Debug, Subcommand)]
pub enum ConsoleVerb {
    /// Print what the first screen shows
    Show,
    /// The machine's own addresses
    #[command(subcommand)]
    Network(NetworkVerb),
    /// Show the state of the services
    Services,
    /// Restart the server; sessions continue
    Restart,
    /// Print the newest lines of the box's log
    Logs,
    /// Restart the machine, or power it off
    Power {
        #[arg(value_enum)]
        what: PowerVerb,
    },
}

#[derive(Debug, Subcommand)]
pub enum NetworkVerb {
    /// List network interfaces with their addresses
    Show,
    /// Change an interface; reverted after 60 seconds unless kept
    #[command(after_help = "Examples:\n  \
        fardel console network set eno1 --address 10.1.4.20/24 --gateway 10.1.4.1\n  \
        fardel console network set eno1 --dhcp\n  \
        fardel console network keep")]
    Set {
        /// The interface, as `show` names it
        interface: String,
        /// Address and length of the network: 10.1.4.20/24
        #[arg(long, value_name = "ADDRESS/LENGTH", conflicts_with = "dhcp")]
        address: Option<String>,
        /// Default gateway
        #[arg(long, value_name = "ADDRESS", requires = "address")]
        gateway: Option<String>,
        /// Name servers
        #[arg(
            long,
            value_name = "ADDRESSES",
            value_delimiter = ',',
            requires = "address"
        )]
        dns: Vec<String>,
        /// Get the address by DHCP
        #[arg(long)]
        dhcp: bool,
    },
    /// Keep the pending change
    Keep,
    /// Revert the pending change
    Revert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PowerVerb {
    Reboot,
    Off,
}

/// There is one thing to do with the queue, so its name alone does it.
#[derive(Debug, Args)]
pub struct QueueLs {
    #[command(subcommand)]
    pub verb: Option<QueueCommand>,
}

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List waiting sessions with what each waits for
    Ls,
}

#[derive(Debug, Clone, Args)]
pub struct HistoryArguments {
    /// site, me, gpu:INDEX or gpu:NAME, user:NAME
    #[arg(long, value_name = "WHAT", default_value = "site")]
    pub of: String,
    /// How far back
    #[arg(long, value_name = "RANGE", default_value = "day", value_parser = ["hour", "day", "week", "month", "this-week", "last-week"])]
    pub range: String,
    /// Show the sessions that held the GPU in that time, in place of the points
    #[arg(long)]
    pub holders: bool,
}

#[derive(Debug, Clone, Args)]
pub struct UsageArguments {
    /// Year and month, such as 2026-11; the present month when left out
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "until"])]
    pub month: Option<String>,
    /// A date or RFC 3339, instead of a month
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// A date or RFC 3339, left out itself; the present when left out
    #[arg(long, value_name = "TIME", requires = "from")]
    pub until: Option<String>,
    /// By what it is summed; member: each user in each project
    #[arg(long, value_name = "WHAT", default_value = "user", value_parser = ["user", "project", "domain", "member"])]
    pub by: String,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RehearseArguments {
    #[command(subcommand)]
    pub verb: Option<RehearseCommand>,
    /// Scripts with one command a line; - is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum RehearseCommand {
    /// Play the sessions of a time under other rules of the queue
    ///
    /// Sessions that ended in that time arrive and run as they did, on the machines of today, under the rules that hold
    /// and under those tried. Nothing is changed.
    #[command(after_help = "Examples:\n  \
        fardel rehearse history --order fair\n  \
        fardel rehearse history --from 2026-11-01 --until 2026-11-08 --backfill strict")]
    History(RehearseHistory),
    /// Decide again what the scheduler decided, from its log
    ///
    /// Reads the decision log in the directory of the state, with or without a server. Without a number it lists the newest
    /// decisions. With one it puts together what the scheduler looked at then, asks the rules of this program, and says
    /// whether they decide the same bytes.
    #[command(after_help = "Examples:\n  \
        fardel rehearse decision\n  \
        fardel rehearse decision 4711")]
    Decision(RehearseDecision),
}

#[derive(Debug, Clone, Args)]
pub struct RehearseDecision {
    /// Number of the decision; a list of the newest when left out
    #[arg(value_name = "NUMBER")]
    pub number: Option<u64>,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Debug, Clone, Args)]
pub struct RehearseHistory {
    /// Year and month, such as 2026-11; the present month when left out
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "until"])]
    pub month: Option<String>,
    /// A date or RFC 3339, instead of a month
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// A date or RFC 3339, left out itself; the present when left out
    #[arg(long, visible_alias = "to", value_name = "TIME", requires = "from")]
    pub until: Option<String>,
    /// The order to try; the present one when left out
    #[arg(long, value_name = "ORDER", value_parser = ["turns", "fair", "drf", "fifo", "lifo"])]
    pub order: Option<String>,
    /// The backfill to try; the present one when left out
    #[arg(long, value_name = "MODE", value_parser = ["strict", "timed"])]
    pub backfill: Option<String>,
    /// The half-life to try, in whole hours, such as 7d; the present one when left out
    #[arg(long, value_name = "TIME")]
    pub half_life: Option<String>,
}

#[derive(Debug, Args)]
pub struct StatementArguments {
    #[command(subcommand)]
    pub verb: Option<StatementCommand>,
    /// A closed month such as 2026-10; the newest when left out
    #[arg(long, value_name = "MONTH")]
    pub month: Option<String>,
    /// Of this domain
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// Of this project: its name, or DOMAIN/NAME
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Of this user
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum StatementCommand {
    /// Check a statement that was saved with -o json, without a server
    #[command(after_help = "Example:\n  \
        fardel statement verify october.json --key fardel.pem   # of `fardel trust > fardel.pem`")]
    Verify {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Certificate of the authority of the server that closed the month
        #[arg(long, value_name = "KEY")]
        key: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum MonthCommand {
    /// List closed months, newest first
    #[command(visible_alias = "list")]
    Ls,
    /// Close a month that is over: freeze its use and sign it; this cannot be undone
    #[command(after_help = "Examples:\n  \
        fardel month close 2026-10 --time-zone Asia/Seoul   # the first\n  \
        fardel month close 2026-11")]
    Close {
        /// The month after the one that was closed last; the first may be any that is over
        #[arg(value_name = "MONTH")]
        month: String,
        /// Zone in which months are counted, settled by the first close [default: that of your account]
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
    },
    /// Check each closed month on the server against what was signed of it
    Verify,
}

#[derive(Debug, Subcommand)]
pub enum PriceCommand {
    /// Show what an hour costs
    #[command(visible_alias = "list")]
    Ls,
    /// Set all prices; what is left out costs nothing
    #[command(after_help = "Examples:\n  \
        fardel price set --currency KRW --gpu-hour 1500 --core-hour 20 --gib-hour 2.5\n  \
        fardel price set --off")]
    Set {
        /// Three capital letters
        #[arg(long, value_name = "CURRENCY", required_unless_present = "off")]
        currency: Option<String>,
        /// Of a whole GPU for an hour, with up to six decimals
        #[arg(long, value_name = "PRICE")]
        gpu_hour: Option<String>,
        /// Of a core for an hour
        #[arg(long, value_name = "PRICE")]
        core_hour: Option<String>,
        /// Of a GiB of memory for an hour
        #[arg(long, value_name = "PRICE")]
        gib_hour: Option<String>,
        /// No prices
        #[arg(long, conflicts_with_all = ["currency", "gpu_hour", "core_hour", "gib_hour"])]
        off: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List nodes with their state and what is free
    Ls,
    /// Show one node: load, pressure, disks, networks, heat
    Get {
        /// Name of the node; left out where there is only one
        #[arg(value_name = "NODE")]
        node: Option<String>,
    },
    /// Let a node take no new sessions, or take them again
    ///
    /// What runs there goes on. Everyone whose session waits for the node reads the message.
    #[command(after_help = "Examples:\n  \
        fardel node maintenance on -m 'new fans at noon'\n  \
        fardel node maintenance off")]
    Maintenance {
        #[arg(value_enum, value_name = "STATE")]
        state: MaintenanceState,
        /// Name of the node; left out where there is only one
        #[arg(value_name = "NODE")]
        node: Option<String>,
        /// Why, in a few words
        #[arg(short, long, default_value = "", hide_default_value = true)]
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MaintenanceState {
    On,
    Off,
}

/// Which events are searched for.
#[derive(Debug, Clone, Args)]
pub struct EventLs {
    /// Words: each stands in the code, the object, its name, the user, or the state before or after
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// A topic such as sessions, or a code or its beginning such as session.ended
    #[arg(
        long,
        value_name = "KIND",
        default_value = "",
        hide_default_value = true
    )]
    pub kind: String,
    /// Id of a thing, or name of a session
    #[arg(
        long,
        value_name = "OBJECT",
        default_value = "",
        hide_default_value = true
    )]
    pub object: String,
    /// Who did it, or whose account it is about
    #[arg(
        long,
        value_name = "USER",
        default_value = "",
        hide_default_value = true
    )]
    pub user: String,
    /// From then on: 2h, 7d ago, 2026-01-31, or 2026-01-31T18:00:00Z; days are those of UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Up to then, written the same way; a day counts to its end
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Maximum number of events
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 50)]
    pub limit: u32,
}

#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// Search what happened, newest first
    #[command(after_help = "Examples:\n  \
        fardel event ls oom --since 2h\n  \
        fardel event ls --kind session.ended --user mina -n 200\n  \
        fardel events ls --object train-1 --since 2026-01-31 --until 2026-01-31 -o csv")]
    Ls(EventLs),
    /// Follow changes
    Watch {
        /// Begin after this number instead of now
        #[arg(long, value_name = "NUMBER")]
        since: Option<u64>,
        /// Only these: session, image, user, project, operation
        #[arg(long, value_name = "TOPICS", value_delimiter = ',')]
        topics: Vec<String>,
        /// Stop after this number of events
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Search acts, newest first: your own, or those of your projects, your domain or the site
    #[command(after_help = "Examples:\n  \
        fardel audit ls --user mina --since 30d -n 500\n  \
        fardel audit ls --act sign-in.failed --since 2026-01-31 -o csv")]
    Ls(AuditLs),
    /// Write the audit log into a file: statements of what you may read, digests of the rest
    #[command(after_help = "Example:\n  \
        fardel audit export november.jsonl --since 2026-11-01 --until 2026-11-30\n  \
        fardel audit export mina.jsonl --user mina --since 2026-11-01 --until 2026-11-30")]
    Export {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// From then on: 2h, 7d ago, 2026-01-31, or 2026-01-31T18:00:00Z; days are those of UTC
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Up to then, written the same way; a day counts to its end
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Acts of this user, and digests of all others
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Check an export, without a server: is each row what was written, and in its place?
    #[command(after_help = "Example:\n  \
        fardel audit verify november.jsonl --key fardel.pem   # of `fardel trust > fardel.pem`")]
    Verify {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Certificate of the authority of the server that made the export
        #[arg(long, value_name = "KEY")]
        key: PathBuf,
    },
    /// List the signed checkpoints, newest first
    Checkpoints,
    /// List the places outside that the log is handed over to, and how far
    Targets,
    /// Sign the audit log up to its newest row
    Sign,
}

#[derive(Debug, Args)]
pub struct AuditLs {
    /// Who acted
    #[arg(
        long,
        value_name = "USER",
        default_value = "",
        hide_default_value = true
    )]
    pub user: String,
    /// An act such as session.stopping, or its beginning such as session
    #[arg(
        long,
        value_name = "ACT",
        default_value = "",
        hide_default_value = true
    )]
    pub act: String,
    /// Id of a thing, or name of a session or a user
    #[arg(
        long,
        value_name = "OBJECT",
        default_value = "",
        hide_default_value = true
    )]
    pub object: String,
    /// From then on: 2h, 7d ago, 2026-01-31, or 2026-01-31T18:00:00Z; days are those of UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Up to then, written the same way; a day counts to its end
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Maximum number of acts
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 50)]
    pub limit: u32,
}

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, newest first
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "JOB")]
        job: String,
    },
    /// Cancel a job; its changes are undone
    Cancel {
        #[arg(value_name = "JOB")]
        job: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List users
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "USER")]
        user: String,
    },
    /// Add a user
    Add {
        #[arg(value_name = "NAME")]
        name: String,
        /// Make the user an administrator
        #[arg(long)]
        administrator: bool,
        /// The domain that the user belongs to; your own when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        #[command(flatten)]
        password: Password,
    },
    /// Set a user's password, end their sign-ins and revoke their tokens
    Passwd {
        #[arg(value_name = "USER")]
        user: String,
        /// Leave their tokens valid
        #[arg(long)]
        keep_tokens: bool,
        #[command(flatten)]
        password: Password,
    },
    /// Change a user's full name, e-mail address, networks or end
    Set {
        #[arg(value_name = "USER")]
        user: String,
        /// What people call them; empty for nothing
        #[arg(long, value_name = "NAME")]
        full_name: Option<String>,
        /// Signs in as the name does; empty for none
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// Networks that they may come from, with commas between; empty for everywhere
        #[arg(long, value_name = "NETWORKS")]
        networks: Option<String>,
        /// When the account of a guest ends, such as 90d or 2027-02-28; none for no end
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Give a user another role
    Role {
        #[arg(value_name = "USER")]
        user: String,
        /// user or administrator
        #[arg(value_name = "ROLE", value_parser = ["user", "administrator"])]
        role: String,
    },
    /// Suspend a user: refuse sign-in and tokens, remove nothing
    #[command(after_help = "Example:\n  \
        fardel user suspend mina --stop-sessions")]
    Suspend {
        #[arg(value_name = "USER")]
        user: String,
        /// Stop their sessions, too, those that wait among them
        #[arg(long)]
        stop_sessions: bool,
        /// Permit sign-in and tokens again
        #[arg(long, conflicts_with = "stop_sessions")]
        undo: bool,
    },
    /// Make a link by which a user signs in once, and print it
    ///
    /// A link that they had before is of no use any more. Their second factor is asked for still.
    #[command(after_help = "Examples:\n  \
        fardel user sign-in-link mina --valid 2h\n  \
        fardel user sign-in-link mina --revoke")]
    SignInLink {
        #[arg(value_name = "USER")]
        user: String,
        /// How long the link can be used, such as 2h; 10m to 7d
        #[arg(long, value_name = "TIME", default_value = "24h")]
        valid: String,
        /// Revoke the link that they have; make none
        #[arg(long, conflicts_with = "valid")]
        revoke: bool,
    },
    /// Second factors of users
    #[command(subcommand)]
    SecondFactor(UserSecondFactor),
    /// Remove a user with their sessions, sign-ins and tokens
    #[command(after_help = "Example:\n  \
        fardel user depart mina --finish-within 7d")]
    Depart {
        #[arg(value_name = "USER")]
        user: String,
        /// Let running sessions go on for this long at most, such as 7d; they stop now when left out
        #[arg(long, value_name = "TIME")]
        finish_within: Option<String>,
        /// Show what it would end, change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Offer the folders of a user who is to leave to another user of the domain
    OfferFolders {
        #[arg(value_name = "USER")]
        user: String,
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Hand the reservations of a user who is to leave over to another user of the domain
    HandOverReservations {
        #[arg(value_name = "USER")]
        user: String,
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Remove a user who owns nothing
    Rm {
        #[arg(value_name = "USER", required = true)]
        users: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum UserSecondFactor {
    /// Take away the second factor of a user who lost it, and end their sign-ins and tokens
    Reset {
        #[arg(value_name = "USER")]
        user: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum RosterCommand {
    /// List the rosters that were applied
    Ls,
    /// Show what a file of users would do, row by row
    ///
    /// The file is CSV in UTF-8, UTF-16 or CP949. Its first line names the columns: name, full_name, email, password,
    /// project, role, policy, expires_at, gpu. The exit code is 2 where a row has a fault.
    Plan(RosterFile),
    /// Apply a file of users all at once, and print the passwords of new accounts
    #[command(after_help = "Example:\n  \
        fardel roster apply class.csv --project ml-2027 -o csv > slips.csv")]
    Apply(RosterFile),
    /// Undo a roster whose users have not signed in
    Undo {
        #[arg(value_name = "ROSTER")]
        roster: String,
    },
    /// Suspend the users whose accounts a roster made, such as those of a class that is over
    #[command(after_help = "Example:\n  \
        fardel roster suspend 0199f0a3-6c1e-7d40-8000-000000000001 --stop-sessions")]
    Suspend {
        #[arg(value_name = "ROSTER")]
        roster: String,
        /// Stop their sessions, too, those that wait among them
        #[arg(long)]
        stop_sessions: bool,
        /// Permit sign-in and tokens again
        #[arg(long, conflicts_with = "stop_sessions")]
        undo: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub struct RosterFile {
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Project of rows that name none; the project default of your domain when left out
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum DomainCommand {
    /// List the domains that you may see
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "DOMAIN")]
        domain: String,
    },
    /// Make a domain with a project called default
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// What people read
        #[arg(long)]
        title: Option<String>,
    },
    /// Change a domain's title
    Set {
        #[arg(value_name = "DOMAIN")]
        domain: String,
        #[arg(long)]
        title: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// List the projects that you may see
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "PROJECT")]
        project: String,
    },
    /// Make a project
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// What people read
        #[arg(long)]
        title: Option<String>,
        /// Your own domain when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
    /// Change a project's title
    Set {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(long)]
        title: String,
    },
    /// Archive a project: no new sessions, history stays
    Archive {
        #[arg(value_name = "PROJECT")]
        project: String,
        /// Permit new sessions again
        #[arg(long)]
        undo: bool,
    },
    /// List the members of a project
    Members {
        #[arg(value_name = "PROJECT")]
        project: String,
    },
    /// Make users members of a project, or give members another role
    Add {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "USER", required = true)]
        users: Vec<String>,
        /// member launches, viewer sees all sessions, lead also ends them and chooses members
        #[arg(long, default_value = "member", value_parser = ["member", "viewer", "lead"])]
        role: String,
        /// When the membership ends, such as 30d; never when left out
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Show or set how many GPU-hours the leads of a project book without a request
    #[command(after_help = "Examples:\n  \
        fardel project quota vision\n  \
        fardel project quota vision --gpu-hours 200")]
    Quota {
        #[arg(value_name = "PROJECT")]
        project: String,
        /// In any 30 days, such as 200 or 0.50; with 0 everything is a request
        #[arg(long, value_name = "GPU-HOURS")]
        gpu_hours: Option<String>,
    },
    /// Remove users from a project
    Rm {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "USER", required = true)]
        users: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum InvitationCommand {
    /// List the open invitations of a project
    Ls {
        #[arg(value_name = "PROJECT")]
        project: String,
    },
    /// Make a link and print it
    #[command(after_help = "Example:\n  \
        fardel invitation create ml-2027 --uses 40 --valid 2d --expires 120d")]
    Create {
        #[arg(value_name = "PROJECT")]
        project: String,
        /// Role in the project
        #[arg(long, default_value = "member", value_parser = ["member", "viewer", "lead"])]
        role: String,
        /// For this address alone, once; for any holder of the link when left out
        #[arg(long, value_name = "EMAIL", conflicts_with = "uses")]
        email: Option<String>,
        /// Accounts that the link makes at most
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        uses: u32,
        /// How long the link can be used, such as 2d; at most 90d
        #[arg(long, value_name = "TIME", default_value = "7d")]
        valid: String,
        /// When the membership ends, such as 120d; never when left out
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Revoke an invitation: its link is of no use any more
    Revoke {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "INVITATION")]
        invitation: String,
    },
    /// Join a project with your own account
    Accept {
        /// The link, or what stands behind code= in it
        #[arg(value_name = "LINK")]
        link: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List the acts that wait, and what became of earlier ones
    Ls,
    /// Say whether acts wait at all
    Status,
    /// Approve acts of other administrators: they are done at once
    Release {
        #[arg(value_name = "ID", required = true)]
        approvals: Vec<String>,
    },
    /// Decline acts that wait
    Decline {
        #[arg(value_name = "ID", required = true)]
        approvals: Vec<String>,
    },
    /// Let acts on policies, roles and settings wait from now on
    On,
    /// Let no act wait any more; this waits for approval itself
    Off,
}

#[derive(Debug, Subcommand)]
pub enum BreakGlassCommand {
    /// List who looked into what is another user's, and why
    Ls,
    /// Enter a session of another user for a while
    #[command(after_help = "Example:\n  \
        fardel break-glass session vit --reason 'The job fills the disk of its node.'")]
    Session {
        #[arg(value_name = "SESSION")]
        session: String,
        #[command(flatten)]
        why: BreakGlassReason,
    },
    /// Read the files of another user's folder for a while
    #[command(after_help = "Example:\n  \
        fardel break-glass folder mina/data --reason 'A virus was found in its files.'")]
    Folder {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[command(flatten)]
        why: BreakGlassReason,
    },
    /// End looks of yours before their time
    End {
        #[arg(value_name = "ID", required = true)]
        looks: Vec<String>,
    },
}

#[derive(Debug, Clone, Args)]
pub struct BreakGlassReason {
    /// Why, in 10 to 200 characters; its owner reads it
    #[arg(long, value_name = "WORDS")]
    pub reason: String,
    /// For how many minutes: 5 to 240, 60 when left out
    #[arg(long, value_name = "MINUTES")]
    pub minutes: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum SignUpCommand {
    /// List requests for accounts of your domains
    Ls,
    /// Make the account that a request asks for
    #[command(after_help = "Example:\n  \
        fardel sign-up approve 01997c3e-0000-7000-8000-000000000000 --name mina.han --expires 90d")]
    Approve {
        #[arg(value_name = "ID")]
        request: String,
        /// Another name than the one that was asked for
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// When the account of a guest ends, such as 90d or 2027-02-28
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Decline requests; they can be reopened for 30 days
    Decline {
        #[arg(value_name = "ID", required = true)]
        requests: Vec<String>,
    },
    /// Let requests wait again that were declined
    Reopen {
        #[arg(value_name = "ID", required = true)]
        requests: Vec<String>,
    },
    /// List who may ask in each of your domains
    Rules,
    /// Say which addresses may ask for an account of a domain
    #[command(
        group(ArgGroup::new("who").required(true).args(["addresses", "none"])),
        after_help = "Examples:\n  \
            fardel sign-up allow @lab.example @cs.lab.example\n  \
            fardel sign-up allow --none --domain biology"
    )]
    Allow {
        /// Hosts such as @lab.example, or * for every address
        #[arg(value_name = "ADDRESSES")]
        addresses: Vec<String>,
        /// No stranger may ask
        #[arg(long)]
        none: bool,
        /// The domain; your own when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List policies
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "POLICY")]
        policy: String,
    },
    /// Make a policy
    #[command(after_help = "Example:\n  \
        fardel policy create students --gpu 1 --sessions 3 --runtime 12h")]
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        limits: LimitFlags,
        #[command(flatten)]
        egress: EgressFlags,
        #[command(flatten)]
        sudo: SudoFlags,
        #[command(flatten)]
        inner_door: InnerDoorFlags,
        #[command(flatten)]
        home: HomeFlags,
        #[command(flatten)]
        required_limit: RequiredLimitFlags,
    },
    /// Change limits of a policy; the value none takes a limit out
    Set {
        #[arg(value_name = "POLICY")]
        policy: String,
        #[command(flatten)]
        limits: LimitFlags,
        #[command(flatten)]
        egress: EgressFlags,
        #[command(flatten)]
        sudo: SudoFlags,
        #[command(flatten)]
        inner_door: InnerDoorFlags,
        #[command(flatten)]
        home: HomeFlags,
        #[command(flatten)]
        required_limit: RequiredLimitFlags,
        /// Only say who would have more than it allows then
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove policies that are attached to nothing
    Rm {
        #[arg(value_name = "POLICY", required = true)]
        policies: Vec<String>,
    },
    /// Attach a policy, in the place of the one that was there
    Attach {
        #[arg(value_name = "POLICY")]
        policy: String,
        #[command(flatten)]
        place: PolicyPlace,
    },
    /// Detach a policy
    Detach {
        #[arg(value_name = "POLICY")]
        policy: String,
        #[command(flatten)]
        place: PolicyPlace,
    },
}

#[derive(Debug, Subcommand)]
pub enum IdleRuleCommand {
    /// List the rules
    Ls,
    /// Show one
    Get {
        /// Name or id of a rule
        #[arg(value_name = "RULE")]
        rule: String,
    },
    /// Make a rule
    #[command(
        visible_alias = "add",
        after_help = "Example:\n  \
        fardel idle-rule create idle-gpus --gpu 5 --cpu 0.1 --keys 1 --window 2h"
    )]
    Create {
        /// Name of the rule
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: IdlePlace,
        #[command(flatten)]
        rule: IdleFlags,
    },
    /// Change a rule; the value none takes a threshold out
    #[command(
        visible_alias = "edit",
        after_help = "Example:\n  \
        fardel idle-rule set idle-gpus --window 4h --keys none"
    )]
    Set {
        /// Name or id of a rule
        #[arg(value_name = "RULE")]
        rule: String,
        /// New name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        changed: IdleFlags,
    },
    /// Remove rules
    Rm {
        /// Name or id of a rule
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<String>,
    },
    /// Show what a rule would have done over the last week; changes nothing
    #[command(after_help = "Examples:\n  \
        fardel idle-rule try idle-gpus --window 1h\n  \
        fardel idle-rule try --gpu 5 --window 2h")]
    Try {
        /// Name or id of a rule, which the flags change for this once; a new rule of the flags when left out
        #[arg(value_name = "RULE")]
        rule: Option<String>,
        #[command(flatten)]
        place: IdlePlace,
        #[command(flatten)]
        changed: IdleFlags,
    },
}

/// Whose sessions a rule judges; those of the site when nothing is named.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct IdlePlace {
    /// Sessions of this domain only
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// Sessions of this project only: NAME or DOMAIN/NAME; neither flag: the whole site
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
}

/// When a session is idle, and what then happens.
#[derive(Debug, Clone, Default, Args)]
pub struct IdleFlags {
    /// Load of its share of GPUs below this, in per cent
    #[arg(long, value_name = "PERCENT")]
    pub gpu: Option<String>,
    /// Cores in use below this
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Fewer open terminals, commands and ports
    #[arg(long, value_name = "NUMBER")]
    pub terminals: Option<String>,
    /// Fewer inputs into terminals a minute
    #[arg(long, value_name = "NUMBER")]
    pub keys: Option<String>,
    /// Whether all of them or any of them must be below [default of a new rule: all]
    #[arg(long = "match", value_name = "WORD", value_parser = ["all", "any"])]
    pub of: Option<String>,
    /// How long it must be below, the warnings included; 20m to 72h [default of a new rule: 1h]
    #[arg(long, value_name = "TIME")]
    pub window: Option<String>,
    /// Time after a start in which nothing counts, at most 24h [default of a new rule: 10m]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// What then happens; requeue: it is stopped and waits in the queue behind all others [default of a new rule: stop]
    #[arg(long, value_name = "ACTION", value_parser = ["notice", "stop", "pause", "requeue"])]
    pub action: Option<String>,
    /// How long one keep puts it off, 20m to 24h [default of a new rule: 1h]
    #[arg(long, value_name = "TIME")]
    pub extend: Option<String>,
    /// How often it may be kept in a row, 0 to 20 [default of a new rule: 3]
    #[arg(long, value_name = "NUMBER")]
    pub times: Option<u32>,
    /// Of this kind only; of both with any
    #[arg(long, value_name = "KIND", value_parser = ["interactive", "batch", "any"])]
    pub kind: Option<String>,
    /// Label that exempts: KEY or KEY=VALUE
    #[arg(long, value_name = "LABEL")]
    pub exempt: Option<String>,
}

/// Limits of a policy. Sums are of a user, of each member of a project, or of all members of a project or domain.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitFlags {
    /// Sessions that wait at once
    #[arg(long, value_name = "NUMBER")]
    pub waiting: Option<String>,
    /// Bytes of commands and variables that wait
    #[arg(long, value_name = "SIZE")]
    pub waiting_bytes: Option<String>,
    /// Sessions that run at once
    #[arg(long, value_name = "NUMBER")]
    pub sessions: Option<String>,
    /// GPUs that they hold
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,
    /// Cores that they hold
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory that they hold
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// GPUs of one session
    #[arg(long, value_name = "GPUS")]
    pub gpu_each: Option<String>,
    /// Cores of one session
    #[arg(long, value_name = "CORES")]
    pub cpu_each: Option<String>,
    /// Memory of one session
    #[arg(long, value_name = "SIZE")]
    pub memory_each: Option<String>,
    /// What one session writes outside its folders
    #[arg(long, value_name = "SIZE")]
    pub disk_each: Option<String>,
    /// How long one session runs
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// The highest priority of one session [default: 10]
    #[arg(long, value_name = "NUMBER")]
    pub priority: Option<String>,
    /// Browsers that each user is signed in with at once
    #[arg(long, value_name = "NUMBER")]
    pub sign_ins: Option<String>,
    /// What the folders of each user take together [default: 50 GiB]
    #[arg(long, value_name = "SIZE")]
    pub folder_bytes: Option<String>,
    /// Images that each user keeps of sessions [default: 32]
    #[arg(long, value_name = "NUMBER")]
    pub images: Option<String>,
}

/// What a policy says of networks.
#[derive(Debug, Clone, Default, Args)]
pub struct EgressFlags {
    /// Networks that a launch may choose: none, list, proxy; the first is the default
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub networks: Vec<String>,
    /// A host that sessions reach, with its port, such as warehouse.plant:3306, db=10.1.2.3:5432 or *.example.com:443; once for each
    #[arg(long, value_name = "TARGET")]
    pub target: Vec<String>,
    /// Let the policy say nothing of networks
    #[arg(long, conflicts_with_all = ["networks", "target"])]
    pub no_networks: bool,
}

/// Whether launches under a policy may ask for sudo.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct SudoFlags {
    /// Let launches ask for sudo
    #[arg(long)]
    pub sudo: bool,
    /// Let the policy no longer allow sudo
    #[arg(long, conflicts_with = "sudo")]
    pub no_sudo: bool,
}

/// Whether sessions under a policy have an inner door.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct InnerDoorFlags {
    /// Close the inner doors of sessions, by which they ask the server about themselves
    #[arg(long)]
    pub no_inner_door: bool,
    /// Let the policy no longer close inner doors
    #[arg(long, conflicts_with = "no_inner_door")]
    pub inner_door: bool,
}

/// Whether sessions under a policy have a home by themselves.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct HomeFlags {
    /// Let sessions have no home folder and no dot-folders by themselves
    #[arg(long)]
    pub no_home: bool,
    /// Let the policy say nothing of home folders
    #[arg(long, conflicts_with = "no_home")]
    pub home: bool,
}

/// Whether sessions under a policy have to name a time limit.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct RequiredLimitFlags {
    /// Refuse sessions that name no time limit
    #[arg(long)]
    pub require_limit: bool,
    /// Let the policy ask for no time limit
    #[arg(long, conflicts_with = "require_limit")]
    pub no_require_limit: bool,
}

/// What a policy is attached to; the site when nothing is named.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct PolicyPlace {
    /// All members of this domain together
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// All members of this project together
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Each member of this project, with what they have there
    #[arg(long, value_name = "PROJECT")]
    pub member_of: Option<String>,
    /// This user
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum AllowanceCommand {
    /// List allowances, the one that ends first first
    Ls,
    /// Raise limits of a domain, a project or a user for a while
    #[command(after_help = "Examples:\n  \
        fardel allowance create --user mina --gpu 4 --for 3d --reason \"paper deadline\"\n  \
        fardel allowance create --project ml-2027 --gpu 16 --sessions 80 --for 12h")]
    Create {
        #[command(flatten)]
        of: TenantPlace,
        #[command(flatten)]
        limits: LimitFlags,
        /// After how long it ends, such as 3d; at most 365d
        #[arg(long = "for", value_name = "TIME")]
        time: String,
        /// Why, for those who read the list
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// End allowances before their time
    Rm {
        #[arg(value_name = "ALLOWANCE", required = true)]
        allowances: Vec<String>,
    },
    /// Ask administrators to raise limits of yours for a while
    #[command(after_help = "Example:\n  \
        fardel allowance ask --gpu 4 --days 7 --reason \"paper deadline\"")]
    Ask {
        #[command(flatten)]
        limits: LimitFlags,
        /// For how many days; at most 365
        #[arg(long, value_name = "NUMBER")]
        days: u32,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Show what you ask for
    Asked,
    /// Take back what you ask for
    Withdraw,
    /// List what users ask for
    Requests,
    /// Decline what a user asks for; an allowance of theirs answers what it raises
    Decline {
        #[arg(value_name = "USER")]
        user: String,
        /// What they are told
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// List budgets
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "BUDGET")]
        budget: String,
    },
    /// Give a project or a user GPU-hours for a period
    #[command(after_help = "Examples:\n  \
        fardel budget create 500 --project vision --month 2026-12 --hard\n  \
        fardel budget create 40.50 --user mina --from 2026-12-01 --until 2026-12-15")]
    Create {
        #[arg(value_name = "GPU-HOURS")]
        gpu_hours: String,
        /// For this project: its name or DOMAIN/NAME
        #[arg(long, value_name = "PROJECT", conflicts_with = "user")]
        project: Option<String>,
        /// For this user, in all projects
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        #[command(flatten)]
        period: BudgetPeriod,
        /// Refuse launches that do not fit what is left
        #[arg(long)]
        hard: bool,
    },
    /// Change a budget; what is left out stays
    Set {
        #[arg(value_name = "BUDGET")]
        budget: String,
        /// The new amount
        #[arg(long, value_name = "GPU-HOURS")]
        gpu_hours: Option<String>,
        /// yes: refuse launches that do not fit what is left; no: only warn
        #[arg(long, value_parser = ["yes", "no"])]
        hard: Option<String>,
    },
    /// Remove budgets
    Rm {
        #[arg(value_name = "BUDGET", required = true)]
        budgets: Vec<String>,
    },
}

/// The period of a budget: a month, or from a start until an end.
#[derive(Debug, Clone, Default, Args)]
pub struct BudgetPeriod {
    /// A month such as 2026-12
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "until"])]
    pub month: Option<String>,
    /// Start: a date or a time
    #[arg(long, value_name = "TIME", requires = "until")]
    pub from: Option<String>,
    /// End, not included: a date or a time
    #[arg(long, value_name = "TIME", requires = "from")]
    pub until: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum CourseCommand {
    /// List courses that you see
    #[command(visible_alias = "list")]
    Ls,
    /// Show one
    #[command(visible_alias = "show")]
    Get {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// Make a course of a project, as a draft
    #[command(after_help = "Example:\n  \
        fardel course create deep-2027 --project vision --from 2027-03-02T09:00 --to 2027-06-18T18:00 --image torch:2.9 --preset half --max-runtime 3h")]
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// The project: its name or DOMAIN/NAME
        #[arg(long, value_name = "PROJECT", required = true)]
        project: String,
        #[command(flatten)]
        flags: CourseFlags,
    },
    /// Change a course; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel course edit deep-2027 --to 2027-06-25T18:00")]
    Edit {
        #[arg(value_name = "COURSE")]
        course: String,
        /// A new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        flags: CourseFlags,
    },
    /// Open a draft to its members, or a course that ended
    Open {
        #[arg(value_name = "COURSE")]
        course: String,
        /// A later end of the term, for a course that ended
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
    },
    /// End a course now: sessions of members are stopped
    End {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// Archive a draft or a course that ended: its project is free for the next one
    Archive {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// Remove drafts and archived courses
    Rm {
        #[arg(value_name = "COURSE", required = true)]
        courses: Vec<String>,
    },
    /// List members, and how each stands
    Members {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// What each member did in the term
    #[command(after_help = "Example:\n  \
        fardel course attendance deep-2027 -o csv > attendance.csv")]
    Attendance {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// Start a session for each member who has none
    #[command(after_help = "Examples:\n  \
        fardel course start deep-2027 --dry-run\n  \
        fardel course start deep-2027 mina jae")]
    Start {
        #[arg(value_name = "COURSE")]
        course: String,
        /// These members; all but the teachers when left out
        #[arg(value_name = "USER")]
        users: Vec<String>,
        /// Say how many would start and wait, and start nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Stop sessions of members
    Stop {
        #[arg(value_name = "COURSE")]
        course: String,
        /// Of these members; of all but the teachers when left out
        #[arg(value_name = "USER")]
        users: Vec<String>,
    },
    /// Give sessions of members more time
    #[command(after_help = "Example:\n  \
        fardel course extend deep-2027 --minutes 30")]
    Extend {
        #[arg(value_name = "COURSE")]
        course: String,
        /// Of these members; of all but the teachers when left out
        #[arg(value_name = "USER")]
        users: Vec<String>,
        /// Minutes more, up to a day
        #[arg(long, value_name = "NUMBER", required = true)]
        minutes: u64,
    },
    /// Send a message to members
    #[command(after_help = "Example:\n  \
        fardel course message deep-2027 \"Save your work before 12:00.\"")]
    Message {
        #[arg(value_name = "COURSE")]
        course: String,
        #[arg(value_name = "TEXT")]
        text: String,
        /// To these members; to all but the teachers when left out
        #[arg(value_name = "USER")]
        users: Vec<String>,
    },
    /// Let members read a folder of yours until the term ends
    #[command(after_help = "Example:\n  \
        fardel course hand-out deep-2027 lesson-3")]
    HandOut {
        #[arg(value_name = "COURSE")]
        course: String,
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// List the reservations of the timetable
    Timetable {
        #[arg(value_name = "COURSE")]
        course: String,
    },
    /// Book a weekly time until the term ends
    #[command(after_help = "Example:\n  \
        fardel course book deep-2027 mon 09:00 12:00 --gpu 4 --cpu 16 --mem 64g --skip-holidays")]
    Book {
        #[arg(value_name = "COURSE")]
        course: String,
        #[arg(value_name = "DAY", value_parser = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"])]
        day: String,
        /// Time of day in the time zone of the course
        #[arg(value_name = "FROM")]
        from: String,
        #[arg(value_name = "TO")]
        to: String,
        /// Whole GPUs
        #[arg(long, value_name = "GPUS")]
        gpu: Option<String>,
        /// Cores
        #[arg(long, value_name = "CORES")]
        cpu: Option<String>,
        /// Memory: 64g
        #[arg(long, value_name = "SIZE")]
        mem: Option<String>,
        /// Leave out weeks that begin on a holiday
        #[arg(long)]
        skip_holidays: bool,
    },
}

/// What a course says.
#[derive(Debug, Clone, Default, Args)]
pub struct CourseFlags {
    /// When the term begins: local time, or a time with an offset
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub from: Option<String>,
    /// When it ends
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub to: Option<String>,
    /// Zone of both times; yours when left out
    #[arg(long, value_name = "ZONE", help_heading = "Time")]
    pub time_zone: Option<String>,
    /// Time limit of sessions that name none; `none` takes it out
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub max_runtime: Option<String>,
    /// What people read; the name when left out
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Image of its sessions
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Preset of its sessions; `none` takes it out
    #[arg(long, value_name = "PRESET")]
    pub preset: Option<String>,
    /// What members are told where they launch
    #[arg(long, value_name = "TEXT")]
    pub rules: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List resource groups that you may use
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "GROUP")]
        group: String,
    },
    /// Make a resource group without nodes, for everybody
    #[command(after_help = "Examples:\n  \
        fardel group add lab --title \"Machines of the lab\"\n  \
        fardel group add nightly --kind batch --spreading spread")]
    Add {
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        flags: GroupFlags,
    },
    /// Change a resource group; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel group edit lab --kind batch --kind interactive --spreading settings\n  \
        fardel group edit lab --order fifo --backfill timed")]
    Edit {
        #[arg(value_name = "GROUP")]
        group: String,
        /// A new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        flags: GroupFlags,
        /// Only when the group is still at this generation
        #[arg(long, value_name = "GENERATION")]
        if_match: Option<u64>,
    },
    /// Say which nodes a resource group has; the others that it had go to the first group
    #[command(after_help = "Example:\n  \
        fardel group nodes lab gpu-3 gpu-4")]
    Nodes {
        #[arg(value_name = "GROUP")]
        group: String,
        #[arg(value_name = "NODE")]
        nodes: Vec<String>,
        /// Only when the group is still at this generation
        #[arg(long, value_name = "GENERATION")]
        if_match: Option<u64>,
    },
    /// Say who may use a resource group
    #[command(after_help = "Examples:\n  \
        fardel group access lab --project default/vision --user kim\n  \
        fardel group access lab --everybody")]
    Access {
        #[arg(value_name = "GROUP")]
        group: String,
        /// Everybody
        #[arg(long, conflicts_with_all = ["domain", "project", "user"])]
        everybody: bool,
        /// Everybody in this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Vec<String>,
        /// Sessions of this project: its name or DOMAIN/NAME
        #[arg(long, value_name = "PROJECT")]
        project: Vec<String>,
        /// This user
        #[arg(long, value_name = "USER")]
        user: Vec<String>,
        /// Only when the group is still at this generation
        #[arg(long, value_name = "GENERATION")]
        if_match: Option<u64>,
    },
    /// Say when other rules hold for a resource group
    ///
    /// A window is one word with quotes: days, times, then kinds=, order=, backfill=, limit= and holidays= as far as they are other
    /// than the group's. They replace the windows that it has. Sessions that run go on.
    #[command(
        group(ArgGroup::new("which").required(true).args(["windows", "none"])),
        after_help = "Examples:\n  \
            fardel group windows lab \"mon-fri 18:00-08:00 kinds=batch order=fifo\" \"sat,sun 00:00-24:00 kinds=batch\"\n  \
            fardel group windows lab \"mon-fri 09:00-18:00 limit=4h\" --time-zone Asia/Seoul\n  \
            fardel group windows lab --none"
    )]
    Windows {
        #[arg(value_name = "GROUP")]
        group: String,
        #[arg(value_name = "WINDOW")]
        windows: Vec<String>,
        /// Take all windows away: the group's own rules always hold
        #[arg(long)]
        none: bool,
        /// Zone of their times; your own when left out
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
    },
    /// Remove resource groups without nodes and live sessions
    Rm {
        #[arg(value_name = "GROUP", required = true)]
        groups: Vec<String>,
    },
}

/// What a resource group says.
#[derive(Debug, Clone, Default, Args)]
pub struct GroupFlags {
    /// What people read; the name when left out
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Kind of sessions that it takes; both when left out
    #[arg(long, value_name = "KIND", value_parser = ["interactive", "batch"])]
    pub kind: Vec<String>,
    /// How sessions are spread over its devices and nodes [default: settings]
    #[arg(long, value_name = "HOW", value_parser = ["pack", "spread", "roundrobin", "settings"])]
    pub spreading: Option<String>,
    /// In which order its queue is served [default: site]
    #[arg(
        long,
        value_name = "ORDER",
        value_parser = ["turns", "fair", "drf", "fifo", "lifo", "site"]
    )]
    pub order: Option<String>,
    /// Who may start before one that waits in it [default: site]
    #[arg(long, value_name = "MODE", value_parser = ["strict", "timed", "site"])]
    pub backfill: Option<String>,
    /// How many times sessions together may hold the cores of a node, 1 to 8 [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub cpu_overcommit: Option<String>,
    /// Whether batch sessions that yield are stopped for sessions of higher priority [default: off]
    #[arg(long, value_name = "MODE", value_parser = ["off", "priority"])]
    pub preemption: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum AppCommand {
    /// List the apps of a session
    Ls {
        #[arg(value_name = "SESSION")]
        session: String,
    },
    /// Show one, and whether it answers
    Get(AppOfSession),
    /// Start an app unless it runs, and print a link that opens it once, within 30 seconds
    #[command(after_help = "Examples:\n  \
        fardel app open train jupyter\n  \
        fardel app open train 8080                      a program of your own, on 127.0.0.1:8080")]
    Open(AppOfSession),
    /// List whom an app is shared with
    Shares(AppOfSession),
    /// Share an app with a member of the session's project, or with all of them
    #[command(after_help = "Examples:\n  \
        fardel app share train gradio --user lee --until 2h\n  \
        fardel app share train gradio                   every member of the project, for 7 days")]
    Share {
        #[command(flatten)]
        app: AppOfSession,
        /// A member of the project; every member where it is left out
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// When it ends: 2h, 7d, or a time; at most 90 days from now
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
    },
    /// Take shares of an app back; what its visitors have open is closed
    Unshare {
        #[command(flatten)]
        app: AppOfSession,
        #[arg(value_name = "SHARE", required = true)]
        shares: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct AppOfSession {
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// Its name, or the number of a port
    #[arg(value_name = "APP")]
    pub app: String,
}

#[derive(Debug, Subcommand)]
pub enum FolderCommand {
    /// List folders: your own, of projects, shared ones, of users whose sessions you see; or the files of one
    #[command(after_help = "Example:\n  \
        fardel folder ls\n  \
        fardel folder ls --owner vision\n  \
        fardel folder ls data:/train\n  \
        fardel folder ls kim/data:/train")]
    Ls {
        /// Folder, and a directory in it: FOLDER, FOLDER:/PATH
        #[arg(value_name = "PLACE")]
        place: Option<String>,
        /// Order of the files: name, size or modified_at; -size for the largest first [default: name]
        #[arg(
            long,
            value_name = "KEY",
            requires = "place",
            allow_hyphen_values = true
        )]
        sort: Option<String>,
        /// Folders of this user or project alone
        #[arg(long, value_name = "OWNER", conflicts_with = "place")]
        owner: Option<String>,
    },
    /// Find files and directories below a directory by their names
    #[command(after_help = "Example:\n  \
        fardel folder find data:/train model")]
    Find {
        /// Folder, and a directory in it: FOLDER, FOLDER:/PATH
        #[arg(value_name = "PLACE")]
        place: String,
        /// What the names contain
        #[arg(value_name = "WORDS")]
        words: String,
    },
    /// Count what the directories in a directory take of the disk
    #[command(after_help = "Example:\n  \
        fardel folder du data\n  \
        fardel folder du data:/train --fresh")]
    Du {
        /// Folder, and a directory in it: FOLDER, FOLDER:/PATH
        #[arg(value_name = "PLACE")]
        place: String,
        /// Count now, also where it was counted in the last ten minutes
        #[arg(long)]
        fresh: bool,
    },
    /// Print a file of a folder
    Cat {
        #[arg(value_name = "FOLDER:/PATH")]
        place: String,
    },
    /// Write a file of text from standard input, at most 1 MiB
    #[command(after_help = "Example:\n  \
        fardel folder write data:/notes.md --new\n\n\
        Each write prints the ETag of what it wrote. With --if-match a file that was changed since stays as it is.")]
    Write {
        #[arg(value_name = "FOLDER:/PATH")]
        place: String,
        /// Where nothing is yet
        #[arg(long, conflicts_with = "if_match")]
        new: bool,
        /// Only over the version with this ETag
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
    /// Copy files into a folder of your own, out of one, or inside one
    #[command(after_help = "Example:\n  \
        fardel folder cp train.csv data:/\n  \
        fardel folder cp -r images data:/train\n  \
        fardel folder cp data:/results/model.bin .\n  \
        fardel folder cp data:/train data:/train-2\n\n\
        A copy that was broken off goes on where it stopped; files of the same size and time are left out.")]
    Cp {
        /// File or directory, here or as FOLDER:/PATH
        #[arg(value_name = "FROM")]
        from: String,
        /// Where it goes: on the other side
        #[arg(value_name = "TO")]
        to: String,
        /// Copy directories with all below them
        #[arg(short, long)]
        recursive: bool,
        /// Take the place of files that are there
        #[arg(long)]
        overwrite: bool,
    },
    /// Take a directory of a folder as one file
    #[command(after_help = "Example:\n  \
        fardel folder archive data:/train --format tar --to train.tar")]
    Archive {
        /// Folder, and a directory in it: FOLDER, FOLDER:/PATH
        #[arg(value_name = "PLACE")]
        place: String,
        /// Zip has at most 100,000 files
        #[arg(long, value_name = "FORMAT", value_parser = ["zip", "tar", "tar.zst"], default_value = "zip")]
        format: String,
        /// File to write, which is not there yet [default: the directory's name]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Make a directory in a folder of your own
    Mkdir {
        #[arg(value_name = "FOLDER:/PATH")]
        place: String,
    },
    /// Give a file or a directory another name or place in its folder
    Mv {
        #[arg(value_name = "FOLDER:/PATH")]
        place: String,
        /// Its new path in the same folder
        #[arg(value_name = "PATH")]
        to: String,
    },
    /// Remove files, and directories with all below them, into the folder's own trash
    Rm {
        #[arg(value_name = "FOLDER:/PATH", required = true)]
        places: Vec<String>,
        /// At once, and not into the trash
        #[arg(long)]
        for_good: bool,
    },
    /// List what was removed from a folder of your own in the last 30 days
    Removed {
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// Put removed files back where they were, over no other ones
    #[command(after_help = "Example:\n  \
        fardel folder removed data\n  \
        fardel folder undelete data 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")]
    Undelete {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// Ids of `fardel folder removed`
        #[arg(value_name = "ITEM", required = true)]
        items: Vec<String>,
    },
    /// Remove what is in a folder's own trash for good
    Empty {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// Ids of `fardel folder removed`
        #[arg(
            value_name = "ITEM",
            required_unless_present = "all",
            conflicts_with = "all"
        )]
        items: Vec<String>,
        /// All of it
        #[arg(long)]
        all: bool,
    },
    /// Show one
    Get {
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// Make a folder of your own, or of a project that you lead
    #[command(after_help = "Example:\n  \
        fardel folder create data\n  \
        fardel folder create corpus --project vision --members rw\n  \
        fardel folder create data --volume big\n  \
        fardel run -it --mount data:/data --mount home host")]
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// Where it is to lie [default: the box's own disk]
        #[arg(long, value_name = "VOLUME")]
        volume: Option<String>,
        /// Whose it is to be: a project that you lead [default: your own]
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// What members of the project may do with its files: ro reads them, rw changes them, too [default: ro]
        #[arg(long, value_name = "RIGHT", value_parser = ["ro", "rw"], requires = "project")]
        members: Option<String>,
    },
    /// Say what members of a project may do with the files of one of its folders
    #[command(after_help = "Example:\n  \
        fardel folder members vision/corpus rw")]
    Members {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// ro reads files, rw changes them, too
        #[arg(value_name = "RIGHT", value_parser = ["ro", "rw"])]
        right: String,
    },
    /// Say who makes own copies of a folder
    #[command(after_help = "Example:\n  \
        fardel folder cloning data owner")]
    Cloning {
        /// Its name, OWNER/NAME, or id
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// readers: all who may read its files; owner: its owner alone
        #[arg(value_name = "WHO", value_parser = ["readers", "owner"])]
        who: String,
    },
    /// Give a folder a limit of its own, or take it away
    #[command(after_help = "Examples:\n  \
        fardel folder limit data 20g\n  \
        fardel folder limit data none\n\n\
        It is a part of your limit; one that an administrator gives comes on top.\n\
        Where limits are held its files move first, and no session may mount it\n\
        meanwhile: its state is transferring until then.")]
    Limit {
        /// Its name, OWNER/NAME, or id
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// A size such as 20g; none: it counts on the limit of its owner
        #[arg(value_name = "SIZE")]
        size: String,
    },
    /// Make an own copy of a folder whose files you may read
    #[command(after_help = "Examples:\n  \
        fardel folder clone kim/data data\n  \
        fardel folder clone data corpus --project vision -d\n\n\
        Nothing of the copy is seen until it is whole; `fardel job cancel` calls it off.")]
    Clone {
        /// Its name, OWNER/NAME, or id
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// What the copy is called
        #[arg(value_name = "NAME")]
        name: String,
        /// Whose it is to be: a project that you lead [default: your own]
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// Do not wait for its end
        #[arg(short, long)]
        detach: bool,
    },
    /// Offer a folder to another owner, who takes it or does not
    #[command(after_help = "Examples:\n  \
        fardel folder transfer data --user lee\n  \
        fardel folder transfer data --project vision\n\n\
        Shares of it end when it is taken, and it counts on the limit of its new owner.")]
    Transfer {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// A user of the same domain
        #[arg(
            long,
            value_name = "USER",
            required_unless_present = "project",
            conflicts_with = "project"
        )]
        user: Option<String>,
        /// A project of which you are a member; its leads take it
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Take the offers of folders to another owner back
    Withdraw {
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// List the folders that you, or projects that you lead, may take over
    Transfers,
    /// Take a folder over; no session may mount it meanwhile
    #[command(after_help = "Example:\n  \
        fardel folder transfers\n  \
        fardel folder take 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")]
    Take {
        /// Id of `fardel folder transfers`
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// Do not wait for its end
        #[arg(short, long)]
        detach: bool,
    },
    /// Do not take folders over that are offered to you
    Refuse {
        /// Ids of `fardel folder transfers`
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// Give a folder another name; sessions that mount it go on
    Rename {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Move folders into the trash, where they stay for 30 days
    Trash {
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// Take folders out of the trash, with all their files
    Restore {
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// Remove folders in the trash for good, before their time there is over
    #[command(after_help = "Example:\n  \
        fardel folder trash data && fardel folder purge data\n\n\
        Nothing brings their files back.")]
    Purge {
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// Make a directory that belongs to no folder a folder of a user
    #[command(after_help = "Example:\n  \
        fardel folder adopt 0199f0a3-6c1e-7d40-8000-000000000001 --owner kim --name found\n\n\
        System: checks names such directories. One that the limit of a user holds goes to that user.")]
    Adopt {
        /// Id of the directory
        #[arg(value_name = "ID")]
        id: String,
        /// Name or id of the user
        #[arg(long, value_name = "USER")]
        owner: String,
        /// Name of the folder
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Take it from another site that has the same volume and is no more
        #[arg(long)]
        of_other_site: bool,
    },
    /// Share a folder with a user, who is asked first, or with the members of a project
    #[command(after_help = "Examples:\n  \
        fardel folder share data --user lee\n  \
        fardel folder share data --user lee --right rw --until 30d\n  \
        fardel folder share data --project vision\n\n\
        A second share with the same user or project takes the place of the first one.")]
    Share {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// A user of the same domain
        #[arg(
            long,
            value_name = "USER",
            required_unless_present = "project",
            conflicts_with = "project"
        )]
        user: Option<String>,
        /// A project of which you are a member
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// ro reads files, rw changes them, rwd renames, trashes and shares the folder, too
        #[arg(long, value_name = "RIGHT", value_parser = ["ro", "rw", "rwd"], default_value = "ro")]
        right: String,
        /// When it ends: 2h, 7d, or a time [default: when it is taken back]
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
    },
    /// List whom a folder is shared with
    Shares {
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// Take shares of a folder back; transfers of its files end
    Unshare {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// Ids of `fardel folder shares`
        #[arg(value_name = "SHARE", required = true)]
        shares: Vec<String>,
    },
    /// List the sessions that are not over and mount a folder
    Sessions {
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// Take a folder out of sessions that mount it; they go on without it
    #[command(after_help = "Example:\n  \
        fardel folder detach data lee/train\n\n\
        A running session loses it within seconds. A file or directory that a program has open stays open to it until it closes it or ends.")]
    Detach {
        /// Its name, OWNER/NAME, or id
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// As `fardel folder sessions` lists them: OWNER/NAME, or the name of one of your own
        #[arg(value_name = "SESSION", required = true)]
        sessions: Vec<String>,
    },
    /// List the folders that are offered to you
    Invitations,
    /// Accept folders that are offered to you
    #[command(after_help = "Example:\n  \
        fardel folder invitations\n  \
        fardel folder accept 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f\n  \
        fardel run -it --mount kim/data:/data:ro host")]
    Accept {
        /// Ids of `fardel folder invitations`
        #[arg(value_name = "INVITATION", required = true)]
        invitations: Vec<String>,
    },
    /// Decline folders that are offered to you
    Decline {
        /// Ids of `fardel folder invitations`
        #[arg(value_name = "INVITATION", required = true)]
        invitations: Vec<String>,
    },
    /// Leave folders that are shared with you directly
    Leave {
        /// Their names, OWNER/NAME, or ids
        #[arg(value_name = "FOLDER", required = true)]
        folders: Vec<String>,
    },
    /// List what the folders of each user and each project take together, and their limit
    Usage,
}

#[derive(Debug, Subcommand)]
pub enum PresetCommand {
    /// List presets
    Ls {
        /// Those that a launch in this project may name, in their order
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Show one
    Get {
        #[arg(value_name = "PRESET")]
        preset: String,
    },
    /// Make a preset of the site, a domain or a project
    #[command(after_help = "Examples:\n  \
        fardel preset add small --cpu 2 --mem 4g --default yes\n  \
        fardel preset add half --cpu 8 --mem 64g --gpu 0.5 --max-runtime 8h --project vision --title \"Half a GPU\"")]
    Add {
        #[arg(value_name = "NAME")]
        name: String,
        /// For launches in this domain alone
        #[arg(long, value_name = "DOMAIN", conflicts_with = "project")]
        domain: Option<String>,
        /// For launches in this project alone: its name or DOMAIN/NAME
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        #[command(flatten)]
        flags: PresetFlags,
    },
    /// Change a preset; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel preset edit half --mem 48g --max-runtime none")]
    Edit {
        #[arg(value_name = "PRESET")]
        preset: String,
        /// A new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        flags: PresetFlags,
    },
    /// Remove presets
    Rm {
        #[arg(value_name = "PRESET", required = true)]
        presets: Vec<String>,
    },
}

/// What a preset says; `none` takes an amount out.
#[derive(Debug, Clone, Default, Args)]
pub struct PresetFlags {
    /// What people read; the name when left out
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// The same for readers in Korean
    #[arg(long, value_name = "TEXT")]
    pub korean: Option<String>,
    /// Cores
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub cpu: Option<String>,
    /// Memory limit
    #[arg(
        long,
        visible_alias = "memory",
        value_name = "SIZE",
        help_heading = "Resources"
    )]
    pub mem: Option<String>,
    /// Size of /dev/shm
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub shm: Option<String>,
    /// What sessions may write outside their folders
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub disk: Option<String>,
    /// Share of a GPU in hundredths
    #[arg(long, value_name = "SHARE", help_heading = "Resources")]
    pub gpu: Option<String>,
    /// GPU memory of the fraction
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub gpu_mem: Option<String>,
    /// One MIG partition of this profile instead of a share
    #[arg(long, value_name = "PROFILE", help_heading = "Resources")]
    pub mig: Option<String>,
    /// Time limit: sessions are stopped after this long
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub max_runtime: Option<String>,
    /// Lower ones are shown first
    #[arg(long, value_name = "NUMBER")]
    pub position: Option<u32>,
    /// Resource group that launches with it go to; empty for any
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// The launch form begins with it
    #[arg(long, value_parser = ["yes", "no"])]
    pub default: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ReservationCommand {
    /// List reservations that you see
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "RESERVATION")]
        reservation: String,
    },
    /// Book GPUs, cores and memory from a start to an end; beyond the quota of your project it is a request
    #[command(after_help = "Examples:\n  \
        fardel reservation book lecture --project vision --gpu 12 --from 2026-12-01T09:00 --to 2026-12-01T12:00 --repeats 8\n  \
        fardel reservation book fans --maintenance --gpu 4 --from 2026-12-05T18:00 --to 2026-12-05T20:00")]
    Book {
        #[arg(value_name = "NAME")]
        name: String,
        /// For sessions of this project: its name or DOMAIN/NAME
        #[arg(long, value_name = "PROJECT", conflicts_with_all = ["user", "maintenance"])]
        project: Option<String>,
        /// For sessions of this user
        #[arg(long, value_name = "USER", conflicts_with = "maintenance")]
        user: Option<String>,
        /// For maintenance: no session runs there meanwhile
        #[arg(long)]
        maintenance: bool,
        #[command(flatten)]
        flags: ReservationFlags,
    },
    /// Change a reservation; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel reservation change lecture --to 2026-12-01T13:00")]
    Change {
        #[arg(value_name = "RESERVATION")]
        reservation: String,
        /// A new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        flags: ReservationFlags,
    },
    /// Cancel what is left of reservations
    Cancel {
        #[arg(value_name = "RESERVATION", required = true)]
        reservations: Vec<String>,
    },
    /// Approve requests of leads by their ids: they are booked if they are still free
    #[command(after_help = "Example:\n  \
        fardel reservation approve 01997c3e-0000-7000-8000-000000000000")]
    Approve {
        #[arg(value_name = "ID", required = true)]
        reservations: Vec<String>,
        /// A sentence for the user who asked
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Refuse requests of leads by their ids
    #[command(after_help = "Example:\n  \
        fardel reservation refuse 01997c3e-0000-7000-8000-000000000000 \
        --reason \"The lab is closed that day.\"")]
    Refuse {
        #[arg(value_name = "ID", required = true)]
        reservations: Vec<String>,
        /// A sentence for the user who asked
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Withdraw your own requests
    Withdraw {
        #[arg(value_name = "RESERVATION", required = true)]
        reservations: Vec<String>,
    },
}

/// What a reservation says.
#[derive(Debug, Clone, Default, Args)]
pub struct ReservationFlags {
    /// Its start, in local time or with an offset: 2026-12-01T09:00, 2026-12-01T09:00:00+09:00
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub from: Option<String>,
    /// Its end
    #[arg(long, value_name = "TIME", help_heading = "Time")]
    pub to: Option<String>,
    /// Weeks in a row
    #[arg(long, value_name = "NUMBER", help_heading = "Time")]
    pub repeats: Option<u32>,
    /// Leave out weeks that begin on a holiday
    #[arg(long, help_heading = "Time")]
    pub skip_holidays: bool,
    /// Time zone of both, such as Asia/Seoul [default: that of your account, or of the reservation]
    #[arg(long, value_name = "ZONE", help_heading = "Time")]
    pub time_zone: Option<String>,
    /// Other sessions: drain stops them when it begins, fit starts only those that end in time [default when booking: drain]
    #[arg(long, value_parser = ["drain", "fit"], help_heading = "Time")]
    pub before: Option<String>,
    /// Whole GPUs
    #[arg(long, value_name = "NUMBER", help_heading = "Resources")]
    pub gpu: Option<String>,
    /// Cores
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub cpu: Option<String>,
    /// Memory
    #[arg(
        long,
        visible_alias = "memory",
        value_name = "SIZE",
        help_heading = "Resources"
    )]
    pub mem: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List the snapshots of a folder, newest first
    Ls {
        #[arg(value_name = "FOLDER")]
        folder: String,
    },
    /// Keep the files of a folder as they are now
    #[command(after_help = "Example:\n  \
        fardel snapshot create data\n\n\
        Where a session may write to the folder meanwhile, each file is whole, but the files are of different moments.")]
    Create {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// Do not wait for its end
        #[arg(short, long)]
        detach: bool,
    },
    /// Say how many scheduled snapshots of a folder are kept
    #[command(after_help = "Examples:\n  \
        fardel snapshot schedule data --hourly 24 --daily 7 --weekly 4\n  \
        fardel snapshot schedule data --hourly 0\n\n\
        What is left out stays. 0 makes no new ones, and those that are there stay.")]
    Schedule {
        #[arg(value_name = "FOLDER")]
        folder: String,
        /// One an hour, and this many of them, at most 48
        #[arg(long, value_name = "NUMBER")]
        hourly: Option<u32>,
        /// One a day, at most 31
        #[arg(long, value_name = "NUMBER")]
        daily: Option<u32>,
        /// One a week, at most 52
        #[arg(long, value_name = "NUMBER")]
        weekly: Option<u32>,
    },
    /// Remove snapshots of a folder
    Rm {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[arg(value_name = "NUMBER", required = true)]
        numbers: Vec<u32>,
    },
    /// List a directory of a snapshot
    #[command(after_help = "Example:\n  \
        fardel snapshot files data 3 train")]
    Files {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[arg(value_name = "NUMBER")]
        number: u32,
        /// A directory [default: the top]
        #[arg(value_name = "PATH", default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Make a new folder of a snapshot
    #[command(after_help = "Examples:\n  \
        fardel snapshot clone data 3 data-of-monday\n  \
        fardel snapshot clone data 3 train --path train")]
    Clone {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[arg(value_name = "NUMBER")]
        number: u32,
        /// What the new folder is called
        #[arg(value_name = "NAME")]
        name: String,
        /// A file or a directory of it alone
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// Whose it is to be: a project that you lead [default: your own]
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// Do not wait for its end
        #[arg(short, long)]
        detach: bool,
    },
    /// Put a file or a directory of a snapshot back into its folder
    #[command(after_help = "Examples:\n  \
        fardel snapshot restore data 3 train/a.csv --replace\n  \
        fardel snapshot restore data 3 train --to train-of-monday\n\n\
        What stands there stays, unless --replace moves it into the trash of the folder.")]
    Restore {
        #[arg(value_name = "FOLDER")]
        folder: String,
        #[arg(value_name = "NUMBER")]
        number: u32,
        #[arg(value_name = "PATH")]
        path: String,
        /// Where it is to be [default: where it was]
        #[arg(long, value_name = "PATH")]
        to: Option<String>,
        /// Move what stands there into the trash
        #[arg(long)]
        replace: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum StorageCommand {
    /// List what the folders of each user take together, their limit, and how near it is
    #[command(after_help = "Example:\n  \
        fardel storage ls\n  \
        fardel storage ls -o csv > storage.csv")]
    Ls,
    /// List the biggest folders, with the time of their last use
    #[command(after_help = "Example:\n  \
        fardel storage folders\n  \
        fardel storage folders -n 100")]
    Folders {
        /// How many
        #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 20)]
        limit: usize,
    },
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List volumes, with their state, what is used and what is free
    Ls,
    /// Show one
    Get {
        #[arg(value_name = "VOLUME")]
        volume: String,
    },
    /// Make a mounted file system a volume; it is empty, or was one before
    #[command(after_help = "Example:\n  \
        mount -t nfs filer:/export/big /mnt/big\n  \
        fardel volume add big /mnt/big --domain biology --mapped-user 5000\n  \
        fardel folder create data --volume big")]
    Add {
        #[arg(value_name = "NAME")]
        name: String,
        /// Directory that it is mounted on
        #[arg(value_name = "DIRECTORY")]
        path: String,
        /// User, and group, of the file system that user 1000 of a session is there, where it has no id-mapped mounts (NFS)
        #[arg(long, value_name = "UID[:GID]")]
        mapped_user: Option<String>,
        /// What each folder that is made there may take: 200g [default: no limit]
        #[arg(long, value_name = "SIZE")]
        folder_limit: Option<String>,
        /// For the users of this domain; for all users when no domain and no project is named
        #[arg(long, value_name = "DOMAIN")]
        domain: Vec<String>,
        /// For the members of this project, PROJECT or DOMAIN/PROJECT
        #[arg(long, value_name = "PROJECT")]
        project: Vec<String>,
    },
    /// Change a volume; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel volume set big --path /mnt/bigger\n  \
        fardel volume set big --everyone")]
    Set {
        #[arg(value_name = "VOLUME")]
        volume: String,
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Directory that the same file system is mounted on now
        #[arg(long, value_name = "DIRECTORY")]
        path: Option<String>,
        /// What each folder that is made there from now on may take: 200g, or none
        #[arg(long, value_name = "SIZE")]
        folder_limit: Option<String>,
        /// For the users of these domains, in place of the domains before
        #[arg(long, value_name = "DOMAIN")]
        domain: Vec<String>,
        /// For the members of these projects, in place of the projects before
        #[arg(long, value_name = "PROJECT")]
        project: Vec<String>,
        /// For all users
        #[arg(long, conflicts_with_all = ["domain", "project"])]
        everyone: bool,
    },
    /// Show how the box's own disk holds folders to their limits, and the pool that they lie in
    Pool,
    /// Make the pool that folders lie in larger, while it is in use
    #[command(after_help = "Example:\n  \
        fardel volume pool\n  \
        fardel volume grow 500g")]
    Grow {
        /// The whole size, such as 500g; a pool never shrinks
        #[arg(value_name = "SIZE")]
        size: String,
    },
    /// Forget volumes that no folder lies on; their files stay
    Rm {
        #[arg(value_name = "VOLUME", required = true)]
        volumes: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum AnnouncementCommand {
    /// List announcements, also those to come and those that are over
    Ls {
        /// Those that hold for yourself now
        #[arg(long)]
        current: bool,
    },
    /// Show one
    Get {
        #[arg(value_name = "ANNOUNCEMENT")]
        announcement: String,
    },
    /// Announce something to all users, or to those of a domain
    #[command(after_help = "Examples:\n  \
        fardel announcement create \"No new sessions on Saturday.\" --level warning --until 3d\n  \
        fardel announcement create \"Lectures begin.\" --korean \"개강입니다.\" --domain biology")]
    Create {
        /// One paragraph of plain text, at most 500 characters
        #[arg(value_name = "TEXT")]
        text: String,
        /// The same for readers in Korean
        #[arg(long, value_name = "TEXT")]
        korean: Option<String>,
        /// How much it matters
        #[arg(long, default_value = "info", value_parser = ["info", "warning"])]
        level: String,
        /// For the users of this domain; for all users when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// When it begins: 2h from now, a day, or RFC 3339; now when left out
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// When it ends, the same way; until it is removed when left out
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Show it on the sign-in page as well
        #[arg(long, conflicts_with = "domain")]
        before_sign_in: bool,
    },
    /// Change an announcement; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel announcement set ID --until none")]
    Set {
        #[arg(value_name = "ANNOUNCEMENT")]
        announcement: String,
        /// One paragraph of plain text, at most 500 characters
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        /// The same for readers in Korean; "" takes it away
        #[arg(long, value_name = "TEXT")]
        korean: Option<String>,
        /// How much it matters
        #[arg(long, value_parser = ["info", "warning"])]
        level: Option<String>,
        /// When it begins: 2h from now, a day, or RFC 3339
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// When it ends, the same way; none: until it is removed
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Whether it is shown on the sign-in page as well
        #[arg(long, value_parser = ["yes", "no"])]
        before_sign_in: Option<String>,
    },
    /// Remove announcements
    Rm {
        #[arg(value_name = "ANNOUNCEMENT", required = true)]
        announcements: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum FairShareCommand {
    /// List domains, projects and users with their weights and their use
    Ls,
    /// Set the order of the queue, its backfill, or the half-life of past use
    #[command(after_help = "Examples:\n  \
        fardel fair-share order fair\n  \
        fardel fair-share order fair --half-life 1d\n  \
        fardel fair-share order --backfill timed")]
    Order {
        /// turns: users in turns; fair: least used for its weight; drf: holds least; fifo: oldest; lifo: newest first
        #[arg(value_name = "ORDER", value_parser = ["turns", "fair", "drf", "fifo", "lifo"])]
        order: Option<String>,
        /// strict: on what a session in front could not use; timed: also over in time by its limit
        #[arg(long, value_name = "MODE", value_parser = ["strict", "timed"])]
        backfill: Option<String>,
        /// Time after which use counts half, in whole hours, such as 7d
        #[arg(long, value_name = "TIME")]
        half_life: Option<String>,
    },
    /// Set the weight of a domain, a project or a user; 1 is the usual one
    Weight {
        #[arg(value_name = "WEIGHT")]
        weight: u32,
        #[command(flatten)]
        place: TenantPlace,
    },
}

/// Whose weight or allowance it is.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct TenantPlace {
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// List the roles of a user
    Ls {
        #[arg(value_name = "USER")]
        user: String,
    },
    /// Give a user a role on a domain, or on the whole site
    Grant {
        #[arg(value_name = "USER")]
        user: String,
        /// An auditor sees everything, an administrator changes everything
        #[arg(value_name = "ROLE", value_parser = ["auditor", "administrator"])]
        role: String,
        /// The whole site when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// When the role ends, such as 30d; never when left out
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Take a role away
    Revoke {
        #[arg(value_name = "USER")]
        user: String,
        #[arg(value_name = "ROLE", value_parser = ["auditor", "administrator"])]
        role: String,
        /// The whole site when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
}

/// Where a password comes from; it is never an argument, since other users can read those.
#[derive(Debug, Clone, Args)]
pub struct Password {
    /// Read the password from this file
    #[arg(long, value_name = "FILE", env = "FARDEL_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List your tokens; secrets are never shown again
    Ls,
    /// Make a token and print its secret, once
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do: sessions:read, sessions:write, sessions:enter, images:read, images:write,
        /// users:read, users:write, audit:read, system:read, system:write, me; everything you may when left out
        #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
        scope: Vec<String>,
        /// Ends after this long: 8h, 30d; when left out, after 90 days or with the token that asks
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Networks that it may be used from, with commas between; when left out, everywhere or as the token that asks
        #[arg(long, value_name = "NETWORKS")]
        networks: Option<String>,
    },
    /// Revoke tokens
    Rm {
        #[arg(value_name = "TOKEN", required = true)]
        tokens: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum MailCommand {
    /// Show which kinds of notices you get by mail
    Choices,
    /// Choose which kinds of notices you get by mail; those that are left out come no longer
    #[command(after_help = "Examples:\n  \
        fardel mail choose failed will-end\n  \
        fardel mail choose --default")]
    Choose {
        #[arg(
            value_name = "KIND",
            required_unless_present_any = ["none", "default"],
            value_parser = [
                "will-end",
                "failed",
                "reservation-warned",
                "reservation-asked",
                "sign-up",
                "limit-asked",
                "budget",
                "storage",
                "idle-warned",
                "course",
                "break-glass",
                "approval",
                "sign-in",
                "reservation-decided",
                "started",
                "ended",
                "cancelled",
                "gpu-warned",
                "found-idle",
                "maintenance",
            ]
        )]
        kinds: Vec<String>,
        /// No mail at all
        #[arg(long, conflicts_with_all = ["kinds", "default"])]
        none: bool,
        /// The kinds that need an answer
        #[arg(long, conflicts_with = "kinds")]
        default: bool,
    },
    /// Show how mail of the site goes out; for administrators
    Status,
    /// Send again what the mail server refused for good; for administrators
    Retry,
    /// Send one mail and print what the mail server answers; for administrators
    ///
    /// Returns 1 where the mail server does not take it.
    #[command(after_help = "Example:\n  \
        fardel mail test me@lab.example")]
    Test {
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum HolidayCommand {
    /// List holidays, one day a line
    Ls {
        /// Those of this domain; of the site when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
    /// Add holidays of a file: one day a line, CSV, or iCalendar
    #[command(after_help = "Examples:\n  \
        fardel holiday import holidays-2027.ics\n  \
        fardel holiday import biology.csv --domain biology --replace")]
    Import {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Take away all days that the file does not name
        #[arg(long)]
        replace: bool,
        /// Of this domain; of the site when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
    /// Take holidays away
    #[command(after_help = "Example:\n  \
        fardel holiday rm 2026-12-24 2026-12-31")]
    Rm {
        #[arg(value_name = "DAY", required = true)]
        days: Vec<String>,
        /// Of this domain; of the site when left out
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum BrandingCommand {
    /// Show what is the site's own
    Show,
    /// Change the look of the site; what is left out stays
    #[command(after_help = "Examples:\n  \
        fardel branding set --name \"Vision Lab\" --hue 3 --logo lab.png\n  \
        fardel branding set --hue none --logo none")]
    Set(BrandingSet),
    /// Let the site look as the product does
    Reset,
}

#[derive(Debug, Args)]
pub struct BrandingSet {
    /// What pages and mail call the site; empty: the name of the machine
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A PNG file of up to 100 KiB, or none
    #[arg(long, value_name = "FILE")]
    pub logo: Option<PathBuf>,
    /// The accent: 1 to 8 of the design, or none
    #[arg(long, value_name = "HUE")]
    pub hue: Option<String>,
    /// Below each page
    #[arg(long, value_name = "TEXT")]
    pub footer: Option<String>,
    /// The same for readers in Korean
    #[arg(long, value_name = "TEXT")]
    pub footer_korean: Option<String>,
    /// On the sign-in page
    #[arg(long, value_name = "TEXT")]
    pub sign_in: Option<String>,
    /// The same for readers in Korean
    #[arg(long, value_name = "TEXT")]
    pub sign_in_korean: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// List webhooks, and how each stands
    Ls,
    /// Show one webhook
    Get {
        #[arg(value_name = "WEBHOOK")]
        webhook: String,
    },
    /// Name an address that is told of events, and print what signs its requests, once
    #[command(after_help = "Examples:\n  \
        fardel webhook create pager https://10.1.0.9/fardel --kind session.ended --kind budget.warned\n  \
        fardel webhook create log https://10.1.0.9/all --kind sessions,users,system")]
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        #[arg(value_name = "ADDRESS")]
        address: String,
        /// Topics such as sessions, and codes or their beginnings such as session.ended
        #[arg(
            long = "kind",
            value_name = "KIND",
            value_delimiter = ',',
            required = true
        )]
        kinds: Vec<String>,
    },
    /// Change a webhook; what is left out stays
    #[command(after_help = "Example:\n  \
        fardel webhook set pager --active no")]
    Set {
        #[arg(value_name = "WEBHOOK")]
        webhook: String,
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// Topics, and codes or their beginnings, in the place of those it has
        #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
        kinds: Vec<String>,
        /// Whether it is told of events
        #[arg(long, value_parser = ["yes", "no"])]
        active: Option<String>,
    },
    /// Remove webhooks
    Rm {
        #[arg(value_name = "WEBHOOK", required = true)]
        webhooks: Vec<String>,
    },
    /// Send a webhook one signed request and print what comes back
    ///
    /// Returns 1 where it does not take it.
    Test {
        #[arg(value_name = "WEBHOOK")]
        webhook: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List your access keys; secrets are never shown again
    Ls,
    /// Make an access key and print it with its secret, once
    #[command(after_help = "Example:\n  \
        fardel key create nightly --scope sessions:read,sessions:write")]
    Create {
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do: sessions:read, sessions:write, sessions:enter, images:read, images:write,
        /// users:read, users:write, audit:read, system:read, system:write, me; everything you may when left out
        #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
        scope: Vec<String>,
        /// Ends after this long: 8h, 30d; when left out, after 90 days or with the token that asks
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Networks that it may be used from, with commas between; when left out, everywhere or as the token that asks
        #[arg(long, value_name = "NETWORKS")]
        networks: Option<String>,
    },
    /// Revoke access keys, by id
    Revoke {
        #[arg(value_name = "ID", required = true)]
        keys: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum SshKeyCommand {
    /// List your public keys
    Ls,
    /// Add a public key: the file that ends in .pub, or - for standard input
    #[command(after_help = "Example:\n  \
        fardel ssh-key add ~/.ssh/id_ed25519.pub --name laptop")]
    Add {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What it is called; when left out, what stands behind the key
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Ends after this long: 8h, 30d; when left out, it stays until you remove it
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Remove public keys, by id
    Rm {
        #[arg(value_name = "ID", required = true)]
        keys: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum DotfileCommand {
    /// List your dotfiles
    Ls,
    /// Print a dotfile
    Cat {
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Save a file, or - for standard input, as a dotfile
    #[command(after_help = "Example:\n  \
        fardel dotfile put .config/git/config ~/.config/git/config")]
    Put {
        /// Below the home of the session
        #[arg(value_name = "PATH")]
        path: String,
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Permission bits, such as 755 [default: 600]
        #[arg(long, value_name = "OCTAL")]
        mode: Option<String>,
    },
    /// Remove dotfiles
    Rm {
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum StartupCommand {
    /// Print your start-up script
    Cat,
    /// Save a file, or - for standard input, as your start-up script
    #[command(after_help = "Example:\n  \
        fardel startup set setup.sh --or-end")]
    Set {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// End the session where the script fails; without it the command runs all the same
        #[arg(long)]
        or_end: bool,
    },
    /// Remove your start-up script
    Rm,
}

#[derive(Debug, Subcommand)]
pub enum VariableCommand {
    /// List your variables; their values are never shown again
    Ls,
    /// Save a variable, whose value is typed unseen or read from standard input
    #[command(after_help = "Example:\n  \
        fardel variable set WANDB_API_KEY < key.txt")]
    Set {
        #[arg(value_name = "NAME")]
        name: String,
        /// Read the value from this file, or - for standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Remove variables
    Rm {
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum SignInCommand {
    /// List the browsers that you, or a user, are signed in with
    Ls {
        /// Of this user; for administrators
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Sign browsers out
    Rm {
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Of this user; for administrators
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Me {
    /// Show your account
    Get,
    /// Set language, theme or time zone
    Set {
        /// en or ko
        #[arg(long)]
        language: Option<String>,
        /// light, dark or system
        #[arg(long)]
        theme: Option<String>,
        /// IANA name, such as Asia/Seoul
        #[arg(long)]
        time_zone: Option<String>,
    },
    /// Change your own password; your browsers are signed out and your other tokens revoked
    Passwd {
        /// Read old and new password, one a line, from standard input
        #[arg(long)]
        stdin: bool,
    },
    /// Your second factor: codes of an app beside the password
    #[command(subcommand)]
    SecondFactor(SecondFactorCommand),
}

#[derive(Debug, Subcommand)]
pub enum SecondFactorCommand {
    /// Show whether you have one
    Get,
    /// Set one up, or replace it: prints the key for the app, then asks for its first code
    ///
    /// The first code is read from standard input, after the password where that is there. Recovery codes are printed
    /// once.
    On(SecondFactorCredentials),
    /// Turn it off
    Off(SecondFactorCredentials),
    /// Make new recovery codes; the old ones are void
    RecoveryCodes(SecondFactorCredentials),
}

#[derive(Debug, Clone, Args)]
pub struct SecondFactorCredentials {
    #[command(flatten)]
    pub password: Password,
    /// The code that the app shows now, or a recovery code; asked when left out
    #[arg(long, value_name = "CODE")]
    pub code: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum GpuCommand {
    /// List GPUs with their free capacity and the sessions on them
    Ls,
    /// Show one GPU and its slices
    Show {
        /// Name, a unique beginning of it, or index
        gpu: String,
    },
    /// Cordon a GPU: no new sessions, running ones continue
    Cordon {
        /// Name, a unique beginning of it, or index
        gpu: String,
        /// Reason, in a few words
        #[arg(long)]
        note: Option<String>,
    },
    /// Uncordon a GPU: it takes new sessions again
    Uncordon {
        /// Name, a unique beginning of it, or index
        gpu: String,
    },
    /// Drain a GPU: end its sessions, take no new ones
    ///
    /// Batch sessions wait for another GPU and start again. Without --yes, only lists the sessions
    /// that would end.
    Drain {
        /// Name, a unique beginning of it, or index
        gpu: String,
        /// Apply the change
        #[arg(short, long)]
        yes: bool,
        /// Reason, in a few words
        #[arg(long)]
        note: Option<String>,
    },
    /// Partition a GPU in hardware (MIG), or remove its partitions
    ///
    /// A GPU is partitioned only when no session runs on it: every session on it ends, and batch
    /// sessions wait for another GPU and start again. Without --yes, only prints the partitions and
    /// the sessions that would end. A simulated GPU is partitioned at once, a real one by its
    /// node; until the node reports the partitions, no session starts on it.
    Partition {
        /// Name, a unique beginning of it, or index
        gpu: String,
        /// The partitions: 3g.40gb 2g.20gb 1g.10gb
        #[arg(value_name = "PROFILE", required_unless_present = "whole")]
        profiles: Vec<String>,
        /// Remove all partitions
        #[arg(long, conflicts_with = "profiles")]
        whole: bool,
        /// Apply the change
        #[arg(short, long)]
        yes: bool,
        /// Reason, in a few words
        #[arg(long)]
        note: Option<String>,
    },
    /// Test on a GPU that the limits of its slices hold
    ///
    /// Two sessions test memory on nine paths, every way to the driver, the cost of a launch, shares
    /// of the time, and a neighbour. Takes a minute or two. Returns 1 if a part fails.
    Test {
        /// Name, a unique beginning of it, or index
        gpu: String,
        /// Start both sessions from this image, with glibc 2.34 or newer, where the node does not offer its
        /// own programs
        #[arg(long)]
        image: Option<String>,
        /// Do not wait for the end; `fardel job get` shows the progress
        #[arg(long)]
        no_wait: bool,
    },
    /// Show the result of the newest test of a GPU, with its signature
    Report {
        /// Name, a unique beginning of it, or index
        gpu: String,
    },
    /// Give a running session a larger or smaller share of its GPU, without a restart
    Resize {
        #[command(flatten)]
        session: Named,
        /// The new share: 0.35
        share: String,
        /// GPU memory of it [default: in proportion to the share]
        #[arg(long, value_name = "SIZE")]
        gpu_mem: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum TlsCommand {
    /// Show the certificate that is served, and the previous one
    Show,
    /// Create a certificate signing request; its key stays on the server
    Csr {
        /// Host name or address of the server, repeatable [default: the server's own names]
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
        /// Organisation, if the authority requires it
        #[arg(long, default_value = "")]
        organisation: String,
    },
    /// Serve a site's certificate; one that does not fit changes nothing
    Import {
        /// PEM: the server's certificate first, then its issuers; - reads standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// PEM of the private key; left out where the request was made with `fardel tls csr`
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Another name of the server, which it does not know
        #[arg(long)]
        name: Option<String>,
    },
    /// Serve the server's own certificate again
    Reset {
        /// Serve the previous certificate of the site instead
        #[arg(long)]
        previous: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub struct Login {
    /// https://HOST, or http://HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    /// SHA-256 fingerprint of the server's authority, instead of comparing it by eye
    #[arg(long, value_name = "SHA256")]
    pub fingerprint: Option<String>,
    /// Your name there; asked when left out
    #[arg(long, env = "FARDEL_USER")]
    pub name: Option<String>,
    #[command(flatten)]
    pub password: Password,
    /// Code of the second factor, or a recovery code; asked when left out
    #[arg(long, value_name = "CODE")]
    pub code: Option<String>,
    /// Time after which the token of this client expires
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub expires: String,
}

#[derive(Debug, Clone, Args)]
pub struct DryRun {
    /// Check it in full, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check a settings file; says what is wrong and where
    Validate {
        /// [default: /etc/fardel/fardel.toml]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show the effective values and the source of each, without a server
    Show {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// List the settings of the running server
    Ls,
    /// Show one setting of the running server
    Get {
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Set a setting in the settings file; a value that does not fit changes nothing
    ///
    /// The running server checks all its sources with the new value first, then writes the file and takes
    /// it up, or says that it waits for a restart.
    #[command(after_help = "Examples:\n  \
        fardel config set backup_keep 14\n  \
        fardel config set gpu_units 10 --dry-run")]
    Set {
        #[arg(value_name = "KEY")]
        key: String,
        #[arg(value_name = "VALUE")]
        value: String,
        #[command(flatten)]
        dry: DryRun,
    },
    /// Set a setting back to its default
    Unset {
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        dry: DryRun,
    },
    /// Undo the last change of a setting
    Undo {
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        dry: DryRun,
    },
    /// Print a settings file with every key and its default, commented out
    Sample,
    /// Make the running server read its settings again; a fault in them changes nothing
    Reload,
    /// Ask the directory and the identity provider, and say what is wrong
    Test,
}

#[derive(Debug, Subcommand)]
pub enum Backup {
    /// Write an encrypted backup into a new file; a running server continues
    ///
    /// Holds the catalog (users, tokens, sessions, history), the settings and the keys of the
    /// certificates. Images, folders and logs of sessions are not in it.
    Create {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        secret: PassphraseArguments,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Rehearse the restore of a backup in a scratch directory and say what is in it
    Verify {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        secret: PassphraseArguments,
        /// Directory to work in, with room for the whole backup [default: the directory of the state]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Restore a backup; the server must not run
    #[command(after_help = "Examples:\n  \
        fardel backup restore /media/usb/box.backup\n  \
        fardel backup restore box.backup --replace      keeps the state that is there aside")]
    Restore {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        secret: PassphraseArguments,
        /// Replace the existing state, which is kept aside
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// List the scheduled backups of the running server
    Ls,
    /// Make the running server create a backup now
    Now,
    /// Download a backup that the running server made
    #[command(after_help = "Examples:\n  \
        fardel backup ls\n  \
        fardel backup download fardel-2026-11-21T0300Z.backup /media/usb/box.backup")]
    Download {
        #[arg(value_name = "NAME")]
        name: String,
        /// New file to write [default: the same name, here]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Where the passphrase of a backup comes from; it is never an argument, since other users can read
/// those.
#[derive(Debug, Clone, Args)]
pub struct PassphraseArguments {
    /// File with the passphrase in its first line, mode 0600 [default: asked at the keyboard]
    #[arg(long, value_name = "FILE", env = "FARDEL_BACKUP_PASSPHRASE_FILE")]
    pub passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// Show the catalog's version and the copies that were kept before it was raised
    Status {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Go back to the catalog from before the last upgrade; the server must not run
    ///
    /// Lists what happened since, which is no longer in force. The newer catalog is kept aside.
    Rollback {
        #[command(flatten)]
        place: PlaceArguments,
    },
}

#[derive(Debug, Subcommand)]
pub enum State {
    /// Show whether the catalog is the one that this machine followed
    Show {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Accept the catalog in place, though this machine followed another one
    ///
    /// For a catalog that was put back from an old copy, carried from another machine, or that belongs to
    /// another installation: until it is accepted, the server starts and ends no session (state.quarantined).
    /// Then sessions that run in the catalog and not on the machine end as lost, and
    /// containers that the catalog does not know are ended. A running server acts on it within seconds.
    #[command(after_help = "Examples:\n  \
        fardel state show\n  \
        fardel state accept      as root, once the right catalog is in its place")]
    Accept {
        #[command(flatten)]
        place: PlaceArguments,
    },
}

/// Arguments that another engine reads.
#[derive(Debug, Clone, Args)]
pub struct Rest {
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ApiArguments {
    /// GET, POST, PATCH, PUT, DELETE
    #[arg(value_name = "METHOD")]
    pub method: String,
    /// Below /api/v1, such as /sessions; paths that begin with /api are taken as they are
    #[arg(value_name = "PATH")]
    pub path: String,
    /// JSON; @FILE reads a file, - standard input
    #[arg(value_name = "BODY")]
    pub body: Option<String>,
    /// Header: NAME: VALUE
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// Print status and headers too
    #[arg(short, long)]
    pub include: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Man {
    /// fardel, or fardel-run, fardel-session-ls, …
    #[arg(value_name = "PAGE", default_value = "fardel")]
    pub page: String,
    /// Write every page into this directory, that of fardel.toml(5) too
    #[arg(long, value_name = "DIR")]
    pub all: Option<PathBuf>,
}
