# ./dev bench: lists the measurements in bench/ with their first line of purpose, or runs one with its arguments.

bench_files() { find bench -maxdepth 1 \( -name '*.sh' -o -name '*.py' \) ! -name 'common.*' 2>/dev/null | sort; }

# The first sentence of a script: its first comment or docstring line after the shebang.
bench_purpose() { sed -nE '/^#!/d; s/^(#|""")[ ]*//; s/^[a-z_0-9]+\.(py|sh): //; /./{ s/"""$//; p; q; }' "$1"; }

cmd_bench() {
    local file name=${1:-}
    if [ -z "$name" ]; then
        for file in $(bench_files); do
            printf '  %-22s %s\n' "$(basename "${file%.*}")" "$(bench_purpose "$file")"
        done
        return 0
    fi
    shift
    for file in $(bench_files); do
        [ "$(basename "${file%.*}")" = "$name" ] || continue
        prepare bench
        build_preset release || die "the build 'release' failed; the whole log is build/logs/build-release.log"
        export INFERD_BINARY=$ROOT/build/release/inferd
        case $file in
        *.py) exec "$VENV/bin/python" "$file" "$@" ;;
        *) PATH=$VENV/bin:$PATH exec bash "$file" "$@" ;;
        esac
    done
    die "there is no measurement '$name'; ./dev bench lists them"
}
