//! Who changes how the site looks, and that each page shows it at once.

use rules::users::Role;

use super::*;
use crate::actions::tests::caller_of;
use crate::code;

/// The smallest header of a PNG file.
fn png() -> Vec<u8> {
    let mut bytes = vec![0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];
    bytes.extend(b"\0\0\0\x0dIHDR\0\0\0\x08\0\0\0\x08\x08\x06\0\0\0");
    bytes
}

#[tokio::test]
async fn a_site_has_its_own_look_until_it_is_reset() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    let mina = caller_of(&server, "mina", Role::User);
    assert_eq!(around(&server), BrandingView::default());
    let patch = || BrandingPatchBody {
        name: Some(" Vision Lab ".to_owned()),
        logo: Some(Some(STANDARD.encode(png()))),
        hue: Some(Some(3)),
        sign_in: Some("For members of the lab.".to_owned()),
        ..BrandingPatchBody::default()
    };
    let denied = change(&server, &mina, patch(), None).await;
    assert_eq!(code(denied), "role.administrator-needed");
    let changed = change(&server, &boss, patch(), Some(0)).await.unwrap();
    assert_eq!(changed.name, "Vision Lab");
    assert_eq!(around(&server), changed);
    assert_eq!(logo(&server), Some(png()));
    let stale = change(&server, &boss, patch(), Some(0)).await;
    assert_eq!(code(stale), "branding.stale");
    let no_hue = BrandingPatchBody {
        hue: Some(None),
        ..BrandingPatchBody::default()
    };
    let changed = change(&server, &boss, no_hue, None).await.unwrap();
    assert_eq!((changed.hue, changed.has_logo), (None, true));
    let stale = reset(&server, &boss, Some(1)).await;
    assert_eq!(code(stale), "branding.stale", "changed since it was seen");
    assert_eq!(around(&server), changed);
    let reset = reset(&server, &boss, Some(2)).await.unwrap();
    assert_eq!(reset.generation, 3);
    let plain = BrandingView {
        generation: 3,
        ..BrandingView::default()
    };
    assert_eq!((around(&server), logo(&server)), (plain, None));
}

#[tokio::test]
async fn what_is_no_look_is_refused_and_changes_nothing() {
    let server = Server::for_tests();
    let boss = caller_of(&server, "boss", Role::Administrator);
    let logo_of = |bytes: &[u8]| BrandingPatchBody {
        logo: Some(Some(STANDARD.encode(bytes))),
        ..BrandingPatchBody::default()
    };
    let svg = logo_of(b"<svg onload='alert(1)'/>");
    let mut large = png();
    large.resize(rules::branding::MAX_LOGO_BYTES + 1, 0);
    for (patch, expected) in [
        (svg, "branding.logo-no-png"),
        (logo_of(&large), "branding.logo-too-large"),
        (
            BrandingPatchBody {
                hue: Some(Some(9)),
                ..BrandingPatchBody::default()
            },
            "branding.hue",
        ),
        (
            BrandingPatchBody {
                footer: Some("a\u{202e}b".to_owned()),
                ..BrandingPatchBody::default()
            },
            "branding.hidden-characters",
        ),
        (
            BrandingPatchBody {
                name: Some("a".repeat(MAX_BRAND_NAME + 1)),
                ..BrandingPatchBody::default()
            },
            "branding.text-too-long",
        ),
    ] {
        assert_eq!(code(change(&server, &boss, patch, None).await), expected);
    }
    assert_eq!(around(&server), BrandingView::default());
}
