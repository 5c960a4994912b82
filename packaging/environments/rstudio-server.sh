#!/bin/sh
# Makes rstudio-server.tar.gz and rstudio-server.sha256, which the recipe rstudio.toml names, from the Debian package of RStudio
# Server's makers. Fetches nothing, and runs nothing of the package.
#
# usage: rstudio-server.sh PACKAGE.deb OUT_DIR      (needs dpkg-deb)
set -eu

package=${1:?usage: rstudio-server.sh PACKAGE.deb OUT_DIR}
out=${2:?usage: rstudio-server.sh PACKAGE.deb OUT_DIR}
epoch=${SOURCE_DATE_EPOCH:-1780272000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(CDPATH= cd -- "$out" && pwd)

dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work" ./usr/lib/rstudio-server
tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$work/usr/lib/rstudio-server" -cf - . |
  gzip -n -9 >"$out/rstudio-server.tar.gz"
cd "$out"
sha256sum rstudio-server.tar.gz >rstudio-server.sha256
ls -l rstudio-server.tar.gz rstudio-server.sha256
