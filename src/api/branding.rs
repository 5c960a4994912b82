//! How the site looks beside the product: name, logo, hue and short texts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the site looks; empty and null: as the product does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Branding)]
pub struct BrandingView {
    /// What pages and mail call the site; empty: the machine's own name.
    pub name: String,
    /// It has a logo of its own, at `/branding/logo`.
    pub has_logo: bool,
    /// One of the eight hues of the design, from 1 on.
    pub hue: Option<u8>,
    /// Below each page.
    pub footer: String,
    /// For readers in Korean; empty: they read `footer`.
    pub footer_ko: String,
    /// On the sign-in page.
    pub sign_in: String,
    /// For readers in Korean; empty: they read `sign_in`.
    pub sign_in_ko: String,
    /// Version, and ETag.
    pub generation: u64,
}

/// A merge patch: what is left out stays. Texts are plain, never markup.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = BrandingPatch)]
#[serde(default, deny_unknown_fields)]
pub struct BrandingPatchBody {
    /// Empty: the machine's own name.
    pub name: Option<String>,
    /// A PNG file of up to 100 KiB and 2,048 pixels a side, in base64; a null takes it away.
    #[serde(deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<String>)]
    pub logo: Option<Option<String>>,
    /// A null: the hue of the product.
    #[serde(deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<u8>)]
    pub hue: Option<Option<u8>>,
    pub footer: Option<String>,
    pub footer_ko: Option<String>,
    pub sign_in: Option<String>,
    pub sign_in_ko: Option<String>,
}
