//! What the operations of the API do, in Korean, by operation; their English stands in the table of the API. A test asks
//! for each of them, and for each word of their queries.

/// Operation, summary.
const SUMMARIES: &[(&str, &str)] = &[
    ("listSessions", "세션 목록"),
    ("launch", "세션 하나 또는 여러 사본을 실행합니다"),
    ("getSession", "세션 하나를 보여 줍니다"),
    ("changeSession", "이름, 레이블, 한도, 우선순위를 바꿉니다"),
    ("deleteSession", "끝난 세션과 로그를 지웁니다"),
    (
        "stopSession",
        "세션을 끝냅니다: TERM을 보내고, 남으면 KILL을 보냅니다",
    ),
    ("killSession", "세션을 즉시 끝냅니다"),
    ("restartSession", "세션을 다시 시작합니다"),
    ("pauseSession", "세션을 멈춰 둡니다"),
    ("resumeSession", "멈춰 둔 세션을 이어서 실행합니다"),
    ("commitSession", "실행 중인 세션으로 이미지를 만듭니다"),
    ("holdSession", "대기 중인 세션을 보류합니다"),
    ("releaseSession", "보류한 세션을 대기열의 맨 뒤로 보냅니다"),
    ("duplicateSession", "같은 세션을 하나 더 만들 요청"),
    (
        "explainSession",
        "기다리는 이유, 여기서 실행되는 이유, 또는 끝난 이유",
    ),
    ("listSessionEvents", "세션에서 일어난 일"),
    (
        "listSessionConnections",
        "세션이 밖으로 연결한 곳과 거부된 곳",
    ),
    ("readLog", "세션이 쓴 출력"),
    ("attach", "주 프로세스의 터미널"),
    ("exec", "세션 안에서 명령을 실행합니다"),
    (
        "executeCode",
        "세션 안의 인터프리터에서 코드를 실행하거나 그 실행을 이어 갑니다",
    ),
    ("openPort", "세션 안의 포트로 TCP 연결을 엽니다"),
    (
        "listQueue",
        "기다리는 세션, 시작할 순서와 이유. 한 쪽에 200개",
    ),
    ("listSamples", "시간에 따른 CPU와 메모리 사용량"),
    ("listGpus", "GPU 목록과 모든 사용자의 조각"),
    ("getHistory", "한 시간부터 한 달까지 할당한 양과 사용한 양"),
    ("listAllowances", "임시 한도 목록"),
    (
        "createAllowance",
        "정한 때까지 도메인, 프로젝트, 사용자의 한도를 올립니다",
    ),
    ("getAllowance", "임시 한도 하나를 보여 줍니다"),
    ("removeAllowance", "임시 한도를 기한 전에 끝냅니다"),
    ("listLimitRequests", "사용자가 요청한 한도를 나열합니다"),
    ("declineLimitRequest", "사용자가 요청한 한도를 거부합니다"),
    ("getLimitRequest", "내가 요청한 한도를 보여 줍니다"),
    ("askForLimits", "한도를 한동안 올려 달라고 요청합니다"),
    ("withdrawLimitRequest", "내 한도 요청을 거둡니다"),
    ("keepSession", "유휴 경고를 받은 세션을 유지합니다"),
    ("listIdleRules", "유휴 세션을 끝내는 규칙을 나열합니다"),
    (
        "createIdleRule",
        "사이트, 도메인, 프로젝트의 유휴 세션을 끝내는 규칙을 만듭니다",
    ),
    ("tryIdleRule", "지난 일주일의 측정값에 규칙을 적용해 봅니다"),
    ("getIdleRule", "ID나 이름으로 유휴 규칙 하나를 보여 줍니다"),
    (
        "changeIdleRule",
        "유휴 규칙을 바꿉니다. 경고받은 세션에 다시 경고합니다",
    ),
    ("removeIdleRule", "유휴 규칙을 지웁니다"),
    ("listBudgets", "볼 수 있는 GPU 시간 예산을 나열합니다"),
    (
        "createBudget",
        "프로젝트나 사용자가 한 기간에 쓸 GPU 시간을 정합니다",
    ),
    ("getBudget", "예산 하나를 보여 줍니다"),
    (
        "changeBudget",
        "예산의 GPU 시간이나 종류(하드, 소프트)를 바꿉니다",
    ),
    ("removeBudget", "예산을 지웁니다"),
    (
        "listCourses",
        "내 프로젝트의 강좌를 나열합니다. 초안은 강사에게만 보입니다",
    ),
    ("createCourse", "맡은 프로젝트의 강좌를 초안으로 만듭니다"),
    ("getCourse", "ID나 이름으로 강좌 하나를 보여 줍니다"),
    ("changeCourse", "강좌를 바꾸거나 열고, 끝내고, 보관합니다"),
    ("removeCourse", "초안이거나 보관된 강좌를 지웁니다"),
    (
        "listCourseMembers",
        "맡은 강좌의 구성원과 각자의 상태를 나열합니다",
    ),
    (
        "listCourseAttendance",
        "맡은 강좌의 구성원이 기간 동안 쓴 세션을 나열합니다",
    ),
    (
        "startCourseSessions",
        "강좌의 모든 구성원이나 고른 구성원의 세션을 시작합니다",
    ),
    ("stopCourseSessions", "강좌 구성원의 세션을 중지합니다"),
    (
        "extendCourseSessions",
        "정책이 허용하는 만큼 강좌 구성원의 세션 시간을 늘립니다",
    ),
    (
        "handOutFolder",
        "강좌가 끝날 때까지 수강생이 폴더를 읽게 합니다",
    ),
    ("listCourseSlots", "강좌 시간표의 예약 목록"),
    (
        "bookCourseSlot",
        "강좌가 끝날 때까지 매주 시간을 예약합니다",
    ),
    (
        "tellCourseMembers",
        "강좌 구성원의 알림으로 메시지를 보냅니다",
    ),
    (
        "listApps",
        "세션의 앱을 나열합니다. 실행 중이 아니면 비어 있습니다",
    ),
    (
        "getApp",
        "이름이나 포트 번호로 앱 하나와 응답 여부를 보여 줍니다",
    ),
    (
        "openApp",
        "앱을 시작하고 30초 안에 한 번 열 수 있는 링크를 줍니다",
    ),
    ("listAppShares", "앱을 공유한 사용자를 나열합니다"),
    (
        "shareApp",
        "앱을 세션의 프로젝트 구성원 한 명이나 모두와 기간을 정해 공유합니다",
    ),
    (
        "unshareApp",
        "공유를 해제합니다. 그 공유로 열어 둔 앱은 닫힙니다",
    ),
    (
        "listFolders",
        "자기 폴더와 세션을 볼 수 있는 사용자의 폴더를 나열합니다",
    ),
    ("listFolderShares", "폴더를 공유한 상대와 권한을 나열합니다"),
    (
        "shareFolder",
        "폴더를 사용자나 프로젝트 구성원과 공유합니다. 사용자는 초대를 받아들여야 합니다",
    ),
    (
        "unshareFolder",
        "폴더의 공유를 해제합니다. 진행 중인 파일 전송은 끝납니다",
    ),
    (
        "listFolderSessions",
        "폴더를 마운트하고 끝나지 않은 세션을 나열합니다",
    ),
    (
        "detachFolder",
        "마운트한 세션에서 폴더를 해제합니다. 세션은 폴더 없이 계속됩니다",
    ),
    ("leaveFolder", "직접 공유받은 폴더에서 나갑니다"),
    ("listFolderInvitations", "받은 폴더 초대를 나열합니다"),
    ("acceptFolder", "폴더 초대를 받아들입니다"),
    ("declineFolder", "폴더 초대를 거부합니다"),
    (
        "createFolder",
        "자기 폴더나 책임자인 프로젝트의 폴더를 만듭니다",
    ),
    ("limitFolder", "폴더 하나의 한도를 정하거나 없앱니다"),
    (
        "cloneFolder",
        "파일을 읽을 수 있는 폴더를 복사해 자기 폴더를 만듭니다",
    ),
    (
        "listFolderSnapshots",
        "자기 폴더의 이전 버전, 자동으로 만드는 수, 만들 수 있는지를 보여 줍니다",
    ),
    ("createFolderSnapshot", "폴더의 파일을 지금 그대로 남깁니다"),
    (
        "setFolderSnapshotSchedule",
        "시간, 날, 주마다 만든 이전 버전을 몇 개 남길지 정합니다",
    ),
    ("removeFolderSnapshot", "폴더의 이전 버전을 지웁니다"),
    (
        "listFolderSnapshotEntries",
        "이전 버전의 디렉터리를 디렉터리부터 이름순으로 나열합니다",
    ),
    (
        "readFolderSnapshotFile",
        "이전 버전의 파일을 내려받습니다. Range로 일부만 받을 수 있습니다",
    ),
    (
        "cloneFolderSnapshot",
        "이전 버전의 전부나 경로 하나로 새 폴더를 만듭니다",
    ),
    (
        "restoreFolderSnapshot",
        "이전 버전의 경로 하나를 그 폴더로 되돌립니다. 그 자리에 있는 것은 replace가 true일 때만 휴지통으로 옮깁니다",
    ),
    (
        "offerFolder",
        "다른 소유자, 곧 사용자나 프로젝트에 폴더를 제안합니다",
    ),
    ("withdrawFolder", "폴더 제안을 철회합니다"),
    ("listFolderTransfers", "넘겨받을 수 있는 폴더를 나열합니다"),
    (
        "takeFolder",
        "폴더를 넘겨받습니다. 새 소유자의 한도에 들어갑니다",
    ),
    ("refuseFolder", "폴더를 넘겨받지 않습니다"),
    (
        "getFolder",
        "ID로, 자기 것은 이름으로도 폴더 하나를 보여 줍니다",
    ),
    (
        "changeFolder",
        "폴더의 이름을 바꿉니다. 마운트한 세션은 계속됩니다",
    ),
    (
        "trashFolder",
        "폴더를 휴지통으로 옮깁니다. 30일 동안 남습니다",
    ),
    ("restoreFolder", "휴지통의 폴더를 파일과 함께 되돌립니다"),
    ("purgeFolder", "휴지통의 폴더를 기한 전에 완전히 삭제합니다"),
    (
        "adoptFolder",
        "어느 폴더의 것도 아닌 디렉터리를 ID로 사용자의 폴더로 만듭니다",
    ),
    (
        "listFolderEntries",
        "자기 폴더의 디렉터리를 디렉터리부터 이름순으로 나열합니다",
    ),
    (
        "readFolderFile",
        "자기 폴더의 파일을 내려받습니다. Range로 일부만 받을 수 있습니다",
    ),
    (
        "writeFolderFile",
        "64 MiB까지의 파일을 한 번에 씁니다. 새 파일(If-None-Match: *)이거나 읽은 버전을 변경합니다(If-Match)",
    ),
    (
        "archiveFolder",
        "자기 폴더의 디렉터리와 파일을 파일 하나로 내려받습니다",
    ),
    ("makeFolderDirectory", "자기 폴더에 디렉터리를 만듭니다"),
    (
        "moveFolderEntry",
        "자기 폴더의 파일이나 디렉터리의 이름과 위치를 바꿉니다",
    ),
    (
        "moveFolderEntries",
        "자기 폴더의 파일과 디렉터리를 한 디렉터리로 옮깁니다. 옮기기 전에 모두 확인합니다",
    ),
    (
        "copyFolderEntries",
        "자기 폴더의 파일과 디렉터리를 한 디렉터리로 복사합니다. 복사하기 전에 모두 확인합니다",
    ),
    (
        "removeFolderEntries",
        "자기 폴더의 파일과 디렉터리를 폴더의 휴지통으로 옮기거나 완전히 지웁니다",
    ),
    (
        "searchFolder",
        "디렉터리 아래의 파일과 디렉터리를 이름으로 찾습니다",
    ),
    (
        "getFolderUsage",
        "디렉터리 안의 디렉터리마다 디스크에서 차지하는 크기를 셉니다",
    ),
    (
        "copyFolderEntry",
        "자기 폴더의 파일이나 디렉터리를 그 폴더의 다른 위치로 복사합니다",
    ),
    (
        "readFolderText",
        "자기 폴더의 텍스트 파일을 버전과 함께 보여 줍니다",
    ),
    ("createFolderText", "자기 폴더에 텍스트 파일을 만듭니다"),
    (
        "writeFolderText",
        "읽은 버전의 텍스트 파일을 새 내용으로 변경합니다(If-Match 필요)",
    ),
    (
        "listRemovedEntries",
        "자기 폴더의 휴지통을 최근 것부터 1,000개까지 나열합니다",
    ),
    (
        "emptyRemovedEntries",
        "자기 폴더의 휴지통에 있는 것을 모두 완전히 지웁니다",
    ),
    (
        "restoreRemovedEntries",
        "파일과 디렉터리를 원래 자리로 되돌립니다. 다른 것 위에는 놓지 않습니다",
    ),
    (
        "purgeRemovedEntries",
        "자기 폴더의 휴지통에 있는 것 가운데 일부를 완전히 지웁니다",
    ),
    (
        "listFolderUploads",
        "자기 폴더로 보내는 중인 파일을 나열합니다",
    ),
    (
        "describeFolderUploads",
        "폴더가 지원하는 tus 기능을 보여 줍니다",
    ),
    (
        "createFolderUpload",
        "자기 폴더로 파일을 보내기 시작합니다(tus 1.0.0). 본문이 있으면 파일의 첫 부분입니다",
    ),
    (
        "getFolderUpload",
        "파일을 어디까지 받았는지 보여 줍니다(tus 1.0.0)",
    ),
    (
        "appendFolderUpload",
        "파일의 일부를 보냅니다. 마지막까지 오면 제자리에 놓입니다(tus 1.0.0)",
    ),
    ("abortFolderUpload", "보내던 파일을 취소합니다(tus 1.0.0)"),
    (
        "listStorage",
        "자기 폴더와 세션을 볼 수 있는 사용자의 폴더가 쓰는 크기를 나열합니다",
    ),
    (
        "getPool",
        "서버의 디스크가 폴더의 한도를 지키는 방법과 폴더가 놓이는 풀을 보여 줍니다",
    ),
    ("growPool", "폴더가 놓이는 풀을 쓰는 중에 늘립니다"),
    (
        "listPresets",
        "볼 수 있는 프리셋, 또는 한 프로젝트에서 시작할 때 고를 수 있는 프리셋",
    ),
    (
        "createPreset",
        "맡은 사이트, 도메인, 프로젝트의 프리셋을 만듭니다",
    ),
    ("getPreset", "ID나 이름으로 프리셋 하나를 보여 줍니다"),
    ("changePreset", "프리셋을 바꿉니다. 범위는 그대로입니다"),
    ("removePreset", "프리셋을 지웁니다"),
    ("listResourceGroups", "쓸 수 있는 자원 그룹 목록"),
    (
        "createResourceGroup",
        "노드 없이 모두가 쓸 수 있는 자원 그룹을 만듭니다",
    ),
    (
        "getResourceGroup",
        "ID나 이름으로 자원 그룹 하나를 보여 줍니다",
    ),
    ("changeResourceGroup", "자원 그룹을 바꿉니다"),
    (
        "removeResourceGroup",
        "노드와 끝나지 않은 세션이 없는 자원 그룹을 지웁니다",
    ),
    ("setResourceGroupNodes", "자원 그룹의 노드를 정합니다"),
    (
        "setResourceGroupAccess",
        "누가 자원 그룹을 쓸 수 있는지 정합니다",
    ),
    (
        "setResourceGroupWindows",
        "자원 그룹에 다른 규칙을 적용할 시간 구간을 정합니다",
    ),
    (
        "listReservations",
        "내 프로젝트와 나, 유지보수를 위한 예약을 나열합니다",
    ),
    (
        "bookReservation",
        "프로젝트나 사용자, 유지보수를 위해 GPU와 코어, 메모리를 예약하거나 요청합니다",
    ),
    ("getReservation", "ID나 이름으로 예약 하나를 보여 줍니다"),
    (
        "changeReservation",
        "예약을 다음 시간부터 바꿉니다. 자원은 두 시간 사이에만 바꿀 수 있습니다",
    ),
    ("cancelReservation", "예약의 남은 시간을 취소합니다"),
    (
        "approveReservation",
        "책임자의 예약 요청을 승인합니다. 자원이 아직 비어 있으면 예약됩니다",
    ),
    (
        "refuseReservation",
        "책임자의 예약 요청을 이유와 함께 거부합니다",
    ),
    ("withdrawReservation", "내가 요청한 예약을 철회합니다"),
    (
        "getReservationQuota",
        "프로젝트 책임자가 요청하지 않고 예약할 수 있는 GPU 시간을 보여 줍니다",
    ),
    (
        "setReservationQuota",
        "프로젝트 책임자가 요청하지 않고 예약할 수 있는 GPU 시간을 정합니다",
    ),
    ("listHolidays", "사이트와 보이는 도메인의 휴일을 나열합니다"),
    (
        "setHolidays",
        "사이트의 휴일을 모두 정합니다. 도메인의 휴일은 그 도메인의 users:write로 정할 수 있습니다",
    ),
    (
        "listAnnouncements",
        "관리하는 공지를 지난 것까지 모두 나열합니다",
    ),
    (
        "listCurrentAnnouncements",
        "지금 나에게 표시되는 공지를 경고부터 나열합니다",
    ),
    (
        "listVolumes",
        "폴더를 만들 수 있는 저장소를 나열합니다. 사이트의 관리자와 감사자는 모든 저장소를 봅니다",
    ),
    ("addVolume", "마운트된 파일 시스템을 저장소로 만듭니다"),
    ("getVolume", "저장소 하나를 이름이나 ID로 보여 줍니다"),
    (
        "changeVolume",
        "저장소를 변경합니다. 다른 경로도 같은 파일 시스템이어야 합니다",
    ),
    (
        "removeVolume",
        "폴더가 없는 저장소를 목록에서 제거합니다. 파일은 남습니다",
    ),
    (
        "createAnnouncement",
        "모든 사용자에게 공지합니다. 한 도메인의 사용자에게는 그 도메인의 users:write로 할 수 있습니다",
    ),
    ("getAnnouncement", "공지 하나를 보여 줍니다"),
    (
        "changeAnnouncement",
        "공지를 바꿉니다. 도메인은 그대로입니다",
    ),
    ("removeAnnouncement", "공지를 지웁니다"),
    ("getFairShare", "대기열의 순서, 가중치, 사용자의 순위"),
    (
        "changeFairShare",
        "대기열의 순서나 공정 배분의 반감기를 정합니다",
    ),
    (
        "setFairWeight",
        "도메인, 프로젝트, 사용자의 가중치를 정합니다",
    ),
    (
        "rehearseQueue",
        "대기열의 규칙이 달랐다면 한 기간의 세션이 얼마나 기다렸을지 돌려 봅니다",
    ),
    ("getUsage", "한 기간 동안 사용자, 프로젝트, 도메인이 쓴 양"),
    (
        "getStatement",
        "마감한 월의 명세서. 볼 수 있는 줄과 서버가 서명한 내용",
    ),
    ("listMonths", "마감한 월을 최신순으로 나열합니다"),
    (
        "closeMonth",
        "월을 마감합니다. 사용량을 고정하고 서명하며, 이미 마감한 월은 그대로 둡니다",
    ),
    ("checkMonths", "마감한 월이 서명한 내용과 같은지 확인합니다"),
    ("getPrices", "다음 마감부터 쓰는 시간당 가격"),
    (
        "setPrices",
        "모든 가격을 정합니다. 통화가 없으면 가격을 쓰지 않습니다",
    ),
    ("getGpu", "이름이나 번호로 GPU 하나를 보여 줍니다"),
    ("cordonGpu", "GPU가 새 세션을 받지 않게 합니다"),
    ("uncordonGpu", "GPU가 다시 새 세션을 받게 합니다"),
    (
        "drainGpu",
        "GPU를 비웁니다: 세션을 끝내고 새 세션을 받지 않습니다",
    ),
    (
        "partitionGpu",
        "GPU를 하드웨어 파티션으로 나누거나 다시 합칩니다",
    ),
    ("testGpu", "GPU의 자가 시험을 시작합니다"),
    (
        "getGpuSelfTestReport",
        "GPU의 최신 자가 시험 결과. 서명이 있습니다",
    ),
    ("listImages", "이미지 목록"),
    ("importImage", "업로드한 아카이브를 가져옵니다"),
    (
        "listEnvironments",
        "번들로 들여온 환경을 버전별로 나열합니다",
    ),
    ("importEnvironment", "업로드한 환경 번들을 가져옵니다"),
    (
        "getEnvironment",
        "한 버전을 패키지, 라이선스와 함께 보여 줍니다. NAME은 최신 버전, NAME:VERSION은 그 버전입니다",
    ),
    (
        "removeEnvironment",
        "살아 있는 세션이 쓰지 않는 버전을 그 버전에만 있는 이미지와 함께 지웁니다",
    ),
    ("pullImage", "다른 레지스트리의 이미지를 가져옵니다"),
    (
        "shareImage",
        "세션으로 만든 이미지를 도메인의 모든 사용자와 공유합니다",
    ),
    (
        "unshareImage",
        "세션으로 만든 이미지를 다시 비공개로 바꿉니다",
    ),
    (
        "setImageLimits",
        "이미지의 레이블 대신 그 이미지의 세션이 요청할 수 있는 양을 정합니다",
    ),
    ("getImage", "ID나 이름으로 이미지 하나를 보여 줍니다"),
    (
        "removeImage",
        "살아 있는 세션이 쓰지 않는 이미지를 지웁니다",
    ),
    ("listOperations", "작업 목록, 최신순"),
    ("getOperation", "작업 하나를 보여 줍니다"),
    ("cancelOperation", "작업을 취소합니다. 한 일은 되돌립니다"),
    ("listUploads", "진행 중인 내 업로드 목록"),
    ("describeUploads", "이 서버가 지원하는 tus 기능"),
    ("createUpload", "업로드를 시작합니다 (tus 1.0.0)"),
    ("getUpload", "업로드의 진행 정도 (tus 1.0.0)"),
    ("appendUpload", "업로드의 일부를 보냅니다 (tus 1.0.0)"),
    ("abortUpload", "업로드를 취소합니다 (tus 1.0.0)"),
    ("listUsers", "사용자 목록"),
    ("createUser", "사용자를 추가합니다"),
    ("getUser", "사용자 하나를 보여 줍니다"),
    (
        "changeUser",
        "사용자의 역할, 이름, 이메일 주소를 바꿉니다 (If-Match 필요)",
    ),
    (
        "setPassword",
        "사용자의 비밀번호를 정합니다. 로그인은 끝나고 토큰은 폐기됩니다",
    ),
    ("listUserSignIns", "사용자가 로그인한 브라우저 목록"),
    ("endUserSignIn", "사용자의 브라우저 하나를 로그아웃합니다"),
    (
        "getSignInLink",
        "사용자가 지금 쓸 수 있는 로그인 링크를 보여 줍니다. 비밀 값은 나오지 않습니다",
    ),
    (
        "createSignInLink",
        "사용자가 한 번 로그인하는 링크를 만듭니다. 이전 링크는 더 이상 쓸 수 없습니다",
    ),
    ("revokeSignInLink", "사용자의 로그인 링크를 폐기합니다"),
    (
        "resetSecondFactor",
        "기기를 잃어버린 사용자의 2단계 인증을 초기화하고 로그인과 토큰을 모두 끝냅니다",
    ),
    ("suspendUser", "사용자를 정지하거나 정지를 풉니다"),
    (
        "departUser",
        "사용자를 세션, 로그인, 토큰과 함께 삭제합니다",
    ),
    (
        "offerFoldersOfUser",
        "떠날 사용자의 폴더를 같은 도메인의 다른 사용자에게 제안합니다",
    ),
    (
        "handOverReservationsOfUser",
        "떠날 사용자의 예약을 같은 도메인의 다른 사용자에게 넘깁니다",
    ),
    ("removeUser", "가진 것이 없는 사용자를 지웁니다"),
    ("listGrants", "사용자의 역할 목록"),
    ("putGrant", "도메인이나 사이트 전체의 역할을 줍니다"),
    ("revokeGrant", "역할을 거둡니다"),
    ("listDomains", "도메인 목록"),
    (
        "createDomain",
        "도메인과 그 안의 프로젝트 default를 만듭니다",
    ),
    ("changeDomain", "도메인의 제목을 바꿉니다 (If-Match 필요)"),
    ("listProjects", "프로젝트 목록"),
    ("createProject", "프로젝트를 만듭니다"),
    ("getProject", "프로젝트 하나를 보여 줍니다"),
    (
        "changeProject",
        "제목을 바꾸거나 프로젝트를 보관하거나 되살립니다 (If-Match 필요)",
    ),
    ("listMembers", "프로젝트의 구성원 목록"),
    (
        "putMember",
        "사용자를 구성원으로 추가하거나 구성원의 역할을 바꿉니다",
    ),
    ("removeMember", "구성원을 내보냅니다"),
    ("listPolicies", "정책 목록"),
    ("createPolicy", "정책을 만듭니다"),
    ("getPolicy", "정책 하나"),
    ("changePolicy", "정책의 이름이나 한도를 바꿉니다"),
    ("removePolicy", "연결되지 않은 정책을 지웁니다"),
    (
        "attachPolicy",
        "정책을 사이트, 도메인, 프로젝트, 프로젝트의 각 구성원, 사용자에 연결합니다",
    ),
    ("detachPolicy", "정책 연결을 해제합니다"),
    (
        "listLimits",
        "나 또는 프로젝트의 사용자에게 적용되는 한도 목록",
    ),
    ("listInvitations", "프로젝트의 열린 초대 목록"),
    (
        "createInvitation",
        "프로젝트에 참여할 수 있는 링크를 만듭니다",
    ),
    ("revokeInvitation", "초대를 폐기합니다"),
    (
        "acceptInvitation",
        "내 계정으로 초대받은 프로젝트에 참여합니다",
    ),
    (
        "listApprovals",
        "승인을 기다리는 관리자의 요청과 지난 요청 목록",
    ),
    (
        "releaseApproval",
        "다른 관리자의 요청을 승인합니다. 그 관리자의 변경으로 적용됩니다",
    ),
    ("declineApproval", "기다리는 요청을 거부합니다"),
    (
        "getFourEyes",
        "정책, 역할, 설정의 변경에 두 번째 관리자의 승인이 필요한지",
    ),
    ("setFourEyes", "두 번째 관리자의 승인이 필요한지 정합니다"),
    (
        "enterByBreakGlass",
        "이유를 적고 다른 사용자의 세션에 잠시 들어갑니다. 소유자에게 알립니다",
    ),
    (
        "readByBreakGlass",
        "이유를 적고 다른 사용자의 폴더에 있는 파일을 잠시 읽습니다. 소유자에게 알립니다",
    ),
    (
        "listBreakGlass",
        "다른 사용자의 것을 연 관리자와 그 이유 목록",
    ),
    ("endBreakGlass", "내가 연 것을 시간보다 먼저 끝냅니다"),
    ("listSignUps", "도메인의 계정 요청 목록"),
    ("approveSignUp", "요청한 계정을 만듭니다"),
    (
        "declineSignUp",
        "계정 요청을 거부합니다. 30일 동안 되돌릴 수 있습니다",
    ),
    ("reopenSignUp", "거부한 요청을 되돌려 다시 대기하게 합니다"),
    ("listSignUpRules", "도메인마다 계정을 요청할 수 있는 주소"),
    (
        "setSignUpRule",
        "도메인의 계정을 요청할 수 있는 주소를 정합니다",
    ),
    ("getMe", "호출한 사용자"),
    ("changeMe", "언어, 테마, 시간대를 정합니다"),
    (
        "changePassword",
        "내 비밀번호를 바꿉니다. 다른 브라우저는 로그아웃되고 다른 토큰은 폐기됩니다",
    ),
    ("listSignIns", "로그인한 자신의 브라우저 목록"),
    ("endSignIn", "자신의 브라우저 하나를 로그아웃합니다"),
    ("getSecondFactor", "자신의 2단계 인증을 보여 줍니다"),
    (
        "beginSecondFactor",
        "2단계 인증의 키를 새로 만듭니다. 확인하기 전에는 바뀌는 것이 없습니다",
    ),
    (
        "confirmSecondFactor",
        "첫 코드로 2단계 인증을 확인합니다. 복구 코드를 한 번만 보여 줍니다",
    ),
    ("removeSecondFactor", "자신의 2단계 인증을 해제합니다"),
    (
        "renewRecoveryCodes",
        "복구 코드를 새로 만듭니다. 이전 것은 쓸 수 없게 됩니다",
    ),
    ("listTokens", "내 토큰 목록"),
    (
        "createToken",
        "토큰을 만듭니다. 비밀 값은 이 응답에만 있습니다",
    ),
    ("revokeToken", "ID나 이름으로 토큰을 폐기합니다"),
    ("listAccessKeys", "내 접근 키 목록"),
    (
        "createAccessKey",
        "요청에 서명하는 키를 만듭니다. 비밀 값은 이 응답에만 있습니다",
    ),
    ("revokeAccessKey", "접근 키를 폐기합니다"),
    ("listSshKeys", "내 SSH 공개 키 목록"),
    ("addSshKey", "SSH로 로그인할 공개 키를 등록합니다"),
    ("removeSshKey", "공개 키를 지웁니다"),
    ("listDotfiles", "내 세션의 HOME에 두는 설정 파일 목록"),
    ("putDotfile", "내 세션의 HOME에 두는 설정 파일을 저장합니다"),
    ("getDotfile", "설정 파일 하나의 내용"),
    ("removeDotfile", "설정 파일을 지웁니다"),
    (
        "getStartupScript",
        "내 세션에서 명령보다 먼저 실행하는 스크립트",
    ),
    (
        "putStartupScript",
        "내 세션에서 명령보다 먼저 실행하는 스크립트를 저장합니다",
    ),
    ("removeStartupScript", "시작 스크립트를 지웁니다"),
    ("listVariables", "내 세션에만 주는 변수 목록. 값은 없습니다"),
    ("putVariable", "내 세션에만 주는 변수를 암호화해 저장합니다"),
    ("removeVariable", "변수를 지웁니다"),
    (
        "getSshServer",
        "SSH로 세션에 연결하는 방법과 서버 키의 지문",
    ),
    ("signIn", "사용자 이름과 비밀번호로 토큰을 받습니다"),
    ("setUp", "첫 관리자를 한 번 만듭니다"),
    (
        "drawSetupLink",
        "첫 관리자를 만드는 링크를 만듭니다. 서버의 root만 할 수 있습니다",
    ),
    (
        "followEvents",
        "server-sent events로 받는 이벤트. Last-Event-ID 다음부터 이어집니다",
    ),
    ("getOverview", "한눈에 보는 서버"),
    ("getCapabilities", "이 서버가 할 수 있는 일"),
    ("getSettings", "모든 설정: 값, 기본값, 값을 정한 곳"),
    (
        "trySignInSources",
        "디렉터리와 인증 제공자에 물어보고 무엇이 잘못되었는지 알려 줍니다",
    ),
    (
        "reloadSettings",
        "설정을 다시 읽습니다. 잘못이 있으면 아무것도 바꾸지 않습니다",
    ),
    ("listBackups", "서버의 백업과 최근 실패"),
    ("makeBackup", "지금 백업하고, 검사를 마치면 응답합니다"),
    (
        "getBackup",
        "백업 하나를 파일로 받습니다. 암호 문구로만 열 수 있습니다",
    ),
    ("diagnose", "fardel doctor처럼 서버를 점검합니다"),
    (
        "makeSupportBundle",
        "로그, 점검, 상태를 비밀 없이 파일 하나에 담습니다",
    ),
    (
        "listFindings",
        "카탈로그에서 어긋난 점. 온전하면 비어 있습니다",
    ),
    ("getTrust", "이 서버의 인증 기관과 지문"),
    ("getTls", "지금 쓰는 인증서"),
    (
        "requestCertificate",
        "서버에 남는 키와 인증서 요청을 만듭니다",
    ),
    (
        "importCertificate",
        "사이트의 인증서를 넣습니다. 맞지 않으면 아무것도 바꾸지 않습니다",
    ),
    (
        "resetCertificate",
        "이 서버의 인증서나 이전 사이트 인증서로 돌아갑니다",
    ),
    ("alive", "프로세스가 살아 있습니다"),
    ("ready", "일할 수 있는지를 항목별로 보여 줍니다"),
    ("figures", "OpenMetrics 형식의 수치"),
    ("version", "이름과 버전"),
    ("describe", "이 문서"),
    ("getDomain", "도메인 하나를 보여 줍니다"),
    ("listRosters", "적용한 명단 목록"),
    (
        "applyRoster",
        "명단의 계획을 보여 주거나, 계획대로 적용합니다",
    ),
    ("undoRoster", "아무도 시작하지 않았을 때 명단을 되돌립니다"),
    (
        "suspendRoster",
        "명단으로 만든 사용자를 모두 정지하거나 정지를 해제합니다",
    ),
    ("listNotices", "내 알림 목록"),
    ("readNotices", "알림을 모두 읽음으로 표시합니다"),
    (
        "listWebhooks",
        "이벤트를 알리는 다른 프로그램의 주소를 나열합니다",
    ),
    (
        "createWebhook",
        "이벤트를 알릴 주소를 정합니다. 비밀 값은 이 응답에만 있습니다",
    ),
    ("getWebhook", "웹훅 하나를 이름이나 ID로 보여 줍니다"),
    ("changeWebhook", "웹훅을 바꾸거나 켜고 끕니다"),
    ("removeWebhook", "웹훅을 지웁니다"),
    (
        "testWebhook",
        "이벤트 없는 서명된 요청을 하나 보내고 돌아온 것을 알려 줍니다",
    ),
    ("getBranding", "사이트의 모양을 보여 줍니다"),
    (
        "changeBranding",
        "사이트의 이름, 로고, 강조색, 글을 바꿉니다",
    ),
    (
        "resetBranding",
        "사이트의 모양을 제품 기본값으로 되돌립니다",
    ),
    ("getMailChoices", "메일로 받는 알림 종류를 보여 줍니다"),
    ("chooseMail", "메일로 받을 알림 종류를 정합니다"),
    (
        "getMailStatus",
        "사이트의 메일이 어떻게 나가는지 보여 줍니다",
    ),
    (
        "retryMail",
        "메일 서버가 완전히 거부한 알림을 다시 보냅니다",
    ),
    (
        "testMail",
        "메일 하나를 보내고 메일 서버의 응답을 알려 줍니다",
    ),
    (
        "searchEvents",
        "이벤트를 찾습니다. Accept: text/csv면 파일로 답합니다",
    ),
    (
        "listAudit",
        "감사 로그를 최신순으로 찾습니다. 자신의 행위, 또는 맡은 프로젝트, 도메인, 사이트의 행위. Accept: text/csv면 파일로 답합니다",
    ),
    (
        "exportAudit",
        "이 서버 없이 검증할 수 있는 JSON 줄로 감사 로그를 받습니다. 볼 수 있는 행은 내용을, 나머지는 다이제스트만",
    ),
    (
        "listAuditCheckpoints",
        "감사 로그의 서명된 체크포인트를 최신순으로 나열합니다",
    ),
    (
        "listAuditTargets",
        "감사 로그를 넘기는 외부 대상과 어디까지 넘겼는지 나열합니다",
    ),
    ("signAudit", "감사 로그를 최신 행까지 서명합니다"),
    ("listNodes", "노드 목록"),
    ("getNode", "노드 하나와 커널이 알려 주는 정보를 보여 줍니다"),
    (
        "setMaintenance",
        "노드가 새 세션을 받지 않게 하거나, 다시 받게 합니다",
    ),
    ("getSetting", "설정 하나를 보여 줍니다"),
    ("setSetting", "설정 값을 바꿉니다"),
    ("unsetSetting", "설정을 기본값으로 되돌립니다"),
    ("undoSetting", "설정의 마지막 변경을 되돌립니다"),
];

