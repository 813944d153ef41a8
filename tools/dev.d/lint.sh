# ./dev lint: the project's rules that a machine can check. Each check is one program that prints "file:line: sentence".

LINT_CHECKS=(format banned deps size layout headers generated tidy)

c_files() { find src tests bench tools \( -name '*.c' -o -name '*.h' \) 2>/dev/null | sort; }

lint_format() { c_files | xargs -r "$VENV/bin/clang-format" --dry-run -Werror 2>&1 | { grep -E 'error:' || true; } | sed 's/error: code should be clang-formatted.*/not in the project'\''s format: run .\/dev fmt/' | awk -F: '!seen[$1]++ { print } END { exit NR > 0 }'; }
lint_banned() { "$VENV/bin/python" tools/lint/check_banned.py; }
lint_deps() { "$VENV/bin/python" tools/lint/check_deps.py; }
lint_size() { "$VENV/bin/python" tools/lint/check_size.py; }
lint_layout() { "$VENV/bin/python" tools/lint/check_layout.py; }

lint_headers() {
    [ -f build/debug/compile_commands.json ] || run_logged configure-debug cmake --preset debug
    "$VENV/bin/python" tools/lint/check_headers.py build/debug
}

# Generated pages are written anew and compared with the committed ones.
lint_generated() {
    [ -f tools/generated.txt ] || return 0
    build_preset debug inferd || return 1
    local file command rc=0
    while IFS='|' read -r file command; do
        case $file in '' | '#'*) continue ;; esac
        if ! (INFERD=build/debug/inferd && export INFERD && bash -c "$command") 2>/dev/null | cmp -s - "$file"; then
            echo "$file:1: is not what '$command' writes: run it with INFERD=build/debug/inferd and commit the page"
            rc=1
        fi
    done < <(sed 's/ *| */|/' tools/generated.txt)
    return $rc
}

# clang-tidy takes seconds a file: a file whose text, headers and rules are those of the last clean run is not read again.
lint_tidy() {
    [ -f build/debug/compile_commands.json ] || run_logged configure-debug cmake --preset debug
    mkdir -p build/tidy
    local common
    common=$(find src -name '*.h' | sort | xargs cat .clang-tidy tools/lint/analyzer.h | sha256sum | cut -c1-16)
    export common
    find src -name '*.c' | sort | xargs -P "$(jobs_count)" -I{} bash -c '
        key=$(cat "$1" | sha256sum | cut -c1-16)-$common; stamp=build/tidy/$(printf %s "$1" | tr / _)
        [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && exit 0
        known=--extra-arg=-include$PWD/tools/lint/analyzer.h
        [ "$1" != src/base/error.c ] || known=--extra-arg=-DERROR_C
        if .venv/bin/clang-tidy --quiet -p build/debug --extra-arg=-Wno-unknown-warning-option "$known" "$1" 2>/dev/null >"$stamp.log"; then
            echo "$key" >"$stamp"
        else
            grep -E "(error|warning):" "$stamp.log" || echo "$1:1: clang-tidy could not read the file"; exit 1
        fi' _ {}
}

# lint_all RESULT.xml CHECK...: every check runs even when one fails; the results are also written as JUnit.
lint_all() {
    local xml=$1 check failed=0
    shift
    [ $# -gt 0 ] || set -- "${LINT_CHECKS[@]}"
    mkdir -p "$LOGS" "$(dirname "$xml")"
    echo '<testsuite name="lint">' >"$xml"
    for check in "$@"; do
        printf '<testcase classname="lint" name="%s">' "$check" >>"$xml"
        if "lint_$check" >"$LOGS/lint-$check.log" 2>&1; then
            printf '  %-10s clean\n' "$check"
        else
            failed=1
            printf '  %-10s FAILED\n' "$check"
            sed 's/^/    /' "$LOGS/lint-$check.log"
            printf '<failure message="%s">' "$check" >>"$xml"
            head -n 30 "$LOGS/lint-$check.log" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' >>"$xml"
            printf '</failure>' >>"$xml"
        fi
        echo '</testcase>' >>"$xml"
    done
    echo '</testsuite>' >>"$xml"
    return $failed
}

cmd_lint() {
    local check
    for check in "$@"; do
        case " ${LINT_CHECKS[*]} " in
        *" $check "*) ;;
        *) die "there is no check '$check'; the checks are ${LINT_CHECKS[*]}" ;;
        esac
    done
    prepare lint
    lint_all build/results/lint.xml "$@" || die "the checks above failed"
}
