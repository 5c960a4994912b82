-- The manifest that an image came with through the registry, byte for byte: with its blobs, the image is pulled with the
-- digests that it was pushed with. An image from an archive has none.
create table image_manifest (
    image blob primary key references image (id) on delete cascade,
    -- SHA-256 of the body, as sha256:….
    digest text not null,
    media_type text not null,
    body blob not null
) strict, without rowid;

-- Blobs that the manifest of an image names: who may have the image may have them, and the registry keeps them.
create table image_blob (
    image blob not null references image (id) on delete cascade,
    digest text not null,
    bytes integer not null check (bytes >= 0),
    -- Of a manifest that an index names; null for other blobs.
    media_type text,
    primary key (image, digest)
) strict, without rowid;
