"""zone_client.py: the clients of test_gateway_zones.py, run inside the hub's namespace: `zone_client.py HOST:PORT SECONDS RATE STREAMS`.

RATE unary inferences a second at fixed times (a slow answer delays no other request), STREAMS streams one after the other in as many
threads. One JSON line a request: [kind, begun, ended, outcome]; outcome of unary: the status, or the exception; of a stream: "done" ([DONE] was
there), "in_band" (an error event, then a proper end), else what happened.
"""
import concurrent.futures
import http.client
import json
import sys
import threading
import time

BODY = json.dumps({"inputs": [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for n in ("INPUT0", "INPUT1")]})
CHAT = json.dumps({"model": "parrot", "stream": True, "max_tokens": 40, "messages": [{"role": "user", "content": "a" * 40}]})
JSON_TYPE = {"Content-Type": "application/json"}

address, seconds, rate, streams = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
local = threading.local()
out_lock = threading.Lock()


def record(*what):
    with out_lock:
        print(json.dumps(what), flush=True)


def unary():
    begun = time.time()
    try:
        if begun - getattr(local, "used", 0) > 20:  # a kept connection may be closed by the server when it has idled for long
            local.c = http.client.HTTPConnection(address, timeout=20)
        local.used = begun
        local.c.request("POST", "/v2/models/simple/infer", BODY, JSON_TYPE)
        reply = local.c.getresponse()
        body = reply.read()
        outcome = reply.status
        if outcome == 200 and json.loads(body)["outputs"][0]["data"] != [2 * i for i in range(16)]:
            outcome = "wrong"
    except (OSError, http.client.HTTPException, ValueError) as e:
        outcome = repr(e)
        local.used = 0
    record("unary", begun, time.time(), outcome)


def stream():
    begun = time.time()
    try:
        c = http.client.HTTPConnection(address, timeout=20)
        c.request("POST", "/v1/chat/completions", CHAT, JSON_TYPE)
        reply = c.getresponse()
        text = reply.read()  # an answer that is cut raises
        outcome = reply.status
        if outcome == 200:
            outcome = ("done" if text.endswith(b"data: [DONE]\n\n") else "in_band" if b"event: error\n" in text else "short")
            if outcome == "done":
                said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                               for line in text.decode().split("\n") if line.startswith("data: {") and json.loads(line[6:])["choices"])
                outcome = "done" if len(said) > 20 else "lost pieces: " + said
        c.close()
    except (OSError, http.client.HTTPException, ValueError, KeyError) as e:
        outcome = repr(e)
    record("stream", begun, time.time(), outcome)


def streaming(until):
    while time.time() < until:
        stream()


start = time.time()
until = start + seconds
threads = [threading.Thread(target=streaming, args=(until,)) for _ in range(streams)]
for t in threads:
    t.start()
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    n = 0
    while (at := start + n / rate) < until:
        time.sleep(max(0, at - time.time()))
        pool.submit(unary)
        n += 1
for t in threads:
    t.join()
