//! One Korean word for one thing: words that once stood beside another for the same thing, and came back in
//! no sentence since. Never about style.

use std::path::{Path, PathBuf};

/// What is not said, what is said instead, and where the first is right all the same.
const TERMS: [(&str, &str, &[&str]); 25] = [
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
];

fn sentences() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all: Vec<PathBuf> = [
        "web/i18n/ko.toml",
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
