//! One word for one thing: words that once stood beside another for the same thing, or that users stumbled over, and
//! came back in no sentence since. Never about style.

use std::path::{Path, PathBuf};

/// What is not said, what is said instead, and where the first is right all the same.
const TERMS: [(&str, &str, &[&str]); 32] = [
    ("시뮬레이", "모의", &[]),
    ("가상 GPU", "모의 GPU", &[]),
    ("장비", "서버", &[]),
    ("박스", "서버", &[]),
    ("카드", "GPU", &["네트워크 카드", "\"카드를 바꿉니다"]),
    ("슬라이스", "조각", &[]),
    ("쿼터", "한도", &[]),
    ("디렉토리", "디렉터리", &[]),
    ("라벨", "레이블", &[]),
    ("재시작", "다시 시작", &[]),
    ("제어 그룹", "컨트롤 그룹", &[]),
    ("엑셀러레이터", "가속기", &[]),
    ("몫", "할당량", &[]),
    ("머신", "서버", &[]),
    ("거르", "필터", &[]),
    ("배정", "할당", &[]),
    ("지원 파일", "진단 번들", &[]),
    ("거절", "거부", &[]),
    ("저절로", "자동으로", &[]),
    ("만든 때", "생성 시각", &[]),
    ("가져온 때", "가져온 시각", &[]),
    ("개 세션", "세션과 그 수", &[]),
    ("GPU {n}개", "GPU {n}장", &[]),
    ("업로드 조각", "업로드할 데이터", &[]),
    ("} 개", "수에 붙인 개", &[]),
    ("알아서 정함", "자동 생성", &[]),
    ("잘 끝난", "정상 종료된", &[]),
    ("이렇게 나누기", "이 구성 적용", &[]),
    ("다른 이들", "다른 사용자, 오픈 소스", &[]),
    ("그대로 따르", "그대로 사용", &[]),
    ("절반만", "반영된 변경은 없습니다", &[]),
    ("한도 쓰기", "한도 변경 시도", &[]),
];

fn sentences() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all: Vec<PathBuf> = [
        "web/i18n/ko.toml",
        "web/i18n/launch_texts.toml",
        "src/rules/messages.toml",
        "src/doors/cli/korean.rs",
        "src/doors/pages/reference/korean.rs",
    ]
    .iter()
    .map(|name| root.join(name))
    .collect();
    for entry in std::fs::read_dir(root.join("web/docs/ko")).expect("the manual") {
        all.push(entry.expect("a chapter").path());
    }
    all
}

