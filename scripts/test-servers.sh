#!/usr/bin/env bash
# Starts the database servers that the tests need and prints their URLs:  eval "$(scripts/test-servers.sh)"
# For Debian and its relatives, after `npm ci`. If the environment has a server's URL, that server is used. The others are
# started on free ports, and continue to run after this script; a later call finds them. They are fast and keep nothing:
# a commit does not wait for a disk, and the data is in memory if there is room.
# PostgreSQL is not among them: `npm test` brings its own.
# With ADK_TEST_DURABLE they have their durable default settings, and their data stays in that folder. Arguments name the
# servers to start:  scripts/test-servers.sh mysql
# `pgbouncer` is only fetched; the tests that need it start it.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" = 0 ]; then
  # Servers run as another user, who cannot enter /root.
  cache=${XDG_CACHE_HOME:-/var/cache}/adk-mikro-orm
  server_user=$(id -un mysql 2>/dev/null || echo nobody)
  sudo=
else
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/adk-mikro-orm
  server_user=$(id -un)
  sudo=sudo
fi
mkdir -p "$cache"

data=$cache/data
in_memory=/dev/shm/adk-mikro-orm-$(id -un)
ROOM_MB=2048
if [ -d "$in_memory" ] || { [ -w /dev/shm ] && [ "$(df --output=avail -m /dev/shm | tail -n 1)" -ge "$ROOM_MB" ]; }; then
  data=$in_memory
fi
logs=$cache
if [ -n "${ADK_TEST_DURABLE:-}" ]; then
  data=$ADK_TEST_DURABLE
  logs=$data
fi
mkdir -p "$data"
# Only one call at a time: two would start the same servers.
exec 9>"$cache/lock"
flock 9
export DEBIAN_FRONTEND=noninteractive

log() { echo "test-servers: $*" >&2; }

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Not the database's usual port, where a server of the system may listen, which may be durable and slow.
free_port() {
  local port=$1
  while listens "$port"; do port=$((port + 1)); done
  echo "$port"
}

# Prints the port of a server that an earlier call started.
running_port() {
  local pid_file=$data/$1/server.pid port_file=$data/$1.port port
  [ -f "$pid_file" ] && [ -f "$port_file" ] || return 1
  port=$(cat "$port_file")
  kill -0 "$(cat "$pid_file")" 2>/dev/null && listens "$port" && echo "$port"
}

run_in_background() {
  local name=$1 folder=$data/$1 port
  shift
  port=$(free_port "$1")
  shift
  log "starting $name on port $port, with its data in $folder"
  # A starting server deletes the temporary files of other servers in the same folder.
  setsid "$@" --datadir="$folder" --tmpdir="$folder" --bind-address=127.0.0.1 --port="$port" --socket="$folder/server.sock" \
    --pid-file="$folder/server.pid" --max-connections=500 "${DURABILITY[@]}" \
    </dev/null >"$logs/$name.log" 2>&1 9>&- &
  echo "$port" >"$data/$name.port"
}

DURABILITY=(
  --innodb-flush-log-at-trx-commit=0 --skip-log-bin --innodb-doublewrite=0 --innodb-buffer-pool-size=512M
)
if [ -n "${ADK_TEST_DURABLE:-}" ]; then
  # The binary log of much data would fill the disk. Its files are deleted when they are full and this old.
  DURABILITY=(--binlog-expire-logs-seconds=60)
fi

wait_for() {
  local name=$1 url=$2
  node scripts/wait-for-server.js "$url" >&2 && return
  log "$name does not answer as root without a password"
  tail -n 20 "$logs/$name.log" >&2 2>/dev/null || true
  exit 1
}

new_data_folder() {
  rm -rf "$1"
  mkdir -p "$1"
  if [ "$(id -u)" = 0 ]; then chown "$server_user" "$1"; fi
}

