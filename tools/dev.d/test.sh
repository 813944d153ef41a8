# ./dev test: unit tests and fuzz corpora (ctest), wire tests with real clients (pytest), and one closing count.
#
# Every run leaves a JUnit file below build/results; tools/test_summary.py adds them up and prints the closing line
# from them alone, so that the count is what ran and not what was meant to run. A build that fails, or a runner that
# dies without a result, is a failed test of its own.

RESULTS=$ROOT/build/results

# What the sanitizers are told. The suppressions name third-party libraries only.
sanitizer_environment() {
    # no fake stack frames: gcc 12 aligns them to 32 bytes, which objects of 64 do not survive (PR 110027)
    export ASAN_OPTIONS="detect_stack_use_after_return=0:strict_string_checks=1:check_initialization_order=1:abort_on_error=0:exitcode=99:allocator_may_return_null=1"
    export LSAN_OPTIONS="suppressions=$ROOT/tests/suppressions/lsan.supp:print_suppressions=0:exitcode=98"
    export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
    export TSAN_OPTIONS="suppressions=$ROOT/tests/suppressions/tsan.supp:halt_on_error=1:second_deadlock_stack=1:exitcode=97"
}

# broken NAME SENTENCE: records a step that could not even run as one failed test.
broken() {
    printf '<testsuite name="%s"><testcase classname="dev" name="%s"><failure message="%s"/></testcase></testsuite>\n' \
        "$1" "$1" "$2" >"$RESULTS/$1.xml"
}

# What failed is run once more, alone, where it is little: on a loaded machine a process may be held up for seconds, and a test with a
# clock in it then fails for nothing that is wrong here. The summary shows such a test with its first failure; a broken one fails again.
AGAIN_MOST=5

# Thread sanitizer needs the usual memory layout; kernels with wide address randomisation break that for older runtimes.
set_layout() {
    LAYOUT=()
    if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
        LAYOUT=(setarch "$(uname -m)" -R)
    fi
}

run_unit() {
    local preset=$1 args=()
    [ -z "$FILTER_CTEST" ] || args=(-R "$FILTER_CTEST")
    local failed=build/$preset/Testing/Temporary/LastTestsFailed.log
    say "$preset: unit tests"
    rm -f "$failed"
    # ctest's own text is kept in the log; what failed is shown by the summary.
    "${LAYOUT[@]}" ctest --test-dir "build/$preset" -j "$(jobs_count)" --no-tests=ignore --output-junit "$RESULTS/$preset-unit.xml" \
        --test-output-size-passed 1000000 --test-output-size-failed 1000000 "${args[@]}" >"$LOGS/ctest-$preset.log" 2>&1 || true
    [ -s "$RESULTS/$preset-unit.xml" ] || broken "$preset-unit" "ctest left no result; see build/logs/ctest-$preset.log"
    [ -s "$failed" ] && [ "$(wc -l <"$failed")" -le $AGAIN_MOST ] || return 0
    "${LAYOUT[@]}" ctest --test-dir "build/$preset" --rerun-failed --output-junit "$RESULTS/$preset-unit-again.xml" \
        --test-output-size-passed 1000000 --test-output-size-failed 1000000 >"$LOGS/ctest-$preset-again.log" 2>&1 || true
}

# run_pytest NAME RESULT.xml ARGUMENTS...: a pytest that dies, or leaves no result, is a failed test named NAME.
run_pytest() {
    local name=$1 xml=$2 args=() rc=0
    shift 2
    [ -z "$FILTER_PYTEST" ] || args=(-k "$FILTER_PYTEST")
    "${LAYOUT[@]}" "$VENV/bin/python" -m pytest -q -o cache_dir="$RESULTS/.$name" --junitxml="$xml" "${args[@]}" "$@" >"$LOGS/pytest-$name.log" 2>&1 || rc=$?
    # 1: a test failed; 5: the filter or the marks selected nothing here. Above: pytest itself failed.
    case $rc in
    0) [ -s "$xml" ] || broken "$name" "pytest left no result; see build/logs/pytest-$name.log" ;;
    1)
        [ -s "$xml" ] || broken "$name" "pytest left no result; see build/logs/pytest-$name.log"
        run_pytest_again "$name" "${xml%.xml}-again.xml" "$@"
        ;;
    5) rm -f "$xml" ;;
    *)
        tail -n 15 "$LOGS/pytest-$name.log" >&2
        rm -f "$xml"
        broken "$name" "pytest ended with status $rc; see build/logs/pytest-$name.log"
        ;;
    esac
}

