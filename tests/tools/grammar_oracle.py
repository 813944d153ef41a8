"""Compares text/grammar with Python's `re` and `jsonschema`, on grammars and texts made at random.

    python tests/tools/grammar_oracle.py BENCH_GRAMMAR [--seed N] [--regexes N] [--schemas N] [--vocab rig] [--write-cases FILE]

BENCH_GRAMMAR is build/<preset>/bench/bench_grammar (bench/grammar.c, mode `serve`). For each regular expression: random texts are accepted exactly
when re.fullmatch does, and every random walk through the masks is matched. For each schema: every walk is valid by jsonschema (with formats),
and instances made from the schema, valid by jsonschema, are accepted in both compact and indented form; mutilated ones that jsonschema refuses
are not accepted. `--write-cases` also stores a part of it for tests/unit/text/test_grammar_cases.c. Ends with 1 on any difference."""
import argparse
import datetime
import decimal
import json
import random
import re
import signal
import subprocess
import sys

import jsonschema

FORMATS = jsonschema.FormatChecker(formats=["date", "uuid", "email", "ipv4", "ipv6", "idn-email", "regex"])


@FORMATS.checks("date-time", raises=ValueError)
def is_date_time(v):
    return not isinstance(v, str) or datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", v)).tzinfo is not None


@FORMATS.checks("time", raises=ValueError)
def is_time(v):
    return not isinstance(v, str) or datetime.time.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", v)).tzinfo is not None


def multiple_of(validator, step, instance, schema):
    """jsonschema divides floats: 5126.2 would be no multiple of 0.1."""
    if validator.is_type(instance, "number") and decimal.Decimal(str(instance)) % decimal.Decimal(str(step)):
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {step}")


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"multipleOf": multiple_of})


class Server:
    def __init__(self, program, vocab):
        self.p = subprocess.Popen([program, vocab, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, source, **more):
        q = json.dumps({"kind": kind, "source": source, **more}, ensure_ascii=False)
        self.p.stdin.write(q.encode() + b"\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the server died ({self.p.wait()}) on {q}")
        return json.loads(line)


# ---- regular expressions ----

ATOMS = ["a", "b", "c", "0", "1", "ab", "é", "日", " ", "[ab]", "[^a]", "[a-c0]", r"\d", r"\w", ".", r"\.", r"[\d.]", "[^b-c]", r"\D", r"\W", "[é-日]", r"\x61",
         r"\u0062", "-", r"[a\-c]", "[-a]", "\"", r"\\"]
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "{1,2}?"]
LETTERS = "abcab01é日 .-A\"\\"


def random_regex(r, depth=0):
    parts = []
    for _ in range(r.randint(1, 3)):
        seq = ""
        for _ in range(r.randint(0 if depth else 1, 3)):
            if depth < 3 and r.random() < 0.3:
                atom = r.choice(["(", "(?:", "(?P<n%d>" % r.randrange(10**9)]) + random_regex(r, depth + 1) + ")"
            else:
                atom = r.choice(ATOMS)
                if len(atom) > 1 and atom[0] not in "[\\" :
                    atom = "(" + atom + ")"
            seq += atom + r.choice(QUANTIFIERS)
        parts.append(seq)
    return "|".join(parts)


class TooSlow(Exception):
    pass


def too_slow(*_):
    raise TooSlow


def check_regexes(server, r, n, cases):
    """Python's matcher takes exponential time on some of these; those are left out after a tenth of a second."""
    signal.signal(signal.SIGALRM, too_slow)
    counts = {"texts": 0, "matching": 0, "walks": 0, "left out": 0}
    for _ in range(n):
        pattern = random_regex(r)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            check_regex(server, r, pattern, counts, cases)
        except TooSlow:
            counts["left out"] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"regex: {n} expressions as Python's re: {counts}")


def check_regex(server, r, pattern, counts, cases):
    compiled = re.compile(pattern, re.ASCII)
    texts = ["".join(r.choice(LETTERS) for _ in range(r.randint(0, 7))) for _ in range(30)]
    a = server.ask("regex", pattern, walks=6, tokens=r.randint(0, 12), seed=r.randrange(2**40), check=texts)
    if "error" in a:
        raise SystemExit(f"regex {pattern!r} was refused: {a['error']}")
    more = server.ask("regex", pattern, check=a["walks"])
    if not all(more["accepts"]):
        raise SystemExit(f"regex {pattern!r}: a walk is not accepted byte by byte: {a['walks']}")
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    for text, got in zip(texts, a["accepts"]):
        if got != bool(compiled.fullmatch(text)):
            raise SystemExit(f"regex {pattern!r}, text {text!r}: accepted {got}, Python says {not got}")
        counts["texts"] += 1
        counts["matching"] += got
    for w in a["walks"]:
        if not compiled.fullmatch(w):
            raise SystemExit(f"regex {pattern!r}: the walk {w!r} does not match")
        counts["walks"] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    if len(cases) < 80 and len(pattern) < 60:
        yes = sorted({t for t, ok in zip(texts, a["accepts"]) if ok} | set(a["walks"]), key=len)[:4]
        no = sorted({t for t, ok in zip(texts, a["accepts"]) if not ok}, key=len)[:4]
        cases.append({"kind": "regex", "source": pattern, "yes": yes, "no": no})


