# ./dev fuzz [SECONDS] [TARGET]: libFuzzer with address and undefined-behaviour sanitizers over tests/fuzz/fuzz_*.c.
#
# New inputs go to build/fuzz/corpus, crashes to build/fuzz/crashes; the committed corpus is only read.

fuzz_names() { find tests/fuzz -maxdepth 1 -name 'fuzz_*.c' -printf '%f\n' | sed 's/\.c$//' | sort | paste -sd' '; }

cmd_fuzz() {
    local seconds=60 targets=() arg name failed=()
    for arg in "$@"; do
        case $arg in
        *[!0-9]*) targets+=("fuzz_${arg#fuzz_}") ;;
        *) seconds=$arg ;;
        esac
    done
    for name in "${targets[@]}"; do
        [ -f "tests/fuzz/$name.c" ] || die "there is no fuzz target '$name'; the targets are: $(fuzz_names)"
    done
    prepare lint
    build_preset fuzz || die "the build 'fuzz' failed; the whole log is build/logs/build-fuzz.log"
    if [ ${#targets[@]} = 0 ]; then
        for arg in tests/fuzz/fuzz_*.c; do
            name=${arg##*/}
            targets+=("${name%.c}")
        done
    fi
    mkdir -p build/fuzz/crashes
    for name in "${targets[@]}"; do
        [ -x "build/fuzz/fuzz/$name" ] || die "the build 'fuzz' made no build/fuzz/fuzz/$name; the whole log is build/logs/build-fuzz.log"
        mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
        say "$name for $seconds s"
        if run_logged "$name" "build/fuzz/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
            -artifact_prefix="build/fuzz/crashes/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"; then
            sed -nE 's/^stat::(number_of_executed_units|peak_rss_mb): */    \1 /p' "$LOGS/$name.log"
        else
            failed+=("$name")
        fi
    done
    [ ${#failed[@]} = 0 ] || die "crashed: ${failed[*]}; the inputs are in build/fuzz/crashes, and build/fuzz/fuzz/TARGET FILE runs one again"
    say "${#targets[@]} targets, $seconds s each: no crash"
}
