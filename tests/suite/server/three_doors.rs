//! What people can do, door by door: the place on a page, the operation of the API, the words at the
//! command line. The table is the acceptance list: an operation without a command, a command without
//! an operation, and a page that nobody serves fail.

use std::collections::BTreeSet;

use fardel::doors::api::openapi::ROUTES;
use fardel::doors::cli;

/// Page (method and path; empty: the page is another row's), operations of the API, words of the CLI.
const DOORS: &[(&str, &[&str], &[&str])] = &[
    ("GET /", &["getOverview"], &["top"]),
    ("GET /live", &["followEvents"], &["event watch"]),
    ("GET /sessions", &["listSessions"], &["ps", "session ls"]),
    (
        "POST /sessions/new",
        &["launch"],
        &["run host -- true", "session create host"],
    ),
    (
        "POST /sessions/new/preview",
        &["launch"],
        &["run --dry-run host -- true"],
    ),
    ("GET /sessions/{id}", &["getSession"], &["session get x"]),
    (
        "GET /sessions/{id}/live",
        &["attach"],
        &["attach x", "session attach x", "run -it host"],
    ),
    (
        "GET /sessions/{id}",
        &["exec"],
        &["exec x ls", "session exec x ls"],
    ),
    (
        "",
        &["executeCode"],
        &[
            "code x -c 1",
            "code x --language shell --restart",
            "code x --build make --exec ./a.out",
        ],
    ),
    ("", &["openPort"], &["session forward x 8888"]),
    (
        "GET /sessions/{id}/logs",
        &["readLog"],
        &["logs -f x", "session logs x"],
    ),
    (
        "GET /sessions/{id}/metrics",
        &["listSamples"],
        &["session metrics x"],
    ),
    (
        "GET /sessions/{id}",
        &["listSessionEvents"],
        &["session events x"],
    ),
    (
        "GET /sessions/{id}",
        &["listSessionConnections"],
        &["session connections x"],
    ),
    (
        "GET /sessions/{id}",
        &["explainSession"],
        &["why x", "session why x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["stopSession"],
        &["stop x", "session stop x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["killSession"],
        &["kill x", "session kill x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["restartSession"],
        &["session restart x"],
    ),
    (
        "POST /queue/{id}/{verb}",
        &["holdSession"],
        &["session hold x"],
    ),
    (
        "POST /queue/{id}/{verb}",
        &["releaseSession"],
        &["session release x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["pauseSession"],
        &["session pause x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["resumeSession"],
        &["session resume x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["duplicateSession"],
        &["session duplicate x"],
    ),
    (
        "POST /sessions/{id}/commit",
        &["commitSession"],
        &[
            "session commit x tools:1 --dry-run",
            "session commit x tools:1 --exclude /opt/.env --accept-secrets -d",
        ],
    ),
    (
        "GET /sessions/{id}/commit",
        &["getOperation"],
        &["job get x"],
    ),
    (
        "POST /sessions/{id}/commit/cancel",
        &["cancelOperation"],
        &["job cancel x"],
    ),
    (
        "POST /images/{id}/share",
        &["shareImage"],
        &["image share x"],
    ),
    (
        "POST /images/{id}/unshare",
        &["unshareImage"],
        &["image unshare x"],
    ),
    (
        "POST /images/{id}/limits",
        &["setImageLimits"],
        &[
            "image limit x --min-cpu 2 --max-mem 8g --max-gpu none --shm 1g --ulimits stack=64m",
            "image limit x --of-labels",
        ],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["deleteSession"],
        &["rm x", "session rm x"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["changeSession"],
        &["session rename x y", "session set x --cpu 2"],
    ),
    ("GET /sessions/{id}/apps", &["listApps"], &["app ls x"]),
    (
        "GET /sessions/{id}/apps/{app}",
        &["getApp"],
        &["app get x jupyter"],
    ),
    (
        "POST /sessions/{id}/apps/{app}",
        &["openApp"],
        &["app open x jupyter"],
    ),
    (
        "POST /sessions/{id}/apps",
        &["openApp"],
        &["app open x 8080"],
    ),
    ("GET /apps/{port}", &["getApp"], &["app get x 8080"]),
    (
        "POST /sessions/{id}/apps/{app}/share",
        &["shareApp", "listAppShares"],
        &[
            "app share x jupyter --user y --until 2h",
            "app shares x jupyter",
        ],
    ),
    (
        "POST /sessions/{id}/apps/{app}/unshare",
        &["unshareApp"],
        &["app unshare x jupyter y"],
    ),
    ("GET /storage", &["listVolumes"], &["volume ls"]),
    ("POST /storage", &["addVolume"], &["volume add x /mnt/x"]),
    ("", &["getVolume"], &["volume get x"]),
    ("", &["getPool"], &["volume pool"]),
    ("POST /storage/pool", &["growPool"], &["volume grow 500g"]),
    ("", &["changeVolume"], &["volume set x --name y"]),
    (
        "POST /storage/{id}/remove",
        &["removeVolume"],
        &["volume rm x"],
    ),
    (
        "GET /folders",
        &["listFolders"],
        &["folder ls", "storage folders"],
    ),
    ("", &["getFolder"], &["folder get x"]),
    ("POST /folders", &["createFolder"], &["folder create x"]),
    (
        "POST /folders/{id}/members",
        &["changeFolder"],
        &[
            "folder rename x y",
            "folder members x rw",
            "folder cloning x owner",
        ],
    ),
    (
        "POST /folders/{id}/limit",
        &["limitFolder"],
        &["folder limit x 20g"],
    ),
    ("GET /folders/{id}/owner", &[], &[]),
    (
        "POST /folders/{id}/clone",
        &["cloneFolder"],
        &["folder clone x y"],
    ),
    (
        "POST /folders/{id}/transfer",
        &["offerFolder"],
        &["folder transfer x --user lee"],
    ),
    (
        "POST /folders/{id}/withdraw",
        &["withdrawFolder"],
        &["folder withdraw x"],
    ),
    ("", &["listFolderTransfers"], &["folder transfers"]),
    (
        "POST /folder-transfers/{id}/accept",
        &["takeFolder"],
        &["folder take 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    (
        "POST /folder-transfers/{id}/decline",
        &["refuseFolder"],
        &["folder refuse 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    ("POST /folder-work/{id}/cancel", &[], &[]),
    (
        "POST /folders/{id}/trash",
        &["trashFolder"],
        &["folder trash x"],
    ),
    (
        "POST /folders/{id}/restore",
        &["restoreFolder"],
        &["folder restore x"],
    ),
    (
        "POST /folders/{id}/purge",
        &["purgeFolder"],
        &["folder purge x"],
    ),
    ("", &["adoptFolder"], &["folder adopt x --owner y --name z"]),
    (
        "GET /folders/{id}/sharing",
        &["listFolderShares", "listFolderSessions"],
        &["folder shares x", "folder sessions x"],
    ),
    (
        "POST /folders/{id}/share",
        &["shareFolder"],
        &["folder share x --user lee"],
    ),
    (
        "POST /folders/{id}/unshare",
        &["unshareFolder"],
        &["folder unshare x 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    (
        "POST /folders/{id}/detach",
        &["detachFolder"],
        &["folder detach x y"],
    ),
    (
        "POST /folders/{id}/leave",
        &["leaveFolder"],
        &["folder leave x"],
    ),
    ("", &["listFolderInvitations"], &["folder invitations"]),
    (
        "POST /folder-invitations/{id}/accept",
        &["acceptFolder"],
        &["folder accept 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    (
        "POST /folder-invitations/{id}/decline",
        &["declineFolder"],
        &["folder decline 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    (
        "GET /folders/{id}/snapshots",
        &["listFolderSnapshots"],
        &["snapshot ls x"],
    ),
    (
        "POST /folders/{id}/snapshots",
        &["createFolderSnapshot"],
        &["snapshot create x"],
    ),
    (
        "POST /folders/{id}/snapshots/schedule",
        &["setFolderSnapshotSchedule"],
        &["snapshot schedule x --daily 7"],
    ),
    (
        "POST /folders/{id}/snapshots/remove",
        &["removeFolderSnapshot"],
        &["snapshot rm x 3"],
    ),
    (
        "GET /folders/{id}/snapshots/{number}",
        &["listFolderSnapshotEntries"],
        &["snapshot files x 3 train"],
    ),
    ("", &["readFolderSnapshotFile"], &[]),
    (
        "POST /folders/{id}/snapshots/{number}/clone",
        &["cloneFolderSnapshot"],
        &["snapshot clone x 3 y --path train"],
    ),
    (
        "POST /folders/{id}/snapshots/{number}/restore",
        &["restoreFolderSnapshot"],
        &["snapshot restore x 3 train/a.csv --replace"],
    ),
    ("", &["listStorage"], &["folder usage", "storage ls"]),
    (
        "GET /folders/{id}/files",
        &["listFolderEntries"],
        &["folder ls x:/train"],
    ),
    (
        "GET /folders/{id}/entry",
        &["readFolderFile"],
        &["folder cp x:/a.txt ."],
    ),
    (
        "",
        &["archiveFolder"],
        &["folder archive x:/train --format tar"],
    ),
    (
        "POST /folders/{id}/mkdir",
        &["makeFolderDirectory"],
        &["folder mkdir x:/train"],
    ),
    (
        "POST /folders/{id}/entry",
        &["moveFolderEntry"],
        &["folder mv x:/a.txt /b.txt"],
    ),
    (
        "GET /folders/{id}/search",
        &["searchFolder"],
        &["folder find x:/train model"],
    ),
    (
        "GET /folders/{id}/usage",
        &["getFolderUsage"],
        &["folder du x:/train --fresh"],
    ),
    (
        "POST /folders/{id}/copy",
        &["copyFolderEntry"],
        &["folder cp x:/a.txt x:/b.txt"],
    ),
    (
        "GET /folders/{id}/edit",
        &["readFolderText"],
        &["folder cat x:/a.txt"],
    ),
    (
        "POST /folders/{id}/edit",
        &["createFolderText", "writeFolderText"],
        &["folder write x:/a.txt --new"],
    ),
    (
        "POST /folders/{id}/remove",
        &["removeFolderEntries"],
        &["folder rm --for-good x:/a.txt"],
    ),
    (
        "GET /folders/{id}/removed",
        &["listRemovedEntries"],
        &["folder removed x"],
    ),
    (
        "POST /folders/{id}/removed/restore",
        &["restoreRemovedEntries"],
        &["folder undelete x 019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"],
    ),
    (
        "POST /folders/{id}/removed/empty",
        &["emptyRemovedEntries", "purgeRemovedEntries"],
        &["folder empty x --all"],
    ),
    (
        "POST /folders/{id}/upload",
        &[
            "listFolderUploads",
            "createFolderUpload",
            "appendFolderUpload",
            "getFolderUpload",
        ],
        &["folder cp -r train x:/"],
    ),
    ("", &["abortFolderUpload", "describeFolderUploads"], &[]),
    ("", &["writeFolderFile"], &[]),
    ("GET /folders/{id}/selection", &[], &[]),
    (
        "POST /folders/{id}/selection",
        &["moveFolderEntries", "copyFolderEntries"],
        &[],
    ),
    ("GET /folders/{id}/selection/zip", &[], &[]),
    ("POST /folders/{id}/removed/undo", &[], &[]),
    (
        "POST /sessions/new",
        &["launch"],
        &["run --mount home --mount x:/data:ro host -- true"],
    ),
    ("GET /gpus", &["listGpus"], &["gpu ls"]),
    ("GET /gpus/{id}", &["getGpu"], &["gpu show 0"]),
    ("GET /history", &["getHistory"], &["history"]),
    (
        "GET /history/export",
        &["getHistory"],
        &["history --of me --range week -o csv"],
    ),
    ("GET /budgets", &["listBudgets"], &["budget ls"]),
    (
        "POST /budgets",
        &["createBudget"],
        &["budget create 5 --project x --month 2026-12 --hard"],
    ),
    ("GET /budgets/{id}", &["getBudget"], &["budget get x"]),
    (
        "POST /budgets/{id}",
        &["changeBudget"],
        &["budget set x --gpu-hours 6 --hard no"],
    ),
    (
        "POST /budgets/{id}/remove",
        &["removeBudget"],
        &["budget rm x"],
    ),
    ("GET /courses", &["listCourses"], &["course ls"]),
    (
        "POST /courses",
        &["createCourse"],
        &[
            "course create x --project y --from 2027-03-02T09:00 --to 2027-06-18T18:00 --preset half",
        ],
    ),
    (
        "GET /courses/{id}",
        &["getCourse", "listCourseMembers", "listCourseSlots"],
        &["course get x", "course members x", "course timetable x"],
    ),
    (
        "POST /courses/{id}",
        &["changeCourse"],
        &["course edit x --to 2027-06-25T18:00"],
    ),
    (
        "POST /courses/{id}/open",
        &["changeCourse"],
        &["course open x --to 2027-06-25T18:00"],
    ),
    (
        "POST /courses/{id}/close",
        &["changeCourse"],
        &["course end x"],
    ),
    (
        "POST /courses/{id}/archive",
        &["changeCourse"],
        &["course archive x"],
    ),
    (
        "POST /courses/{id}/remove",
        &["removeCourse"],
        &["course rm x"],
    ),
    (
        "POST /courses/{id}/act",
        &[
            "startCourseSessions",
            "stopCourseSessions",
            "extendCourseSessions",
            "tellCourseMembers",
        ],
        &[
            "course start x --dry-run",
            "course stop x mina",
            "course extend x --minutes 30",
            "course message x y mina",
        ],
    ),
    (
        "POST /courses/{id}/hand-out",
        &["handOutFolder"],
        &["course hand-out x lesson-3"],
    ),
    (
        "POST /courses/{id}/timetable",
        &["bookCourseSlot"],
        &["course book x mon 09:00 12:00 --gpu 1 --cpu 2 --mem 1g --skip-holidays"],
    ),
    (
        "GET /courses/{id}/attendance.csv",
        &["listCourseAttendance"],
        &["course attendance x -o csv"],
    ),
    (
        "GET /presets",
        &["listPresets"],
        &["preset ls --project default"],
    ),
    (
        "POST /presets",
        &["createPreset"],
        &["preset add x --cpu 1 --default yes"],
    ),
    ("GET /groups", &["listResourceGroups"], &["group ls"]),
    (
        "POST /groups",
        &["createResourceGroup"],
        &["group add x --kind batch --spreading pack"],
    ),
    ("GET /groups/{id}", &["getResourceGroup"], &["group get x"]),
    (
        "POST /groups/{id}",
        &["changeResourceGroup"],
        &["group edit x --title y"],
    ),
    (
        "POST /groups/{id}/nodes",
        &["setResourceGroupNodes"],
        &["group nodes x y"],
    ),
    (
        "POST /groups/{id}/access",
        &["setResourceGroupAccess"],
        &["group access x --everybody"],
    ),
    (
        "POST /groups/{id}/windows",
        &["setResourceGroupWindows"],
        &["group windows x --none"],
    ),
    (
        "POST /groups/{id}/remove",
        &["removeResourceGroup"],
        &["group rm x"],
    ),
    (
        "GET /reservations",
        &["listReservations"],
        &["reservation ls"],
    ),
    (
        "POST /reservations",
        &["bookReservation"],
        &["reservation book x --maintenance --cpu 1 --from 2027-01-01T09:00 --to 2027-01-01T10:00"],
    ),
    (
        "GET /reservations/{id}",
        &["getReservation"],
        &["reservation get x"],
    ),
    (
        "POST /reservations/{id}",
        &["changeReservation"],
        &["reservation change x --repeats 2"],
    ),
    (
        "POST /reservations/{id}/cancel",
        &["cancelReservation"],
        &["reservation cancel x"],
    ),
    (
        "POST /reservations/{id}/decide",
        &["approveReservation"],
        &["reservation approve x --reason y"],
    ),
    (
        "POST /reservations/{id}/decide",
        &["refuseReservation"],
        &["reservation refuse x --reason y"],
    ),
    (
        "POST /reservations/{id}/withdraw",
        &["withdrawReservation"],
        &["reservation withdraw x"],
    ),
    (
        "GET /projects/{id}",
        &["getReservationQuota"],
        &["project quota x"],
    ),
    (
        "POST /projects/{id}/quota",
        &["setReservationQuota"],
        &["project quota x --gpu-hours 200"],
    ),
    ("GET /presets/{id}", &["getPreset"], &["preset get x"]),
    (
        "POST /presets/{id}",
        &["changePreset"],
        &["preset edit x --mem none --position 3"],
    ),
    (
        "POST /presets/{id}/remove",
        &["removePreset"],
        &["preset rm x"],
    ),
    (
        "POST /sessions/new/sizes",
        &["launch"],
        &["run --preset x host -- true"],
    ),
    (
        "GET /audit",
        &[
            "listAudit",
            "listAuditCheckpoints",
            "listAuditTargets",
            "signAudit",
        ],
        &[
            "audit ls --user x -n 9",
            "audit checkpoints",
            "audit targets",
            "audit sign",
        ],
    ),
    ("GET /audit.csv", &["listAudit"], &["audit ls -o csv"]),
    (
        "GET /audit/export",
        &["exportAudit"],
        &["audit export x --since 2h"],
    ),
    ("GET /holidays", &["listHolidays"], &["holiday ls"]),
    (
        "POST /holidays",
        &["setHolidays"],
        &[
            "holiday import x --replace --domain y",
            "holiday rm 2026-12-25",
        ],
    ),
    (
        "GET /announcements",
        &["listAnnouncements"],
        &["announcement ls"],
    ),
    (
        "POST /announcements",
        &["createAnnouncement"],
        &["announcement create x --until 2h --before-sign-in"],
    ),
    (
        "GET /announcements/{id}",
        &["getAnnouncement"],
        &["announcement get x"],
    ),
    (
        "GET /announcements/current",
        &["listCurrentAnnouncements"],
        &["announcement ls --current"],
    ),
    (
        "POST /announcements/{id}",
        &["changeAnnouncement"],
        &["announcement set x --until none --before-sign-in no"],
    ),
    (
        "POST /announcements/{id}/remove",
        &["removeAnnouncement"],
        &["announcement rm x"],
    ),
    ("GET /idle-rules", &["listIdleRules"], &["idle-rule ls"]),
    (
        "POST /idle-rules",
        &["createIdleRule"],
        &["idle-rule create x --gpu 5 --window 2h --project y"],
    ),
    ("GET /idle-rules/try", &["listIdleRules"], &["idle-rule ls"]),
    (
        "POST /idle-rules/try",
        &["tryIdleRule"],
        &["idle-rule try --gpu 5 --window 2h"],
    ),
    (
        "GET /idle-rules/{id}",
        &["getIdleRule"],
        &["idle-rule get x"],
    ),
    (
        "POST /idle-rules/{id}",
        &["changeIdleRule"],
        &["idle-rule set x --window 3h --keys none --kind any"],
    ),
    (
        "GET /idle-rules/{id}/try",
        &["getIdleRule"],
        &["idle-rule get x"],
    ),
    (
        "POST /idle-rules/{id}/try",
        &["tryIdleRule", "getIdleRule"],
        &["idle-rule try x --window 1h"],
    ),
    (
        "POST /idle-rules/{id}/remove",
        &["removeIdleRule"],
        &["idle-rule rm x"],
    ),
    ("POST /sessions/{id}/{verb}", &["keepSession"], &["keep x"]),
    ("GET /fair-share", &["getFairShare"], &["fair-share ls"]),
    (
        "POST /fair-share",
        &["changeFairShare"],
        &["fair-share order fair --half-life 7d"],
    ),
    (
        "POST /fair-share/weights",
        &["setFairWeight"],
        &["fair-share weight 3 --user x"],
    ),
    ("GET /fair-share/try", &["getFairShare"], &["fair-share ls"]),
    (
        "POST /fair-share/try",
        &["rehearseQueue"],
        &["rehearse history --from 2026-11-01 --to 2026-11-08 --order fair"],
    ),
    ("GET /usage", &["getUsage"], &["usage --by project"]),
    (
        "GET /statements",
        &["getStatement", "listMonths"],
        &["statement --month 2026-10 --project x", "month ls"],
    ),
    (
        "GET /statements/export",
        &["getStatement"],
        &["statement -o csv"],
    ),
    (
        "GET /statements/signed",
        &["getStatement"],
        &["statement -o json"],
    ),
    (
        "POST /statements/close",
        &["closeMonth"],
        &["month close 2026-10"],
    ),
    ("", &["checkMonths"], &["month verify"]),
    ("GET /statements", &["getPrices"], &["price ls"]),
    (
        "POST /statements/prices",
        &["setPrices"],
        &[
            "price set --currency KRW --gpu-hour 1500",
            "price set --off",
        ],
    ),
    (
        "GET /usage/export",
        &["getUsage"],
        &["usage --month 2026-10 -o csv"],
    ),
    (
        "GET /events",
        &["searchEvents"],
        &["event ls oom --since 2h -n 9"],
    ),
    ("GET /notices", &["listNotices"], &["notices"]),
    ("POST /notices/read", &["readNotices"], &["notices --read"]),
    ("GET /me", &["getMailChoices"], &["mail choices"]),
    ("GET /system/branding", &["getBranding"], &["branding show"]),
    (
        "POST /system/branding",
        &["changeBranding"],
        &["branding set --name x --hue 3"],
    ),
    (
        "POST /system/branding/reset",
        &["resetBranding"],
        &["branding reset"],
    ),
    (
        "GET /system/webhooks",
        &["listWebhooks", "getWebhook"],
        &["webhook ls", "webhook get x"],
    ),
    (
        "POST /system/webhooks",
        &["createWebhook"],
        &["webhook create x https://y.example/ --kind session.ended"],
    ),
    (
        "POST /system/webhooks/{id}/switch",
        &["changeWebhook"],
        &["webhook set x --active no"],
    ),
    (
        "POST /system/webhooks/{id}/test",
        &["testWebhook"],
        &["webhook test x"],
    ),
    (
        "POST /system/webhooks/{id}/remove",
        &["removeWebhook"],
        &["webhook rm x"],
    ),
    (
        "POST /me/mail",
        &["chooseMail"],
        &["mail choose failed will-end", "mail choose --default"],
    ),
    ("", &["getMailStatus"], &["mail status"]),
    (
        "POST /system/settings/mail-retry",
        &["retryMail"],
        &["mail retry"],
    ),
    (
        "POST /system/settings/mail-test",
        &["testMail"],
        &["mail test x@y.example"],
    ),
    ("GET /nodes", &["listNodes"], &["node ls"]),
    ("GET /nodes/{name}", &["getNode"], &["node get"]),
    (
        "POST /nodes/{name}/maintenance",
        &["setMaintenance"],
        &["node maintenance on x -m why"],
    ),
    ("POST /gpus/{id}/{verb}", &["cordonGpu"], &["gpu cordon 0"]),
    (
        "POST /gpus/{id}/{verb}",
        &["uncordonGpu"],
        &["gpu uncordon 0"],
    ),
    ("POST /gpus/{id}/{verb}", &["drainGpu"], &["gpu drain 0"]),
    ("POST /gpus/{id}/test", &["testGpu"], &["gpu test 0"]),
    (
        "GET /gpus/{id}/test",
        &["getGpuSelfTestReport"],
        &["gpu report 0"],
    ),
    (
        "POST /gpus/{id}/partitions",
        &["partitionGpu"],
        &["gpu partition 0 3g.40gb -y"],
    ),
    (
        "POST /gpus/{id}/partitions/preview",
        &["partitionGpu"],
        &["gpu partition 0 --whole"],
    ),
    (
        "POST /sessions/{id}/{verb}",
        &["changeSession"],
        &["gpu resize x 0.5"],
    ),
    ("GET /queue", &["listQueue"], &["queue ls"]),
    ("GET /images", &["listImages"], &["image ls"]),
    ("GET /images/{id}", &["getImage"], &["image get x"]),
    (
        "POST /images/import",
        &["createUpload", "appendUpload", "getUpload", "importImage"],
        &["image import x.tar"],
    ),
    (
        "POST /images/pull",
        &["pullImage"],
        &["image pull registry.example/x:1"],
    ),
    (
        "GET /environments",
        &["listEnvironments"],
        &["environment ls"],
    ),
    (
        "GET /environments/{which}",
        &["getEnvironment"],
        &["environment get x"],
    ),
    (
        "POST /environments/import",
        &["importEnvironment"],
        &["environment import x.tar"],
    ),
    (
        "POST /environments/{which}/remove",
        &["removeEnvironment"],
        &["environment rm x:1"],
    ),
    ("", &["abortUpload", "listUploads", "describeUploads"], &[]),
    (
        "POST /images/{id}/remove",
        &["removeImage"],
        &["image rm x"],
    ),
    ("", &["listOperations"], &["job ls"]),
    ("GET /projects", &["listProjects"], &["project ls"]),
    (
        "POST /projects/new",
        &["createProject"],
        &["project create x"],
    ),
    ("GET /projects/{id}", &["getProject"], &["project get x"]),
    (
        "POST /projects/{id}",
        &["changeProject"],
        &["project set x --title y"],
    ),
    (
        "POST /projects/{id}/state",
        &["changeProject"],
        &["project archive x"],
    ),
    (
        "GET /projects/{id}",
        &["listMembers"],
        &["project members x"],
    ),
    (
        "POST /projects/{id}/members",
        &["putMember"],
        &["project add x y --role lead"],
    ),
    (
        "POST /projects/{id}/members/{user}",
        &["removeMember"],
        &["project rm x y"],
    ),
    (
        "GET /projects/{id}/invitations",
        &["listInvitations"],
        &["invitation ls x"],
    ),
    (
        "POST /projects/{id}/invitations",
        &["createInvitation"],
        &["invitation create x --uses 40"],
    ),
    (
        "POST /projects/{id}/invitations/{invitation}",
        &["revokeInvitation"],
        &["invitation revoke x y"],
    ),
    (
        "POST /join/own",
        &["acceptInvitation"],
        &["invitation accept x"],
    ),
    (
        "GET /approvals",
        &["listApprovals", "getFourEyes"],
        &["approval ls", "approval status"],
    ),
    (
        "POST /approvals/{id}/decide",
        &["releaseApproval", "declineApproval"],
        &["approval release x", "approval decline x"],
    ),
    (
        "POST /approvals/four-eyes",
        &["setFourEyes"],
        &["approval on", "approval off"],
    ),
    ("GET /break-glass", &["listBreakGlass"], &["break-glass ls"]),
    (
        "POST /break-glass",
        &["enterByBreakGlass", "readByBreakGlass"],
        &[
            "break-glass session x --reason y --minutes 5",
            "break-glass folder x --reason y",
        ],
    ),
    (
        "POST /break-glass/{id}/end",
        &["endBreakGlass"],
        &["break-glass end x"],
    ),
    (
        "GET /sign-ups",
        &["listSignUps", "listSignUpRules"],
        &["sign-up ls", "sign-up rules"],
    ),
    (
        "POST /sign-ups/{id}/decide",
        &["approveSignUp", "declineSignUp", "reopenSignUp"],
        &[
            "sign-up approve x --name y",
            "sign-up decline x",
            "sign-up reopen x",
        ],
    ),
    (
        "POST /sign-ups/rule",
        &["setSignUpRule"],
        &["sign-up allow @lab.example", "sign-up allow --none"],
    ),
    ("GET /allowances", &["listAllowances"], &["allowance ls"]),
    (
        "GET /allowances",
        &["listLimitRequests"],
        &["allowance requests"],
    ),
    (
        "GET /allowances/{id}/decline",
        &["listLimitRequests"],
        &["allowance requests"],
    ),
    (
        "POST /allowances/{id}/decline",
        &["declineLimitRequest"],
        &["allowance decline x --reason y"],
    ),
    ("GET /me/limits", &["getLimitRequest"], &["allowance asked"]),
    (
        "POST /me/limits",
        &["askForLimits"],
        &["allowance ask --gpu 4 --days 7 --reason y"],
    ),
    (
        "POST /me/limits/withdraw",
        &["withdrawLimitRequest"],
        &["allowance withdraw"],
    ),
    (
        "POST /allowances",
        &["createAllowance"],
        &["allowance create --user x --gpu 4 --for 3d"],
    ),
    (
        "GET /allowances/{id}/end",
        &["getAllowance"],
        &["allowance ls"],
    ),
    (
        "POST /allowances/{id}/end",
        &["removeAllowance"],
        &["allowance rm x"],
    ),
    ("GET /policies", &["listPolicies"], &["policy ls"]),
    ("GET /policies/{id}", &["getPolicy"], &["policy get x"]),
    (
        "POST /policies",
        &["createPolicy"],
        &["policy create x --gpu 1"],
    ),
    (
        "POST /policies/{id}",
        &["changePolicy"],
        &["policy set x --gpu none"],
    ),
    (
        "POST /policies/{id}/preview",
        &["changePolicy"],
        &["policy set x --gpu 1 --dry-run"],
    ),
    (
        "POST /policies/{id}/remove",
        &["removePolicy"],
        &["policy rm x"],
    ),
    (
        "POST /policies/{id}/attach",
        &["attachPolicy"],
        &["policy attach x --user y"],
    ),
    (
        "POST /policies/{id}/detach",
        &["detachPolicy"],
        &["policy detach x --project y"],
    ),
    ("GET /users/{id}", &["listLimits"], &["limits --for x"]),
    ("GET /users/import", &["listRosters"], &["roster ls"]),
    (
        "POST /users/import",
        &["applyRoster"],
        &["roster plan x.csv"],
    ),
    (
        "POST /users/import/apply",
        &["applyRoster"],
        &["roster apply x.csv"],
    ),
    ("GET /users/import/{id}", &["listRosters"], &["roster ls"]),
    (
        "POST /users/import/{id}/undo",
        &["undoRoster"],
        &["roster undo x"],
    ),
    (
        "POST /users/import/{id}/suspend",
        &["suspendRoster"],
        &["roster suspend x --stop-sessions"],
    ),
    (
        "POST /users/import/{id}/restore",
        &["suspendRoster"],
        &["roster suspend x --undo"],
    ),
    ("", &["listDomains"], &["domain ls"]),
    ("", &["createDomain"], &["domain create x"]),
    ("", &["getDomain"], &["domain get x"]),
    ("", &["changeDomain"], &["domain set x --title y"]),
    ("GET /users/{id}", &["listGrants"], &["role ls x"]),
    (
        "POST /users/{id}/grants",
        &["putGrant"],
        &["role grant x auditor --domain y"],
    ),
    (
        "POST /users/{id}/grants/revoke",
        &["revokeGrant"],
        &["role revoke x auditor"],
    ),
    ("", &["listUsers"], &["user ls"]),
    ("", &["getUser"], &["user get x"]),
    ("", &["createUser"], &["user add x"]),
    (
        "POST /users/{id}/profile",
        &["changeUser"],
        &[
            "user role x administrator",
            "user set x --email y@z.example",
            "user set x --expires 90d",
        ],
    ),
    ("", &["setPassword"], &["user passwd x"]),
    ("", &["suspendUser"], &["user suspend x"]),
    ("", &["removeUser"], &["user rm x"]),
    (
        "POST /users/{id}/remove",
        &["departUser"],
        &["user depart x --finish-within 7d"],
    ),
    (
        "POST /users/{id}/folders/offer",
        &["offerFoldersOfUser"],
        &["user offer-folders x y"],
    ),
    (
        "POST /users/{id}/reservations/hand-over",
        &["handOverReservationsOfUser"],
        &["user hand-over-reservations x y"],
    ),
    ("GET /me", &["getMe"], &["me get"]),
    (
        "POST /preferences",
        &["changeMe"],
        &["me set --language ko"],
    ),
    ("POST /me/password", &["changePassword"], &["me passwd"]),
    ("GET /me", &["listSignIns"], &["sign-in ls"]),
    (
        "POST /me/sign-ins/{sign_in}/end",
        &["endSignIn"],
        &["sign-in rm x"],
    ),
    (
        "GET /users/{id}",
        &["listUserSignIns"],
        &["sign-in ls --of x"],
    ),
    (
        "POST /users/{id}/sign-ins/{sign_in}/end",
        &["endUserSignIn"],
        &["sign-in rm x --of y"],
    ),
    ("GET /users/{id}/sign-in-link", &["getSignInLink"], &[]),
    (
        "POST /users/{id}/sign-in-link",
        &["createSignInLink"],
        &["user sign-in-link x --valid 2h"],
    ),
    (
        "POST /users/{id}/sign-in-link/revoke",
        &["revokeSignInLink"],
        &["user sign-in-link x --revoke"],
    ),
    ("POST /login/link", &[], &[]),
    ("GET /login/saml", &[], &[]),
    (
        "GET /me/second-factor",
        &["getSecondFactor"],
        &["me second-factor get"],
    ),
    (
        "POST /me/second-factor",
        &[
            "beginSecondFactor",
            "removeSecondFactor",
            "renewRecoveryCodes",
        ],
        &[
            "me second-factor off",
            "me second-factor recovery-codes --code 123456",
        ],
    ),
    (
        "POST /me/second-factor/confirm",
        &["confirmSecondFactor"],
        &["me second-factor on"],
    ),
    (
        "GET /users/{id}/second-factor",
        &["resetSecondFactor"],
        &["user second-factor reset x"],
    ),
    ("POST /login/code", &["signIn"], &["login --code 123456"]),
    ("GET /me", &["listTokens"], &["token ls"]),
    ("POST /me/tokens", &["createToken"], &["token create x"]),
    (
        "POST /me/tokens/{id}/revoke",
        &["revokeToken"],
        &["token rm x", "logout"],
    ),
    ("GET /me/keys", &["listAccessKeys"], &["key ls"]),
    ("POST /me/keys", &["createAccessKey"], &["key create x"]),
    (
        "POST /me/keys/{id}/revoke",
        &["revokeAccessKey"],
        &["key revoke x"],
    ),
    (
        "GET /me/ssh-keys",
        &["listSshKeys", "getSshServer"],
        &["ssh-key ls", "ssh-config"],
    ),
    ("POST /me/ssh-keys", &["addSshKey"], &["ssh-key add x"]),
    (
        "POST /me/ssh-keys/{id}/remove",
        &["removeSshKey"],
        &["ssh-key rm x"],
    ),
    (
        "GET /me/startup",
        &[
            "listDotfiles",
            "getDotfile",
            "getStartupScript",
            "listVariables",
        ],
        &["dotfile ls", "dotfile cat x", "startup cat", "variable ls"],
    ),
    (
        "POST /me/startup/dotfiles",
        &["putDotfile"],
        &["dotfile put x y"],
    ),
    (
        "POST /me/startup/script",
        &["putStartupScript"],
        &["startup set x"],
    ),
    (
        "POST /me/startup/variables",
        &["putVariable"],
        &["variable set x"],
    ),
    (
        "POST /me/startup/remove",
        &["removeDotfile", "removeStartupScript", "removeVariable"],
        &["dotfile rm x", "startup rm", "variable rm x"],
    ),
    ("POST /login", &["signIn"], &["login"]),
    ("POST /setup", &["setUp"], &[]),
    ("", &["drawSetupLink"], &["setup-link"]),
    ("", &[], &["drain"]),
    ("GET /docs", &["describe"], &["man"]),
    ("GET /downloads/fardel", &[], &[]),
    ("GET /about", &["version", "getCapabilities"], &["version"]),
    (
        "GET /system/settings",
        &["getSettings", "getSetting"],
        &["config show", "config ls", "config get x"],
    ),
    (
        "POST /system/settings/{key}",
        &["setSetting", "unsetSetting", "undoSetting"],
        &[
            "config set x 1",
            "settings unset x --dry-run",
            "config unset x",
            "config undo x",
        ],
    ),
    (
        "POST /system/settings/test",
        &["trySignInSources"],
        &["config test"],
    ),
    (
        "POST /system/settings/reload",
        &["reloadSettings"],
        &["config reload"],
    ),
    ("GET /system/checks", &["diagnose"], &["doctor"]),
    (
        "POST /system/support",
        &["makeSupportBundle"],
        &["support bundle"],
    ),
    ("GET /trust", &["getTrust"], &["trust"]),
    ("GET /system/tls", &["getTls"], &["tls show"]),
    (
        "POST /system/tls/request",
        &["requestCertificate"],
        &["tls csr"],
    ),
    (
        "POST /system/tls/certificate",
        &["importCertificate"],
        &["tls import x"],
    ),
    (
        "POST /system/tls/reset",
        &["resetCertificate"],
        &["tls reset"],
    ),
    ("GET /system/backups", &["listBackups"], &["backup ls"]),
    ("POST /system/backups", &["makeBackup"], &["backup now"]),
    (
        "GET /system/backups/{name}",
        &["getBackup"],
        &["backup download x"],
    ),
    ("", &["listFindings", "ready"], &["doctor"]),
    ("", &["alive", "figures"], &[]),
    (
        "",
        &[],
        &[
            "api GET /me",
            "completion bash",
            "environment pack x --as x:1 -f y",
            "environment build x --out y",
            "environment key x",
            "config validate",
            "config sample",
            "console show",
            "console network show",
            "console services",
            "console restart",
            "console logs",
            "console power off",
            "backup create x",
            "backup verify x",
            "audit verify x --key y",
            "statement verify x --key y",
            "backup restore x",
            "upgrade status",
            "upgrade rollback",
            "state show",
            "state accept",
            "serve",
            "rehearse x",
            "rehearse decision 1",
            "bench",
        ],
    ),
];

#[test]
fn every_operation_has_its_row() {
    let rows: BTreeSet<&str> = DOORS
        .iter()
        .flat_map(|(_, api, _)| api.iter().copied())
        .collect();
    let operations: BTreeSet<&str> = ROUTES.iter().map(|r| r.operation).collect();
    assert_eq!(
        operations.difference(&rows).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "without a row"
    );
    assert_eq!(
        rows.difference(&operations).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "without a route"
    );
}

#[test]
fn every_command_is_understood_and_none_is_left_out() {
    let mut said = BTreeSet::new();
    for (_, _, commands) in DOORS {
        for command in *commands {
            let words = std::iter::once("fardel").chain(command.split(' '));
            let words = words.map(std::ffi::OsString::from).collect();
            if let Err(error) = cli::parse(words, |_| None) {
                panic!("fardel {command}: {error}");
            }
            said.insert(*command);
        }
    }
    let description = cli::description(|_| None);
    let mut unsaid = Vec::new();
    for noun in description.get_subcommands() {
        let verbs: Vec<_> = noun
            .get_subcommands()
            .filter(|v| v.get_name() != "help")
            .collect();
        let mut expected: Vec<String> = verbs
            .iter()
            .map(|v| format!("{} {}", noun.get_name(), v.get_name()))
            .collect();
        if expected.is_empty() {
            expected.push(noun.get_name().to_owned());
        }
        for words in expected {
            let there = said
                .iter()
                .any(|s| *s == words || s.starts_with(&format!("{words} ")));
            if !there && noun.get_name() != "help" {
                unsaid.push(words);
            }
        }
    }
    assert!(unsaid.is_empty(), "commands without a row: {unsaid:?}");
}

#[test]
fn every_page_of_the_table_is_served() {
    let sources = [
        include_str!("../../../src/doors/pages.rs"),
        include_str!("../../../src/doors/pages/events.rs"),
        include_str!("../../../src/doors/pages/me.rs"),
        include_str!("../../../src/doors/pages/second_factor.rs"),
        include_str!("../../../src/doors/pages/saml.rs"),
        include_str!("../../../src/doors/pages/sign_ins.rs"),
        include_str!("../../../src/doors/pages/sign_in_links.rs"),
        include_str!("../../../src/doors/pages/access_keys.rs"),
        include_str!("../../../src/doors/pages/ssh_keys.rs"),
        include_str!("../../../src/doors/pages/start_up.rs"),
        include_str!("../../../src/doors/pages/images.rs"),
        include_str!("../../../src/doors/pages/queue.rs"),
        include_str!("../../../src/doors/pages/projects.rs"),
        include_str!("../../../src/doors/pages/rosters.rs"),
        include_str!("../../../src/doors/pages/allowances.rs"),
        include_str!("../../../src/doors/pages/policies.rs"),
        include_str!("../../../src/doors/pages/courses.rs"),
        include_str!("../../../src/doors/pages/folders.rs"),
        include_str!("../../../src/doors/pages/folder_files.rs"),
        include_str!("../../../src/doors/pages/folder_selection.rs"),
        include_str!("../../../src/doors/pages/folder_browsing.rs"),
        include_str!("../../../src/doors/pages/volumes.rs"),
        include_str!("../../../src/doors/pages/folder_owners.rs"),
        include_str!("../../../src/doors/pages/folder_shares.rs"),
        include_str!("../../../src/doors/pages/folder_snapshots.rs"),
        include_str!("../../../src/doors/pages/apps.rs"),
        include_str!("../../../src/doors/pages/commits.rs"),
        include_str!("../../../src/doors/pages/presets.rs"),
        include_str!("../../../src/doors/pages/resource_groups.rs"),
        include_str!("../../../src/doors/pages/budgets.rs"),
        include_str!("../../../src/doors/pages/reservations.rs"),
        include_str!("../../../src/doors/pages/fair_share.rs"),
        include_str!("../../../src/doors/pages/statements.rs"),
        include_str!("../../../src/doors/pages/holidays.rs"),
        include_str!("../../../src/doors/pages/approvals.rs"),
        include_str!("../../../src/doors/pages/break_glass.rs"),
        include_str!("../../../src/doors/pages/sign_ups.rs"),
        include_str!("../../../src/doors/pages/announced.rs"),
        include_str!("../../../src/doors/pages/announcements.rs"),
        include_str!("../../../src/doors/pages/idle_rules.rs"),
        include_str!("../../../src/doors/pages/audit.rs"),
        include_str!("../../../src/doors/pages/webhooks.rs"),
        include_str!("../../../src/doors/pages/branding.rs"),
        include_str!("../../../src/doors/pages/departure.rs"),
        include_str!("../../../src/doors/pages/invitations.rs"),
        include_str!("../../../src/doors/pages/user_forms.rs"),
        include_str!("../../../src/doors/pages/role_forms.rs"),
    ]
    .concat();
    let unserved: Vec<&str> = DOORS
        .iter()
        .map(|(page, _, _)| *page)
        .filter(|page| !page.is_empty())
        .filter(|page| {
            let (_, path) = page.split_once(' ').expect("a method and a path");
            !sources.contains(&format!("\"{path}\""))
        })
        .collect();
    assert!(unserved.is_empty(), "no page router names {unserved:?}");
}
