//! Files of folders over the routes: what is sent comes back, in parts and as archives; what browsers are told of it; and a
//! sender without a right sends no more.

use std::io::Read as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use rules::permissions::Permission;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

use super::the_box::{Answer, As, TheBox};

/// What is promised of rights that end.
const SOON: Duration = Duration::from_secs(2);

async fn folder(the_box: &TheBox) -> String {
    let made = the_box.post(&the_box.mina, "/api/v1/folders", json!({"name": "data"}));
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    format!("/api/v1/folders/{id}")
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// One request of tus, by mina.
async fn tus(
    the_box: &TheBox,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let mut request = TheBox::request(&the_box.mina, method, path).header("tus-resumable", "1.0.0");
    if method == "PATCH" {
        request = request.header("content-type", "application/offset+octet-stream");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.into()).expect("a request");
    the_box.send(request).await
}

/// Begins a file and gives its place.
async fn begin(the_box: &TheBox, folder: &str, words: &str, size: usize) -> String {
    let size = size.to_string();
    let headers = [("upload-length", size.as_str()), ("upload-metadata", words)];
    let made = tus(the_box, "POST", &format!("{folder}/uploads"), &headers, "").await;
    assert_eq!(made.status, 201, "{}", made.short());
    made.header("location").to_owned()
}

async fn put(the_box: &TheBox, folder: &str, directory: &str, name: &str, bytes: &[u8]) {
    let words = format!("filename {},path {}", base64(name), base64(directory));
    let place = begin(the_box, folder, &words, bytes.len()).await;
    if !bytes.is_empty() {
        let sent = tus(
            the_box,
            "PATCH",
            &place,
            &[("upload-offset", "0")],
            bytes.to_vec(),
        );
        let sent = sent.await;
        assert_eq!(sent.status, 204, "{}", sent.short());
    }
}

async fn get(the_box: &TheBox, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = TheBox::request(&the_box.mina, "GET", path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    the_box.send(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_comes_back_as_it_was_sent_whole_and_in_parts() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let words = format!("filename {},path {}", base64("a b.bin"), base64("deep/er"));
    let place = begin(&the_box, &folder, &words, content.len()).await;
    let half = content[..1_500_000].to_vec();
    let sent = tus(&the_box, "PATCH", &place, &[("upload-offset", "0")], half).await;
    assert_eq!(
        (sent.status.as_u16(), sent.header("upload-offset")),
        (204, "1500000")
    );
    let other = tus(&the_box, "PATCH", &place, &[("upload-offset", "7")], "x").await;
    assert_eq!(other.short(), "409 upload.wrong-offset");
    let head = tus(&the_box, "HEAD", &place, &[], "").await;
    assert_eq!(head.header("upload-offset"), "1500000");
    assert_eq!(head.header("upload-length"), "3000000");
    assert_eq!(head.header("cache-control"), "no-store");
    let rest = content[1_500_000..].to_vec();
    use base64::Engine as _;
    let encoded = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let wrong = format!("sha256 {}", encoded(&[0; 32]));
    let headers = [
        ("upload-offset", "1500000"),
        ("upload-checksum", wrong.as_str()),
    ];
    let refused = tus(&the_box, "PATCH", &place, &headers, rest.clone()).await;
    assert_eq!(refused.short(), "460 upload.checksum-mismatch");
    let digest: [u8; 32] = Sha256::digest(&rest).into();
    let right = format!("sha256 {}", encoded(&digest));
    let headers = [
        ("upload-offset", "1500000"),
        ("upload-checksum", right.as_str()),
    ];
    let sent = tus(&the_box, "PATCH", &place, &headers, rest).await;
    assert_eq!(sent.status, 204, "{}", sent.short());
    let head = tus(&the_box, "HEAD", &place, &[], "").await;
    assert_eq!(head.header("upload-offset"), "3000000", "told once more");

    let path = format!("{folder}/files?path=deep/er/a%20b.bin");
    let whole = get(&the_box, &path, &[]).await;
    assert_eq!(whole.status, 200, "{}", whole.short());
    assert!(whole.bytes == content);
    assert_eq!(whole.header("content-type"), "application/octet-stream");
    assert_eq!(
        whole.header("content-disposition"),
        "attachment; filename=\"a b.bin\""
    );
    assert_eq!(whole.header("x-content-type-options"), "nosniff");
    assert!(whole.header("content-security-policy").contains("sandbox"));
    assert_eq!(whole.header("content-length"), "3000000");
    let (tag, changed) = (whole.header("etag"), whole.header("last-modified"));
    let part = get(&the_box, &path, &[("range", "bytes=1000-1999")]).await;
    assert_eq!(part.status, 206);
    assert_eq!(part.header("content-range"), "bytes 1000-1999/3000000");
    assert!(part.bytes == content[1000..2000]);
    let tail = get(&the_box, &path, &[("range", "bytes=-5"), ("if-range", tag)]).await;
    assert!(tail.status == 206 && tail.bytes == content[content.len() - 5..]);
    let dated = get(
        &the_box,
        &path,
        &[("range", "bytes=0-0"), ("if-range", changed)],
    )
    .await;
    assert_eq!((dated.status.as_u16(), dated.bytes.len()), (200, 3_000_000));
    let stale = get(
        &the_box,
        &path,
        &[("range", "bytes=-5"), ("if-range", "\"x\"")],
    )
    .await;
    assert_eq!((stale.status.as_u16(), stale.bytes.len()), (200, 3_000_000));
    let beyond = get(&the_box, &path, &[("range", "bytes=3000000-")]).await;
    assert_eq!(beyond.short(), "416 folder.range");
    assert_eq!(beyond.header("content-range"), "bytes */3000000");
    let known = get(&the_box, &path, &[("if-none-match", tag)]).await;
    assert_eq!((known.status.as_u16(), known.bytes.len()), (304, 0));
    put(&the_box, &folder, "", "empty", b"").await;
    let empty = get(&the_box, &format!("{folder}/files?path=empty"), &[]).await;
    assert_eq!((empty.status.as_u16(), empty.bytes.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_may_be_begun_with_its_first_piece() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    let path = format!("{folder}/uploads");
    let abilities = tus(&the_box, "OPTIONS", &path, &[], "").await;
    let mut extensions = abilities.header("tus-extension").split(',');
    assert!(extensions.any(|one| one == "creation-with-upload"));
    assert_eq!(abilities.header("tus-max-size"), (1_u64 << 40).to_string());
    let begin = async |name: &str, size: &str, checksum: &str, body: &'static str| {
        let words = format!("filename {}", base64(name));
        let mut request = TheBox::request(&the_box.mina, "POST", &path)
            .header("tus-resumable", "1.0.0")
            .header("content-type", "application/offset+octet-stream")
            .header("upload-length", size)
            .header("upload-metadata", words);
        if !checksum.is_empty() {
            request = request.header("upload-checksum", checksum);
        }
        let request = request.body(Body::from(body)).expect("a request");
        the_box.send(request).await
    };
    let whole = begin("whole", "4", "", "text").await;
    assert_eq!(whole.status, 201, "{}", whole.short());
    assert_eq!(whole.header("upload-offset"), "4");
    let read = get(&the_box, &format!("{folder}/files?path=whole"), &[]).await;
    assert_eq!(read.bytes, b"text");
    let half = begin("half", "6", "", "abc").await;
    assert_eq!(
        (half.status.as_u16(), half.header("upload-offset")),
        (201, "3")
    );
    let place = half.header("location").to_owned();
    let rest = tus(&the_box, "PATCH", &place, &[("upload-offset", "3")], "def").await;
    assert_eq!(rest.status, 204, "{}", rest.short());
    let empty = begin("empty", "0", "", "").await;
    assert_eq!(
        (empty.status.as_u16(), empty.header("upload-offset")),
        (201, "0")
    );
    // What is refused leaves nothing behind of which its sender knows no place.
    let longer = begin("longer", "3", "", "four").await;
    assert_eq!(longer.short(), "413 upload.too-large");
    let wrong = begin("wrong", "4", "crc32 AAAAAA==", "text").await;
    assert_eq!(wrong.short(), "460 upload.checksum-mismatch");
    let left = get(&the_box, &path, &[]).await.json();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_put_whole_in_the_place_of_the_version_that_is_meant() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    let put = async |path: &str, headers: &[(&str, &str)], body: &'static str| {
        let path = format!("{folder}/files?path={path}");
        let mut request = TheBox::request(&the_box.mina, "PUT", &path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).expect("a request");
        the_box.send(request).await
    };
    let new = ("if-none-match", "*");
    let made = put("deep/a", &[new], "one").await;
    assert_eq!(made.status, 201, "{}", made.short());
    assert_eq!(made.json()["path"], "deep/a");
    let first = made.header("etag").to_owned();
    let read = get(&the_box, &format!("{folder}/files?path=deep/a"), &[]).await;
    assert_eq!(
        (read.bytes.as_slice(), read.header("etag")),
        (&b"one"[..], first.as_str())
    );
    let written = put("deep/a", &[("if-match", &first)], "two").await;
    assert_eq!(written.status, 200, "{}", written.short());
    // That of no bytes at all.
    let other = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    for (path, headers, body, expected) in [
        ("deep/a", &[new][..], "x", "409 folder.entry-exists"),
        (
            "deep/a",
            &[("if-match", first.as_str())],
            "x",
            "412 folder.file-stale",
        ),
        ("deep/a", &[], "x", "428 if-match.missing"),
        (
            "none",
            &[("if-match", "*")],
            "x",
            "404 folder.entry-not-found",
        ),
        ("..", &[new], "x", "422 folder.path-invalid"),
        ("", &[new], "x", "422 folder.new-name-invalid"),
        (
            "b",
            &[new, ("content-digest", "md5=:AAAA:")],
            "x",
            "400 upload.checksum-unknown",
        ),
        (
            "b",
            &[new, ("content-digest", other)],
            "x",
            "422 upload.checksum-mismatch",
        ),
        (
            "b",
            &[new, ("content-length", "67108865")],
            "",
            "413 upload.too-large",
        ),
    ] {
        let refused = put(path, headers, body).await;
        assert_eq!(refused.short(), expected, "{path} {headers:?}");
    }
    let uploads = get(&the_box, &format!("{folder}/uploads"), &[])
        .await
        .json();
    assert_eq!(
        uploads["items"].as_array().map(Vec::len),
        Some(0),
        "{uploads}"
    );
    let path = format!("{folder}/files?path=deep/a");
    let read = get(&the_box, &path, &[]).await;
    assert_eq!(read.bytes, b"two");
    let sum = get(&the_box, &format!("{path}&sha256=true"), &[])
        .await
        .json();
    let digest: [u8; 32] = Sha256::digest(b"two").into();
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        sum,
        json!({"sha256": digits, "size": 3, "etag": read.header("etag")})
    );
    use base64::Engine as _;
    let digest: [u8; 32] = Sha256::digest(b"three").into();
    let said = base64::engine::general_purpose::STANDARD.encode(digest);
    let said = format!("sha-256=:{said}:");
    let known = read.header("etag").to_owned();
    let headers = [
        ("if-match", known.as_str()),
        ("content-digest", said.as_str()),
    ];
    let written = put("deep/a", &headers, "three").await;
    assert_eq!(written.status, 200, "{}", written.short());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_a_user_is_no_page_of_the_console() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    for (name, bytes, kind) in [
        (
            "x.html",
            &b"<script>alert(1)</script>"[..],
            "application/octet-stream",
        ),
        (
            "x.svg",
            b"<svg onload=\"alert(1)\"/>",
            "application/octet-stream",
        ),
        ("x.png", b"<script>", "application/octet-stream"),
        ("x.txt", b"\x89PNG\r\n\x1a\n", "image/png"),
    ] {
        put(&the_box, &folder, "", name, bytes).await;
        let file = get(&the_box, &format!("{folder}/files?path={name}"), &[]).await;
        assert_eq!(file.header("content-type"), kind, "{name}");
        assert!(
            file.header("content-disposition")
                .starts_with("attachment;"),
            "{name}"
        );
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        assert!(file.header("content-security-policy").contains("sandbox"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_path_and_no_file_is_refused_by_name() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    put(&the_box, &folder, "", "file", b"text").await;
    for (path, expected) in [
        (
            "files?path=../../../../etc/passwd",
            "422 folder.path-invalid",
        ),
        ("files?path=%252E%252E/x", "422 folder.path-invalid"),
        ("files?path=a%00b", "422 folder.path-invalid"),
        ("files?path=none", "404 folder.entry-not-found"),
        ("files?path=file/x", "404 folder.entry-not-found"),
        ("files", "422 folder.entry-not-file"),
        ("entries?path=file", "404 folder.entry-not-found"),
        ("entries?limit=0", "422 limit.out-of-range"),
        ("entries?cursor=x", "422 cursor.invalid"),
        ("archive?format=rar", "422 folder.archive-format"),
        ("archive?path=none", "404 folder.entry-not-found"),
    ] {
        let answer = get(&the_box, &format!("{folder}/{path}"), &[]).await;
        assert_eq!(answer.short(), expected, "{path}");
    }
    for (words, expected) in [
        ("filename ", "422 folder.new-name-invalid"),
        ("filename ???", "400 upload.metadata"),
        ("filename YS9i", "422 folder.new-name-invalid"),
        ("filename Li4=", "422 folder.new-name-invalid"),
        ("filename YQpi", "422 folder.new-name-invalid"),
        ("filename /w==", "400 upload.metadata"),
        ("filename ZmlsZQ==", "409 folder.entry-exists"),
        ("filename YQ==,path Li4=", "422 folder.path-invalid"),
    ] {
        let headers = [("upload-length", "1"), ("upload-metadata", words)];
        let path = format!("{folder}/uploads");
        let answer = tus(&the_box, "POST", &path, &headers, "").await;
        assert_eq!(answer.short(), expected, "{words}");
    }
    let place = begin(&the_box, &folder, "filename YQ==", 3).await;
    let longer = tus(&the_box, "PATCH", &place, &[("upload-offset", "0")], "four").await;
    assert_eq!(longer.short(), "413 upload.too-large");
    let headers = [("upload-offset", "0"), ("upload-checksum", "md5 AAAA")];
    let unknown = tus(&the_box, "PATCH", &place, &headers, "abc").await;
    assert_eq!(unknown.short(), "400 upload.checksum-unknown");
    let form = TheBox::request(&the_box.mina, "PATCH", &place)
        .header("tus-resumable", "1.0.0")
        .header("upload-offset", "0")
        .body(Body::from("abc"))
        .expect("a request");
    assert_eq!(the_box.send(form).await.short(), "415 upload.content-type");
    let gone = tus(&the_box, "DELETE", &place, &[], "").await;
    assert_eq!(gone.status, 204);
    let head = tus(&the_box, "HEAD", &place, &[], "").await;
    assert_eq!(head.status, 404);
    for (verb, body, expected) in [
        ("mkdir", json!({"path": "file"}), "409 folder.entry-exists"),
        (
            "mkdir",
            json!({"path": "a%0Ab"}),
            "422 folder.new-name-invalid",
        ),
        ("mkdir", json!({"path": ""}), "422 folder.new-name-invalid"),
        (
            "move",
            json!({"from": "file", "to": "file"}),
            "409 folder.entry-exists",
        ),
        (
            "move",
            json!({"from": "none", "to": "x"}),
            "404 folder.entry-not-found",
        ),
        (
            "move",
            json!({"from": "", "to": "x"}),
            "422 folder.path-invalid",
        ),
        (
            "entries/move",
            json!({"paths": [], "to": ""}),
            "422 folder.paths",
        ),
        (
            "entries/move",
            json!({"paths": ["file", "none"], "to": ""}),
            "409 folder.entry-exists",
        ),
        (
            "entries/copy",
            json!({"paths": ["file"], "to": "none"}),
            "404 folder.entry-not-found",
        ),
        ("remove", json!({"paths": []}), "422 folder.paths"),
        ("remove", json!({"paths": [""]}), "422 folder.path-invalid"),
        (
            "remove",
            json!({"paths": ["none"]}),
            "404 folder.entry-not-found",
        ),
    ] {
        let path = format!("{folder}/{verb}");
        let answer = the_box.post(&the_box.mina, &path, body.clone()).await;
        assert_eq!(answer.short(), expected, "{verb} {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_comes_as_one_archive() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    put(&the_box, &folder, "train", "a.txt", b"text").await;
    put(&the_box, &folder, "train/more", "b.txt", b"more").await;
    let tar = get(
        &the_box,
        &format!("{folder}/archive?path=train&format=tar"),
        &[],
    )
    .await;
    assert_eq!(tar.status, 200, "{}", tar.short());
    assert_eq!(
        tar.header("content-disposition"),
        "attachment; filename=\"train.tar\""
    );
    assert!(tar.bytes.windows(13).any(|name| name == b"train/a.txt\0\0"));
    let mut names = 0;
    let mut bytes = tar.bytes.as_slice();
    let mut block = [0; 512];
    // Each of two files has a head and one block, each of two directories a head.
    while bytes.read_exact(&mut block).is_ok() {
        names += usize::from(block[257..262] == *b"ustar");
    }
    assert_eq!(names, 4);
    let zip = get(&the_box, &format!("{folder}/archive"), &[]).await;
    assert_eq!(zip.header("content-type"), "application/zip");
    assert_eq!(
        zip.header("content-disposition"),
        "attachment; filename=\"data.zip\""
    );
    assert_eq!(zip.bytes[..4], *b"PK\x03\x04");
    let path = format!("{folder}/archive?format=tar&path=train/a.txt&path=train/more");
    let several = get(&the_box, &path, &[]).await;
    assert_eq!(several.status, 200, "{}", several.short());
    assert_eq!(
        several.header("content-disposition"),
        "attachment; filename=\"data.tar\""
    );
    for name in [&b"a.txt\0\0"[..], b"more/b.txt\0\0"] {
        let mut places = several.bytes.windows(name.len());
        assert!(places.any(|place| place == name), "{name:?}");
    }
    let path = format!("{folder}/archive?format=tar.zst");
    let packed = get(&the_box, &path, &[]).await;
    assert_eq!(packed.header("content-type"), "application/zstd");
    assert_eq!(
        packed.header("content-disposition"),
        "attachment; filename=\"data.tar.zst\""
    );
    // Where every frame of zstd begins.
    assert_eq!(packed.bytes[..4], [0x28, 0xb5, 0x2f, 0xfd]);
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_under_way_ends_when_its_token_is_revoked_and_goes_on_with_another() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    let place = begin(&the_box, &folder, "filename YQ==", 6).await;
    let doomed = the_box.token("mina", &Permission::ALL, None).await;
    let tokens = the_box.get(&the_box.mina, "/api/v1/me/tokens").await.json();
    let tokens = tokens["items"].as_array().expect("a list").clone();
    let newest = tokens
        .iter()
        .max_by_key(|one| one["created_at"].to_string());
    let id = newest.expect("a token")["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let (feed, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    feed.send(Ok("abc".into())).await.expect("taken");
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        Some((pieces.recv().await?, pieces))
    });
    let request = TheBox::request(&doomed, "PATCH", &place)
        .header("tus-resumable", "1.0.0")
        .header("upload-offset", "0")
        .header("content-type", "application/offset+octet-stream")
        .body(Body::from_stream(pieces))
        .expect("a request");
    let router = the_box.router.clone();
    let sending = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = format!("/api/v1/me/tokens/{id}");
    let revoked = the_box.with_body(&the_box.mina, "DELETE", &path, "").await;
    assert!(revoked.status.is_success(), "{}", revoked.short());
    let answer = tokio::time::timeout(SOON, sending).await;
    let answer = answer.expect("it ends").expect("no panic");
    assert_eq!(answer.status(), 401);
    drop(feed);
    let head = tus(&the_box, "HEAD", &place, &[], "").await;
    let offset: usize = head.header("upload-offset").parse().expect("a number");
    let rest = "abcdef"[offset..].to_owned();
    let at = offset.to_string();
    let sent = tus(&the_box, "PATCH", &place, &[("upload-offset", &at)], rest).await;
    assert_eq!(sent.status, 204, "{}", sent.short());
    let file = get(&the_box, &format!("{folder}/files?path=a"), &[]).await;
    assert_eq!(file.bytes, b"abcdef");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_senders_of_one_file_take_turns() {
    let the_box = TheBox::open().await;
    let folder = folder(&the_box).await;
    let place = begin(&the_box, &folder, "filename YQ==", 6).await;
    let (feed, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    feed.send(Ok("abc".into())).await.expect("taken");
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        Some((pieces.recv().await?, pieces))
    });
    let request = TheBox::request(&the_box.mina, "PATCH", &place)
        .header("tus-resumable", "1.0.0")
        .header("upload-offset", "0")
        .header("content-type", "application/offset+octet-stream")
        .body(Body::from_stream(pieces))
        .expect("a request");
    let router = the_box.router.clone();
    let sending = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let second = tus(&the_box, "PATCH", &place, &[("upload-offset", "0")], "xyz").await;
    assert_eq!(second.short(), "409 upload.busy");
    feed.send(Ok("def".into())).await.expect("taken");
    drop(feed);
    let answer = sending.await.expect("no panic");
    assert_eq!(answer.status(), 204);
    let file = get(&the_box, &format!("{folder}/files?path=a"), &[]).await;
    assert_eq!(file.bytes, b"abcdef");
    let other = As::Nobody;
    assert_eq!(
        the_box
            .get(&other, &format!("{folder}/files?path=a"))
            .await
            .status,
        401
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_copies_in_both_directions_and_sends_nothing_twice() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let place = the_box.folder.path().to_owned();
    let say = |line: &'static str| {
        let place = place.clone();
        async move {
            tokio::task::spawn_blocking(move || {
                let output = std::process::Command::new(env!("CARGO_BIN_EXE_fardel"))
                    .args(line.split(' '))
                    .current_dir(&place)
                    .env_clear()
                    .env("FARDEL_RUN", &place)
                    .env("FARDEL_CONFIG", "/nonexistent")
                    .env("HOME", &place)
                    .env("LANG", "C")
                    .output()
                    .expect("the binary of this build starts");
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                (
                    output.status.code(),
                    text(output.stdout),
                    text(output.stderr),
                )
            })
            .await
            .expect("the thread ends")
        }
    };
    let done = async |line: &'static str| {
        let (code, out, err) = say(line).await;
        assert_eq!(code, Some(0), "{line}: {err}");
        out
    };
    let large = vec![7_u8; 5 << 20];
    std::fs::create_dir_all(place.join("tree/deep/none")).expect("made");
    std::fs::write(place.join("tree/a.txt"), "text").expect("written");
    std::fs::write(place.join("tree/deep/100%.bin"), &large).expect("written");
    std::fs::write(place.join("tree/empty"), "").expect("written");
    done("folder create data").await;
    let refused = say("folder cp tree data:/").await;
    assert!(
        refused.0 == Some(2) && refused.2.contains("-r"),
        "{refused:?}"
    );
    let sent = done("folder cp -r tree data:/").await;
    assert_eq!(sent.lines().count(), 3, "{sent}");
    let again = done("folder cp -r tree data:/").await;
    assert_eq!(again, "", "files of the same size and time are left out");
    let listed = done("folder ls data:/tree").await;
    assert!(
        listed.contains("deep/") && listed.contains("a.txt"),
        "{listed}"
    );
    done("folder cp -r data:/tree back").await;
    assert_eq!(
        std::fs::read(place.join("back/deep/100%.bin")).expect("there"),
        large
    );
    assert_eq!(
        std::fs::read(place.join("back/a.txt")).expect("there"),
        b"text"
    );
    assert!(place.join("back/deep/none").is_dir() && place.join("back/empty").is_file());
    let taken = say("folder cp tree/a.txt data:/tree/deep/a.txt").await;
    assert_eq!(taken.0, Some(0), "{}", taken.2);
    std::fs::write(place.join("tree/a.txt"), "another text").expect("written");
    let taken = say("folder cp tree/a.txt data:/tree/deep/a.txt").await;
    assert!(
        taken.0 == Some(5) && taken.2.contains("folder.entry-exists"),
        "{taken:?}"
    );
    done("folder cp --overwrite tree/a.txt data:/tree/deep/a.txt").await;
    let sorted = done("folder ls data:/tree/deep --sort=-size").await;
    let at = |name: &str| {
        sorted
            .find(name)
            .unwrap_or_else(|| panic!("{name}: {sorted}"))
    };
    assert!(at("100%.bin") < at("a.txt"), "{sorted}");
    let found = done("folder find data A.TXT").await;
    assert!(
        found.contains("tree/a.txt") && found.contains("tree/deep/a.txt"),
        "{found}"
    );
    let counted = done("folder du data --fresh").await;
    assert!(counted.contains("tree"), "{counted}");
    assert_eq!(done("folder cat data:/tree/a.txt").await, "text");
    done("folder cp data:/tree/deep data:/tree/deep-2").await;
    let copied = done("folder ls data:/tree/deep-2").await;
    assert!(copied.contains("100%.bin"), "{copied}");
    // Standard input is empty here.
    done("folder write data:/tree/new.txt --new").await;
    let taken = say("folder write data:/tree/new.txt --new").await;
    assert!(
        taken.0 == Some(5) && taken.2.contains("folder.entry-exists"),
        "{taken:?}"
    );
    let stale = say("folder write data:/tree/new.txt --if-match \"1-1-1.1-1.1\"").await;
    assert!(stale.2.contains("folder.file-stale"), "{stale:?}");
    done("folder mv data:/tree/a.txt /tree/b.txt").await;
    done("folder archive data:/tree --format tar --to tree.tar").await;
    assert!(place.join("tree.tar").metadata().expect("there").len() > large.len() as u64);
    done("folder rm data:/tree").await;
    let removed = done("folder removed data").await;
    assert!(removed.contains("tree"), "{removed}");
    done("folder empty data --all").await;
    let gone = say("folder cp data:/tree/b.txt .").await;
    assert!(
        gone.0 == Some(3) && gone.2.contains("folder.entry-not-found"),
        "{gone:?}"
    );
}