# ---- JSON Schema ----

NAMES = ["a", "b", "name", "id", "na", "名", "with \"quote\"", "x/y", "n\\m"]
STRINGS = ["", "a", "red", "green \"x\"", "é\n", "日本", "tab\t", "\\", "😀"]


def random_value(r, depth=0):
    k = r.randrange(7 if depth < 2 else 5)
    return [None, r.random() < 0.5, r.choice(STRINGS), r.randint(-1000, 1000), r.choice([0.5, -1.25, 1e-7, 3.0, 1e16]),
            {r.choice(NAMES): random_value(r, depth + 1) for _ in range(r.randrange(3))} if k == 5 else 0,
            [random_value(r, depth + 1) for _ in range(r.randrange(3))] if k == 6 else 0][k]


FORMAT_SAMPLES = {
    "date": ["2024-02-29", "1999-12-31", "2023-04-30"], "time": ["23:59:59Z", "00:00:00.123+05:30"],
    "date-time": ["2024-02-29T12:00:00Z", "2001-01-01T01:01:01.5-08:00"], "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "email": ["a@b.co", "first.last+tag@example.com"], "ipv4": ["0.0.0.0", "255.255.255.255", "10.1.2.3"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::", "fe80::"], "hostname": ["example.com", "a-b.c"],
    "uri": ["https://example.com/a/b?c=d#e", "ftp://x.org"], "duration": ["P1D", "PT5M", "P1Y2M3DT4H5M6S"],
}
PATTERNS = [("^[A-Z]{2}-[0-9]+$", lambda r: "".join(r.choice("AZQ") for _ in range(2)) + "-" + str(r.randint(0, 999))),
            ("b+", lambda r: r.choice(["b", "abb", "b\"\n", "xxbé"])), ("^(yes|no)", lambda r: r.choice(["yes", "no", "no, thanks"])),
            ("[0-9]$", lambda r: r.choice(["1", "a\\7"])), ("^\"[^\"]*\"$", lambda r: '"' + r.choice(["", "a", "\t"]) + '"')]


def number_schema(r, integer):
    s = {"type": "integer" if integer else "number"}
    lo = r.choice([None, r.randint(-200, 200), r.choice([0, 1, -1, 99, 100, -1000])])
    hi = None if r.random() < 0.4 else (lo if lo is not None else r.randint(-200, 200)) + r.choice([0, 1, 5, 37, 1000, 12345])
    if not integer and r.random() < 0.5:
        lo = None if lo is None else lo + r.choice([0, 0.5, 0.25, 0.125])
        hi = None if hi is None else hi + r.choice([0.5, 0.75, 1.125])
    if lo is not None:
        s[r.choice(["minimum", "minimum", "exclusiveMinimum"])] = lo
    if hi is not None:
        s[r.choice(["maximum", "maximum", "exclusiveMaximum"])] = hi
    if r.random() < 0.3:
        s["multipleOf"] = r.choice([1, 2, 3, 5, 7, 10, 60]) if integer else r.choice([0.1, 0.01, 5])
    return s


