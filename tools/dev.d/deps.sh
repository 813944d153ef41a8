# ./dev deps: what the other commands stand on. Every tier includes build; test includes demo, bench includes test.
#
# build: packages, llhttp + yyjson + ONNX Runtime headers (.deps/usr), ONNX Runtime library (.deps/onnxruntime/lib)
# test:  cmocka, test data, promtool, perf_analyzer, h2load, h2spec and grpcurl (where there is Go), grpc-js (where there is
#        npm), and the Python packages of tests/requirements.txt (.venv)
# demo:  trained models and media, in demo/models and demo/media
# lint:  clang and libFuzzer's runtime, the pinned clang-format and clang-tidy
# bench: peers and load tools
# Nothing to do costs one dpkg-query and a few stamp files.

APT_OPTIONS=(-o APT::Sandbox::User=root -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)

# deps_listed TIER: package alternatives of the tier, one a line.
deps_listed() { awk -v t="$1" '$1 == t && $2 != "unpack" { print $2 }' tools/dev.d/packages; }

package_installed() {
    local name
    for name in ${1//|/ }; do
        case " $INSTALLED " in *" $name "*) return 0 ;; esac
    done
    return 1
}

read_installed() {
    INSTALLED=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' | awk '$1 == "installed" { sub(/:.*/, "", $2); printf "%s ", $2 }')
}

# package_offered PACKAGE [OLDEST]: whether apt knows a version of it that could be installed, and that is new enough.
package_offered() {
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
    case $candidate in '' | '(none)') return 1 ;; esac
    [ -z "${2:-}" ] || dpkg --compare-versions "$candidate" ge "$2"
}

apt_update_once() {
    [ -z "${APT_UPDATED:-}" ] || return 0
    APT_UPDATED=1
    may_be_root || return 0 # with the lists as they are, unpacking below .deps may still work
    say "refreshing the package lists"
    # One refused third-party source must not stop us: what counts is whether our packages are offered afterwards.
    run_logged apt-update as_root apt-get "${APT_OPTIONS[@]}" update || true
}

