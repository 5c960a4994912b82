-- A version of an environment that came as a bundle. Its images are rows of their own; one without images is gone.
create table environment (
    name text not null,
    version text not null,
    about text not null,
    -- SHA-256 of the bundle's manifest, as sha256:….
    digest text not null,
    -- The name of the trusted key that signed it; null: an administrator accepted it without one.
    signer text,
    -- Packages as SPDX, and the texts of the licences.
    sbom text not null,
    licences text not null,
    imported_at integer not null,
    primary key (name, version)
) strict;

create table environment_image (
    name text not null,
    version text not null,
    image blob not null references image (id) on delete cascade,
    -- What a session of it is best started with, as JSON.
    recommended text not null,
    primary key (name, version, image),
    foreign key (name, version) references environment (name, version) on delete cascade
) strict, without rowid;

create index environment_image_by_image on environment_image (image);