#[test]
fn one_thing_has_one_korean_word() {
    let mut found = Vec::new();
    let files = sentences();
    assert!(files.len() > 10, "only {files:?}");
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a file of sentences");
        for (number, line) in text.lines().enumerate() {
            for (word, instead, right) in TERMS {
                let mut rest = line.to_owned();
                for phrase in right {
                    rest = rest.replace(phrase, "");
                }
                if rest.contains(word) {
                    found.push(format!(
                        "{}:{}: {word} is called {instead}",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What users stumbled over, and what is said instead.
const STUMBLES: [(&str, &str); 27] = [
    ("is on its way", "was submitted"),
    ("new limits hold", "Limits changed"),
    ("not well", "failed"),
    ("do not belong together", "Wrong user name or password"),
    ("You may not do this", "Only administrators can"),
    ("has a known end", "have a time limit"),
    ("reach their own limits", "reaches its time limit"),
    ("picked by itself", "generated"),
    ("empty picks", "leave empty"),
    ("same part as the share", "in proportion to the share"),
    ("It is whole", "Not partitioned"),
    ("ut it so", "Apply layout"),
    ("walls in hardware", "hardware partitions"),
    ("By itself", "Default"),
    ("Read again", "Reload"),
    ("What is in force", "Current value"),
    ("checks are well", "passed"),
    ("Everything I may", "full"),
    ("Only look", "read-only"),
    ("left before its end", "not finished"),
    ("may open few files", "Open-file limit"),
    ("a promise that nobody", "not tested"),
    ("want to be started", "reboot"),
    ("rule of the catalog", "The catalog is consistent"),
    ("Parts by others", "Third-party software"),
    ("GPU given", "GPU allocated"),
    ("largest piece", "largest free block"),
];

/// The lines of a file of sentences below the root of the project.
fn lines(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = std::fs::read_to_string(&path).expect("a file of sentences");
    assert!(text.lines().count() > 10, "{name}");
    text.lines().map(str::to_owned).collect()
}

/// The sentences that stand in one group of a catalogue.
fn group(name: &str, title: &str) -> Vec<String> {
    let all = lines(name).into_iter();
    let inside = all.skip_while(|line| line != title).skip(1);
    let found: Vec<String> = inside.take_while(|line| !line.starts_with('[')).collect();
    assert!(found.len() > 20, "{title} of {name}");
    found
}

#[test]
fn what_users_stumbled_over_is_said_no_more() {
    for file in [
        "web/i18n/en.toml",
        "web/i18n/launch_texts.toml",
        "src/rules/messages.toml",
    ] {
        for line in lines(file) {
            for (word, instead) in STUMBLES {
                assert!(!line.contains(word), "{file}: {line}: say {instead}");
            }
        }
    }
}

#[test]
fn the_largest_free_block_is_called_by_one_name() {
    let mut seen = 0;
    for (file, word, then) in [
        ("web/i18n/en.toml", "largest", " free block"),
        ("web/i18n/ko.toml", "가장 큰", " 여유"),
        ("src/rules/messages.toml", "largest", " free block"),
        ("src/rules/messages.toml", "가장 큰", " 여유"),
    ] {
        for line in lines(file) {
            for (at, _) in line.match_indices(word) {
                let rest = &line[at + word.len()..];
                assert!(rest.starts_with(then), "{file}: {line}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 10, "only {seen} are told");
}

/// A notice stands there until the next page: what goes on now is over before that.
#[test]
fn notices_say_what_was_done_and_not_what_goes_on() {
    for sentence in group("web/i18n/en.toml", "[notice]") {
        let words: Vec<&str> = sentence
            .split(|c: char| !c.is_alphabetic())
            .filter(|word| !word.is_empty())
            .collect();
        let goes_on = words
            .windows(2)
            .any(|pair| matches!(pair[0], "is" | "are") && pair[1].ends_with("ing"));
        assert!(!goes_on, "{sentence}");
    }
    for sentence in group("web/i18n/ko.toml", "[notice]") {
        assert!(!sentence.contains("고 있습니다"), "{sentence}");
    }
}

/// `fonts.py korean` cuts the faces again: the first and the core face together carry every syllable of the console.
#[test]
fn the_first_two_korean_faces_carry_every_syllable_that_pages_say() {
    let of = |text: &str| -> Vec<char> {
        text.chars().filter(|c| ('가'..='힣').contains(c)).collect()
    };
    let faces = faces();
    // The Latin face has these three, for the switch of the language.
    let known = |c: &char| faces.contains(c) || "한국어".contains(*c);
    for file in [
        "web/i18n/ko.toml",
        "web/i18n/launch_texts.toml",
        "src/rules/messages.toml",
        "src/doors/pages/reference/korean.rs",
        "src/doors/pages/event_words.rs",
    ] {
        let said = of(&lines(file).concat());
        assert!(said.len() > 5, "{file}");
        let missing: Vec<&char> = said.iter().filter(|c| !known(c)).collect();
        assert!(
            missing.is_empty(),
            "{file} says {missing:?}, which only the last face has"
        );
    }
}

/// The syllables of the first and the core face, as they were cut.
fn faces() -> Vec<char> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/vendor/fonts/ui-ko-core.txt");
    let text = std::fs::read_to_string(path).expect("the list of syllables");
    text.trim().chars().collect()
}
