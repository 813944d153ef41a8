"""make_chat_template_cases.py > tests/data/text/chat_template_cases.json: templates of our own with what jinja2 makes of them.

jinja2 is set up as transformers does it (trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes), with lists that may be
changed. Needs jinja2 only to make the file anew.
"""
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import SandboxedEnvironment

CHAT = {"messages": [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi <|end|> \u00e9\U0001f600"},
                     {"role": "assistant", "content": "Hello"}], "bos_token": "<s>", "add_generation_prompt": True}
TEMPLATES = [
    ("plain {{ 1 }} {{ 1.5 }} {{ true }} {{ none }} {{ 'a' ~ 1 }} {{ undefined_name }}|", {}),
    ("{% for m in messages %}\n  {% if loop.first %}{{ bos_token }}{% endif %}\n<|{{ m.role }}|>{{ m['content'] | trim }}<|end|>\n{% endfor %}\n"
     "{%- if add_generation_prompt %}<|assistant|>{% endif %}\n", CHAT),
    ("{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.last = m.role %}{% endfor %}{{ ns.n }} {{ ns.last }}", CHAT),
    ("{% macro show(m, upper=false) %}[{{ m.role | upper if upper else m.role }}]{% endmacro %}{{ show(messages[0]) }}{{ show(messages[-1], upper=true) }}", CHAT),
    ("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d | tojson }}|{{ d | tojson(indent=2) }}|{{ d | dictsort | list }}",
     {"d": {"b": 1, "a": [1.0, None, True, "x\"y\n\u4e2d"], "c": {}}}),
    ("{{ x[1:3] }}{{ x[::-1] }}{{ x[-2:] }}{{ s[1:-1] }}{{ s[::2] }}{{ s[10:] }}|{{ x[5] }}|{{ x[-1] }}", {"x": [1, 2, 3, 4], "s": "h\u00e9llo"}),
    ("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1 + 2 * 3 }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e22 }}", {}),
    ("{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' in 'cab' }} {{ 'x' not in ['x'] }} {{ not 1 == 2 }} {{ 1 == 1.0 }} {{ 'b' > 'a' }} {{ (1, 2) == (1, 2) }}", {}),
    ("{{ s.split() }} {{ s.split(',') }} {{ s.split(',', 1) }} {{ s.strip(' a') }} {{ s.replace('a', '<>') }} {{ s.startswith(' a') }} {{ s.upper() }} {{ s | title }} {{ s | capitalize }}",
     {"s": " a,b c,a "}),
    ("{{ m | map(attribute='n') | join(', ') }} {{ m | selectattr('n', 'gt', 1) | list | length }} {{ m | rejectattr('t', 'defined') | map(attribute='n') | list }}"
     " {{ [3, 1, 2] | sort }} {{ [3, 1, 2] | sort(reverse=true) | first }} {{ ['b', 'A', 'c'] | sort | join }} {{ [1, 1, 2] | unique | list }} {{ 'abc' | reverse }} {{ [1, 2] | sum }}",
     {"m": [{"n": 1, "t": 1}, {"n": 2}, {"n": 3}]}),
    ("{% set x %}\n  body {{ 1 }}\n{% endset %}[{{ x }}]{% filter upper %}abc{% endfilter %}{% set y | trim %}  t {% endset %}{{ y }}", {}),
    ("a\n   {%- if true -%}   \n b \n  {%+ if true %}\nc{% endif %}\n{%- endif %}\n  {# note #}\nd  {#- x -#}  e\n", {}),
    ("{% for i in range(10) if i % 2 %}{% if i == 7 %}{% break %}{% endif %}{% if i == 3 %}{% continue %}{% endif %}{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}", {}),
    ("{% for i in [] %}x{% else %}empty{% endfor %}{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }} {{ loop.nextitem is defined }} {% endfor %}", {}),
    ("{{ x is defined }} {{ y is defined }} {{ x is string }} {{ z is mapping }} {{ z is iterable }} {{ 1 is number }} {{ true is boolean }} {{ none is none }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ x is not none }} {{ x is equalto 'q' }} {{ x in ['q'] and true }}",
     {"x": "q", "z": {}}),
    ("{{ a | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }} {{ 'x' | length }} {{ '12' | int + 1 }} {{ 'z' | int(5) }} {{ '1.5' | float }} {{ -3 | abs }} {{ 2.567 | round(2) }}", {}),
    ("{% call wrap('b') %}inner{% endcall %}", {}),
    ("{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}inner {{ 1 }}{% endcall %}", {}),
    ("{% set l = [] %}{% for i in [1, 2, 3] %}{% set _ = l.append(i * 2) %}{% endfor %}{{ l }} {{ l.pop() }} {{ l }} {{ l.index(4) }}", {}),
    ("{{ 'line\nnext\n\nend' | indent(2) }}|{{ 'a\nb' | indent(3, true) }}|{{ {'a': {'b': 'c'}}.a.b }}|{{ {'get': 1}.get('q', 'no') }}|{{ 'x{}y{}'.format(1, 'z') }}", {}),
    ("{{ raise_exception('two users in a row') }}", {}),
    ("{{ missing.attribute }}", {}),
    ("{{ 1 + 'a' }}", {}),
    ("{{ 'a' | nosuchfilter }}", {}),
    ("{% if true %}open", {}),
    ("{{ strftime_now('%Y-%m-%d %H:%M %B %a') }}", {}),
]


def raise_exception(text):
    raise jinja2.exceptions.TemplateError(text)


def environment():
    e = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    e.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = lambda f: __import__("datetime").datetime.fromtimestamp(
        1700000000, __import__("datetime").timezone.utc).strftime(f)
    return e


cases = []
for source, arguments in TEMPLATES:
    case = {"template": source, "arguments": arguments}
    try:
        case["output"] = environment().from_string(source).render(**arguments)
    except Exception:
        case["fails"] = True
    cases.append(case)
print(json.dumps(cases, ensure_ascii=False, indent=1))
