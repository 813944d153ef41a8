# ./dev fmt: rewrites every C file of ours in the project's format (.clang-format, the pinned clang-format).
cmd_fmt() {
    [ $# = 0 ] || die "fmt takes no arguments, and '$1' was given; it formats all C files"
    prepare lint
    find src tests bench tools \( -name '*.c' -o -name '*.h' \) -print0 2>/dev/null | xargs -0 -r "$VENV/bin/clang-format" -i
    say "formatted"
}