def number_values(r, s):
    edge = [v for k, v in s.items() if k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    step = s.get("multipleOf", 1)
    out = []
    for e in edge + [0]:
        base = round(e / step) * step if step >= 1 else e
        out += [base, base + step, base - step, e, e + 1, e - 1]
        if s["type"] == "number":
            out += [e + 0.5, e - 0.25]
    if s["type"] == "integer" or step == 5:  # multiples of whole numbers are written as whole numbers
        return [int(v) for v in out if v == int(v)]
    return [int(v) if v == int(v) and r.random() < 0.5 else round(float(v), 6) for v in out]


def random_schema(r, depth=0):
    """(schema, a function that makes candidates of instances)."""
    k = r.choice(["null", "bool", "string", "counted", "pattern", "format", "integer", "number", "enum", "const"] +
                 (["object"] * 6 + ["array"] * 3 + ["tuple", "anyOf", "oneOf", "allOf", "map", "types", "any", "ref"] if depth < 3 else []))
    if k == "null":
        return {"type": "null"}, lambda: [None]
    if k == "bool":
        return {"type": "boolean", "description": "x"}, lambda: [True, False]
    if k == "string":
        return {"type": "string", "title": "t"}, lambda: STRINGS
    if k == "counted":
        lo = r.randrange(4)
        s = {"type": "string", "minLength": lo, "maxLength": lo + r.randrange(5)}
        if r.random() < 0.2:
            del s["maxLength"]
        return s, lambda: STRINGS + ["abc", "abcde", "日本語x", "\"\"\"\""]
    if k == "pattern":
        p, make = r.choice(PATTERNS)
        return {"type": "string", "pattern": p}, lambda: [make(r) for _ in range(4)]
    if k == "format":
        f = r.choice(list(FORMAT_SAMPLES))
        return {"type": "string", "format": f}, lambda: FORMAT_SAMPLES[f]
    if k in ("integer", "number"):
        s = number_schema(r, k == "integer")
        return s, lambda: number_values(r, s)
    if k == "enum":
        v = [random_value(r) for _ in range(r.randint(1, 6))]
        return {"enum": v}, lambda: v
    if k == "const":
        v = random_value(r)
        return {"const": v}, lambda: [v]
    if k == "any":
        return r.choice([True, {}]), lambda: [random_value(r) for _ in range(4)]
    if k == "types":
        return {"type": ["string", "null", "integer"], "minimum": 3, "maxLength": 2}, lambda: [None, 3, 77, "", "ab", "é"]
    if k == "ref":
        node = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node%d" % depth}, {"type": "null"}]}},
                "required": ["v"], "additionalProperties": False}
        return ({"$ref": "#/$defs/node%d" % depth, "$defs": {"node%d" % depth: node}},
                lambda: [{"v": 1}, {"v": 2, "next": None}, {"v": 1, "next": {"v": 2, "next": {"v": -3}}}])
    if k == "array":
        item, make = random_schema(r, depth + 1)
        lo = r.randrange(3)
        s = {"type": "array", "items": item, "minItems": lo}
        if r.random() < 0.6:
            s["maxItems"] = lo + r.randrange(3)
        return s, lambda: [[r.choice(make()) for _ in range(n)] for n in range(6) if make()]
    if k == "tuple":
        subs = [random_schema(r, depth + 1) for _ in range(r.randint(1, 3))]
        s = {"type": "array", "prefixItems": [x for x, _ in subs], "minItems": r.randrange(len(subs) + 1), "items": r.choice([False, {"type": "null"}])}
        return s, lambda: [[r.choice(m()) for _, m in subs if m()][:n] for n in range(4)]
    if k == "map":
        item, make = random_schema(r, depth + 1)
        return ({"type": "object", "additionalProperties": item, "maxProperties": 2},
                lambda: [{n: r.choice(make()) for n in r.sample(NAMES, c)} for c in range(3) if make()])
    if k == "anyOf":
        subs = [random_schema(r, depth + 1) for _ in range(r.randint(1, 3))]
        return {"anyOf": [x for x, _ in subs]}, lambda: [v for _, m in subs for v in m()]
    if k == "oneOf":
        tags = r.sample(["x", "y", "zed"], 2)
        subs = [random_schema(r, depth + 1) for _ in tags]
        return ({"oneOf": [{"type": "object", "properties": {"kind": {"const": t}, "value": x}, "required": ["kind", "value"], "additionalProperties": False}
                           for t, (x, _) in zip(tags, subs)]},
                lambda: [{"kind": t, "value": v} for t, (_, m) in zip(tags, subs) for v in m()])
    if k == "allOf":
        a, make = random_schema(r, depth + 1)
        return ({"allOf": [{"type": "object", "properties": {"p": a}}, {"properties": {"q": {"type": "integer"}}, "required": ["q", "p"]}]},
                lambda: [{"p": v, "q": 5} for v in make()])
    names = r.sample(NAMES, r.randint(0, 4))
    subs = {n: random_schema(r, depth + 1) for n in names}
    s = {"type": "object", "properties": {n: x for n, (x, _) in subs.items()}, "required": [n for n in names if r.random() < 0.6]}
    extra = r.random()
    if extra < 0.5:
        s["additionalProperties"] = False
    elif extra < 0.7:
        s["additionalProperties"] = {"type": "integer"}

    def make_objects():
        out = []
        for _ in range(4):
            o = {n: r.choice(m()) for n, (_, m) in subs.items() if m() and (n in s["required"] or r.random() < 0.5)}
            if 0.5 <= extra < 0.7 and r.random() < 0.5:
                o["more" + str(r.randrange(9))] = 3
            out.append(o)
        return out
    return s, make_objects


