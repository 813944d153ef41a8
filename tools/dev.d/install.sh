# ./dev install [--prefix DIR]: the server, its private libraries, a configuration and the systemd unit.
#
#   PREFIX/bin/inferd                    finds its libraries at ../lib/inferd, wherever PREFIX is
#   PREFIX/lib/inferd/                   ONNX Runtime (opened at run time) and yyjson
#   PREFIX/share/{doc,man}/…             README, licences, man page
#   SYSCONFDIR/inferd/inferd.yaml        kept when it is already there
#   UNITDIR/inferd.service

# install_tree DESTDIR PREFIX SYSCONFDIR UNITDIR STATEDIR: into DESTDIR (empty: the running system).
install_tree() {
    local dest=$1 prefix=$2 sysconf=$3 units=$4 state=$5 lib doc name file
    lib=$dest$prefix/lib/inferd doc=$dest$prefix/share/doc/inferd
    install -d "$dest$prefix/bin" "$lib" "$doc/third-party" "$dest$prefix/share/man/man1" "$dest$sysconf/inferd" "$dest$units" "$dest$state/models"
    DESTDIR=$dest run_logged install cmake --install build/release --prefix "$prefix" --strip
    cp -a "$DEPS"/onnxruntime/lib/libonnxruntime.so.* "$DEPS/onnxruntime/lib/libonnxruntime_providers_shared.so" "$lib/"
    chmod 644 "$lib"/*.so*
    find "$DEPS/usr/lib" -name 'libyyjson.so.*' -exec cp -a {} "$lib/" \;
    for name in README.md LICENSE THIRD_PARTY_NOTICES.md; do
        [ ! -f $name ] || install -m 644 $name "$doc/"
    done
    cp "$DEPS/onnxruntime/LICENSE" "$doc/third-party/onnxruntime.txt"
    cp "$DEPS/onnxruntime/ThirdPartyNotices.txt" "$doc/third-party/onnxruntime-notices.txt"
    for name in libllhttp-dev libyyjson-dev; do
        cp "$DEPS/usr/share/doc/$name/copyright" "$doc/third-party/${name%-dev}.txt"
    done
    sed "s/@VERSION@/$(project_version)/" deploy/inferd.1 | gzip -9n >"$dest$prefix/share/man/man1/inferd.1.gz"
    file=$dest$sysconf/inferd/inferd.yaml
    [ -e "$file" ] || sed "s|/var/lib/inferd|$state|g" deploy/inferd.yaml >"$file"
    sed "s|@PREFIX@|$prefix|; s|@SYSCONFDIR@|$sysconf|" deploy/systemd/inferd.service >"$dest$units/inferd.service"
}

project_version() { sed -nE 's/^project\(inferd VERSION ([0-9.]+).*/\1/p' CMakeLists.txt; }

cmd_install() {
    local prefix=/usr/local sysconf units state
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix) prefix=${2:?install: --prefix needs a folder} && shift ;;
        --prefix=*) prefix=${1#*=} ;;
        *) die "install has no option '$1'; --prefix DIR chooses where (default /usr/local)" ;;
        esac
        shift
    done
    case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
    # The system's own folders for a system prefix; everything inside the prefix for any other.
    case $prefix in
    /usr | /usr/local) sysconf=/etc units=/etc/systemd/system state=/var/lib/inferd ;;
    *) sysconf=$prefix/etc units=$prefix/lib/systemd/system state=$prefix/var/lib/inferd ;;
    esac
    prepare build
    build_preset release inferd || die "the build 'release' failed; the whole log is build/logs/build-release.log"
    mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || die "$prefix cannot be written: run ./dev install as root, or choose another --prefix"
    install_tree '' "$prefix" "$sysconf" "$units" "$state" || die "not everything could be installed; the reason is above"
    say "installed $prefix/bin/inferd, configured by $sysconf/inferd/inferd.yaml; models go to $state/models"
}
