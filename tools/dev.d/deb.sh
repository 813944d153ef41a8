# ./dev deb: dist/inferd_VERSION_ARCH.deb, from the same tree as ./dev install with prefix /usr.
#
# What it depends on is read from the binaries: each shared library that they name is looked up in the distribution's
# package database, and the C library's version in the symbols they ask for.
. tools/dev.d/install.sh

# needed_packages FILE...: the packages that own the shared libraries the files ask for.
needed_packages() {
    local cached library path paths=()
    cached=$(ldconfig -p)
    for library in $(objdump -p "$@" | awk '$1 == "NEEDED" { print $2 }' | sort -u); do
        path=$(awk -v l="$library" '$1 == l { print $NF; exit }' <<<"$cached")
        [ -z "$path" ] || paths+=("$path" "$(readlink -f "$path")" "${path#/usr}") # else one of ours, in lib/inferd
    done
    { dpkg -S "${paths[@]}" || true; } 2>/dev/null | cut -d: -f1 | sort -u
}

libc_version() { objdump -T "$@" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1; }

cmd_deb() {
    local root=build/deb version arch name files depends
    [ $# = 0 ] || die "deb takes no arguments, and '$1' was given"
    prepare build
    build_preset release inferd || die "the build 'release' failed; the whole log is build/logs/build-release.log"
    version=$(project_version) arch=$(dpkg --print-architecture)
    rm -rf "$root"
    install_tree "$ROOT/$root" /usr /etc /usr/lib/systemd/system /var/lib/inferd || die "the package's tree could not be made; the reason is above"
    files=("$root/usr/bin/inferd" "$root"/usr/lib/inferd/*.so.*)
    depends=$(needed_packages "${files[@]}" | sed "s/^libc6$/libc6 (>= $(libc_version "${files[@]}"))/" | paste -sd, | sed 's/,/, /g')
    mkdir -p "$root/DEBIAN" dist
    sed "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@DEPENDS@/$depends/; s/@SIZE@/$(du -sk "$root/usr" | cut -f1)/" \
        deploy/debian/control >"$root/DEBIAN/control"
    echo /etc/inferd/inferd.yaml >"$root/DEBIAN/conffiles"
    install -m 755 deploy/debian/postinst deploy/debian/prerm "$root/DEBIAN/"
    cp deploy/debian/copyright "$root/usr/share/doc/inferd/copyright"
    rm "$root/usr/share/doc/inferd/LICENSE"
    name=dist/inferd_${version}_$arch.deb
    run_logged deb dpkg-deb --root-owner-group --build "$root" "$name" || die "dpkg-deb failed; the last lines are above"
    say "built $name: apt install ./$name"
}
