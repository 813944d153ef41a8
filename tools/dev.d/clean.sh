# ./dev clean [--all]: what ./dev made, and nothing else.
cmd_clean() {
    local made=(build)
    case ${1:-} in
    '') ;;
    --all) made+=(.deps .venv demo/models demo/media dist) ;;
    *) die "clean has no option '$1'; --all also removes what ./dev deps and ./dev run fetched" ;;
    esac
    rm -rf "${made[@]}"
    say "removed ${made[*]}"
}