install_packages() {
    local tier=$1 entry name chosen missing=() wanted=()
    read_installed
    for entry in $(deps_listed "$tier"); do
        package_installed "$entry" || missing+=("$entry")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    may_be_root || die "installing packages needs root: run ./dev as root, install sudo, or install these yourself: ${missing[*]}"
    apt_update_once
    for entry in "${missing[@]}"; do
        chosen=''
        for name in ${entry//|/ }; do
            if package_offered "$name"; then
                chosen=$name
                break
            fi
        done
        [ -n "$chosen" ] || die "the package ${entry//|/ or } is not offered by this machine's apt sources;" \
            "enable the main component of $OS_ID $OS_VERSION (on Ubuntu also universe) and run ./dev deps again"
        wanted+=("$chosen")
    done
    say "installing ${#wanted[@]} packages: ${wanted[*]}"
    run_logged "apt-$tier" as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get "${APT_OPTIONS[@]}" install -y --no-install-recommends "${wanted[@]}" ||
        die "apt could not install$(refused_package "$LOGS/apt-$tier.log"); the last lines are above, the whole log is build/logs/apt-$tier.log"
}

# The first package that apt's log names as refused, for the message.
refused_package() {
    sed -nE 's/^E: Failed to fetch [^ ]*\/([^ _\/]+)_[^ ]* +(.*)/ \1 (\2)/p; s/^E: Unable to locate package (.*)/ \1/p' "$1" | head -n 1
}

# --- libraries from this or the next release, unpacked below .deps ----------------------------------------------

# The mirror this machine installs its own release from: what apt-get itself would use.
release_mirror() {
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v r="$OS_CODENAME" '$2 == "main" && ($1 == r || $1 == "stable" || $1 == "oldstable") { print $3; exit }'
}

# Makes an apt configuration of its own below .deps/apt for the next release; sets NEXT_APT to the options.
open_next_release() {
    [ ${#NEXT_APT[@]} = 0 ] || return 0
    local suite mirror dir=$DEPS/apt keyring signed=''
    suite=$(awk -v o="$OS_ID" -v v="$OS_VERSION" '$1 == "suite" && $2 == o && $3 == v { print $4 }' tools/dev.d/next-release)
    [ -n "$suite" ] || die "$1 is not offered by $OS_ID $OS_VERSION and tools/dev.d/next-release names no release to take it from;" \
        "use Debian 12, Debian 13 or Ubuntu 24.04, or add a line there"
    mirror=$(release_mirror)
    [ -n "$mirror" ] || die "no apt source for $OS_CODENAME main was found on this machine, which $1 would be taken from ($suite); add one and run ./dev deps again"
    for keyring in "/usr/share/keyrings/$OS_ID-archive-keyring.gpg"; do
        [ ! -r "$keyring" ] || signed="[signed-by=$keyring] "
    done
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    local components=main
    [ "$OS_ID" != ubuntu ] || components='main universe'
    printf 'deb %s%s %s %s\n' "$signed" "$mirror" "$suite" "$components" >"$dir/next.list"
    NEXT_APT=(-o "Dir::Etc::sourcelist=$dir/next.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Acquire::Languages=none
        -o 'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false')
    say "reading the package list of $suite (for what $OS_ID $OS_VERSION lacks)"
    run_logged apt-next apt-get "${APT_OPTIONS[@]}" "${NEXT_APT[@]}" update ||
        die "the package list of $suite could not be fetched from this machine's mirror; see build/logs/apt-next.log"
}

# fetch_deb PACKAGE DIR [OLDEST | next]: downloads PACKAGE's .deb into DIR, from this release or, when that has none or only
# one older than OLDEST, or when asked, from the next.
fetch_deb() {
    local name=$1 dir=$2 apt=()
    apt_update_once
    if [ "${3:-}" = next ] || ! package_offered "$name" "${3:-}"; then
        open_next_release "$name"
        apt=("${NEXT_APT[@]}")
    fi
    (cd "$dir" && run_logged "fetch-$name" apt-get "${APT_OPTIONS[@]}" "${apt[@]}" download "$name") ||
        die "the package $name could not be fetched; the last lines are above"
}

unpack_libraries() {
    local key
    key="$OS_ID $OS_VERSION $(hash_of tools/dev.d/next-release)"
    stamp_is libraries "$key" && return 0
    local dir=$DEPS/debs entry oldest with name deb
    rm -rf "$DEPS/usr" "$dir"
    mkdir -p "$dir" "$DEPS/tmp"
    say "unpacking llhttp, yyjson and the ONNX Runtime headers into .deps"
    while read -r entry oldest with; do
        fetch_deb "$entry" "$dir" "$oldest"
        for name in ${with#with}; do
            fetch_deb "$name" "$dir" "$oldest"
        done
    done < <(awk '$1 == "package" { $1 = ""; print }' tools/dev.d/next-release)
    for deb in "$dir"/*.deb; do
        dpkg-deb -x "$deb" "$DEPS/tmp"
    done
    mv "$DEPS/tmp/usr" "$DEPS/usr"
    # Links to shared libraries that were left out on purpose would mislead the linker: llhttp is linked statically,
    # ONNX Runtime is opened at run time.
    find "$DEPS/usr" -xtype l -name '*.so' -delete
    rm -rf "$dir" "$DEPS/tmp"
    stamp_set libraries "$key"
}

# --- from the Python registry -------------------------------------------------------------------------------------

make_venv() {
    [ -x "$VENV/bin/pip" ] && return 0
    local python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    run_logged venv "$python" -m venv "$VENV" || die "the Python environment .venv could not be made with $python; see build/logs/venv.log"
}

# fetch_wheel REQUIREMENTS DIR: its wheels, each checked against its hash, whatever Python this machine has.
fetch_wheel() {
    local file=$1 dir=$2 machine name glibc platforms=()
    machine=$(uname -m)
    name=$(sed -nE 's/^([A-Za-z0-9_.-]+==[^ ]+).*/\1/p' "$file" | paste -sd' ' | sed 's/ /, /g')
    for glibc in 2_17 2_27 2_28 2_34 2_38; do
        platforms+=(--platform "manylinux_${glibc}_$machine")
    done
    make_venv
    mkdir -p "$dir"
    run_logged "fetch-${name%%==*}" "$VENV/bin/pip" download -q --no-deps --only-binary=:all: --python-version 3.11 \
        "${platforms[@]}" --require-hashes -d "$dir" -r "$file" ||
        die "of the Python packages in $file ($name) one could not be fetched, or its hash is not the pinned one; see build/logs/fetch-${name%%==*}.log"
}

unpack_onnxruntime() {
    local key dir=$DEPS/onnxruntime/lib tmp=$DEPS/tmp-ort soname
    key=$(hash_of tools/dev.d/onnxruntime.txt)
    stamp_is onnxruntime "$key" && return 0
    say "fetching the ONNX Runtime library"
    rm -rf "$tmp" "$dir"
    fetch_wheel tools/dev.d/onnxruntime.txt "$tmp"
    mkdir -p "$dir"
    "$VENV/bin/python" tools/dev.d/unzip_flat.py "$tmp"/*.whl 'onnxruntime/capi/libonnxruntime*' "$dir"
    "$VENV/bin/python" tools/dev.d/unzip_flat.py "$tmp"/*.whl 'onnxruntime/LICENSE' "$dir/.."
    "$VENV/bin/python" tools/dev.d/unzip_flat.py "$tmp"/*.whl 'onnxruntime/ThirdPartyNotices.txt' "$dir/.."
    soname=$(basename "$(ls "$dir"/libonnxruntime.so.*)")
    ln -s "$soname" "$dir/libonnxruntime.so.1"
    ln -s libonnxruntime.so.1 "$dir/libonnxruntime.so"
    rm -rf "$tmp"
    stamp_set onnxruntime "$key"
}

# install_python FILE: the pinned packages of a requirements file, into .venv.
install_python() {
    local file=$1 key name
    name=py-$(dirname "$file")
    make_venv
    key="$("$VENV/bin/python" -V) $(hash_of "$file")"
    stamp_is "$name" "$key" && return 0
    say "installing the Python packages of $file into .venv"
    run_logged "$name" "$VENV/bin/pip" install -q --only-binary=:all: -r "$file" ||
        die "a Python package of $file could not be installed:" \
            "$(sed -nE 's/^ERROR: (No matching distribution found for .*|Could not find a version that satisfies the requirement [^ ]*).*/\1/p' "$LOGS/$name.log" | head -n 1); see build/logs/$name.log"
    stamp_set "$name" "$key"
}

# Triton's load generator wants a newer C library than Debian 12 has: it then runs on the next release's own, unpacked beside it.
unpack_perf_analyzer() {
    local key dir=$DEPS/perf_analyzer name
    [ "$(uname -m)" = x86_64 ] || return 0
    key="$OS_VERSION $(hash_of tools/dev.d/perf_analyzer.txt)"
    stamp_is perf_analyzer "$key" && return 0
    say "fetching perf_analyzer"
    rm -rf "$dir"
    fetch_wheel tools/dev.d/perf_analyzer.txt "$dir/wheel"
    "$VENV/bin/python" tools/dev.d/unzip_flat.py "$dir"/wheel/*.whl perf_analyzer/bin/perf_analyzer "$dir"
    chmod +x "$dir/perf_analyzer"
    mkdir -p "$DEPS/bin"
    if "$dir/perf_analyzer" --version >/dev/null 2>&1; then
        ln -sf ../perf_analyzer/perf_analyzer "$DEPS/bin/perf_analyzer"
    else
        mkdir -p "$dir/debs"
        for name in libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g libzstd1; do
            fetch_deb "$name" "$dir/debs" next
        done
        for name in "$dir"/debs/*.deb; do dpkg-deb -x "$name" "$dir/root"; done
        rm -rf "$dir/debs"
        rm -f "$DEPS/bin/perf_analyzer"
        cat >"$DEPS/bin/perf_analyzer" <<'WRAPPER'
#!/bin/sh
dir=$(dirname "$(readlink -f "$0")")/../perf_analyzer
lib=$dir/root/usr/lib/x86_64-linux-gnu
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$dir/perf_analyzer" "$@"
WRAPPER
        chmod +x "$DEPS/bin/perf_analyzer"
    fi
    rm -rf "$dir/wheel"
    stamp_set perf_analyzer "$key"
}

# build_go_tool NAME IMPORT: a Go program: sources pinned with their hashes in tools/dev.d/NAME/go.sum.
build_go_tool() {
    local key name=$1
    if ! command -v go >/dev/null; then
        say "there is no Go on this machine: $name is left out, and with it the tests that run it"
        return 0
    fi
    key="$(go version) $(hash_of "tools/dev.d/$name/go.sum")"
    stamp_is "$name" "$key" && return 0
    say "building $name"
    mkdir -p "$DEPS/bin"
    (cd "tools/dev.d/$name" && run_logged "$name" env GOBIN="$DEPS/bin" go install "$2") ||
        die "$name could not be built; see build/logs/$name.log"
    stamp_set "$name" "$key"
}

# The Node clients of the wire tests, pinned by tests/node/package-lock.json.
install_node_clients() {
    local key
    if ! command -v npm >/dev/null; then
        say "there is no npm on this machine: the Node clients are left out, and with them the test that runs them"
        return 0
    fi
    key="$(node --version) $(hash_of tests/node/package-lock.json)"
    stamp_is node "$key" && return 0
    say "installing the Node clients into .deps/node"
    mkdir -p "$DEPS/node"
    cp tests/node/package.json tests/node/package-lock.json "$DEPS/node/"
    (cd "$DEPS/node" && run_logged node npm ci --ignore-scripts --no-audit --no-fund) ||
        die "a Node client could not be installed; see build/logs/node.log"
    stamp_set node "$key"
}

# unpack_programs TIER: single programs of packages that would otherwise bring a service.
unpack_programs() {
    local package packages file dir=$DEPS/tmp-program
    while read -r packages file; do
        [ -x "$DEPS/bin/${file##*/}" ] && continue
        apt_update_once
        for package in ${packages//|/ }; do
            package_offered "$package" && break
        done
        say "taking ${file##*/} out of the package $package"
        rm -rf "$dir"
        mkdir -p "$dir" "$DEPS/bin"
        fetch_deb "$package" "$dir"
        dpkg-deb -x "$dir"/*.deb "$dir/root"
        mv "$dir/root$file" "$DEPS/bin/" || die "the package $package has no $file; name the one that has it in tools/dev.d/packages"
        rm -rf "$dir"
    done < <(awk -v t="$1" '$1 == t && $2 == "unpack" { print $3, $4 }' tools/dev.d/packages)
}

# --- the command ----------------------------------------------------------------------------------------------------

# deps_tier TIER: everything of one tier, quietly when there is nothing to do.
deps_tier() {
    case $1 in
    build)
        install_packages build
        unpack_libraries
        unpack_onnxruntime
        ;;
    test)
        deps_tier build
        install_packages test
        install_python tests/requirements.txt
        unpack_programs test
        unpack_perf_analyzer
        build_go_tool h2spec github.com/summerwind/h2spec/cmd/h2spec
        build_go_tool grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl
        install_node_clients
        lay_out_demo
        ;;
    demo)
        deps_tier build
        lay_out_demo
        ;;
    lint)
        deps_tier build
        install_packages test
        install_packages lint
        install_python tools/requirements.txt
        ;;
    bench)
        deps_tier test
        install_packages bench
        unpack_programs bench
        ;;
    all)
        deps_tier lint
        deps_tier bench
        ;;
    *) die "there is no dependency tier '$1'; the tiers are build, demo, test, lint, bench, all" ;;
    esac
}

prepare() {
    NEXT_APT=()
    command -v apt-get >/dev/null || die "this machine has no apt-get: ./dev sets up Debian 12, Debian 13 and Ubuntu 24.04;" \
        "elsewhere install what tools/dev.d/packages lists and build with cmake --preset release"
    read_os
    mkdir -p "$DEPS"
    # Two ./dev at once (a test beside a run) take turns here, and only here.
    exec 8>"$DEPS/.lock"
    flock 8 2>/dev/null || true
    deps_tier "$1"
    exec 8>&-
    export PATH=$DEPS/bin:$PATH
}

cmd_deps() {
    local tier
    for tier in "${@:-build}"; do
        prepare "$tier"
    done
    say "dependencies are in place: ${*:-build}"
}