start_mariadb() {
  local folder=$data/mariadb
  # The core package has the server without the service, which would listen on port 3306 and need a password.
  if ! command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
    log 'installing mariadb-server-core'
    $sudo apt-get -q update >&2
    $sudo apt-get -q install -y --no-install-recommends mariadb-server-core >&2
  fi
  if [ ! -d "$folder/mysql" ]; then
    new_data_folder "$folder"
    mariadb-install-db --no-defaults --user="$server_user" --datadir="$folder" \
      --auth-root-authentication-method=normal --skip-test-db >&2
  fi
  # As distributions configure it. By default, tables that name no character set would be latin1.
  run_in_background mariadb 3316 "$(command -v mariadbd)" --no-defaults --user="$server_user" \
    --character-set-server=utf8mb4
}

first_debian_mirror() {
  {
    sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list || true
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources || true
    sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list.d/*.list || true
  } 2>/dev/null | grep -m1 -E '/debian/?$'
}

# Debian stable has no MySQL, and its PgBouncer cannot keep track of prepared statements. A package of unstable is unpacked
# with all its libraries, but not installed.
unpack() {
  local wanted=$1 target=$2 work=$2.unpacking mirror options package
  mirror=$(first_debian_mirror) || { log "no Debian mirror in the apt configuration for $wanted"; exit 1; }
  log "fetching $wanted of Debian unstable"
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
  apt-get -q "${options[@]}" -y --no-install-recommends --download-only install "$wanted" >&2
  for package in "$work"/apt/cache/archives/*.deb; do dpkg -x "$package" "$work/root"; done
  rm -rf "$target"
  mv "$work/root" "$target"
  rm -rf "$work"
}

start_mysql() {
  local root=$cache/mysql folder=$data/mysql server
  [ -x "$root/usr/sbin/mysqld" ] || unpack mysql-server-core "$root"
  server=(
    "$root/usr/lib64/ld-linux-x86-64.so.2"
    --library-path "$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/mysql/private"
    "$root/usr/sbin/mysqld" --no-defaults --user="$server_user"
    --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets"
  )
  if [ ! -d "$folder/mysql" ]; then
    log 'initializing mysql'
    new_data_folder "$folder"
    "${server[@]}" --datadir="$folder" --initialize-insecure >&2
  fi
  run_in_background mysql 3336 "${server[@]}" --mysqlx=OFF --secure-file-priv=NULL
}

wanted=${*:-mariadb mysql}
is_wanted() { [[ " $wanted " == *" $1 "* ]]; }

if is_wanted pgbouncer && [ ! -x "$cache/pgbouncer/usr/sbin/pgbouncer" ]; then unpack pgbouncer "$cache/pgbouncer"; fi
if is_wanted mariadb && [ -z "${ADK_TEST_MARIADB_URL:-}" ]; then
  port=$(running_port mariadb) || { start_mariadb; port=$(cat "$data/mariadb.port"); }
  ADK_TEST_MARIADB_URL=mariadb://root@127.0.0.1:$port
fi
if is_wanted mysql && [ -z "${ADK_TEST_MYSQL_URL:-}" ]; then
  port=$(running_port mysql) || { start_mysql; port=$(cat "$data/mysql.port"); }
  ADK_TEST_MYSQL_URL=mysql://root@127.0.0.1:$port
fi
if is_wanted mariadb; then wait_for mariadb "$ADK_TEST_MARIADB_URL"; fi
if is_wanted mysql; then wait_for mysql "$ADK_TEST_MYSQL_URL"; fi

[ -z "${ADK_TEST_POSTGRESQL_URL:-}" ] || echo "export ADK_TEST_POSTGRESQL_URL=$ADK_TEST_POSTGRESQL_URL"
[ -z "${ADK_TEST_MYSQL_URL:-}" ] || echo "export ADK_TEST_MYSQL_URL=$ADK_TEST_MYSQL_URL"
[ -z "${ADK_TEST_MARIADB_URL:-}" ] || echo "export ADK_TEST_MARIADB_URL=$ADK_TEST_MARIADB_URL"