def hoist(schema):
    """Definitions belong to the root."""
    defs = {}

    def walk(v):
        if isinstance(v, dict):
            defs.update(v.pop("$defs", {}))
            for k, x in v.items():
                if k not in ("enum", "const"):
                    walk(x)
        elif isinstance(v, list):
            for x in v:
                walk(x)
    walk(schema)
    if defs and isinstance(schema, dict):
        for d in list(defs.values()):
            walk(d)
        schema["$defs"] = defs
    return schema


def closed(schema):
    """Where additionalProperties is absent beside properties, undeclared members are valid but never drawn: here they are invalid."""
    if isinstance(schema, list):
        return [closed(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: x if k in ("enum", "const", "allOf") else closed(x) for k, x in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and schema.get("type") == "object":
        out["additionalProperties"] = False
    return out


def spoil(r, v):
    v = json.loads(json.dumps(v))
    k = r.randrange(4)
    if isinstance(v, dict) and v and k < 3:
        n = r.choice(list(v))
        if k == 0:
            del v[n]
        elif k == 1:
            v["unexpected"] = "?"
        else:
            v[n] = spoil(r, v[n])
        return v
    if isinstance(v, list) and v and k < 3:
        if k == 0:
            v.pop()
        elif k == 1:
            v.append({"?": 1})
        else:
            v[0] = spoil(r, v[0])
        return v
    return r.choice([None, 17, -1.5, "??", [], {}, True, 10**6])


def check_schemas(server, r, n, cases):
    refused, n_walks, n_yes, n_no = {}, 0, 0, 0
    for _ in range(n):
        schema, make = random_schema(r)
        schema = hoist(schema)
        source = json.dumps(schema, ensure_ascii=r.random() < 0.5)
        validator = Validator(schema, format_checker=FORMATS)
        candidates = make() if make else []
        drawn = Validator(closed(schema), format_checker=FORMATS)
        good = [v for v in candidates if drawn.is_valid(v)][:8]
        bad = [b for b in (spoil(r, v) for v in candidates[:8]) if not validator.is_valid(b)]
        yes = [json.dumps(v, ensure_ascii=False) for v in good] + [json.dumps(v, ensure_ascii=False, indent=2) for v in good[:3]] + \
              [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in good[:3]]
        no = [json.dumps(v, ensure_ascii=False) for v in bad]
        a = server.ask("json_schema", source, walks=8, tokens=r.randint(0, 40), seed=r.randrange(2**40), check=yes + no)
        if "error" in a:
            if good and "no text can ever match" in a["error"]:
                raise SystemExit(f"{source}\nwas called empty, but {good[0]} is valid")
            why = re.sub(r"#\S*|\d+|'[^']*'", "_", a["error"])
            refused[why] = refused.get(why, 0) + 1
            continue
        for text in a["walks"]:
            try:
                value = json.loads(text)
            except ValueError as e:
                raise SystemExit(f"{source}\nthe walk {text!r} is not JSON: {e}") from None
            problem = next(validator.iter_errors(value), None)
            if problem:
                raise SystemExit(f"{source}\nthe walk {text!r} is not valid: {problem.message}")
            n_walks += 1
        for text, got in zip(yes + no, a["accepts"]):
            want = len(yes) > 0 and text in yes
            if got != want:
                raise SystemExit(f"{source}\n{text}\naccepted: {got}, by jsonschema: {want}")
        n_yes += len(yes)
        n_no += len(no)
        if len(cases) < 240 and len(source) < 400:
            cases.append({"kind": "json_schema", "source": source, "yes": yes[:4], "no": no[:3]})
    print(f"schemas: {n - sum(refused.values())} compiled, {n_walks} walks all valid, {n_yes} valid instances accepted, {n_no} invalid ones refused")
    for why, k in sorted(refused.items(), key=lambda x: -x[1]):
        print(f"  refused {k} times: {why}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--regexes", type=int, default=2000)
    p.add_argument("--schemas", type=int, default=2000)
    p.add_argument("--vocab", default="rig")
    p.add_argument("--write-cases")
    args = p.parse_args()
    server, r, cases = Server(args.program, args.vocab), random.Random(args.seed), []
    check_regexes(server, r, args.regexes, cases)
    check_schemas(server, r, args.schemas, cases)
    if args.write_cases:
        with open(args.write_cases, "w", encoding="utf-8") as f:
            for c in cases:
                f.write(json.dumps(c, ensure_ascii=False) + "\n")
        print(f"{len(cases)} cases written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
