//! The one-line summaries of all commands in Korean, by path. Flags and long texts stay English.

/// Path below `fardel`, summary.
const SUMMARIES: &[(&str, &str)] = &[
    (
        "serve",
        "서버를 시작합니다: 페이지, API, 스케줄러, 이 서버의 세션",
    ),
    ("run", "새 세션에서 명령이나 셸을 실행합니다"),
    ("ps", "살아 있는 세션을 나열합니다 (-a: 모두)"),
    ("session", "세션에 관한 모든 것"),
    ("session ls", "세션을 나열합니다"),
    ("session get", "세션 하나를 보여 줍니다"),
    ("session create", "세션을 만들고 바로 돌아옵니다"),
    ("session stop", "세션을 끝냅니다: TERM, 10초 뒤 KILL"),
    ("session kill", "세션을 즉시 끝냅니다"),
    (
        "session restart",
        "끝난 세션을 다시, 실행 중인 세션을 새로 시작합니다",
    ),
    ("session rename", "세션 이름을 바꿉니다"),
    (
        "session set",
        "실행 중인 세션의 한도와 레이블, 대기 중인 세션의 우선순위를 바꿉니다",
    ),
    ("session hold", "대기 중인 세션을 보류합니다"),
    (
        "session release",
        "보류한 세션을 대기열의 맨 뒤로 돌려보냅니다",
    ),
    ("session pause", "세션을 멈춰 둡니다. 메모리는 유지됩니다"),
    ("session resume", "멈춰 둔 세션을 이어서 실행합니다"),
    ("session rm", "끝난 세션과 로그를 목록에서 지웁니다"),
    (
        "session events",
        "세션에 있었던 일을 시각과 함께 보여 줍니다",
    ),
    (
        "session connections",
        "세션이 밖으로 연결한 곳과 거부된 곳을 보여 줍니다",
    ),
    (
        "session why",
        "세션이 왜 기다리는지, 왜 여기서 실행되는지, 왜 끝났는지 설명합니다",
    ),
    ("session logs", "세션이 쓴 출력을 보여 줍니다"),
    ("session exec", "실행 중인 세션 안에서 명령을 실행합니다"),
    ("session attach", "세션의 주 프로세스에 연결합니다"),
    (
        "session metrics",
        "프로세서와 메모리 사용량을 시간순으로 보여 줍니다",
    ),
    ("session forward", "로컬 포트를 세션 안의 포트로 잇습니다"),
    ("session commit", "실행 중인 세션으로 이미지를 만듭니다"),
    ("session duplicate", "같은 설정의 세션을 하나 더 만듭니다"),
    ("exec", "실행 중인 세션 안에서 명령을 실행합니다"),
    ("code", "세션 안의 인터프리터에서 코드를 실행합니다"),
    ("logs", "세션이 쓴 출력을 보여 줍니다"),
    ("attach", "세션의 주 프로세스에 연결합니다"),
    ("stop", "세션을 끝냅니다: TERM, 10초 뒤 KILL"),
    ("kill", "세션을 즉시 끝냅니다"),
    ("rm", "끝난 세션과 로그를 목록에서 지웁니다"),
    (
        "why",
        "세션이 왜 기다리는지, 왜 여기서 실행되는지, 왜 끝났는지 설명합니다",
    ),
    ("image", "실행 환경 이미지"),
    ("image ls", "이미지를 나열합니다"),
    ("image get", "이미지 하나를 보여 줍니다"),
    (
        "image import",
        "아카이브를 가져옵니다: docker save, podman save, skopeo, umoci",
    ),
    (
        "image share",
        "세션으로 만든 이미지를 도메인의 모든 사용자와 공유합니다",
    ),
    (
        "image unshare",
        "세션으로 만든 이미지를 다시 비공개로 바꿉니다",
    ),
    (
        "image pull",
        "다른 레지스트리의 이미지를 가져옵니다: HOST/NAME:TAG",
    ),
    (
        "image limit",
        "이미지의 세션이 요청할 수 있는 양을 정합니다",
    ),
    ("image rm", "쓰이지 않는 이미지를 지웁니다"),
    (
        "environment",
        "번들로 들여오는 환경: 가져오기, 나열, 삭제, 만들기",
    ),
    ("environment ls", "환경 번들을 버전별로 나열합니다"),
    (
        "environment get",
        "한 버전을 패키지와 라이선스와 함께 보여 줍니다",
    ),
    (
        "environment import",
        "번들을 가져옵니다. 전체를 검사하기 전에는 아무것도 풀지 않습니다",
    ),
    (
        "environment rm",
        "다른 버전에 없는 이미지와 함께 버전을 지웁니다",
    ),
    ("environment pack", "이 서버의 이미지로 번들을 만듭니다"),
    (
        "environment build",
        "정의 파일대로 Debian 패키지와 Python 패키지로 번들을 만듭니다",
    ),
    (
        "environment key",
        "번들에 서명하는 키를 만들고 공개 키를 FILE.pub에 적습니다",
    ),
    ("queue", "기다리는 세션, 시작할 순서대로"),
    ("queue ls", "기다리는 세션과 각각의 이유를 나열합니다"),
    (
        "gpu",
        "GPU: 누가 얼마를 쓰는지, 무엇이 새 세션을 받지 않는지",
    ),
    (
        "gpu ls",
        "GPU와 각각의 여유, 나머지를 누가 쓰는지 나열합니다",
    ),
    ("gpu show", "GPU 한 장과 그 조각을 보여 줍니다"),
    (
        "gpu cordon",
        "GPU가 새 세션을 받지 않게 합니다. 실행 중인 것은 계속됩니다",
    ),
    ("gpu uncordon", "GPU가 다시 새 세션을 받게 합니다"),
    (
        "gpu drain",
        "GPU를 쓰는 모든 세션을 끝내고 새 세션을 받지 않게 합니다",
    ),
    (
        "gpu partition",
        "GPU를 하드웨어 파티션(MIG)으로 나누거나 다시 하나로 합칩니다",
    ),
    (
        "gpu test",
        "GPU 조각의 한도가 지켜지는지 그 GPU에서 직접 시험합니다",
    ),
    (
        "gpu report",
        "가장 최근 시험 결과를 서명과 함께 보여 줍니다",
    ),
    (
        "gpu resize",
        "실행 중인 세션의 GPU 할당량을 다시 시작하지 않고 바꿉니다",
    ),
    ("top", "서버가 얼마나 차 있는지, 최근에 무슨 일이 있었는지"),
    (
        "event",
        "일어난 일: 지난 이벤트를 찾고 변경을 실시간으로 봅니다",
    ),
    ("event ls", "일어난 일을 최신순으로 찾습니다"),
    ("event watch", "변경을 따라갑니다"),
    (
        "audit",
        "감사 로그: 사용자의 행위, 내보내기, 바뀌지 않았다는 증명",
    ),
    (
        "audit ls",
        "행위를 최신순으로 찾습니다. 자신의 것, 또는 맡은 프로젝트, 도메인, 사이트의 것",
    ),
    (
        "audit export",
        "감사 로그를 파일에 씁니다. 볼 수 있는 행은 내용을, 나머지는 다이제스트만 씁니다",
    ),
    (
        "audit verify",
        "내보낸 파일을 서버 없이 검증합니다. 모든 행이 기록된 그대로 제자리에 있는지 봅니다",
    ),
    (
        "audit checkpoints",
        "서명된 체크포인트를 최신순으로 나열합니다",
    ),
    (
        "audit targets",
        "감사 로그를 넘기는 외부 대상과 어디까지 넘겼는지 나열합니다",
    ),
    ("audit sign", "감사 로그를 최신 행까지 서명합니다"),
    (
        "notices",
        "내 알림: 시작했거나 끝났거나 곧 실행 시간 제한으로 끝날 세션",
    ),
    ("mail", "메일 알림: 종류 선택, 전송 상태, 메일 서버 시험"),
    ("mail choices", "어떤 알림을 메일로 받는지 보여 줍니다"),
    (
        "mail choose",
        "메일로 받을 알림 종류를 정합니다. 적지 않은 종류는 더 보내지 않습니다",
    ),
    (
        "mail status",
        "사이트의 메일이 어떻게 나가는지 보여 줍니다. 관리자용입니다",
    ),
    (
        "mail retry",
        "메일 서버가 완전히 거부한 알림을 다시 보냅니다. 관리자용입니다",
    ),
    (
        "mail test",
        "메일 하나를 보내고 메일 서버의 응답을 알려 줍니다. 관리자용입니다",
    ),
    (
        "holiday",
        "사이트와 도메인의 휴일. 시간 구간과 예약에 적용됩니다",
    ),
    ("holiday ls", "휴일을 한 줄에 하루씩 나열합니다"),
    (
        "holiday import",
        "파일의 휴일을 더합니다: 한 줄에 하루, CSV 또는 iCalendar",
    ),
    ("holiday rm", "휴일을 지웁니다"),
    ("branding", "브랜딩: 사이트의 이름, 로고, 강조색과 짧은 글"),
    ("branding show", "사이트가 따로 정한 것을 보여 줍니다"),
    (
        "branding set",
        "사이트의 모양을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("branding reset", "제품 기본값으로 되돌립니다"),
    ("webhook", "웹훅: 이벤트를 알리는 다른 프로그램의 주소"),
    ("webhook ls", "웹훅과 상태를 나열합니다"),
    ("webhook get", "웹훅 하나를 보여 줍니다"),
    (
        "webhook create",
        "이벤트를 알릴 주소를 정하고, 요청에 서명하는 비밀 값을 한 번만 보여 줍니다",
    ),
    (
        "webhook set",
        "웹훅을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("webhook rm", "웹훅을 지웁니다"),
    (
        "webhook test",
        "서명된 요청을 하나 보내고 돌아온 것을 알려 줍니다",
    ),
    ("node", "노드: 가진 것, 커널이 알려 주는 것, 유지보수"),
    ("node ls", "노드와 상태, 여유를 나열합니다"),
    (
        "node get",
        "노드 하나를 보여 줍니다: 부하, 압력, 디스크, 네트워크, 온도",
    ),
    (
        "node maintenance",
        "노드가 새 세션을 받지 않게 하거나 다시 받게 합니다",
    ),
    (
        "history",
        "한 시간에서 한 달 동안 할당하고 쓴 양을 보여 줍니다",
    ),
    (
        "usage",
        "한 기간 동안 사용자, 프로젝트, 도메인이 쓴 양을 보여 줍니다",
    ),
    (
        "statement",
        "마감한 월의 명세서. 합계가 맞는 단위와 서명이 있습니다",
    ),
    (
        "statement verify",
        "-o json으로 저장한 명세서를 서버 없이 확인합니다",
    ),
    ("month", "월 마감, 마감한 월의 목록과 확인"),
    ("month ls", "마감한 월을 최신순으로 나열합니다"),
    (
        "month close",
        "끝난 월을 마감합니다. 사용량을 고정하고 서명하며 되돌릴 수 없습니다",
    ),
    (
        "month verify",
        "마감한 월이 서명한 내용과 같은지 서버에서 확인합니다",
    ),
    (
        "price",
        "GPU, 코어, GiB의 시간당 가격. 다음 마감부터 명세서에 표시됩니다",
    ),
    ("price ls", "시간당 가격을 보여 줍니다"),
    (
        "price set",
        "모든 가격을 정합니다. 적지 않은 것은 무료입니다",
    ),
    ("job", "가져오기 같은 긴 작업"),
    ("job ls", "긴 작업을 최신순으로 나열합니다"),
    ("job get", "작업 하나를 보여 줍니다"),
    ("job cancel", "작업을 취소하고 되돌립니다"),
    ("user", "로그인할 수 있는 사용자"),
    ("user ls", "사용자를 나열합니다"),
    ("user get", "한 사용자를 보여 줍니다"),
    ("user add", "사용자를 추가합니다"),
    (
        "user passwd",
        "비밀번호를 정하고 로그인과 토큰을 모두 끊습니다",
    ),
    (
        "user set",
        "사용자의 이름, 이메일 주소, 허용된 네트워크를 바꿉니다",
    ),
    ("user role", "역할을 바꿉니다"),
    (
        "user suspend",
        "로그인과 토큰을 막습니다. 아무것도 지우지 않습니다",
    ),
    (
        "user sign-in-link",
        "사용자가 한 번 로그인하는 링크를 만들어 보여 줍니다",
    ),
    ("user second-factor", "사용자의 2단계 인증"),
    (
        "user second-factor reset",
        "기기를 잃어버린 사용자의 2단계 인증을 초기화하고 로그인과 토큰을 모두 끝냅니다",
    ),
    (
        "user depart",
        "사용자를 세션, 로그인, 토큰과 함께 삭제합니다",
    ),
    (
        "user offer-folders",
        "떠날 사용자의 폴더를 같은 도메인의 다른 사용자에게 제안합니다",
    ),
    (
        "user hand-over-reservations",
        "떠날 사용자의 예약을 같은 도메인의 다른 사용자에게 넘깁니다",
    ),
    ("user rm", "가진 것이 없는 사용자를 지웁니다"),
    ("roster", "사용자 명단 파일: 계획, 적용, 되돌리기"),
    ("roster ls", "적용한 명단을 나열합니다"),
    (
        "roster plan",
        "명단을 적용하면 무엇이 바뀌는지 행마다 보여 줍니다",
    ),
    (
        "roster apply",
        "명단을 한꺼번에 적용하고 새 계정의 비밀번호를 보여 줍니다",
    ),
    ("roster undo", "아무도 시작하지 않았을 때 명단을 되돌립니다"),
    ("roster suspend", "명단으로 만든 사용자를 모두 정지합니다"),
    (
        "domain",
        "사이트의 도메인: 자체 사용자와 프로젝트를 가진 조직",
    ),
    ("domain ls", "볼 수 있는 도메인을 나열합니다"),
    ("domain get", "도메인 하나를 보여 줍니다"),
    ("domain create", "default 프로젝트가 있는 도메인을 만듭니다"),
    ("domain set", "도메인의 제목을 바꿉니다"),
    ("project", "프로젝트와 그 구성원"),
    ("project ls", "볼 수 있는 프로젝트를 나열합니다"),
    ("project get", "한 프로젝트를 보여 줍니다"),
    ("project create", "프로젝트를 만듭니다"),
    ("project set", "프로젝트의 제목을 바꿉니다"),
    (
        "project archive",
        "프로젝트를 보관합니다. 새 세션은 시작되지 않고 기록은 남습니다",
    ),
    ("project members", "프로젝트의 구성원을 나열합니다"),
    (
        "project add",
        "사용자를 구성원으로 추가하거나 역할을 바꿉니다",
    ),
    (
        "project quota",
        "프로젝트 책임자가 요청하지 않고 예약할 수 있는 GPU 시간을 보여 주거나 정합니다",
    ),
    ("project rm", "사용자를 프로젝트에서 내보냅니다"),
    (
        "policy",
        "정책: 사이트, 도메인, 프로젝트, 구성원, 사용자에 연결하는 한도",
    ),
    ("policy ls", "정책을 나열합니다"),
    ("policy get", "정책 하나를 보여 줍니다"),
    ("policy create", "정책을 만듭니다"),
    (
        "policy set",
        "정책의 한도를 바꿉니다. none을 주면 그 한도가 없어집니다",
    ),
    ("policy rm", "연결되지 않은 정책을 지웁니다"),
    ("policy attach", "정책을 연결합니다. 있던 정책을 대신합니다"),
    ("policy detach", "정책 연결을 해제합니다"),
    ("keep", "유휴 경고를 받은 세션을 유지합니다"),
    ("idle-rule", "유휴 세션을 끝내는 규칙"),
    ("idle-rule ls", "유휴 규칙을 나열합니다"),
    ("idle-rule get", "유휴 규칙 하나를 보여 줍니다"),
    ("idle-rule create", "유휴 규칙을 만듭니다"),
    (
        "idle-rule set",
        "유휴 규칙을 바꿉니다. none을 주면 그 기준이 없어집니다",
    ),
    ("idle-rule rm", "유휴 규칙을 지웁니다"),
    (
        "idle-rule try",
        "규칙을 지난 일주일에 적용해 봅니다. 아무것도 바꾸지 않습니다",
    ),
    (
        "allowance",
        "임시 한도: 도메인, 프로젝트, 사용자의 한도를 정한 때까지 올립니다",
    ),
    ("allowance ls", "임시 한도를 먼저 끝나는 것부터 나열합니다"),
    ("allowance create", "정한 때까지 한도를 올립니다"),
    ("allowance rm", "임시 한도를 일찍 끝냅니다"),
    (
        "allowance ask",
        "내 한도를 한동안 올려 달라고 관리자에게 요청합니다",
    ),
    ("allowance asked", "내가 요청한 한도를 보여 줍니다"),
    ("allowance withdraw", "내 한도 요청을 거둡니다"),
    ("allowance requests", "사용자가 요청한 한도를 나열합니다"),
    ("allowance decline", "사용자의 한도 요청을 거부합니다"),
    (
        "limits",
        "적용되는 한도와 그 한도가 어느 정책에서 왔는지 보여 줍니다",
    ),
    ("invitation", "프로젝트에 참여하는 링크"),
    ("invitation ls", "프로젝트의 열린 초대를 나열합니다"),
    ("invitation create", "링크를 만들어 보여 줍니다"),
    (
        "invitation revoke",
        "초대를 폐기합니다. 그 링크는 더 이상 쓸 수 없습니다",
    ),
    ("invitation accept", "내 계정으로 프로젝트에 참여합니다"),
    ("approval", "두 번째 관리자의 승인을 기다리는 관리자의 요청"),
    ("approval ls", "기다리는 요청과 지난 요청을 나열합니다"),
    ("approval status", "승인이 필요한지 알려 줍니다"),
    ("approval release", "다른 관리자의 요청을 승인해 적용합니다"),
    ("approval decline", "기다리는 요청을 거부합니다"),
    (
        "approval on",
        "이제부터 정책, 역할, 설정의 변경은 승인을 기다립니다",
    ),
    (
        "approval off",
        "더 이상 승인을 기다리지 않습니다. 이 변경도 승인이 필요합니다",
    ),
    (
        "break-glass",
        "이유를 적고 다른 사용자의 세션이나 폴더를 엽니다. 소유자에게 알립니다",
    ),
    (
        "break-glass ls",
        "다른 사용자의 것을 연 관리자와 그 이유를 나열합니다",
    ),
    (
        "break-glass session",
        "다른 사용자의 세션에 잠시 들어갑니다",
    ),
    (
        "break-glass folder",
        "다른 사용자의 폴더에 있는 파일을 잠시 읽습니다",
    ),
    ("break-glass end", "내가 연 것을 시간보다 먼저 끝냅니다"),
    ("sign-up", "계정 요청과 요청할 수 있는 주소"),
    ("sign-up ls", "도메인의 계정 요청을 나열합니다"),
    ("sign-up approve", "요청한 계정을 만듭니다"),
    (
        "sign-up decline",
        "요청을 거부합니다. 30일 동안 되돌릴 수 있습니다",
    ),
    (
        "sign-up reopen",
        "거부한 요청을 되돌려 다시 대기하게 합니다",
    ),
    (
        "sign-up rules",
        "도메인마다 요청할 수 있는 주소를 나열합니다",
    ),
    (
        "sign-up allow",
        "도메인의 계정을 요청할 수 있는 주소를 정합니다",
    ),
    (
        "budget",
        "프로젝트나 사용자가 정한 기간에 쓸 수 있는 GPU 시간",
    ),
    ("budget ls", "예산을 나열합니다"),
    ("budget get", "예산 하나를 보여 줍니다"),
    (
        "budget create",
        "프로젝트나 사용자가 한 기간에 쓸 GPU 시간을 정합니다",
    ),
    (
        "budget set",
        "예산을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("budget rm", "예산을 지웁니다"),
    ("course", "기간이 있는 프로젝트, 곧 강좌"),
    ("course ls", "볼 수 있는 강좌를 나열합니다"),
    ("course get", "강좌 하나를 보여 줍니다"),
    ("course create", "프로젝트의 강좌를 초안으로 만듭니다"),
    (
        "course edit",
        "강좌를 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    (
        "course open",
        "초안을 구성원에게 열거나 끝난 강좌를 다시 엽니다",
    ),
    (
        "course end",
        "강좌를 지금 끝냅니다. 구성원의 세션을 중지합니다",
    ),
    (
        "course archive",
        "초안이거나 끝난 강좌를 보관합니다. 프로젝트에서 다음 강좌를 만들 수 있습니다",
    ),
    ("course rm", "초안이거나 보관된 강좌를 지웁니다"),
    ("course members", "구성원과 각자의 상태를 나열합니다"),
    (
        "course attendance",
        "구성원이 기간 동안 쓴 세션을 나열합니다",
    ),
    (
        "course start",
        "세션이 없는 구성원마다 세션을 하나씩 시작합니다",
    ),
    ("course stop", "구성원의 세션을 중지합니다"),
    ("course extend", "구성원의 세션 시간을 늘립니다"),
    ("course message", "구성원에게 메시지를 보냅니다"),
    (
        "course hand-out",
        "강좌가 끝날 때까지 수강생이 폴더를 읽게 합니다",
    ),
    ("course timetable", "강좌 시간표의 예약을 나열합니다"),
    ("course book", "강좌가 끝날 때까지 매주 시간을 예약합니다"),
    ("app", "세션 안에서 브라우저로 여는 프로그램"),
    ("app ls", "세션의 앱을 나열합니다"),
    ("app get", "앱 하나와 응답 여부를 보여 줍니다"),
    (
        "app open",
        "앱을 시작하고 30초 안에 한 번 열 수 있는 링크를 출력합니다",
    ),
    ("app shares", "앱을 공유한 사용자를 나열합니다"),
    ("app share", "앱을 세션의 프로젝트 구성원과 공유합니다"),
    ("app unshare", "앱의 공유를 해제합니다"),
    ("folder", "세션이 끝나도 남고 세션이 마운트하는 폴더"),
    (
        "folder ls",
        "자기 폴더와 볼 수 있는 사용자와 프로젝트의 폴더, 또는 폴더의 파일을 나열합니다",
    ),
    (
        "folder find",
        "디렉터리 아래의 파일과 디렉터리를 이름으로 찾습니다",
    ),
    (
        "folder du",
        "디렉터리 안의 디렉터리마다 디스크에서 차지하는 크기를 셉니다",
    ),
    ("folder cat", "폴더의 파일을 출력합니다"),
    (
        "folder write",
        "표준 입력을 폴더의 텍스트 파일로 씁니다(1 MiB까지)",
    ),
    (
        "folder cp",
        "파일을 자기 폴더로 보내거나 폴더에서 내려받거나 폴더 안에서 복사합니다",
    ),
    (
        "folder archive",
        "폴더의 디렉터리를 파일 하나로 내려받습니다",
    ),
    ("folder mkdir", "자기 폴더에 디렉터리를 만듭니다"),
    ("folder mv", "파일이나 디렉터리의 이름과 위치를 바꿉니다"),
    (
        "folder rm",
        "파일과 디렉터리를 아래에 있는 것까지 폴더의 휴지통으로 옮깁니다",
    ),
    (
        "folder removed",
        "최근 30일 동안 자기 폴더에서 지운 것을 나열합니다",
    ),
    (
        "folder undelete",
        "지운 파일을 원래 자리로 되돌립니다. 다른 것 위에는 놓지 않습니다",
    ),
    ("folder empty", "폴더의 휴지통에 있는 것을 완전히 지웁니다"),
    ("folder get", "폴더 하나를 보여 줍니다"),
    (
        "folder create",
        "자기 폴더나 책임자인 프로젝트의 폴더를 만듭니다",
    ),
    (
        "folder members",
        "폴더의 파일에 대한 프로젝트 구성원의 권한을 정합니다",
    ),
    ("folder cloning", "폴더를 복사할 수 있는 사용자를 정합니다"),
    ("folder limit", "폴더 하나의 한도를 정하거나 없앱니다"),
    (
        "folder clone",
        "파일을 읽을 수 있는 폴더를 복사해 자기 폴더를 만듭니다",
    ),
    ("folder transfer", "다른 소유자에게 폴더를 제안합니다"),
    ("folder withdraw", "폴더 제안을 철회합니다"),
    ("folder transfers", "넘겨받을 수 있는 폴더를 나열합니다"),
    (
        "folder take",
        "폴더를 넘겨받습니다. 그동안 마운트한 세션이 없어야 합니다",
    ),
    ("folder refuse", "폴더를 넘겨받지 않습니다"),
    (
        "folder rename",
        "폴더의 이름을 바꿉니다. 마운트한 세션은 계속됩니다",
    ),
    (
        "folder trash",
        "폴더를 휴지통으로 옮깁니다. 30일 동안 남습니다",
    ),
    ("folder restore", "휴지통의 폴더를 파일과 함께 되돌립니다"),
    (
        "folder purge",
        "휴지통의 폴더를 기한 전에 완전히 삭제합니다",
    ),
    (
        "folder adopt",
        "어느 폴더의 것도 아닌 디렉터리를 사용자의 폴더로 만듭니다",
    ),
    (
        "folder share",
        "폴더를 사용자나 프로젝트 구성원과 공유합니다. 사용자는 초대를 받아들여야 합니다",
    ),
    ("folder shares", "폴더를 공유한 상대를 나열합니다"),
    (
        "folder unshare",
        "폴더의 공유를 해제합니다. 진행 중인 파일 전송은 끝납니다",
    ),
    (
        "folder sessions",
        "폴더를 마운트하고 끝나지 않은 세션을 나열합니다",
    ),
    (
        "folder detach",
        "마운트한 세션에서 폴더를 해제합니다. 세션은 폴더 없이 계속됩니다",
    ),
    ("folder invitations", "받은 폴더 초대를 나열합니다"),
    ("folder accept", "폴더 초대를 받아들입니다"),
    ("folder decline", "폴더 초대를 거부합니다"),
    ("folder leave", "직접 공유받은 폴더에서 나갑니다"),
    (
        "folder usage",
        "사용자와 프로젝트마다 폴더가 쓰는 크기와 한도를 나열합니다",
    ),
    ("preset", "세션을 시작할 때 고르는 이름 붙은 크기"),
    ("preset ls", "프리셋을 나열합니다"),
    ("preset get", "프리셋 하나를 보여 줍니다"),
    (
        "preset add",
        "사이트나 도메인, 프로젝트의 프리셋을 만듭니다",
    ),
    (
        "preset edit",
        "프리셋을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("preset rm", "프리셋을 지웁니다"),
    ("group", "자기 노드로 세션을 실행하는 자원 그룹"),
    ("group ls", "쓸 수 있는 자원 그룹을 나열합니다"),
    ("group get", "자원 그룹 하나를 보여 줍니다"),
    (
        "group add",
        "노드 없이 모두가 쓸 수 있는 자원 그룹을 만듭니다",
    ),
    (
        "group edit",
        "자원 그룹을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    (
        "group nodes",
        "자원 그룹의 노드를 정합니다. 적지 않은 노드는 첫 그룹으로 돌아갑니다",
    ),
    ("group access", "누가 자원 그룹을 쓸 수 있는지 정합니다"),
    (
        "group windows",
        "자원 그룹에 다른 규칙을 적용할 시간 구간을 정합니다. --none을 주면 모두 없앱니다",
    ),
    (
        "group rm",
        "노드와 끝나지 않은 세션이 없는 자원 그룹을 지웁니다",
    ),
    ("reservation", "정한 시간 동안 예약한 GPU와 코어, 메모리"),
    ("reservation ls", "볼 수 있는 예약을 나열합니다"),
    ("reservation get", "예약 하나를 보여 줍니다"),
    (
        "reservation book",
        "정한 시간 동안 GPU와 코어, 메모리를 예약합니다. 프로젝트의 예약 한도를 넘으면 요청이 됩니다",
    ),
    (
        "reservation change",
        "예약을 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("reservation cancel", "예약의 남은 시간을 취소합니다"),
    (
        "reservation approve",
        "책임자의 예약 요청을 ID로 승인합니다. 자원이 아직 비어 있으면 예약됩니다",
    ),
    (
        "reservation refuse",
        "책임자의 예약 요청을 ID로, 이유와 함께 거부합니다",
    ),
    ("reservation withdraw", "내가 요청한 예약을 철회합니다"),
    (
        "snapshot",
        "폴더의 이전 버전, 직접 만든 것과 자동으로 만든 것",
    ),
    ("snapshot ls", "폴더의 이전 버전을 새것부터 나열합니다"),
    ("snapshot create", "폴더의 파일을 지금 그대로 남깁니다"),
    (
        "snapshot schedule",
        "자동으로 만든 이전 버전을 몇 개 남길지 정합니다",
    ),
    ("snapshot rm", "폴더의 이전 버전을 지웁니다"),
    ("snapshot files", "이전 버전의 디렉터리를 나열합니다"),
    ("snapshot clone", "이전 버전으로 새 폴더를 만듭니다"),
    (
        "snapshot restore",
        "이전 버전의 파일이나 디렉터리를 그 폴더로 되돌립니다",
    ),
    ("storage", "폴더가 차지하는 크기, 사용자별 또는 하나씩"),
    (
        "storage ls",
        "사용자마다 폴더 전체의 크기와 한도를 나열합니다",
    ),
    (
        "storage folders",
        "큰 폴더를 마지막 사용 시각과 함께 나열합니다",
    ),
    ("volume", "폴더가 놓이는, 마운트된 파일 시스템"),
    (
        "volume ls",
        "저장소를 상태, 쓴 크기, 남은 크기와 함께 나열합니다",
    ),
    ("volume get", "저장소 하나를 보여 줍니다"),
    (
        "volume pool",
        "서버의 디스크가 폴더의 한도를 지키는 방법과 풀의 크기를 보여 줍니다",
    ),
    ("volume grow", "폴더가 놓이는 풀을 쓰는 중에 늘립니다"),
    (
        "volume add",
        "마운트된 파일 시스템을 저장소로 만듭니다. 비어 있거나 전에 저장소로 쓴 것이어야 합니다",
    ),
    (
        "volume set",
        "저장소를 변경합니다. 적지 않은 것은 그대로 둡니다",
    ),
    (
        "volume rm",
        "폴더가 없는 저장소를 목록에서 제거합니다. 파일은 남습니다",
    ),
    ("announcement", "콘솔에 정한 기간 동안 표시되는 공지"),
    (
        "announcement ls",
        "공지를 예정된 것과 지난 것까지 나열합니다",
    ),
    ("announcement get", "공지 하나를 보여 줍니다"),
    (
        "announcement create",
        "모든 사용자나 한 도메인의 사용자에게 공지합니다",
    ),
    (
        "announcement set",
        "공지를 바꿉니다. 적지 않은 것은 그대로 둡니다",
    ),
    ("announcement rm", "공지를 지웁니다"),
    (
        "fair-share",
        "대기열의 순서, 가중치, 공정 배분에서 사용자의 순위",
    ),
    (
        "fair-share ls",
        "도메인, 프로젝트, 사용자를 가중치, 사용량과 함께 나열합니다",
    ),
    (
        "fair-share order",
        "대기열의 순서, 백필, 지난 사용량의 반감기를 정합니다",
    ),
    (
        "fair-share weight",
        "도메인, 프로젝트, 사용자의 가중치를 정합니다",
    ),
    ("role", "도메인이나 사이트 전체에서 사용자가 맡은 역할"),
    ("role ls", "사용자의 역할을 나열합니다"),
    ("role grant", "도메인이나 사이트 전체의 역할을 줍니다"),
    ("role revoke", "역할을 거둡니다"),
    ("token", "내 API 토큰"),
    (
        "token ls",
        "내 토큰을 나열합니다. 비밀 값은 다시 보이지 않습니다",
    ),
    ("token create", "토큰을 만들고 비밀 값을 한 번 보여 줍니다"),
    ("token rm", "토큰을 폐기합니다"),
    ("key", "요청에 서명하는 내 접근 키"),
    (
        "key ls",
        "내 접근 키를 나열합니다. 비밀 값은 다시 보이지 않습니다",
    ),
    ("key create", "접근 키를 만들고 비밀 값을 한 번 보여 줍니다"),
    ("key revoke", "접근 키를 폐기합니다"),
    ("ssh-key", "SSH로 로그인하는 내 공개 키"),
    ("ssh-key ls", "내 공개 키를 나열합니다"),
    (
        "ssh-key add",
        "공개 키를 등록합니다. .pub로 끝나는 파일이나 표준 입력(-)에서 읽습니다",
    ),
    ("ssh-key rm", "공개 키를 지웁니다"),
    ("dotfile", "내 세션의 HOME에 두는 파일"),
    ("dotfile ls", "설정 파일을 나열합니다"),
    ("dotfile cat", "설정 파일의 내용을 출력합니다"),
    (
        "dotfile put",
        "파일이나 표준 입력(-)의 내용을 설정 파일로 저장합니다",
    ),
    ("dotfile rm", "설정 파일을 지웁니다"),
    ("startup", "내 세션에서 명령보다 먼저 실행하는 스크립트"),
    ("startup cat", "시작 스크립트를 출력합니다"),
    (
        "startup set",
        "파일이나 표준 입력(-)의 내용을 시작 스크립트로 저장합니다",
    ),
    ("startup rm", "시작 스크립트를 지웁니다"),
    ("variable", "내 세션에만 주는 변수"),
    (
        "variable ls",
        "변수를 나열합니다. 값은 다시 보이지 않습니다",
    ),
    (
        "variable set",
        "변수를 저장합니다. 값은 화면에 보이지 않게 입력하거나 표준 입력에서 읽습니다",
    ),
    ("variable rm", "변수를 지웁니다"),
    (
        "ssh-config",
        "ssh가 이 서버에 연결할 때 필요한 설정을 출력합니다(~/.ssh/config)",
    ),
    ("sign-in", "로그인한 브라우저"),
    (
        "sign-in ls",
        "자신이나 사용자가 로그인한 브라우저를 나열합니다",
    ),
    ("sign-in rm", "브라우저를 로그아웃합니다"),
    ("me", "내 계정"),
    ("me get", "여기서 내가 누구인지 보여 줍니다"),
    ("me set", "언어, 테마, 시간대를 정합니다"),
    (
        "me passwd",
        "내 비밀번호를 바꿉니다. 브라우저는 로그아웃되고 다른 토큰은 폐기됩니다",
    ),
    (
        "me second-factor",
        "자신의 2단계 인증: 비밀번호 다음에 입력하는 앱의 코드",
    ),
    ("me second-factor get", "2단계 인증을 보여 줍니다"),
    (
        "me second-factor on",
        "2단계 인증을 설정하거나 다른 기기로 바꿉니다",
    ),
    ("me second-factor off", "2단계 인증을 끕니다"),
    (
        "me second-factor recovery-codes",
        "복구 코드를 새로 만듭니다. 이전 것은 쓸 수 없게 됩니다",
    ),
    ("trust", "신뢰할 인증 기관의 지문과 인증서를 보여 줍니다"),
    ("tls", "서버의 인증서: 보기, 요청, 넣기, 되돌리기"),
    ("tls show", "지금 쓰는 인증서와 보관 중인 것을 보여 줍니다"),
    (
        "tls csr",
        "기관에 낼 인증서 요청서를 만듭니다. 키는 서버에 남습니다",
    ),
    (
        "tls import",
        "기관의 인증서를 넣습니다. 맞지 않으면 아무것도 바뀌지 않습니다",
    ),
    ("tls reset", "서버의 인증서로 되돌립니다"),
    ("login", "서버에 로그인하고 기억합니다"),
    ("logout", "기억한 서버를 잊고 토큰을 폐기합니다"),
    (
        "setup-link",
        "첫 관리자를 만드는 링크를 출력합니다 (이 서버의 root)",
    ),
    (
        "drain",
        "모든 사용자의 세션을 끝내고 하나도 남지 않을 때까지 기다립니다",
    ),
    ("doctor", "이 서버를 점검하고 고치는 방법을 알려 줍니다"),
    (
        "console",
        "서버에 연결된 화면: 주소, 네트워크, 비밀번호, 전원",
    ),
    ("console show", "첫 화면의 내용을 출력합니다"),
    ("console network", "이 서버의 주소"),
    (
        "console network show",
        "네트워크 인터페이스와 주소를 나열합니다",
    ),
    (
        "console network set",
        "인터페이스를 바꿉니다. 확정하지 않으면 60초 뒤 되돌립니다",
    ),
    ("console network keep", "기다리는 변경을 확정합니다"),
    ("console network revert", "기다리는 변경을 되돌립니다"),
    ("console services", "서비스의 상태"),
    (
        "console restart",
        "서버를 다시 시작합니다. 세션은 계속됩니다",
    ),
    ("console logs", "최근 로그를 출력합니다"),
    ("console power", "서버를 재부팅하거나 끕니다"),
    ("support", "기술 지원에 보낼 파일"),
    (
        "support bundle",
        "로그, 점검, 설정, 상태를 비밀 없이 파일 하나로 씁니다",
    ),
    ("config", "설정: 보기, 검사, 변경, 되돌리기"),
    ("config ls", "실행 중인 서버의 설정을 나열합니다"),
    ("config get", "실행 중인 서버의 설정 하나를 보여 줍니다"),
    (
        "config set",
        "설정 파일에서 설정 하나를 정합니다. 맞지 않는 값은 아무것도 바꾸지 않습니다",
    ),
    ("config unset", "설정을 기본값으로 되돌립니다"),
    ("config undo", "설정의 마지막 변경을 되돌립니다"),
    (
        "config validate",
        "설정 파일을 검사하고 틀린 곳을 알려 줍니다",
    ),
    ("config show", "서버 없이 적용된 값과 그 출처를 보여 줍니다"),
    (
        "config sample",
        "모든 설정과 기본값이 주석으로 적힌 설정 파일을 출력합니다",
    ),
    (
        "config test",
        "디렉터리와 인증 제공자에 물어보고 무엇이 잘못되었는지 알려 줍니다",
    ),
    (
        "config reload",
        "실행 중인 서버가 설정을 다시 읽게 합니다. 잘못이 있으면 아무것도 바뀌지 않습니다",
    ),
    ("backup", "카탈로그, 설정, 키의 백업: 만들기, 검사, 복원"),
    (
        "backup create",
        "암호화된 백업을 새 파일에 씁니다. 서버는 계속 실행됩니다",
    ),
    (
        "backup verify",
        "임시 디렉터리에서 복원을 연습하고 내용을 알려 줍니다",
    ),
    (
        "backup restore",
        "백업을 적용합니다. 서버가 꺼져 있어야 합니다",
    ),
    ("backup ls", "예약된 백업을 나열합니다"),
    ("backup now", "서버가 지금 백업을 하나 만들게 합니다"),
    (
        "backup download",
        "서버가 만든 백업 하나를 파일로 가져옵니다",
    ),
    ("upgrade", "업그레이드를 되돌리는 길"),
    (
        "upgrade status",
        "카탈로그의 버전과 업그레이드 전에 남겨 둔 사본을 보여 줍니다",
    ),
    (
        "upgrade rollback",
        "업그레이드 전의 카탈로그로 돌아갑니다. 서버가 꺼져 있어야 합니다",
    ),
    (
        "state",
        "카탈로그가 이 서버의 것인지 확인하고, 아니면 받아들이기",
    ),
    (
        "state show",
        "카탈로그가 이 서버가 따르던 것인지 보여 줍니다",
    ),
    (
        "state accept",
        "서버가 다른 카탈로그를 따랐어도 지금 있는 카탈로그로 이어 갑니다",
    ),
    (
        "rehearse",
        "컨테이너 없이 스케줄러에 시나리오를 돌려 봅니다",
    ),
    (
        "rehearse history",
        "한 기간의 세션을 대기열의 다른 규칙으로 돌려 봅니다",
    ),
    (
        "rehearse decision",
        "스케줄러가 내린 결정을 기록에서 다시 내려 봅니다",
    ),
    (
        "bench",
        "이 서버와 이 빌드를 측정합니다. 원시 표본을 JSON으로 냅니다",
    ),
    ("api", "API를 직접 부릅니다"),
    ("completion", "셸 자동 완성을 출력합니다"),
    ("man", "매뉴얼 페이지를 보여 주거나 모두 씁니다"),
    ("version", "이 프로그램과 서버의 버전을 출력합니다"),
];

/// The same command line with its summaries in Korean.
pub(super) fn summaries(command: clap::Command) -> clap::Command {
    let mut command = command.about("네트워크 없이, 파일 하나로, 서버 하나를 사설 AI 클라우드로");
    for (path, summary) in SUMMARIES {
        let words: Vec<&str> = path.split(' ').collect();
        command = placed(command, &words, summary);
    }
    command
}

fn placed(command: clap::Command, path: &[&str], summary: &'static str) -> clap::Command {
    match path {
        [] => command.about(summary),
        [first, rest @ ..] if command.find_subcommand(first).is_some() => {
            command.mut_subcommand(*first, |inner| placed(inner, rest, summary))
        }
        _ => command,
    }
}
