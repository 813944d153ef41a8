# Shared by every ./dev command: messages, root rights, what machine this is. Sourced, never run.

DEPS=$ROOT/.deps
VENV=$ROOT/.venv
LOGS=$ROOT/build/logs

if [ -t 2 ]; then
    BOLD=$'\033[1m' RED=$'\033[31m' PLAIN=$'\033[0m'
else
    BOLD='' RED='' PLAIN=''
fi

say() { printf '%s==>%s %s\n' "$BOLD" "$PLAIN" "$*" >&2; }

# One clear sentence that says what is wrong and what to do, then exit 1.
die() {
    printf '%sdev: %s%s\n' "$RED" "$*" "$PLAIN" >&2
    exit 1
}

may_be_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# The distribution: OS_ID (debian, ubuntu, …), OS_VERSION (12, 24.04), OS_CODENAME.
read_os() {
    OS_ID='' OS_VERSION='' OS_CODENAME=''
    [ -r /etc/os-release ] || return 0
    eval "$(. /etc/os-release && printf 'OS_ID=%q OS_VERSION=%q OS_CODENAME=%q' "$ID" "${VERSION_ID:-}" "${VERSION_CODENAME:-}")"
}

# How many compile jobs or test processes at once: the cores this process may use.
jobs_count() { nproc; }

# run_logged NAME COMMAND...: output to build/logs/NAME.log; its last lines are shown when the command fails.
run_logged() {
    local name=$1 log=$LOGS/$1.log
    shift
    mkdir -p "$LOGS"
    if ! "$@" >"$log" 2>&1; then
        tail -n 25 "$log" >&2
        return 1
    fi
}

# stamp_is NAME VALUE: whether step NAME was last done for VALUE. stamp_set records it.
stamp_is() { [ "$(cat "$DEPS/stamps/$1" 2>/dev/null)" = "$2" ]; }
stamp_set() {
    mkdir -p "$DEPS/stamps"
    printf '%s\n' "$2" >"$DEPS/stamps/$1"
}

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }
