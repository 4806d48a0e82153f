#!/usr/bin/env bash
# Starts the database servers that the tests need and prints their URLs:  eval "$(scripts/test-servers.sh)"
# For Debian and its relatives, after `npm ci`. A server that a URL in the environment names, or that already listens,
# is used as it is. What this starts stays running. PostgreSQL is not here: `npm test` brings its own.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" = 0 ]; then
  # Servers run as another user, who can't enter /root.
  cache=${XDG_CACHE_HOME:-/var/cache}/adk-mikro-orm
  server_user=$(id -un mysql 2>/dev/null || echo nobody)
  sudo=
else
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/adk-mikro-orm
  server_user=$(id -un)
  sudo=sudo
fi
mkdir -p "$cache"
export DEBIAN_FRONTEND=noninteractive

log() { echo "test-servers: $*" >&2; }

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

run_in_background() {
  local name=$1
  shift
  log "starting $name"
  setsid "$@" </dev/null >"$cache/$name.log" 2>&1 &
}

wait_for() {
  local name=$1 url=$2
  node scripts/wait-for-server.js "$url" >&2 && return
  log "$name does not answer as root without a password"
  tail -n 20 "$cache/$name.log" >&2 2>/dev/null || true
  exit 1
}

own_data_folder() {
  mkdir -p "$1"
  if [ "$(id -u)" = 0 ]; then chown "$server_user" "$1"; fi
}

start_mariadb() {
  local data=$cache/mariadb-data
  # The core package has the server without the service that would take port 3306 with a password.
  if ! command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
    log 'installing mariadb-server-core'
    $sudo apt-get -q update >&2
    $sudo apt-get -q install -y --no-install-recommends mariadb-server-core >&2
  fi
  if [ ! -d "$data/mysql" ]; then
    own_data_folder "$data"
    mariadb-install-db --no-defaults --user="$server_user" --datadir="$data" \
      --auth-root-authentication-method=normal --skip-test-db >&2
  fi
  run_in_background mariadb "$(command -v mariadbd)" --no-defaults --user="$server_user" --datadir="$data" \
    --bind-address=127.0.0.1 --port=3306 --socket="$data/server.sock" --pid-file="$data/server.pid" --max-connections=300
}

first_debian_mirror() {
  {
    sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list || true
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources || true
    sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list.d/*.list || true
  } 2>/dev/null | grep -m1 -E '/debian/?$'
}

# Debian stable has no MySQL. Unstable's is unpacked with all its libraries beside the system, not installed into it.
unpack_mysql() {
  local target=$1 work=$1.unpacking mirror options package
  mirror=$(first_debian_mirror) || { log 'no Debian mirror in the apt configuration: set ADK_TEST_MYSQL_URL'; exit 1; }
  log "fetching mysql-server-core of Debian unstable"
  rm -rf "$work"
  mkdir -p "$work/apt/lists/partial" "$work/apt/state" "$work/apt/cache/archives/partial" "$work/root"
  : >"$work/apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$work/apt/sources.list"
  options=(
    -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State=$work/apt/state" -o "Dir::State::lists=$work/apt/lists" -o "Dir::State::status=$work/apt/status"
    -o "Dir::Cache=$work/apt/cache" -o Debug::NoLocking=true -o "APT::Sandbox::User=$(id -un)"
  )
  apt-get -q "${options[@]}" update >&2
  apt-get -q "${options[@]}" -y --no-install-recommends --download-only install mysql-server-core >&2
  for package in "$work"/apt/cache/archives/*.deb; do dpkg -x "$package" "$work/root"; done
  rm -rf "$target"
  mv "$work/root" "$target"
  rm -rf "$work"
}

start_mysql() {
  local root=$cache/mysql data=$cache/mysql-data server
  [ -x "$root/usr/sbin/mysqld" ] || unpack_mysql "$root"
  server=(
    "$root/usr/lib64/ld-linux-x86-64.so.2"
    --library-path "$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/mysql/private"
    "$root/usr/sbin/mysqld" --no-defaults --user="$server_user" --datadir="$data"
    --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets"
  )
  if [ ! -d "$data/mysql" ]; then
    log 'initializing mysql'
    rm -rf "$data"
    own_data_folder "$data"
    "${server[@]}" --initialize-insecure >&2
  fi
  run_in_background mysql "${server[@]}" --bind-address=127.0.0.1 --port=3307 --socket="$data/server.sock" \
    --pid-file="$data/server.pid" --mysqlx=OFF --secure-file-priv=NULL --max-connections=300
}

if [ -z "${ADK_TEST_MARIADB_URL:-}" ]; then
  ADK_TEST_MARIADB_URL=mariadb://root@127.0.0.1:3306
  listens 3306 || start_mariadb
fi
if [ -z "${ADK_TEST_MYSQL_URL:-}" ]; then
  ADK_TEST_MYSQL_URL=mysql://root@127.0.0.1:3307
  listens 3307 || start_mysql
fi
wait_for mariadb "$ADK_TEST_MARIADB_URL"
wait_for mysql "$ADK_TEST_MYSQL_URL"

[ -z "${ADK_TEST_POSTGRESQL_URL:-}" ] || echo "export ADK_TEST_POSTGRESQL_URL=$ADK_TEST_POSTGRESQL_URL"
echo "export ADK_TEST_MYSQL_URL=$ADK_TEST_MYSQL_URL"
echo "export ADK_TEST_MARIADB_URL=$ADK_TEST_MARIADB_URL"