/// Operation, word of its query, meaning.
const QUERIES: &[(&str, &str, &str)] = &[
    (
        "listSessions",
        "q",
        "state:running outcome:failed owner:mina project:vision group:lab image:host name:vit label:team=vision kind:batch replicas:ID 또는 단어",
    ),
    (
        "listSessions",
        "sort",
        "created_at, started_at, ended_at 또는 name. 앞에 -를 붙이면 거꾸로",
    ),
    ("listSessions", "limit", "1부터 500까지, 없으면 50"),
    ("listSessions", "cursor", "앞 쪽의 응답에 있는 값"),
    ("listSessions", "scope", "mine 또는 all"),
    (
        "commitSession",
        "dry_run",
        "true면 담길 내용과 비밀 정보로 보이는 파일만 답하고 만들지 않음",
    ),
    (
        "launch",
        "dry_run",
        "true면 일어날 일을 설명만 하고 만들지 않음",
    ),
    (
        "getSession",
        "wait",
        "running 또는 ended. 그 상태가 되면 응답",
    ),
    (
        "getSession",
        "patience",
        "기다릴 시간(초). 60보다 크면 60으로 처리",
    ),
    ("readLog", "since", "받고 싶은 첫 바이트"),
    ("readLog", "follow", "1이면 세션이 끝날 때까지 이어서 받음"),
    ("readLog", "container", "main1, sub1 등. 없으면 main1"),
    ("attach", "cols", "열 수"),
    ("attach", "rows", "행 수"),
    ("attach", "container", "main1, sub1 등. 없으면 main1"),
    ("exec", "command", "프로그램과 인자. 하나씩 차례로"),
    ("exec", "env", "NAME=VALUE, 여러 번 가능"),
    ("exec", "cwd", "시작할 디렉터리"),
    ("exec", "user", "사용자 이름 또는 uid[:gid]"),
    ("exec", "cols", "열 수. rows와 함께 쓰면 터미널을 줌"),
    ("exec", "rows", "행 수"),
    ("exec", "container", "main1, sub1 등. 없으면 main1"),
    ("openPort", "container", "main1, sub1 등. 없으면 main1"),
    ("listQueue", "cursor", "응답의 next_cursor"),
    ("listSamples", "since", "RFC 3339 시각. 그 뒤의 것만"),
    (
        "getHistory",
        "of",
        "site, me, gpu:ID 또는 user:NAME. 없으면 site",
    ),
    (
        "getHistory",
        "range",
        "hour, day, week, month, this-week 또는 last-week. 없으면 day. 주는 월요일에 시작",
    ),
    (
        "getStatement",
        "month",
        "2026-10 같은 마감한 월. 없으면 가장 최근에 마감한 월",
    ),
    ("getStatement", "domain", "도메인의 이름"),
    (
        "getStatement",
        "project",
        "프로젝트의 이름, 또는 DOMAIN/NAME",
    ),
    ("getStatement", "user", "사용자의 이름"),
    (
        "rehearseQueue",
        "month",
        "2026-11 같은 달. 내 시간대 기준이며 없으면 이번 달",
    ),
    (
        "rehearseQueue",
        "from",
        "month 대신 쓰는 날짜 또는 RFC 3339 시각",
    ),
    (
        "rehearseQueue",
        "until",
        "날짜 또는 RFC 3339 시각. 그 전까지이며 없으면 지금까지",
    ),
    (
        "rehearseQueue",
        "order",
        "turns, fair, drf, fifo 또는 lifo. 없으면 지금의 순서",
    ),
    (
        "rehearseQueue",
        "backfill",
        "strict 또는 timed. 없으면 지금의 백필",
    ),
    (
        "rehearseQueue",
        "half_life_hours",
        "공정 배분의 반감기(시간). 1에서 8760까지이며 없으면 지금의 반감기",
    ),
    (
        "getUsage",
        "month",
        "2026-11 같은 달. 내 시간대 기준이며 없으면 이번 달",
    ),
    (
        "getUsage",
        "from",
        "month 대신 쓰는 날짜 또는 RFC 3339 시각",
    ),
    (
        "getUsage",
        "until",
        "날짜 또는 RFC 3339 시각. 그 전까지이며 없으면 지금까지",
    ),
    (
        "getUsage",
        "by",
        "user, project, domain 또는 member. 없으면 user",
    ),
    ("revokeGrant", "role", "auditor 또는 administrator"),
    ("revokeGrant", "domain", "도메인의 이름. 없으면 사이트 전체"),
    (
        "followEvents",
        "topics",
        "sessions, images, users, projects, nodes, gpus, operations, system. 쉼표로 나눔",
    ),
    ("followEvents", "since", "알고 있는 마지막 변경의 번호"),
    (
        "makeSupportBundle",
        "dry_run",
        "true면 담을 것을 보여 주기만 하고 만들지 않음",
    ),
    (
        "searchEvents",
        "kind",
        "sessions 같은 주제, 또는 session.ended 같은 코드나 그 앞부분",
    ),
    ("searchEvents", "object", "대상의 ID 또는 세션 이름"),
    ("searchEvents", "user", "한 사람, 또는 계정의 주인"),
    ("searchEvents", "since", "RFC 3339, 이때부터"),
    ("searchEvents", "until", "RFC 3339, 이때까지"),
    ("searchEvents", "q", "낱말"),
    ("searchEvents", "limit", "1부터 500까지, 없으면 50"),
    ("searchEvents", "cursor", "앞 쪽의 응답에 있는 값"),
    ("listAudit", "user", "행위를 한 사용자"),
    (
        "listAudit",
        "act",
        "session.stopping 같은 행위, 또는 session 같은 앞부분",
    ),
    (
        "listAudit",
        "object",
        "대상의 ID, 또는 세션이나 사용자의 이름",
    ),
    ("listAudit", "since", "RFC 3339, 이때부터"),
    ("listAudit", "until", "RFC 3339, 이때까지"),
    ("listAudit", "limit", "1부터 500까지, 없으면 50"),
    ("listAudit", "cursor", "앞 쪽의 응답에 있는 값"),
    ("exportAudit", "since", "RFC 3339, 이때부터"),
    ("exportAudit", "until", "RFC 3339, 이때까지"),
    (
        "exportAudit",
        "user",
        "이 사용자의 행위는 내용을, 나머지는 다이제스트만 담습니다",
    ),
    ("setSetting", "dry_run", "true면 확인만 하고 쓰지 않음"),
    ("unsetSetting", "dry_run", "true면 확인만 하고 쓰지 않음"),
    ("undoSetting", "dry_run", "true면 확인만 하고 쓰지 않음"),
    ("applyRoster", "project", "프로젝트가 없는 행의 프로젝트"),
    ("applyRoster", "dry_run", "true면 계획만 답하고 바꾸지 않음"),
    ("applyRoster", "digest", "적용할 계획의 digest"),
    (
        "departUser",
        "dry_run",
        "true면 끝나는 것만 답하고 바꾸지 않음",
    ),
    (
        "changePolicy",
        "dry_run",
        "true면 누가 한도를 넘는지만 답하고 바꾸지 않음",
    ),
    (
        "detachPolicy",
        "level",
        "site, domain, project, member 또는 user",
    ),
    (
        "detachPolicy",
        "subject",
        "도메인, 프로젝트, 사용자의 이름이나 ID",
    ),
    (
        "listPresets",
        "project",
        "이름이나 ID. 그 프로젝트에서 시작할 때 고를 수 있는 프리셋만",
    ),
    (
        "listFolderEntries",
        "path",
        "폴더의 맨 위에서 시작하는 디렉터리. 없으면 맨 위",
    ),
    ("listFolderEntries", "q", "이름에 들어 있는 글자"),
    (
        "listFolderEntries",
        "sort",
        "name, size, modified_at. 앞에 -를 붙이면 거꾸로. 없으면 name",
    ),
    ("listFolderEntries", "limit", "1부터 500까지, 없으면 200"),
    ("listFolderEntries", "cursor", "앞 쪽의 응답에 있는 값"),
    (
        "listFolderSnapshotEntries",
        "path",
        "폴더의 맨 위에서 시작하는 디렉터리. 없으면 맨 위",
    ),
    ("listFolderSnapshotEntries", "q", "이름에 들어 있는 글자"),
    (
        "listFolderSnapshotEntries",
        "limit",
        "1부터 500까지, 없으면 200",
    ),
    (
        "listFolderSnapshotEntries",
        "cursor",
        "앞 쪽의 응답에 있는 값",
    ),
    (
        "readFolderSnapshotFile",
        "path",
        "폴더의 맨 위에서 시작하는 파일 경로",
    ),
    (
        "readFolderFile",
        "path",
        "폴더의 맨 위에서 시작하는 파일 경로",
    ),
    (
        "readFolderFile",
        "sha256",
        "true이면 파일 대신 SHA-256을 JSON으로 받습니다",
    ),
    (
        "writeFolderFile",
        "path",
        "폴더의 맨 위에서 시작하는 파일 경로",
    ),
    (
        "searchFolder",
        "path",
        "폴더의 맨 위에서 시작하는 디렉터리. 없으면 맨 위",
    ),
    ("searchFolder", "q", "이름에 들어 있는 글자"),
    ("searchFolder", "limit", "1부터 500까지, 없으면 200"),
    ("searchFolder", "cursor", "앞 쪽의 응답에 있는 값"),
    (
        "getFolderUsage",
        "path",
        "폴더의 맨 위에서 시작하는 디렉터리. 없으면 맨 위",
    ),
    (
        "getFolderUsage",
        "fresh",
        "true: 최근 10분 안에 세었어도 지금 다시 셉니다",
    ),
    (
        "readFolderText",
        "path",
        "폴더의 맨 위에서 시작하는 파일 경로",
    ),
    (
        "archiveFolder",
        "path",
        "폴더의 맨 위에서 시작하는 디렉터리나 파일. 1,000개까지 되풀이해 적습니다. 없으면 전체",
    ),
    ("archiveFolder", "format", "zip, tar, tar.zst. 없으면 zip"),
    ("listLimits", "user", "이름이나 ID. 없으면 나"),
    (
        "listLimits",
        "project",
        "이름이나 ID. 없으면 사용자의 첫 프로젝트",
    ),
];

