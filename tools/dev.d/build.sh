# ./dev build: configure (once) and build presets of CMakePresets.json into build/PRESET.

# build_preset PRESET [TARGET]: quiet unless it fails; warnings are errors, so a failure's last lines say why.
build_preset() {
    local preset=$1 target=${2:-all}
    if [ ! -f "build/$preset/build.ninja" ]; then
        run_logged "configure-$preset" cmake --preset "$preset" ||
            die "the build '$preset' could not be configured; the whole log is build/logs/configure-$preset.log"
    fi
    say "building $preset"
    run_logged "build-$preset" cmake --build "build/$preset" --target "$target" -j "$(jobs_count)"
}

cmd_build() {
    local preset
    [ $# -gt 0 ] || set -- release
    for preset in "$@"; do
        case $preset in
        release | debug | asan | tsan | ubsan) prepare test ;;
        fuzz) prepare lint ;;
        *) die "there is no build '$preset'; the builds are release, debug, asan, tsan, ubsan, fuzz" ;;
        esac
        build_preset "$preset" || die "the build '$preset' failed; the whole log is build/logs/build-$preset.log"
        say "built build/$preset/inferd"
    done
}