# run_pytest_again NAME RESULT.xml ARGUMENTS...: what failed in the run before, if it is little.
run_pytest_again() {
    local name=$1 xml=$2 cache=$RESULTS/.$1
    shift 2
    [ "$("$VENV/bin/python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$cache/v/cache/lastfailed")" -le $AGAIN_MOST ] || return 0
    "${LAYOUT[@]}" "$VENV/bin/python" -m pytest -q -o cache_dir="$cache" --last-failed --last-failed-no-failures=none --junitxml="$xml" "$@" \
        >"$LOGS/pytest-$name-again.log" 2>&1 || true
}

run_wire() {
    local preset=$1 markers=$2
    [ -n "$(find tests/wire -name 'test_*.py' -print -quit 2>/dev/null)" ] || return 0
    say "$preset: wire tests ($markers)"
    export INFERD_BUILD=$preset INFERD_BINARY=$ROOT/build/$preset/inferd
    run_pytest "$preset-wire" "$RESULTS/$preset-wire.xml" tests/wire -m "$markers"
}

# The checkers and the counting of tools/ have tests of their own, which no build changes.
run_tools() {
    LAYOUT=()
    say "tests of the tools"
    run_pytest tools "$RESULTS/tools.xml" tests/tools
}

# Most wire tests wait for something: the next preset is built beside them, at the lowest priority.
build_ahead() {
    AHEAD=$1
    [ -n "$AHEAD" ] || return 0
    (
        renice -n 19 -p "$BASHPID" >/dev/null 2>&1 || true
        build_preset "$AHEAD"
    ) &
    AHEAD_PID=$!
}

# The checks take minutes of clang-tidy: they run beside the last wire tests, at the lowest priority.
lint_ahead() {
    [ "$LINT" = 1 ] || return 0
    . tools/dev.d/lint.sh
    (
        renice -n 19 -p "$BASHPID" >/dev/null 2>&1 || true
        lint_all "$RESULTS/lint.xml" >"$LOGS/lint.log" 2>&1 || true
    ) &
    LINT_PID=$!
    LINT=0
}

# built PRESET: built ahead, or now.
built() {
    if [ "$AHEAD" = "$1" ]; then
        AHEAD=
        wait "$AHEAD_PID"
    else
        build_preset "$1"
    fi
}

# test_preset PRESET NEXT: NEXT is the one to be built meanwhile, if any.
test_preset() {
    local preset=$1 next=${2:-} markers='not soak'
    # ONNX Runtime itself is not built with the thread sanitizer, which then sees races in it that aren't there.
    [ "$preset" != tsan ] || markers='not soak and not onnx'
    [ "$SOAK" = 0 ] || markers=soak
    if ! built "$preset"; then
        build_ahead "$next"
        broken "$preset-build" "the build failed; see build/logs/build-$preset.log"
        return 0
    fi
    set_layout "$preset"
    [ "$KIND" = wire ] || [ "$SOAK" = 1 ] || run_unit "$preset"
    build_ahead "$next"
    [ -n "$next" ] || lint_ahead
    [ "$KIND" = unit ] || run_wire "$preset" "$markers"
}

cmd_test() {
    local presets=() i filters=()
    KIND=all SOAK=0 LINT=0 LINT_PID=
    while [ $# -gt 0 ]; do
        case $1 in
        --asan | --tsan | --ubsan | --debug | --release) presets+=("${1#--}") ;;
        --lint) LINT=1 ;;
        --unit | --wire) KIND=${1#--} ;;
        --soak) SOAK=1 ;;
        -*) die "test has no option '$1'; ./dev help lists them" ;;
        *) filters+=("$1") ;;
        esac
        shift
    done
    [ ${#presets[@]} -gt 0 ] || { [ $SOAK = 1 ] && presets=(release) || presets=(debug); }
    FILTER_CTEST=$(IFS='|' && printf '%s' "${filters[*]}")
    FILTER_PYTEST=$(printf '%s' "${filters[*]}" | sed 's/ / or /g')
    prepare test
    [ $LINT = 0 ] || prepare lint
    rm -rf "$RESULTS"
    mkdir -p "$RESULTS" "$LOGS"
    sanitizer_environment
    AHEAD=
    for i in "${!presets[@]}"; do test_preset "${presets[i]}" "${presets[i + 1]:-}"; done
    [ "$KIND" = unit ] || [ $SOAK = 1 ] || run_tools
    lint_ahead # if no preset was built
    if [ -n "$LINT_PID" ]; then
        wait "$LINT_PID" || true
        cat "$LOGS/lint.log"
    fi
    "$VENV/bin/python" tools/test_summary.py "$RESULTS"
}