/// What an operation does; None for one that the table lacks.
pub(super) fn summary(operation: &str) -> Option<&'static str> {
    let mut known = SUMMARIES.iter();
    known
        .find(|(name, _)| *name == operation)
        .map(|(_, summary)| *summary)
}

/// What a word of an operation's query means; None for one that the table lacks.
pub(super) fn query(operation: &str, word: &str) -> Option<&'static str> {
    let mut known = QUERIES.iter();
    known
        .find(|(name, of, _)| *name == operation && *of == word)
        .map(|(_, _, meaning)| *meaning)
}

/// What a value is: `list of Session` as `Session 목록`. Names of types stay.
pub(super) fn kind(english: &str) -> String {
    let each = english.split(" or ").map(|one| {
        if let Some(items) = one.strip_prefix("list of ") {
            return format!("{} 목록", kind(items));
        }
        match one.strip_prefix("map to ") {
            Some(items) => format!("이름별 {}", kind(items)),
            None => one.to_owned(),
        }
    });
    each.collect::<Vec<String>>().join(" 또는 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_and_every_word_of_its_query_has_korean_and_no_other_does() {
        let reference = crate::doors::reference();
        let operations = reference.groups.iter().flat_map(|group| &group.operations);
        let (mut summaries, mut queries) = (0, 0);
        for operation in operations {
            let told = summary(operation.name).unwrap_or_default();
            let is_korean = told.chars().any(|c| ('가'..='힣').contains(&c));
            assert!(is_korean, "{}: {told}", operation.name);
            summaries += 1;
            for (word, _) in &operation.query {
                let told = query(operation.name, word);
                assert!(told.is_some(), "{} ?{word}=", operation.name);
                queries += 1;
            }
        }
        assert_eq!((summaries, queries), (SUMMARIES.len(), QUERIES.len()));
    }

    #[test]
    fn kinds_of_values_keep_their_names() {
        assert_eq!(kind("list of Session"), "Session 목록");
        assert_eq!(kind("string or null"), "string 또는 null");
        assert_eq!(kind("map to list of id"), "이름별 id 목록");
        assert_eq!(kind("time"), "time");
    }
}
